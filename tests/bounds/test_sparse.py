"""Sparse forms of matrices, against the conversion of PyTorch and against the dense matrix."""

from __future__ import annotations

import warnings

import pytest
import torch

from steadynet.bounds.sparse import sparse_forms


def some_matrix(rows: int, columns: int, share: float) -> torch.Tensor:
    torch.manual_seed(rows + columns)
    return torch.randn(rows, columns) * (torch.rand(rows, columns) < share)


@pytest.mark.parametrize(("rows", "columns"), [(1, 5), (7, 3), (40, 300), (3, 40_000), (40_000, 3)])
def test_the_forms_are_those_of_pytorch(rows: int, columns: int) -> None:
    dense = some_matrix(rows, columns, 0.1)
    forms = sparse_forms(dense, 0.25)
    assert forms is not None
    for found, expected in zip(forms, (dense, dense.t().contiguous()), strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            known = expected.to_sparse_csr()
        assert torch.equal(found.crow_indices(), known.crow_indices())
        assert torch.equal(found.col_indices(), known.col_indices())
        assert torch.equal(found.values(), known.values())
        assert torch.equal(found.to_dense(), expected)


def test_a_full_or_empty_matrix_has_none() -> None:
    assert sparse_forms(torch.ones(3, 4), 0.25) is None
    assert sparse_forms(torch.zeros(0, 4), 0.25) is None


def test_what_is_not_a_number_is_kept() -> None:
    dense = torch.zeros(4, 4)
    dense[1, 2], dense[3, 0] = torch.nan, torch.inf
    forms = sparse_forms(dense, 0.25)
    assert forms is not None
    assert torch.equal(forms[1].to_dense(), dense.t()) is False  # NaN equals nothing
    assert forms[0].values().isnan().tolist() == [True, False]
    assert forms[1].col_indices().tolist() == [3, 1]


def test_a_change_of_the_matrix_does_not_change_its_forms() -> None:
    dense = some_matrix(20, 30, 0.1)
    forms = sparse_forms(dense, 0.25)
    assert forms is not None
    before = dense.clone()
    dense.zero_()
    assert torch.equal(forms[0].to_dense(), before)
