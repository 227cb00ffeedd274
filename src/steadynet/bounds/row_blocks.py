"""Two forms of a sparse matrix that takes many functions back at once: dense blocks of rows, and compressed rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

COLUMNS_AT_ONCE = 32  # of a product with compressed rows; with 48 or more, each column takes half as long again


@dataclass(frozen=True)
class Block:
    """Rows of a matrix whose entries are zero but for some columns.

    Attributes:
        rows: which rows.
        columns: (k,), the numbers of the columns, in int64.
        entries: (rows, k).
    """

    rows: slice
    columns: Tensor
    entries: Tensor


@dataclass(frozen=True)
class Blocks:
    """A sparse matrix as dense blocks of rows, for many functions at once: their products are plain ones.

    All neurons of one place are seen by the same neurons, so their rows are one block.

    Attributes:
        shape: how many rows and columns.
        blocks: the blocks, row by row.
    """

    shape: tuple[int, int]
    blocks: Sequence[Block]

    def __matmul__(self, columns: Tensor) -> Tensor:
        """The product with columns, (columns of the matrix, n)."""
        result = columns.new_empty(self.shape[0], columns.shape[1])
        for block in self.blocks:
            torch.mm(block.entries, columns.index_select(0, block.columns), out=result[block.rows])
        return result


@dataclass(frozen=True)
class CompressedRows:
    """A sparse matrix in compressed rows.

    Attributes:
        matrix: the matrix as PyTorch stores it.
    """

    matrix: Tensor

    def __matmul__(self, columns: Tensor) -> Tensor:
        """The product with columns, a few at a time: more would not stay in the cache."""
        if columns.shape[1] <= COLUMNS_AT_ONCE:
            return self.matrix @ columns
        parts = [self.matrix @ some.contiguous() for some in columns.split(COLUMNS_AT_ONCE, 1)]
        return torch.cat(parts, 1)
