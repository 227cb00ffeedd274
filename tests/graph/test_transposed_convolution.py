"""The transpose of a convolution, in every way that it may be computed: what autograd says its gradient is."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from steadynet.graph import operations
from steadynet.graph.operations import FEW_CHANNELS, Convolution


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(("stride", "padding"), [(1, 0), (1, 1), (2, 0), (2, 1), (3, 2)])
@pytest.mark.parametrize("channels", [1, 3, FEW_CHANNELS, FEW_CHANNELS + 1, 9])
def test_the_transpose_is_the_gradient(channels, stride, padding, fast, monkeypatch):
    monkeypatch.setattr(operations, "FAST_TRANSPOSES", fast)
    torch.manual_seed(0)
    weight = torch.randn(5, channels, 4, 3, dtype=torch.float64)
    image = torch.randn(2, channels, 11, 10, dtype=torch.float64, requires_grad=True)  # strides leave a rest
    convolution = Convolution(weight, None, (stride,) * 2, (padding,) * 2, (1, 1), 1)
    outputs = F.conv2d(image, weight, None, stride, padding)
    rows = torch.randn_like(outputs)
    (gradient,) = torch.autograd.grad(outputs, image, rows)
    found = convolution.transposed(rows.detach(), tuple(image.shape[1:]))
    assert found.shape == image.shape
    torch.testing.assert_close(found, gradient)


def test_groups_and_dilation_have_a_way_of_their_own():
    torch.manual_seed(0)
    weight = torch.randn(6, 2, 3, 3, dtype=torch.float64)
    image = torch.randn(2, 4, 9, 9, dtype=torch.float64, requires_grad=True)
    outputs = F.conv2d(image, weight, None, 1, 1, 2, 2)
    rows = torch.randn_like(outputs)
    (gradient,) = torch.autograd.grad(outputs, image, rows)
    convolution = Convolution(weight, None, (1, 1), (1, 1), (2, 2), 2)
    torch.testing.assert_close(convolution.transposed(rows.detach(), (4, 9, 9)), gradient)
