"""Atoms that hold together, and what becomes of them: the cases of a property."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from steadynet.errors import UserError
from steadynet.interchange.vnnlib.property import Disjunct, Vector, VnnlibProperty

MOST_CASES = 10_000
MOST_ATOMS = 5_000_000  # while cases are spread out
MOST_NUMBERS = 50_000_000  # in the arrays of all cases together: 400 MB


class Constraint(NamedTuple):
    """Σ weight · output ≤ bound, or < bound."""

    weights: dict[int, float]
    bound: float
    strict: bool


@dataclass
class Conjunction:
    """Atoms that hold together: bounds of single inputs, and linear constraints on outputs."""

    lower: dict[int, float] = field(default_factory=dict)
    upper: dict[int, float] = field(default_factory=dict)
    constraints: list[Constraint] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.lower) + len(self.upper) + len(self.constraints)

    def extend(self, other: Conjunction) -> None:
        """Let the other's atoms hold, too."""
        for index, value in other.lower.items():
            self.lower[index] = max(self.lower.get(index, -math.inf), value)
        for index, value in other.upper.items():
            self.upper[index] = min(self.upper.get(index, math.inf), value)
        self.constraints.extend(other.constraints)

    def joined(self, other: Conjunction) -> Conjunction:
        """Both together."""
        both = Conjunction(dict(self.lower), dict(self.upper), list(self.constraints))
        both.extend(other)
        return both


def product(ones: list[Conjunction], others: list[Conjunction]) -> list[Conjunction]:
    """Each of the ones with each of the others."""
    atoms = len(others) * sum(map(len, ones)) + len(ones) * sum(map(len, others))
    _limit(len(ones) * len(others), atoms, MOST_ATOMS)
    return [one.joined(other) for one in ones for other in others]


def union(parts: Iterable[list[Conjunction]]) -> list[Conjunction]:
    """The cases of all parts."""
    cases: list[Conjunction] = []
    for part in parts:
        cases += part
        _limit(len(cases))
    return cases


def property_of(
    base: Conjunction, alternatives: list[Conjunction], inputs: int, outputs: int, name: Callable[[int], str]
) -> VnnlibProperty:
    """What holds in every case and what differs, over so many inputs and outputs; ``name`` is that of an input."""
    rows = len(alternatives) * len(base.constraints) + sum(len(part.constraints) for part in alternatives)
    boxes = sum(1 for part in alternatives if part.lower or part.upper)
    _limit(len(alternatives), rows * outputs + 2 * boxes * inputs)
    common: tuple[Vector, Vector] | None = None
    cases = []
    for part in alternatives:
        own = bool(part.lower or part.upper)
        box = _box(base.joined(part) if own else base, inputs, name) if own or common is None else common
        common = common if own else box
        cases.append(_case(box, base.constraints + part.constraints, outputs))
    return VnnlibProperty(inputs, outputs, tuple(cases))


def _box(part: Conjunction, inputs: int, name: Callable[[int], str]) -> tuple[Vector, Vector]:
    for index in range(inputs):
        if index not in part.lower or index not in part.upper:
            raise UserError(f"{name(index)} has no lower or no upper bound")
    lower, upper = ([ends[index] for index in range(inputs)] for ends in (part.lower, part.upper))
    return np.array(lower), np.array(upper)


def _case(box: tuple[Vector, Vector], constraints: list[Constraint], outputs: int) -> Disjunct:
    matrix = np.zeros((len(constraints), outputs))
    for row, constraint in enumerate(constraints):
        for index, value in constraint.weights.items():
            matrix[row, index] = value
    strict = frozenset(row for row, constraint in enumerate(constraints) if constraint.strict)
    return Disjunct(*box, matrix, np.array([constraint.bound for constraint in constraints]), strict)


def _limit(cases: int, numbers: int = 0, most: int = MOST_NUMBERS) -> None:
    if cases > MOST_CASES:
        raise UserError(f"the property has more than {MOST_CASES} cases")
    if numbers > most:
        raise UserError("the property is too large when its cases are spread out")
