"""Which bounds of a layer's neurons to compute by backward passes, and the known bounds with those that are tighter."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from steadynet.bounds.linear_functions import LinearFunctions, single_neurons
from steadynet.graph.operations import Interval, Shape

SECOND_BOUNDS = False  # whether a ReLU that is always active gets its upper bound, too, if further ReLUs come
BOTH_AT_ONCE = 6  # if a pass takes so many times the open neurons, those that likely stay open get both bounds at once
LIKELY = (0.0, 0.8, 0.3)  # by layer: the share of the half width below which |value at the centre| makes that likely

Bound = Callable[[LinearFunctions, Tensor], Tensor]  # (functions, owners) -> lower bounds


HOPELESS = 0.02  # of the width of known bounds: a neuron closer to zero at the centre hardly gets a sign


class SignsFirst(NamedTuple):
    """Which bound of a ReLU's input to compute first, and where the second one is of no use.

    A ReLU whose sign is known is linear, however low or high its input. The upper bound of one that is always active
    would tighten the intervals of the layers behind it, but by so little that it does not pay (``SECOND_BOUNDS``).

    Attributes:
        at_centre: the input at the centre of each box. Where it is positive, the lower bound comes first.
        depth: how many ReLUs or maxima are before this one.
        is_last: whether no further one comes.
    """

    at_centre: Tensor
    depth: int
    is_last: bool

    def likely_open(self, known: Interval) -> Tensor:
        """A mask of the neurons that likely stay unstable, so that both of their bounds are of use.

        The deeper a layer, the looser are the intervals against which the values at the centre are held.
        """
        share = LIKELY[min(self.depth, len(LIKELY) - 1)]
        return 2 * self.at_centre.abs() < share * (known.upper - known.lower)

    def hopeless(self, known: Interval) -> Tensor:
        """A mask of the neurons whose sign no bound will prove, as far as one can tell."""
        return 2 * self.at_centre.abs() < HOPELESS * (known.upper - known.lower)

    def still_wanted(self, first: Interval) -> Tensor:
        """A mask of the neurons whose second bound is of use, now that the first one is known."""
        return ~(first.upper <= 0) if SECOND_BOUNDS and not self.is_last else ~first.stable()


def signs_sharpened(
    known: Interval, wanted: Tensor, signs: SignsFirst, shape: Shape, at_once: int, bound: Bound
) -> Interval:
    """As :func:`sharpened`, but the second bound of a neuron is left out where the first one makes it useless.

    A pass over few functions takes hardly less time than one over some more. So where a layer has few open neurons,
    those that likely stay open get both bounds by the first pass, which saves most second passes.
    """
    positive = signs.at_centre > 0
    below, above = wanted & positive, wanted & ~positive
    if BOTH_AT_ONCE * int(wanted.sum()) <= at_once:
        likely = wanted & signs.likely_open(known)
        below, above = below | likely, above | likely
    first = _sides_sharpened(known, below, above, shape, at_once, bound)
    left = wanted & signs.still_wanted(first)
    return _sides_sharpened(first, left & ~below, left & ~above, shape, at_once, bound)


def first_sides_sharpened(
    known: Interval, wanted: Tensor, signs: SignsFirst, shape: Shape, at_once: int, bound: Bound
) -> Interval:
    """The known bounds, with the one that may prove the sign of each ``wanted`` neuron, where it is tighter."""
    positive = signs.at_centre > 0
    return _sides_sharpened(known, wanted & positive, wanted & ~positive, shape, at_once, bound)


def _sides_sharpened(
    known: Interval, below: Tensor, above: Tensor, shape: Shape, at_once: int, bound: Bound
) -> Interval:
    """The known bounds, with the lower ones that are wanted ``below`` and the upper ones ``above``, where tighter."""
    chosen = _chosen(below, above)
    if not len(chosen):
        return known
    sides = torch.stack([known.lower, -known.upper], 1)  # an upper bound of z is −(a lower bound of −z)
    for some in chosen.split(at_once):
        place = tuple(some.t())
        functions, owner = single_neurons(_without_side(some), shape, sides.dtype, 1 - 2 * some[:, 1])
        sides[place] = torch.maximum(sides[place], bound(functions, owner))
    lower, upper = sides[:, 0], -sides[:, 1]
    return Interval(lower, torch.maximum(upper, lower))


def _chosen(below: Tensor, above: Tensor) -> Tensor:
    """(n, 2 + axes): property, side, neuron. Neurons of one place of a feature map follow each other."""
    if below.dim() != 4:
        return torch.stack([below, above], 1).nonzero()
    by_place = torch.stack([below, above], 1).permute(0, 3, 4, 1, 2)  # (properties, *map, sides, channels)
    return by_place.nonzero()[:, [0, 3, 4, 1, 2]]


def _without_side(chosen: Tensor) -> Tensor:
    """(n, 1 + axes): property and neuron."""
    return torch.cat([chosen[:, :1], chosen[:, 2:]], 1)


def sharpened(known: Interval, wanted: Tensor, shape: Shape, at_once: int, bound: Bound) -> Interval:
    """The known bounds, with those that ``bound`` finds where they are ``wanted`` and tighter.

    Args:
        known: bounds of a value, one row per property.
        wanted: the neurons to bound again, a mask of the same shape.
        shape: the value's shape.
        at_once: how many functions go into one call of ``bound``.
        bound: (functions, owners) -> lower bounds.
    """
    lower, upper = known.lower.clone(), known.upper.clone()
    chosen = wanted.nonzero()
    for some in chosen.split(at_once) if len(chosen) else ():
        functions, owner = single_neurons(some, shape, lower.dtype)
        negated = functions.with_coefficients(-functions.coefficients)  # an upper bound of z is −(a lower bound of −z)
        index = tuple(some.t())
        lower[index] = torch.maximum(lower[index], bound(functions, owner))
        upper[index] = torch.minimum(upper[index], -bound(negated, owner))
    return Interval(lower, torch.maximum(upper, lower))
