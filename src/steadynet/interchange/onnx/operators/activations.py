"""ONNX operators that are not linear: ReLU, leaky ReLU, sigmoid, tanh, clipping, maximum and minimum of two tensors."""

from __future__ import annotations

import math

import numpy as np
import torch

from steadynet.graph.clipping import clipping
from steadynet.graph.operations import ReLU, Scale
from steadynet.graph.s_shaped import SShaped
from steadynet.interchange.onnx.files import UnsupportedError
from steadynet.interchange.onnx.graph_builder import GraphBuilder, GraphValue
from steadynet.interchange.onnx.node import OnnxNode
from steadynet.interchange.onnx.operators.arithmetic import add_values

_NO_LIMIT = 3.4e38  # old files write the largest float32 number where there is no limit


def relu(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Relu."""
    return _relu(builder, node.value())


def leaky_relu(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """LeakyRelu."""
    slope = node.attributes.number("alpha", float(np.float32(0.01)))  # attributes are float32, in float64 files, too
    if not 0 <= slope <= 1:
        raise UnsupportedError(f"LeakyRelu with slope {slope}, which is not between 0 and 1")
    return builder.add(ReLU(slope), node.value().shape, node.value())


def s_shaped(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Sigmoid and Tanh."""
    function = SShaped("sigmoid" if node.op_type == "Sigmoid" else "tanh")
    return builder.add(function, node.value().shape, node.value())


def clip(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Clip to limits that are attributes (before opset 11) or inputs."""
    lower, upper = node.constant(1), node.constant(2)
    least = node.attributes.number("min", -math.inf if lower is None else float(lower.reshape(())))
    most = node.attributes.number("max", math.inf if upper is None else float(upper.reshape(())))
    if math.isnan(least) or math.isnan(most) or node.rounded(1, 2):
        raise UnsupportedError("Clip to limits that are not numbers, or are rounded when they are computed")
    least, most = (-math.inf if least <= -_NO_LIMIT else least), (math.inf if most >= _NO_LIMIT else most)
    if math.inf in (least, -most):
        raise UnsupportedError("Clip to infinity")
    result = node.value()
    for operation in clipping(least, most, torch.zeros((), dtype=builder.dtype)):
        if isinstance(operation, Scale):
            result = builder.scale(result, operation)
        else:
            result = builder.add(operation, result.shape, result)
    return result


def maximum(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Max and Min of two tensors: max(a, b) = b + relu(a − b), and min(a, b) = −max(−a, −b). One may be constant."""
    if len(node.inputs) != 2:
        raise UnsupportedError(f"{node.op_type} of {len(node.inputs)} tensors, not of two")
    sign = 1.0 if node.op_type == "Max" else -1.0
    one, other = node.inputs if isinstance(node.input(0), GraphValue) else reversed(node.inputs)
    if not isinstance(one, GraphValue) or other is None:
        raise UnsupportedError("a missing input")
    if isinstance(other, GraphValue):
        difference = add_values(builder, builder.multiply(one, sign), builder.multiply(other, -sign))
        return add_values(builder, builder.multiply(_relu(builder, difference), sign), other)
    constant, roundings = node.tensor(other), node.rounded(0, 1)
    difference = builder.shift(builder.multiply(one, sign), -sign * constant, roundings)
    return builder.shift(builder.multiply(_relu(builder, difference), sign), constant, roundings)


def _relu(builder: GraphBuilder, source: GraphValue) -> GraphValue:
    return builder.add(ReLU(), source.shape, source)
