"""Properties that hold by construction.

- Lipschitz-bounded networks: within ε of the image, no margin changes by more than the product of the layers'
  operator norms times ε, and the image's own margins are larger than that.
- Mirrored pairs: two scores are computed by two copies of the same layers, and one of them is larger by a constant.
  The two copies share no neuron, so a verifier has to find out that they are the same.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
from torch import Tensor, nn

from steadynet.verification.self_test.architectures import ARCHITECTURES, Residual, build, input_shape
from steadynet.verification.self_test.known import ConstructionError, Family, KnownInstance, Truth
from steadynet.verification.self_test.random_numbers import integer, pick, point, power_of_ten, uniform
from steadynet.verification.self_test.torch_instance import KnownBox, network_instance

BOXES = 16  # properties of each network
NORM = 1e-5  # what rounding may add to an operator norm computed in float64, and much more


def operator_norm(layer: nn.Module) -> float:
    """Return how much a layer may stretch distances in the maximum norm.

    >>> layer = nn.Linear(2, 1)
    >>> _ = layer.weight.data.copy_(torch.tensor([[1.0, -2.0]]))
    >>> round(operator_norm(nn.Sequential(layer, nn.ReLU())), 3), round(operator_norm(Residual(layer)), 3)
    (3.0, 4.0)
    """
    if isinstance(layer, nn.Sequential):
        product = 1.0
        for inner in layer:
            product *= operator_norm(inner)
        return product
    if isinstance(layer, Residual):
        return 1 + operator_norm(layer.inner)
    if isinstance(layer, (nn.Linear, nn.Conv2d)):
        return float(layer.weight.detach().double().flatten(1).abs().sum(1).max()) * (1 + NORM)
    if isinstance(layer, nn.BatchNorm2d):
        assert layer.running_var is not None
        deviation = (layer.running_var.double() + layer.eps).sqrt()
        return float((layer.weight.detach().double().abs() / deviation).max()) * (1 + NORM)
    if isinstance(layer, (nn.ReLU, nn.LeakyReLU, nn.MaxPool2d, nn.AvgPool2d, nn.Flatten)):
        return 1.0
    raise TypeError(f"the operator norm of {type(layer).__name__} is not known")


def lipschitz(architecture: str) -> KnownInstance:
    """A random network, and boxes so small that no margin can reach zero."""
    network, boxes = build(architecture, integer(2, 4)), []
    inner, last = operator_norm(network[:-1]), network[-1]
    assert isinstance(last, nn.Linear)
    for _ in range(BOXES):
        image = point(input_shape(architecture), 0.0, 1.0)
        with torch.no_grad():
            found = copy.deepcopy(network).double()(image[None].double())[0]
        label = int(found.argmax())
        stretch = (last.weight[label] - last.weight).detach().double().abs().sum(1) * inner * (1 + NORM)
        others = [index for index in range(len(found)) if index != label]
        radius = float(((found[label] - found) / stretch)[others].min()) * uniform(0.5, 0.95)
        if radius < 1e-4:
            raise ConstructionError
        boxes.append(KnownBox(image - radius, image + radius, Truth.HOLDS, label=label))
    return network_instance(network, boxes)


class Pair(nn.Module):
    """The scores of two networks side by side; class 0 is raised by a constant."""

    def __init__(self, first: nn.Module, second: nn.Module, lead: float) -> None:
        super().__init__()
        self.first, self.second = first, second
        self.lead = nn.Linear(2, 2)
        self.lead.weight.data = torch.eye(2)
        self.lead.bias.data = torch.tensor([lead, 0.0])

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the two scores, (batch, 2)."""
        return self.lead(torch.cat([self.first(inputs), self.second(inputs)], 1))


