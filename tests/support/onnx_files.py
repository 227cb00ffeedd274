"""ONNX files for the tests, in the style of other tools."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper, shape_inference
from torch import Tensor, nn

from steadynet.graph.graph_network import GraphNetwork
from steadynet.interchange.onnx.reader import read_onnx


def runtime(path: Path, images: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: images})[0]


def weights(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.5, shape).astype(np.float32)


def write(path: Path, nodes: list, constants: dict, shape: list, opset: int = 13, initialised: bool = False) -> Path:
    """Write a file with input x and output y; ``initialised`` lists the weights among the inputs, as old files do."""
    given = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    if initialised:
        inputs += [helper.make_tensor_value_info(entry.name, entry.data_type, entry.dims) for entry in given]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "test", inputs, [output], given)
    ir_version = 10 if opset > 19 else 3 if initialised else 8
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    found = shape_inference.infer_shapes(model, data_prop=True).graph.output[0].type.tensor_type
    lengths = [axis.dim_value or None for axis in found.shape.dim] if found.HasField("shape") else [None, None]
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, lengths))
    path.write_bytes(model.SerializeToString())
    return path


def one_node(path: Path, kind: str, constants: dict, shape: list, opset: int = 13, **options) -> Path:
    return write(path, [helper.make_node(kind, ["x", *constants], ["y"], **options)], constants, shape, opset)


def same_as_runtime(path: Path, shape: list) -> GraphNetwork:
    """Read a network and check that it computes the same as ONNX Runtime on random inputs."""
    read = read_onnx(path)
    lengths = [1 if isinstance(length, str) else length for length in shape]
    images = np.random.default_rng(3).normal(size=(3, *lengths)).astype(np.float32)
    outputs = read(torch.from_numpy(images).view(3, *read.input_shape))
    for image, found in zip(images, outputs, strict=True):
        np.testing.assert_allclose(found.numpy().ravel(), runtime(path, image).ravel(), rtol=1e-4, atol=1e-4)
    return read


def keras(path: Path) -> Path:
    """Write a network in the style of tf2onnx: channels last, with transpositions around the convolution."""
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
    return write(path, nodes, constants, ["n", 6, 6, 1])


class KerasTwin(nn.Module):
    """The network of ``keras`` in PyTorch, with channels last."""

    def forward(self, images: Tensor) -> Tensor:
        kernel, bias, matrix, last = map(torch.tensor, (weights(3, 1, 3, 3), weights(3), weights(27, 4), weights(4)))
        maps = F.conv2d(F.pad(images.permute(0, 3, 1, 2), [0, 1, 0, 1]), kernel, stride=2)
        return F.relu(maps.permute(0, 2, 3, 1) + bias).flatten(1) @ matrix + last
