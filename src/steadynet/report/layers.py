"""What a report computes itself, on a few images of each run: the stable neurons of each layer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch

from steadynet import data
from steadynet.attacks.region import InputRegion
from steadynet.bounds import UnsupportedNetworkError, crown_bounds, interval_bounds
from steadynet.errors import UserError, one_line
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.report.collect import Run, is_here
from steadynet.runs.trained import load_trained

IMAGES = 5
FEW_RELUS = 10_000  # CROWN is quick up to here; intervals are, always
MOST_RADII = 4


@dataclass(frozen=True)
class LayerShares:
    """The share of stable ReLUs of each layer, by radius, and how it was found."""

    method: str
    images: int
    sizes: list[int]
    shares: dict[float, list[float]]


def layer_shares(runs: Sequence[Run]) -> tuple[dict[str, LayerShares], list[str]]:
    """By name of the run; and, in words, why some are left out."""
    found: dict[str, LayerShares] = {}
    notes: dict[str, None] = {}
    for run in runs:
        radii = sorted({row.eps for row in run.verdicts})[:MOST_RADII]
        if not run.folder.weights.is_file() or not radii:
            continue
        index = sorted({row.index for row in run.verdicts})[:IMAGES]
        changed = run.folder.weights.stat().st_mtime
        try:
            source = run.verdicts[0].data
            if not is_here(source):
                raise UserError(f"the data set {Path(source).name} is not on this machine")
            found[run.name] = _shares(run.folder.path, changed, source, tuple(index), tuple(radii))
        except (UserError, UnsupportedNetworkError, OSError) as error:
            notes[f"No stable neurons per layer: {one_line(error)}."] = None
    return found, list(notes)


@lru_cache(maxsize=256)
def _shares(path: Path, changed: float, source: str, index: tuple[int, ...], radii: tuple[float, ...]) -> LayerShares:
    """``changed`` is when the weights were written: while they stay, nothing is computed twice."""
    trained = load_trained(path)
    pixels = data.load(source).test.pixels(torch.tensor(index))
    shares, sizes, method = {}, [], ""
    with torch.no_grad(), evaluation_mode(trained.network):
        for eps in radii:
            region = InputRegion.around(pixels, eps)
            bounds = interval_bounds(trained.network, region)
            if sum(layer.lower[0].numel() for layer in bounds.relus) <= FEW_RELUS:
                bounds = crown_bounds(trained.network, region)
            sizes, method = [layer.lower[0].numel() for layer in bounds.relus], bounds.method
            shares[eps] = [float(layer.float().mean()) for layer in bounds.stable()]
    return LayerShares(method, len(index), sizes, shares)
