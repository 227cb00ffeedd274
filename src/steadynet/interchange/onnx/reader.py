"""ONNX files into graphs: what is read has given the same outputs as ONNX Runtime, anything else is an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from steadynet.errors import UserError, one_line
from steadynet.graph.graph_network import GraphNetwork
from steadynet.graph.operations import Shape
from steadynet.interchange.onnx.constant_folding import constant_of, folded, shape_of
from steadynet.interchange.onnx.files import UnsupportedError, input_shape, load_model, opset_of
from steadynet.interchange.onnx.graph_builder import Array, Builder, Call, Value, held
from steadynet.interchange.onnx.operators.table import OPERATORS
from steadynet.interchange.onnx.runtime import runtime_function

TOLERANCE = 1e-4  # of the largest output: what the order of float32 sums may change


def read_onnx(path: str | Path) -> GraphNetwork:
    """The network of an ONNX file: inputs (batch, *input_shape) in, flat outputs (batch, outputs) out.

    The batch is the file's leading axis where that has length 1 or no fixed one; otherwise the file has no batch, and
    takes one of ours. The network has shown the same outputs as ONNX Runtime on random inputs.
    """
    path = Path(path)
    model = load_model(path)
    try:
        network, shape = _Reading(model).network()
        _check_same_output(network, model, shape)
    except UnsupportedError as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    except Exception as error:  # what torch, numpy and ONNX Runtime say to shapes that do not fit
        raise UserError(f"{path} cannot be read: {type(error).__name__}: {one_line(error)}") from error
    return network


def _check_same_output(network: GraphNetwork, model: onnx.ModelProto, shape: Shape) -> None:
    random, run = np.random.default_rng(0), runtime_function(model)
    for low, high in ((0, 1), (-1, 2), (-10, 10)):
        image = random.uniform(low, high, shape).astype(np.float32)
        with torch.no_grad():
            found = network(torch.from_numpy(image).view(1, *network.input_shape))[0].numpy()
        expected = run(image).reshape(-1)
        if not (np.isfinite(expected).all() and np.isfinite(found).all()):
            raise UnsupportedError("its outputs are not finite")
        room = TOLERANCE * (float(np.abs(expected).max()) + 0.01)
        if expected.shape != found.shape or float(np.abs(expected - found).max()) > room:
            raise UnsupportedError("ONNX Runtime computes something else from it than we do")


class _Reading:
    """One walk over the nodes of a file; ``known`` holds every tensor so far, made from data or constant."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.graph, self.opset = model.graph, opset_of(model)
        self.builder = Builder()
        self.known: dict[str, Value | Array] = {}

    def network(self) -> tuple[GraphNetwork, Shape]:
        """The network, and the shape of the file's input at batch size 1."""
        for entry in self.graph.initializer:
            self.known[entry.name] = numpy_helper.to_array(entry)
        if self.graph.sparse_initializer:
            raise UnsupportedError("sparse weights")
        inputs = [entry for entry in self.graph.input if entry.name not in self.known]
        if len(inputs) != 1 or len(self.graph.output) != 1:
            raise UnsupportedError(f"it has {len(inputs)} inputs and {len(self.graph.output)} outputs, not one of each")
        shape = input_shape(inputs[0])
        self.known[inputs[0].name] = self.builder.input(shape)
        for node in self.graph.node:
            self._read(node)
        result = self.known.get(self.graph.output[0].name)
        if not isinstance(result, Value):
            raise UnsupportedError("its output does not depend on its input")
        return GraphNetwork(self.builder.finished(result), held(shape)), shape

    def _read(self, node: onnx.NodeProto) -> None:
        where = f"{node.op_type} ('{node.name or node.output[0]}')"[:100]
        try:
            result = self._result(node)
            for name, value in zip(node.output, result if isinstance(result, list) else [result], strict=False):
                self.known[name] = value
        except UnsupportedError as error:
            raise UnsupportedError(f"{error}, at {where}") from error
        except Exception as error:  # what torch and numpy say to shapes that do not fit
            raise UnsupportedError(f"{one_line(error)}, at {where}") from error

    def _result(self, node: onnx.NodeProto) -> Value | Array | list[Value]:
        options: dict[str, Any] = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
        if node.op_type == "Constant":
            return constant_of(options)
        if any(name and name not in self.known for name in node.input):
            raise UnsupportedError("an input that nothing makes")
        inputs = [self.known[name] if name else None for name in node.input]
        if node.op_type == "Shape" and inputs[0] is not None:
            return shape_of(tuple(inputs[0].shape), options)
        constants = [value for value in inputs if not isinstance(value, Value)]
        if len(constants) == len(inputs):
            return folded(node, constants, self.opset, self.builder)
        if node.op_type not in OPERATORS:
            raise UnsupportedError("no bounds are known for this operator")
        self.builder.name = node.name or node.output[0]
        call = Call(node.op_type, self.builder.name, inputs, options, self.opset, len(node.output))
        return OPERATORS[node.op_type](call, self.builder)
