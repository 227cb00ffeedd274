"""ONNX Runtime: the independent check of what is read and written, and the judge of counterexamples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from steadynet.interchange.onnx.files import input_entries, input_shape, load_model
from steadynet.interchange.vnnlib.property import Vector

Images = NDArray[np.float32]


def runtime_function(model: onnx.ModelProto) -> Callable[[Images], Images]:
    """Return a function that runs a model with one input and one output on ONNX Runtime.

    Errors of ONNX Runtime are not translated: the function raises whatever ONNX Runtime raises.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
    options.log_severity_level = 4  # errors are raised, not printed
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    (entry,) = input_entries(model)

    def run(images: Images) -> Images:
        (output,) = session.run(None, {entry.name: images})
        return np.asarray(output, dtype=np.float32)

    return run


def flat_runtime_function(path: str | Path) -> Callable[[Vector], Vector]:
    """Return a function from flat inputs to flat outputs: ONNX Runtime, in float32, on a file that is readable."""
    model = load_model(Path(path))
    shape = input_shape(input_entries(model)[0])
    run = runtime_function(model)
    return lambda inputs: run(inputs.astype(np.float32).reshape(shape)).reshape(-1).astype(np.float64)
