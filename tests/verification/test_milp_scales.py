"""Layers or single neurons that are scaled, and scaled back: the function stays the same, and so do the verdicts."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from steadynet import verify

IMAGE, LABEL, RADIUS = torch.full((1, 4), 0.5), torch.tensor([0]), 0.3


def network(smallest_margin: float, scale: Tensor) -> nn.Module:
    """A network whose smallest margin in the box is known by search; its first neurons are scaled, and scaled back."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    with torch.no_grad():
        points = torch.rand(4000, 4) * 0.6 + 0.2
        for _ in range(20):
            best = points[margins(layers, points).argmin()]
            points = torch.cat([best[None], (best + 0.02 * torch.randn(500, 4)).clamp(0.2, 0.8)])
        layers[4].bias[1] += margins(layers, best[None])[0] - smallest_margin
        layers[0].weight.mul_(scale[:, None])
        layers[0].bias.mul_(scale)
        layers[2].weight.div_(scale)
        assert margins(layers, best[None])[0].item() == pytest.approx(smallest_margin, rel=0.02)
    return layers


def margins(layers: nn.Module, points: Tensor) -> Tensor:
    scores = layers(points)
    return scores[:, 0] - scores[:, 1]


SCALES = {
    **{f"layer {scale:g}": torch.full((8,), scale) for scale in (1e-18, 1e-12, 1e-9, 1e9, 1e15, 1e18)},
    "neurons": 10.0 ** torch.tensor([-12.0, 12, -6, 6, 0, 9, -9, 3]),
}


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("verifier", ["branch_and_bound", "milp"])
def test_scales_change_no_verdict(scale, verifier):
    for smallest_margin, verdict in ((-1e-4, "sat"), (1e-4, "unsat")):
        (result,) = verify(network(smallest_margin, SCALES[scale]), IMAGE, LABEL, RADIUS, verifier, timeout=20)
        assert result.verdict.value == verdict, (result.reason, result.decided_by)
