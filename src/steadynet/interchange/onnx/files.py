"""ONNX files that nobody vouches for: parsed within limits, and run by ONNX Runtime as the second opinion."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import external_data_helper

from steadynet.errors import UserError, one_line
from steadynet.graph.operations import Shape

LARGEST_FILE = 2**30  # bytes, with external data
DOMAINS = ("", "ai.onnx")


class UnsupportedError(Exception):
    """A valid ONNX model contains something that cannot be read; ``read_onnx`` adds where and raises ``UserError``."""


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


def input_shape(entry: onnx.ValueInfoProto) -> Shape:
    """The shape at batch size 1."""
    kind = entry.type.tensor_type
    if kind.elem_type != onnx.TensorProto.FLOAT or not kind.HasField("shape"):
        raise UnsupportedError("its input is no float32 tensor of known shape")
    shape = [axis.dim_value if axis.HasField("dim_value") else 0 for axis in kind.shape.dim]
    if len(shape) > 1 and shape[0] < 1:
        shape[0] = 1  # not fixed
    if not shape or any(length < 1 for length in shape) or len(shape) > 8:
        raise UnsupportedError(f"its input has the shape {shape}")
    return tuple(shape)


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
