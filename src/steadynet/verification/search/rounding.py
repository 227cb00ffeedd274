"""When a float32 bound counts as a proof: clearly positive, or positive once more in float64.

A proof speaks of the network in exact arithmetic, but the network runs in float32, where a margin of 1e-8 may come out
as 0 or below. So a margin counts as proved only where it is larger than the network's own rounding.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork, BoundQuery, RelaxedNetwork
from steadynet.bounds.precision import in_float64
from steadynet.graph.operations import Affine, Convolution, Dense, Interval, Operation, ReLU, Scale, Sum
from steadynet.graph.pooling import AveragePool

CLEARLY_POSITIVE = 1e-3  # a bound above this needs no second look in float64
INNER_ROOM = 2e-6  # of a layer's largest bound: what float32's rounding may have taken from its inner bounds
UNIT = 2.0**-23  # float32's: twice the rounding of one operation
SAFETY = 4.0  # standard deviations
ROUNDINGS_TO_CONFIRM = 16.0  # bounds below this many roundings are computed again, too


def confirmed(relaxed: RelaxedNetwork, query: BoundQuery, lower: Tensor, rounding: Tensor) -> Tensor:
    """Which bounds are proofs: small positive ones are computed once more in float64, and must be positive again.

    Args:
        relaxed: the network that the bounds were computed on.
        query: what was bounded, with the slopes and multipliers to use in float64.
        lower: (n,), the bounds in float32.
        rounding: (n,), what float32 may do to each function's value.

    Returns:
        The bounds, (n,), positive only where they are proofs. What is not finite proves nothing.
    """
    doubtful = ((lower > 0) & (lower <= needs_confirmation(rounding))).nonzero().flatten()
    result = torch.where(lower.isfinite() | (lower < 0), lower, -CLEARLY_POSITIVE)
    if len(doubtful):
        with torch.no_grad():
            found = _lower_in_float64(relaxed, query, doubtful) - rounding[doubtful]
        result[doubtful] = torch.where(found > 0, found.clamp_min(1e-30), -CLEARLY_POSITIVE).to(lower.dtype)
    return result


def _lower_in_float64(relaxed: RelaxedNetwork, query: BoundQuery, rows: Tensor) -> Tensor:
    """Some functions of the query, bounded in float64."""
    if query.owner is None:
        part, owner = relaxed.network.of_properties(rows), None
    else:
        owners, owner = query.owner[rows].unique(return_inverse=True)
        part = relaxed.network.of_properties(owners)
    exact = BoundQuery(
        query.position,
        query.functions.restricted(rows, torch.float64),
        owner,
        None if query.slopes is None else query.slopes.restricted(rows, torch.float64),
        {position: value.detach()[rows].double() for position, value in (query.multipliers or {}).items()},
    )
    return in_float64(part).relaxed(query.position).lower(exact)


def needs_confirmation(rounding: Tensor) -> Tensor:
    """Bounds up to this are computed again in float64."""
    return (ROUNDINGS_TO_CONFIRM * rounding).clamp_min(CLEARLY_POSITIVE)


def widened(bounded: BoundedNetwork) -> BoundedNetwork:
    """The network with room for float32's rounding in its inner bounds; a point stays a point."""
    errors, bounds = rounding_errors(bounded), {}
    for position, known in bounded.bounds.items():
        largest = known.largest().flatten(1).amax(1)
        room = INNER_ROOM * largest.view(-1, *[1] * (known.lower.dim() - 1))
        room = (room + errors[bounded.graph.source(position)]) * (known.lower < known.upper)
        bounds[position] = Interval(known.lower - room, known.upper + room)
    return replace(bounded, bounds=bounds)


def margin_rounding(bounded: BoundedNetwork) -> Tensor:
    """Per property, how far a margin computed in float32 may lie from the exact one; shape (properties,)."""
    return 2 * rounding_errors(bounded)[-1].flatten(1).amax(1)


def rounding_errors(bounded: BoundedNetwork) -> list[Tensor]:
    """Per value of the network, how far float32 may lie from exact arithmetic; (properties, \\*shape) each.

    Every sum is rounded by about a unit of the size of its terms (at their largest over the box). These errors are
    carried on as independent ones, by their squares, and taken ``SAFETY`` times.
    """
    with torch.no_grad():
        values, squares = [bounded.box], [torch.zeros_like(bounded.box.lower)]
        for position, node in bounded.graph.numbered():
            known = [values[source] for source in node.inputs]
            if position in bounded.bounds:
                known = [bounded.bounds[position]]
            values.append(node.operation.interval(*known))
            carried = _squared(node.operation).apply(*(squares[source] for source in node.inputs))
            squares.append(carried + (UNIT * _terms(node.operation, known)) ** 2)
    return [SAFETY * square.sqrt() for square in squares]


def _terms(operation: Operation, known: list[Interval]) -> Tensor | float:
    """The size of what an operation adds up, at its largest; 0 for those that compute nothing."""
    sizes = [value.largest() for value in known]
    if isinstance(operation, (Sum, AveragePool)):
        return operation.apply(*sizes)
    if isinstance(operation, ReLU):
        return operation.slope * sizes[0]
    return operation.size(sizes[0]) if isinstance(operation, Affine) else 0.0


def _squared(operation: Operation) -> Operation:
    """The operation that carries the squares of independent errors: with squared weights, and nothing added."""
    if isinstance(operation, Scale):
        return Scale(operation.factor**2, torch.zeros_like(operation.shift))
    if isinstance(operation, (Dense, Convolution)):
        return replace(operation, weight=operation.weight**2, bias=None)
    return operation
