"""Better slopes and multipliers for leaves that are not proved yet: gradient ascent on their bounds.

Nothing here is a proof. The closed form of the gradient is that of ``bounds/condensed_bounds.py``: a bound is linear in
the ReLU inputs z at its minimiser, so a lower slope counts with A⁺ · z and a multiplier with −sign · z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadycheck import Bounds, Relu, Violation
from steadynet.verification.proofs.trees import Leaf

Array = NDArray[np.float64]

STEPS, SLOPE_RATE, MULTIPLIER_RATE, WEIGHT_RATE, DECAY = 20, 0.15, 0.1, 0.1, 0.95


@dataclass
class Batch:
    """Leaves of one violation in arrays: slopes (n, named), multipliers and signs (n, named), weights (n, constraints).

    ``signs`` is 0 where a ReLU is not held.
    """

    slopes: Array
    betas: Array
    signs: Array
    weights: Array

    @classmethod
    def of(cls, bounds: Bounds, leaves: Sequence[Leaf]) -> Batch:
        """The batch of some leaves of one box."""
        default = np.concatenate([np.zeros(0), *(_lines(bounds, at)[0] for at in bounds.lines)])
        slopes = np.array([default if leaf.slopes is None else leaf.slopes for leaf in leaves])
        betas, signs = np.zeros_like(slopes), np.zeros_like(slopes)
        for row, leaf in enumerate(leaves):
            for relu, (sign, beta) in leaf.held.items():
                betas[row, relu], signs[row, relu] = beta, sign
        return cls(slopes, betas, signs, np.array([leaf.weights for leaf in leaves]))


@dataclass
class Found:
    """What one pass finds: the bounds (n,), the gradients, the coefficients on the input, and what each ReLU loses."""

    bound: Array
    slopes: Array
    betas: Array
    weights: Array
    on_input: Array
    loss: Array


@dataclass
class _Layer:
    """The named ReLUs of one layer in a pass: their lines (named, n) and, going back, the coefficients on them."""

    span: slice
    slope: Array
    chord: Array
    shift: Array
    free: NDArray[np.bool_]
    held: Array
    behind: Array


def _lines(bounds: Bounds, at: int) -> tuple[Array, Array, Array]:
    """Lower slope, upper slope and the upper line's value at 0 of the named ReLUs of a layer."""
    lines = bounds.lines[at]
    place = lines.place[lines.named]
    result = [lines.active[lines.named], lines.active[lines.named], np.zeros_like(lines.active[lines.named])]
    for own, known in zip(result, (lines.slope, lines.chord, lines.shift), strict=True):
        own[place >= 0] = known[place[place >= 0]]
    return result[0], result[1], result[2]


def _layers(bounds: Bounds, batch: Batch) -> dict[int, _Layer]:
    result = {}
    for at, lines in bounds.lines.items():
        slope, chord, shift = (line[:, None] for line in _lines(bounds, at))
        signs = batch.signs[:, lines.span].T
        free = (shift > 0) & (signs == 0)
        slope = np.where(free, batch.slopes[:, lines.span].T, np.where(signs == 0, slope, signs > 0))
        chord, shift = np.where(signs == 0, chord, slope), np.where(free, shift, 0.0)
        held = batch.betas[:, lines.span].T * signs
        result[at] = _Layer(lines.span, slope, chord, shift, free, held, np.zeros_like(slope))
    return result


