"""ONNX tensors without axes: read as what they are and verified, or refused in one line."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from onnx_files import same_as_runtime, write
from steadynet.attacks.region import InputRegion
from steadynet.bounds import crown_bounds, interval_bounds
from steadynet.errors import UserError
from steadynet.interchange.onnx.reader import read_onnx
from steadynet.verification.properties import Verdict
from steadynet.verification.vnncomp import Instance, decide


def node(kind: str, *names: str, **options) -> onnx.NodeProto:
    *inputs, output = names
    return helper.make_node(kind, inputs, [output], **options)


FIRST = node("Gather", "x", "zero", "s", axis=0)  # the first of four numbers, without an axis
TOTAL = node("ReduceSum", "x", "s", keepdims=1)
DENSE = node("MatMul", "x", "column", "s")
READ = {
    "an output": [FIRST, node("Relu", "s", "y")],
    "an axis again": [
        FIRST, node("Add", "s", "half", "t"), node("Relu", "t", "u"), node("Unsqueeze", "u", "axis", "y"),
    ],
    "a sum of all": [node("ReduceSum", "x", "y", keepdims=0)],
    "a mean of all, scaled": [node("ReduceMean", "x", "s", keepdims=0), node("Mul", "s", "half", "y")],
    "squeezed": [TOTAL, node("Squeeze", "s", "t"), node("Add", "t", "half", "y")],
    "a dense layer and a bias": [
        DENSE, node("Squeeze", "s", "t"), node("Add", "t", "half", "u"), node("Relu", "u", "y"),
    ],
    "reshaped": [TOTAL, node("Reshape", "s", "nothing", "t"), node("Neg", "t", "y")],
    "two of them": [
        FIRST, node("Gather", "x", "one", "t", axis=0), node("Add", "s", "t", "u"), node("Max", "u", "s", "y"),
    ],
    "clipped": [FIRST, node("Clip", "s", "zero_number", "half", "y")],
    "transposed": [FIRST, node("Transpose", "s", "y")],
    "flattened": [FIRST, node("Flatten", "s", "y", axis=0)],
    "reduced": [FIRST, node("ReduceSum", "s", "y", keepdims=0)],
    "its shape": [FIRST, node("Shape", "s", "lengths"), node("Reshape", "s", "lengths", "y")],
    "leaky": [FIRST, node("LeakyRelu", "s", "y")],
}  # fmt: skip
REFUSED = {
    "padded": [FIRST, node("Pad", "s", "nothing", "y")],  # by ONNX Runtime
    "broadcast over data": [FIRST, node("Sub", "x", "s", "y")],
    "broadcast over constants": [DENSE, node("Squeeze", "s", "t"), node("Mul", "t", "two", "y")],
    "multiplied by a matrix": [FIRST, node("MatMul", "s", "matrix", "y")],
    "Gemm": [FIRST, node("Gemm", "s", "matrix", "y")],
    "sliced": [FIRST, node("Slice", "s", "axis", "axis", "y")],
    "gathered from": [FIRST, node("Gather", "s", "zero", "y")],
    "joined": [FIRST, node("Concat", "s", "s", "y", axis=0)],
    "split": [FIRST, node("Split", "s", "y")],
    "normalised": [FIRST, node("BatchNormalization", "s", "ones", "ones", "ones", "ones", "y")],
    "convolved": [FIRST, node("Conv", "s", "kernel", "y")],
    "pooled": [FIRST, node("GlobalAveragePool", "s", "y")],
}
GIVEN = {
    "zero": np.array(0), "one": np.array(1), "axis": np.array([0]), "nothing": np.array([], dtype=np.int64),
    "half": np.float32(0.5), "zero_number": np.float32(0), "two": np.ones(2, np.float32),
    "column": np.array([[1], [-2], [0.5], [1]], np.float32), "matrix": np.ones((1, 1), np.float32),
    "ones": np.ones(1, np.float32), "kernel": np.ones((1, 1, 1, 1), np.float32),
}  # fmt: skip


def written(path, nodes):
    used = {name for entry in nodes for name in entry.input}
    return write(path, nodes, {name: value for name, value in GIVEN.items() if name in used}, [4])


@pytest.mark.parametrize("name", READ)
def test_single_numbers_are_read_and_verified(name, tmp_path):
    path = written(tmp_path / "model.onnx", READ[name])
    network = same_as_runtime(path, [4])
    images = torch.rand(3, 4, generator=torch.Generator().manual_seed(0))
    for method in (interval_bounds, crown_bounds):
        bounds = method(network, InputRegion.around(images, 0.1)).output
        assert bool(((bounds.lower <= network(images)) & (network(images) <= bounds.upper)).all())
    lines = [f"(declare-const X_{index} Real)" for index in range(4)] + ["(declare-const Y_0 Real)"]
    lines += [f"(assert (>= X_{index} 0.2)) (assert (<= X_{index} 0.4))" for index in range(4)]
    for constraint, verdict in (("(>= Y_0 100)", Verdict.UNSAT), ("(<= Y_0 100)", Verdict.SAT)):
        (tmp_path / "p.vnnlib").write_text("\n".join([*lines, f"(assert {constraint})"]))
        assert decide(Instance(path, tmp_path / "p.vnnlib", 20)).verdict is verdict


@pytest.mark.parametrize("name", REFUSED)
def test_what_a_single_number_cannot_be_used_for_is_one_line(name, tmp_path):
    with pytest.raises(UserError, match="cannot be read: ") as caught:
        read_onnx(written(tmp_path / "model.onnx", REFUSED[name]))
    assert "\n" not in str(caught.value)
    assert "index" not in str(caught.value).lower()
