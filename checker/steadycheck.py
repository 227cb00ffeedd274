"""steadycheck: does this file prove that the network has the property?

    steadycheck NETWORK.onnx PROPERTY.vnnlib PROOF
    steadycheck FOLDER        # model.onnx, and NAME.vnnlib with NAME.proof for every NAME

A VNN-LIB file lists ways to violate a property: each is a box of inputs x and constraints c·y ≤ d on the outputs y. A
proof shows that none of them happens. It holds hints only: where to split, which slopes and multipliers to use. All
bounds are computed here, and every hint that passes the checks below gives a valid one. A bad hint gives a bad bound,
and then the proof is refused.

Why a bound is a proof. Let z be the input of a ReLU and l ≤ z ≤ u. Then relu(z) ≥ α·z for every α in [0, 1], and
relu(z) lies below the line through (l, relu(l)) and (u, relu(u)). Where z ≥ 0 is assumed (a split), subtracting β·z
with β ≥ 0 makes a number smaller only. So, from the last layer to the first, the sum of λ·(c·y − d) with λ ≥ 0 is
bounded from below by a linear function of x, whose minimum on a box is at a corner. If it is positive, not all
constraints c·y ≤ d hold there. The two sides of a split cover what was split, so the leaves of a tree cover the box.

Rounding. A sum of n products other than 0, in any order, is wrong by at most γ·Σ|a||x| with γ = n·u / (1 − n·u) in
floating point, plus underflow. This is counted for the network (run in its own precision) and for all that is computed
here: in float64, but for backward passes in float32, which are tried first if the proof says so.
"""

from __future__ import annotations

import hashlib
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray

VERSION = "0.2.4"
Array = NDArray[np.float64]
Index = NDArray[np.int64]
Shape = tuple[int, ...]


# ---------------------------------------------------------------------------- 1 refusals and rounding
class Refused(Exception):  # noqa: N818 - it is a verdict
    """The proof, or a file that it speaks of, is not accepted; the message says why."""


def require(condition: object, why: str) -> None:
    """Refuse unless a condition holds. (An ``assert`` could be switched off.)"""
    if not condition:
        raise Refused(why)


U64 = 2.0**-53  # the largest relative error of one operation in float64
SLACK = 1 + 2.0**-20  # a sum of non-negative numbers, as computed here, is too small by less than this factor
TINY = 1e-200  # more than all underflow in float64 can add up to: each takes 2.3e-308, times numbers below 1e40
LARGEST = 1e39  # numbers beyond this are refused


def gamma(terms: int, unit: float = U64) -> float:
    """γ for a sum of so many terms, rounded up."""
    require(terms * unit < 0.1, "a sum is too long for any bound of its rounding error")
    return terms * unit / (1 - terms * unit) * SLACK


# ---------------------------------------------------------------------------- 2 linear maps
class Linear:
    """A sparse matrix: a convolution, a product with a matrix or with constants, or a rearrangement.

    Values are flat vectors, and n of them are the columns of an array (size, n). Output (group, i, place) is the sum
    over all terms t of weight[group, i, t] · input[index[group, t, place]], where an index of −1 stands for the number
    0. No output meets an input twice. ``weight`` may have one group for all.
    """

    def __init__(self, inputs: int, index: Index, weight: Array) -> None:
        self.inputs, self.index, self.sizes, flat = inputs, index, np.abs(weight), index.ravel()
        with np.errstate(over="ignore"):
            self.weight = {kind: np.ascontiguousarray(weight, kind) for kind in ("float64", "float32")}
        self.in_order = np.array_equal(flat, np.arange(inputs))
        order = np.argsort(flat, kind="stable")[np.count_nonzero(flat < 0) :]  # where input 0 is used, then input 1, …
        counts = np.bincount(flat[order], minlength=inputs)
        require(inputs * counts.max(initial=1) < 1 << 28, "one number is used too often")
        self.uses = np.full((counts.max(initial=1), inputs), flat.size)  # flat.size: not used that often
        self.uses[np.arange(len(order)) - np.repeat(counts.cumsum() - counts, counts), flat[order]] = order
        self.terms, self.back = weight.shape[2], weight.shape[1] * len(self.uses)  # of sums, here and transposed
        self.weights = self.apply(np.ones((inputs, 1)), size=True)[:, 0]

    def apply(self, x: Array, size: bool = False) -> Array:
        """(inputs, n) to (outputs, n); with ``size``, the weights lose their signs."""
        n, (groups, terms, _) = x.shape[1], self.index.shape
        if not self.in_order:
            x = np.concatenate([x, np.zeros((1, n))])[self.index]  # −1 is the last row
        return product(self.sizes if size else self.weight["float64"], x.reshape(groups, terms, -1)).reshape(-1, n)

    def transpose(self, a: Array) -> Array:
        """(outputs, n) to (inputs, n): functions of the outputs as functions of the inputs; in their precision."""
        n, (groups, terms, places) = a.shape[1], self.index.shape
        spread, weight = np.empty((self.index.size + 1, n), a.dtype), self.weight[a.dtype.name].transpose(0, 2, 1)
        spread[-1] = 0.0
        product(weight, a.reshape(groups, -1, places * n), spread[:-1].reshape(groups, terms, places * n))
        if self.in_order:
            return spread[:-1]
        result = spread.take(self.uses[0], 0)
        for use in self.uses[1:]:
            result += spread.take(use, 0)
        return result

    def rows(self, outputs: Index, real: str) -> Array:
        """(inputs, n), what ``transpose`` gives for single outputs."""
        weight, n = self.weight[real], np.arange(len(outputs))
        if self.in_order and self.index.shape[::2] == (1, 1):  # a matrix
            return weight[0, outputs].T.copy()
        group, row, place = np.unravel_index(outputs, (len(self.index), weight.shape[1], self.index.shape[2]))
        result = np.zeros((self.inputs + 1, len(n)), real)
        result[self.index[group, :, place], n[:, None]] = weight[group % len(weight), row]
        return result[:-1]


def product(weight: Array, x: Array, out: Array | None = None) -> Array:
    """Matrices (groups, a, b) times matrices (groups, b, n)."""
    return (np.multiply if weight.shape[1:] == (1, 1) else np.matmul)(weight, x, out=out)


def elementwise(factor: Array) -> Linear:
    """Each number times a constant of its own."""
    return Linear(len(factor), np.arange(len(factor)).reshape(-1, 1, 1), factor.reshape(-1, 1, 1))


# ---------------------------------------------------------------------------- 3 ONNX
class Value(NamedTuple):
    """A tensor that depends on the input: its position in the network, and its shape with a batch of 1."""

    position: int
    shape: Shape


class Relu(NamedTuple):
    """max(0, z) for the value z at ``source``."""

    source: int


