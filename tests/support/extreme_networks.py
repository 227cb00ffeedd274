"""Random tiny networks of every kind of layer, with weights from 2⁻¹²⁰ to 2¹²⁰, cancellation, ties and odd boxes."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from steadynet.graph.trace import UnsupportedNetworkError
from steadynet.graph.translate import graph_of

SMALLEST = 2.0**-149  # of float32
MOST_FEATURES = 40


@dataclass(frozen=True)
class Sample:
    """A network and a box (1, *shape)."""

    network: nn.Sequential
    lower: Tensor
    upper: Tensor

    @property
    def rows(self) -> Tensor:
        """The margins of class 0, as coefficients of the output."""
        classes = self.network[-1].out_features
        identity = torch.eye(classes, dtype=self.lower.dtype)
        return identity[:1] - identity[1:]

    def points(self, count: int) -> list[Tensor]:
        """Both corners and random points of the box."""
        shares = [torch.rand_like(self.lower) for _ in range(count)]
        inner = [self.lower + (self.upper - self.lower) * share for share in shares]
        return [self.lower, self.upper, *(torch.minimum(torch.maximum(p, self.lower), self.upper) for p in inner)]


class Joined(nn.Module):
    """x + f(x), f(x) − x, or copies of x beside f(x)."""

    def __init__(self, inner: nn.Module, how: str, copies: int = 1) -> None:
        super().__init__()
        self.inner, self.how, self.copies = inner, how, copies

    def forward(self, images: Tensor) -> Tensor:
        inner = self.inner(images)
        if self.how == "beside":
            return torch.cat([images] * self.copies + [inner], 1)
        return images + inner if self.how == "sum" else inner - images


class Arithmetic(nn.Module):
    """Arithmetic with two constants."""

    def __init__(self, how: str, first: float, second: float) -> None:
        super().__init__()
        self.how, self.first, self.second = how, first, second

    def forward(self, images: Tensor) -> Tensor:
        if self.how == "scale":
            return images * self.first + self.second
        if self.how == "there and back":
            return (images + self.first) - self.first
        if self.how == "divide":
            return images / self.first
        if self.how == "negate":
            return self.first - images
        return torch.clamp(images, min(self.first, self.second), max(self.first, self.second))


class Transposed(nn.Module):
    """Images with their axes in reverse order."""

    def forward(self, images: Tensor) -> Tensor:
        return images.permute(0, 3, 2, 1).contiguous()


def power(exponent: int) -> float:
    """A random power of two between 2⁻ᵉ and 2ᵉ."""
    return 2.0 ** random.randint(-exponent, exponent)


def activation() -> nn.Module:
    kinds: list[nn.Module] = [nn.ReLU(), nn.LeakyReLU(random.choice([0.01, 0.3, 1.0, 1e-30])), nn.ReLU6()]
    return random.choice([*kinds, nn.Hardtanh(-random.random(), random.random()), nn.Identity(), nn.ReLU(), nn.ReLU()])


def arithmetic(exponent: int) -> Arithmetic:
    how = random.choice(["scale", "there and back", "divide", "negate", "clip"])
    return Arithmetic(how, *(random.gauss(0, 1) * power(exponent // 2) for _ in range(2)))


def on_images(channels: int, exponent: int) -> tuple[nn.Module, int]:
    """A layer on images, and how many channels it returns."""
    kind = random.randrange(8)
    if kind < 3:
        groups = random.choice([1, 2]) if channels % 2 == 0 else 1
        outputs, (kernel, stride, dilation) = groups * random.randint(1, 2), (random.randint(1, 2) for _ in range(3))
        bias, padding = random.random() < 0.7, random.randint(0, 2)
        return nn.Conv2d(channels, outputs, kernel, stride, padding, dilation, groups, bias), outputs
    pool = nn.AvgPool2d(2, 1, random.randint(0, 1), random.random() < 0.5, random.random() < 0.5)
    others: list[nn.Module] = [
        nn.BatchNorm2d(channels),
        pool,
        nn.MaxPool2d(2, 1, random.randint(0, 1)),
        Joined(nn.Conv2d(channels, channels, 3, padding=1), random.choice(["sum", "difference"])),
        arithmetic(exponent),
    ]
    return others[kind - 3], channels


def on_features(features: int, exponent: int) -> tuple[nn.Module, int]:
    """A layer on features, and how many features it returns."""
    kind = random.randrange(7)
    if kind < 4:
        outputs = random.randint(1, 5)
        return nn.Linear(features, outputs, bias=random.random() < 0.8), outputs
    if kind == 4:
        inner = nn.Sequential(activation(), nn.Linear(features, features))
        return Joined(inner, random.choice(["sum", "difference"])), features
    if kind == 5:
        copies = random.choice([1, 2, 3, 12])
        return Joined(nn.Linear(features, 2), "beside", copies), features * copies + 2
    return arithmetic(exponent), features


@torch.no_grad()
def make_extreme(module: nn.Module, exponent: int) -> None:
    """Scale the weights of a layer, and give them structure: ties, zeros, rows that cancel."""
    if isinstance(module, nn.BatchNorm2d):
        for constant, size in (
            (module.running_mean, exponent),
            (module.bias, exponent),
            (module.weight, exponent // 2),
        ):
            constant.normal_().mul_(power(size))
        module.running_var.uniform_(1e-3, 2).mul_(power(exponent))
    if not isinstance(module, (nn.Linear, nn.Conv2d)):
        return
    weight = module.weight
    weight.mul_(power(exponent))
    if module.bias is not None:
        module.bias.mul_(random.choice([0.0, 1.0, power(exponent)]))
    structure = random.randrange(8)
    if structure == 0:
        weight.copy_(torch.randint(-2, 3, weight.shape) * power(exponent))
    elif structure == 1:
        weight[:] = weight[:1].clone()
    elif structure == 2:
        weight.mul_(torch.exp2(torch.randint(-30, 30, weight.shape)))
    elif structure == 3:
        weight.mul_(torch.rand(weight.shape) < 0.5)
    elif structure == 4 and weight.dim() == 2:
        half = weight.shape[1] // 2
        weight[:, half : 2 * half] = -weight[:, :half]


def _layers(exponent: int) -> tuple[list[nn.Module], tuple[int, ...]]:
    shape: tuple[int, ...] = (random.choice([1, 1, 1, 2, 3, 8]),)
    layers: list[nn.Module] = []
    if random.random() < 0.4:
        channels = random.randint(1, 2)
        shape = (channels, 3, random.randint(2, 4))
        for _ in range(random.randint(0, 2)):
            layer, channels = on_images(channels, exponent)
            layers += [layer, activation()]
        layers += [*([Transposed()] if random.random() < 0.2 else []), nn.Flatten()]
    features = nn.Sequential(*layers).eval()(torch.zeros(1, *shape)).shape[1]
    for _ in range(random.randint(0, 2)):
        layer, features = on_features(features, exponent)
        layers += [layer, activation()]
    if features > MOST_FEATURES:
        raise RuntimeError("too large")
    return [*layers, nn.Linear(features, random.choice([2, 2, 3]))], shape


def _box(shape: tuple[int, ...], exponent: int) -> tuple[Tensor, Tensor]:
    centre = torch.randn(1, *shape) * random.choice([1.0, 1.0, power(exponent)])
    if random.random() < 0.05:
        lower = torch.randint(-3, 3, centre.shape) * SMALLEST
        return lower, lower + torch.randint(0, 4, centre.shape) * SMALLEST
    width = random.choice([0.0, 1e-7, 1e-3, 0.1, 1.0]) * centre.abs().max()
    return centre - width * torch.rand_like(centre), centre + width * torch.rand_like(centre)


def _is_read(network: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether the network has a graph: one that overflows at an ordinary input is refused."""
    try:
        graph_of(network, shape)
    except UnsupportedNetworkError:
        return False
    return True


def sample(seed: int) -> Sample:
    """The network and the box of a seed."""
    random.seed(seed)
    torch.manual_seed(seed)
    while True:
        exponent = random.choice([0, 0, 3, 10, 30, 60, 120])
        try:
            layers, shape = _layers(exponent)
        except RuntimeError:  # an image that is too small for a layer, or too many features
            continue
        network = nn.Sequential(*layers).eval().requires_grad_(False)
        for module in network.modules():
            make_extreme(module, exponent)
        lower, upper = _box(shape, exponent)
        finite = all(bool(tensor.isfinite().all()) for tensor in (*network.state_dict().values(), network(upper)))
        if not finite or not _is_read(network, shape):
            continue
        if random.random() < 0.1:
            return Sample(network.double(), lower.double(), upper.double())
        return Sample(network, lower, upper)
