"""Better slopes and multipliers for leaves that are not proved yet: gradient ascent on the condensed network.

Nothing here is a proof. The closed form of the gradient is that of ``bounds/condensed_bounds.py``: a bound is linear in
the ReLU inputs z at its minimiser, so a lower slope counts with A⁺ · z and a multiplier with −sign · z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from steadycheck import Condensed, Rows
from steadynet.verification.proofs.trees import Leaf

Array = NDArray[np.float64]

STEPS, SLOPE_RATE, MULTIPLIER_RATE, WEIGHT_RATE, DECAY = 20, 0.15, 0.1, 0.1, 0.95


@dataclass
class Batch:
    """Leaves of one violation in arrays: slopes (n, kept), multipliers and signs (n, kept), weights (n, constraints).

    ``signs`` is 0 where a ReLU is not held.
    """

    owner: NDArray[np.int64]
    slopes: Array
    betas: Array
    signs: Array
    weights: Array

    @classmethod
    def of(cls, condensed: Condensed, leaves: Sequence[Leaf], boxes: Sequence[int]) -> Batch:
        """The batch of some leaves; ``boxes`` are the numbers of the boxes of the condensed network."""
        place = {box: number for number, box in enumerate(boxes)}
        owner = np.array([place[leaf.box] for leaf in leaves])
        default = np.concatenate([layer.lines[0] for layer in condensed.layers], 1)
        slopes = np.array(
            [default[row] if leaf.slopes is None else leaf.slopes for row, leaf in zip(owner, leaves, strict=True)]
        )
        betas, signs = np.zeros_like(slopes), np.zeros_like(slopes)
        for row, leaf in enumerate(leaves):
            for relu, (sign, beta) in leaf.held.items():
                betas[row, relu], signs[row, relu] = beta, sign
        return cls(owner, slopes, betas, signs, np.array([leaf.weights for leaf in leaves]))


@dataclass
class Found:
    """What one pass finds: the bounds (n,), the gradients, the coefficients on the input, and what each ReLU loses."""

    bound: Array
    slopes: Array
    betas: Array
    weights: Array
    on_input: Array
    loss: Array


def one_pass(condensed: Condensed, rows: Rows, batch: Batch) -> Found:
    """The bounds of a batch, without rounding errors, and their gradients."""
    pending = {block: batch.weights @ matrix for block, matrix in rows.blocks.items()}
    bound = batch.weights @ rows.constant
    spans, first = [], 0
    for layer in condensed.layers:
        spans.append(slice(first, first + len(layer.elements)))
        first += len(layer.elements)
    behind = np.zeros_like(batch.slopes)
    slope, chord, shift = (
        np.concatenate([layer.lines[line] for layer in condensed.layers], 1)[batch.owner] for line in range(3)
    )
    free = (shift > 0) & (batch.signs == 0)
    slope = np.where(free, batch.slopes, np.where(batch.signs == 0, slope, batch.signs > 0))
    chord, shift = np.where(batch.signs == 0, chord, slope), np.where(free, shift, 0.0)
    for number in range(len(condensed.layers) - 1, -1, -1):
        layer, span = condensed.layers[number], spans[number]
        a = pending.pop(number + 1, np.zeros_like(behind[:, span]))
        behind[:, span] = a
        negative = np.minimum(a, 0)
        b = (a - negative) * slope[:, span] + negative * chord[:, span]
        b -= batch.betas[:, span] * batch.signs[:, span]
        bound = bound + (negative * shift[:, span]).sum(1) + b @ layer.rows.constant
        for block, matrix in layer.rows.blocks.items():
            pending[block] = pending[block] + b @ matrix if block in pending else b @ matrix
    low, high = condensed.lower[0][batch.owner], condensed.upper[0][batch.owner]
    g = pending.get(0, np.zeros_like(low))
    point = np.where(g > 0, low, high)
    bound = bound + (g * point).sum(1)
    values: dict[int, Array] = {0: point}
    z, y = np.zeros_like(behind), np.zeros_like(behind)
    for number, layer in enumerate(condensed.layers):
        span = spans[number]
        z[:, span] = layer.rows.constant + sum(values[block] @ m.T for block, m in layer.rows.blocks.items())
        up = behind[:, span] < 0
        y[:, span] = np.where(up, chord[:, span] * z[:, span] + shift[:, span], slope[:, span] * z[:, span])
        values[number + 1] = y[:, span]
    weights = rows.constant + sum(values[block] @ matrix.T for block, matrix in rows.blocks.items())
    loss = np.where(free, np.abs(behind) * np.abs(np.maximum(z, 0) - y), 0.0)
    gradient = np.where(free, np.maximum(behind, 0) * z, 0.0)
    return Found(bound, gradient, -batch.signs * z, np.asarray(weights), g, loss)


def ascend(condensed: Condensed, rows: Rows, batch: Batch, steps: int = STEPS) -> Found:
    """Move slopes, multipliers and weights up the gradient (Adam), and leave the best of all passes in the batch."""
    parameters = [batch.slopes, batch.betas, batch.weights]
    rates = (SLOPE_RATE, MULTIPLIER_RATE, WEIGHT_RATE if batch.weights.shape[1] > 1 else 0.0)
    first, second = [np.zeros_like(p) for p in parameters], [np.zeros_like(p) for p in parameters]
    found = one_pass(condensed, rows, batch)
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
        found = one_pass(condensed, rows, batch)
        better = found.bound > best
        best[better] = found.bound[better]
        for copy, parameter in zip(kept, parameters, strict=True):
            copy[better] = parameter[better]
    for copy, parameter in zip(kept, parameters, strict=True):
        parameter[:] = copy
    return found
