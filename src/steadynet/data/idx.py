"""Read IDX files, the format of MNIST and Fashion-MNIST."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from steadynet.data.cache import Arrays
from steadynet.data.sources import Files, require

IDX_FILES = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
PACKED_IDX_FILES = tuple(f"{name}.gz" for name in IDX_FILES.values())


def decode_idx_files(files: Files) -> Arrays:
    """Decode the four IDX files of a data set; images get one channel."""
    require(files, IDX_FILES.values())
    arrays = {key: decode_idx(files[name]) for key, name in IDX_FILES.items()}
    return {key: array[:, None] if array.ndim == 3 else array for key, array in arrays.items()}


def decode_idx(content: bytes) -> NDArray[np.uint8]:
    """Decode one IDX file of unsigned bytes.

    Raises:
        ValueError: The content is something else.

    >>> decode_idx(bytes([0, 0, 8, 1, 0, 0, 0, 3, 5, 0, 4]))
    array([5, 0, 4], dtype=uint8)
    """
    if content[:3] != b"\0\0\x08" or len(content) < 4:
        raise ValueError("not an IDX file of unsigned bytes")
    axes = content[3]
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", axes, offset=4))
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape).copy()
