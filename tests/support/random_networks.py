"""Random small networks to try verifiers on: dense, convolutional, residual, degenerate, and with a needle in them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from steadynet.attacks.pgd import descend
from steadynet.verification.properties import Properties


@dataclass
class Case:
    """A network, images with their labels, and a radius; ``refutable`` where a counterexample was planted."""

    kind: str
    seed: int
    network: nn.Module
    images: Tensor
    labels: Tensor
    radius: float
    refutable: bool = False

    def properties(self) -> Properties:
        return Properties.around(self.network, self.images, self.labels, self.radius)


class Block(nn.Module):
    """x + f(x), or x and f(x) side by side."""

    def __init__(self, inner: nn.Module, join: str) -> None:
        super().__init__()
        self.inner, self.join = inner, join

    def forward(self, images: Tensor) -> Tensor:
        inner = self.inner(images)
        return inner + images if self.join == "sum" else torch.cat([images, inner], 1)


class Needle(nn.Module):
    """Small random scores, and for class 1 a bump of height 2 within ``width`` of ``place``: flat everywhere else."""

    def __init__(self, features: int, place: Tensor, width: float) -> None:
        super().__init__()
        self.scores = nn.Sequential(nn.Linear(features, 5), nn.ReLU(), nn.Linear(5, 3))
        self.scores[2].weight.data.mul_(0.1)
        self.scores[2].bias.data = torch.tensor([1.5, 0.0, 0.0])
        self.away = nn.Linear(features, 2 * features)
        self.away.weight.data = torch.cat([torch.eye(features), -torch.eye(features)])
        self.away.bias.data = torch.cat([-place, place])
        self.bump = nn.Linear(2 * features, 1)
        self.bump.weight.data.fill_(-1 / width)
        self.bump.bias.data.fill_(1.0)
        self.spread = nn.Linear(1, 3, bias=False)
        self.spread.weight.data = torch.tensor([[0.0], [4.0], [0.0]])

    def forward(self, images: Tensor) -> Tensor:
        return self.scores(images) + self.spread(torch.relu(self.bump(torch.relu(self.away(images)))))


def number(low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, ()))


def activation() -> nn.Module:
    return nn.LeakyReLU(float(torch.rand(()) * 0.5)) if number(0, 5) == 0 else nn.ReLU()


def dense(features: int, classes: int) -> nn.Sequential:
    widths = [features, *(number(2, 8) for _ in range(number(1, 3)))]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


def convolutional(classes: int) -> nn.Sequential:
    channels, stride = number(1, 2), number(1, 2)
    padding = 1 if stride == 2 else number(0, 1)
    layers = [
        nn.Conv2d(1, channels, number(2, 3), stride=stride, padding=padding, bias=number(0, 1) > 0),
        activation(),
    ]
    extra = number(0, 5)
    if extra == 0:
        layers.append(nn.MaxPool2d(2, 1, number(0, 1)))
    elif extra == 1:
        layers.append(nn.AvgPool2d(2, 1))
    elif extra == 2:
        layers += [nn.Conv2d(channels, 2, 2, padding=1, dilation=number(1, 2)), activation()]
    features = nn.Sequential(*layers)(torch.zeros(1, 1, 4, 4))[0].numel()
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, number(2, 5)), nn.ReLU(), nn.LazyLinear(classes))


def residual(classes: int) -> nn.Sequential:
    inner = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2))
    inner[1].running_mean.normal_()
    inner[1].running_var.uniform_(0.3, 2)
    block = Block(inner, "sum" if number(0, 1) else "concatenation")
    first = nn.Conv2d(1, 2, 2, stride=2)
    return nn.Sequential(first, nn.ReLU(), block, activation(), nn.Flatten(), nn.LazyLinear(classes))


def maxima(classes: int) -> nn.Sequential:
    """Maxima on top of ReLUs, of a convolution, or of the image: then there is no ReLU at all."""
    before: list[nn.Module] = [[], [nn.Conv2d(1, 2, 2)], [nn.Conv2d(1, 2, 2), nn.ReLU()]][number(0, 2)]
    kernel = number(2, 3)
    pool = nn.MaxPool2d(kernel, kernel - 1, number(0, 1), ceil_mode=number(0, 1) > 0)
    head = [nn.LazyLinear(number(2, 4)), nn.ReLU()] if number(0, 1) else []
    return nn.Sequential(*before, pool, nn.Flatten(), *head, nn.LazyLinear(classes))


def unusual(classes: int) -> nn.Sequential:
    """A usual order of layers, but now and then a ReLU is missing, doubled, on the image or behind the flattening."""
    layers = activations(0)
    for _ in range(number(1, 2)):
        size, padding = number(1, 2), number(0, 1)
        layers += [nn.LazyConv2d(number(1, 3), size, stride=number(1, 2), padding=padding), *activations(1)]
    layers += [nn.Flatten(), *activations(0)]
    for _ in range(number(1, 2)):
        layers += [nn.LazyLinear(number(2, 6)), *activations(1)]
    return nn.Sequential(*layers, nn.LazyLinear(classes))


def activations(usual: int) -> list[nn.Module]:
    return [activation() for _ in range(usual if number(0, 2) else number(0, 2))]


def strengthened(network: nn.Module, factor: float) -> None:
    for module in network.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            module.weight.data.mul_(factor)


def linears(network: nn.Module) -> list[nn.Linear]:
    return [module for module in network.modules() if isinstance(module, nn.Linear)]


def zero_weights(network: nn.Sequential) -> None:
    layer = linears(network)[number(0, len(linears(network)) - 1)]
    layer.weight.data *= torch.rand_like(layer.weight) < float(torch.rand(()))
    if layer.bias is not None:
        layer.bias.data *= number(0, 1)


def duplicated(network: nn.Sequential) -> None:
    for layer in linears(network)[:-1]:
        half = len(layer.weight) // 2
        layer.weight.data[half : 2 * half], layer.bias.data[half : 2 * half] = layer.weight[:half], layer.bias[:half]


def dead(network: nn.Sequential) -> None:
    layer = linears(network)[0]
    layer.bias.data[torch.rand_like(layer.bias) < 0.7] = -50.0


def on_zero(network: nn.Sequential) -> None:
    """Integer weights and no biases, with images and radii on a grid: bounds and margins are exactly 0 often."""
    for layer in linears(network):
        layer.weight.data = torch.randint(-1, 2, layer.weight.shape).float()
        layer.bias.data.zero_()


def thin_margin(network: nn.Sequential) -> None:
    """All classes compute the same, give or take 1e-7 or nothing."""
    last = linears(network)[-1]
    last.weight.data[:] = last.weight[0].clone()
    last.bias.data[:] = last.bias[0] + torch.randint(-2, 3, last.bias.shape) * (1e-7 if number(0, 1) else 0.0)


def stable(network: nn.Sequential) -> None:
    for layer in linears(network)[:-1]:
        layer.bias.data += 30.0


def cancelling(network: nn.Sequential) -> None:
    """Large biases that the next layer's cancel: float32 loses digits."""
    first, second = linears(network)[:2]
    large = 10.0 ** number(2, 4)
    first.bias.data += large
    second.bias.data -= large * second.weight.data.sum(1)


