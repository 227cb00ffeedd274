"""What ONNX Runtime computes from a file: the judge of counterexamples."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from steadynet.interchange.onnx.file import load_model, runtime
from steadynet.interchange.onnx.reader import input_shape
from steadynet.interchange.vnnlib.specification import Vector


def reference(path: str | Path) -> Callable[[Vector], Vector]:
    """Flat inputs to flat outputs, in float32, of a file that ``read_onnx`` reads."""
    model = load_model(Path(path))
    given = {entry.name for entry in model.graph.initializer}
    shape = input_shape(next(entry for entry in model.graph.input if entry.name not in given))
    run = runtime(model)
    return lambda inputs: run(inputs.astype(np.float32).reshape(shape)).reshape(-1).astype(np.float64)
