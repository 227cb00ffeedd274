"""ONNX: networks are written and read back unchanged, and malformed files are refused."""

from __future__ import annotations

import random
import re
import time
import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from torch import nn

from helpers import CLASSES, IMAGE, Written, convolutional, dense, residual, some_images
from onnx_files import KerasTwin, keras, one_node, runtime, weights, write
from places import SHARED
from steadynet import networks
from steadynet.attacks.region import InputRegion
from steadynet.bounds import UnsupportedNetworkError, crown_bounds, graph_of, interval_bounds
from steadynet.errors import UserError
from steadynet.graph.graph import Graph, Node
from steadynet.graph.graph_network import GraphNetwork
from steadynet.graph.operations import Interval
from steadynet.graph.rearrangements import Pad, Permute, Take
from steadynet.interchange.onnx.reader import read_onnx
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.verification.properties import Properties, Verdict
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound

REAL = ["vnncomp/onnx/cifar10_small", "vnncomp/onnx/cifar_base_kw", "vnncomp/onnx/mnist-net_256x2"]
REAL += ["vnncomp/onnx/resnet_2b", "reference/m1_nbc"]


def same_bounds(ours: nn.Module, read: nn.Module, region: InputRegion) -> None:
    for method in (interval_bounds, crown_bounds):
        one, other = method(ours, region), method(read, region)
        assert len(one.relus) == len(other.relus)
        for mine, theirs in zip([*one.relus, one.output], [*other.relus, other.output], strict=True):
            torch.testing.assert_close(mine.lower.flatten(1), theirs.lower.flatten(1), rtol=1e-3, atol=1e-4)
            torch.testing.assert_close(mine.upper.flatten(1), theirs.upper.flatten(1), rtol=1e-3, atol=1e-4)