class Affine(NamedTuple):
    """A value that is a sum of maps of earlier values, plus constants.

    ``exact``: the network does not round here, as numbers are only moved, or as it computes no such value.
    ``largest_of``: the value is the larger one of these two.
    """

    parts: list[tuple[int, Linear]]
    constant: Array
    exact: bool = False
    largest_of: tuple[int, int] | None = None


def read_network(content: bytes) -> Network:
    """Read an ONNX file."""
    try:
        return Network(content)
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"the network cannot be read: {type(error).__name__}: {error}") from error


class Network:
    """The nodes of an ONNX graph: value 0 is the input, and node i computes value i + 1.

    It is read node by node. An operator or attribute that is not known is refused.
    """

    def __init__(self, content: bytes) -> None:
        model, self.sha256 = onnx.load_model_from_string(content), hashlib.sha256(content).digest()
        graph, self.nodes, self.tensors, self.heaviest, kinds = model.graph, [], {}, 0.0, set()
        require(all(entry.domain in ("", "ai.onnx") for entry in model.opset_import), "unknown operators")
        require(not graph.sparse_initializer and not model.functions, "sparse weights and functions are not known")
        constants = [node for node in graph.node if node.op_type == "Constant"]
        named = [(node.output[0], self._attributes(node, value=None)["value"]) for node in constants]
        for name, tensor in [*((weight.name, weight) for weight in graph.initializer), *named]:
            require(name and name not in self.tensors, f"the name {name!r} is empty, or there twice")
            require(tensor.data_location == onnx.TensorProto.DEFAULT, "weights outside the file are not read")
            array = onnx.numpy_helper.to_array(tensor)
            require(array.dtype in (np.float32, np.float64, np.int64), f"the type of {name} is not known")
            if array.dtype != np.int64:
                kinds.add(array.dtype)
                array = array.astype(np.float64)
                require((np.abs(array) < LARGEST).all(), f"{name} holds what is no number, or a very large one")
                self.heaviest = max(self.heaviest, float(np.abs(array).max(initial=0)))
            self.tensors[name] = array
        inputs = [entry for entry in graph.input if entry.name not in self.tensors]
        require(len(inputs) == len(graph.output) == 1 and inputs[0].name, "one input and one output with names, please")
        kind = inputs[0].type.tensor_type
        require({1: {np.dtype("f4")}, 11: {np.dtype("f8")}}.get(kind.elem_type) == kinds, "one precision, please")
        dims = [dim.dim_value for dim in kind.shape.dim]
        shape = (*(size or 1 for size in dims[:1]), *dims[1:])
        require(min(shape, default=1) > 0 and shape[:1] in ((), (1,)), f"an input of shape {shape} is not known")
        self.dtype, self.shapes, self.tensors[inputs[0].name] = kinds.pop().type, [shape], Value(0, shape)
        limits = np.finfo(self.dtype)
        self.unit, self.least = float(limits.eps) / 2, float(limits.smallest_normal)
        self.most = min(float(limits.max) / 4, LARGEST)
        for node in graph.node:
            if node.op_type != "Constant":
                self._node(node)
        self.output = self._value(self.tensors.get(graph.output[0].name)).position

    def relus(self) -> list[int]:
        """The positions of the ReLUs."""
        return [position for position, node in enumerate(self.nodes, 1) if isinstance(node, Relu)]

    def _add(self, node: Affine | Relu, shape: Shape) -> Value:
        require(len(self.nodes) < 5000 and (shape == () or min(shape) > 0), "too many nodes, or an empty tensor")
        self.nodes.append(node)
        self.shapes.append(shape)
        return Value(len(self.nodes), shape)

    def _node(self, node: onnx.NodeProto) -> None:
        read = getattr(self, "_move" if node.op_type in MOVES else OPERATORS.get(node.op_type, ""), None)
        require(read is not None and node.domain in ("", "ai.onnx"), f"the operator {node.op_type} is not known")
        require(all(name in self.tensors for name in node.input), f"{node.op_type} reads what is not there")
        require(len(node.output) == 1 and node.output[0] not in ("", *self.tensors), f"the output of {node.op_type}")
        self.tensors[node.output[0]] = read(node, *(self.tensors[name] for name in node.input))

    def _attributes(self, node: onnx.NodeProto, **default: Any) -> dict[str, Any]:
        names = [attribute.name for attribute in node.attribute]
        require(set(names) <= set(default), f"{node.op_type}: an attribute of {', '.join(names)} is not known")
        require(len(set(names)) == len(names), "an attribute is there twice")
        return default | {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}

    def _value(self, tensor: Any) -> Value:
        require(isinstance(tensor, Value), "a constant, or nothing, stands where a value is expected")
        return tensor

    def _weights(self, tensor: Any, axes: int | None = None, fits: Shape | None = None) -> Array:
        require(isinstance(tensor, np.ndarray) and tensor.dtype == np.float64, "weights must be constant numbers")
        require(axes is None or tensor.ndim == axes, "weights with another number of axes than expected")
        require(fits is None or np.broadcast_shapes(tensor.shape, fits) == fits, "a constant that does not fit")
        return tensor

    def _affine(self, parts: Sequence[tuple[Value, Linear]], shape: Shape, constant: Any = 0.0, **more: Any) -> Value:
        full = np.broadcast_to(np.asarray(constant, dtype=np.float64), shape).reshape(-1)
        return self._add(Affine([(value.position, map_) for value, map_ in parts], full, **more), shape)

    def _gemm(self, node: onnx.NodeProto, x: Any, w: Any, b: Any = None) -> Value:
        given = self._attributes(node, alpha=1.0, beta=1.0, transA=0, transB=0)
        require(given["alpha"] == given["beta"] == 1, "Gemm with factors: where they round is not known")
        weight = self._weights(w, 2) if given["transB"] else self._weights(w, 2).T
        require(self._value(x).shape[:-1] == (1,) and not given["transA"], "Gemm does not fit its input")
        bias = 0.0 if b is None else self._weights(b, fits=(1, len(weight)))
        return self._matrix(x, weight, (1, len(weight)), x.shape[1], bias)

    def _matmul(self, node: onnx.NodeProto, a: Any, b: Any) -> Value:
        self._attributes(node)
        if isinstance(b, Value):  # W · x with a column x
            require(b.shape[1:] and b.shape[-1] == 1, "MatMul of this kind")
            return self._matrix(b, self._weights(a, 2), (*b.shape[:-2], len(a), 1), b.shape[-2])
        weight = self._weights(b, 2).T
        return self._matrix(self._value(a), weight, (*a.shape[:-1], len(weight)), a.shape[-1])

    def _matrix(self, x: Value, weight: Array, shape: Shape, size: int, bias: Any = 0.0) -> Value:
        """The product of a matrix with each run of so many numbers."""
        require(weight.shape[1] == size, "a matrix does not fit its input")
        index = np.arange(prod(x.shape)).reshape(-1, size, 1)
        return self._affine([(x, Linear(index.size, index, weight[None]))], shape, bias)

    def _window(self, node: onnx.NodeProto, x: Any, kernel: Any, **more: Any) -> tuple[Index, Shape, dict[str, Any]]:
        """(cells of a kernel, places), the pixel that each cell sees, −1 outside the image; and the result's size."""
        default = {"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "auto_pad": b"NOTSET", "ceil_mode": 0}
        given, name = self._attributes(node, kernel_shape=kernel, **default, **more), node.op_type
        require(kernel is None or tuple(given["kernel_shape"]) == kernel, "two kernels")
        sizes = [tuple(given[key] or ()) for key in ("kernel_shape", "strides", "dilations", "pads")]
        kernel, strides, dilations, pads = sizes
        require([len(each) for each in sizes] == [2, 2, 2, 4], f"the axes of {name}")
        require(min(kernel + strides + dilations) > 0 and min(pads) >= 0, f"attributes of {name}")
        require(given["auto_pad"] == b"NOTSET" and not given["ceil_mode"], f"{name} of this kind")
        shape = self._value(x).shape
        require(len(shape) == 4 and shape[0] == 1, f"{name} of a tensor that is not one image")
        image = np.arange(shape[2] * shape[3]).reshape(shape[2:])
        image = np.pad(image, ((pads[0], pads[2]), (pads[1], pads[3])), constant_values=-1)
        room = [image.shape[i] - dilations[i] * (kernel[i] - 1) for i in (0, 1)]
        require(min(room) > 0, f"{name} does not fit its image")
        y, x = (np.arange(0, room[i], strides[i]) + np.arange(kernel[i])[:, None] * dilations[i] for i in (0, 1))
        pixels = image[y[:, None, :, None], x[None, :, None, :]]  # (kernel, kernel, height, width)
        return pixels.reshape(prod(kernel), -1), pixels.shape[2:], given

    def _windowed(self, x: Value, pixels: Index, weight: Array, groups: int) -> Linear:
        """Sums over windows: weight (outputs, channels of a group, cells)."""
        channel = np.arange(x.shape[1]).reshape(groups, -1, 1, 1) * prod(x.shape[2:])
        index = np.where(pixels >= 0, channel + pixels, -1).reshape(groups, -1, pixels.shape[1])
        return Linear(prod(x.shape), index, weight.reshape(groups, -1, index.shape[1]))

    def _conv(self, node: onnx.NodeProto, x: Any, w: Any, b: Any = None) -> Value:
        weight = self._weights(w, 4)
        pixels, places, given = self._window(node, x, weight.shape[2:], group=1)
        groups = given["group"]
        require(groups > 0 and len(weight) % groups == 0, "the groups of Conv")
        require(x.shape[1] == weight.shape[1] * groups, "Conv does not fit its image")
        bias = 0.0 if b is None else self._weights(b, 1, (len(weight),)).reshape(-1, 1, 1)
        return self._affine([(x, self._windowed(x, pixels, weight, groups))], (1, len(weight), *places), bias)

    def _averagepool(self, node: onnx.NodeProto, x: Any) -> Value:
        pixels, places, given = self._window(node, x, None, count_include_pad=0)
        count, shape = (pixels >= (-1 if given["count_include_pad"] else 0)).sum(0), (1, x.shape[1], *places)
        require((count > 0).all(), "a window outside the image")
        total = self._windowed(x, pixels, np.ones((x.shape[1], len(pixels))), x.shape[1])
        return self._affine([(self._affine([(x, total)], shape), elementwise(np.tile(1 / count, x.shape[1])))], shape)

    def _maxpool(self, node: onnx.NodeProto, x: Any) -> Value:
        """A tournament of pairs: the larger one of a and b is b + relu(a − b), which holds exactly."""
        pixels, places, given = self._window(node, x, None, storage_order=0)
        pixels = np.where(pixels >= 0, pixels, pixels.max(0))  # padding becomes a copy of a real candidate
        require((pixels >= 0).all() and not given["storage_order"], "MaxPool of this kind")
        shape, one = (1, x.shape[1], *places), np.ones((x.shape[1], 1))
        left = [self._affine([(x, self._windowed(x, p[None], one, len(one)))], shape, exact=True) for p in pixels]
        plus, minus = (elementwise(np.full(prod(shape), sign)) for sign in (1.0, -1.0))
        while len(left) > 1:
            a, b = left.pop(0), left.pop(0)
            difference = self._affine([(a, plus), (b, minus)], shape, exact=True)
            excess, pair = self._add(Relu(difference.position), shape), (a.position, b.position)
            left.append(self._affine([(b, plus), (excess, plus)], shape, exact=True, largest_of=pair))
        return left[0]

    def _relu(self, node: onnx.NodeProto, x: Any) -> Value:
        self._attributes(node)
        return self._add(Relu(self._value(x).position), x.shape)

    def _leakyrelu(self, node: onnx.NodeProto, x: Any) -> Value:
        slope = self._attributes(node, alpha=float(np.float32(0.01)))["alpha"]
        require(0 <= slope <= 1, "the slope of a LeakyRelu must lie between 0 and 1")
        positive = self._add(Relu(self._value(x).position), x.shape)  # slope · z + (1 − slope) · relu(z)
        parts = [(x, slope), (positive, 1 - slope)]
        return self._affine([(value, elementwise(np.full(prod(x.shape), share))) for value, share in parts], x.shape)

    def _arithmetic(self, node: onnx.NodeProto, a: Any, b: Any) -> Value:
        self._attributes(node)
        kind, swapped = node.op_type, not isinstance(a, Value)
        value, other = self._value(b if swapped else a), a if swapped else b
        ones, sign = np.ones(prod(value.shape)), -1.0 if kind == "Sub" else 1.0
        if isinstance(other, Value):
            require(kind in ("Add", "Sub") and value.shape == other.shape, f"{kind} of these two is not known")
            return self._affine([(value, elementwise(ones)), (other, elementwise(sign * ones))], value.shape)
        constant = self._weights(other, fits=value.shape)
        if kind in ("Add", "Sub"):
            signs = (sign, 1.0) if swapped else (1.0, sign)
            return self._affine([(value, elementwise(signs[0] * ones))], value.shape, signs[1] * constant)
        # with other factors a product, fused with a layer before or not, could overflow or underflow
        sizes = np.abs(constant)
        require(((sizes == 0) | ((sizes >= 2.0**-60) & (sizes <= 2.0**60))).all(), "extreme constants")
        require(self.heaviest <= 2.0**66, "extreme weights beside products with constants")
        require(kind == "Mul" or (not swapped and constant.all()), "a division of this kind")
        factor = np.broadcast_to(1 / constant if kind == "Div" else constant, value.shape)
        return self._affine([(value, elementwise(factor.ravel()))], value.shape)

    def _move(self, node: onnx.NodeProto, *given: Any) -> Value:
        """A rearrangement: what is done with the numbers of all elements, from 1; 0 stands for the number 0."""
        (default, move), numbers, parts = MOVES[node.op_type], [], []
        values = given if node.op_type == "Concat" else given[:1]
        starts = np.cumsum([1, *(prod(self._value(x).shape) for x in values)])
        for x, start in zip(values, starts, strict=False):
            numbers.append(start + np.arange(prod(x.shape)).reshape(x.shape))
        for x in given[len(values) :]:
            require(isinstance(x, np.ndarray) and x.dtype == np.int64, "shapes, widths and places must be constants")
            require(node.op_type == "Gather" or x.ndim == 1, "a list of numbers is expected")
        index = move(self._attributes(node, **default), *numbers, *given[len(values) :])
        require(index.size > 0, "an empty tensor")
        if np.array_equal(index.ravel(), numbers[0].ravel()):
            return Value(values[0].position, index.shape)
        for x, start, end in zip(values, starts, starts[1:], strict=False):
            own = np.where((index >= start) & (index < end), index - start, -1).reshape(1, 1, -1)
            parts.append((x, Linear(end - start, own, np.ones((1, 1, 1)))))
        return self._affine(parts, index.shape, exact=True)


MOVES: dict[str, tuple[dict[str, Any], Callable[..., Index]]] = {  # attributes, and what is done
    "Identity": ({}, lambda given, x: x),
    "Flatten": ({"axis": 1}, lambda given, x: x.reshape(prod(x.shape[: given["axis"]]), -1)),
    "Reshape": ({}, lambda given, x, sizes: x.reshape([size or x.shape[axis] for axis, size in enumerate(sizes)])),
    "Transpose": ({"perm": None}, lambda given, x: x.transpose(given["perm"])),
    "Gather": ({"axis": 0}, lambda given, x, places: np.take(x, places, given["axis"])),
    "Pad": ({}, lambda given, x, widths: np.pad(x, np.reshape(widths, (2, x.ndim)).T)),
    "Concat": ({"axis": None}, lambda given, *parts: np.concatenate(parts, int(given["axis"]))),
}
KINDS = ("Gemm", "MatMul", "Conv", "AveragePool", "MaxPool", "Relu", "LeakyRelu")
OPERATORS = dict.fromkeys(["Add", "Sub", "Mul", "Div"], "_arithmetic")
OPERATORS |= {kind: f"_{kind.lower()}" for kind in KINDS}


# ---------------------------------------------------------------------------- 4 VNN-LIB
class Violation(NamedTuple):
    """One way to violate a property: an input of the box whose outputs satisfy matrix · y ≤ bound, row by row.

    The box is rounded outwards to the network's precision, and the bound up, so that nothing is left out.
    """

    lower: Array
    upper: Array
    matrix: Array
    bound: Array


CHARACTERS = bytes([9, 10, 13, *range(32, 127)])
NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?"
END = re.compile(rf"{NUMBER}\)\)")
SIDE = rf"({NUMBER}|[XY]_(?:0|[1-9][0-9]{{0,8}}))"
COMPARISON = re.compile(rf"\(([<>])=? {SIDE} {SIDE}\)")
STATEMENTS = re.compile(r"(?:\(assert(?:@|\(and@+\)|\(or(?:@|\(and@+\))+\))\))*")  # where @ is a comparison
Constraint = tuple[str, str]  # what is at most what: names of variables, or numbers


@lru_cache(1 << 16)
def outwards(number: str, down: bool, dtype: Any) -> float:
    """The nearest number of a precision that is not above (down), or not below, a decimal number."""
    with np.errstate(over="ignore"):
        exact, nearest = Decimal(number), dtype(float(number))
    require(abs(float(nearest)) < LARGEST, "a number in the property is too large")
    if exact < float(nearest) if down else exact > float(nearest):
        nearest = np.nextafter(nearest, dtype(-np.inf if down else np.inf))
    return float(nearest)


@lru_cache
def beginnings(inputs: int, outputs: int) -> dict[str, list[str]]:
    """The declarations, and how the lines of lower and of upper bounds usually begin."""
    names = [f"{letter}_{i}" for letter, count in (("X", inputs), ("Y", outputs)) for i in range(count)]
    bounds = {kind: [f"(assert ({kind} {name} " for name in names[:inputs]] for kind in (">=", "<=")}
    return {"": [f"(declare-const {name} Real)" for name in names], **bounds}


def read_property(content: bytes, network: Network) -> list[Violation]:
    """Read a VNN-LIB 1.0 file: all ways to violate its property."""
    require(not content.translate(None, CHARACTERS), "the property has characters other than those of plain text")
    inputs, outputs = prod(network.shapes[0]), prod(network.shapes[network.output])
    box, ways = (np.full(inputs, -np.inf), np.full(inputs, np.inf)), [[]]
    lines, usual = content.decode().split("\n"), beginnings(inputs, outputs)
    declared = usual[""]
    first, last = len(declared), len(declared) + 2 * inputs
    is_usual = len(lines) >= last and lines[:first] == declared
    is_usual = is_usual and _read_bounds(lines[first:last], box, usual, network.dtype)
    text = re.sub(r";[^\n\r]*", "", "\n".join(lines[last if is_usual else 0 :]))
    text = re.sub(r"\s*([()])\s*", r"\1", " ".join(text.split()))
    if not is_usual:
        begin = "".join(declared)
        require(text.startswith(begin), f"the file must begin with X_0 to X_{inputs - 1}, Y_0 to Y_{outputs - 1}")
        text = text[len(begin) :]
    comparisons = ((a, b) if sign == "<" else (b, a) for sign, a, b in COMPARISON.findall(text))
    structure = COMPARISON.sub("@", text)
    require("@" not in text and STATEMENTS.fullmatch(structure), "a statement that is not known")
    for statement in structure.split("(assert")[1:]:
        alternatives = re.findall(r"\(and@+\)|@", statement)
        found = [[next(comparisons) for _ in range(each.count("@"))] for each in alternatives]
        if len(found) == 1:  # what always holds
            found = [[constraint for constraint in found[0] if not _tighten(box, constraint, network.dtype)]]
        require(len(ways) * len(found) <= 100_000, "too many ways to violate the property")
        ways = [a + b for a in ways for b in found]
    return [_violation(way, box, outputs, network.dtype) for way in ways]


def _read_bounds(lines: list[str], box: tuple[Array, Array], usual: dict[str, list[str]], dtype: Any) -> bool:
    """Whether lines are "(assert (>= X_0 0.5))", "(assert (<= X_0 0.7))" and so on; then these bounds make the box."""
    corners, kinds = [], (">=", "<=") if lines[0].startswith(usual[">="][0]) else ("<=", ">=")
    for kind, own in zip(kinds, (lines[::2], lines[1::2]), strict=True):
        ends = list(map(str.removeprefix, own, usual[kind]))
        if not all(map(str.startswith, own, usual[kind])) or not all(map(END.fullmatch, set(ends))):
            return False
        value = {end: outwards(end[:-2], kind == ">=", dtype) for end in set(ends)}
        corners.append(list(map(value.__getitem__, ends)))
    for kind, corner in zip(kinds, corners, strict=True):
        box[kind == "<="][:] = corner
    return True


def _tighten(box: tuple[Array, Array], constraint: Constraint, dtype: Any) -> bool:
    """Whether a constraint is a bound on an input; then the box becomes smaller."""
    small, large = constraint
    below = large[0] == "X"
    name, number = (large, small) if below else (small, large)
    if name[0] == "X":
        require(number[0] not in "XY" and int(name[2:]) < len(box[0]), "a constraint on inputs that is not known")
        corner, at, value = box[not below], int(name[2:]), outwards(number, below, dtype)
        corner[at] = max(corner[at], value) if below else min(corner[at], value)
    return name[0] == "X"


def _violation(way: list[Constraint], box: tuple[Array, Array], outputs: int, dtype: Any) -> Violation:
    own, rows, bounds = (box[0].copy(), box[1].copy()), [], []
    for small, large in way:
        if not _tighten(own, (small, large), dtype):
            rows.append(np.zeros(outputs))
            bounds.append(0.0)
            for name, other, sign in ((small, large, 1), (large, small, -1)):
                require("Y" in (name[0], other[0]), "a constraint that is not known")
                if name[0] == "Y":
                    require(int(name[2:]) < outputs, f"there is no output {name}")
                    rows[-1][int(name[2:])] += sign
                else:  # other ≤ name, or −other ≤ −name
                    bounds[-1] = -sign * outwards(name, sign > 0, np.float64)
    require(np.isfinite(own).all(), "an input without a lower or an upper bound")
    require(rows, "a way to violate the property that says nothing of the outputs")
    return Violation(*own, np.array(rows), np.array(bounds))


# ---------------------------------------------------------------------------- 5 bounds
# A function of a value v is a column of coefficients a and stands for the sum of a·v. Carried back through the network,
# it becomes a smaller function of the input.


class Rule(NamedTuple):
    """How a proof wants the inputs of a ReLU layer bounded, and the elements of the layer that it names.

    ``level``: 0 by intervals; 1 also by backward passes where these leave the sign open; 2 also by passes with
    ``slopes`` (2, named, named before) for the lower and upper bounds of named elements; 3 is 0 if that is enough for
    all leaves, else 1.
    """

    level: int
    named: Index
    slopes: Array | None = None


class Hints(NamedTuple):
    """What a proof says of named ReLUs (all named, n) in n functions.

    ``slope``: the lower slope, or a negative number for the default. ``sign``: the side on which a ReLU is assumed to
    be, or 0. ``beta``: the multiplier β ≥ 0 of that.
    """

    slope: Array
    sign: Array
    beta: Array


class Lines:
    """The lines around the ReLUs of a layer, from bounds of their inputs.

    ``active`` is 1 where the ReLU is its input, 0 where it is 0 or open. ``open`` lists the elements that may be both;
    ``slope``, ``chord`` and ``shift`` are their lower slopes, their upper slopes, and their upper lines' values at 0.
    ``span`` is where the named elements of the layer are among all that are named.
    """

    def __init__(self, low: Array, high: Array, named: Index, before: int, real: str, floor: float) -> None:
        self.named, self.span, self.active = named, slice(before, before + len(named)), (low >= 0).astype(real)
        self.open = ((low < 0) & (high > 0)).nonzero()[0]
        self.place = np.full(len(low), -1)  # of an element in ``open``
        self.place[self.open] = np.arange(len(self.open))
        below, above = low[self.open], high[self.open]
        self.slope, self.chord = (above > -below).astype(real), (above / (above - below)).astype(real)
        chord = self.chord.astype(np.float64)
        # raised so far that it lies above the ReLU at both ends, whatever number the computed slope is
        self.shift = np.maximum(-chord * below, (1 - chord) * above) * SLACK + floor


class Bounds:
    """Bounds of every value of a network on a box, with every rounding counted.

    ``rules`` has one per ReLU layer. ``exact``: the network is run without rounding. ``outer``: bounds on a larger box;
    those of ReLU inputs hold here, too. ``real``: the precision of backward passes.
    """

    def __init__(
        self, network: Network, box: tuple[Array, Array], rules: Sequence[Rule],
        exact: bool = False, outer: Bounds | None = None, real: str = "float64",
    ) -> None:  # fmt: skip
        self.network, self.rules, self.exact, self.outer, self.real = network, rules, exact, outer, real
        self.unit, self.floor, self.tiny = (2.0**-24, 1e-30, 1e-15) if real == "float32" else (U64, TINY, TINY)
        self.uses = sum(len(node.parts) for node in network.nodes if isinstance(node, Affine)) + 20
        self.slack = SLACK + 2 * gamma(max(map(prod, network.shapes)), self.unit)
        self.lower, self.upper = [box[0]], [box[1]]  # of each value
        self.costs: list[Array] = []  # of each value: what rounding costs a backward pass per unit of coefficient
        self.lines: dict[int, Lines] = {}  # by the positions of the ReLUs
        require((self.largest(0) < network.most).all(), "a very large input")
        self._charge(1, self.largest(0))
        with np.errstate(all="ignore"):
            for node in network.nodes:
                (self._relu if isinstance(node, Relu) else self._affine)(node)

    def largest(self, position: int) -> Array:
        """How large a value can be."""
        return np.maximum(np.abs(self.lower[position]), np.abs(self.upper[position]))

    def _charge(self, terms: int, size: Array, error: Any = 0.0) -> None:
        """Note the costs of the next value: coefficients behind it are sums of so many terms, and then come sums."""
        share = gamma(terms + self.uses, self.unit) + gamma(len(size) + 4000)
        self.costs.append(((error + 2 * share * size) * SLACK + self.floor).astype(self.real))

    def _affine(self, node: Affine) -> None:
        """The interval of an affine value, and its rounding."""
        centre, size, terms = node.constant, np.abs(node.constant), 1
        spread = inputs = weights = error = 0.0
        for source, map_ in node.parts:
            low, high, largest = self.lower[source], self.upper[source], self.largest(source)
            sizes = map_.apply(np.stack([(high - low) / 2, largest], 1), size=True)
            centre, inputs = centre + map_.apply((low + high)[:, None] / 2)[:, 0], inputs + largest.max()
            spread, size, weights = spread + sizes[:, 0], size + sizes[:, 1], weights + map_.weights
            terms += 1 + int(np.append(largest > 0, False)[map_.index].sum(1).max())  # adding a product with 0 is exact
        size = size * SLACK
        require((size < self.network.most).all(), "the network may overflow")
        if self.real == "float32" and (size > 1e6).any():
            self.tiny = np.inf  # underflow is not counted for such numbers, so nothing is proved in this precision
        if not (self.exact or node.exact):
            flushed = terms * (inputs + 2) + weights + 4  # operands and results that are taken for 0
            error = gamma(terms + 12, self.network.unit) * size + SLACK * self.network.least * flushed
        room = error + gamma(terms + 40) * size + TINY
        low, high = centre - spread - room, centre + spread + room
        if node.largest_of:
            a, b = node.largest_of
            low = np.maximum(low, np.maximum(self.lower[a], self.lower[b]))
            high = np.minimum(high, np.maximum(self.upper[a], self.upper[b]))
        self.lower.append(low)
        self.upper.append(high)
        self._charge(sum(map_.back for _, map_ in node.parts), size, error)

    def _relu(self, node: Relu) -> None:
        """Bound the inputs of a ReLU layer as its rule says, and find the lines around its ReLUs."""
        source, rule = node.source, self.rules[len(self.lines)]
        low, high = self.lower[source].copy(), self.upper[source].copy()
        if self.outer is not None:
            low, high = np.maximum(low, self.outer.lower[source]), np.minimum(high, self.outer.upper[source])
        if rule.level and source > 0:
            self._tighten(source, low, high, np.arange(len(low)))
            if rule.slopes is not None:
                self._tighten(source, low, high, rule.named, rule.slopes)
        self.lower[source], self.upper[source] = low, high
        before = sum(len(lines.named) for lines in self.lines.values())
        self.lines[len(self.lower)] = Lines(low, high, rule.named, before, self.real, self.floor)
        self.lower.append(np.maximum(low, 0))
        self.upper.append(np.maximum(high, 0))
        self._charge(1, self.largest(source))

    def _tighten(self, source: int, low: Array, high: Array, elements: Index, slopes: Array | None = None) -> None:
        """Bound the unstable ones of some elements by backward passes, first on the side that may show their sign."""
        node, first = self.network.nodes[source - 1], (low + high < 0)[elements]
        for turn in (False, True):
            chosen = ((low < 0) & (high > 0))[elements].nonzero()[0]
            for some in in_pieces(len(chosen), self.network):
                function, place = chosen[some], elements[chosen[some]]
                side = first[function] ^ turn  # True for an upper bound, which is −(a lower bound of −z)
                sign, functions = np.where(side, -1.0, 1.0), {}
                for at, map_ in node.parts:
                    functions[at] = functions.get(at, 0.0) + map_.rows(place, self.real) * sign.astype(self.real)
                alpha = None if slopes is None else slopes[side.astype(int), function].T
                hints = None if alpha is None else Hints(alpha, np.zeros_like(alpha), np.zeros_like(alpha))
                bound = sign * self.bound(functions, sign * node.constant[place], self.costs[source][place], hints)
                low[place] = np.where(side, low[place], np.maximum(low[place], bound))
                high[place] = np.where(side, np.minimum(high[place], bound), high[place])

    def bound(self, functions: dict[int, Array], constant: Array, lost: Array, hints: Hints | None) -> Array:
        """Lower bounds of n functions plus constants on the box, with every rounding counted.

        ``functions`` are coefficients (size, n) on some values. ``lost`` (n,) is how far they may be off.
        """
        pending, total, lost = dict(functions), constant.copy(), lost.astype(np.float64)
        for at in range(max(pending), 0, -1):
            node = self.network.nodes[at - 1]
            if at not in pending and (hints is None or at not in self.lines):
                continue
            a = pending.pop(at) if at in pending else np.zeros((len(self.lower[at]), len(total)), self.real)
            lost += self.costs[at] @ np.abs(a)
            if isinstance(node, Relu):
                parts = [(node.source, self._below(at, a, total, lost, hints))]
            else:
                total += node.constant @ a
                parts = [(source, map_.transpose(a)) for source, map_ in node.parts]
            for source, part in parts:
                pending[source] = pending[source] + part if source in pending else part
        if 0 in pending:  # the minimum on a box, by its centre and half width
            g, (low, high) = pending[0].astype(np.float64), (self.lower[0], self.upper[0])
            total += (low + high) / 2 @ g - (high - low) / 2 @ np.abs(g)
            lost += self.costs[0] @ np.abs(g)
        result = total - self.slack * lost - self.tiny
        return np.where(np.isfinite(result), result - 2.0**-50 * np.abs(result), -np.inf)

    def _below(self, at: int, a: Array, total: Array, lost: Array, hints: Hints | None) -> Array:
        """Functions of ReLUs as smaller functions of their inputs; ``total`` and ``lost`` change with them."""
        lines = self.lines[at]
        b, part, slope = a * lines.active[:, None], a[lines.open], lines.slope[:, None]
        negative = np.minimum(part, 0)
        if hints is not None:
            own, sign, beta = (each[lines.span] for each in hints)
            is_open = lines.place[lines.named] >= 0
            place, slope = lines.place[lines.named][is_open], np.repeat(slope, a.shape[1], 1)
            slope[place] = np.where(own[is_open] >= 0, own[is_open], slope[place])
        b[lines.open] = (part - negative) * slope + negative * lines.chord[:, None]
        if hints is not None:  # on its side, a ReLU is z or 0
            b[lines.named] = np.where(sign == 0, b[lines.named], a[lines.named] * (sign > 0) - sign * beta)
            negative[place] = np.where(sign[is_open] == 0, negative[place], 0.0)
            lost += self.costs[at][lines.named] @ beta
        total += lines.shift @ negative
        return b


def in_pieces(count: int, network: Network) -> Iterator[slice]:
    """So many functions a few at a time, so that an array of their coefficients stays small."""
    most = max(16, (1 << 17) // max(map(prod, network.shapes)))
    return (slice(start, start + most) for start in range(0, count, most))


# ---------------------------------------------------------------------------- 6 the proof file and its trees
MAGIC, MOST_BYTES = b"steadyproof 2\n", 1 << 30
LEAF, RELU, INPUT = 0, 1, 2
MOST_SPLITS = 1 << 20  # of a tree; and the numbers that all its boxes take


class Source:
    """The content of a proof file, read piece by piece and never beyond its end."""

    def __init__(self, content: bytes) -> None:
        require(content.startswith(MAGIC), "this is no proof, or one of another version")
        digest, packed = content[len(MAGIC) : len(MAGIC) + 32], content[len(MAGIC) + 32 :]
        require(hashlib.sha256(packed).digest() == digest, "the proof is damaged")
        unpacker = zlib.decompressobj()
        try:
            self.content, self.at = unpacker.decompress(packed, MOST_BYTES), 0
        except zlib.error as error:
            raise Refused(f"the proof is damaged: {error}") from error
        require(unpacker.eof and not unpacker.unused_data, "the proof is damaged, or too long")

    def array(self, kind: str, count: int) -> NDArray[Any]:
        """So many numbers: unsigned (u1, u4) or floating (f4, f8), little-endian."""
        return self._piece(kind, count).astype(np.int64 if kind[0] == "u" else np.float64)

    def _piece(self, kind: str, count: int) -> NDArray[Any]:
        start, self.at = self.at, self.at + np.dtype(kind).itemsize * count
        require(self.at <= len(self.content), "the proof ends too early")
        return np.frombuffer(self.content, np.dtype(kind).newbyteorder("<"), count, start)

    def number(self) -> int:
        """One unsigned number."""
        return int(self.array("u4", 1)[0])

    def slopes(self, *shape: int) -> Array:
        """Numbers in [0, 1]."""
        return self._piece("u2", prod(shape)).reshape(shape) / 65535.0


class Leaves(NamedTuple):
    """Leaves of trees, one tree per violation: the violation and the box of each leaf.

    The ReLU splits on their paths are (leaf, named ReLU, sign) with their β. ``slopes`` are rows of the table of
    slopes, where row 0 stands for the default ones; ``weights`` (leaves, constraints of all violations) are the λ.
    """

    violation: Index
    boxes: Index
    leaf: Index
    relu: Index
    sign: Array
    beta: Array
    slopes: Index
    weights: Array

    def of(self, chosen: NDArray[np.bool_]) -> Leaves:
        """Some of the leaves."""
        here = chosen[self.leaf]
        splits = np.cumsum(chosen)[self.leaf[here]] - 1, self.relu[here], self.sign[here], self.beta[here]
        return Leaves(self.violation[chosen], self.boxes[chosen], *splits, self.slopes[chosen], self.weights[chosen])


class Boxes:
    """The different boxes that the trees of a region cut its box into."""

    def __init__(self, lower: Array, upper: Array) -> None:
        self.corners, self.parts = [(lower, upper)], dict[tuple[int, int, float], list[int]]()

    def halves(self, box: int, axis: int, cut: float) -> list[int]:
        """The numbers of the parts of a box on both sides of a cut, which must lie in it."""
        lower, upper = self.corners[box]
        require(axis < len(lower) and lower[axis] <= cut <= upper[axis], "a cut outside the box")
        require(len(self.corners) * len(lower) < 64 * MOST_SPLITS, "too many boxes")
        if (box, axis, cut) not in self.parts:
            self.parts[box, axis, cut] = [len(self.corners), len(self.corners) + 1]
            below, above = upper.copy(), lower.copy()
            below[axis] = above[axis] = cut
            self.corners += [(lower, below), (above, upper)]
        return self.parts[box, axis, cut]


def shape_of_trees(is_leaf: NDArray[np.bool_], trees: int) -> tuple[Index, ...]:
    """From the nodes of binary trees in preorder: the splits, the tree of each leaf, and what a split speaks of.

    Those are its leaves, numbered as they come: on its first side those from ``first`` to before ``middle``, on its
    second side those to before ``last``.
    """
    # before each node, and at the end: how many nodes wait for their turn, this one among them; how many leaves came
    waiting = trees + np.concatenate([[0], np.cumsum(np.where(is_leaf, -1, 1))])
    leaves, end = np.concatenate([[0], np.cumsum(is_leaf)]), len(waiting)
    require((waiting[:-1] > 0).all() and waiting[-1] == 0, "trees whose nodes do not fit")
    splits, key = np.flatnonzero(~is_leaf), np.sort(waiting * end + np.arange(end))
    # the second side begins when as many wait again as before the split, and it ends when one less does
    middle, last = (key[np.searchsorted(key, (waiting[splits] - n) * end + splits, "right")] % end for n in (0, 1))
    tree = trees - np.minimum.accumulate(waiting[:-1])
    return splits, tree[is_leaf], leaves[splits], leaves[middle], leaves[last]


def read_trees(source: Source, boxes: Boxes, named: int, constraints: Sequence[int]) -> Leaves:
    """Read one tree per violation: all nodes in preorder, then ReLUs and inputs that are split, then the leaves' hints.

    A ReLU is split into z ≥ 0 and z ≤ 0, an input into what is below and above a number. Each split is followed by both
    its sides, so that the leaves cover all that a tree is about.
    """
    nodes = source.number()
    require(nodes <= 2 * MOST_SPLITS + len(constraints), "too many splits")
    kinds = source.array("u1", nodes)
    require((kinds <= INPUT).all(), "a node of a kind that is not known")
    splits, violation, first, middle, last = shape_of_trees(kinds == LEAF, len(constraints))
    box = np.zeros(len(violation), np.int64)
    is_relu = kinds[splits] == RELU
    relus = source.array("u4", int(is_relu.sum()))
    require((relus < named).all(), "a ReLU that has no name")
    inputs, cuts = (source.array(kind, int((~is_relu).sum())).tolist() for kind in ("u4", "f8"))
    for split, axis, cut in zip(np.flatnonzero(~is_relu), inputs, cuts, strict=True):
        below, above = boxes.halves(int(box[first[split]]), axis, cut)
        box[first[split] : middle[split]], box[middle[split] : last[split]] = below, above
    first, middle, counts = first[is_relu], middle[is_relu], (last - first)[is_relu]
    require(counts.sum() < 16 * MOST_SPLITS, "trees that are too deep")
    split = np.repeat(np.arange(len(relus)), counts)
    leaf = np.arange(len(split)) + np.repeat(first - np.cumsum(counts) + counts, counts)
    order = np.argsort(leaf, kind="stable")  # a leaf's splits stay in order, from the root
    leaf, split = leaf[order], split[order]
    sign = np.where(leaf < middle[split], 1.0, -1.0)
    of_violation = np.repeat(np.arange(len(constraints)), constraints) == violation[:, None]
    weights = np.zeros(of_violation.shape)
    slopes, betas = source.array("u4", len(box)), source.array("f4", len(leaf))
    weights[of_violation] = source.array("f4", int(of_violation.sum()))
    for numbers in (betas, weights):
        require(((numbers >= 0) & (numbers < LARGEST)).all(), "a multiplier is negative, too large or not a number")
    return Leaves(violation, box, leaf, relus[split], sign, betas, slopes, weights)


class Region(NamedTuple):
    """What a proof says of the violations that share one box: rules, table of slopes, cut boxes, leaves."""

    rules: list[Rule]
    table: Array
    boxes: Boxes
    leaves: Leaves


def read_region(source: Source, sizes: Sequence[int], violations: Sequence[Violation]) -> Region:
    """Read that; ``sizes`` are those of the ReLU layers."""
    rules, total = [], 0
    for size in sizes:
        level = source.number()
        named = np.cumsum(source.array("u4", source.number()))  # each is stored as its distance from the last one
        require(level <= 3 and (np.diff(named) > 0).all() and (named < size).all(), "a rule that is not known")
        rules.append(Rule(level, named, source.slopes(2, len(named), total) if level == 2 else None))
        total += len(named)
    table = np.concatenate([np.full((1, total), -1.0), source.slopes(source.number(), total)])
    boxes = Boxes(violations[0].lower, violations[0].upper)
    leaves = read_trees(source, boxes, total, [len(violation.bound) for violation in violations])
    require((leaves.slopes < len(table)).all(), "slopes that are not there")
    return Region(rules, table, boxes, leaves)


# ---------------------------------------------------------------------------- 7 checking
def bound_leaves(bounds: Bounds, violations: Sequence[Violation], leaves: Leaves, table: Array) -> Array:
    """Lower bounds of the sum of λ·(c·y − d) on leaves of one box; a positive one shows that nothing is violated there.

    ``violations`` are those that the weights of the leaves speak of, ``table`` has the slopes that they choose from.
    """
    matrix, limit = (np.concatenate([getattr(each, name) for each in violations]) for name in ("matrix", "bound"))
    total, output, result = sum(len(rule.named) for rule in bounds.rules), bounds.network.output, []
    for some in in_pieces(len(leaves.boxes), bounds.network):
        weights, hints = leaves.weights[some].T, None
        first, last = np.searchsorted(leaves.leaf, [some.start, some.stop])
        if leaves.slopes[some].any() or first < last:
            sign, beta = np.zeros((2, total, weights.shape[1]))
            place = leaves.relu[first:last], leaves.leaf[first:last] - some.start
            sign[place], beta[place] = leaves.sign[first:last], leaves.beta[first:last]
            require(np.count_nonzero(sign) == last - first, "a path splits a ReLU twice")
            hints = Hints(table[leaves.slopes[some]].T, sign, beta)
        with np.errstate(all="ignore"):
            size = bounds.largest(output) @ (np.abs(matrix).T @ weights) + np.abs(limit) @ weights
            functions = {output: (matrix.T @ weights).astype(bounds.real)}
            lost = (gamma(4000) + 4 * bounds.unit) * size
            result.append(bounds.bound(functions, -(limit @ weights), lost, hints))
    return np.concatenate(result)


def check_region(source: Source, network: Network, violations: list[Violation], exact: bool) -> int:
    """Read and check what a proof says of the violations that share one box. Returns the number of leaves."""
    require(sum(len(each.bound) for each in violations) <= 1000, "more constraints than rounding is counted for")
    region = read_region(source, [prod(network.shapes[relu]) for relu in network.relus()], violations)
    leaves, corners = region.leaves, region.boxes.corners
    tries = [(0, "float32"), (1, "float32"), (1, "float64")]  # what level 3 means, and the precision of passes
    for level, real in tries if any(rule.level == 3 for rule in region.rules) else tries[2:]:
        rules = [rule._replace(level=level) if rule.level == 3 else rule for rule in region.rules]
        whole, found = Bounds(network, corners[0], rules, exact, None, real), np.inf
        for box in np.unique(leaves.boxes):
            bounds = Bounds(network, corners[box], rules, exact, whole, real) if box else whole
            found = min(found, bound_leaves(bounds, violations, leaves.of(leaves.boxes == box), region.table).min())
        if found > 0:
            return len(leaves.boxes)
    raise Refused(f"the bound of a leaf is {found:.3g}, which is not positive")


def regions(violations: list[Violation]) -> list[list[Violation]]:
    """The violations by their boxes, in order of appearance, without those whose box is empty."""
    result: dict[tuple[bytes, bytes], list[Violation]] = {}
    for violation in violations:
        if (violation.lower <= violation.upper).all():
            result.setdefault((violation.lower.tobytes(), violation.upper.tobytes()), []).append(violation)
    return list(result.values())


class Proved(NamedTuple):
    """A proof that was checked: the arithmetic that it holds for, and its number of leaves."""

    arithmetic: str
    leaves: int


def check(network: Network, property_file: bytes, proof_file: bytes) -> Proved:
    """Check a proof; raises ``Refused`` with the reason if it proves nothing."""
    source = Source(proof_file)
    hashes = source.array("u1", 64).astype(np.uint8).tobytes()
    require(hashes[:32] == network.sha256, "the proof speaks of another network")
    require(hashes[32:] == hashlib.sha256(property_file).digest(), "the proof speaks of another property")
    claim, groups = source.number(), regions(read_property(property_file, network))
    require(claim in (0, 1), "a claim that is not known")
    require(source.number() == len(groups), "the proof has another number of boxes than the property")
    leaves = sum(check_region(source, network, group, exact=claim == 0) for group in groups)
    require(source.at == len(source.content), "the proof is longer than it should be")
    own = f", and {np.dtype(network.dtype).name} in any order of summation" if claim else ""
    return Proved(f"exact arithmetic{own}", leaves)


# ---------------------------------------------------------------------------- 8 the command
def main(words: Sequence[str] | None = None) -> int:
    """Check proofs: 0 if each of them proves its property, 1 if one does not, 2 if there is nothing to check."""
    paths = [Path(word) for word in (sys.argv[1:] if words is None else words)]
    jobs = [tuple(paths)] if len(paths) == 3 else []
    if len(paths) == 1 and paths[0].is_dir():  # a property without a proof is refused, too
        names = {path.stem for path in paths[0].iterdir() if path.suffix in (".proof", ".vnnlib")}
        jobs = [(paths[0] / "model.onnx", paths[0] / f"{name}.vnnlib", paths[0] / f"{name}.proof") for name in names]
    if not jobs:
        missing = [f"{path} does not exist" for path in paths if not path.exists()]
        nested = [f"the proofs are in {path / 'proofs'}" for path in paths if (path / "proofs").is_dir()]
        help_wanted = {"-h", "--help"} & {str(path) for path in paths}
        why = "" if help_wanted else [*missing, *nested, "nothing to check"][0] + "\n"
        sys.stdout.write(f"{why}{__doc__.split(chr(10) * 2)[1]}\n")
        return 0 if help_wanted else 2
    networks, refused = dict[Path, Network](), 0
    for path, property_file, proof in sorted(jobs):
        try:
            networks[path] = networks.get(path) or read_network(path.read_bytes())
            found = check(networks[path], property_file.read_bytes(), proof.read_bytes())
            line = f"proved for {found.arithmetic} ({found.leaves} {'leaf' if found.leaves == 1 else 'leaves'})"
        except Exception as error:  # whatever it is, nothing is proved
            kind = "" if isinstance(error, Refused) else f"{type(error).__name__}: "
            line, refused = f"refused: {kind}{error}", refused + 1
        sys.stdout.write(f"{proof.name}: {line}\n")
    sys.stdout.write(f"{len(jobs) - refused} of {len(jobs)} proofs are valid\n" if len(jobs) > 1 else "")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