def scaled(network: nn.Sequential) -> None:
    factor = 10.0 ** number(-4, 4)
    for layer in linears(network):
        layer.bias.data.mul_(factor)
    linears(network)[0].weight.data.mul_(factor)


DEGENERATE: dict[str, Callable[[nn.Sequential], None]] = {
    "zero weights": zero_weights,
    "duplicated": duplicated,
    "dead": dead,
    "on zero": on_zero,
    "thin margin": thin_margin,
    "stable": stable,
    "cancelling": cancelling,
    "scaled": scaled,
}
UNUSUAL = "unusual order"  # a kind that takes no turn: tests name networks of the others by their seeds
ON_IMAGES = {"convolutional": convolutional, "residual": residual, "max pool": maxima}
KINDS = ["dense", *ON_IMAGES, "no relu", "needle", *DEGENERATE]


def needle(seed: int) -> Case:
    features = number(2, 4)
    images, radius = torch.rand(2, features) * 0.4 + 0.3, 0.05 + 0.2 * float(torch.rand(()))
    place = images.mean(0)
    images = torch.stack([place + (torch.rand(features) * 2 - 1) * radius * 0.9, place - radius * 0.8])
    network = Needle(features, place, 10.0 ** -number(2, 4))
    return Case("needle", seed, network, images, torch.zeros(2, dtype=torch.long), radius, refutable=True)


def make(seed: int, kind: str | None = None) -> Case:
    """The case of a seed; the kinds take turns if none is named."""
    torch.manual_seed(seed)
    kind, classes = kind or KINDS[seed % len(KINDS)], number(2, 4)
    if kind == "needle":
        return needle(seed)
    features = number(1, 5)
    shape: tuple[int, ...] = (1, 4, 4) if kind in (*ON_IMAGES, UNUSUAL) else (features,)
    if kind in ON_IMAGES:
        network = ON_IMAGES[kind](classes)
    elif kind == UNUSUAL:
        network = unusual(classes)
    elif kind == "no relu":
        network = nn.Sequential(nn.Linear(features, 3), nn.Linear(3, classes))
    else:
        network = dense(features, classes)
    network(torch.zeros(2, *shape))
    network.eval()
    strengthened(network, 1 + 2 * float(torch.rand(())))
    DEGENERATE.get(kind, lambda network: None)(network)
    images, radius = torch.rand(3, *shape), 10.0 ** float(torch.rand(()) * 4 - 4)
    if kind == "on zero":
        images, radius = torch.randint(0, 5, images.shape) / 4, number(0, 4) / 8
    labels = network(images).argmax(1)
    if number(0, 9) == 0:
        labels = torch.randint(0, classes, labels.shape)
    elif kind != "on zero" and number(0, 1):
        radius = near_the_edge(network, images, labels, radius)
    return Case(kind, seed, network, images, labels, radius)


def near_the_edge(network: nn.Module, images: Tensor, labels: Tensor, radius: float) -> float:
    """A radius close to where a short attack begins to succeed: properties that are hard to decide."""
    low, high = 0.0, 1.0
    for _ in range(7):
        middle = (low + high) / 2
        properties = Properties.around(network, images[:1], labels[:1], middle)
        ends = attacked(properties, 0, images[:1].repeat(4, *[1] * (images.dim() - 1)), steps=8)
        low, high = (low, middle) if bool((network(ends).argmax(1) != labels[0]).any()) else (middle, high)
    return high * (0.85 + 0.25 * float(torch.rand(()))) if high < 1 else radius


def attacked(properties: Properties, index: int, start: Tensor, steps: int = 40) -> Tensor:
    """The ends of descents on every margin of one property."""
    network, label = properties.network, int(properties.labels[index])
    region = properties.region[torch.full((len(start),), index)]
    width, found = float((region.upper - region.lower).max()), []
    with torch.no_grad():
        rows = torch.eye(network(start[:1]).shape[1])
    for other in range(len(rows)):
        if other != label:
            row = rows[label] - rows[other]
            found.append(
                descend(
                    lambda tried, row=row: network(tried) @ row,
                    region,
                    start.clone(),
                    steps=steps,
                    step_size=width / 4,
                    shrink=True,
                )
            )
    return torch.cat(found)
