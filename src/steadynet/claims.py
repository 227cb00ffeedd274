"""Claims about outputs beyond the label: what :func:`steadynet.verify` takes as ``claim=``.

>>> import torch
>>> from steadynet import claims, verify
>>> model = torch.nn.Sequential(torch.nn.Linear(2, 3))
>>> _ = model[0].weight.data.zero_(), model[0].bias.data.copy_(torch.tensor([1.0, 2.0, 3.0]))
>>> (result,) = verify(model, [[0.5, 0.5]], eps=0.1, claim=claims.never(0))
>>> result.verdict.value
'unsat'
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from steadynet.errors import UserError

__all__ = ["AnyClaim", "Claim", "Monotone", "monotone", "never", "top_k", "within"]

Vector = NDArray[np.float64]
Constraints = tuple[Vector, Vector]  # matrix and bound: matrix · outputs ≤ bound, row by row
MOST_SETS = 1000  # of classes that may be above the label


@dataclass(frozen=True)
class Claim:
    """A claim about the outputs of a network in a region.

    Attributes:
        name: What is claimed, in words.
        violations: The ways to violate the claim, from the outputs at the image and its label: linear constraints that
            the outputs at another point of the region would satisfy together.
        needs_labels: Whether it speaks of the label of an image.
    """

    name: str
    violations: Callable[[Vector, int], list[Constraints]]
    needs_labels: bool = False


@dataclass(frozen=True)
class Monotone:
    """A claim about pairs of inputs in a region that differ in one feature only. Made by :func:`monotone`.

    Attributes:
        feature: The feature: its number in a flat input, or its place in an image, such as (channel, row, column).
        output: The output that must not fall.
        decreasing: Whether it must not rise instead.
        tolerance: By how much it may fall (or rise).
        needs_labels: Whether it speaks of the label of an image: never.
    """

    feature: int | tuple[int, ...]
    output: int
    decreasing: bool
    tolerance: float
    needs_labels: bool = False

    @property
    def name(self) -> str:
        """What is claimed, in words."""
        verb = "rises" if self.decreasing else "falls"
        return f"output {self.output} never {verb} by {self.tolerance:g} as feature {self.feature} grows"


AnyClaim: TypeAlias = "Claim | Monotone"


def top_k(k: int) -> Claim:
    """The label is always among the k classes with the largest scores; ``top_k(1)`` is robustness."""

    def violations(outputs: Vector, label: int) -> list[Constraints]:
        others = [index for index in range(len(outputs)) if index != label]
        if not 1 <= k <= len(others):
            raise UserError(f"top {k} of {len(outputs)} classes: k must be at least 1 and below the number of classes")
        if math.comb(len(others), k) > MOST_SETS:
            raise UserError(f"top {k} of {len(outputs)} classes has more than {MOST_SETS} cases: choose a smaller k")
        rows = np.eye(len(outputs))
        return [
            (np.stack([rows[label] - rows[index] for index in above]), np.zeros(k))
            for above in itertools.combinations(others, k)
        ]

    return Claim(f"the label is among the top {k}", violations, needs_labels=True)


def never(label: int) -> Claim:
    """The network never gives this class, whatever class it gives."""

    def violations(outputs: Vector, _: int) -> list[Constraints]:
        if not 0 <= label < len(outputs):
            raise UserError(f"there is no class {label}: the network has {len(outputs)}, 0 to {len(outputs) - 1}")
        rows = np.eye(len(outputs))
        others = [index for index in range(len(outputs)) if index != label]
        return [(np.stack([rows[index] - rows[label] for index in others]), np.zeros(len(others)))]

    return Claim(f"never class {label}", violations)


def within(delta: float) -> Claim:
    """Every output stays less than ``delta`` away from its value at the image, as a regression network should."""
    if not delta > 0:
        raise UserError(f"delta = {delta:g} must be larger than 0")

    def violations(outputs: Vector, _: int) -> list[Constraints]:
        rows = np.eye(len(outputs))
        above = [(-rows[[index]], np.array([-(value + delta)])) for index, value in enumerate(outputs)]
        below = [(rows[[index]], np.array([value - delta])) for index, value in enumerate(outputs)]
        return above + below

    return Claim(f"outputs within {delta:g}", violations)


def monotone(
    feature: int | tuple[int, ...], output: int = 0, *, decreasing: bool = False, tolerance: float = 1e-3
) -> Monotone:
    """An output never falls when one feature grows and all others stay as they are, inside the region.

    Two inputs that are equal give equal outputs, so a claim with no tolerance would hold by nothing, which no proof in
    floating point can show. So it is: the output is always above its value at the smaller feature less ``tolerance``.
    A counterexample is a pair of inputs, (2, *image): the one with the smaller feature comes first.

    Args:
        feature: The number of the feature; or its place in an image, such as (channel, row, column).
        output: The number of the output.
        decreasing: Whether the output never rises, instead.
        tolerance: By how much it may fall (or rise): larger than 0, in units of the output.

    Example:
        >>> import torch
        >>> from steadynet import claims, verify
        >>> price = torch.nn.Sequential(torch.nn.Linear(2, 1))
        >>> _ = price[0].weight.data.copy_(torch.tensor([[1.0, -1.0]]))
        >>> [verify(price, [[0.5, 0.5]], eps=0.1, claim=claims.monotone(i))[0].verdict.value for i in (0, 1)]
        ['unsat', 'sat']
    """
    if not tolerance > 0:
        raise UserError(f"tolerance = {tolerance:g} must be larger than 0: equal inputs have equal outputs")
    return Monotone(feature, output, decreasing, float(tolerance))
