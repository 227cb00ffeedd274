"""steadycheck: does this file prove that the network has the property?

    steadycheck NETWORK.onnx PROPERTY.vnnlib PROOF
    steadycheck FOLDER        # model.onnx, and NAME.vnnlib with NAME.proof for every NAME

A VNN-LIB file lists ways to violate a property: each is a box of inputs x and constraints c·y ≤ d on the outputs y. A
proof shows that none of them happens. This program reads the three files and computes every bound itself. It takes
nothing from the proof on trust: the proof holds hints (where to split, which slopes and multipliers to use), and every
hint that passes the checks below gives a valid bound. A bad hint gives a bad bound, and then the proof is refused.

Why a bound is a proof. Let z be the input of a ReLU and l ≤ z ≤ u. Then relu(z) ≥ α·z for every α in [0, 1], and
relu(z) lies below the line through (l, relu(l)) and (u, relu(u)). Where z ≥ 0 is assumed (a split), subtracting β·z
with β ≥ 0 makes a number smaller only. So, from the last layer to the first, the sum of λ·(c·y − d) with λ ≥ 0 is
bounded from below by a linear function of x, whose minimum on a box is at a corner. If it is positive, not all
constraints c·y ≤ d hold there. The two sides of a split cover what was split, so the leaves of a tree cover the box.

Rounding. A sum of n products in floating point, in any order, is wrong by at most γ·Σ|a||x| with γ = n·u / (1 − n·u),
plus underflow. This is counted for the network (run in its own precision) and for all that is computed here (float64).

Sections: 1 refusals and rounding, 2 linear maps, 3 ONNX, 4 VNN-LIB, 5 the condensed network, 6 bounds, 7 the proof file
and its trees, 8 the command.
"""

from __future__ import annotations

import hashlib
import re
import sys
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

VERSION = "0.1.0"
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
    share = terms * unit
    require(share < 0.1, "a sum is too long for any bound of its rounding error")
    return share / (1 - share) * SLACK


# ---------------------------------------------------------------------------- 2 linear maps
# Every value of a network is a flat vector. A map takes (n, inputs) to (n, outputs), and its transpose goes back. With
# ``size``, the weights lose their signs. ``terms`` is how many terms an output is the sum of, ``back`` how many a
# coefficient of the transpose.


class Dense:
    """The product with a matrix (inputs, outputs) along the last of several axes."""

    def __init__(self, matrix: Array) -> None:
        self.matrix, (self.terms, self.back) = matrix, matrix.shape

    def apply(self, x: Array, size: bool = False) -> Array:
        return (x.reshape(-1, self.terms) @ (np.abs(self.matrix) if size else self.matrix)).reshape(len(x), -1)

    def transpose(self, a: Array) -> Array:
        return (a.reshape(-1, self.back) @ self.matrix.T).reshape(len(a), -1)


class Scale:
    """Each number times a constant of its own."""

    def __init__(self, factor: Array) -> None:
        self.factor, self.terms, self.back = factor, 1, 1

    def apply(self, x: Array, size: bool = False) -> Array:
        return x * (np.abs(self.factor) if size else self.factor)

    def transpose(self, a: Array) -> Array:
        return a * self.factor


class Take:
    """Output i is input index[i], or 0 where index[i] is −1: transpositions, slices, padding."""

    def __init__(self, index: Index, inputs: int) -> None:
        self.index, self.inputs, self.used = index, inputs, index >= 0
        self.terms, self.back = 1, int(np.bincount(index[self.used], minlength=1).max())

    def apply(self, x: Array, size: bool = False) -> Array:
        return np.where(self.used, x[:, self.index], 0.0)

    def transpose(self, a: Array) -> Array:
        result = np.zeros((self.inputs, len(a)))
        np.add.at(result, self.index[self.used], a.T[self.used])
        return result.T


