"""Small networks, and what several tests say about them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from hypothesis import settings
from torch import Tensor, nn

torch.set_num_threads(1)
quick = settings(deadline=None, derandomize=True, max_examples=25)


class Written(nn.Module):
    """A network whose forward is the function given; its layers are keyword arguments."""

    def __init__(self, forward: Callable[[Written, Tensor], Tensor], **layers: nn.Module) -> None:
        super().__init__()
        self.written = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, images: Tensor) -> Tensor:
        return self.written(self, images)


class Residual(nn.Module):
    """Convolution, batch norm, a residual block with a shortcut, and one ReLU module used twice."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, 3, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(3)
        self.second = nn.Conv2d(3, 3, 3, padding=1)
        self.relu = nn.ReLU(inplace)
        self.head = nn.Linear(27, 4)

    def forward(self, images: Tensor) -> Tensor:
        start = self.relu(self.norm(self.first(images)))
        return self.head(self.relu(self.second(start) + start).flatten(1))


IMAGE = (1, 6, 6)
CLASSES = 4


def dense(*widths: int, seed: int = 0) -> nn.Sequential:
    """Dense layers with a ReLU after each but the last."""
    torch.manual_seed(seed)
    layers = [layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def convolutional(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(3, 2, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(18, CLASSES),
    )


def residual(seed: int = 0, inplace: bool = False) -> Residual:
    torch.manual_seed(seed)
    return shaken(Residual(inplace))


def shaken(network: nn.Module) -> nn.Module:
    """The network with batch norm statistics and weights as they are after some training."""
    for module in network.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            module.running_mean.normal_()
            module.running_var.uniform_(0.3, 2)
            if module.affine:
                nn.init.normal_(module.weight)
                nn.init.normal_(module.bias)
    return network


def some_images(count: int = 5, shape: tuple[int, ...] = IMAGE, seed: int = 1) -> Tensor:
    return torch.rand(count, *shape, generator=torch.Generator().manual_seed(seed))


def some_labels(count: int = 5) -> Tensor:
    return torch.arange(count) % CLASSES


def gradients(loss: Tensor, network: nn.Module) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(network.parameters())))


def same(ours: list[Tensor], theirs: list[Tensor], **tolerance: float) -> None:
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, **({"rtol": 1e-4, "atol": 1e-5} | tolerance))
