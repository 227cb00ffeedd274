"""ONNX operators that compute linear functions: sums, products with constants, matrix products, batch norm, means."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from steadynet.graph.operations import Dense, Sum
from steadynet.interchange.onnx.files import UnsupportedError
from steadynet.interchange.onnx.graph_builder import GraphBuilder, GraphValue
from steadynet.interchange.onnx.node import OnnxNode, float_tensor, non_negative_axis


def add(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Add."""
    left, right = node.input(0), node.input(1)
    if isinstance(left, GraphValue) and isinstance(right, GraphValue):
        return add_values(builder, left, right)
    source, constant = (left, node.weights(1)) if isinstance(left, GraphValue) else (node.value(1), node.weights(0))
    return builder.scale(source, shift=constant)


def subtract(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Sub."""
    left, right = node.input(0), node.input(1)
    if isinstance(left, GraphValue) and isinstance(right, GraphValue):
        return add_values(builder, left, builder.scale(right, -1.0))
    if isinstance(left, GraphValue):
        return builder.scale(left, shift=-node.weights(1))
    return builder.scale(node.value(1), -1.0, node.weights(0))


def add_values(builder: GraphBuilder, left: GraphValue, right: GraphValue) -> GraphValue:
    """Add two values of the graph, of the same shape except for axes of length 1."""
    shape = tuple(torch.broadcast_shapes(left.shape, right.shape))
    if not math.prod(shape) == math.prod(left.shape) == math.prod(right.shape):
        raise UnsupportedError("arithmetic that broadcasts data")
    return builder.add(Sum(), shape, builder.reshape(left, shape), builder.reshape(right, shape))


def add_all(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Sum: any number of tensors. The values of the graph are added first, then the constants."""
    result, *others = [part for part in node.inputs if isinstance(part, GraphValue)]
    for other in others:
        result = add_values(builder, result, other)
    for constant in (part for part in node.inputs if not isinstance(part, GraphValue) and part is not None):
        result = builder.scale(result, shift=float_tensor(constant))
    return result


def multiply(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Mul: a value and a constant."""
    left, right = node.input(0), node.input(1)
    if isinstance(left, GraphValue) and isinstance(right, GraphValue):
        raise UnsupportedError("a product of data")
    source, factor = (left, node.weights(1)) if isinstance(left, GraphValue) else (node.value(1), node.weights(0))
    return builder.scale(source, factor)


def divide(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Div: a value by a constant."""
    factor = 1 / node.weights(1)
    if not bool(factor.isfinite().all()):
        raise UnsupportedError("a division by zero")
    return builder.scale(node.value(0), factor)


def negate(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Neg."""
    return builder.scale(node.value(), -1.0)


def gemm(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Gemm: alpha · A · B + beta · C, where A or B is constant, and C is constant."""
    data_first = isinstance(node.input(0), GraphValue)  # data · weight; otherwise weight · data
    source, weight = (node.value(0), node.weights(1)) if data_first else (node.value(1), node.weights(0))
    if len(source.shape) != 2 or weight.dim() != 2:
        raise UnsupportedError("Gemm of tensors that are not matrices")
    source_flag, weight_flag = ("transA", "transB") if data_first else ("transB", "transA")
    # A dense layer computes x · weightᵀ for rows x. So data · weight needs the weight transposed, and weight · data,
    # which is (dataᵀ · weightᵀ)ᵀ, needs the data and the result transposed.
    source = builder.permute(source, [1, 0]) if node.attributes.flag(source_flag) == data_first else source
    weight = weight if node.attributes.flag(weight_flag) == data_first else weight.t()
    weight = weight * node.attributes.number("alpha", 1.0)
    result = dense(builder, source, weight.contiguous())
    result = result if data_first else builder.permute(result, [1, 0])
    if node.input(2) is None:
        return result
    return builder.scale(result, shift=node.weights(2) * node.attributes.number("beta", 1.0))


def multiply_matrices(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """MatMul: a value and a constant matrix, in either order."""
    left = node.input(0)
    source, weight = (left, node.weights(1)) if isinstance(left, GraphValue) else (node.value(1), node.weights(0))
    if weight.dim() != 2:
        raise UnsupportedError("MatMul with a constant that is not a matrix")
    if isinstance(left, GraphValue):
        return dense(builder, source, weight.t().contiguous())
    axes = list(range(len(source.shape)))
    if len(axes) == 1:
        return dense(builder, source, weight)
    last_two_swapped = [*axes[:-2], axes[-1], axes[-2]]
    product = dense(builder, builder.permute(source, last_two_swapped), weight)
    return builder.permute(product, last_two_swapped)


def dense(builder: GraphBuilder, source: GraphValue, weight: Tensor) -> GraphValue:
    """Add a dense layer without bias on the last axis; the weight has shape (outputs, inputs)."""
    if not source.shape or source.shape[-1] != weight.shape[1]:
        raise UnsupportedError(f"a matrix of shape {tuple(weight.shape)} on data of shape {source.shape}")
    return builder.add(Dense(weight, None), (*source.shape[:-1], weight.shape[0]), source)


def batch_norm(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """BatchNormalization in evaluation mode: one factor and one shift per channel."""
    source = node.value()
    if node.attributes.flag("training_mode") or not node.attributes.flag("spatial", True):
        raise UnsupportedError("BatchNormalization that is not in evaluation mode, or not per channel")
    scale, bias, mean, variance = (node.weights(index) for index in (1, 2, 3, 4))
    factor = scale / torch.sqrt(variance + node.attributes.number("epsilon", 1e-5))
    shift = bias - mean * factor
    if len(source.shape) < 2 or not bool((factor.isfinite() & shift.isfinite()).all()):
        raise UnsupportedError("BatchNormalization without channels, or with a variance of 0")
    per_channel = (-1, *[1] * (len(source.shape) - 2))
    return builder.scale(source, factor.view(per_channel), shift.view(per_channel))


def reduce_axes(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """ReduceSum and ReduceMean: a dense layer with equal weights on the axes that are removed."""
    source, axes = node.value(), node.integers("axes", 1)
    rank = len(source.shape)
    if not axes and node.attributes.flag("noop_with_empty_axes"):
        return source
    removed = sorted({non_negative_axis(axis, rank) for axis in axes} if axes else range(rank))
    kept = [axis for axis in range(rank) if axis not in removed]
    length = math.prod(source.shape[axis] for axis in removed)
    moved = builder.permute(source, [*kept, *removed])
    moved = builder.reshape(moved, (*(source.shape[axis] for axis in kept), length))
    total = dense(builder, moved, torch.full((1, length), 1 / length if node.op_type == "ReduceMean" else 1.0))
    keep = node.attributes.flag("keepdims", True)
    shape = [1 if axis in removed else source.shape[axis] for axis in range(rank) if keep or axis not in removed]
    return builder.reshape(total, tuple(shape))
