"""Small networks of every architecture that the self-test uses. Their weights are random."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from steadynet.verification.self_test.random_numbers import integer, uniform

IMAGE = (1, 5, 5)
FEATURES = 6


class Residual(nn.Module):
    """x + f(x)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, inputs: Tensor) -> Tensor:
        """Add what the inner layers compute."""
        return inputs + self.inner(inputs)


def linear(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    """Return a linear layer with these weights, in float32."""
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight.data = weight.float()
    if bias is not None:
        layer.bias.data = bias.float()
    return layer.requires_grad_(False)


def batch_norm(channels: int) -> nn.BatchNorm2d:
    """Return a batch norm in evaluation mode, with random statistics and a positive scale."""
    norm = nn.BatchNorm2d(channels).eval()
    assert norm.running_mean is not None
    assert norm.running_var is not None
    norm.running_mean.normal_(0, 0.3)
    norm.running_var.uniform_(0.3, 2)
    norm.weight.data.uniform_(0.5, 1.5)
    norm.bias.data.normal_(0, 0.3)
    return norm


def _dense() -> list[nn.Module]:
    width = integer(5, 8)
    return [nn.Linear(FEATURES, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()]


def _convolutional() -> list[nn.Module]:
    second = nn.Conv2d(2, 3, 2, padding=integer(0, 1))
    return [nn.Conv2d(1, 2, 3, stride=2, padding=1), nn.ReLU(), second, nn.ReLU()]


def _residual() -> list[nn.Module]:
    block = Residual(nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.ReLU(), nn.Conv2d(2, 2, 1)))
    return [nn.Conv2d(1, 2, 3, stride=2), nn.ReLU(), block, nn.ReLU()]


def _max_pooled() -> list[nn.Module]:
    return [nn.Conv2d(1, 2, 2), nn.ReLU(), nn.MaxPool2d(2, 2, integer(0, 1))]


def _average_pooled() -> list[nn.Module]:
    return [nn.Conv2d(1, 2, 2), nn.ReLU(), nn.AvgPool2d(2, integer(1, 2)), nn.LeakyReLU(uniform(0.0, 0.5))]


def _normalised() -> list[nn.Module]:
    return [nn.Conv2d(1, 2, 3, stride=2), batch_norm(2), nn.ReLU(), nn.Conv2d(2, 2, 2), batch_norm(2), nn.ReLU()]


# the layers below the scores, by architecture; all but "dense" take an image
ARCHITECTURES: dict[str, Callable[[], list[nn.Module]]] = {
    "dense": _dense,
    "convolutional": _convolutional,
    "residual": _residual,
    "max pool": _max_pooled,
    "average pool": _average_pooled,
    "batch norm": _normalised,
}


def input_shape(architecture: str) -> tuple[int, ...]:
    """Return the shape of an input."""
    return (FEATURES,) if architecture == "dense" else IMAGE


def build(architecture: str, classes: int) -> nn.Sequential:
    """Return a random network in evaluation mode, whose last layer is linear.

    >>> build("residual", 3)(torch.zeros(2, *input_shape("residual"))).shape
    torch.Size([2, 3])
    """
    body = nn.Sequential(*ARCHITECTURES[architecture](), nn.Flatten()).eval()
    with torch.no_grad():
        features = body(torch.zeros(1, *input_shape(architecture))).shape[1]
    return nn.Sequential(*body, nn.Linear(features, classes)).eval()
