"""Numbers of a property that float32 does not hold: no proof in exact arithmetic may rest on their rounding."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from steadynet.errors import UserError
from steadynet.graph.graph import Graph, Node
from steadynet.graph.graph_network import GraphNetwork
from steadynet.graph.operations import Scale
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.interchange.vnnlib.property import Disjunct, VnnlibProperty
from steadynet.verification.properties import Verdict
from steadynet.verification.property_network import as_robustness
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound
from steadynet.verification.vnncomp import Instance, InstanceResult, decide


def test_a_bound_between_two_numbers_of_float32_is_not_proved_by_its_rounding():
    # y = x on the point x = 0.1 rounded down, and the property says y ≤ 0.1 never holds: it does, exactly.
    identity = GraphNetwork(Graph((Node("y", Scale(torch.tensor(1.0), torch.tensor(0.0)), (0,)),)), (1,))
    just_below = float(np.nextafter(np.float32(0.1), np.float32(0)))
    bound = just_below + 1e-12  # rounds to just_below, so that y − bound becomes 0 instead of −1e-12
    disjunct = Disjunct(np.array([just_below]), np.array([just_below]), np.array([[1.0]]), np.array([bound]))
    (group,) = as_robustness(identity, VnnlibProperty(1, 1, [disjunct]))
    for arithmetic in ("exact", "float32"):
        (result,) = BranchAndBound(arithmetic=arithmetic, timeout=10)(group.properties)
        assert result.verdict is not Verdict.UNSAT


def decided(folder: Path, network: nn.Module, box: tuple[float, float], constraint: str) -> InstanceResult:
    export_onnx(network, (1,), folder / "network.onnx")
    bounds = f"(assert (>= X_0 {box[0]!r})) (assert (<= X_0 {box[1]!r}))"
    text = f"(declare-const X_0 Real) (declare-const Y_0 Real) {bounds} (assert {constraint})"
    (folder / "property.vnnlib").write_text(text)
    return decide(Instance(folder / "network.onnx", folder / "property.vnnlib", 10))


@pytest.mark.parametrize(
    ("box", "constraint", "named"),
    [
        ((-1e39, 1e39), "(<= Y_0 -1)", "the box of the property"),
        ((1e39, 2e39), "(<= Y_0 -1)", "the box of the property"),
        ((0.0, 1.0), "(<= Y_0 -1e50)", "the property compares outputs with"),
        ((0.0, 1.0), "(<= (* 1e-30 Y_0) -1e10)", "the property compares outputs with"),
    ],
)
def test_numbers_beyond_float32_are_those_of_the_property_not_of_the_network(tmp_path, box, constraint, named):
    network = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    with pytest.raises(UserError, match=rf"^{named}.* numbers that float32 does not hold$"):
        decided(tmp_path, network, box, constraint)


def test_numbers_beyond_float32_are_taken_where_they_matter_not(tmp_path):
    network = nn.Sequential(nn.Linear(1, 1), nn.ReLU())
    assert decided(tmp_path, network, (1e39, 0.0), "(<= Y_0 -1)").verdict is Verdict.UNSAT  # no input at all
    assert decided(tmp_path, network, (0.0, 1.0), "(<= (* 1e30 Y_0) -1e50)").verdict is Verdict.UNSAT  # y ≤ -1e20
    assert decided(tmp_path, network.double(), (1e39, 2e39), "(<= Y_0 -1)").verdict is Verdict.UNSAT
