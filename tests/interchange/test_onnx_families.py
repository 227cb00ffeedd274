"""Small networks in the style of each VNN-COMP benchmark: they are read, and their bounds are sound."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper

from onnx_files import same_as_runtime, weights, write
from steadynet import Verdict, verify
from steadynet.attacks.region import InputRegion
from steadynet.bounds import crown_bounds, interval_bounds
from steadynet.errors import UserError
from steadynet.interchange.onnx.reader import read_onnx


class Layers:
    """A chain of nodes: each takes the result of the one before."""

    def __init__(self) -> None:
        self.nodes, self.constants, self.last = [], {}, "x"

    def add(self, kind: str, *constants: np.ndarray, also: str = "", first: bool = False, **options) -> str:
        names = []
        for value in constants:
            names.append(f"c{len(self.constants)}")
            self.constants[names[-1]] = value
        given = [*names, self.last] if first else [self.last, *([also] if also else []), *names]
        self.last = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, given, [self.last], **options))
        return self.last

    def write(self, path: Path, shape: list, opset: int, **options) -> Path:
        self.nodes.append(helper.make_node("Identity", [self.last], ["y"]))
        return write(path, self.nodes, self.constants, shape, opset, **options)


def acasxu(layers: Layers) -> None:
    layers.add("Sub", weights(1, 1, 1, 5))
    layers.add("Flatten", axis=1)
    for before, after in ((5, 6), (6, 6)):
        layers.add("MatMul", weights(before, after))
        layers.add("Add", weights(after))
        layers.add("Relu")
    layers.add("MatMul", weights(6, 5))
    layers.add("Add", weights(5))


def mnist_fc(layers: Layers) -> None:
    for before, after in ((9, 6), (6, 4)):
        layers.add("MatMul", weights(after, before), first=True)
        layers.add("Add", weights(after, 1))
        layers.add("Relu")
    layers.add("MatMul", weights(3, 4), first=True)
    layers.add("Add", weights(3, 1))


def resnet(layers: Layers) -> None:
    layers.add("Sub", weights(1, 3, 1, 1))
    layers.add("Div", abs(weights(1, 3, 1, 1)) + 0.2)
    layers.add("Conv", weights(4, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1], kernel_shape=[3, 3])
    start = layers.add("Relu")
    layers.add("Conv", weights(4, 4, 3, 3), pads=[1, 1, 1, 1])
    layers.add("BatchNormalization", *(abs(weights(4, seed=seed)) for seed in range(4)), epsilon=1e-5)
    layers.add("Relu")
    inner = layers.add("Conv", weights(4, 4, 3, 3, seed=1), weights(4), pads=[1, 1, 1, 1])
    layers.last = start
    layers.add("Conv", weights(4, 4, 1, 1))
    layers.add("Add", also=inner)
    layers.add("Relu")
    layers.add("GlobalAveragePool")
    layers.add("Flatten", axis=1)
    layers.add("Gemm", weights(5, 4), weights(5), transB=1, alpha=1.0, beta=1.0)


def oval21(layers: Layers) -> None:
    layers.add("Conv", weights(4, 3, 4, 4), weights(4), strides=[2, 2], pads=[1, 1, 1, 1], dilations=[1, 1], group=1)
    layers.add("Relu")
    layers.add("Flatten", axis=1)
    layers.add("Gemm", weights(5, 64), weights(5), transB=1)
    layers.add("Relu")
    layers.add("Gemm", weights(5, 5), weights(5), transB=1)


def marabou_cifar10(layers: Layers) -> None:
    layers.add("Transpose", perm=[0, 3, 1, 2])
    layers.add("Conv", weights(4, 3, 3, 3), weights(4), strides=[2, 2], pads=[0, 0, 1, 1])
    layers.add("Relu")
    layers.add("Transpose", perm=[0, 2, 3, 1])
    layers.add("Reshape", np.array([-1, 64]))
    layers.add("MatMul", weights(64, 5))
    layers.add("Add", weights(5))


def verivital(layers: Layers, pool: str) -> None:
    layers.add("Sub", weights(1, 1, 8, 8))
    layers.add("Conv", weights(3, 1, 3, 3), weights(3), pads=[1, 1, 1, 1])
    layers.add("BatchNormalization", *(abs(weights(3, seed=seed)) for seed in range(4)))
    layers.add("Relu")
    layers.add(pool, kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 0, 0])
    layers.add("Conv", weights(5, 3, 4, 4), weights(5))  # a dense layer, as MATLAB writes it
    layers.add("Flatten", axis=1)


def collins_rul_cnn(layers: Layers) -> None:
    for inner in (1, 3, 3):
        layers.add("Conv", weights(3, inner, 5, 1), weights(3), pads=[2, 0, 2, 0], kernel_shape=[5, 1])
        layers.add("Relu")
    layers.add("Dropout")
    layers.add("Flatten", axis=1)
    layers.add("Gemm", weights(6, 192), weights(6), transB=1)
    layers.add("Relu")
    layers.add("Gemm", weights(1, 6), weights(1), transB=1)


def cifar_biasfield(layers: Layers) -> None:
    layers.add("Gemm", weights(192, 16), weights(192), transB=1)
    layers.add("Reshape", np.array([-1, 3, 8, 8]))
    layers.add("Clip", np.float32(0), np.float32(1))
    oval21(layers)


def tllverify(layers: Layers) -> None:
    layers.add("Gemm", weights(2, 6), weights(6))
    layers.add("Gather", np.array([[0, 1], [2, 3], [4, 5]]), axis=1)  # (n, 3, 2): minima of pairs
    layers.add("MatMul", weights(2, 3))
    layers.add("Relu")
    layers.add("MatMul", weights(3, 1))
    layers.add("Flatten", axis=1)
    layers.add("MatMul", weights(3, 1))


def rl_benchmarks(layers: Layers) -> None:
    layers.add("Mul", weights(4))
    for _ in range(2):
        layers.add("Gemm", weights(4, 4), weights(4), transB=1)
        layers.add("Relu")
    layers.add("Gemm", weights(2, 4), weights(2), transB=1)


def keras(layers: Layers) -> None:
    layers.add("Reshape", np.array([-1, 8, 8, 1]))
    layers.add("Transpose", perm=[0, 3, 1, 2])
    layers.add("Conv", weights(3, 1, 3, 3), weights(3), auto_pad="SAME_UPPER", strides=[2, 2])
    layers.add("Clip", np.float32(0), np.float32(6))
    layers.add("MaxPool", kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_UPPER")
    layers.add("Transpose", perm=[0, 2, 3, 1])
    layers.add("ReduceMean", axes=[1, 2], keepdims=0)
    layers.add("MatMul", weights(3, 4))
    layers.add("Add", weights(4))


FAMILIES = {
    "acasxu": (acasxu, [1, 1, 1, 5], 8),
    "mnist_fc": (mnist_fc, [9, 1], 9),
    "cifar10_resnet": (resnet, ["n", 3, 8, 8], 12),
    "sri_resnet": (resnet, [1, 3, 8, 8], 9),
    "oval21": (oval21, [1, 3, 8, 8], 9),
    "cifar2020": (oval21, ["n", 3, 8, 8], 10),
    "marabou-cifar10": (marabou_cifar10, ["n", 8, 8, 3], 7),
    "verivital, average": (lambda layers: verivital(layers, "AveragePool"), [1, 1, 8, 8], 8),
    "verivital, maximum": (lambda layers: verivital(layers, "MaxPool"), [1, 1, 8, 8], 8),
    "collins_rul_cnn": (collins_rul_cnn, ["n", 1, 8, 8], 11),
    "cifar_biasfield": (cifar_biasfield, [1, 16], 12),
    "tllverify": (tllverify, ["n", 2], 11),
    "rl_benchmarks": (rl_benchmarks, ["n", 4], 9),
    "keras": (keras, ["n", 8, 8, 1], 13),
}


@pytest.mark.parametrize("old", [False, True], ids=["", "weights among the inputs"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_read_and_bounded(family, old, tmp_path):
    build, shape, opset = FAMILIES[family]
    build(layers := Layers())
    read = same_as_runtime(layers.write(tmp_path / "one.onnx", shape, opset, initialised=old), shape)
    torch.manual_seed(0)
    region = InputRegion.around(torch.rand(2, *read.input_shape), 0.1)
    for method in (interval_bounds, crown_bounds):
        bounds = method(read, region).output
        for _ in range(20):
            outputs = read(region.sample())
            assert bool(((bounds.lower <= outputs + 1e-4) & (outputs <= bounds.upper + 1e-4)).all())


@pytest.mark.parametrize("kind", ["Softplus", "Softsign", "Softmax", "Erf", "Pow"])
def test_what_is_out_of_scope_is_named(kind, tmp_path):
    layers = Layers()
    layers.add("Gemm", weights(4, 4), weights(4), name="first")
    layers.add(kind, *([np.float32(2)] if kind == "Pow" else []), name="the layer")
    hint = ": if it is the last layer, leave it out" if kind == "Softmax" else "$"
    with pytest.raises(UserError, match=rf"no bounds are known for this operator, at {kind} \('the layer'\){hint}"):
        read_onnx(layers.write(tmp_path / "one.onnx", ["n", 4], 13))


@pytest.mark.parametrize("seed", range(4))
def test_clipping_and_choosing_are_decided_as_by_the_exact_program(seed, tmp_path):
    layers = Layers()
    layers.add("Gemm", 2 * weights(3, 6, seed=seed), weights(6, seed=seed + 9))
    layers.add("Clip", np.float32(-0.2), np.float32(0.6))
    layers.add("Gather", np.array([5, 1, 1, 0]), axis=1)
    layers.add("Max", weights(4, seed=seed + 20))
    layers.add("Gemm", weights(4, 3, seed=seed + 30))
    read = read_onnx(layers.write(tmp_path / "one.onnx", ["n", 3], 13))
    images = torch.rand(3, 3, generator=torch.Generator().manual_seed(seed))
    labels = read(images).argmax(1)
    for eps in (0.02, 0.15, 0.5):
        ours, exact = (
            [result.verdict for result in verify(read, images, labels, eps, name, timeout=20)]
            for name in ("branch_and_bound", "milp")
        )
        assert ours == exact
        assert set(ours) <= {Verdict.UNSAT, Verdict.SAT}
