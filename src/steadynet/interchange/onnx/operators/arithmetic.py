"""ONNX operators that compute linear functions: sums, products with constants, matrix products, batch norm, means."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from steadynet.graph.batch_norm import batch_norm_scale
from steadynet.graph.operations import Dense, Sum
from steadynet.interchange.onnx.files import UnsupportedError
from steadynet.interchange.onnx.graph_builder import GraphBuilder, GraphValue
from steadynet.interchange.onnx.node import OnnxNode, check_digits, non_negative_axis, scaled


def add(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Add."""
    left, right = node.input(0), node.input(1)
    if isinstance(left, GraphValue) and isinstance(right, GraphValue):
        return add_values(builder, left, right)
    source, constant = (left, 1) if isinstance(left, GraphValue) else (node.value(1), 0)
    return builder.shift(source, node.weights(constant), node.rounded(constant))


def subtract(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Sub."""
    left, right = node.input(0), node.input(1)
    if isinstance(left, GraphValue) and isinstance(right, GraphValue):
        return add_values(builder, left, builder.multiply(right, -1.0))
    if isinstance(left, GraphValue):
        return builder.shift(left, -node.weights(1), node.rounded(1))
    return builder.shift(builder.multiply(node.value(1), -1.0), node.weights(0), node.rounded(0))


def add_values(builder: GraphBuilder, left: GraphValue, right: GraphValue, terms: int = 1) -> GraphValue:
    """Add two values of the graph, of the same shape except for axes of length 1.

    ``terms`` is how many additions the sum has that this one is a part of.
    """
    shape = np.broadcast_shapes(left.shape, right.shape)
    if not math.prod(shape) == math.prod(left.shape) == math.prod(right.shape):
        raise UnsupportedError("arithmetic that broadcasts data")
    return builder.add(Sum(terms), shape, builder.reshape(left, shape), builder.reshape(right, shape))


def add_all(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Sum: any number of tensors. ONNX leaves their order open, so each addition has the roundings of the whole sum.

    With n − 1 roundings for each of the n − 1 additions, the errors |v₁| + |v₂|, |v₁ + v₂| + |v₃|, … add up to at least
    what any order may lose: n − 1 roundings of |v₁| + … + |vₙ|.
    """
    first = next(index for index, part in enumerate(node.inputs) if isinstance(part, GraphValue))
    if first > 1:
        raise UnsupportedError("a sum that begins with several constants")
    result, terms = node.value(first), max(1, sum(part is not None for part in node.inputs) - 1)
    for index, part in enumerate(node.inputs):
        if isinstance(part, GraphValue):
            result = result if index == first else add_values(builder, result, part, terms)
        elif part is not None:
            result = builder.shift(result, node.tensor(part), node.rounded(index) + terms - 1)
    return result


def multiply(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Mul: a value and a constant."""
    left, right = node.input(0), node.input(1)
    if isinstance(left, GraphValue) and isinstance(right, GraphValue):
        raise UnsupportedError("a product of data")
    source, factor = (left, 1) if isinstance(left, GraphValue) else (node.value(1), 0)
    return builder.multiply(source, node.weights(factor), node.rounded(factor))


def divide(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Div: a value by a constant."""
    divisor = node.weights(1)
    if not bool(divisor.all()):
        raise UnsupportedError("a division by zero")
    factor = 1 / divisor
    check_digits(factor)
    return builder.multiply(node.value(0), factor, node.rounded(1) + int(not _powers_of_two(divisor)))


def negate(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Neg."""
    return builder.multiply(node.value(), -1.0)


def gemm(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """Gemm: alpha · A · B + beta · C, where A or B is constant, and C is constant."""
    data_first = isinstance(node.input(0), GraphValue)  # data · weight; otherwise weight · data
    source, constant = (node.value(0), 1) if data_first else (node.value(1), 0)
    weight = node.weights(constant)
    if len(source.shape) != 2 or weight.dim() != 2:
        raise UnsupportedError("Gemm of tensors that are not matrices")
    source_flag, weight_flag = ("transA", "transB") if data_first else ("transB", "transA")
    # A dense layer computes x · weightᵀ for rows x. So data · weight needs the weight transposed, and weight · data,
    # which is (dataᵀ · weightᵀ)ᵀ, needs the data and the result transposed.
    source = builder.permute(source, [1, 0]) if node.attributes.flag(source_flag) == data_first else source
    weight = weight if node.attributes.flag(weight_flag) == data_first else weight.t()
    alpha, beta = node.attributes.number("alpha", 1.0), node.attributes.number("beta", 1.0)
    result = dense(builder, source, scaled(weight, alpha).contiguous(), node.rounded(constant) + int(alpha != 1))
    result = result if data_first else builder.permute(result, [1, 0])
    if node.input(2) is None:
        return result
    return builder.shift(result, scaled(node.weights(2), beta), node.rounded(2) + int(beta != 1))


def multiply_matrices(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """MatMul: a value and a constant matrix, in either order."""
    left = node.input(0)
    source, constant = (left, 1) if isinstance(left, GraphValue) else (node.value(1), 0)
    weight, roundings = node.weights(constant), node.rounded(constant)
    if weight.dim() != 2:
        raise UnsupportedError("MatMul with a constant that is not a matrix")
    if isinstance(left, GraphValue):
        return dense(builder, source, weight.t().contiguous(), roundings)
    axes = list(range(len(source.shape)))
    if len(axes) == 1:
        return dense(builder, source, weight, roundings)
    last_two_swapped = [*axes[:-2], axes[-1], axes[-2]]
    product = dense(builder, builder.permute(source, last_two_swapped), weight, roundings)
    return builder.permute(product, last_two_swapped)


def dense(builder: GraphBuilder, source: GraphValue, weight: Tensor, roundings: int) -> GraphValue:
    """Add a dense layer without bias on the last axis.

    Args:
        builder: The graph.
        source: The data, (..., inputs).
        weight: The weight, (outputs, inputs).
        roundings: How many roundings the weight saw if it was computed from other constants.
    """
    if not source.shape or source.shape[-1] != weight.shape[1]:
        raise UnsupportedError(f"a matrix of shape {tuple(weight.shape)} on data of shape {source.shape}")
    return builder.add(Dense(weight, None, roundings), (*source.shape[:-1], weight.shape[0]), source)


def batch_norm(node: OnnxNode, builder: GraphBuilder) -> GraphValue:
    """BatchNormalization in evaluation mode: one factor and one shift per channel."""
    source = node.value()
    if node.attributes.flag("training_mode") or not node.attributes.flag("spatial", True):
        raise UnsupportedError("BatchNormalization that is not in evaluation mode, or not per channel")
    weight, bias, mean, variance = (node.weights(index) for index in (1, 2, 3, 4))
    if len(source.shape) < 2 or bool((variance < 0).any()):
        raise UnsupportedError("BatchNormalization without channels, or with a negative variance")
    eps = node.attributes.number("epsilon", float(np.float32(1e-5)))
    scale = batch_norm_scale(mean, variance, eps, weight, bias, len(source.shape) - 2)
    if not bool((scale.factor.isfinite() & scale.shift.isfinite()).all()):
        raise UnsupportedError("BatchNormalization with a variance of 0")
    check_digits(scale.factor, weight.view(scale.factor.shape) != 0)
    # the factor has the roundings of weight and variance; the shift also those of mean and bias
    return builder.scale(source, replace(scale, roundings=scale.roundings + 3 * node.rounded(1, 2, 3, 4)))


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
    weight = torch.full((1, length), 1 / length if node.op_type == "ReduceMean" else 1.0, dtype=builder.dtype)
    total = dense(builder, moved, weight, roundings=int(not _powers_of_two(weight)))
    keep = node.attributes.flag("keepdims", True)
    shape = [1 if axis in removed else source.shape[axis] for axis in range(rank) if keep or axis not in removed]
    return builder.reshape(total, tuple(shape))


def _powers_of_two(constant: Tensor) -> bool:
    """Return whether a product or a quotient with each of these constants only changes the exponent."""
    return bool((torch.frexp(constant).mantissa.abs() == 0.5).all())
