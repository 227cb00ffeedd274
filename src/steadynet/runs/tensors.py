"""Weights and checkpoints as safetensors: tensors with a JSON header, never a pickle."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from steadynet.errors import UserError, one_line
from steadynet.files import write_atomically


def save_tensors(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
    """Tensors and a dictionary of plain facts, with a checksum, all or nothing."""
    stored = {
        name: tensor.detach().to("cpu").clone(memory_format=torch.contiguous_format)  # tied weights share memory
        for name, tensor in tensors.items()
    }
    text = json.dumps(facts)
    metadata = {"facts": text, "checksum": _checksum(stored, text)}
    write_atomically(path, lambda temporary: _save(stored, temporary, metadata))


def _save(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str]) -> None:
    try:
        save_file(tensors, path, metadata)
    except SafetensorError as error:
        raise OSError(str(error)) from error


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What :func:`save_tensors` wrote; a damaged file is an error, never a wrong tensor."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dictionary)
    except FileNotFoundError as error:
        raise UserError(f"there is no {path}") from error
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path} is damaged and cannot be used ({one_line(error)})") from error
    if metadata.get("checksum") != _checksum(tensors, metadata.get("facts", "")):
        raise UserError(f"{path} is damaged and cannot be used (its checksum does not fit)")
    return tensors, json.loads(metadata["facts"])


def _checksum(tensors: dict[str, Tensor], facts: str) -> str:
    value = zlib.crc32(facts.encode())
    for name, tensor in sorted(tensors.items()):
        value = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), value)
        value = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, value)
    return f"{value:08x}"


def load_weights(network: nn.Module, tensors: dict[str, Tensor], source: Path) -> None:
    """Put weights into a network of the same shape."""
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise UserError(f"the weights in {source} are of another network: {one_line(error)}") from error


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The optimiser's state, flat: ``optimiser.<parameter>.<name>``."""
    state = optimiser.state_dict()["state"]
    return {
        f"optimiser.{index}.{name}": value if isinstance(value, Tensor) else torch.tensor(value)
        for index, entry in state.items()
        for name, value in entry.items()
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor], groups: list[Any]) -> None:
    """The state back where it was, each tensor in the memory layout of its parameter, so that sums round alike."""
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        kind, _, rest = key.partition(".")
        if kind == "optimiser":
            index, _, name = rest.partition(".")
            state.setdefault(int(index), {})[name] = tensor
    optimiser.load_state_dict({"state": state, "param_groups": groups})
    for parameter in parameters:
        for name, value in optimiser.state.get(parameter, {}).items():
            if isinstance(value, Tensor) and value.shape == parameter.shape:
                optimiser.state[parameter][name] = torch.empty_like(parameter).copy_(value)
