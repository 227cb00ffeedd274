"""ONNX in and out: what is written is read back the same, and files nobody vouches for do no harm."""

from __future__ import annotations

import random
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

from helpers import CLASSES, IMAGE, Written, convolutional, dense, residual, some_images
from steadynet import networks
from steadynet.bounds import UnsupportedNetworkError, crown_bounds, graph_of, interval_bounds
from steadynet.bounds.graph import Graph, Node
from steadynet.bounds.graph_network import GraphNetwork
from steadynet.bounds.operations import Interval, Pad, Permute
from steadynet.errors import UserError
from steadynet.interchange.onnx_reader import read_onnx
from steadynet.interchange.onnx_writer import export_onnx
from steadynet.problems import Problems, Verdict
from steadynet.region import InputRegion
from steadynet.verifiers.branch_and_bound import BranchAndBound

SHARED = Path(__file__).parents[2] / "shared"
REAL = ["vnncomp/onnx/cifar10_small", "vnncomp/onnx/cifar_base_kw", "vnncomp/onnx/mnist-net_256x2"]
REAL += ["vnncomp/onnx/resnet_2b", "reference/m1_nbc"]


def runtime(path: Path, images: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: images})[0]


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.5, shape).astype(np.float32)


def write(
    path: Path, nodes: list, constants: dict, shape: list, outputs: list | None = None, axes: int = 2, opset: int = 13
) -> Path:
    """A file with input x and output y."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, outputs or [None] * axes)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def one_node(path: Path, kind: str, constants: dict, shape: list, **options) -> Path:
    node = helper.make_node(kind, ["x", *constants], ["y"], **options)
    axes = {"Flatten": 2, "Squeeze": len(shape) - 1, "Unsqueeze": len(shape) + 2}.get(kind, len(shape))
    return write(path, [node], constants, shape, axes=axes)


def keras(path: Path) -> Path:
    """As tf2onnx writes Keras: channels last, transposed around the convolution, bias added channels last."""
    nodes = [
        helper.make_node("Transpose", ["x"], ["nchw"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["nchw", "kernel"], ["conv"], strides=[2, 2], auto_pad="SAME_UPPER"),
        helper.make_node("Transpose", ["conv"], ["nhwc"], perm=[0, 2, 3, 1]),
        helper.make_node("Add", ["nhwc", "bias"], ["biased"]),
        helper.make_node("Relu", ["biased"], ["relu"]),
        helper.make_node("Shape", ["relu"], ["lengths"]),
        helper.make_node("Slice", ["lengths", "zero", "one"], ["batch"]),
        helper.make_node("Concat", ["batch", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["relu", "target"], ["flat"]),
        helper.make_node("MatMul", ["flat", "matrix"], ["product"]),
        helper.make_node("Add", ["product", "last"], ["y"]),
    ]
    constants = {"kernel": weights(3, 1, 3, 3), "bias": weights(3), "matrix": weights(27, 4), "last": weights(4)}
    constants |= {"zero": np.array([0]), "one": np.array([1]), "rest": np.array([-1])}
    return write(path, nodes, constants, ["n", 6, 6, 1], outputs=["n", 4])


class KerasTwin(nn.Module):
    """The same in PyTorch, channels last."""

    def forward(self, images: Tensor) -> Tensor:
        kernel, bias, matrix, last = map(torch.tensor, (weights(3, 1, 3, 3), weights(3), weights(27, 4), weights(4)))
        maps = F.conv2d(F.pad(images.permute(0, 3, 1, 2), [0, 1, 0, 1]), kernel, stride=2)
        return F.relu(maps.permute(0, 2, 3, 1) + bias).flatten(1) @ matrix + last


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
            [result.verdict for result in BranchAndBound(timeout=20)(Problems.around(each, images, labels, radius))]
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
    results = BranchAndBound(timeout=20)(Problems.around(read, images, labels, 0.01))
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


ONE = {
    "Gemm, turned": ("Gemm", {"w": weights(3, 4), "c": weights(1, 4)}, [3, 1], {"transA": 1, "alpha": 0.5, "beta": 2.}),
    "MatMul from the left": ("MatMul", {}, [5, 1], {}),
    "MatMul of many": ("MatMul", {"w": weights(5, 2)}, ["n", 3, 5], {}),
    "Sub": ("Sub", {"c": weights(3, 1, 1)}, [1, 3, 2, 2], {}),
    "Mul by one number": ("Mul", {"c": np.float32(2)}, [4], {}),
    "Div": ("Div", {"c": weights(2, 2)}, [1, 3, 2, 2], {}),
    "BatchNormalization": (
        "BatchNormalization",
        {name: abs(weights(3, seed=seed)) for seed, name in enumerate("abcd")},
        ["n", 3, 2, 2],
        {"epsilon": 0.01},
    ),
    "LeakyRelu": ("LeakyRelu", {}, [1, 5], {}),
    "MaxPool": ("MaxPool", {}, [1, 2, 5, 5], {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0]}),
    "AveragePool": ("AveragePool", {}, [1, 2, 5, 5], {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    "GlobalAveragePool": ("GlobalAveragePool", {}, [1, 2, 3, 4], {}),
    "Transpose": ("Transpose", {}, ["n", 2, 3, 4], {"perm": [0, 3, 1, 2]}),
    "Transpose of the batch": ("Transpose", {}, [1, 2, 3, 4], {"perm": [3, 0, 2, 1]}),
    "Squeeze": ("Squeeze", {"a": np.array([2])}, [1, 3, 1], {}),
    "Unsqueeze": ("Unsqueeze", {"a": np.array([0, 3])}, [2, 3], {}),
    "Flatten": ("Flatten", {}, [2, 3, 4], {"axis": 2}),
    "Reshape": ("Reshape", {"s": np.array([0, -1, 2])}, ["n", 3, 4], {}),
    "Pad": ("Pad", {"p": np.array([0, 0, 1, 0, 0, 0, 2, 1])}, [1, 1, 3, 3], {}),
    "Clip": ("Clip", {"low": np.float32(0)}, [1, 4], {}),
    "Conv, uneven": ("Conv", {"w": weights(2, 1, 3, 3)}, [1, 1, 5, 6], {"pads": [0, 1, 2, 0], "strides": [2, 2]}),
    "Conv, groups": ("Conv", {"w": weights(4, 1, 3, 3), "b": weights(4)}, [1, 2, 5, 5], {"group": 2}),
    "Conv, dilated": ("Conv", {"w": weights(4, 2, 3, 3)}, [1, 2, 6, 6], {"dilations": [2, 2], "pads": [1, 1, 1, 1]}),
    "Conv, lower": ("Conv", {"w": weights(2, 1, 2, 2)}, [1, 1, 5, 5], {"auto_pad": "SAME_LOWER"}),
    "Dropout": ("Dropout", {}, [1, 4], {}),
    "Identity": ("Identity", {}, [1, 4], {}),
    "Cast": ("Cast", {}, [1, 4], {"to": TensorProto.FLOAT}),
}  # fmt: skip


@pytest.mark.parametrize("case", ONE)
def test_one_operator(case, tmp_path):
    kind, constants, shape, options = ONE[case]
    path = tmp_path / "one.onnx"
    if case == "MatMul from the left":
        write(path, [helper.make_node(kind, ["w", "x"], ["y"])], {"w": weights(2, 5)}, shape)
    else:
        one_node(path, kind, constants, shape, **options)
    read = read_onnx(path)
    lengths = [1 if length == "n" else length for length in shape]
    image = np.random.default_rng(3).normal(size=lengths).astype(np.float32)
    found = read(torch.from_numpy(image).view(1, *read.input_shape))
    np.testing.assert_allclose(found.numpy().ravel(), runtime(path, image).ravel(), rtol=1e-4, atol=1e-5)


def test_older_versions_and_what_is_computed_from_constants(tmp_path):
    lengths = numpy_helper.from_array(np.array([3, 7, 32, -1]), "lengths")
    nodes = [
        helper.make_node("Pad", ["x"], ["padded"], pads=[0, 0, 0, 1, 0, 0, 1, 1]),
        helper.make_node("Conv", ["padded", "k"], ["c"], strides=[2, 2], pads=[1, 0, 0, 0]),
        helper.make_node("Clip", ["c"], ["r"], min=0.0),
        helper.make_node("Sub", ["r", "c"], ["negative"]),
        helper.make_node("Unsqueeze", ["negative"], ["wide"], axes=[1]),
        helper.make_node("Squeeze", ["wide"], ["narrow"], axes=[1]),
        helper.make_node("Concat", ["narrow", "r"], ["both"], axis=1),
        helper.make_node("Constant", [], ["lengths"], value=lengths),
        helper.make_node("Shape", ["x"], ["whole"]),
        helper.make_node("Gather", ["whole", "zero"], ["one"]),
        helper.make_node("Unsqueeze", ["one"], ["batch"], axes=[0]),
        helper.make_node("Slice", ["lengths"], ["rest"], starts=[3], ends=[4]),
        helper.make_node("Concat", ["batch", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["both", "target"], ["flat"]),
        helper.make_node("Transpose", ["w"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["flat", "turned"], ["y"]),
        helper.make_node("Relu", ["c"], ["unused"]),
    ]
    constants = {"k": weights(2, 1, 3, 3), "w": weights(3, 4 * 9), "zero": np.array(0)}
    path = write(tmp_path / "old.onnx", nodes, constants, ["n", 1, 5, 5], opset=9)
    read, image = read_onnx(path), some_images(1, (1, 5, 5))
    np.testing.assert_allclose(read(image).numpy(), runtime(path, image.numpy()), rtol=1e-4, atol=1e-5)
    kinds = [type(node.operation).__name__ for node in read.graph.nodes]
    assert kinds == ["Convolution", "Rectifier", "Scale", "Sum", "Concat", "Reshape", "Dense"]


REFUSED = {
    "no bounds are known": ("Sigmoid", {}, [1, 4], {}),
    "no ReLU": ("Clip", {"low": np.float32(0), "high": np.float32(6)}, [1, 4], {}),
    "slope 2": ("LeakyRelu", {}, [1, 4], {"alpha": 2.0}),
    "broadcasts data": ("Add", {"c": weights(3, 4)}, [1, 4], {}),
    "not finite": ("Add", {"c": np.array([np.nan], dtype=np.float32)}, [1, 4], {}),
    "division by zero": ("Div", {"c": np.zeros(4, dtype=np.float32)}, [1, 4], {}),
    "else than zeros": ("Pad", {"p": np.array([0, 1, 0, 1]), "v": np.float32(1)}, [1, 4], {}),
    "the shape": ("Relu", {}, [1, "n"], {}),
    "numbers": ("Pad", {"p": np.array([0, 2**30, 0, 2**30])}, [1, 4], {}),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_read_is_said_in_one_line(reason, tmp_path):
    kind, constants, shape, options = REFUSED[reason]
    with pytest.raises(UserError, match=reason) as caught:
        read_onnx(one_node(tmp_path / "one.onnx", kind, constants, shape, **options))
    assert "\n" not in str(caught.value)


def test_products_of_data_and_missing_files_are_refused(tmp_path):
    squared = write(tmp_path / "squared.onnx", [helper.make_node("Mul", ["x", "x"], ["y"])], {}, [1, 4])
    with pytest.raises(UserError, match="a product of data"):
        read_onnx(squared)
    with pytest.raises(UserError, match="cannot read"):
        read_onnx(tmp_path / "nothing.onnx")
    (tmp_path / "text.onnx").write_text("no ONNX at all")
    with pytest.raises(UserError, match="not a valid ONNX file"):
        read_onnx(tmp_path / "text.onnx")


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
    path = write(tmp_path / "valid.onnx", nodes, constants, [1, 1, 4, 4], outputs=[1, 3])
    content, chance = path.read_bytes(), random.Random(0)
    image = some_images(1, (1, 4, 4))
    read, lines, start = 0, set(), time.perf_counter()
    for _ in range(2000):
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
    assert 20 < read < 1980
    assert lines == {0}
    assert time.perf_counter() - start < 40


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


@pytest.mark.parametrize("operation", [Permute((2, 0, 1)), Pad(((0, 1), (2, 0), (1, 3)))])
def test_moving_operations_are_their_own_transpose(operation):
    point = torch.rand(2, 3, 4, 5, dtype=torch.float64)
    image = operation.apply(point)
    rows = torch.rand_like(image)
    (back,), constant = operation.backward(rows, [(3, 4, 5)])
    torch.testing.assert_close((back * point).sum(), (rows * image).sum())
    assert constant == 0
    lower, upper = operation.interval(Interval(point - 1, point))
    assert bool((lower <= upper).all())
    assert Graph((Node("move", operation, (0,)),)).values(point)[-1].shape == image.shape


def test_what_onnx_cannot_say_is_not_written(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_text("before")
    with pytest.raises(UserError):
        export_onnx(nn.Sequential(nn.Linear(4, 2), nn.Sigmoid()), (4,), path)
    broken = nn.Linear(4, 2)
    broken.weight.data.fill_(torch.nan)
    with pytest.raises(UserError):
        export_onnx(broken, (4,), path)
    assert path.read_text() == "before"
