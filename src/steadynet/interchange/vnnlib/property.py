"""A VNN-LIB property: a disjunction of input boxes with linear constraints on the outputs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


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

    >>> one = Disjunct(np.zeros(2), np.ones(2), np.array([[1.0, -1.0]]), np.zeros(1))  # y_0 ≤ y_1
    >>> one.satisfied_by(np.array([0.5, 0.5]), np.array([1.0, 2.0]))
    True
    """

    lower: Vector
    upper: Vector
    matrix: Vector
    bound: Vector
    strict: frozenset[int] = frozenset()

    def satisfied_by(self, inputs: Vector, outputs: Vector) -> bool:
        """Return whether an input with these outputs satisfies the disjunct, and so violates the property."""
        inside = bool(np.all((inputs >= self.lower) & (inputs <= self.upper)))
        values, strict = self.matrix @ outputs, sorted(self.strict)
        return inside and bool(np.all(values <= self.bound) and np.all(values[strict] < self.bound[strict]))


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
