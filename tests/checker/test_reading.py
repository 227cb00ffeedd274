"""``steadycheck`` reads networks as they are: on single points, its bounds enclose what PyTorch computes, closely."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import steadycheck
from steadycheck import Bounds, Rule
from steadynet.interchange.onnx.writer import onnx_model


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 4, 3, 2, 1), nn.BatchNorm2d(4)
        self.second, self.shortcut = nn.Conv2d(4, 4, 3, 1, 1), nn.Conv2d(4, 4, 1)
        self.last = nn.Linear(36, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(self.first(x)).relu()
        return self.last((self.second(x).relu() + self.shortcut(x) - 0.25).relu().flatten(1))


def networks() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {
        "residual": Residual(),
        "pooled": nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.LeakyReLU(0.1), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2, 1, 1),
            nn.Flatten(), nn.Linear(64, 3),
        ),
        "grouped": nn.Sequential(
            nn.Conv2d(2, 4, 3, groups=2, dilation=2), nn.ReLU(), nn.ZeroPad2d((1, 2, 0, 1)),
            nn.Conv2d(4, 2, 2, stride=(1, 2)), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3),
        ),
    }  # fmt: skip


def backward(network: steadycheck.Network) -> list[Rule]:
    """Backward passes for every ReLU layer; nothing has a name."""
    return [Rule(1, np.zeros(0, int))] * len(network.relus())


@pytest.mark.parametrize("kind", networks())
def test_bounds_on_points_enclose_what_pytorch_computes(kind: str) -> None:
    network = networks()[kind].eval()
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-1, 1)
            module.running_var.uniform_(0.5, 2)
    points = torch.rand(5, 2, 6, 6) * 2 - 1
    with torch.no_grad():
        wanted = network(points).double().numpy()
    known = steadycheck.read_network(onnx_model(network, (2, 6, 6)).SerializeToString())
    flat = points.flatten(1).double().numpy()
    for point, scores in zip(flat, wanted, strict=True):
        found = Bounds(known, (point, point), backward(known))
        low, high = found.lower[known.output], found.upper[known.output]
        assert (low <= scores).all()
        assert (high >= scores).all()
        assert (high - low).max() < 1e-3


@pytest.mark.parametrize("real", ["float64", "float32"])
@pytest.mark.parametrize("kind", networks())
def test_bounds_on_boxes_hold_at_random_points(kind: str, real: str) -> None:
    network = networks()[kind].eval()
    known = steadycheck.read_network(onnx_model(network, (2, 6, 6)).SerializeToString())
    centre = torch.rand(1, 2, 6, 6)
    lower, upper = ((centre + side * 0.1).flatten().double().numpy() for side in (-1, 1))
    found = Bounds(known, (lower, upper), backward(known), real=real)
    violation, none, zeros = (
        steadycheck.Violation(lower, upper, np.eye(3), np.zeros(3)),
        np.zeros(0, int),
        np.zeros(3, int),
    )
    leaves = steadycheck.Leaves(zeros, zeros, none, none, none + 0.0, none + 0.0, zeros, np.eye(3))
    bounds = steadycheck.bound_leaves(found, [violation], leaves, np.zeros((1, 0)))
    with torch.no_grad():
        scores = network(centre + 0.2 * (torch.rand(500, 2, 6, 6) - 0.5)).double().numpy()
    assert (scores >= bounds).all()
    assert (scores.min(0) - bounds).max() < np.ptp(scores) * 20 + 1


@pytest.mark.parametrize(
    "text",
    [
        "(assert (<= X_00 1.0))",
        "(assert (<= X_0 X_1))",
        "(assert (<= X_0 Y_0))",
        "(assert (<= (+ Y_0 Y_1) 1.0))",
        "(assert (<= Y_0 1.0)",
        "(assert (not (<= Y_0 1.0)))",
        "(check-sat)",
        "(assert (<= Y_7 1.0))",
        "(assert (<= Y_0 1e999))",
    ],
)
def test_properties_that_are_not_understood_are_refused(text: str) -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    known = steadycheck.read_network(onnx_model(network, (2,)).SerializeToString())
    names = "".join(f"(declare-const {name} Real)" for name in ("X_0", "X_1", "Y_0", "Y_1"))
    box = "".join(f"(assert (>= X_{i} 0.0))(assert (<= X_{i} 1.0))" for i in (0, 1))
    assert steadycheck.read_property((names + box + "(assert (<= Y_0 Y_1))").encode(), known)
    with pytest.raises(steadycheck.Refused):
        steadycheck.read_property((names + box + text).encode(), known)
    with pytest.raises(steadycheck.Refused):
        steadycheck.read_property((names + "(assert (<= Y_0 Y_1))").encode(), known)  # no box


LAYOUTS = {  # the same property, written in other ways
    "usual": "\n".join,
    "one line": "".join,
    "comments": lambda lines: "; a comment\n" + "\n".join(f"{line} ; (assert (<= X_0 0.1))" for line in lines),
    "carriage returns": lambda lines: "\r\n".join(lines) + "\r\n",
    "spaces": lambda lines: "\n".join(line.replace("(", " ( ").replace(")", "\t) ") for line in lines),
    "upper bounds first": lambda lines: "\n".join([*lines[:4], lines[5], lines[4], lines[7], lines[6], *lines[8:]]),
    "another order": lambda lines: "\n".join([*lines[:4], *lines[6:8], *lines[4:6], *lines[8:]]),
    "a bound twice": lambda lines: "\n".join([*lines[:8], "(assert (>= X_1 -7.0))", lines[8]]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_layout_of_a_property_does_not_matter(layout: str) -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    known = steadycheck.read_network(onnx_model(network, (2,)).SerializeToString())
    lines = [f"(declare-const {name} Real)" for name in ("X_0", "X_1", "Y_0", "Y_1")]
    lines += ["(assert (>= X_0 0.25))", "(assert (<= X_0 0.5))", "(assert (>= X_1 -1e-1))", "(assert (<= X_1 .75))"]
    (found,) = steadycheck.read_property(LAYOUTS[layout]([*lines, "(assert (<= Y_0 Y_1))"]).encode(), known)
    below = -float(np.nextafter(np.float32(0.1), np.float32(1)) if np.float32(0.1) < 0.1 else np.float32(0.1))
    assert found.lower.tolist() == [0.25, below]
    assert found.upper.tolist() == [0.5, 0.75]
    assert found.matrix.tolist() == [[1.0, -1.0]]


@pytest.mark.parametrize("missing", range(9))
def test_a_property_without_one_of_its_lines_is_refused(missing: int) -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    known = steadycheck.read_network(onnx_model(network, (2,)).SerializeToString())
    lines = [f"(declare-const {name} Real)" for name in ("X_0", "X_1", "Y_0", "Y_1")]
    lines += [f"(assert ({sign} X_{i} {value}))" for i in (0, 1) for sign, value in ((">=", 0.0), ("<=", 1.0))]
    lines += ["(assert (<= Y_0 Y_1))"]
    for text in ("\n".join(lines[:missing] + lines[missing + 1 :]), "\n".join(lines[:missing])):
        with pytest.raises(steadycheck.Refused):
            steadycheck.read_property(text.encode(), known)