def _backward(bounds: Bounds, violation: Violation, batch: Batch, layers: dict[int, _Layer]) -> tuple[Array, Array]:
    """The bounds without rounding errors, but for the input; and the coefficients on the input."""
    nodes, weights = bounds.network.nodes, batch.weights.T
    pending = {bounds.network.output: violation.matrix.T @ weights}
    bound = -(violation.bound @ weights)
    for at in range(len(nodes), 0, -1):
        node = nodes[at - 1]
        if at not in pending:
            continue
        a = pending.pop(at)
        if isinstance(node, Relu):
            layer, lines = layers[at], bounds.lines[at]
            layer.behind = a[lines.named]
            negative = np.minimum(layer.behind, 0)
            b = a * lines.active[:, None]
            b[lines.named] = (layer.behind - negative) * layer.slope + negative * layer.chord - layer.held
            bound = bound + (negative * layer.shift).sum(0)
            parts = [(node.source, b)]
        else:
            bound = bound + node.constant @ a
            parts = [(source, part.transpose(a)) for source, part in node.parts]
        for source, part in parts:
            pending[source] = pending[source] + part if source in pending else part
    return bound, pending.get(0, np.zeros((len(bounds.lower[0]), len(bound))))


def one_pass(bounds: Bounds, violation: Violation, batch: Batch) -> Found:
    """The bounds of a batch, without rounding errors, and their gradients: those at the minimiser of the lines."""
    layers = _layers(bounds, batch)
    bound, g = _backward(bounds, violation, batch, layers)
    low, high = bounds.lower[0][:, None], bounds.upper[0][:, None]
    values = [np.where(g > 0, low, high)]
    bound = bound + (g * values[0]).sum(0)
    gradient, betas, loss = (np.zeros_like(batch.slopes) for _ in range(3))
    for at, node in enumerate(bounds.network.nodes, 1):
        if not isinstance(node, Relu):
            values.append(node.constant[:, None] + sum(part.apply(values[source]) for source, part in node.parts))
            continue
        layer, lines, inner = layers[at], bounds.lines[at], values[node.source]
        z, behind = inner[lines.named], layer.behind
        y = np.where(behind < 0, layer.chord * z + layer.shift, layer.slope * z)
        outer = inner * lines.active[:, None]
        outer[lines.named] = y
        values.append(outer)
        gradient[:, layer.span] = np.where(layer.free, np.maximum(behind, 0) * z, 0.0).T
        betas[:, layer.span] = -batch.signs[:, layer.span] * z.T
        loss[:, layer.span] = np.where(layer.free, np.abs(behind) * np.abs(np.maximum(z, 0) - y), 0.0).T
    weights = (violation.matrix @ values[bounds.network.output] - violation.bound[:, None]).T
    return Found(bound, gradient, betas, weights, g.T, loss)


def ascend(bounds: Bounds, violation: Violation, batch: Batch, steps: int = STEPS) -> Found:
    """Move slopes, multipliers and weights up the gradient (Adam), and leave the best of all passes in the batch."""
    parameters = [batch.slopes, batch.betas, batch.weights]
    rates = (SLOPE_RATE, MULTIPLIER_RATE, WEIGHT_RATE if batch.weights.shape[1] > 1 else 0.0)
    first, second = [np.zeros_like(p) for p in parameters], [np.zeros_like(p) for p in parameters]
    found = one_pass(bounds, violation, batch)
    best, kept = found.bound.copy(), [p.copy() for p in parameters]
    for step in range(1, steps + 1):
        for number, gradient in enumerate((found.slopes, found.betas, found.weights)):
            first[number] += 0.1 * (gradient - first[number])
            second[number] += 0.001 * (gradient**2 - second[number])
            change = first[number] / (1 - 0.9**step) / (np.sqrt(second[number] / (1 - 0.999**step)) + 1e-8)
            parameters[number] += rates[number] * DECAY ** (step - 1) * change
        np.clip(batch.slopes, 0, 1, out=batch.slopes)
        np.clip(batch.betas, 0, None, out=batch.betas)
        np.clip(batch.weights, 0, None, out=batch.weights)
        batch.weights /= np.maximum(batch.weights.sum(1, keepdims=True), 1e-30)
        found = one_pass(bounds, violation, batch)
        better = found.bound > best
        best[better] = found.bound[better]
        for copy, parameter in zip(kept, parameters, strict=True):
            copy[better] = parameter[better]
    for copy, parameter in zip(kept, parameters, strict=True):
        parameter[:] = copy
    return found
