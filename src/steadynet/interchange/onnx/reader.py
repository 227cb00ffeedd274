"""ONNX files into networks. Each network is compared with ONNX Runtime before it is returned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from steadynet.errors import UserError, one_line
from steadynet.graph.graph_network import GraphNetwork
from steadynet.graph.operations import Shape
from steadynet.graph.trace import LEAVE_OUT
from steadynet.interchange.onnx.comparison import example_images, runtime_deviation
from steadynet.interchange.onnx.constant_folding import constant_value, fold, shape_value
from steadynet.interchange.onnx.files import (
    UnsupportedError,
    checked_model,
    input_entries,
    input_precision,
    input_shape,
    load_model,
    opset_of,
)
from steadynet.interchange.onnx.graph_builder import GraphBuilder, GraphValue, without_batch
from steadynet.interchange.onnx.node import Array, Attributes, OnnxNode
from steadynet.interchange.onnx.operators.table import OPERATORS
from steadynet.interchange.onnx.runtime import runtime_tensors
from steadynet.interchange.vnnlib.property import Vector


def read_onnx(path: str | Path | onnx.ModelProto, compare_at: Sequence[Vector] = ()) -> GraphNetwork:
    """Read a network from an ONNX file.

    If the leading axis of the file's input has length 1 or no fixed length, it is the batch axis. Otherwise the file
    has no batch axis, and the network adds one. Before the network is returned, all that it computes is compared with
    ONNX Runtime, layer by layer and number by number, each within its own rounding: on random inputs and on inputs that
    the caller chooses.

    Args:
        path: The file, or a model in memory. It must have one input of known shape, in float32 or float64, and one
            output. The network computes in the same precision.
        compare_at: Flat inputs to compare on, for example the corners of a box. Those of another size are ignored.

    Returns:
        A network that maps inputs of shape (batch, *input_shape) to flat outputs of shape (batch, outputs).

    Raises:
        UserError: The file cannot be read, is not valid ONNX, uses an operator that bounds are not known for, or
            computes something else on ONNX Runtime.

    >>> from steadynet.interchange.onnx.writer import export_onnx
    >>> from tempfile import TemporaryDirectory
    >>> original = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(4, 3))
    >>> with TemporaryDirectory() as folder:
    ...     export_onnx(original, (1, 2, 2), f"{folder}/model.onnx")
    ...     network = read_onnx(f"{folder}/model.onnx")
    >>> network.input_shape, network(torch.rand(5, 1, 2, 2)).shape
    ((1, 2, 2), torch.Size([5, 3]))
    """
    if isinstance(path, onnx.ModelProto):
        called, model = "the ONNX model", checked_model(path, "the ONNX model")
    else:
        called, model = str(path), load_model(Path(path))
    try:
        reading = _Reader(model).read()
        reading.check(model, compare_at)
    except UnsupportedError as error:
        raise UserError(f"{called} cannot be read: {error}") from error
    except Exception as error:  # torch, numpy and ONNX Runtime raise errors of any type when shapes do not fit
        raise UserError(f"{called} cannot be read: {type(error).__name__}: {one_line(error)}") from error
    return reading.network


class _Reading(NamedTuple):
    """A network, and what is needed to compare it with its file.

    Attributes:
        network: The network.
        shape: The shape of the file's input at batch size 1.
        dtype: The precision that it computes in.
        tensors: The position in the graph of each tensor of the file that the output depends on.
    """

    network: GraphNetwork
    shape: Shape
    dtype: torch.dtype
    tensors: dict[str, int]

    def check(self, model: onnx.ModelProto, compare_at: Sequence[Vector]) -> None:
        """Compare the network with ONNX Runtime, on examples and on further flat inputs."""
        images = example_images(self.network.input_shape, self.dtype)
        fitting = [point for point in compare_at if point.size == math.prod(self.shape)]
        if fitting:
            with np.errstate(over="ignore"):
                points = np.stack(fitting).astype(images.dtype)
            held = points[np.isfinite(points).all(1)]  # some may be too large for float32
            images = np.concatenate([images, held.reshape(-1, *self.network.input_shape)])
        run = runtime_tensors(model, self.tensors)
        with torch.no_grad():
            deviation = runtime_deviation(
                self.network.graph, images, self.tensors, lambda image: run(image.reshape(self.shape))
            )
        if deviation is not None and deviation.overflows:
            raise UnsupportedError(f"it overflows: {deviation}")
        if deviation is not None:
            raise UnsupportedError(f"ONNX Runtime computes something else than the network that was read: {deviation}")


class _Reader:
    """Reads the nodes of a file one after the other; ``tensors`` holds all tensors so far by their names."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model, self.graph, self.opset = model, model.graph, opset_of(model)
        self.builder = GraphBuilder()
        self.tensors: dict[str, GraphValue | Array] = {}
        self.roundings: dict[str, int] = {}  # of constants that are computed from others, by name

    def read(self) -> _Reading:
        """Read the whole file."""
        if self.graph.sparse_initializer:
            raise UnsupportedError("sparse weights")
        for entry in self.graph.initializer:
            self.tensors[entry.name] = numpy_helper.to_array(entry)
        inputs = input_entries(self.model)
        if len(inputs) != 1 or len(self.graph.output) != 1:
            raise UnsupportedError(f"it has {len(inputs)} inputs and {len(self.graph.output)} outputs, not one of each")
        shape, self.builder.dtype = input_shape(inputs[0]), input_precision(inputs[0])
        self.tensors[inputs[0].name] = self.builder.add_input(shape)
        for node in self.graph.node:
            self._read_node(node)
        result = self.tensors.get(self.graph.output[0].name)
        if not isinstance(result, GraphValue):
            raise UnsupportedError("its output does not depend on its input")
        graph, moved = self.builder.build(result)
        found = {name: value.position for name, value in self.tensors.items() if isinstance(value, GraphValue)}
        tensors = {
            name: moved[position] for name, position in found.items() if position in moved and name != inputs[0].name
        }
        tensors[self.graph.output[0].name] = graph.output
        return _Reading(GraphNetwork(graph, without_batch(shape)), shape, self.builder.dtype, tensors)

    def _read_node(self, node: onnx.NodeProto) -> None:
        where = f"{node.op_type} ('{node.name or node.output[0]}')"[:100]
        try:
            result = self._result(node)
            for name, value in zip(node.output, result if isinstance(result, list) else [result], strict=False):
                self.tensors[name] = value
        except UnsupportedError as error:
            hint = LEAVE_OUT if node.op_type in ("Softmax", "LogSoftmax") else ""
            raise UnsupportedError(f"{error}, at {where}{hint}") from error
        except Exception as error:  # torch and numpy raise errors of any type when shapes do not fit
            raise UnsupportedError(f"{one_line(error)}, at {where}") from error

    def _result(self, node: onnx.NodeProto) -> GraphValue | Array | list[GraphValue]:
        attributes = Attributes(node)
        if node.op_type == "Constant":
            return constant_value(attributes)
        if any(name and name not in self.tensors for name in node.input):
            raise UnsupportedError("an input that no node computes")
        inputs = [self.tensors[name] if name else None for name in node.input]
        if node.op_type == "Shape" and inputs[0] is not None:
            return shape_value(tuple(inputs[0].shape), attributes)
        constants = [value for value in inputs if not isinstance(value, GraphValue)]
        roundings = tuple(self.roundings.get(name, 0) for name in node.input)
        if len(constants) == len(inputs):
            folded = fold(node, constants, roundings, self.opset, self.builder)
            self.roundings[node.output[0]] = folded.roundings
            return folded.value
        if node.op_type not in OPERATORS:
            raise UnsupportedError("no bounds are known for this operator")
        self.builder.name = node.name or node.output[0]
        read = OPERATORS[node.op_type]
        described = OnnxNode(node.op_type, inputs, attributes, len(node.output), self.builder.dtype, roundings)
        return read(described, self.builder)
