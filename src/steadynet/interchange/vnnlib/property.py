"""A VNN-LIB property: a disjunction of input boxes with linear constraints on the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Unrounded:
    """The numbers of a disjunct that float64 does not hold, by input or by row.

    The arrays of the disjunct have the next numbers outwards instead: a proof speaks of a little more. A counterexample
    is judged by the numbers here.
    """

    lower: Mapping[int, Fraction] = field(default_factory=dict)
    upper: Mapping[int, Fraction] = field(default_factory=dict)
    bound: Mapping[int, Fraction] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Disjunct:
    """One way to violate a property: a box of inputs, and linear constraints on the outputs.

    An input x with outputs y satisfies the disjunct if lower ≤ x ≤ upper and matrix · y ≤ bound, row by row. Such an
    input is a counterexample to the property.

    Args:
        lower: The smallest value of every input, of shape (inputs,).
        upper: The largest value of every input, of shape (inputs,).
        matrix: The weights of the outputs, of shape (constraints, outputs).
        bound: The right-hand sides, of shape (constraints,).
        strict: The rows with a strict inequality (<). A proof may read them as ≤, a counterexample may not.
        rounded: Whether float64 does not hold some weight of the property, so that the matrix has a number near it.
        unrounded: The other numbers that float64 does not hold.

    >>> one = Disjunct(np.zeros(2), np.ones(2), np.array([[1.0, -1.0]]), np.zeros(1))  # y_0 ≤ y_1
    >>> one.satisfied_by(np.array([0.5, 0.5]), np.array([1.0, 2.0]))
    True
    """

    lower: Vector
    upper: Vector
    matrix: Vector
    bound: Vector
    strict: frozenset[int] = frozenset()
    rounded: bool = False
    unrounded: Unrounded = Unrounded()

    @property
    def is_empty(self) -> bool:
        """Whether no input lies in the box."""
        exact = self.unrounded
        ends = [
            (exact.lower.get(index, float(self.lower[index])), exact.upper.get(index, float(self.upper[index])))
            for index in {*exact.lower, *exact.upper}
        ]
        return not bool(np.all(self.lower <= self.upper)) or any(lower > upper for lower, upper in ends)

    def satisfied_by(self, inputs: Vector, outputs: Vector) -> bool:
        """Return whether an input with these outputs satisfies the disjunct, and so violates the property.

        There is no tolerance: where float64 cannot tell, exact arithmetic decides.
        """
        if not (self._holds(inputs) and bool(np.all(np.isfinite(outputs)))):
            return False
        with np.errstate(all="ignore"):
            values, size = self.matrix @ outputs, np.abs(self.matrix) @ np.abs(outputs)
        room = (2 * len(outputs) + 4) * 2.0**-53 * (size + np.abs(self.bound)) + 1e-300
        clear = values + room < self.bound
        return all(clear[row] or self._satisfied_exactly(row, outputs) for row in range(len(self.bound)))

    def _holds(self, inputs: Vector) -> bool:
        """Return whether an input lies in the box."""
        return (
            bool(np.all((inputs >= self.lower) & (inputs <= self.upper)))
            and all(float(inputs[index]) >= end for index, end in self.unrounded.lower.items())
            and all(float(inputs[index]) <= end for index, end in self.unrounded.upper.items())
        )

    def _satisfied_exactly(self, row: int, outputs: Vector) -> bool:
        terms = [Fraction(w) * Fraction(y) for w, y in zip(self.matrix[row].tolist(), outputs.tolist(), strict=True)]
        room = sum(map(abs, terms), Fraction(0)) / 2**52 if self.rounded else 0  # what the weights may lie beside
        value = sum(terms, Fraction(0)) + room
        bound = self.unrounded.bound.get(row, Fraction(float(self.bound[row])))
        return value < bound if row in self.strict else value <= bound


@dataclass(frozen=True)
class DeclaredTensor:
    """An input or output of the network as VNN-LIB 2.0 declares it.

    >>> str(DeclaredTensor("X", "float32", (1, 5)))
    'X float32 [1,5]'
    """

    name: str
    number_type: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name} {self.number_type} [{','.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class VnnlibProperty:
    """What a VNN-LIB file says: any input that satisfies one of the disjuncts violates the property (``sat``).

    Args:
        input_size: How many inputs the network has.
        output_size: How many outputs the network has.
        disjuncts: The ways to violate the property.
        declared: The input and the output as VNN-LIB 2.0 declares them; None for a property in version 1.0.
    """

    input_size: int
    output_size: int
    disjuncts: tuple[Disjunct, ...]
    declared: tuple[DeclaredTensor, DeclaredTensor] | None = None

    def sample_inputs(self, boxes: int = 4) -> list[Vector]:
        """Return some inputs of the boxes: of each its two extreme corners, a random one, the middle, a random point.

        Args:
            boxes: Of how many boxes at most. They are taken at equal distances from all boxes.
        """
        random = np.random.default_rng(0)
        found: list[Vector] = []
        bounded = [one for one in self.disjuncts if np.isfinite(one.lower).all() and np.isfinite(one.upper).all()]
        for disjunct in bounded[:: max(1, -(-len(bounded) // boxes))]:
            lower, upper = disjunct.lower, disjunct.upper
            for share in (0.0, 1.0, random.integers(0, 2, lower.shape), 0.5, random.uniform(size=lower.shape)):
                found.append(lower * (1.0 - share) + upper * share)
        return found
