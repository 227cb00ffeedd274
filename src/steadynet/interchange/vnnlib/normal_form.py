"""Formulas in disjunctive normal form, and the VNN-LIB property that such a formula describes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from steadynet.errors import UserError
from steadynet.interchange.vnnlib.property import Disjunct, Unrounded, Vector, VnnlibProperty

MAX_DISJUNCTS = 10_000
MAX_ATOMS = 5_000_000  # in all conjunctions together, while a formula is expanded
MAX_NUMBERS = 50_000_000  # in the arrays of all disjuncts together: 400 MB


Number = float | Fraction  # a fraction where float64 does not hold the number


class Constraint(NamedTuple):
    """A linear constraint on outputs: Σ weight · output ≤ bound, or < bound if it is strict.

    ``rounded`` says that float64 does not hold some weight of the file.
    """

    weights: dict[int, float]
    bound: Number
    strict: bool
    rounded: bool = False


@dataclass
class Conjunction:
    """Atoms joined by ``and``: bounds of single inputs, and linear constraints on outputs."""

    lower: dict[int, Number] = field(default_factory=dict)
    upper: dict[int, Number] = field(default_factory=dict)
    constraints: list[Constraint] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lower) + len(self.upper) + len(self.constraints)

    @property
    def bounds_inputs(self) -> bool:
        """Whether any atom bounds an input."""
        return bool(self.lower or self.upper)

    def add(self, other: Conjunction) -> None:
        """Add the atoms of another conjunction; of several bounds of an input, the tightest counts."""
        for index, value in other.lower.items():
            self.lower[index] = max(self.lower.get(index, -math.inf), value)
        for index, value in other.upper.items():
            self.upper[index] = min(self.upper.get(index, math.inf), value)
        self.constraints.extend(other.constraints)

    def joined_with(self, other: Conjunction) -> Conjunction:
        """Return a new conjunction with the atoms of both."""
        both = Conjunction(dict(self.lower), dict(self.upper), list(self.constraints))
        both.add(other)
        return both


@dataclass
class NormalForm:
    """A formula in disjunctive normal form: the common atoms hold, and so do those of at least one alternative.

    Files have thousands of assertions that are a single atom. These are added to the common atoms in place, and only
    formulas with ``or`` multiply the alternatives.
    """

    common: Conjunction = field(default_factory=Conjunction)
    alternatives: list[Conjunction] = field(default_factory=lambda: [Conjunction()])

    def add(self, disjunction: list[Conjunction]) -> None:
        """Join another formula, a disjunction of conjunctions, by ``and``."""
        if len(disjunction) == 1:
            self.common.add(disjunction[0])
        else:
            self.alternatives = _product(self.alternatives, disjunction)

    def disjunction(self) -> list[Conjunction]:
        """Return the formula as a disjunction of conjunctions."""
        return [self.common] if len(self.alternatives) == 1 else _product([self.common], self.alternatives)

    def to_property(self, input_size: int, output_size: int, input_name: Callable[[int], str]) -> VnnlibProperty:
        """Return the property with one disjunct per alternative.

        Args:
            input_size: The number of inputs of the network. Each must have a lower and an upper bound.
            output_size: The number of outputs of the network.
            input_name: The name of an input in the file, for error messages.
        """
        common, alternatives = self.common, self.alternatives
        rows = len(alternatives) * len(common.constraints) + sum(len(part.constraints) for part in alternatives)
        boxes = sum(part.bounds_inputs for part in alternatives)
        _check_size(len(alternatives), rows * output_size + 2 * boxes * input_size, MAX_NUMBERS)
        shared_box: _Box | None = None  # of all alternatives that bound no input: one array for all
        disjuncts = []
        for part in alternatives:
            if part.bounds_inputs:
                box = _box(common.joined_with(part), input_size, input_name)
            else:
                box = shared_box = shared_box or _box(common, input_size, input_name)
            disjuncts.append(_disjunct(box, common.constraints + part.constraints, output_size))
        return VnnlibProperty(input_size, output_size, tuple(disjuncts))


def union(disjunctions: Iterable[list[Conjunction]]) -> list[Conjunction]:
    """Join disjunctions by ``or``."""
    result: list[Conjunction] = []
    for disjunction in disjunctions:
        result += disjunction
        _check_size(len(result))
    return result


def _product(left: list[Conjunction], right: list[Conjunction]) -> list[Conjunction]:
    """Join two disjunctions by ``and``: each conjunction of the one with each of the other."""
    atoms = len(right) * sum(map(len, left)) + len(left) * sum(map(len, right))
    _check_size(len(left) * len(right), atoms, MAX_ATOMS)
    return [one.joined_with(other) for one in left for other in right]


class _Box(NamedTuple):
    """The ends of every input in float64, outwards where it does not hold them; and those that it does not hold."""

    ends: tuple[Vector, Vector]
    unrounded: tuple[dict[int, Fraction], dict[int, Fraction]]


def _box(conjunction: Conjunction, input_size: int, input_name: Callable[[int], str]) -> _Box:
    for index in range(input_size):
        if index not in conjunction.lower or index not in conjunction.upper:
            raise UserError(f"{input_name(index)} has no lower or no upper bound")
    lower, upper = ([ends[index] for index in range(input_size)] for ends in (conjunction.lower, conjunction.upper))
    return _Box((_outwards(lower, -math.inf), _outwards(upper, math.inf)), (_fractions(lower), _fractions(upper)))


def _outwards(numbers: list[Number], towards: float) -> Vector:
    """Return numbers of float64: each number itself, or the next one in a direction."""
    return np.array([_not_inside(number, towards) if isinstance(number, Fraction) else number for number in numbers])


def _not_inside(number: Fraction, towards: float) -> float:
    near = float(number)
    inside = near < number if towards > 0 else near > number
    return math.nextafter(near, towards) if inside else near


def _disjunct(box: _Box, constraints: list[Constraint], output_size: int) -> Disjunct:
    matrix = np.zeros((len(constraints), output_size))
    for row, constraint in enumerate(constraints):
        for index, value in constraint.weights.items():
            matrix[row, index] = value
    strict = frozenset(row for row, constraint in enumerate(constraints) if constraint.strict)
    bounds, rounded = [constraint.bound for constraint in constraints], any(one.rounded for one in constraints)
    unrounded = Unrounded(*box.unrounded, _fractions(bounds))
    return Disjunct(*box.ends, matrix, _outwards(bounds, math.inf), strict, rounded, unrounded)


def _fractions(numbers: list[Number]) -> dict[int, Fraction]:
    return {index: number for index, number in enumerate(numbers) if isinstance(number, Fraction)}


def _check_size(disjuncts: int, numbers: int = 0, max_numbers: int = 0) -> None:
    if disjuncts > MAX_DISJUNCTS:
        raise UserError(f"the property has more than {MAX_DISJUNCTS} disjuncts")
    if numbers > max_numbers:
        raise UserError("the property is too large when its formulas are expanded")
