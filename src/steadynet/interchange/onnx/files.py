"""ONNX files, which may come from anyone: loaded and checked within limits."""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import onnx
import torch
from onnx import external_data_helper

from steadynet.errors import UserError, one_line
from steadynet.graph.operations import Shape

MAX_FILE_SIZE = 2**30  # bytes, with external data
DOMAINS = ("", "ai.onnx")
MACHINE_LEARNING = "ai.onnx.ml"  # trees, encoders and the like, which exporters of scikit-learn use
EXPORT = "write the nn.Module that it was made from as ONNX (torch.onnx.export)"


class UnsupportedError(Exception):
    """A valid ONNX model contains something that cannot be read; ``read_onnx`` adds where and raises ``UserError``."""


def load_model(path: Path) -> onnx.ModelProto:
    """Load a model and check that it is valid ONNX. A file that ends with ``.gz`` is unpacked.

    External data is read from the file's own folder and from nowhere else.

    Raises:
        UserError: The file cannot be read, is too large, is not valid ONNX, or uses operators of another vendor.
    """
    try:
        if path.stat().st_size > MAX_FILE_SIZE:
            raise UserError(f"{path} is larger than {MAX_FILE_SIZE >> 20} MiB")
        content = _unpacked(path) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"cannot read {path}: {one_line(error)}") from error
    if pytorch := _described_pytorch_file(content, path):
        raise UserError(pytorch)
    try:
        model = onnx.ModelProto.FromString(content)
        _load_external_data(model, path)
    except UserError:
        raise
    except Exception as error:  # protobuf and numpy have no common error
        raise UserError(f"{path} is not a valid ONNX file: {one_line(error)}") from error
    return checked_model(model, str(path))


def checked_model(model: onnx.ModelProto, path: str) -> onnx.ModelProto:
    """Check that a model is valid ONNX and uses no operators of another vendor. ``path`` is its name in messages.

    Raises:
        UserError: It is not valid, or uses such operators.
    """
    try:
        onnx.checker.check_model(model)
    except Exception as error:  # the checker has errors of its own
        raise UserError(f"{path} is not a valid ONNX file: {one_line(error)}") from error
    if foreign := _foreign_operators(model):
        raise UserError(f"{path} {foreign}")
    return model


def _foreign_operators(model: onnx.ModelProto) -> str:
    """Say which operators outside the standard a model uses; an empty text if there are none."""
    nodes = [node for node in model.graph.node if node.domain not in DOMAINS]
    names = ", ".join(dict.fromkeys(node.op_type for node in nodes))[:200]
    if any(node.domain == MACHINE_LEARNING for node in nodes):
        return f"is a scikit-learn model: operators of {MACHINE_LEARNING} are not supported ({names})"
    if nodes:
        domains = ", ".join(dict.fromkeys(node.domain for node in nodes))[:100]
        return f"uses operators that are not part of ONNX: those of {domains} are not supported ({names})"
    if model.functions:
        names = ", ".join(function.name for function in model.functions)[:200]
        return f"has functions of its own, which are not part of ONNX ({names}): export it without functions"
    return ""


def _described_pytorch_file(content: bytes, path: Path) -> str:
    """Say what a file of PyTorch is and what to do; an empty text if it is none."""
    try:
        names = zipfile.ZipFile(io.BytesIO(content)).namelist()
    except zipfile.BadZipFile:
        return ""
    parts = {tuple(name.split("/")[1:2]) for name in names}
    if ("data.pkl",) not in parts:
        return ""
    if ("code",) in parts:
        return f"{path} is a TorchScript file, which is not supported: {EXPORT}"
    return f"{path} is a PyTorch file, not an ONNX file: {EXPORT}"


def _unpacked(path: Path) -> bytes:
    """Unpack a file, but never more bytes than are read of any file."""
    with gzip.open(path) as file:
        content = file.read(MAX_FILE_SIZE + 1)
    if len(content) > MAX_FILE_SIZE:
        raise UserError(f"{path} is larger than {MAX_FILE_SIZE >> 20} MiB when it is unpacked")
    return content


def opset_of(model: onnx.ModelProto) -> int:
    """Return the version of the ONNX operators."""
    return max(entry.version for entry in model.opset_import if entry.domain in DOMAINS)


def input_entries(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs of a model. Old files also list the weights as inputs; these are left out."""
    weights = {entry.name for entry in model.graph.initializer}
    return [entry for entry in model.graph.input if entry.name not in weights]


PRECISIONS: dict[int, torch.dtype] = {
    onnx.TensorProto.FLOAT: torch.float32,
    onnx.TensorProto.DOUBLE: torch.float64,
}


def input_precision(entry: onnx.ValueInfoProto) -> torch.dtype:
    """Return the precision of an input, which is that of the network."""
    kind = entry.type.tensor_type.elem_type
    if kind not in PRECISIONS:
        raise UnsupportedError("its input is not a tensor of float32 or float64")
    return PRECISIONS[kind]


def input_shape(entry: onnx.ValueInfoProto) -> Shape:
    """Return the shape of an input at batch size 1."""
    kind = entry.type.tensor_type
    if not kind.HasField("shape"):
        raise UnsupportedError("its input has no known shape")
    shape = [axis.dim_value if axis.HasField("dim_value") else 0 for axis in kind.shape.dim]
    if len(shape) > 1 and shape[0] < 1:
        shape[0] = 1  # the batch size is not fixed
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
            raise UserError(f"{path} refers to external data outside its folder: '{location}'")
        if not place.is_file():
            raise UserError(f"{path} refers to external data in {place}, which is not a file")
        total += place.stat().st_size  # each tensor may read the whole file again
        if total > MAX_FILE_SIZE:
            raise UserError(f"the external data of {path} is larger than {MAX_FILE_SIZE >> 20} MiB")
        external_data_helper.load_external_data_for_tensor(tensor, str(folder))
        tensor.ClearField("data_location")
        del tensor.external_data[:]


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Iterate over the weights and the tensors in attributes; subgraphs are not searched, since they are never read."""
    yield from model.graph.initializer
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
