"""When a bound counts as a proof: it is positive with every rounding counted, in float32 or else in float64."""

from __future__ import annotations

import torch
from torch import Tensor

from steadynet.bounds.backward import RelaxedNetwork
from steadynet.bounds.precision import in_float64
from steadynet.bounds.queries import BoundQuery


def confirmed(relaxed: RelaxedNetwork, query: BoundQuery, lower: Tensor, value: Tensor) -> Tensor:
    """The bounds, with another try in float64 where a positive value is lost in the rounding of float32.

    Args:
        relaxed: the network that the bounds were computed on.
        query: what was bounded, with the slopes and multipliers to use in float64.
        lower: (n,), the bounds with every rounding counted.
        value: (n,), the bounds as they were computed.

    Returns:
        The bounds, (n,). A positive one is a proof.
    """
    doubtful = ((value > 0) & ~(lower > 0)).nonzero().flatten()
    if not len(doubtful) or relaxed.network.box.lower.dtype == torch.float64:
        return lower
    with torch.no_grad():
        found = _in_float64(relaxed, query, doubtful)
    return lower.index_put((doubtful,), torch.maximum(found, lower[doubtful]))


def _in_float64(relaxed: RelaxedNetwork, query: BoundQuery, rows: Tensor) -> Tensor:
    """Some functions of the query, bounded in float64 with every rounding counted."""
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
    return in_float64(part).relaxed(query.position).lower(exact).proved
