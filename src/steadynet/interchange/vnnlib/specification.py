"""What a property file says: boxes of inputs, and linear constraints on outputs that must never hold there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Case:
    """One way to violate a property: an input in [lower, upper] whose outputs y have matrix · y ≤ bound, row by row.

    Rows in ``strict`` want less than their bound. A proof may take them as ≤; a counterexample must not.
    """

    lower: Vector
    upper: Vector
    matrix: Vector  # (constraints, outputs)
    bound: Vector  # (constraints,)
    strict: frozenset[int] = frozenset()

    def holds(self, inputs: Vector, outputs: Vector) -> bool:
        """Whether this input, with these outputs, violates the property in this way."""
        inside = bool(np.all((inputs >= self.lower) & (inputs <= self.upper)))
        values, strict = self.matrix @ outputs, sorted(self.strict)
        return inside and bool(np.all(values <= self.bound) and np.all(values[strict] < self.bound[strict]))


@dataclass(frozen=True)
class Specification:
    """A property: violated (``sat``) where any of its cases holds for some input."""

    inputs: int
    outputs: int
    cases: tuple[Case, ...]
