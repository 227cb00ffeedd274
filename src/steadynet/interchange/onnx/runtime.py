"""ONNX Runtime: the independent check of what is read and written, and the judge of counterexamples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch

from steadynet.interchange.onnx.files import input_entries, input_precision, input_shape, load_model
from steadynet.interchange.onnx.node import Array
from steadynet.interchange.vnnlib.property import Vector


def runtime_function(model: onnx.ModelProto) -> Callable[[Array], Array]:
    """Return a function that runs a model with one input and one output on ONNX Runtime.

    Inputs and outputs are float32, or float64 if the model computes in float64. Errors of ONNX Runtime are not
    translated: the function raises whatever ONNX Runtime raises.
    """
    output = model.graph.output[0].name
    run = runtime_tensors(model, [output])
    return lambda images: run(images)[output]


def runtime_tensors(model: onnx.ModelProto, names: Iterable[str]) -> Callable[[Array], dict[str, Array]]:
    """Return a function that runs a model on ONNX Runtime and returns the tensors of these names.

    They are computed as the file says, without ONNX Runtime's optimisations, which may leave tensors out.
    """
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    wanted, known = list(dict.fromkeys(names)), {entry.name for entry in model.graph.output}
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in known)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
    options.log_severity_level = 4  # errors are raised, not printed
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(shown.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (entry,) = input_entries(model)
    dtype = _numpy_precision(entry)

    def run(images: Array) -> dict[str, Array]:
        found = session.run(wanted, {entry.name: images.astype(dtype)})
        return {name: np.asarray(value) for name, value in zip(wanted, found, strict=True)}

    return run


def flat_runtime_function(path: str | Path) -> Callable[[Vector], Vector]:
    """Return a function from flat inputs to flat outputs: ONNX Runtime, in the precision of the file."""
    model = load_model(Path(path))
    shape = input_shape(input_entries(model)[0])
    run = runtime_function(model)
    return lambda inputs: run(inputs.reshape(shape)).reshape(-1).astype(np.float64)


def _numpy_precision(entry: onnx.ValueInfoProto) -> type[np.floating[Any]]:
    return np.float32 if input_precision(entry) == torch.float32 else np.float64
