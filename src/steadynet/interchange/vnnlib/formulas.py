"""Formulas of VNN-LIB, either version: linear comparisons joined by ``and`` and ``or``, as disjunctive normal forms."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from steadynet.errors import UserError
from steadynet.interchange.vnnlib.normal_form import Conjunction, Constraint, NormalForm, Number, union
from steadynet.interchange.vnnlib.s_expressions import Expression, excerpt

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


class Variable(NamedTuple):
    """An input or output of the network: its index in row-major order, and its name in the file."""

    is_input: bool
    flat_index: int
    name: str


class LinearTerm(NamedTuple):
    """Σ coefficient · variable + constant.

    A number of a file is the nearest one of float64. Arithmetic with these is exact: 1e17 + 9 − 1e17 is 9.
    """

    coefficients: dict[Variable, Fraction]
    constant: Fraction

    def times(self, factor: Fraction) -> LinearTerm:
        """Return the term, multiplied by a number."""
        coefficients = {variable: value * factor for variable, value in self.coefficients.items()}
        return LinearTerm(coefficients, self.constant * factor)


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
            case [str(sign), str(left), str(right)] if sign in ("<=", ">=") and _NUMBER.fullmatch(right):
                simple = self._simple_bound(sign, left, right)
                return self._comparison(sign, self.term(left), self.term(right)) if simple is None else [simple]
            case [str(sign), left, right] if sign in self.comparisons:
                return self._comparison(sign, self.term(left), self.term(right))
        known = ", ".join(("and", "or", *self.comparisons))
        raise UserError(f"not a formula of {known}: {excerpt(expression)}")

    def term(self, expression: Expression) -> LinearTerm:
        """Parse a linear term."""
        match expression:
            case str(word) if _NUMBER.fullmatch(word):
                return LinearTerm({}, Fraction(_finite(float(word))))
            case str(word):
                return LinearTerm({self.variable(word): Fraction(1)}, Fraction(0))
            case ["+", *parts] if parts:
                return _sum(self.term(part) for part in parts)
            case ["-", part]:
                return self.term(part).times(Fraction(-1))
            case ["-", first, *others]:
                return _sum([self.term(first), *(self.term(part).times(Fraction(-1)) for part in others)])
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

    def _simple_bound(self, sign: str, left: str, right: str) -> Conjunction | None:
        """Read "input ≤ number", of which files have thousands, without exact arithmetic; None for anything else."""
        if _NUMBER.fullmatch(left):
            return None
        variable = self.variable(left)
        if not variable.is_input:
            return None
        bound: dict[int, Number] = {variable.flat_index: _finite(float(right))}
        return Conjunction(upper=bound) if sign == "<=" else Conjunction(lower=bound)

    def _atom(self, left: LinearTerm, right: LinearTerm, strict: bool) -> Conjunction:
        """left ≤ right, or left < right, as a bound of one input or as a constraint on outputs."""
        difference = _sum([left, right.times(Fraction(-1))])
        coefficients = {variable: value for variable, value in difference.coefficients.items() if value}
        inputs = [variable for variable in coefficients if variable.is_input]
        if not coefficients:
            raise UserError("a comparison without a variable says nothing")
        if not inputs:
            weights = {variable.flat_index: value for variable, value in coefficients.items()}
            return Conjunction(constraints=[_constraint(weights, -difference.constant, strict)])
        if len(coefficients) > 1:
            names = ", ".join(variable.name for variable in list(coefficients)[:4])
            raise UserError(f"only bounds of single inputs can be read, not a constraint on {names}")
        index, factor = inputs[0].flat_index, coefficients[inputs[0]]
        exact = -difference.constant / factor
        bound = _next_number(exact, -math.copysign(math.inf, factor), self.input_type) if strict else _held(exact)
        return Conjunction(upper={index: bound}) if factor > 0 else Conjunction(lower={index: bound})


def _constraint(weights: dict[int, Fraction], bound: Fraction, strict: bool) -> Constraint:
    """Return Σ weight · output ≤ bound with weights of float64, the nearest ones. The bound stays as it is."""
    largest = max(map(abs, weights.values()))
    out_of_range = not sys.float_info.min <= largest <= sys.float_info.max
    if out_of_range and Fraction(_nearest(min(largest, Fraction(1)))) != largest:  # divide the constraint by a number
        weights, bound = {index: weight / largest for index, weight in weights.items()}, bound / largest
    nearest = {index: _nearest(weight) for index, weight in weights.items()}
    rounded = any(Fraction(nearest[index]) != weight for index, weight in weights.items())
    return Constraint(nearest, _held(bound), strict, rounded)


def _sum(terms: Iterable[LinearTerm]) -> LinearTerm:
    coefficients: dict[Variable, Fraction] = {}
    constant = Fraction(0)
    for term in terms:
        constant += term.constant
        for variable, value in term.coefficients.items():
            coefficients[variable] = coefficients.get(variable, Fraction(0)) + value
    return LinearTerm(coefficients, constant)


def _nearest(value: Fraction) -> float:
    """Return the nearest number of float64."""
    try:
        return float(value)
    except OverflowError:
        raise UserError("a number is too large") from None


def _held(value: Fraction) -> Number:
    """Return a number as float64 holds it, or the fraction itself if float64 does not hold it."""
    near = _nearest(value)
    return near if Fraction(near) == value else value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise UserError("a number is too large")
    return value


def _next_number(value: Fraction, towards: float, number_type: type[np.floating]) -> float:
    """Return the first number of a type that lies strictly beyond a value. No allowed number is lost to rounding.

    >>> _next_number(Fraction(1, 2), np.inf, np.float32), _next_number(Fraction(1, 10), np.inf, np.float32)
    (0.5000000596046448, 0.10000000149011612)
    >>> _next_number(Fraction(1, 2) + Fraction(1, 10**31), -np.inf, np.float32)
    0.5
    """

    def is_beyond(number: np.floating) -> bool:
        return float(number) > value if towards > 0 else float(number) < value

    with np.errstate(over="ignore"):
        near = number_type(_nearest(value))
    while not is_beyond(near):
        near = np.nextafter(near, number_type(towards))
    while is_beyond(before := np.nextafter(near, number_type(-towards))):
        near = before
    return _finite(float(near))