def mirrored(architecture: str) -> KnownInstance:
    """A random network with one score, beside a copy whose neurons are permuted and scaled."""
    first = _one_score(architecture)
    second = MIRRORS[architecture](first) if architecture in MIRRORS else copy.deepcopy(first)
    shape = input_shape(architecture)
    with torch.no_grad():
        samples = torch.rand(200, *shape)
        spread = float(first(samples).std()) + 1e-3
        if not torch.allclose(first(samples), second(samples), atol=1e-5):
            raise RuntimeError(f"the mirrored {architecture} network is no copy")
    network = Pair(first, second, max(spread * power_of_ten(-1.5, 0), 1e-3))
    boxes = []
    for _ in range(2):
        image, radius = point(shape), power_of_ten(-2, -0.7 if architecture == "dense" else -1)
        boxes.append(KnownBox(image - radius, image + radius, Truth.HOLDS))
    return network_instance(network, boxes)


def _one_score(architecture: str) -> nn.Sequential:
    """Return a random network with one score; a smaller one than elsewhere, since a proof has to split its ReLUs."""
    if architecture == "dense":
        width = integer(3, 5)
        return nn.Sequential(nn.Linear(6, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
    first = nn.Conv2d(1, 2, 2, stride=2 if architecture in ("convolutional", "residual") else 3)
    layers: list[nn.Module] = [first, nn.ReLU()]
    if architecture == "residual":
        layers += [Residual(nn.Conv2d(2, 2, 1)), nn.ReLU()]
    body = nn.Sequential(*layers, nn.Flatten())
    if architecture in ("max pool", "average pool"):
        pool = nn.MaxPool2d(2, 1) if architecture == "max pool" else nn.AvgPool2d(2, 1)
        body = nn.Sequential(nn.Conv2d(1, 1, 3), nn.ReLU(), pool, nn.Flatten())
    with torch.no_grad():
        features = body(torch.zeros(1, 1, 5, 5)).shape[1]
    return nn.Sequential(*body, nn.Linear(features, 1))


def _permuted_dense(network: nn.Sequential) -> nn.Sequential:
    """Permute the neurons of each hidden layer, and scale them by powers of two; both leave the function the same."""
    mirror = copy.deepcopy(network)
    layers = [layer for layer in mirror if isinstance(layer, nn.Linear)]
    for layer, following in pairwise(layers):
        order = torch.randperm(layer.out_features)
        factor = 2.0 ** torch.randint(-3, 4, (layer.out_features,))
        layer.weight.data = layer.weight.data[order] * factor[:, None]
        layer.bias.data = layer.bias.data[order] * factor
        following.weight.data = following.weight.data[:, order] / factor
    return mirror


def _scaled_convolution(network: nn.Sequential) -> nn.Sequential:
    """Scale the first convolution by a power of two, and the last layer back."""
    mirror, factor = copy.deepcopy(network), pick([0.25, 0.5, 2.0, 4.0])
    first, last = mirror[0], mirror[-1]
    assert isinstance(first, nn.Conv2d)
    assert first.bias is not None
    assert isinstance(last, nn.Linear)
    first.weight.data.mul_(factor)
    first.bias.data.mul_(factor)
    last.weight.data.div_(factor)
    return mirror


def _maximum_before_relu(network: nn.Sequential) -> nn.Sequential:
    """Swap the maximum and the ReLU, which commute."""
    first, relu, pool, *rest = copy.deepcopy(network)
    return nn.Sequential(first, pool, relu, *rest)


def _average_as_convolution(network: nn.Sequential) -> nn.Sequential:
    """Write the average of 2 × 2 numbers as a convolution with weights of 1/4."""
    first, relu, _, *rest = copy.deepcopy(network)
    average = nn.Conv2d(1, 1, 2, bias=False)
    average.weight.data.fill_(0.25)
    return nn.Sequential(first, relu, average, *rest)


MIRRORS: dict[str, Callable[[nn.Sequential], nn.Sequential]] = {
    "dense": _permuted_dense,
    "convolutional": _scaled_convolution,
    "max pool": _maximum_before_relu,
    "average pool": _average_as_convolution,
}
MIRRORED = ("dense", "convolutional", "residual", "max pool", "average pool")

FAMILY = Family(
    "robust",
    {f"Lipschitz-bounded, {name}": partial(lipschitz, name) for name in ARCHITECTURES}
    | {f"mirrored pair, {name}": partial(mirrored, name) for name in MIRRORED},
)
