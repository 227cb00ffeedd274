"""The unstable ReLUs in the windows that neurons of a convolution see: where they are few, only they take two lines."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from steadynet.bounds.patches import Patch, WindowedLayers

FEW_IN_WINDOWS = 0.25  # share of the ReLUs of a window, up to which only the unstable ones take two lines


class FewUnstable(NamedTuple):
    """The lines of the ReLUs that functions see, (n, ...) each.

    Attributes:
        lower_slope: (n, window), of all ReLUs of the window.
        place: (n, most), the unstable ones in the window; those that are fewer are filled up with any others.
        difference: (n, most), how much steeper the upper line is than the lower one; 0 where filled up.
        shift: (n, most), the value of the upper line at zero; 0 where filled up.
    """

    lower_slope: Tensor
    place: Tensor
    difference: Tensor
    shift: Tensor


class UnstableWindows:
    """The unstable ReLUs of the windows of one layer.

    Args:
        drawn: its lower slopes, differences of slopes, and upper shifts.
    """

    def __init__(self, drawn: WindowedLayers) -> None:
        self.drawn = drawn
        self._cut: Tensor | None = None
        self._found: FewUnstable | None = None

    def seen(self, patch: Patch, cells: Tensor, owner: Tensor | None) -> FewUnstable | None:
        """What each function sees, as :meth:`WindowedLayers.seen`; None if the unstable ReLUs are not few."""
        cut, rows = self.drawn.windows(patch, cells, owner)
        if cut is not self._cut:
            self._cut, self._found = cut, _few_unstable(cut)
        return None if self._found is None else FewUnstable(*(each.index_select(0, rows) for each in self._found))


def _few_unstable(windows: Tensor) -> FewUnstable | None:
    """The same per window; (windows, 3 · size) are lower slopes, differences and shifts."""
    slope, difference, shift = windows.view(len(windows), 3, -1).unbind(1)
    unstable = ~(shift <= 0)  # also where bounds are not numbers
    if int(unstable.sum()) > FEW_IN_WINDOWS * unstable.numel():
        return None  # so some window has more than that
    number = unstable.cumsum(1, dtype=torch.int32)
    most = int(number[:, -1].max()) if len(windows) else 0
    if most > FEW_IN_WINDOWS * slope.shape[1]:
        return None
    window, element = unstable.nonzero(as_tuple=True)
    index = window, number[window, element].long() - 1
    place = torch.zeros(len(windows), most, dtype=torch.long, device=windows.device)
    differences, shifts = torch.zeros(2, *place.shape, dtype=windows.dtype, device=windows.device)
    place[index], differences[index], shifts[index] = element, difference[window, element], shift[window, element]
    return FewUnstable(slope.contiguous(), place, differences, shifts)
