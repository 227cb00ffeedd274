"""Sparse forms of a matrix and of its transpose, from one look at its entries.

PyTorch's own conversion takes as long as some hundred products with the result. NumPy finds the entries that are not
zero several times faster, and sorting these few by their columns gives the transpose.
"""

from __future__ import annotations

import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_SHORT = 1 << 15  # columns that fit 16 bits, for which NumPy sorts in linear time


def sparse_forms(dense: Tensor, most: float) -> tuple[Tensor, Tensor] | None:
    """The matrix and its transpose in compressed rows; None if more than a share ``most`` of its entries are not zero.

    Args:
        dense: the matrix, on a CPU.
        most: the largest share of non-zero entries. What is not a number counts as not zero.

    >>> matrix, transposed = sparse_forms(torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 3.0]]), most=0.5)
    >>> transposed.to_dense()
    tensor([[0., 0.],
            [2., 0.],
            [0., 3.]])
    """
    entries = dense.detach().contiguous().numpy()
    chosen = entries != 0
    if np.count_nonzero(chosen) >= most * entries.size:
        return None
    places = np.flatnonzero(chosen)
    rows, columns = np.divmod(places, entries.shape[1])
    values = entries.reshape(-1)[places]
    short = columns.astype(np.int16) if entries.shape[1] <= _SHORT else columns
    order = np.argsort(short, kind="stable")
    count, width = entries.shape
    return _compressed(rows, columns, values, (count, width)), _compressed(
        columns[order], rows[order], values[order], (width, count)
    )


def _compressed(
    rows: NDArray[np.int64], columns: NDArray[np.int64], values: NDArray[np.floating], shape: tuple[int, int]
) -> Tensor:
    """A matrix in compressed rows; its entries are sorted by their rows, and by their columns within a row."""
    starts = np.zeros(shape[0] + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=shape[0]), out=starts[1:])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says that its sparse matrices are new
        parts = torch.from_numpy(starts), torch.from_numpy(columns), torch.from_numpy(values)
        return torch.sparse_csr_tensor(parts[0], parts[1], parts[2], size=shape)
