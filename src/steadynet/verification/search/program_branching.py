"""Which ReLU to split where bounds are linear programs: the one whose two sides gained most so far.

What a split gained is remembered per ReLU and side (pseudo-costs, as in mixed-integer programming).
"""

from __future__ import annotations

import numpy as np

from steadynet.verification.search.branching import SIGNS
from steadynet.verification.search.relaxed_program import Vector

NO_GAIN = 1e-6  # of the largest gain: what counts for a side that gained nothing


class Branching:
    """The gains of all splits of one margin so far.

    >>> branching = Branching(3)
    >>> for sign in SIGNS:
    ...     branching.record(2, sign, gain=0.5)
    ...     branching.record(0, sign, gain=0.1)
    >>> branching.choose(np.array([1.0, 0.0, 1.0]))
    2
    """

    def __init__(self, neurons: int) -> None:
        self.gains = {sign: np.zeros(neurons) for sign in SIGNS}
        self.counts = {sign: np.zeros(neurons) for sign in SIGNS}

    def record(self, neuron: int, sign: int, gain: float) -> None:
        """Remember what a split gained; an empty side counts as the largest mean gain so far."""
        if not np.isfinite(gain):
            gain = float((self.gains[sign] / np.maximum(self.counts[sign], 1)).max())
        self.gains[sign][neuron] += max(gain, 0.0)
        self.counts[sign][neuron] += 1

    def choose(self, weights: Vector) -> int:
        """Choose the ReLU to split.

        Args:
            weights: per ReLU, how promising it is without any experience; 0 for those that cannot be chosen.
        """
        scores = np.where(weights > 0, self._scores(), -1.0)
        return int(np.lexsort((weights, scores))[-1])

    def _scores(self) -> Vector:
        """What splitting each ReLU is expected to gain: the product of both sides, the mean of all where unknown."""
        expected = []
        for sign in SIGNS:
            gains, counts = self.gains[sign], self.counts[sign]
            mean = gains.sum() / max(counts.sum(), 1.0)
            expected.append(np.where(counts > 0, gains / np.maximum(counts, 1.0), mean))
        least = NO_GAIN * max(float(max(side.max() for side in expected)), 1e-30)
        product: Vector = np.maximum(expected[0], least) * np.maximum(expected[1], least)
        return product
