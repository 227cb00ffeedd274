"""A property of an ONNX model with known truth, decided from its files as ``steadynet vnncomp`` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from steadynet.errors import UserError
from steadynet.files import write_atomically
from steadynet.interchange.vnnlib.robustness import write_robustness
from steadynet.verification.properties import Verdict
from steadynet.verification.self_test.known import Answer, ConstructionError, KnownInstance, Truth
from steadynet.verification.vnncomp import Instance, InstanceResult, decide

Number = np.float32 | np.float64
Array = NDArray[Number]
OPSET, IR_VERSION = 17, 8
TIMEOUT = 60.0  # seconds


@dataclass(frozen=True)
class FileInstance(KnownInstance):
    """Class 0 of an ONNX model must have the largest score in a box.

    Args:
        model: The model, with one input and one output (1, classes).
        lower: The lower corner of the box, in the shape and the type of the input.
        upper: The upper corner.
        truths: The truth of the property, as the only entry.
    """

    model: onnx.ModelProto
    lower: Array
    upper: Array
    truths: tuple[Truth, ...]

    def decide(self, verifier: str, settings: Mapping[str, object]) -> list[Answer]:
        """Write the files, let the verifier decide, and replay a counterexample on ONNX Runtime."""
        options = dict(settings)
        timeout = float(str(options.pop("timeout", TIMEOUT)))
        with TemporaryDirectory(prefix="steadynet-") as folder:
            self.save(0, Path(folder))
            instance = Instance(Path(folder) / "network.onnx", Path(folder) / "property.vnnlib", timeout)
            try:
                result = decide(instance, verifier, **options)
            except UserError as error:  # a file that is refused is not decided
                reason = str(error).replace(f"{folder}/", "")
                return [Answer(Verdict.ERROR, 0.0, reason=reason)]
        replays = self._replays(result)
        return [
            Answer(
                result.verdict, result.seconds, replays, result.arithmetic, str(result.decided_by), str(result.reason)
            )
        ]

    def save(self, index: int, folder: Path) -> None:
        """Write the model and its property."""
        content = self.model.SerializeToString()
        write_atomically(folder / "network.onnx", lambda path: path.write_bytes(content))
        lower, upper = (torch.from_numpy(np.asarray(corner)) for corner in (self.lower, self.upper))
        write_robustness(folder / "property.vnnlib", lower, upper, 0, len(runtime(self.model)(self.lower)))

    def _replays(self, result: InstanceResult) -> bool:
        if result.verdict is not Verdict.SAT or result.inputs is None or result.inputs.size != self.lower.size:
            return False
        point: Array = result.inputs.astype(self.lower.dtype).reshape(self.lower.shape)
        return bool((point >= self.lower).all() and (point <= self.upper).all()) and refuted(runtime(self.model)(point))


def refuted(scores: Array) -> bool:
    """Return whether another class has at least the score of class 0."""
    return bool((scores[1:] >= scores[0]).any())


def runtime(model: onnx.ModelProto) -> Callable[[Array], Array]:
    """Return a function from an input to the scores (classes,), computed by ONNX Runtime operation by operation."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda point: np.asarray(session.run(None, {name: point})[0]).reshape(-1)


def file_instance(
    model: onnx.ModelProto, lower: Array, upper: Array, truth: Truth, witness: Array | None = None
) -> FileInstance:
    """Return the instance, after its witness was replayed.

    Raises:
        ConstructionError: A property that is said to be violated has no witness that replays.
    """
    if truth is Truth.VIOLATED and (witness is None or not refuted(runtime(model)(witness))):
        raise ConstructionError
    return FileInstance(model, lower, upper, (truth,))


class ModelBuilder:
    """An ONNX graph that is built node by node, in float32 or float64.

    Args:
        shape: The shape of the input, with a batch axis of 1.
        dtype: The type of all numbers.
        constants_as_nodes: Whether constants are ``Constant`` nodes rather than initialisers.
    """

    def __init__(
        self,
        shape: Sequence[int],
        dtype: type[Number] = np.float32,
        *,
        constants_as_nodes: bool = False,
    ) -> None:
        self.shape, self.dtype, self.constants_as_nodes = tuple(shape), dtype, constants_as_nodes
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def constant(self, value: object, dtype: type[np.generic] | None = None) -> str:
        """Add a constant of any shape; return its name."""
        name = f"constant_{len(self.nodes)}_{len(self.weights)}"
        tensor = numpy_helper.from_array(np.array(value, dtype=dtype or self.dtype), name)
        if self.constants_as_nodes:
            self.nodes.append(helper.make_node("Constant", [], [name], value=tensor))
        else:
            self.weights.append(tensor)
        return name

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; return the name of its result."""
        name = f"value_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def model(self, output: str, classes: int | None = None) -> onnx.ModelProto:
        """Return the model whose scores are the value ``output``, of shape (1, classes); else of any, unchecked."""
        kind = TensorProto.FLOAT if self.dtype is np.float32 else TensorProto.DOUBLE
        self.nodes.append(helper.make_node("Identity", [output], ["scores"]))
        graph = helper.make_graph(
            self.nodes,
            "self-test",
            [helper.make_tensor_value_info("input", kind, self.shape)],
            [helper.make_tensor_value_info("scores", kind, None if classes is None else [1, classes])],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
        if classes is not None:
            onnx.checker.check_model(model, full_check=True)
        return model