def small(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    torch.manual_seed(0)
    if name in networks.ARCHITECTURES:
        architecture = networks.ARCHITECTURES[name]
        mean = [0.3] * architecture.image_shape[0]
        return nn.Sequential(networks.Normalise(mean, mean), architecture.build()).eval(), architecture.image_shape
    built = {
        "residual": residual(),
        "convolutional": convolutional(),
        "dense": nn.Sequential(nn.Flatten(), dense(36, 8, 8, CLASSES)),
        "pools": nn.Sequential(
            nn.Conv2d(1, 2, 3, padding=1), nn.LeakyReLU(0.2), nn.MaxPool2d(2, 1, 1), nn.AvgPool2d(3, 2, 1),
            nn.BatchNorm2d(2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, CLASSES),
        ),
        "joins": Written(
            lambda net, x: net.last(torch.cat([net.one(x.flatten(1)).relu(), 3 - x.flatten(1)], 1)).reshape(-1, 2, 2)
            .flatten(1),
            one=nn.Linear(36, 5), last=nn.Linear(41, CLASSES),
        ),
    }  # fmt: skip
    return built[name].eval(), IMAGE


@pytest.mark.parametrize("name", ["M1", "C1", "residual", "convolutional", "dense", "pools", "joins"])
def test_round_trip(name, tmp_path):
    network, shape = small(name)
    path = tmp_path / "deep" / "model.onnx"
    export_onnx(network, shape, path)
    read = read_onnx(path)
    images = some_images(3, shape)
    assert read.input_shape == shape
    with torch.no_grad():
        expected = network(images)
        torch.testing.assert_close(read(images), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(runtime(path, images.numpy()), expected.numpy(), rtol=1e-4, atol=1e-5)
        same_bounds(network, read, InputRegion.around(images[:1], 0.002 if name in ("M1", "C1") else 0.05))


@pytest.mark.parametrize("name", ["residual", "dense", "convolutional"])
def test_same_verdicts_after_a_round_trip(name, tmp_path):
    network, shape = small(name)
    export_onnx(network, shape, tmp_path / "model.onnx")
    read = read_onnx(tmp_path / "model.onnx")
    images = some_images(4, shape)
    with torch.no_grad():
        labels = network(images).argmax(1)
    labels[-1] = (labels[-1] + 1) % CLASSES  # wrong: its own counterexample
    found = set()
    for radius in (0.01, 0.2, 1.0):
        verdicts = [
            [result.verdict for result in BranchAndBound(timeout=20)(Properties.around(each, images, labels, radius))]
            for each in (network, read)
        ]
        assert verdicts[0] == verdicts[1]
        found |= set(verdicts[0])
    assert found == {Verdict.UNSAT, Verdict.SAT}


def test_keras_writes_channels_last(tmp_path):
    read, twin, images = read_onnx(keras(tmp_path / "keras.onnx")), KerasTwin(), some_images(3, (6, 6, 1))
    assert read.input_shape == (6, 6, 1)
    torch.testing.assert_close(read(images), twin(images), rtol=1e-4, atol=1e-5)
    region = InputRegion.around(images, 0.05)
    bounds, inside = crown_bounds(read, region).output, region.sample()
    assert bool(((bounds.lower <= twin(inside) + 1e-5) & (twin(inside) <= bounds.upper + 1e-5)).all())
    labels = twin(images).argmax(1)
    results = BranchAndBound(timeout=20)(Properties.around(read, images, labels, 0.01))
    assert {result.verdict for result in results} <= {Verdict.UNSAT, Verdict.SAT}
    export_onnx(read, (6, 6, 1), tmp_path / "again.onnx")
    torch.testing.assert_close(read_onnx(tmp_path / "again.onnx")(images), twin(images), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", REAL)
def test_real_files(name):
    path = SHARED / f"{name}.onnx"
    if not path.exists():
        pytest.skip("no ../shared here")
    read = read_onnx(path)
    images = np.random.default_rng(7).uniform(0, 1, (4, *read.input_shape)).astype(np.float32)
    for image in images:
        expected = runtime(path, image[None])
        found = read(torch.from_numpy(image)[None])
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4)
    region = InputRegion.around(torch.from_numpy(images[:1]), 0.001)
    bounds = crown_bounds(read, region).output
    assert bool((bounds.lower <= bounds.upper).all())


def test_products_of_data_and_missing_files_are_refused(tmp_path):
    squared = write(tmp_path / "squared.onnx", [helper.make_node("Mul", ["x", "x"], ["y"])], {}, [1, 4])
    with pytest.raises(UserError, match="a product of data"):
        read_onnx(squared)
    with pytest.raises(UserError, match="cannot read"):
        read_onnx(tmp_path / "nothing.onnx")
    (tmp_path / "text.onnx").write_text("no ONNX at all")
    with pytest.raises(UserError, match="not a valid ONNX file"):
        read_onnx(tmp_path / "text.onnx")


def test_files_of_other_kinds_are_named(tmp_path):
    network = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PyTorch itself advises against TorchScript
        torch.jit.save(torch.jit.script(network), tmp_path / "script.pt")
    torch.save(network.state_dict(), tmp_path / "weights.pt")
    with pytest.raises(
        UserError, match=r"script.pt is a TorchScript file, which is not supported: write the nn.Module"
    ):
        read_onnx(tmp_path / "script.pt")
    with pytest.raises(UserError, match=r"weights.pt is a PyTorch file, not an ONNX file: write the nn.Module"):
        read_onnx(tmp_path / "weights.pt")


@pytest.mark.parametrize(
    ("domain", "operator", "message"),
    [
        ("ai.onnx.ml", "Normalizer", "is a scikit-learn model: operators of ai.onnx.ml are not supported (Normalizer)"),
        ("com.else", "Odd", "uses operators that are not part of ONNX: those of com.else are not supported (Odd)"),
    ],
)
def test_operators_of_others_are_named(tmp_path, domain, operator, message):
    entries = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4]) for name in "xy"]
    node = helper.make_node(operator, ["x"], ["y"], domain=domain)
    graph = helper.make_graph([node], "g", entries[:1], entries[1:])
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(domain, 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), tmp_path / "other.onnx")
    with pytest.raises(UserError, match=re.escape(message)):
        read_onnx(tmp_path / "other.onnx")


