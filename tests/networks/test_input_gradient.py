"""The fast input gradient is autograd's, for every shape of convolution."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import assume, given
from hypothesis import strategies as st
from torch import Tensor, nn

from helpers import Written, convolutional, quick, residual, same, some_images
from steadynet.networks.input_gradient import fast_input_gradient, like_layout, relu_keeping_layout

small = st.integers(1, 4)


def input_gradient(network: nn.Module, images: Tensor, fast: bool) -> tuple[Tensor, Tensor]:
    images = images.detach().requires_grad_()
    if fast:
        with fast_input_gradient(images.device):
            output = network(images)
    else:
        output = network(images)
    direction = torch.randn(output.shape, generator=torch.Generator().manual_seed(3))
    return output, torch.autograd.grad((output * direction.to(output)).sum(), images)[0]


def agrees(network: nn.Module, images: Tensor) -> None:
    same(list(input_gradient(network, images, True)), list(input_gradient(network, images, False)))


@quick
@given(small, small, st.tuples(small, small), small, st.tuples(small, small), st.tuples(small, small), st.booleans())
def test_every_shape_of_convolution(inputs, outputs, kernel, stride, padding, extra, bias):
    size = [max(k, p + 1) + e + stride for k, p, e in zip(kernel, padding, extra, strict=True)]
    torch.manual_seed(0)
    agrees(nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=bias), torch.rand(2, inputs, *size))


@quick
@given(st.integers(1, 2), st.integers(3, 5), st.integers(0, 3), st.integers(5, 9), st.integers(5, 9))
def test_strides_larger_than_the_kernel_leave_pixels_unseen(kernel, stride, padding, height, width):
    assume(min(height, width) + 2 * padding >= kernel)
    torch.manual_seed(0)
    agrees(nn.Conv2d(2, 3, kernel, stride, padding), torch.rand(2, 2, height, width))


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(4, 6, 3, groups=2),
        nn.Conv2d(4, 4, 3, stride=2, groups=4),
        nn.Conv2d(4, 3, 3, dilation=2),
        nn.Conv2d(4, 3, 3, stride=(1, 2)),
        nn.Conv2d(4, 3, 3, padding="same"),
        nn.Conv2d(4, 3, 3, padding=1, padding_mode="circular"),
        nn.ConvTranspose2d(4, 3, 3, stride=2),
        Written(lambda net, x: F.conv2d(x, net.a.weight), a=nn.Conv2d(4, 3, 2)),
        Written(lambda net, x: F.conv2d(x, net.a.weight, net.a.bias, (2,), (1,)), a=nn.Conv2d(4, 3, 2)),
        Written(lambda net, x: F.conv2d(input=x, weight=net.a.weight, stride=2), a=nn.Conv2d(4, 3, 2)),
        Written(lambda net, x: net.a(x[0])[None], a=nn.Conv2d(4, 3, 2)),
    ],
)
def test_other_convolutions_fall_back(layer):
    agrees(layer, some_images(2, (4, 7, 8)))


PLAIN = ((1, 1), (1, 1), (1, 1), 1)  # the form that nn.Conv2d calls


@pytest.mark.parametrize(
    "forward",
    [
        lambda net, x: F.conv2d(x, net.a.weight * x.mean().exp(), net.a.bias, *PLAIN),
        lambda net, x: F.conv2d(x, net.a.weight, net.a.bias * x.mean().exp(), *PLAIN),
    ],
)
def test_weights_computed_from_the_input_keep_their_gradient(forward):
    agrees(Written(forward, a=nn.Conv2d(2, 3, 3)), some_images(2, (2, 6, 6)))


def test_weights_made_at_each_call_are_not_mixed_up():
    def forward(net, x):
        for factor in range(1, 12):
            x = F.conv2d(x, net.a.weight * factor, None, *PLAIN)
        return x / x.abs().max()

    agrees(Written(forward, a=nn.Conv2d(2, 2, 3)), some_images(2, (2, 6, 6)))


@pytest.mark.parametrize("network", [convolutional(), residual().eval(), residual(inplace=True).eval()])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_whole_networks_in_both_layouts(network, layout):
    agrees(network, some_images().contiguous(memory_format=layout))


def test_a_relu_in_place_stays_in_place():
    agrees(
        Written(lambda net, x: [h := net.a(x), net.relu(h) + h][-1], a=nn.Linear(4, 4), relu=nn.ReLU(inplace=True)),
        some_images(3, (4,)) - 0.5,
    )


def test_relu_by_keyword():
    agrees(Written(lambda net, x: F.relu(input=net.a(x)), a=nn.Linear(4, 4)), some_images(3, (4,)))


def test_parameters_get_no_gradient():
    network, images = convolutional(), some_images().requires_grad_()
    with fast_input_gradient(images.device):
        network[:4](images).sum().backward()
    assert all(parameter.grad is None for parameter in network[0].parameters())


def test_relu_keeps_the_layout_of_its_output_in_its_gradient():
    last = torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last).requires_grad_()
    (gradient,) = torch.autograd.grad(relu_keeping_layout(last).flatten(1).pow(2).sum(), last)
    assert gradient.is_contiguous(memory_format=torch.channels_last)
    same([gradient], [2 * last.relu()])


def test_like_layout_keeps_the_values():
    first, last = torch.randn(2, 3, 4, 4), torch.zeros(2, 3, 4, 4).contiguous(memory_format=torch.channels_last)
    assert like_layout(first, last).stride() == last.stride()
    assert like_layout(first, last).equal(first)
    assert like_layout(first.transpose(2, 3), first).is_contiguous()
