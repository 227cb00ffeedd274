"""Formulas of VNN-LIB, either version: linear comparisons joined by ``and`` and ``or``, as disjunctive normal forms."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from steadynet.errors import UserError
from steadynet.interchange.vnnlib.normal_form import Conjunction, Constraint, NormalForm, union
from steadynet.interchange.vnnlib.s_expressions import Expression, excerpt

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Variable(NamedTuple):
    """An input or output of the network: its index in row-major order, and its name in the file."""

    is_input: bool
    flat_index: int
    name: str


class LinearTerm(NamedTuple):
    """Σ coefficient · variable + constant."""

    coefficients: dict[Variable, float]
    constant: float

    def times(self, factor: float) -> LinearTerm:
        """Return the term, multiplied by a number."""
        coefficients = {variable: _finite(value * factor) for variable, value in self.coefficients.items()}
        return LinearTerm(coefficients, _finite(self.constant * factor))


@dataclass(frozen=True)
class FormulaParser:
    """Parses formulas; its fields are what differs between the versions of VNN-LIB.

    Args:
        comparisons: The comparison operators of the version.
        variable: Finds the variable that a word stands for.
        input_type: The number type of the inputs. A strict bound of an input becomes the next number of this type.
    """

    comparisons: tuple[str, ...]
    variable: Callable[[str], Variable]
    input_type: type[np.floating] = np.float32

    def formula(self, expression: Expression) -> list[Conjunction]:
        """Parse a formula into a disjunction of conjunctions."""
        match expression:
            case ["and", *parts] if parts:
                both = NormalForm()
                for part in parts:
                    both.add(self.formula(part))
                return both.disjunction()
            case ["or", *parts] if parts:
                return union(self.formula(part) for part in parts)
            case [str(sign), left, right] if sign in self.comparisons:
                return self._comparison(sign, self.term(left), self.term(right))
        known = ", ".join(("and", "or", *self.comparisons))
        raise UserError(f"not a formula of {known}: {excerpt(expression)}")

    def term(self, expression: Expression) -> LinearTerm:
        """Parse a linear term."""
        match expression:
            case str(word) if _NUMBER.fullmatch(word):
                return LinearTerm({}, _finite(float(word)))
            case str(word):
                return LinearTerm({self.variable(word): 1.0}, 0.0)
            case ["+", *parts] if parts:
                return _sum(self.term(part) for part in parts)
            case ["-", part]:
                return self.term(part).times(-1.0)
            case ["-", first, *others]:
                return _sum([self.term(first), *(self.term(part).times(-1.0) for part in others)])
            case ["*", first, *others]:
                return self._product(expression, self.term(first), others)
        raise UserError(f"not a linear term: {excerpt(expression)}")

    def _product(self, expression: Expression, result: LinearTerm, others: list[Expression]) -> LinearTerm:
        for other in others:
            factor = self.term(other)
            if result.coefficients and factor.coefficients:
                raise UserError(f"a product of variables is not linear: {excerpt(expression)}")
            result = result.times(factor.constant) if result.coefficients else factor.times(result.constant)
        return result

    def _comparison(self, sign: str, left: LinearTerm, right: LinearTerm) -> list[Conjunction]:
        match sign:
            case "<=" | "<":
                return [self._atom(left, right, sign == "<")]
            case ">=" | ">":
                return [self._atom(right, left, sign == ">")]
            case "!=":
                return [self._atom(left, right, True), self._atom(right, left, True)]
        both = self._atom(left, right, False)  # left = right: both ≤ and ≥
        both.add(self._atom(right, left, False))
        return [both]

    def _atom(self, left: LinearTerm, right: LinearTerm, strict: bool) -> Conjunction:
        """left ≤ right, or left < right, as a bound of one input or as a constraint on outputs."""
        difference = _sum([left, right.times(-1.0)])
        coefficients = {variable: value for variable, value in difference.coefficients.items() if value}
        inputs = [variable for variable in coefficients if variable.is_input]
        if not coefficients:
            raise UserError("a comparison without a variable says nothing")
        if not inputs:
            weights = {variable.flat_index: value for variable, value in coefficients.items()}
            return Conjunction(constraints=[Constraint(weights, -difference.constant, strict)])
        if len(coefficients) > 1:
            names = ", ".join(variable.name for variable in list(coefficients)[:4])
            raise UserError(f"only bounds of single inputs can be read, not a constraint on {names}")
        index, factor = inputs[0].flat_index, coefficients[inputs[0]]
        bound = _finite(-difference.constant / factor)
        if strict:
            bound = _finite(_next_number(bound, -math.copysign(math.inf, factor), self.input_type))
        return Conjunction(upper={index: bound}) if factor > 0 else Conjunction(lower={index: bound})


def _sum(terms: Iterable[LinearTerm]) -> LinearTerm:
    coefficients: dict[Variable, float] = {}
    constant = 0.0
    for term in terms:
        constant = _finite(constant + term.constant)
        for variable, value in term.coefficients.items():
            coefficients[variable] = _finite(coefficients.get(variable, 0.0) + value)
    return LinearTerm(coefficients, constant)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise UserError("a number is too large")
    return value


def _next_number(value: float, towards: float, number_type: type[np.floating]) -> float:
    """Return the first number of a type that lies strictly beyond a value.

    >>> _next_number(0.5, np.inf, np.float32), _next_number(0.1, np.inf, np.float32)
    (0.5000000596046448, 0.10000000149011612)
    """
    with np.errstate(over="ignore"):
        near = number_type(value)
    beyond = float(near) > value if towards > 0 else float(near) < value
    return float(near) if beyond else float(np.nextafter(near, number_type(towards)))
