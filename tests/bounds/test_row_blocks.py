"""Sparse convolutions as matrices: both forms are the transposed convolution between the neurons that are left."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from steadynet.bounds import row_blocks, sparse_layers
from steadynet.bounds.row_blocks import Blocks, CompressedRows
from steadynet.bounds.sparse_layers import MapNeurons, SparseConvolution
from steadynet.graph.operations import Convolution


@pytest.mark.parametrize("in_blocks", [True, False])
@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    kernel=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    stride=st.integers(1, 3),
    padding=st.integers(0, 2),
    active=st.floats(0.05, 1.0),
    functions=st.integers(1, 70),
)
def test_a_product_is_the_transposed_convolution(in_blocks, seed, kernel, stride, padding, active, functions):
    torch.manual_seed(seed)
    weight, inputs = torch.randn(3, 2, *kernel), torch.zeros(1, 2, 7, 8)
    outputs = F.conv2d(inputs, weight, stride=stride, padding=padding)
    before, behind = (MapNeurons.where(_some(value[0], active)) for value in (inputs, outputs))
    convolution = Convolution(weight, None, (stride, stride), (padding, padding), (1, 1), 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_layers, "LEAST_BLOCK", 0 if in_blocks else 1 << 40)
        matrix = SparseConvolution(convolution, before, behind, is_first=False).transposed
    assert isinstance(matrix, Blocks if in_blocks else CompressedRows)
    rows = torch.randn(functions, len(behind))
    whole = (
        torch.zeros(functions, outputs[0].numel()).index_copy_(1, behind.elements, rows).view(-1, *outputs.shape[1:])
    )
    size = [7 + 2 * padding, 8 + 2 * padding]
    left = [size[axis] - (outputs.shape[2 + axis] - 1) * stride - kernel[axis] for axis in (0, 1)]
    padded = F.pad(F.conv_transpose2d(whole, weight, stride=stride), [0, left[1], 0, left[0]])
    expected = padded[:, :, padding : padding + 7, padding : padding + 8].flatten(1)[:, before.elements]
    torch.testing.assert_close((matrix @ rows.t().contiguous()).t(), expected, rtol=1e-5, atol=1e-5)


def _some(value, share):
    """A mask with at least one place of a feature map."""
    mask = torch.rand_like(value) < share
    mask.view(-1)[int(torch.randint(value.numel(), ()))] = True
    return mask


def test_a_product_with_many_columns_is_taken_in_parts(monkeypatch):
    dense = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0]])
    matrix, columns = CompressedRows(dense.to_sparse_coo()), torch.arange(15.0).view(3, 5)
    whole = matrix @ columns
    monkeypatch.setattr(row_blocks, "COLUMNS_AT_ONCE", 2)
    assert torch.equal(matrix @ columns, whole)
    assert torch.equal(whole, torch.tensor([[20.0, 23, 26, 29, 32], [15, 18, 21, 24, 27]]))
