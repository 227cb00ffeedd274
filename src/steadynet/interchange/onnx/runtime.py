"""What ONNX Runtime computes from a file: the judge of counterexamples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray

from steadynet.interchange.onnx.files import input_shape, load_model
from steadynet.interchange.vnnlib.property import Vector

Images = NDArray[np.float32]


def runtime_function(model: onnx.ModelProto) -> Callable[[Images], Images]:
    """The model's one input to its one output, by ONNX Runtime; whatever that raises is passed on."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = 1, 1
    options.log_severity_level = 4  # what goes wrong is raised, not printed
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    given = {entry.name for entry in model.graph.initializer}
    (name,) = (entry.name for entry in model.graph.input if entry.name not in given)

    def run(images: Images) -> Images:
        (output,) = session.run(None, {name: images})
        return np.asarray(output, dtype=np.float32)

    return run


def flat_runtime_function(path: str | Path) -> Callable[[Vector], Vector]:
    """Flat inputs to flat outputs, in float32, of a file that ``read_onnx`` reads."""
    model = load_model(Path(path))
    given = {entry.name for entry in model.graph.initializer}
    shape = input_shape(next(entry for entry in model.graph.input if entry.name not in given))
    run = runtime_function(model)
    return lambda inputs: run(inputs.astype(np.float32).reshape(shape)).reshape(-1).astype(np.float64)
