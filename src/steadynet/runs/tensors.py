"""Weights and checkpoints as safetensors files: tensors with a JSON header, never a pickle."""

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
    """Write tensors and some facts about them into one file, atomically and with a checksum.

    Args:
        path: The file.
        tensors: The tensors by name.
        facts: Anything that JSON can hold.

    Raises:
        UserError: The file cannot be written.
    """
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
    """Read the tensors and the facts that :func:`save_tensors` wrote.

    Raises:
        UserError: There is no such file, or it is damaged: a wrong tensor is never returned.
    """
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
    """Load weights into a network.

    Raises:
        UserError: They are the weights of another network. ``source`` is named in the message.
    """
    try:
        network.load_state_dict(tensors)
    except RuntimeError as error:
        raise UserError(f"the weights in {source} are of another network: {one_line(error)}") from error


def optimiser_tensors(optimiser: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Return the tensors of an optimiser's state by the names ``optimiser.<parameter>.<name>``."""
    state = optimiser.state_dict()["state"]
    return {
        f"optimiser.{index}.{name}": value if isinstance(value, Tensor) else torch.tensor(value)
        for index, entry in state.items()
        for name, value in entry.items()
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, tensors: dict[str, Tensor], groups: list[Any]) -> None:
    """Restore an optimiser's state from the tensors that :func:`optimiser_tensors` returned.

    Each tensor gets the memory layout of its parameter. In another layout, sums would be rounded in another order, and
    a resumed training would not end with the same bits.
    """
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