class Convolution:
    """A convolution: weight (out, in / groups, kernel height, kernel width), image (in, height, width)."""

    def __init__(self, weight: Array, image: Shape, result: Shape, window: Window, groups: int) -> None:
        self.weight, self.image, self.result, self.window, self.groups = weight, image, result, window, groups
        self.terms, self.back = weight[0].size, weight[:, 0].size // groups
        self.small = groups == 1 and window.dilations == (1, 1)  # whether coefficients may stay on patches

    def _cells(self) -> Iterator[tuple[int, int, slice, slice]]:
        """Each cell of the kernel, and the rows and columns of the padded image that it meets."""
        (_, height, width), (down, right), (dy, dx) = self.result, self.window.strides, self.window.dilations
        for i, j in np.ndindex(*self.weight.shape[2:]):
            rows = slice(i * dy, i * dy + (height - 1) * down + 1, down)
            yield i, j, rows, slice(j * dx, j * dx + (width - 1) * right + 1, right)

    def _padded(self) -> tuple[Shape, slice, slice]:
        (_, height, width), (top, left, bottom, right) = self.image, self.window.pads
        return (height + top + bottom, width + left + right), slice(top, top + height), slice(left, left + width)

    def apply(self, x: Array, size: bool = False) -> Array:
        shape, rows, columns = self._padded()
        padded = np.zeros((len(x), self.image[0], *shape))
        padded[:, :, rows, columns] = x.reshape(len(x), *self.image)
        patches = np.empty((len(x), self.image[0], *self.weight.shape[2:], *self.result[1:]))
        for i, j, down, across in self._cells():
            patches[:, :, i, j] = padded[:, :, down, across]
        matrix = (np.abs(self.weight) if size else self.weight).reshape(self.groups, -1, self.terms)
        return (matrix @ patches.reshape(len(x), self.groups, self.terms, -1)).reshape(len(x), -1)

    def transpose(self, a: Array) -> Array:
        if len(a) > 16:  # a few at a time stay in the cache
            return np.concatenate([self.transpose(a[start : start + 16]) for start in range(0, len(a), 16)])
        shape, rows, columns = self._padded()
        n, groups, inner = len(a), self.groups, self.weight.shape[1]
        cells = a.reshape(n, groups, -1, self.result[1] * self.result[2]).transpose(1, 3, 0, 2)
        cells = np.ascontiguousarray(cells).reshape(groups, -1, len(self.weight) // groups)
        matrix = self.weight.reshape(groups, -1, *self.weight.shape[1:])
        padded = np.zeros((*shape, n, groups, inner))  # pixels first, so that long runs of numbers are added
        for i, j, down, across in self._cells():
            part = (cells @ matrix[:, :, :, i, j]).reshape(groups, *self.result[1:], n, inner)
            padded[down, across] += part.transpose(1, 2, 3, 0, 4)
        return padded[rows, columns].reshape(-1, n, self.image[0]).transpose(1, 2, 0).reshape(n, -1)


Map = Dense | Scale | Take | Convolution


@dataclass
class Patches:
    """Coefficients (n, channels, h, w) of n functions of an image, each on a patch of its own; 0 outside the image."""

    values: Array
    top: Index
    left: Index
    image: Shape

    def places(self) -> Index:
        """(n, h·w), which pixel each cell is; the number of pixels for a cell outside."""
        (_, height, width), (h, w) = self.image, self.values.shape[2:]
        y, x = self.top[:, None] + np.arange(h), self.left[:, None] + np.arange(w)
        inside = ((y >= 0) & (y < height))[:, :, None] & ((x >= 0) & (x < width))[:, None, :]
        return np.where(inside, y[:, :, None] * width + x[:, None, :], height * width).reshape(len(y), -1)

    def gather(self, vector: Array) -> Array:
        """(n, channels, h, w), the entries of a vector over the image that the patches see; 0 outside."""
        padded = np.zeros((self.image[0], self.image[1] * self.image[2] + 1))
        padded[:, :-1] = vector.reshape(self.image[0], -1)
        return padded[:, self.places()].transpose(1, 0, 2).reshape(self.values.shape)

    def times(self, vector: Array) -> Array:
        """(n,), the products with a vector over the image; quickly if that is the same for all pixels of a channel."""
        pixels = vector.reshape(self.image[0], -1)
        if (pixels == pixels[:, :1]).all():
            return self.values.sum((2, 3)) @ pixels[:, 0]
        return (self.values * self.gather(vector)).sum((1, 2, 3))

    def at(self, elements: Index) -> Array:
        """(n, elements), the coefficients of some elements of the image."""
        channel, rest = np.divmod(elements, self.image[1] * self.image[2])
        y, x = rest // self.image[2] - self.top[:, None], rest % self.image[2] - self.left[:, None]
        seen = (y >= 0) & (y < self.values.shape[2]) & (x >= 0) & (x < self.values.shape[3])
        return np.where(seen, self.values[np.arange(len(y))[:, None], channel, y * seen, x * seen], 0.0)

    def whole(self) -> Array:
        """(n, size of the image), the same coefficients."""
        result = np.zeros((len(self.values), self.image[0], self.image[1] * self.image[2] + 1))
        places = np.broadcast_to(self.places()[:, None], (*result.shape[:2], self.values[0, 0].size))
        np.put_along_axis(result, places, self.values.reshape(*result.shape[:2], -1), 2)
        return result[:, :, :-1].reshape(len(result), -1)

    def scaled(self, factor: Array) -> Patches:
        """The functions behind a product with constants."""
        return Patches(self.values * self.gather(factor), self.top, self.left, self.image)

    def through(self, map_: Convolution) -> Patches | Array:
        """The functions behind a convolution; as whole vectors if the patches have outgrown the image."""
        n, _, h, w = self.values.shape
        (kh, kw), (down, right), pixels = map_.weight.shape[2:], map_.window.strides, prod(map_.image[1:])
        result = np.zeros((n, map_.image[0], (h - 1) * down + kh, (w - 1) * right + kw))
        matrix = map_.weight.reshape(len(map_.weight), -1)
        for y, x in np.ndindex(h, w):
            part = (self.values[:, :, y, x] @ matrix).reshape(n, map_.image[0], kh, kw)
            result[:, :, y * down : y * down + kh, x * right : x * right + kw] += part
        top, left = self.top * down - map_.window.pads[0], self.left * right - map_.window.pads[1]
        behind = Patches(result, top, left, map_.image)
        result *= (behind.places() < pixels).reshape(n, 1, *result.shape[2:])  # padding is no input
        return behind if result[0, 0].size < pixels else behind.whole()


def whole(a: Array | Patches) -> Array:
    """Coefficients as whole vectors."""
    return a.whole() if isinstance(a, Patches) else a


def carried_back(a: Array | Patches, map_: Map) -> Array | Patches:
    """Functions of a map's result as functions of its input."""
    if isinstance(a, Patches) and isinstance(map_, Scale):
        return a.scaled(map_.factor)
    if isinstance(a, Patches) and isinstance(map_, Convolution) and map_.small and a.image == map_.result:
        return a.through(map_)
    return map_.transpose(whole(a))


# ---------------------------------------------------------------------------- 3 ONNX


class Window(NamedTuple):
    """How a kernel moves over an image; ``pads`` are top, left, bottom, right; ``places`` is the result's size."""

    kernel: Shape
    strides: Shape
    pads: Shape
    dilations: Shape
    places: Shape

    def pixels(self, image: Shape) -> Index:
        """(cells of the kernel, places), the pixel that each cell sees; −1 outside the image."""
        y, x = (
            np.arange(self.places[axis]) * self.strides[axis] - self.pads[axis]
            + np.arange(self.kernel[axis])[:, None] * self.dilations[axis]
            for axis in (0, 1)
        )  # fmt: skip
        inside = ((y >= 0) & (y < image[0]))[:, None, :, None] & ((x >= 0) & (x < image[1]))[None, :, None, :]
        return np.where(inside, y[:, None, :, None] * image[1] + x[None, :, None, :], -1).reshape(prod(self.kernel), -1)


class Value(NamedTuple):
    """A tensor that depends on the input: its position in the network, and its shape with a batch of 1."""

    position: int
    shape: Shape


@dataclass
class Affine:
    """A value that is a sum of maps of earlier values, plus constants, whose ``size`` is from before they cancelled.

    ``moves``: numbers are only moved, so nothing rounds. ``virtual``: the network computes no such value, so only this
    program rounds. ``largest_of``: the value is the larger one of these two.
    """

    parts: list[tuple[int, Map]]
    constant: Array
    size: Array
    moves: bool = False
    virtual: bool = False
    largest_of: tuple[int, int] | None = None


@dataclass
class Relu:
    """max(0, z) for the value z at ``source``."""

    source: int


@dataclass
class Network:
    """Value 0 is the input, and node i computes value i + 1."""

    shapes: list[Shape]
    dtype: Any
    sha256: bytes
    nodes: list[Affine | Relu] = field(default_factory=list)
    output: int = 0

    def __post_init__(self) -> None:
        limits = np.finfo(self.dtype)
        self.unit, self.least = float(limits.eps) / 2, float(limits.smallest_normal)
        self.most = min(float(limits.max) / 4, LARGEST)

    def relus(self) -> list[int]:
        """The positions of the ReLUs."""
        return [position for position, node in enumerate(self.nodes, 1) if isinstance(node, Relu)]

    def add(self, node: Affine | Relu, shape: Shape) -> Value:
        """Add a node; its value."""
        require(len(self.nodes) < 5000, "too large a network")
        require(shape == () or min(shape) > 0, "an empty tensor")
        self.nodes.append(node)
        self.shapes.append(shape)
        return Value(len(self.nodes), shape)


def read_network(content: bytes) -> Network:
    """Read an ONNX file."""
    try:
        return _Reader(onnx.load_model_from_string(content), hashlib.sha256(content).digest()).network
    except Refused:
        raise
    except Exception as error:
        raise Refused(f"the network cannot be read: {type(error).__name__}: {error}") from error


class _Reader:
    """Turns an ONNX graph into a network, node by node. An operator or attribute that it does not know is refused."""

    def __init__(self, model: onnx.ModelProto, sha256: bytes) -> None:
        graph, self.tensors, self.largest, kinds = model.graph, {}, 0.0, set()
        require(all(entry.domain in ("", "ai.onnx") for entry in model.opset_import), "unknown operators")
        require(not graph.sparse_initializer and not model.functions, "sparse weights and functions are not known")
        constants = [node for node in graph.node if node.op_type == "Constant"]
        named = [(node.output[0], self._attributes(node, "value")["value"]) for node in constants]
        for name, tensor in [*((weight.name, weight) for weight in graph.initializer), *named]:
            require(name not in self.tensors, f"{name} is there twice")
            require(tensor.data_location == onnx.TensorProto.DEFAULT, "weights outside the file are not read")
            array = numpy_helper.to_array(tensor)
            require(array.dtype in (np.float32, np.float64, np.int64), f"the type of {name} is not known")
            if array.dtype != np.int64:
                kinds.add(array.dtype)
                array = array.astype(np.float64)
                require((np.abs(array) < LARGEST).all(), f"{name} holds what is no number, or a very large one")
                self.largest = max(self.largest, float(np.abs(array).max(initial=0)))
            self.tensors[name] = array
        inputs = [entry for entry in graph.input if entry.name not in self.tensors]
        require(len(inputs) == 1 and len(graph.output) == 1, "the network must have one input and one output")
        kind = inputs[0].type.tensor_type
        require({1: {np.dtype("f4")}, 11: {np.dtype("f8")}}.get(kind.elem_type) == kinds, "one precision, please")
        dims = [dim.dim_value for dim in kind.shape.dim]
        shape = (*(size or 1 for size in dims[:1]), *dims[1:])
        require(min(shape, default=1) > 0 and shape[:1] in ((), (1,)), f"an input of shape {shape} is not known")
        self.network = Network([shape], kinds.pop().type, sha256)
        self.tensors[inputs[0].name] = Value(0, shape)
        for node in graph.node:
            if node.op_type != "Constant":
                self._node(node)
        self.network.output = self._value(self.tensors.get(graph.output[0].name)).position

    def _node(self, node: onnx.NodeProto) -> None:
        name = "move" if node.op_type in MOVES else OPERATORS.get(node.op_type, "")
        read = getattr(self, f"_read_{name}", None)
        require(read is not None and node.domain in ("", "ai.onnx"), f"the operator {node.op_type} is not known")
        require(all(name in self.tensors for name in node.input), f"{node.op_type} reads what is not there")
        require(len(node.output) == 1 and node.output[0] not in self.tensors, f"the output of {node.op_type}")
        self.tensors[node.output[0]] = read(node, *(self.tensors[name] for name in node.input))

    def _attributes(self, node: onnx.NodeProto, *known: str, **default: Any) -> dict[str, Any]:
        for attribute in node.attribute:
            require(attribute.name in (*known, *default), f"{node.op_type}: {attribute.name} is not known")
        require(len({entry.name for entry in node.attribute}) == len(node.attribute), "an attribute is there twice")
        return default | {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}

    def _value(self, tensor: Any) -> Value:
        require(isinstance(tensor, Value), "a constant, or nothing, stands where a value is expected")
        return tensor

    def _weights(self, tensor: Any, axes: int | None = None, fits: Shape | None = None) -> Array:
        require(isinstance(tensor, np.ndarray) and tensor.dtype == np.float64, "weights must be constant numbers")
        require(axes is None or tensor.ndim == axes, "weights with another number of axes than expected")
        require(fits is None or np.broadcast_shapes(tensor.shape, fits) == fits, "a constant that does not fit")
        return tensor

    def _moderate(self, constants: Array) -> None:
        """Refuse factors with which a product, fused with a layer before or not, could overflow or underflow."""
        sizes = np.abs(constants)
        require(((sizes == 0) | ((sizes >= 2.0**-60) & (sizes <= 2.0**60))).all(), "extreme constants")
        require(self.largest <= 2.0**66, "extreme weights beside products with constants")

    def _integers(self, tensor: Any) -> NDArray[np.int64]:
        require(isinstance(tensor, np.ndarray) and tensor.dtype == np.int64, "shapes and axes must be constants")
        return tensor

    def _affine(self, parts: Sequence[tuple[Value, Map]], shape: Shape, constant: Any = 0.0, **more: Any) -> Value:
        constant = np.broadcast_to(np.asarray(constant, dtype=np.float64), shape).reshape(-1)
        size = np.broadcast_to(more.pop("size", np.abs(constant)), constant.shape)
        return self.network.add(
            Affine([(value.position, map_) for value, map_ in parts], constant, size, **more), shape
        )

    # --- layers

    def _read_gemm(self, node: onnx.NodeProto, x: Any, w: Any, b: Any = None) -> Value:
        given = self._attributes(node, alpha=1.0, beta=1.0, transA=0, transB=0)
        require(given["alpha"] == given["beta"] == 1, "Gemm with factors: where they round is not known")
        weight = np.ascontiguousarray(self._weights(w, 2).T if given["transB"] else self._weights(w, 2))
        shape = (1, weight.shape[1])
        require(self._value(x).shape == (1, len(weight)) and not given["transA"], "Gemm does not fit its input")
        bias = 0.0 if b is None else self._weights(b, fits=shape)
        return self._affine([(x, Dense(weight))], shape, bias)

    def _read_matmul(self, node: onnx.NodeProto, a: Any, b: Any) -> Value:
        self._attributes(node)
        column = isinstance(b, Value)  # W · x with a column x
        value, matrix = (b, self._weights(a, 2).T) if column else (self._value(a), self._weights(b, 2))
        require(value.shape[-2:] == (len(matrix), 1) if column else value.shape[-1:] == (len(matrix),), "MatMul")
        shape = (*value.shape[:-2], matrix.shape[1], 1) if column else (*value.shape[:-1], matrix.shape[1])
        return self._affine([(value, Dense(matrix))], shape)

    def _window(self, node: onnx.NodeProto, x: Any, kernel: Shape | None, **more: Any) -> tuple[Window, dict[str, Any]]:
        default = {"strides": [1, 1], "pads": [0] * 4, "dilations": [1, 1], "auto_pad": b"NOTSET", "ceil_mode": 0}
        given = self._attributes(node, "kernel_shape", **default, **more)
        kernel = tuple(given.get("kernel_shape", kernel or ())) if kernel is None else kernel
        require(tuple(given.get("kernel_shape", kernel)) == kernel, "two kernels")
        image, name = self._value(x).shape, node.op_type
        strides, pads, dilations = (tuple(given[key]) for key in ("strides", "pads", "dilations"))
        require([len(each) for each in (kernel, strides, pads, dilations)] == [2, 2, 4, 2], f"the axes of {name}")
        require(min(kernel + strides + dilations) > 0 and min(pads) >= 0, f"attributes of {name}")
        require(given["auto_pad"] == b"NOTSET" and not given["ceil_mode"], f"{name} of this kind")
        require(len(image) == 4 and image[0] == 1, f"{name} of a tensor that is not one image")
        room = [image[2 + i] + pads[i] + pads[2 + i] - dilations[i] * (kernel[i] - 1) - 1 for i in (0, 1)]
        require(min(room) >= 0, f"{name} does not fit its image")
        return Window(kernel, strides, pads, dilations, tuple(room[i] // strides[i] + 1 for i in (0, 1))), given

    def _read_conv(self, node: onnx.NodeProto, x: Any, w: Any, b: Any = None) -> Value:
        weight = self._weights(w, 4)
        window, given = self._window(node, x, weight.shape[2:], group=1)
        groups = given["group"]
        require(groups > 0 and len(weight) % groups == 0, "the groups of Conv")
        require(x.shape[1] == weight.shape[1] * groups, "Conv does not fit its image")
        result = (len(weight), *window.places)
        bias = 0.0 if b is None else self._weights(b, 1, (len(weight),)).reshape(-1, 1, 1)
        return self._affine([(x, Convolution(weight, x.shape[1:], result, window, groups))], (1, *result), bias)

    def _read_averagepool(self, node: onnx.NodeProto, x: Any) -> Value:
        """A sum over windows, and a division by their size."""
        window, given = self._window(node, x, None, count_include_pad=0)
        count = (window.pixels(x.shape[2:]) >= (-1 if given["count_include_pad"] else 0)).sum(0)
        require((count > 0).all(), "a window outside the image")
        channels, ones = x.shape[1], np.ones((x.shape[1], 1, *window.kernel))
        shape = (1, channels, *window.places)
        total = self._affine([(x, Convolution(ones, x.shape[1:], shape[1:], window, channels))], shape)
        return self._affine([(total, Scale(np.tile(1 / count, channels)))], shape)

    def _read_globalaveragepool(self, node: onnx.NodeProto, x: Any) -> Value:
        self._attributes(node)
        return self._read_averagepool(onnx.helper.make_node("AveragePool", [], [], kernel_shape=x.shape[2:]), x)

    def _read_maxpool(self, node: onnx.NodeProto, x: Any) -> Value:
        """A tournament of pairs: the larger one of a and b is b + relu(a − b), which holds exactly."""
        window, given = self._window(node, x, None, storage_order=0)
        pixels = window.pixels(x.shape[2:])
        pixels = np.where(pixels >= 0, pixels, pixels.max(0))  # padding becomes a copy of a real candidate
        require((pixels >= 0).all() and not given["storage_order"], "MaxPool of this kind")
        shape, channel = (1, x.shape[1], *window.places), np.arange(x.shape[1])[:, None] * prod(x.shape[2:])
        left = [self._affine([(x, Take((channel + p).reshape(-1), prod(x.shape)))], shape, moves=True) for p in pixels]
        one, minus = (Scale(np.full(prod(shape), sign)) for sign in (1.0, -1.0))
        while len(left) > 1:
            a, b = left.pop(0), left.pop(0)
            difference = self._affine([(a, one), (b, minus)], shape, virtual=True)
            excess, pair = self.network.add(Relu(difference.position), shape), (a.position, b.position)
            left.append(self._affine([(b, one), (excess, one)], shape, virtual=True, largest_of=pair))
        return left[0]

    def _read_batchnormalization(self, node: onnx.NodeProto, x: Any, *constants: Any) -> Value:
        given = self._attributes(node, "momentum", epsilon=float(np.float32(1e-5)), training_mode=0)
        require(len(constants) == 4 and not given["training_mode"], "BatchNormalization of this kind")
        axes = (-1, *[1] * (len(self._value(x).shape) - 2))
        scale, bias, mean, variance = (self._weights(each, 1, x.shape[1:2]).reshape(axes) for each in constants)
        least = self.network.least
        require((variance >= 0).all() and given["epsilon"] >= least, "a variance that is not positive")
        factor = scale / np.sqrt(variance + given["epsilon"])
        for part in (factor, scale, mean):
            self._moderate(part)
        size = (
            np.abs(bias) + np.abs(mean * factor) + 4 * least / self.network.unit * np.abs(factor)
        )  # x − mean may be 0
        full = [np.broadcast_to(each, x.shape).reshape(-1) for each in (factor, size)]
        return self._affine([(x, Scale(full[0]))], x.shape, bias - mean * factor, size=full[1])

    def _read_relu(self, node: onnx.NodeProto, x: Any) -> Value:
        self._attributes(node)
        return self.network.add(Relu(self._value(x).position), x.shape)

    def _read_leakyrelu(self, node: onnx.NodeProto, x: Any) -> Value:
        slope = self._attributes(node, alpha=float(np.float32(0.01)))["alpha"]
        require(0 <= slope <= 1, "the slope of a LeakyRelu must lie between 0 and 1")
        positive = self.network.add(Relu(self._value(x).position), x.shape)  # slope · z + (1 − slope) · relu(z)
        parts = [(x, slope), (positive, 1 - slope)]
        return self._affine([(value, Scale(np.full(prod(x.shape), share))) for value, share in parts], x.shape)

    def _read_arithmetic(self, node: onnx.NodeProto, a: Any, b: Any) -> Value:
        self._attributes(node)
        kind, swapped = node.op_type, not isinstance(a, Value)
        value, other = self._value(b if swapped else a), a if swapped else b
        ones, sign = np.ones(prod(value.shape)), -1.0 if kind == "Sub" else 1.0
        if isinstance(other, Value):
            require(kind in ("Add", "Sub") and value.shape == other.shape, f"{kind} of these two is not known")
            return self._affine([(value, Scale(ones)), (other, Scale(sign * ones))], value.shape)
        constant = self._weights(other, fits=value.shape)
        if kind in ("Add", "Sub"):
            signs = (sign, 1.0) if swapped else (1.0, sign)
            return self._affine([(value, Scale(signs[0] * ones))], value.shape, signs[1] * constant)
        require(kind == "Mul" or (not swapped and constant.all()), "a division of this kind")
        self._moderate(constant)
        factor = np.broadcast_to(1 / constant if kind == "Div" else constant, value.shape).reshape(-1)
        return self._affine([(value, Scale(factor))], value.shape)

    _read_add = _read_sub = _read_mul = _read_div = _read_arithmetic

    def _read_move(self, node: onnx.NodeProto, x: Any, *constants: Any) -> Any:
        """A rearrangement: what is done with the numbers of the elements, −1 standing for 0."""
        default, move = MOVES[node.op_type]
        given, numbers = self._attributes(node, **default), [self._integers(each) for each in constants]
        require(node.op_type == "Gather" or all(each.ndim == 1 for each in numbers), "a list of numbers is expected")
        if not isinstance(x, Value):
            require(node.op_type != "Pad", "Pad of a constant is not known")
            return move(x, given, *numbers)
        index = move(np.arange(prod(x.shape)).reshape(x.shape), given, *numbers)
        require(index.size > 0, "an empty tensor")
        if np.array_equal(index.reshape(-1), np.arange(prod(x.shape))):
            return Value(x.position, index.shape)
        return self._affine([(x, Take(index.reshape(-1), prod(x.shape)))], index.shape, moves=True)

    def _read_concat(self, node: onnx.NodeProto, *given: Any) -> Value:
        sizes = [prod(self._value(x).shape) for x in given]
        starts = [sum(sizes[:number]) for number in range(len(sizes))]
        pieces = [start + np.arange(size).reshape(x.shape) for start, size, x in zip(starts, sizes, given, strict=True)]
        index = np.concatenate(pieces, self._attributes(node, "axis")["axis"])
        parts = []
        for x, start, size in zip(given, starts, sizes, strict=True):
            own = np.where((index >= start) & (index < start + size), index - start, -1)
            parts.append((x, Take(own.reshape(-1), size)))
        return self._affine(parts, index.shape, moves=True)


def _axes(given: dict[str, Any], numbers: NDArray[np.int64] | None) -> Any:
    """The axes of Squeeze and Unsqueeze, which older files have as an attribute and newer ones as an input."""
    axes = given["axes"] if numbers is None else numbers.tolist()
    require(axes is None or len(axes), "an empty list of axes")
    return None if axes is None else tuple(axes)


MOVES: dict[str, tuple[dict[str, Any], Callable[..., NDArray[Any]]]] = {  # attributes, and what is done
    "Identity": ({}, lambda x, given: x),
    "Flatten": ({"axis": 1}, lambda x, given: x.reshape(prod(x.shape[: given["axis"]]), -1)),
    "Reshape": ({}, lambda x, given, sizes: x.reshape([size or x.shape[axis] for axis, size in enumerate(sizes)])),
    "Transpose": ({"perm": None}, lambda x, given: x.transpose(given["perm"])),
    "Squeeze": ({"axes": None}, lambda x, given, axes=None: np.squeeze(x, _axes(given, axes))),
    "Unsqueeze": ({"axes": None}, lambda x, given, axes=None: np.expand_dims(x, _axes(given, axes))),
    "Gather": ({"axis": 0}, lambda x, given, places: np.take(x, places, given["axis"])),
    "Pad": ({}, lambda x, given, widths: np.pad(x, np.reshape(widths, (2, x.ndim)).T, constant_values=-1)),
}
KINDS = (
    "Gemm MatMul Conv AveragePool GlobalAveragePool MaxPool BatchNormalization Relu LeakyRelu Add Sub Mul Div Concat"
)
OPERATORS = {kind: kind.lower() for kind in KINDS.split()}


# ---------------------------------------------------------------------------- 4 VNN-LIB


class Violation(NamedTuple):
    """One way to violate a property: an input of the box whose outputs satisfy matrix · y ≤ bound, row by row.

    The box is rounded outwards to the network's precision, and the bound up, so that nothing is left out.
    """

    lower: Array
    upper: Array
    matrix: Array
    bound: Array


NUMBER = r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?"
PLACE = r"(?:0|[1-9][0-9]{0,8})"
BOUND = re.compile(rf"\(\s*assert\s*\(\s*(<=|>=)\s+X_({PLACE})\s+({NUMBER})\s*\)\s*\)")
DECLARATION = re.compile(rf"\(\s*declare-const\s+([XY])_({PLACE})\s+Real\s*\)")
READ = " @ "  # stands for what was read already: among the statements it is passed over, inside of one it is refused
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


def read_property(content: bytes, network: Network) -> list[Violation]:
    """Read a VNN-LIB 1.0 file: all ways to violate its property."""
    text = re.sub(r";[^\n\r]*", "", content.decode()) if b";" in content else content.decode()
    require("@" not in text and '"' not in text and "|" not in text, "a sign that is not known")
    inputs, outputs = prod(network.shapes[0]), prod(network.shapes[network.output])
    wanted = [*(("X", str(i)) for i in range(inputs)), *(("Y", str(i)) for i in range(outputs))]
    require(sorted(DECLARATION.findall(text)) == sorted(wanted), f"the network has {inputs} inputs, {outputs} outputs")
    box = np.full(inputs, -np.inf), np.full(inputs, np.inf)
    words = DECLARATION.sub(READ, text)
    for sign, index, number in BOUND.findall(words):
        _tighten_box(box, int(index), sign == ">=", number, network.dtype)
    ways: list[list[Constraint]] = [[]]
    statements = [each for each in _expressions(BOUND.sub(READ, words)) if each != READ.strip()]
    require(len(statements) <= 1000, "too many statements")
    for statement in statements:
        require(len(statement) == 2 and statement[0] == "assert", "a statement that is not known")
        ways = _both(ways, _ways(statement[1]))
    return [_violation(way, box, outputs, network.dtype) for way in ways]


def _tighten_box(box: tuple[Array, Array], index: int, below: bool, number: str, dtype: Any) -> None:
    require(index < len(box[0]), f"there is no input X_{index}")
    value = outwards(number, below, dtype)
    box[not below][index] = max(box[0][index], value) if below else min(box[1][index], value)


def _expressions(text: str) -> list[Any]:
    """The nested lists that a text of parentheses stands for."""
    stack: list[list[Any]] = [[]]
    for word in re.findall(r"[()]|[^\s()]+", text):
        if word == "(":
            stack.append([])
        elif word == ")":
            require(1 < len(stack) < 100, "parentheses that do not match, or too many of them")
            stack[-2].append(stack.pop())
        else:
            stack[-1].append(word)
    require(len(stack) == 1, "a parenthesis is not closed")
    return stack[0]


def _both(one: list[list[Constraint]], other: list[list[Constraint]]) -> list[list[Constraint]]:
    require(len(one) * len(other) <= 100_000, "too many ways to violate the property")
    return [a + b for a in one for b in other]


def _ways(formula: Any) -> list[list[Constraint]]:
    """A formula as a list of alternatives, each of which is a list of constraints that all hold."""
    require(isinstance(formula, list) and len(formula) > 1 and isinstance(formula[0], str), "an unknown formula")
    head, *rest = formula
    if head == "or":
        return [way for part in rest for way in _ways(part)]
    if head == "and":
        ways: list[list[Constraint]] = [[]]
        for part in rest:
            ways = _both(ways, _ways(part))
        return ways
    require(head in ("<=", ">=", "<", ">") and len(rest) == 2, f"a formula with {head} is not known")
    known = re.compile(rf"{NUMBER}|[XY]_{PLACE}")
    require(all(known.fullmatch(str(side)) for side in rest), "compare variables and numbers only")
    return [[(rest[0], rest[1]) if head[0] == "<" else (rest[1], rest[0])]]


def _violation(way: list[Constraint], box: tuple[Array, Array], outputs: int, dtype: Any) -> Violation:
    own, rows, bounds = (box[0].copy(), box[1].copy()), [], []
    for small, large in way:
        kinds = small[0] + large[0]
        row, bound = np.zeros(outputs), 0.0
        require("Y" in kinds or ("X" in kinds and kinds != "XX"), "a constraint that is not known")
        require("Y" not in kinds or "X" not in kinds, "a constraint on inputs and outputs at once")
        for name, number, sign in ((small, large, 1), (large, small, -1)):
            if name[0] == "X":
                _tighten_box(own, int(name[2:]), sign < 0, number, dtype)
            elif name[0] == "Y":
                require(int(name[2:]) < outputs, f"there is no output {name}")
                row[int(name[2:])] += sign
                if number[0] != "Y":  # name ≤ number, or −name ≤ −number
                    bound = sign * outwards(number, sign < 0, np.float64)
        if "Y" in kinds:
            rows.append(row)
            bounds.append(bound)
    require(np.isfinite(own).all(), "an input without a lower or an upper bound")
    require(rows, "a way to violate the property that says nothing of the outputs")
    return Violation(*own, np.array(rows).reshape(-1, outputs), np.array(bounds))


# ---------------------------------------------------------------------------- 5 the condensed network
# On a box, most ReLUs are stable: z or 0. They are substituted. What is left is a smaller network of the ReLUs that the
# proof keeps: the input of each is z = M · (x, kept ReLUs before) + c + e, where e is what rounding may do, in the
# network and here. The same M and c serve several boxes.


@dataclass
class Rows:
    """n linear functions: coefficients per block (0 the input, i + 1 the kept ReLUs of layer i), constants (n,).

    ``lost`` (boxes, n) is how far they may be off, with the rounding of a pass that carries them back.
    """

    blocks: dict[int, Array]
    constant: Array
    lost: Array

    def of(self, chosen: Index) -> Rows:
        """Some of the functions."""
        blocks = {block: matrix[chosen] for block, matrix in self.blocks.items()}
        return Rows(blocks, self.constant[chosen], self.lost[:, chosen])


def joined(parts: list[Rows], boxes: int) -> Rows:
    """The functions of several parts in one."""
    widths = {block: matrix.shape[1] for part in parts for block, matrix in part.blocks.items()}
    blocks = {
        block: np.concatenate([part.blocks.get(block, np.zeros((len(part.constant), width))) for part in parts])
        for block, width in widths.items()
    }
    constants, lost = [np.zeros(0), *(p.constant for p in parts)], [np.zeros((boxes, 0)), *(p.lost for p in parts)]
    return Rows(blocks, np.concatenate(constants), np.concatenate(lost, 1))


@dataclass
class Layer:
    """The kept ReLUs of one layer: which they are, their inputs as functions, and the bounds of these on each box."""

    elements: Index
    rows: Rows
    lower: Array
    upper: Array

    def __post_init__(self) -> None:
        """Find the two lines around each ReLU: lower slope, upper slope, and the upper line's value at 0."""
        self.largest, active = np.maximum(-self.lower, self.upper), self.lower >= 0
        unstable = (self.lower < 0) & (self.upper > 0)
        below, above = np.where(unstable, self.lower, 0.0), np.where(unstable, self.upper, 1.0)
        chord = np.where(unstable, above / (above - below), active)
        # raised so far that it lies above the ReLU at both ends, whatever number the computed slope is
        shift = np.maximum(-chord * below, (1 - chord) * above) * (1 + 2.0**-48) + 1e-300
        slope = np.where(unstable, above > -below, active).astype(float)
        self.lines = slope, chord, np.where(unstable, shift, 0.0)


def pick(of_boxes: Array, owner: Index) -> Array:
    """The rows of some boxes; one row for all if there is only one box."""
    return of_boxes if len(of_boxes) == 1 else of_boxes[owner]


def dot(a: Array, of_boxes: Array, owner: Index) -> Array:
    """(n,), the product of each row of a with the row of its box."""
    return a @ of_boxes[0] if len(of_boxes) == 1 else np.einsum("ij,ij->i", a, of_boxes[owner])


class Condensed:
    """A network over some boxes (n, inputs), in terms of the ReLUs that are kept.

    Args:
        network: The network.
        lower: (boxes, inputs), the lower corners.
        upper: (boxes, inputs), the upper corners.
        kept: Per ReLU layer, the elements to keep. All others must turn out to be stable. None keeps the unstable ones.
        slopes: Per ReLU layer, (2, kept, kept before) slopes for a second try at lower and upper bounds, or None.
        exact: Whether the network is run without rounding.
        outer: The same over one box that holds all of these: its bounds of ReLU inputs hold here, too.
    """

    def __init__(
        self,
        network: Network,
        lower: Array,
        upper: Array,
        kept: Any = None,
        slopes: Any = None,
        exact: bool = False,
        outer: Condensed | None = None,
    ) -> None:
        self.network, self.exact, self.kept, self.slopes, self.outer = network, exact, kept, slopes, outer
        self.rho = gamma(4 * sum(map(prod, network.shapes)) + 2000)  # covers all sums over condensed networks
        require((np.abs(lower) < network.most).all() and (np.abs(upper) < network.most).all(), "a very large input")
        self.lower, self.upper = [lower], [upper]  # per value, (boxes, size)
        uses = sum(1 if isinstance(node, Relu) else len(node.parts) for node in network.nodes)
        self.additions = uses + 100  # a coefficient is carried back at most so often, and added up
        self.costs: dict[int, Array] = {}  # per value, what rounding costs per unit of coefficient, (boxes, size)
        self.active: dict[int, Array] = {}  # per ReLU, 1 where it is z, 0 where it is 0 or kept
        self.layers: list[Layer] = []
        self.numbers = {position: number for number, position in enumerate(network.relus())}
        with np.errstate(all="ignore"):
            for position, node in enumerate(network.nodes, 1):
                (self._relu if isinstance(node, Relu) else self._affine)(position, node)

    def largest(self, position: int) -> Array:
        """(boxes, size), how large a value can be."""
        return np.maximum(np.abs(self.lower[position]), np.abs(self.upper[position]))

    def _affine(self, position: int, node: Affine) -> None:
        """The interval of an affine value, and its rounding."""
        if node.moves:
            for side in (self.lower, self.upper):
                side.append(sum(map_.apply(side[source]) for source, map_ in node.parts))
            back = sum(map_.back for _, map_ in node.parts)
            self.costs[position] = gamma(back + self.additions) * self.largest(position) + TINY
            return
        boxes, terms, back, centre, error = len(self.lower[0]), 1, 0, node.constant[None], 0.0
        spread, size, weights, inputs = 0.0, node.size[None], 0.0, 0.0
        for source, map_ in node.parts:
            low, high, largest = self.lower[source], self.upper[source], self.largest(source)
            centre = centre + map_.apply((low + high) / 2)
            sizes = map_.apply(np.concatenate([(high - low) / 2, largest, np.ones((1, low.shape[1]))]), True)
            spread, size, weights = spread + sizes[:boxes], size + sizes[boxes:-1], weights + sizes[-1:]
            terms, back, inputs = terms + map_.terms + 1, back + map_.back, inputs + largest.max(1)[:, None]
        size = size * SLACK
        require((size < self.network.most).all(), "the network may overflow")
        if not (self.exact or node.virtual):
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
        self.costs[position] = error + gamma(size.shape[1] + back + self.additions) * size

    def _relu(self, position: int, node: Relu) -> None:
        """Bound the inputs of a ReLU layer again where intervals leave them open, and keep what the proof keeps."""
        number, source = self.numbers[position], node.source
        low, high = self.lower[source].copy(), self.upper[source].copy()
        if self.outer is not None:
            low, high = np.maximum(low, self.outer.lower[source]), np.minimum(high, self.outer.upper[source])
        kept, found = np.zeros(low.shape[1], bool), []
        if self.kept is not None:
            kept[self.kept[number]] = True
        wanted = (((low < 0) & (high > 0)).any(0) | kept).nonzero()[0]
        for start in range(0, len(wanted), 256):
            some = wanted[start : start + 256]
            rows = self.rows(source, self._single(source, some))
            self._tighten(low, high, some, rows)
            if self.kept is None:
                near = 1e-9 * (high - low)  # another machine may round otherwise
                kept[some] = ((low < near) & (high > -near))[:, some].any(0)
            found.append(rows.of(kept[some].nonzero()[0]))
        elements, rows = kept.nonzero()[0], joined(found, len(low))
        stable = (low >= 0).all(0) | (high <= 0).all(0) | kept
        require(stable.all(), f"ReLU {stable.argmin()} of layer {number} is not kept, and its sign is not proved")
        if self.slopes is not None and self.slopes[number] is not None:
            self._tighten(low, high, elements, rows, self.slopes[number])
        self.layers.append(Layer(elements, rows, low[:, elements], high[:, elements]))
        self.active[position] = ((low >= 0).all(0) & ~kept).astype(float)
        self.lower[source], self.upper[source] = low, high
        self.lower.append(np.maximum(low, 0))
        self.upper.append(np.maximum(high, 0))
        self.costs[position] = gamma(self.additions) * self.largest(source) + TINY

    def _tighten(self, low: Array, high: Array, elements: Index, rows: Rows, slopes: Array | None = None) -> None:
        """Bound the unstable ones of some elements by backward passes, first on the side that may show their sign."""
        first = (low + high < 0)[:, elements]  # 1 for an upper bound, which is −(a lower bound of −z)
        for turn in (0, 1):
            boxes, chosen = ((low < 0) & (high > 0))[:, elements].nonzero()
            for start in range(0, len(boxes), AT_ONCE):
                owner, function = boxes[start : start + AT_ONCE], chosen[start : start + AT_ONCE]
                side, part = first[owner, function] ^ bool(turn), rows.of(function)
                sign, place = np.where(side, -1.0, 1.0), (owner, elements[function])
                blocks = {block: sign[:, None] * matrix for block, matrix in part.blocks.items()}
                lines = self.lines(owner, None if slopes is None else slopes[side.astype(int), function])
                bound = sign * self.bound(blocks, sign * part.constant, rows.lost[owner, function], owner, lines)
                low[place] = np.where(side, low[place], np.maximum(low[place], bound))
                high[place] = np.where(side, np.minimum(high[place], bound), high[place])

    def _single(self, position: int, elements: Index) -> Array | Patches:
        """Some elements of a value as functions of it; on patches if it is an image."""
        shape, number = self.network.shapes[position], np.arange(len(elements))
        if len(shape) == 4 and shape[0] == 1 and shape[2] * shape[3] > 1:
            channel, rest = np.divmod(elements, shape[2] * shape[3])
            values = np.zeros((len(elements), shape[1], 1, 1))
            values[number, channel] = 1
            return Patches(values, rest // shape[3], rest % shape[3], shape[1:])
        values = np.zeros((len(elements), prod(shape)))
        values[number, elements] = 1
        return values

    def rows(self, position: int, start: Array | Patches) -> Rows:
        """Functions of a value as functions of the input and of the kept ReLUs before it: a backward pass."""
        n, boxes = len(start.values if isinstance(start, Patches) else start), len(self.lower[0])
        pending, result = {position: start}, Rows({}, np.zeros(n), np.zeros((boxes, n)))
        for at in range(position, 0, -1):
            if at not in pending:
                continue
            a, node = pending.pop(at), self.network.nodes[at - 1]
            size, cost = np.abs(a.values if isinstance(a, Patches) else a), self.costs[at]
            if isinstance(a, Patches):  # per channel, the largest cost of all pixels
                size, cost = size.sum((2, 3)), cost.reshape(boxes, a.image[0], -1).max(2)
            result.lost += cost @ size.T
            if isinstance(node, Relu):
                number = self.numbers[at]
                kept = self.layers[number].elements
                if len(kept):
                    result.blocks[number + 1] = a.at(kept) if isinstance(a, Patches) else a[:, kept]
                parts = [(node.source, carried_back(a, Scale(self.active[at])))]
            else:
                result.constant += a.times(node.constant) if isinstance(a, Patches) else a @ node.constant
                parts = [(source, carried_back(a, map_)) for source, map_ in node.parts]
            for source, part in parts:
                pending[source] = whole(pending[source]) + whole(part) if source in pending else part
        if 0 in pending:
            result.blocks[0] = whole(pending[0])
        size = np.abs(result.constant) + np.zeros((boxes, 1))
        for block, matrix in result.blocks.items():
            size = (
                size
                + (self.largest(0) if block == 0 else np.maximum(self.layers[block - 1].upper, 0)) @ np.abs(matrix).T
            )
        result.lost = (result.lost + self.rho * size) * SLACK
        return result

    # ------------------------------------------------------------------------ 6 bounds

    def lines(self, owner: Index, alphas: Array | None = None) -> list[tuple[Array, Array, Array]]:
        """The two lines of every kept ReLU so far, for functions of some boxes, with lower slopes of their own."""
        result, first = [], 0
        for layer in self.layers:
            slope, chord, shift = (pick(line, owner) for line in layer.lines)
            if alphas is not None:
                slope = np.where(shift > 0, alphas[:, first : first + len(layer.elements)], slope)
                first += len(layer.elements)
            result.append((slope, chord, shift))
        return result

    def bound(
        self, blocks: dict[int, Array], constant: Array, lost: Array, owner: Index, lines: Any, splits: Any = None
    ) -> Array:
        """Lower bounds of n functions, each on the box of its owner, with every rounding counted.

        Args:
            blocks: The functions' coefficients, as in ``Rows``.
            constant: (n,), their constants.
            lost: (n,), how far they may be off.
            owner: (n,), the box of each.
            lines: Per layer, lower slopes, upper slopes and upper shifts, (n or 1, kept) each.
            splits: Per layer (functions, kept ReLUs, sign · β), what is assumed and subtracted.
        """
        pending, total, lost = dict(blocks), constant.copy(), lost.copy()
        for number in range(len(self.layers) - 1, -1, -1):
            layer, held = self.layers[number], (splits or {}).get(number)
            if not len(layer.elements) or (number + 1 not in pending and held is None):
                continue
            a = pending.pop(number + 1, np.zeros((len(total), len(layer.elements))))
            slope, chord, shift = lines[number]
            negative, size = np.minimum(a, 0), np.abs(a)
            b = (a - negative) * slope + negative * chord
            total += (negative * shift).sum(1)
            if held is not None:
                b[held[:2]] -= held[2]  # no path splits a ReLU twice, so each place is met once
                size[held[:2]] += np.abs(held[2])
            lost += 4 * self.rho * dot(size, layer.largest, owner) + dot(np.abs(b), layer.rows.lost, owner)
            total += b @ layer.rows.constant
            for block, matrix in layer.rows.blocks.items():
                pending[block] = pending[block] + b @ matrix if block in pending else b @ matrix
        if 0 in pending:  # the minimum on a box, by its centre and half width
            g, low, high = pending[0], self.lower[0], self.upper[0]
            total += dot(g, (low + high) / 2, owner) - dot(np.abs(g), (high - low) / 2, owner)
            lost += 3 * self.rho * dot(np.abs(g), self.largest(0), owner)
        result = total - SLACK * lost - TINY
        return np.where(np.isfinite(result), result - 2.0**-50 * np.abs(result), -np.inf)


# ---------------------------------------------------------------------------- 7 the proof file and its trees

MAGIC, MOST_BYTES, DEEPEST, AT_ONCE = b"steadyproof 1\n", 1 << 30, 4096, 256
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
        end = self.at + np.dtype(kind).itemsize * count
        require(end <= len(self.content), "the proof ends too early")
        found = np.frombuffer(self.content[self.at : end], np.dtype(kind).newbyteorder("<"))
        self.at = end
        return found.astype(np.int64 if kind[0] == "u" else np.float64)

    def number(self) -> int:
        """One unsigned number."""
        return int(self.array("u4", 1)[0])

    def slopes(self, *shape: int) -> Array:
        """Numbers in [0, 1], of 8 or 16 bits."""
        bits = self.number()
        require(bits in (8, 16), "slopes have 8 or 16 bits")
        return self.array(f"u{bits // 8}", prod(shape)).reshape(shape) / (2.0**bits - 1)


@dataclass
class Leaves:
    """Leaves of a tree: the box of each, and the ReLU splits on its path as (leaf, kept ReLU, sign) with their β.

    ``slopes`` are rows of the table of slopes, where row 0 stands for the default ones; ``weights`` are the λ.
    """

    boxes: Index
    leaf: Index
    relu: Index
    sign: Array
    beta: Array
    slopes: Index
    weights: Array

    def of(self, chosen: Index, boxes: Index) -> Leaves:
        """Some of the leaves, in order; their boxes are numbered anew, as places in ``boxes``."""
        place = np.full(len(self.boxes), -1)
        place[chosen] = np.arange(len(chosen))
        here = place[self.leaf] >= 0
        where = np.searchsorted(boxes, self.boxes[chosen]), place[self.leaf[here]]
        splits = self.relu[here], self.sign[here], self.beta[here]
        return Leaves(*where, *splits, self.slopes[chosen], self.weights[chosen])


def together(trees: list[Leaves]) -> Leaves:
    """The leaves of several trees; each has weights for the constraints of all of them, 0 for those of the others."""
    counts, firsts = [tree.weights.shape[1] for tree in trees], np.cumsum([0, *(len(tree.boxes) for tree in trees)])
    weights = np.zeros((firsts[-1], sum(counts)))
    for number, tree in enumerate(trees):
        before = sum(counts[:number])
        weights[firsts[number] : firsts[number + 1], before : before + counts[number]] = tree.weights
    leaf = np.concatenate([tree.leaf + first for tree, first in zip(trees, firsts, strict=False)])
    boxes, relu, sign, beta, slopes = (
        np.concatenate([getattr(tree, name) for tree in trees]) for name in ("boxes", "relu", "sign", "beta", "slopes")
    )
    return Leaves(boxes, leaf, relu, sign, beta, slopes, weights)


class Boxes:
    """The different boxes that the trees of a region cut its box into."""

    def __init__(self, lower: Array, upper: Array) -> None:
        self.corners = [(lower, upper)]
        self.numbers = {(lower.tobytes(), upper.tobytes()): 0}

    def halves(self, box: int, axis: int, cut: float) -> list[int]:
        """The numbers of the parts of a box on both sides of a cut, which must lie in it."""
        lower, upper = self.corners[box]
        require(axis < len(lower) and lower[axis] <= cut <= upper[axis], "a cut outside the box")
        below, above = upper.copy(), lower.copy()
        below[axis] = above[axis] = cut
        require(len(self.corners) * len(lower) < 64 * MOST_SPLITS, "too many boxes")
        for part in ((lower, below), (above, upper)):
            if self.numbers.setdefault((part[0].tobytes(), part[1].tobytes()), len(self.corners)) == len(self.corners):
                self.corners.append(part)
        return [self.numbers[part[0].tobytes(), part[1].tobytes()] for part in ((lower, below), (above, upper))]


def read_tree(source: Source, boxes: Boxes, kept: int, constraints: int) -> Leaves:
    """Read a tree: its nodes in preorder, then ReLUs and inputs that are split, then what each leaf needs.

    A ReLU is split into z ≥ 0 and z ≤ 0, an input into what is below and above a number. Each split is followed by both
    its sides, so that the leaves cover all that the tree is about.
    """
    kinds = source.array("u1", source.number())
    splits = int((kinds != LEAF).sum())
    require(len(kinds) == 2 * splits + 1 and splits <= MOST_SPLITS, "a tree whose nodes do not fit, or are too many")
    relus = iter(source.array("u4", int((kinds == RELU).sum())).tolist())
    cut = int((kinds == INPUT).sum())
    inputs, cuts = iter(source.array("u4", cut).tolist()), iter(source.array("f8", cut).tolist())
    owners, paths, waiting = [], [], [(0, ())]
    for kind in kinds.tolist():
        require(waiting, "the tree is longer than its splits")
        box, path = waiting.pop()
        if kind == LEAF:
            owners.append(box)
            paths.append(path)
        elif kind == RELU:
            relu = next(relus)
            require(relu < kept and all(relu != other for other, _ in path), "a ReLU that is not kept, or split twice")
            require(len(path) < DEEPEST, "the tree is too deep")
            waiting += [(box, (*path, (relu, -1))), (box, (*path, (relu, 1)))]
        else:
            require(kind == INPUT, "a node of a kind that is not known")
            waiting += [(part, path) for part in boxes.halves(box, next(inputs), next(cuts))[::-1]]
    require(not waiting, "the tree misses leaves")
    flat = np.array([entry for path in paths for entry in path], np.int64).reshape(-1, 2)
    slopes, betas = source.array("u4", len(paths)), source.array("f4", len(flat))
    weights = source.array("f4", len(paths) * constraints).reshape(-1, constraints)
    for numbers in (betas, weights):
        require(((numbers >= 0) & (numbers < LARGEST)).all(), "a multiplier is negative, too large or not a number")
    leaf = np.repeat(np.arange(len(paths)), [len(path) for path in paths])
    return Leaves(np.array(owners, np.int64), leaf, flat[:, 0], flat[:, 1] + 0.0, betas, slopes, weights)


def constraint_rows(condensed: Condensed, violations: Sequence[Violation]) -> Rows:
    """The functions c·y − d of all constraints of some violations."""
    with np.errstate(all="ignore"):
        rows = condensed.rows(condensed.network.output, np.concatenate([each.matrix for each in violations]))
        bounds = np.concatenate([each.bound for each in violations])
        rows.constant = rows.constant - bounds
        rows.lost = rows.lost + 2 * condensed.rho * (np.abs(rows.constant) + np.abs(bounds))
    return rows


def bound_leaves(condensed: Condensed, rows: Rows, leaves: Leaves, table: Array) -> Array:
    """Lower bounds of the sum of λ·(c·y − d) on each leaf; a positive one shows that nothing is violated there."""
    n, owner, lines, splits, first = len(leaves.boxes), leaves.boxes, [], {}, 0
    for number, found in enumerate(condensed.lines(owner)):
        width = len(condensed.layers[number].elements)
        slope, chord, shift = (np.broadcast_to(line, (n, width)).astype(float) for line in found)
        here = (leaves.relu >= first) & (leaves.relu < first + width)
        place, sign = (leaves.leaf[here], leaves.relu[here] - first), leaves.sign[here]
        slope[place] = chord[place] = sign > 0  # on its side, a ReLU is z or 0
        shift[place] = 0.0
        own = (shift > 0) & (leaves.slopes > 0)[:, None]
        lines.append((np.where(own, table[leaves.slopes, first : first + width], slope), chord, shift))
        if here.any():
            splits[number] = (*place, sign * leaves.beta[here])
        first += width
    blocks = {block: leaves.weights @ matrix for block, matrix in rows.blocks.items()}
    with np.errstate(all="ignore"):
        lost = SLACK * dot(leaves.weights, rows.lost, owner)
        return condensed.bound(blocks, leaves.weights @ rows.constant, lost, owner, lines, splits)


def check_region(source: Source, network: Network, violations: list[Violation], exact: bool) -> int:
    """Read and check what a proof says of the violations that share one box. Returns the number of leaves."""
    require(sum(len(each.bound) for each in violations) <= 1000, "more constraints than rounding is counted for")
    kept, total, refined = [], 0, []
    for relu in network.relus():
        elements = np.cumsum(source.array("u4", source.number()))  # each is stored as its distance from the last one
        require((np.diff(elements) > 0).all() and (elements < prod(network.shapes[relu])).all(), "kept ReLUs")
        kept.append(elements)
    for elements in kept:
        refined.append(source.slopes(2, len(elements), total) if source.number() else None)
        total += len(elements)
    table = np.concatenate([np.zeros((1, total)), *(source.slopes(source.number(), total) for _ in range(2))])
    boxes = Boxes(violations[0].lower, violations[0].upper)
    leaves = together([read_tree(source, boxes, total, len(violation.bound)) for violation in violations])
    require((leaves.slopes < len(table)).all(), "slopes that are not there")
    whole_box = Condensed(network, violations[0].lower[None], violations[0].upper[None], kept, refined, exact)
    used = np.unique(leaves.boxes)
    for start in range(0, len(used), AT_ONCE):
        some = used[start : start + AT_ONCE]
        lower, upper = (np.stack([boxes.corners[box][side] for box in some]) for side in (0, 1))
        cut = some.any()  # box 0 is the whole one
        condensed = Condensed(network, lower, upper, kept, refined, exact, whole_box) if cut else whole_box
        rows, here = constraint_rows(condensed, violations), np.isin(leaves.boxes, some).nonzero()[0]
        for first in range(0, len(here), AT_ONCE):
            bounds = bound_leaves(condensed, rows, leaves.of(here[first : first + AT_ONCE], some), table)
            require((bounds > 0).all(), f"the bound of a leaf is {bounds.min():.3g}, which is not positive")
    return len(leaves.boxes)


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
        sys.stdout.write(f"nothing to check\n{__doc__.split(chr(10) * 2)[1]}\n")
        return 2
    networks: dict[Path, Network] = {}
    refused = 0
    for path, property_file, proof in sorted(jobs):
        try:
            if path not in networks:
                networks[path] = read_network(path.read_bytes())
            found = check(networks[path], property_file.read_bytes(), proof.read_bytes())
            line = f"proved for {found.arithmetic} ({found.leaves} {'leaf' if found.leaves == 1 else 'leaves'})"
        except Refused as error:
            line, refused = f"refused: {error}", refused + 1
        except Exception as error:  # whatever it is, nothing is proved
            line, refused = f"refused: {type(error).__name__}: {error}", refused + 1
        sys.stdout.write(f"{proof.name}: {line}\n")
    sys.stdout.write(f"{len(jobs) - refused} of {len(jobs)} proofs are valid\n" if len(jobs) > 1 else "")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
