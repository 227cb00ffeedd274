"""ONNX files into networks. Each network is compared with ONNX Runtime before it is returned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from steadynet.errors import UserError, one_line
from steadynet.graph.graph_network import GraphNetwork
from steadynet.graph.operations import Shape
from steadynet.interchange.onnx.constant_folding import constant_value, fold, shape_value
from steadynet.interchange.onnx.files import UnsupportedError, input_entries, input_shape, load_model, opset_of
from steadynet.interchange.onnx.graph_builder import GraphBuilder, GraphValue, without_batch
from steadynet.interchange.onnx.node import Array, Attributes, OnnxNode
from steadynet.interchange.onnx.operators.table import OPERATORS
from steadynet.interchange.onnx.runtime import runtime_function

TOLERANCE = 1e-4  # of the largest output: float32 sums in another order differ by less


def read_onnx(path: str | Path) -> GraphNetwork:
    """Read a network from an ONNX file.

    If the leading axis of the file's input has length 1 or no fixed length, it is the batch axis. Otherwise the file
    has no batch axis, and the network adds one. Before the network is returned, its outputs on random inputs are
    compared with those of ONNX Runtime.

    Args:
        path: The file. It must have one float32 input of known shape and one output.

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
    path = Path(path)
    model = load_model(path)
    try:
        network, shape = _Reader(model).network()
        _check_same_outputs(network, model, shape)
    except UnsupportedError as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    except Exception as error:  # torch, numpy and ONNX Runtime raise errors of any type when shapes do not fit
        raise UserError(f"{path} cannot be read: {type(error).__name__}: {one_line(error)}") from error
    return network


def _check_same_outputs(network: GraphNetwork, model: onnx.ModelProto, shape: Shape) -> None:
    random, run = np.random.default_rng(0), runtime_function(model)
    for low, high in ((0, 1), (-1, 2), (-10, 10)):
        image = random.uniform(low, high, shape).astype(np.float32)
        with torch.no_grad():
            found = network(torch.from_numpy(image).view(1, *network.input_shape))[0].numpy()
        expected = run(image).reshape(-1)
        if not (np.isfinite(expected).all() and np.isfinite(found).all()):
            raise UnsupportedError("its outputs are not finite")
        allowed = TOLERANCE * (float(np.abs(expected).max()) + 0.01)
        if expected.shape != found.shape or float(np.abs(expected - found).max()) > allowed:
            raise UnsupportedError("ONNX Runtime computes other outputs than the network that was read")


class _Reader:
    """Reads the nodes of a file one after the other; ``tensors`` holds all tensors so far by their names."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model, self.graph, self.opset = model, model.graph, opset_of(model)
        self.builder = GraphBuilder()
        self.tensors: dict[str, GraphValue | Array] = {}

    def network(self) -> tuple[GraphNetwork, Shape]:
        """Return the network, and the shape of the file's input at batch size 1."""
        if self.graph.sparse_initializer:
            raise UnsupportedError("sparse weights")
        for entry in self.graph.initializer:
            self.tensors[entry.name] = numpy_helper.to_array(entry)
        inputs = input_entries(self.model)
        if len(inputs) != 1 or len(self.graph.output) != 1:
            raise UnsupportedError(f"it has {len(inputs)} inputs and {len(self.graph.output)} outputs, not one of each")
        shape = input_shape(inputs[0])
        self.tensors[inputs[0].name] = self.builder.add_input(shape)
        for node in self.graph.node:
            self._read_node(node)
        result = self.tensors.get(self.graph.output[0].name)
        if not isinstance(result, GraphValue):
            raise UnsupportedError("its output does not depend on its input")
        return GraphNetwork(self.builder.build(result), without_batch(shape)), shape

    def _read_node(self, node: onnx.NodeProto) -> None:
        where = f"{node.op_type} ('{node.name or node.output[0]}')"[:100]
        try:
            result = self._result(node)
            for name, value in zip(node.output, result if isinstance(result, list) else [result], strict=False):
                self.tensors[name] = value
        except UnsupportedError as error:
            raise UnsupportedError(f"{error}, at {where}") from error
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
        if len(constants) == len(inputs):
            return fold(node, constants, self.opset, self.builder)
        if node.op_type not in OPERATORS:
            raise UnsupportedError("no bounds are known for this operator")
        self.builder.name = node.name or node.output[0]
        read = OPERATORS[node.op_type]
        return read(OnnxNode(node.op_type, inputs, attributes, len(node.output)), self.builder)