def test_external_data_only_from_the_folder(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    path = one_node(folder / "one.onnx", "Add", {"c": weights(400)}, [1, 400])
    model = onnx.load(path)
    onnx.save(model, path, save_as_external_data=True, location="data.bin", size_threshold=10)
    assert (folder / "data.bin").exists()
    torch.testing.assert_close(read_onnx(path)(torch.zeros(1, 400))[0], torch.from_numpy(weights(400)))
    (folder / "data.bin").rename(tmp_path / "data.bin")
    (folder / "data.bin").symlink_to(tmp_path / "data.bin")
    with pytest.raises(UserError, match="outside its folder"):
        read_onnx(path)
    path.write_bytes(path.read_bytes().replace(b"data.bin", b"../d.bin"))
    with pytest.raises(UserError, match="outside its folder"):
        read_onnx(path)


def test_byte_mutations_do_no_harm(tmp_path):
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Reshape", ["r", "s"], ["f"]),
        helper.make_node("Gemm", ["f", "w", "b"], ["y"], transB=1),
    ]
    constants = {"k": weights(2, 1, 3, 3), "s": np.array([1, -1]), "w": weights(3, 8), "b": weights(3)}
    path = write(tmp_path / "valid.onnx", nodes, constants, [1, 1, 4, 4])
    content, chance = path.read_bytes(), random.Random(0)
    image = some_images(1, (1, 4, 4))
    read, lines, start = 0, set(), time.perf_counter()
    for _ in range(500):
        changed = bytearray(content)
        for _ in range(chance.choice((1, 1, 2, 5))):
            changed[chance.randrange(len(changed))] = chance.randrange(256)
        if chance.random() < 0.1:
            del changed[chance.randrange(len(changed)) :]
        path.write_bytes(changed)
        try:
            network = read_onnx(path)
        except UserError as error:
            lines.add(str(error).count("\n"))
            continue
        read += 1
        given = image.flatten()[: torch.Size(network.input_shape).numel()]
        if given.numel() == torch.Size(network.input_shape).numel() and network.input_shape == (1, 4, 4):
            expected, found = runtime(path, image.numpy()), network(image).numpy()
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3 * (1 + np.abs(expected).max()))
    assert 5 < read < 495
    assert lines == {0}
    assert time.perf_counter() - start < 20


def test_a_graph_network_is_a_module():
    network = GraphNetwork(graph_of(dense(4, 3, 2), (4,)), (4,))
    image = torch.rand(2, 4)
    other = GraphNetwork(graph_of(dense(4, 3, 2, seed=1), (4,)), (4,))
    other.load_state_dict(network.state_dict())
    torch.testing.assert_close(other(image), network(image))
    torch.testing.assert_close(network.double()(image.double()).float(), other(image))
    assert graph_of(other, (4,)).nodes[0].operation.weight is other.weight_1_weight
    with pytest.raises(UnsupportedNetworkError, match=r"takes inputs of shape \(4,\)"):
        graph_of(other, (5,))


@pytest.mark.parametrize("operation", [Permute((2, 0, 1)), Pad(((0, 1), (2, 0), (1, 3))), Take(2, (3, 0, 0))])
def test_moving_operations_are_their_own_transpose(operation):
    point = torch.rand(2, 3, 4, 5, dtype=torch.float64)
    image = operation.apply(point)
    rows = torch.rand_like(image)
    (back,) = operation.backward(rows, [(3, 4, 5)])
    torch.testing.assert_close((back * point).sum(), (rows * image).sum())
    assert operation.constant(rows, torch.float64) == 0
    lower, upper = operation.interval(Interval(point - 1, point))
    assert bool((lower <= upper).all())
    assert Graph((Node("move", operation, (0,)),)).values(point)[-1].shape == image.shape


def test_what_onnx_cannot_express_is_not_written(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_text("before")
    with pytest.raises(UserError):
        export_onnx(nn.Sequential(nn.Linear(4, 2), nn.GELU()), (4,), path)
    broken = nn.Linear(4, 2)
    broken.weight.data.fill_(torch.nan)
    with pytest.raises(UserError):
        export_onnx(broken, (4,), path)
    assert path.read_text() == "before"
