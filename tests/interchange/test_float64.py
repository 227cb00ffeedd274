"""Networks in float64: read, written, verified by every verifier of our own, with the rounding of float64."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from torch import nn

from helpers import convolutional, dense, residual
from steadynet import crown_bounds, verify
from steadynet.attacks.region import InputRegion
from steadynet.errors import UserError
from steadynet.interchange.export import RobustnessProperties, export
from steadynet.interchange.onnx.reader import read_onnx
from steadynet.interchange.onnx.runtime import flat_runtime_functions
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.verification.properties import Verdict
from steadynet.verification.vnncomp import Instance, decide

OURS = ["branch_and_bound", "milp"]


def pooled() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(27, 8),
        nn.ReLU(), nn.Linear(8, 3),
    )  # fmt: skip


NETWORKS = {
    "dense": (lambda: dense(6, 16, 16, 16, 3, seed=1), (6,)),
    "convolutional": (convolutional, (1, 6, 6)),
    "residual": (residual, (1, 6, 6)),
    "pooled": (pooled, (1, 6, 6)),
}


def in_float64(name: str) -> tuple[nn.Module, torch.Tensor, torch.Tensor]:
    """A network in float64 whose classes are all possible, images that float32 does not hold, and their labels."""
    torch.manual_seed(0)
    build, shape = NETWORKS[name]
    network = build().double().eval()
    images = torch.rand(4, *shape, dtype=torch.float64)
    with torch.no_grad():
        last = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
        last.bias -= network(images).mean(0)
        return network, images, network(images).argmax(1)


@pytest.mark.parametrize("name", NETWORKS)
def test_verifiers_decide_float64_as_float32(name):
    """At radii where every stage of the search decides something, both precisions agree, and counterexamples replay."""
    network, images, labels = in_float64(name)
    for eps in (0.01, 0.06, 0.12):
        found = {verifier: verify(network, images, labels, eps, verifier, timeout=10) for verifier in OURS}
        for results in zip(*found.values(), strict=True):
            assert all(result.verdict is not Verdict.ERROR for result in results), [result.reason for result in results]
            decided = {result.verdict for result in results} & {Verdict.SAT, Verdict.UNSAT}
            assert len(decided) <= 1
        narrow = verify(network.float(), images.float(), labels, eps, timeout=10)
        network.double()
        for result, single in zip(found["branch_and_bound"], narrow, strict=True):
            assert {result.verdict, single.verdict} != {Verdict.SAT, Verdict.UNSAT}
        for index, result in enumerate(found["branch_and_bound"]):
            if result.counterexample is not None:
                assert result.counterexample.dtype == torch.float64
                assert int(network(result.counterexample[None]).argmax(1)) != int(labels[index])


def test_deep_splits_in_float64():
    """Subproblems inherit the slopes of their parents, through convolutions, too."""
    torch.manual_seed(1)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.Flatten(),
        nn.Linear(144, 20), nn.ReLU(), nn.Linear(20, 3),
    ).double()  # fmt: skip
    for weight in network.parameters():
        weight.data *= 1.8
    images = torch.rand(3, 1, 6, 6, dtype=torch.float64)
    with torch.no_grad():
        network[-1].bias.copy_(-network(images).mean(0))
        labels = network(images).argmax(1)
    results = verify(network, images, labels, 0.07, timeout=3)
    assert all(result.verdict is not Verdict.ERROR for result in results), [result.reason for result in results]
    assert max(result.subproblems for result in results) > 4


@pytest.mark.parametrize("name", NETWORKS)
def test_round_trip_keeps_the_precision(name, tmp_path):
    network, images, _ = in_float64(name)
    path = tmp_path / "model.onnx"
    export_onnx(network, tuple(images.shape[1:]), path)
    model = onnx.load(path)
    assert model.graph.input[0].type.tensor_type.elem_type == TensorProto.DOUBLE
    session = ReferenceEvaluator(model)  # ONNX Runtime has no convolution in float64
    read = read_onnx(path)
    with torch.no_grad():
        expected = network(images)
        np.testing.assert_allclose(session.run(None, {"input": images.numpy()})[0], expected.numpy(), rtol=1e-10)
        torch.testing.assert_close(read(images), expected, rtol=1e-12, atol=1e-12)
    bounds = crown_bounds(read, InputRegion.around(images, 1e-9)).output
    assert bounds.lower.dtype == torch.float64
    assert float((bounds.upper - bounds.lower).max()) < 1e-6


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_an_export_in_float64_is_decided(version, tmp_path):
    network, images, labels = in_float64("dense")
    properties = RobustnessProperties(images, labels, [0, 1, 2, 3], [0.05], class_count=3)
    folder = export(network, properties, tmp_path / "exported")
    expected = verify(network, images, labels, 0.05, timeout=10)
    for index, result in enumerate(expected):
        file = folder.property_file(version, index, 0.05)
        assert version == "1.0" or "declare-input X float64 [1,6]" in file.read_text()
        assert decide(Instance(folder.model, file, 20)).verdict is result.verdict


def write_double(path: Path, nodes: list[onnx.NodeProto], given: dict[str, float]) -> Path:
    constants = [numpy_helper.from_array(np.array([value]), name) for name, value in given.items()]
    ends = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [1, 1]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "test", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def vnnlib(path: Path, low: float, high: float, constraint: str) -> Path:
    bounds = f"(assert (>= X_0 {Decimal(low):f})) (assert (<= X_0 {Decimal(high):f}))"
    path.write_text(f"(declare-const X_0 Real) (declare-const Y_0 Real) {bounds} (assert {constraint})")
    return path


@pytest.mark.parametrize("verifier", OURS)
def test_the_rounding_is_that_of_float64(verifier, tmp_path):
    """x + 2^27 − 2^27 is x to within 2^-24 in float64; x + 2^57 − 2^57 is 0 for x ≤ 7."""
    nodes = [helper.make_node("Add", ["x", "large"], ["a"]), helper.make_node("Sub", ["a", "large"], ["y"])]
    below = vnnlib(tmp_path / "p.vnnlib", 1, 2, "(<= Y_0 0.5)")
    small = write_double(tmp_path / "small.onnx", nodes, {"large": 2.0**27})
    assert decide(Instance(small, below, 20), verifier).verdict is Verdict.UNSAT
    large = write_double(tmp_path / "large.onnx", nodes, {"large": 2.0**57})
    assert decide(Instance(large, below, 20), verifier).verdict is not Verdict.UNSAT


def test_a_box_that_float32_does_not_resolve(tmp_path):
    """Between two neighbours of float32 lie numbers of float64: the box is not rounded to float32."""
    nodes = [helper.make_node("Sub", ["x", "half"], ["y"])]
    path = write_double(tmp_path / "model.onnx", nodes, {"half": 0.5})
    low, high = 0.5 + 1e-12, 0.5 + 2e-12
    unsat = decide(Instance(path, vnnlib(tmp_path / "p.vnnlib", low, high, "(>= Y_0 0.000000000003)"), 20))
    assert unsat.verdict is Verdict.UNSAT
    sat = decide(Instance(path, vnnlib(tmp_path / "q.vnnlib", low, high, "(>= Y_0 0.0000000000015)"), 20))
    assert sat.verdict is Verdict.SAT
    assert low <= sat.inputs[0] <= high


def test_a_property_of_float32_is_refused_for_a_network_in_float64(tmp_path):
    """A strict bound in float32 leaves out numbers of float64."""
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Add", ["a", "one"], ["y"])]
    path = write_double(tmp_path / "model.onnx", nodes, {"one": 1.0})
    text = "(vnnlib-version <2.0>) (declare-network N (declare-input X {0} [1,1]) (declare-output Y {0} [1,1]))"
    text += " (assert (> X[0,0] 0.5)) (assert (<= X[0,0] 1.0)) (assert (<= Y[0,0] 1.5000000001))"
    file = tmp_path / "p.vnnlib"
    file.write_text(text.format("float32"))
    with pytest.raises(UserError, match=r"declares float32 inputs, but .* computes in float64"):
        decide(Instance(path, file, 20))
    file.write_text(text.format("float64"))
    result = decide(Instance(path, file, 20))
    assert result.verdict is Verdict.SAT
    assert 0.5 < result.inputs[0] <= 0.5000000001


@pytest.mark.parametrize("high", [0.5, -0.25])
def test_a_relu_before_a_clip_is_decided(high, tmp_path):
    """ONNX Runtime's optimiser fails on these two in float64. y = min(max(x, 0, −1), high) on [−1, 1]."""
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Clip", ["r", "low", "high"], ["c"])]
    nodes.append(helper.make_node("Add", ["c", "zero"], ["y"]))
    path = write_double(tmp_path / "m.onnx", nodes, {"low": -1.0, "high": high, "zero": 0.0})
    model = onnx.load(path)
    for entry in model.graph.initializer:
        del entry.dims[:]  # the limits of a Clip are single numbers
    onnx.save(model, path)
    for limit, verdict in ((high - 1e-9, Verdict.SAT), (high + 1e-9, Verdict.UNSAT)):
        result = decide(Instance(path, vnnlib(tmp_path / "p.vnnlib", -1, 1, f"(>= Y_0 {Decimal(limit):f})"), 20))
        assert result.verdict is verdict
        assert verdict is Verdict.UNSAT or result.outputs[0] == high


