"""How floating-point arithmetic rounds: what every operation says of itself, and the classical error bound.

A sum of n products, computed in any order, with or without fused multiply-add, differs from the exact sum by at most

    γ_n · Σ|a||x| + n · η,      γ_n = n·u / (1 − n·u),

where u is the unit roundoff of the format and η bounds what underflow may take from one operation.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor


class Arithmetic(str, Enum):
    """Which arithmetic a proof speaks of."""

    EXACT = "exact"  # the network's weights as they are, computed without rounding
    FLOAT32 = "float32"  # the network run in its own precision, with sums in any order; and exact arithmetic as well

    __str__ = str.__str__


@dataclass(frozen=True)
class Execution:
    """The execution of a network that bounds shall hold for: its arithmetic, and the precision of its numbers."""

    arithmetic: Arithmetic
    dtype: torch.dtype


@dataclass(frozen=True)
class Rounding:
    """What an operation adds up to compute one number of its output.

    Attributes:
        size: Σ|a||x| + |b| at its largest, per number of the output, (properties, \\*shape).
        terms: how many roundings one number of the output sees on its way forward.
        transposed_terms: how many terms one coefficient of a linear function of the input is the sum of.
        constants: how many roundings are in the operation's constants already, as they were computed from others. These
            count in every arithmetic.
        executed: (properties,), how many of the ``terms`` may round in an execution; None if all of them may. A product
            with an input that is zero is zero, and adding it rounds nothing, in whatever order.
    """

    size: Tensor
    terms: int
    transposed_terms: int
    constants: int = 0
    executed: Tensor | None = None


def unit_roundoff(dtype: torch.dtype) -> float:
    """u: the largest relative error of one operation, half the distance from 1 to the next number.

    >>> unit_roundoff(torch.float32) == 2.0**-24
    True
    """
    return torch.finfo(dtype).eps / 2


def underflow_unit(dtype: torch.dtype) -> float:
    """η: what underflow may take from one operation, also on machines that flush small results to zero."""
    return torch.finfo(dtype).smallest_normal


LONG_SUM = 2.0**-31  # relative error of a sum of up to 2²² numbers in float64, in any order
LONGEST_SUM = 2**22


def gamma(terms: int, dtype: torch.dtype) -> float:
    """γ_n for n = ``terms``; infinite where so long a sum has no bound.

    >>> gamma(1000, torch.float32)
    5.960...e-05
    """
    share = terms * unit_roundoff(dtype)
    return share / (1 - share) if share < 0.5 else float("inf")


def gamma_of_each(terms: Tensor, dtype: torch.dtype) -> Tensor:
    """γ_n for several n, in float64.

    >>> gamma_of_each(torch.tensor([1000, 10**8]), torch.float32)
    tensor([5.9608e-05,        inf], dtype=torch.float64)
    """
    share = terms.double() * unit_roundoff(dtype)
    return torch.where(share < 0.5, share / (1 - share).clamp_min(0.5), torch.inf)


OWN_ROUNDING = 1 + 1e-3  # of errors, which are products and sums of few positive numbers


def execution_error(sums: Rounding, execution: Execution, inputs: Tensor | None = None) -> Tensor | float:
    """How far a network may lie from its graph at an operation: its own arithmetic, and the graph's constants.

    Args:
        sums: What the operation adds up.
        execution: How the network is run.
        inputs: (properties,), the operation's inputs at their largest, added up. They count where a machine takes
            weights below the smallest normal number for zero.

    >>> sums = Rounding(torch.tensor([2.0**20]), terms=1, transposed_terms=1)
    >>> execution_error(sums, Execution(Arithmetic.FLOAT32, torch.float32)), execution_error(
    ...     sums, Execution(Arithmetic.EXACT, torch.float32)
    ... )
    (tensor([0.125...]), 0.0)
    """
    terms = sums.constants
    if execution.arithmetic is Arithmetic.FLOAT32 and sums.terms:
        terms += sums.terms + 1
    if not terms:
        return 0.0
    relative: Tensor | float = gamma(terms, execution.dtype) * OWN_ROUNDING
    if sums.executed is not None and execution.arithmetic is Arithmetic.FLOAT32:
        relative = gamma_of_each(sums.executed + (terms - sums.terms), execution.dtype) * OWN_ROUNDING
        relative = relative.to(sums.size.dtype).view(-1, *[1] * (sums.size.dim() - 1))
    underflow: Tensor | float = 2 * terms * underflow_unit(execution.dtype)
    if inputs is not None:
        lost = 2 * underflow_unit(execution.dtype) * inputs
        underflow = underflow + lost.to(sums.size.dtype).view(-1, *[1] * (sums.size.dim() - 1))
    return relative * sums.size + underflow
