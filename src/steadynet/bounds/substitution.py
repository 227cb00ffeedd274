"""Steps of a backward pass: functions of what an operation computes as functions of what it reads."""

from __future__ import annotations

import torch
from torch import Tensor

from steadynet.bounds.linear_functions import LinearFunctions, SingleNeurons
from steadynet.bounds.patches import Matrices, transposed_on_patches
from steadynet.bounds.relaxation import Relaxation
from steadynet.graph.operations import Convolution, Interval, Scale, Shape
from steadynet.graph.pooling import MaxPool
from steadynet.graph.rounding import LONG_SUM, unit_roundoff


def held(multipliers: Tensor, bounds: Interval, owner: Tensor | None) -> Tensor:
    """At most Σ m · l over multipliers m > 0 and Σ m · u over m < 0, (n,): where l ≤ z ≤ u, it is at most Σ m · z."""
    lower, upper = (side if owner is None else side[owner] for side in bounds)
    exact = multipliers.double()
    terms = torch.where(multipliers == 0, 0.0, torch.where(multipliers > 0, exact * lower, exact * upper)).flatten(1)
    return terms.sum(1) - 2 * LONG_SUM * terms.detach().abs().sum(1)


def lost_by_cancelling(products: Tensor, multipliers: Tensor, bounds: Interval, owner: Tensor | None) -> Tensor:
    """What the rounding of products a · slope may cost where multipliers are taken off them, (n,).

    A pass counts roundings relative to the coefficients that are left. If a multiplier cancels a product, little of it
    is left, but the product was rounded by up to u · |a · slope|, which counts for every z of the bounds.
    """
    lower, upper = (side if owner is None else side[owner] for side in bounds)
    sizes = products.detach().double().abs() * torch.maximum(lower.abs(), upper.abs())
    return 2 * unit_roundoff(products.dtype) * torch.where(multipliers == 0, 0.0, sizes).flatten(1).sum(1)


def through_maximum(
    functions: LinearFunctions, owner: Tensor | None, operation: MaxPool, bounds: Interval, sums_in: torch.dtype
) -> tuple[list[LinearFunctions], Tensor]:
    """A maximum is at least its best candidate, and at most the largest upper bound (exact if one candidate wins)."""
    shape = bounds.lower.shape[1:]
    best, slot = operation.candidates(bounds.lower).max(2, keepdim=True)
    upper = operation.candidates(bounds.upper)
    ceiling = upper.amax(2)
    wins = (best >= upper.scatter(2, slot, -torch.inf)).all(2)  # no other candidate rises above its lower bound
    pixels = torch.arange(shape[1] * shape[2], dtype=torch.float64, device=slot.device).view(1, 1, *shape[1:])
    where = operation.candidates(pixels).long().expand(*slot.shape[:2], -1, -1, -1).gather(2, slot).squeeze(2)
    chosen = where if owner is None else where[owner]
    wins, ceiling = (tensor if owner is None else tensor[owner] for tensor in (wins, ceiling))
    positive, negative = functions.coefficients.clamp_min(0), functions.coefficients.clamp_max(0)
    carried = (positive + torch.where(wins, negative, 0.0)).flatten(2)
    result = torch.zeros(len(carried), shape[0], shape[1] * shape[2], dtype=carried.dtype, device=carried.device)
    result = result.scatter_add(2, chosen.flatten(2), carried)
    added = torch.where(wins, 0.0, negative * ceiling).flatten(1).sum(1, dtype=sums_in)
    return [LinearFunctions(result.view(len(result), *shape))], added


def through_convolution_on_patches(
    functions: LinearFunctions, operation: Convolution, shape: Shape, matrices: Matrices
) -> LinearFunctions:
    """The transposed convolution of functions that see patches."""
    assert functions.patch is not None
    assert functions.cells is not None
    patch = functions.patch.behind(operation)
    if isinstance(functions, SingleNeurons) and patch.size == operation.weight.shape[2:]:  # a pixel sees the kernel
        coefficients = functions.rows_of(operation.weight)
    else:
        coefficients = transposed_on_patches(operation, functions.coefficients, matrices)
    coefficients = coefficients * patch.inside(shape, coefficients)[functions.cells]
    result = LinearFunctions(coefficients, patch, functions.cells)
    return result.whole(shape) if patch.covers(shape) else result


def through_scale_on_patches(
    functions: LinearFunctions, operation: Scale, shape: Shape, sums_in: torch.dtype
) -> tuple[list[LinearFunctions], Tensor]:
    """Functions of a scaled value as functions of the value, each on its patch."""
    assert functions.cells is not None
    factor, shift = (
        functions.gather(value.expand(shape)[None], torch.zeros_like(functions.cells))
        for value in (operation.factor, operation.shift)
    )
    added = (functions.coefficients * shift).flatten(1).sum(1, dtype=sums_in)
    return [functions.with_coefficients(functions.coefficients * factor)], added


def through_few_unstable(
    functions: LinearFunctions, owner: Tensor | None, lines: Relaxation, columns: Tensor, proof: bool
) -> tuple[list[LinearFunctions], Tensor]:
    """Functions of ReLUs of which few are unstable, as functions of their inputs: only these columns take two lines."""
    if functions.coefficients.dim() == 2 and len(lines.difference) == 1 and not functions.coefficients.is_contiguous():
        return _through_few_unstable_in_columns(functions, lines, columns, proof)
    (slope,) = functions.gather_all(lines.lower_lines, owner)
    shape, coefficients = functions.coefficients.shape, (functions.coefficients * slope).flatten(1)
    negative = functions.coefficients.flatten(1).index_select(1, columns).clamp_max(0)
    difference, shift = (side.flatten(1).index_select(1, columns) for side in (lines.difference, lines.upper_shift))
    if owner is not None and len(shift) > 1:
        difference, shift = difference.index_select(0, owner), shift.index_select(0, owner)
    added = (negative * shift).sum(1, dtype=torch.float64 if proof else None)
    coefficients.index_add_(1, columns, negative * difference)
    return [functions.with_coefficients(coefficients.view(shape))], added


def _through_few_unstable_in_columns(
    functions: LinearFunctions, lines: Relaxation, unstable: Tensor, proof: bool
) -> tuple[list[LinearFunctions], Tensor]:
    """The same where coefficients are stored in columns, one per function, of one property."""
    columns = functions.coefficients.t()
    negative = columns.index_select(0, unstable).clamp_max(0)
    difference, shift = (side[0, unstable, None] for side in (lines.difference, lines.upper_shift))
    added = (negative * shift).sum(0, dtype=torch.float64 if proof else None)
    result = (columns * lines.lower_slope[0, :, None]).index_add_(0, unstable, negative * difference)
    return [functions.with_coefficients(result.t())], added
