"""ONNX Runtime: the independent check of what is read and written, and the judge of counterexamples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NotImplementedByRuntimeError

from steadynet.errors import UserError, one_line
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


def runtime_tensors(
    model: onnx.ModelProto, names: Iterable[str], *, optimised: bool = False
) -> Callable[[Array], dict[str, Array]]:
    """Return a function that runs a model on ONNX Runtime and returns the tensors of these names.

    ONNX Runtime lacks some operators in float64, convolutions for one. A model with such an operator is run by ONNX's
    reference implementation instead, which is slow.

    Args:
        model: The model.
        names: The names of the tensors.
        optimised: Whether ONNX Runtime may join operators, as it does by default. Otherwise they are computed one by
            one, as the file says. So they are where its optimiser fails, as with a Relu before a Clip in float64.
    """
    shown = onnx.ModelProto()
    shown.CopyFrom(model)
    wanted, known = list(dict.fromkeys(names)), {entry.name for entry in model.graph.output}
    shown.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name not in known)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
    options.log_severity_level = 4  # errors are raised, not printed
    session = _session(shown, options, optimised)
    (entry,) = input_entries(model)
    dtype = _numpy_precision(entry)

    def run(images: Array) -> dict[str, Array]:
        found: Any = session.run(wanted, {entry.name: images.astype(dtype)})
        return {name: np.asarray(value) for name, value in zip(wanted, found, strict=True)}

    return run


def flat_runtime_functions(path: str | Path) -> list[Callable[[Vector], Vector]]:
    """Return functions from flat inputs to flat outputs: ONNX Runtime, in the precision of the file.

    The first one runs the file as ONNX Runtime does by default, the second one without its optimisations.

    Raises:
        UserError: The file cannot be read, or ONNX Runtime does not take it.
    """
    model = load_model(Path(path))
    shape, output = input_shape(input_entries(model)[0]), model.graph.output[0].name

    def flat(run: Callable[[Array], dict[str, Array]]) -> Callable[[Vector], Vector]:
        return lambda inputs: run(inputs.reshape(shape))[output].reshape(-1).astype(np.float64)

    try:
        return [flat(runtime_tensors(model, [output], optimised=optimised)) for optimised in (True, False)]
    except Exception as error:  # ONNX Runtime raises errors of many types
        raise UserError(f"ONNX Runtime does not run {path}: {one_line(error)}") from error


def _session(model: onnx.ModelProto, options: onnxruntime.SessionOptions, optimised: bool) -> Any:
    """Return what runs a model: ONNX Runtime, or ONNX's reference implementation where that lacks an operator."""
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimised else levels.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except NotImplementedByRuntimeError:
        from onnx.reference import ReferenceEvaluator  # rarely needed, and slow to import

        return ReferenceEvaluator(model)
    except Exception:  # of any type
        if not optimised:
            raise
        return _session(model, options, optimised=False)


def _numpy_precision(entry: onnx.ValueInfoProto) -> type[np.floating[Any]]:
    return np.float32 if input_precision(entry) == torch.float32 else np.float64
