"""ONNX files that nobody vouches for: parsed within limits, and run by ONNX Runtime as the second opinion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import external_data_helper

from steadynet.errors import UserError, one_line

LARGEST_FILE = 2**30  # bytes, with external data
DOMAINS = ("", "ai.onnx")

Images = NDArray[np.float32]


def load_model(path: Path) -> onnx.ModelProto:
    """The model of a file, checked for form, with external data only from the file's own folder."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise UserError(f"{path} is larger than {LARGEST_FILE >> 20} MiB")
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {path}: {one_line(error)}") from error
    try:
        model = onnx.ModelProto.FromString(content)
        _load_external_data(model, path)
        onnx.checker.check_model(model)
    except UserError:
        raise
    except Exception as error:  # protobuf, the checker and numpy have no common error
        raise UserError(f"{path} is not a valid ONNX file: {one_line(error)}") from error
    if model.functions or any(node.domain not in DOMAINS for node in model.graph.node):
        raise UserError(f"{path} uses operators that are not ONNX's own")
    return model


def opset_of(model: onnx.ModelProto) -> int:
    """The version of ONNX's own operators."""
    return max(entry.version for entry in model.opset_import if entry.domain in DOMAINS)


def runtime(model: onnx.ModelProto) -> Callable[[Images], Images]:
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


def _load_external_data(model: onnx.ModelProto, path: Path) -> None:
    folder = path.parent.resolve()
    total = 0
    for tensor in _tensors(model):
        if not external_data_helper.uses_external_data(tensor):
            continue
        location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
        place = (folder / location).resolve()
        if not location or folder not in place.parents:
            raise UserError(f"{path} wants data from outside its folder: '{location}'")
        if not place.is_file():
            raise UserError(f"{path} wants data from {place}, which is no file")
        total += place.stat().st_size  # each tensor may read the whole file again
        if total > LARGEST_FILE:
            raise UserError(f"the external data of {path} is larger than {LARGEST_FILE >> 20} MiB")
        external_data_helper.load_external_data_for_tensor(tensor, str(folder))
        tensor.ClearField("data_location")
        del tensor.external_data[:]


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Weights, and what constant nodes hold; nodes with subgraphs are not read at all."""
    yield from model.graph.initializer
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
