"""Convolutions on patches as matrices, against the transposed convolution of PyTorch."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from steadynet.bounds.patches import Matrices, transposed_on_patches
from steadynet.graph.operations import Convolution


@pytest.mark.parametrize(("outputs", "inputs"), [(8, 1), (2, 5)], ids=["few inputs", "few outputs"])
@pytest.mark.parametrize(("stride", "dilation"), [(1, 1), (2, 1), (1, 2)])
def test_the_matrix_of_a_convolution_is_its_transpose(outputs: int, inputs: int, stride: int, dilation: int) -> None:
    """The matrix is built from the inputs or the outputs, whichever are fewer; the result is the same."""
    torch.manual_seed(0)
    weight = torch.randn(outputs, inputs, 3, 3, dtype=torch.float64)
    convolution = Convolution(weight, None, (stride, stride), (1, 1), (dilation, dilation), 1)
    rows, matrices = torch.randn(4, outputs, 3, 3, dtype=torch.float64), Matrices()
    expected = F.conv_transpose2d(rows, weight, stride=stride, dilation=dilation)
    for _ in range(2):  # the second call takes the matrix that the first one kept
        torch.testing.assert_close(transposed_on_patches(convolution, rows, matrices), expected)
    assert len(matrices) == 1