def test_a_model_that_onnx_runtime_does_not_run_is_refused_in_one_line(tmp_path, monkeypatch):
    path = write_double(tmp_path / "m.onnx", [helper.make_node("Add", ["x", "one"], ["y"])], {"one": 1.0})

    def fails(*arguments: object, **options: object) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(onnxruntime, "InferenceSession", fails)
    with pytest.raises(UserError, match=r"^ONNX Runtime does not run .*m\.onnx: no$"):
        flat_runtime_functions(path)


def test_the_default_of_an_attribute_is_that_of_float32(tmp_path):
    """A LeakyRelu without alpha has the slope float32(0.01), whatever it computes in: ONNX Runtime says so."""
    path = write_double(tmp_path / "m.onnx", [helper.make_node("LeakyRelu", ["x"], ["y"])], {})
    (computed, _), minus_one = flat_runtime_functions(path), np.array([-1.0])
    assert computed(minus_one) == -float(np.float32(0.01))
    assert read_onnx(path)(torch.from_numpy(minus_one[None])).item() == computed(minus_one)


def test_constants_of_another_precision_are_refused(tmp_path):
    path = write_double(tmp_path / "m.onnx", [helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT)], {})
    with pytest.raises(UserError, match="a cast of data to another type") as caught:
        read_onnx(path)
    assert "\n" not in str(caught.value)
