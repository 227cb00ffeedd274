"""Each ONNX operator, in old and new versions: the same outputs as ONNX Runtime, or an error that names it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from helpers import some_images
from onnx_files import one_node, runtime, same_as_runtime, weights, write
from steadynet.errors import UserError
from steadynet.interchange.onnx.reader import read_onnx

POOL = {"kernel_shape": [3, 3], "strides": [2, 2]}
ONE = {
    "Gemm, turned": ("Gemm", {"w": weights(3, 4), "c": weights(1, 4)}, [3, 1], {"transA": 1, "alpha": 0.5, "beta": 2.}),
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
    "Clip, both": ("Clip", {"low": np.float32(-0.5), "high": np.float32(0.3)}, ["n", 4], {}),
    "Clip, crossed": ("Clip", {"low": np.float32(0.5), "high": np.float32(-0.3)}, ["n", 4], {}),
    "Max": ("Max", {"c": weights(4)}, ["n", 4], {}),
    "Min": ("Min", {"c": weights(4)}, ["n", 4], {}),
    "Neg": ("Neg", {}, [4], {}),
    "Slice": ("Slice", {"a": np.array([1, 0]), "b": np.array([9, 2]), "c": np.array([1, 3])}, ["n", 3, 2, 4], {}),
    "Slice, steps": (
        "Slice", {"a": np.array([-1]), "b": np.array([-99]), "c": np.array([1]), "d": np.array([-2])}, [1, 6], {},
    ),
    "Slice, one row": ("Slice", {"a": np.array([1]), "b": np.array([2])}, [3, 4], {}),
    "Gather": ("Gather", {"i": np.array([[0, -1], [1, 1]])}, ["n", 3, 2], {"axis": 1}),
    "Gather, one": ("Gather", {"i": np.array(1)}, ["n", 3, 2], {"axis": 2}),
    "Gather, the image": ("Gather", {"i": np.array(0)}, [1, 3, 2], {}),
    "Gather, no batch": ("Gather", {"i": np.array(2)}, [5, 3], {}),
    "ReduceSum": ("ReduceSum", {"a": np.array([1])}, ["n", 3, 2], {}),
    "ReduceSum, all": ("ReduceSum", {}, [1, 3, 2], {"keepdims": 0}),
    "ReduceMean, all": ("ReduceMean", {}, [1, 3, 2], {}),
    "MaxPool, uneven": ("MaxPool", {}, [1, 2, 6, 6], POOL | {"auto_pad": "SAME_UPPER"}),
    "MaxPool, up": ("MaxPool", {}, [1, 1, 5, 5], {"kernel_shape": [2, 2], "strides": [2, 2], "ceil_mode": 1}),
    "AveragePool, uneven": ("AveragePool", {}, [1, 2, 6, 6], POOL | {"pads": [0, 0, 1, 1]}),
    "AveragePool, as even": ("AveragePool", {}, [1, 2, 5, 5], POOL | {"pads": [1, 1, 0, 0]}),
    "AveragePool, very uneven": ("AveragePool", {}, [1, 2, 6, 7], {"kernel_shape": [3, 3], "pads": [0, 2, 1, 0]}),
    "AveragePool, counted": ("AveragePool", {}, [1, 1, 4, 4], POOL | {"pads": [1] * 4, "count_include_pad": 1}),
    "AveragePool, uneven, counted": (
        "AveragePool", {}, [1, 1, 6, 6], POOL | {"pads": [0, 0, 1, 1], "count_include_pad": 1},
    ),
    "Conv, uneven": ("Conv", {"w": weights(2, 1, 3, 3)}, [1, 1, 5, 6], {"pads": [0, 1, 2, 0], "strides": [2, 2]}),
    "Conv, groups": ("Conv", {"w": weights(4, 1, 3, 3), "b": weights(4)}, [1, 2, 5, 5], {"group": 2}),
    "Conv, dilated": ("Conv", {"w": weights(4, 2, 3, 3)}, [1, 2, 6, 6], {"dilations": [2, 2], "pads": [1, 1, 1, 1]}),
    "Conv, lower": ("Conv", {"w": weights(2, 1, 2, 2)}, [1, 1, 5, 5], {"auto_pad": "SAME_LOWER"}),
    "Dropout": ("Dropout", {}, [1, 4], {}),
    "Identity": ("Identity", {}, [1, 4], {}),
    "Cast": ("Cast", {}, [1, 4], {"to": TensorProto.FLOAT}),
}  # fmt: skip


OLD = {
    "Clip, attributes": ("Clip", {}, [1, 4], {"min": -0.5, "max": 0.25}, 9),
    "Clip, as PyTorch's relu6": ("Clip", {}, [1, 4], {"min": 0.0, "max": 6.0}, 7),
    "Clip, no bound": ("Clip", {}, [1, 4], {}, 6),
    "Slice, attributes": ("Slice", {}, ["n", 6, 3], {"starts": [1, -2], "ends": [-1, 2**31], "axes": [1, 2]}, 9),
    "Squeeze, attribute": ("Squeeze", {}, [1, 3, 1, 4], {"axes": [2]}, 7),
    "Unsqueeze, attribute": ("Unsqueeze", {}, [1, 3], {"axes": [2]}, 7),
    "ReduceMean, attribute": ("ReduceMean", {}, ["n", 3, 4, 5], {"axes": [2, 3], "keepdims": 0}, 13),
    "ReduceMean, channels last": ("ReduceMean", {}, ["n", 4, 5, 3], {"axes": [1, 2]}, 11),
    "ReduceSum, attribute": ("ReduceSum", {}, [1, 3, 4], {"axes": [1]}, 11),
    "Pad, attribute": ("Pad", {}, [1, 1, 3, 3], {"pads": [0, 0, 1, 1, 0, 0, 1, 1]}, 7),
    "Dropout": ("Dropout", {}, [1, 4], {"ratio": 0.5}, 7),
    "BatchNormalization": (
        "BatchNormalization", {name: abs(weights(3, seed=seed)) for seed, name in enumerate("abcd")}, [1, 3, 2], {}, 7,
    ),
    "Flatten": ("Flatten", {}, ["n", 2, 3], {}, 7),
    "Reshape": ("Reshape", {"s": np.array([1, -1])}, [1, 2, 3], {}, 7),
    "Gather": ("Gather", {"i": np.array([2, 0])}, ["n", 3, 2], {"axis": 1}, 7),
    "Sum": ("Sum", {"c": weights(1, 4)}, [1, 4], {}, 8),
    "Gemm, broadcast": ("Gemm", {"w": weights(3, 4), "c": weights(4)}, ["n", 3], {}, 7),
    "MaxPool": ("MaxPool", {}, [1, 1, 4, 4], {"kernel_shape": [2, 2], "strides": [2, 2]}, 7),
    "AveragePool": ("AveragePool", {}, [1, 1, 5, 5], {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"}, 7),
}  # fmt: skip


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("name", ONE)
def test_one_operator(name, opset, tmp_path):
    kind, constants, shape, options = ONE[name]
    same_as_runtime(one_node(tmp_path / "one.onnx", kind, constants, shape, opset, **options), shape)


@pytest.mark.parametrize("name", OLD)
def test_one_operator_in_an_old_version(name, tmp_path):
    kind, constants, shape, options, opset = OLD[name]
    same_as_runtime(one_node(tmp_path / "one.onnx", kind, constants, shape, opset, **options), shape)


SEVERAL = {
    "MatMul from the left": ([("MatMul", ["w", "x"], {})], {"w": weights(2, 5)}, [5, 1]),
    "Gemm from the left": ([("Gemm", ["w", "x", "c"], {"alpha": 2.0})], {"w": weights(2, 5), "c": weights(1)}, [5, 1]),
    "Gemm from the left, turned": ([("Gemm", ["w", "x"], {"transA": 1, "transB": 1})], {"w": weights(5, 2)}, [1, 5]),
    "constant − data": ([("Sub", ["c", "x"], {})], {"c": weights(4)}, ["n", 4]),
    "Min, constant first": ([("Min", ["c", "x"], {})], {"c": weights(4)}, ["n", 4]),
    "Max of data": ([("Neg", ["x"], {}), ("Max", ["v0", "x"], {})], {}, [1, 4]),
    "Min of data": ([("Mul", ["x", "c"], {}), ("Min", ["v0", "x"], {})], {"c": weights(4)}, [1, 4]),
    "Sum of three": ([("Relu", ["x"], {}), ("Sum", ["v0", "x", "c"], {})], {"c": weights(4)}, ["n", 4]),
    "parts, swapped": (
        [("Slice", ["x", "one", "far", "one"], {}), ("Slice", ["x", "zero", "one", "one"], {}),
         ("Concat", ["v0", "v1"], {"axis": 1})],
        {"zero": np.array([0]), "one": np.array([1]), "far": np.array([2**40])}, ["n", 4],
    ),
    "ConstantOfShape": (
        [("ConstantOfShape", ["s"], {"value": numpy_helper.from_array(np.array([2.5], dtype=np.float32))}),
         ("Add", ["v0", "x"], {})],
        {"s": np.array([3])}, [1, 3],
    ),
    "a cast of constants": (
        [("Cast", ["c"], {"to": TensorProto.FLOAT}), ("Mul", ["x", "v0"], {})], {"c": np.array([1, 2, 3])}, [1, 3],
    ),
    "view(x.size(0), -1)": (
        [("Shape", ["x"], {}), ("Gather", ["v0", "zero"], {"axis": 0}), ("Unsqueeze", ["v1", "axis"], {}),
         ("Concat", ["v2", "rest"], {"axis": 0}), ("Reshape", ["x", "v3"], {})],
        {"zero": np.array(0), "axis": np.array([0]), "rest": np.array([-1])}, ["n", 2, 3],
    ),
    "flatten by ReduceProd": (
        [("Shape", ["x"], {}), ("Slice", ["v0", "one", "far"], {}), ("ReduceProd", ["v1"], {}),
         ("Concat", ["one", "v2"], {"axis": 0}), ("Reshape", ["x", "v3"], {})],
        {"one": np.array([1]), "far": np.array([9])}, ["n", 2, 3],
    ),
    "batch norm by hand": (
        [("Add", ["v", "e"], {}), ("Sqrt", ["v0"], {}), ("Div", ["x", "v1"], {})],
        {"v": abs(weights(3)), "e": np.float32(1e-3)}, ["n", 2, 2, 3],
    ),
    "MaxPool, uneven, of what is never negative": (
        [("Relu", ["x"], {}), ("MaxPool", ["v0"], {"kernel_shape": [2, 2], "auto_pad": "SAME_UPPER"})],
        {}, [1, 1, 4, 4],
    ),
    "a first row without a batch": (
        [("Slice", ["x", "zero", "one"], {}), ("Mul", ["v0", "c"], {}), ("Concat", ["v1", "x"], {"axis": 0})],
        {"zero": np.array([0]), "one": np.array([1]), "c": weights(1, 2)}, [3, 2],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SEVERAL)
def test_several_operators(name, tmp_path):
    parts, constants, shape = SEVERAL[name]
    names = [*(f"v{number}" for number in range(len(parts) - 1)), "y"]
    nodes = [
        helper.make_node(kind, given, [name], **more) for (kind, given, more), name in zip(parts, names, strict=True)
    ]
    same_as_runtime(write(tmp_path / "several.onnx", nodes, constants, shape), shape)


def test_every_part_of_a_split_is_known(tmp_path):
    for opset, options in ((11, {"split": [2, 2, 1]}), (18, {"num_outputs": 3})):
        nodes = [
            helper.make_node("Split", ["x"], ["a", "b", "c"], axis=1, **options),
            helper.make_node("Concat", ["c", "a", "b"], ["y"], axis=1),
        ]
        same_as_runtime(write(tmp_path / "split.onnx", nodes, {}, ["n", 5], opset), ["n", 5])


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
    assert kinds == ["Convolution", "ReLU", "Scale", "Sum", "Concat", "Reshape", "Dense"]


REFUSED = {
    "no bounds are known": ("Softplus", {}, [1, 4], {}),
    "at Elu": ("Elu", {}, [1, 4], {}),
    "at Softmax": ("Softmax", {}, [1, 4], {}),
    "along the batch axis": ("Gather", {"i": np.array([0, 0])}, ["n", 4], {}),
    "outside an axis": ("Gather", {"i": np.array([4])}, ["n", 4], {"axis": 1}),
    "Clip to infinity": ("Clip", {"low": np.float32(np.inf)}, [1, 4], {}),
    "slice along axes": ("Slice", {"a": np.array([1]), "b": np.array([2]), "c": np.array([0, 1])}, [2, 4], {}),
    "a split of 4 into": ("Split", {"s": np.array([1, 3])}, [1, 4], {"axis": 1}),
    "a result of shape": ("Slice", {"a": np.array([3]), "b": np.array([3]), "c": np.array([1])}, [1, 4], {}),
    "slope 2": ("LeakyRelu", {}, [1, 4], {"alpha": 2.0}),
    "broadcasts data": ("Add", {"c": weights(3, 4)}, [1, 4], {}),
    "not finite": ("Add", {"c": np.array([np.nan], dtype=np.float32)}, [1, 4], {}),
    "division by zero": ("Div", {"c": np.zeros(4, dtype=np.float32)}, [1, 4], {}),
    "other than zeros": ("Pad", {"p": np.array([0, 1, 0, 1]), "v": np.float32(1)}, [1, 4], {}),
    "the shape": ("Relu", {}, [1, "n"], {}),
    "numbers": ("Pad", {"p": np.array([0, 2**30, 0, 2**30])}, [1, 4], {}),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_read_is_said_in_one_line(reason, tmp_path):
    kind, constants, shape, options = REFUSED[reason]
    with pytest.raises(UserError, match=reason) as caught:
        read_onnx(one_node(tmp_path / "one.onnx", kind, constants, shape, **options))
    assert "\n" not in str(caught.value)
