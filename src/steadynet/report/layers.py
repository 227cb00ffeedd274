"""The stable neurons of each layer. The report computes them itself, on a few images of each run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from steadynet.attacks.region import InputRegion
from steadynet.bounds import UnsupportedNetworkError, crown_bounds, interval_bounds
from steadynet.errors import UserError, one_line
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.report.data_sets import load_here
from steadynet.report.records import Run
from steadynet.runs.trained import load_trained

IMAGES = 5
MAX_CROWN_RELUS = 10_000  # CROWN is fast for networks up to this size; larger ones get interval bounds
MAX_RADII = 4


@dataclass(frozen=True)
class LayerShares:
    """The share of stable ReLUs in each layer, by radius.

    ``method`` names the bounds, ``images`` counts the test images that the shares are means over, and ``sizes`` are the
    numbers of ReLUs.
    """

    method: str
    images: int
    sizes: list[int]
    shares: dict[float, list[float]]


def layer_shares(runs: Sequence[Run]) -> tuple[dict[str, LayerShares], list[str]]:
    """Compute the shares of each run.

    Args:
        runs: The runs. Those without a network or without verdicts are left out.

    Returns:
        The shares by the run's name, and notes that say why some runs have none.
    """
    found: dict[str, LayerShares] = {}
    notes: dict[str, None] = {}
    for run in runs:
        radii = sorted({row.eps for row in run.verdicts})[:MAX_RADII]
        if not run.folder.weights.is_file() or not radii:
            continue
        index = sorted({row.index for row in run.verdicts})[:IMAGES]
        changed = run.folder.weights.stat().st_mtime
        try:
            found[run.name] = _shares(run.folder.path, changed, run.verdicts[0].data, tuple(index), tuple(radii))
        except (UserError, UnsupportedNetworkError, OSError) as error:
            notes[f"The stable neurons per layer are not shown: {one_line(error)}."] = None
    return found, list(notes)


@lru_cache(maxsize=256)
def _shares(path: Path, changed: float, source: str, index: tuple[int, ...], radii: tuple[float, ...]) -> LayerShares:
    """Compute the shares of one run. ``changed``, the time of the weights' file, keeps the cache up to date."""
    pixels = load_here(source).test.pixels(torch.tensor(index))
    trained = load_trained(path)
    shares, sizes, method = {}, [], ""
    with torch.no_grad(), evaluation_mode(trained.network):
        for eps in radii:
            region = InputRegion.around(pixels, eps)
            bounds = interval_bounds(trained.network, region)
            if sum(layer.lower[0].numel() for layer in bounds.relus) <= MAX_CROWN_RELUS:
                bounds = crown_bounds(trained.network, region)
            sizes, method = [layer.lower[0].numel() for layer in bounds.relus], bounds.method
            shares[eps] = [float(layer.float().mean()) for layer in bounds.stable()]
    return LayerShares(method, len(index), sizes, shares)
