"""SHA-256 hashes of files, images and source code."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from steadynet.data import Images
from steadynet.errors import UserError, one_line


def file_hash(path: Path) -> str:
    """Return the SHA-256 hash of a file's bytes.

    Raises:
        UserError: The file cannot be read.
    """
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise UserError(f"cannot read {path}: {one_line(error)}") from error


def images_hash(images: Images, positions: torch.Tensor) -> str:
    """Return the SHA-256 hash of some images and their labels.

    >>> images = Images(torch.tensor([[0.5], [1.0]]), torch.tensor([3, 4]))
    >>> by_hand = bytes.fromhex("0000803f") + (4).to_bytes(8, "little")  # 1.0 as float32, then the label
    >>> images_hash(images, torch.tensor([1])) == hashlib.sha256(by_hand).hexdigest()
    True
    """
    pixels, labels = images.pixels(positions).numpy(), images.labels[positions].numpy()
    return hashlib.sha256(pixels.astype("<f4").tobytes() + labels.astype("<i8").tobytes()).hexdigest()


def weights_hash(weights: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 hash of the values of weights. Equal weights in different files have the same hash.

    It is that of, for each tensor in the order of the names: its name, its type and its shape, separated by spaces, a
    line end, and its bytes.

    >>> by_hand = b"bias float32 (1,)\\n" + bytes.fromhex("0000803f")  # 1.0
    >>> weights_hash({"bias": torch.ones(1)}) == hashlib.sha256(by_hand).hexdigest()
    True
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        kind = str(tensor.dtype).removeprefix("torch.")
        digest.update(f"{name} {kind} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def source_hash(folder: Path) -> str:
    """Return the SHA-256 hash of a package's source files: path and content of each, in the order of the paths."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py"), key=lambda path: path.relative_to(folder).as_posix()):
        digest.update(f"{path.relative_to(folder).as_posix()}\0{file_hash(path)}\n".encode())
    return digest.hexdigest()
