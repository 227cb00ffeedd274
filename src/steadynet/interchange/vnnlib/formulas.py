"""Formulas of VNN-LIB, either version: atoms joined by ``and`` and ``or``, spread out into cases."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from steadynet.errors import UserError
from steadynet.interchange.vnnlib.conjunctions import Conjunction, Constraint, product, union
from steadynet.interchange.vnnlib.s_expressions import Expression, shown

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Variable(NamedTuple):
    """An input (X) or output (Y) by its place in row-major order, and how the file names it."""

    kind: str
    place: int
    name: str


Linear = tuple[dict[Variable, float], float]  # coefficients by variable, and a constant


@dataclass(frozen=True)
class Grammar:
    """What differs between versions: the comparisons there are, and what a word stands for."""

    comparisons: tuple[str, ...]
    variable: Callable[[str], Variable]
    number: type[np.floating] = np.float32  # of inputs: what a strict bound's next number inside is

    def disjuncts(self, formula: Expression) -> list[Conjunction]:
        """A formula as cases, any of which may hold."""
        match formula:
            case ["and", *parts] if parts:
                return self._all([self.disjuncts(part) for part in parts])
            case ["or", *parts] if parts:
                return union(self.disjuncts(part) for part in parts)
            case [str(sign), left, right] if sign in self.comparisons:
                return self._compared(sign, self.linear(left), self.linear(right))
        known = ", ".join(("and", "or", *self.comparisons))
        raise UserError(f"not a formula of {known}: {shown(formula)}")

    def linear(self, term: Expression) -> Linear:
        """A term as a weighted sum of variables."""
        match term:
            case str(word) if _NUMBER.fullmatch(word):
                return {}, _finite(float(word))
            case str(word):
                return {self.variable(word): 1.0}, 0.0
            case ["+", *parts] if parts:
                return _sum(self.linear(part) for part in parts)
            case ["-", part]:
                return _scaled(self.linear(part), -1.0)
            case ["-", first, *others]:
                return _sum([self.linear(first), *(_scaled(self.linear(part), -1.0) for part in others)])
            case ["*", first, *others]:
                return self._product(term, self.linear(first), others)
        raise UserError(f"not a linear term: {shown(term)}")

    def _product(self, term: Expression, result: Linear, others: list[Expression]) -> Linear:
        for other in others:
            factor = self.linear(other)
            if result[0] and factor[0]:
                raise UserError(f"a product of variables is not linear: {shown(term)}")
            result = _scaled(result, factor[1]) if result[0] else _scaled(factor, result[1])
        return result

    @staticmethod
    def _all(parts: list[list[Conjunction]]) -> list[Conjunction]:
        """Single cases are joined first, in place: files have thousands of them."""
        base = Conjunction()
        for part in parts:
            if len(part) == 1:
                base.extend(part[0])
        cases = [base]
        for part in parts:
            if len(part) > 1:
                cases = product(cases, part)
        return cases

    def _compared(self, sign: str, left: Linear, right: Linear) -> list[Conjunction]:
        match sign:
            case "<=" | "<":
                return [self._atom(left, right, sign == "<")]
            case ">=" | ">":
                return [self._atom(right, left, sign == ">")]
            case "!=":
                return [self._atom(left, right, True), self._atom(right, left, True)]
        both = self._atom(left, right, False)
        both.extend(self._atom(right, left, False))
        return [both]

    def _atom(self, left: Linear, right: Linear, strict: bool) -> Conjunction:
        """left ≤ right, or left < right."""
        coefficients, constant = _sum([left, _scaled(right, -1.0)])
        coefficients = {variable: value for variable, value in coefficients.items() if value}
        inputs = [variable for variable in coefficients if variable.kind == "X"]
        if not coefficients:
            raise UserError("a comparison without a variable says nothing")
        if not inputs:
            weights = {variable.place: value for variable, value in coefficients.items()}
            return Conjunction(constraints=[Constraint(weights, -constant, strict)])
        if len(coefficients) > 1:
            names = ", ".join(variable.name for variable in list(coefficients)[:4])
            raise UserError(f"only bounds of single inputs can be read, not a constraint on {names}")
        index, factor = inputs[0].place, coefficients[inputs[0]]
        value = _finite(-constant / factor)
        if strict:
            value = _finite(_inside(value, -np.sign(factor) * math.inf, self.number))
        return Conjunction(upper={index: value}) if factor > 0 else Conjunction(lower={index: value})


def _sum(parts: Iterable[Linear]) -> Linear:
    coefficients: dict[Variable, float] = {}
    constant = 0.0
    for part, added in parts:
        constant = _finite(constant + added)
        for variable, value in part.items():
            coefficients[variable] = _finite(coefficients.get(variable, 0.0) + value)
    return coefficients, constant


def _scaled(part: Linear, factor: float) -> Linear:
    return {name: _finite(value * factor) for name, value in part[0].items()}, _finite(part[1] * factor)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise UserError("a number is too large")
    return value


def _inside(value: float, towards: float, number: type[np.floating]) -> float:
    """The first number of a type past a value: what lies strictly beyond it lies there or further.

    >>> _inside(0.5, np.inf, np.float32), _inside(0.1, np.inf, np.float32)
    (0.5000000596046448, 0.10000000149011612)
    """
    with np.errstate(over="ignore"):
        near = number(value)
    beyond = float(near) > value if towards > 0 else float(near) < value
    return float(near) if beyond else float(np.nextafter(near, number(towards)))
