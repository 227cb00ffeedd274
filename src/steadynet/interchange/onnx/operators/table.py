"""The table of the ONNX operators that can be read: what each of them becomes in the graph."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import torch

from steadynet.interchange.onnx.files import UnsupportedError
from steadynet.interchange.onnx.graph_builder import GraphBuilder, GraphValue
from steadynet.interchange.onnx.node import OnnxNode
from steadynet.interchange.onnx.operators import activations, arithmetic, convolution_and_pooling, shapes


def _identity(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    return node.value()


def _dropout(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    training = node.constant(2)
    if training is not None and bool(training.any()):
        raise UnsupportedError("Dropout in training mode")
    return node.value()


def _cast(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    kinds = {torch.float32: onnx.TensorProto.FLOAT, torch.float64: onnx.TensorProto.DOUBLE}
    if node.attributes.integer("to", onnx.TensorProto.UNDEFINED) != kinds[node.dtype]:
        raise UnsupportedError("a cast of data to another type than that of the network's input")
    return node.value()


# ONNX operator -> the function that adds it to the graph and returns its result; Split has several results
OPERATORS: dict[str, Callable[[OnnxNode, GraphBuilder], GraphValue | list[GraphValue]]] = {
    "Add": arithmetic.add,
    "AveragePool": convolution_and_pooling.average_pool,
    "BatchNormalization": arithmetic.batch_norm,
    "Cast": _cast,
    "Clip": activations.clip,
    "Concat": shapes.concatenate,
    "Conv": convolution_and_pooling.convolution,
    "Div": arithmetic.divide,
    "Dropout": _dropout,
    "Flatten": shapes.flatten,
    "Gather": shapes.gather,
    "Gemm": arithmetic.gemm,
    "GlobalAveragePool": convolution_and_pooling.global_average_pool,
    "Identity": _identity,
    "LeakyRelu": activations.leaky_relu,
    "MatMul": arithmetic.multiply_matrices,
    "Max": activations.maximum,
    "MaxPool": convolution_and_pooling.max_pool,
    "Min": activations.maximum,
    "Mul": arithmetic.multiply,
    "Neg": arithmetic.negate,
    "Pad": shapes.pad,
    "ReduceMean": arithmetic.reduce_axes,
    "ReduceSum": arithmetic.reduce_axes,
    "Relu": activations.relu,
    "Reshape": shapes.reshape,
    "Sigmoid": activations.s_shaped,
    "Slice": shapes.slice_axes,
    "Split": shapes.split,
    "Squeeze": shapes.squeeze,
    "Sub": arithmetic.subtract,
    "Sum": arithmetic.add_all,
    "Tanh": activations.s_shaped,
    "Transpose": shapes.transpose,
    "Unsqueeze": shapes.unsqueeze,
}
