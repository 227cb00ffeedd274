"""One node of an ONNX file as the operators see it: its attributes, and its inputs as tensors or constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch import Tensor

from steadynet.interchange.onnx.files import UnsupportedError
from steadynet.interchange.onnx.graph_builder import GraphValue

Array = NDArray[Any]  # a constant: the element type is the file's choice


class Attributes:
    """The attributes of an ONNX node, read by name and by type.

    >>> node = onnx.helper.make_node("Gemm", ["x", "w"], ["y"], alpha=0.5, transB=1)
    >>> attributes = Attributes(node)
    >>> attributes.number("alpha", 1.0), attributes.flag("transB"), attributes.integer("transA", 0)
    (0.5, True, 0)
    """

    def __init__(self, node: onnx.NodeProto) -> None:
        self._entries = {entry.name: entry for entry in node.attribute}

    def integer(self, name: str, default: int) -> int:
        """Return an integer."""
        entry = self._entry(name, onnx.AttributeProto.INT)
        return default if entry is None else int(entry.i)

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a boolean, which ONNX stores as an integer."""
        return bool(self.integer(name, int(default)))

    def number(self, name: str, default: float) -> float:
        """Return a floating-point number."""
        entry = self._entry(name, onnx.AttributeProto.FLOAT)
        return default if entry is None else float(entry.f)

    def string(self, name: str, default: str) -> str:
        """Return a string."""
        entry = self._entry(name, onnx.AttributeProto.STRING)
        return default if entry is None else entry.s.decode("utf-8", "replace")

    def integers(self, name: str) -> list[int] | None:
        """Return a list of integers, or None if the node does not have it."""
        entry = self._entry(name, onnx.AttributeProto.INTS)
        return None if entry is None else [int(number) for number in entry.ints]

    def numbers(self, name: str) -> list[float] | None:
        """Return a list of floating-point numbers, or None if the node does not have it."""
        entry = self._entry(name, onnx.AttributeProto.FLOATS)
        return None if entry is None else [float(number) for number in entry.floats]

    def tensor(self, name: str) -> onnx.TensorProto | None:
        """Return a tensor, or None if the node does not have it."""
        entry = self._entry(name, onnx.AttributeProto.TENSOR)
        return None if entry is None else entry.t

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def _entry(self, name: str, kind: onnx.AttributeProto.AttributeType) -> onnx.AttributeProto | None:
        entry = self._entries.get(name)
        if entry is not None and (entry.type != kind or entry.ref_attr_name):
            raise UnsupportedError(f"the attribute '{name}' has another type than ONNX defines")
        return entry


@dataclass(frozen=True)
class OnnxNode:
    """One node of the file.

    Each of its inputs is a value of the graph (it depends on the network's input), a constant, or None (left out).
    """

    op_type: str
    inputs: list[GraphValue | Array | None]
    attributes: Attributes
    output_count: int = 1
    dtype: torch.dtype = torch.float32  # that the network computes in
    roundings: tuple[int, ...] = ()  # how many roundings each input saw if it was computed from other constants

    def input(self, index: int) -> GraphValue | Array | None:
        """Return an input; None if it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def value(self, index: int = 0) -> GraphValue:
        """Return an input that must depend on the network's input."""
        found = self.input(index)
        if not isinstance(found, GraphValue):
            raise UnsupportedError("a constant where data is expected")
        return found

    def constant(self, index: int) -> Array | None:
        """Return an input that must be constant; None if it is left out."""
        found = self.input(index)
        if isinstance(found, GraphValue):
            raise UnsupportedError("data where a constant is expected")
        return found

    def weights(self, index: int) -> Tensor:
        """Return a constant that must not be left out, in the precision of the network."""
        found = self.constant(index)
        if found is None:
            raise UnsupportedError("a missing input")
        return self.tensor(found)

    def tensor(self, constant: Array) -> Tensor:
        """Return a constant as a tensor of finite numbers, in the precision of the network."""
        return float_tensor(constant, self.dtype)

    def rounded(self, *indices: int) -> int:
        """Return how many roundings constants saw when they were computed from others: the most of some inputs."""
        return max((self.roundings[index] for index in indices if index < len(self.roundings)), default=0)

    def integers(self, attribute: str, index: int | None = None) -> list[int] | None:
        """Return integers from an attribute or, as in later versions of the operator, from an input."""
        if attribute in self.attributes:
            return self.attributes.integers(attribute)
        found = None if index is None else self.constant(index)
        return None if found is None else [int(number) for number in found.reshape(-1)]

    def axis(self, default: int, rank: int) -> int:
        """Return the attribute ``axis``, counted from the front."""
        return non_negative_axis(self.attributes.integer("axis", default), rank)


def non_negative_axis(axis: int, rank: int) -> int:
    """Return an axis of a tensor with ``rank`` axes, counted from the front.

    >>> non_negative_axis(-1, 4)
    3
    """
    if not -rank <= axis < rank:
        raise UnsupportedError(f"axis {axis} of a tensor with {rank}")
    return axis % rank


def float_tensor(array: Array, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a constant as a tensor of finite numbers, which must have this precision exactly."""
    if array.dtype.kind not in "fiu":
        raise UnsupportedError(f"constants of type {array.dtype}")
    with np.errstate(all="ignore"):
        converted = np.asarray(array, dtype=np.float32 if dtype == torch.float32 else np.float64)
    if not bool(np.isfinite(converted).all()):
        raise UnsupportedError("constants that are not finite")
    if bool((converted != array).any()):
        raise UnsupportedError(
            f"constants of type {array.dtype} that {str(dtype).removeprefix('torch.')} does not hold"
        )
    return torch.tensor(converted)


def scaled(constant: Tensor, factor: float) -> Tensor:
    """Return constant · factor, rounded once unless the factor is 1; a product that underflows is refused.

    >>> scaled(torch.tensor([1.5, 0.0]), 2.0)
    tensor([3., 0.])
    """
    if factor in (0, 1):
        return constant * factor
    product = constant * factor
    check_digits(product, constant != 0)
    return product


def check_digits(computed: Tensor, expected: Tensor | None = None) -> None:
    """Refuse constants that lost their digits to overflow or underflow when they were computed.

    Args:
        computed: The constants.
        expected: Where they cannot be zero; a mask. By default, anywhere.
    """
    least = torch.finfo(computed.dtype).smallest_normal
    lost = computed.abs() < least if expected is None else (computed.abs() < least) & expected
    if not bool(computed.isfinite().all()) or bool(lost.any()):
        raise UnsupportedError("constants that overflow or underflow when they are multiplied or divided")
