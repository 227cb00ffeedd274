"""The gradient of a chain of layers is autograd's; what is no plain chain is left to autograd."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from helpers import Written, convolutional, quick, residual, same, some_images
from steadynet.attacks.pgd import maximise_cross_entropy
from steadynet.attacks.region import InputRegion
from steadynet.attacks.schedule import StepSchedule
from steadynet.networks.layer_chain import LayerChain
from steadynet.networks.normalise import Normalise
from steadynet.networks.preactivations import activations
from steadynet.objectives.consistency import consistency, most_inconsistent_neighbour


def chain_of(*layers: nn.Module) -> nn.Sequential:
    """A network for images (2, 7, 6) that begins with these layers and ends with a dense one."""
    torch.manual_seed(0)
    front = nn.Sequential(*layers, nn.Flatten())
    return nn.Sequential(front, nn.Linear(front(torch.zeros(1, 2, 7, 6)).shape[1], 5), nn.ReLU(), nn.Linear(5, 3))


def by_autograd(network: nn.Module, points: Tensor, direction: Tensor, pulls: list[Tensor]) -> list[Tensor]:
    """The logits of points, and the gradient of logits · direction + Σ preactivations · pulls."""
    points = points.clone().requires_grad_()
    logits, preactivations = activations(network, points)
    value = (logits * direction).sum() + sum((v * pull).sum() for v, pull in zip(preactivations, pulls, strict=True))
    return [logits, torch.autograd.grad(value, points)[0]]


@quick
@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.booleans(), st.booleans())
def test_the_gradient_is_that_of_autograd(channels, kernel, stride, padding, bias, normalised):
    layers = [
        nn.Conv2d(2, channels, kernel, stride, padding, bias=bias),
        nn.ReLU(),
        nn.Conv2d(channels, 2, 2),
        nn.ReLU(),
    ]
    network = chain_of(*([Normalise([0.4, 0.5], [0.2, 0.3])] if normalised else []), *layers)
    points, direction = torch.rand(4, 2, 7, 6), torch.randn(4, 3)
    pulls = [torch.randn_like(v) for v in activations(network, points).preactivations]
    chain = LayerChain.of(network, points)
    passed = chain.forward(points)
    found = chain.input_gradient(passed, direction, lambda relu, gradient: gradient.add_(pulls[relu]))
    same([passed.logits, found], by_autograd(network, points, direction, pulls))
    assert [v.shape for v in passed.preactivations] == [pull.shape for pull in pulls]


def test_parameters_get_no_gradient_and_points_do_not_change():
    network, points = chain_of(nn.ReLU(inplace=True)), torch.randn(3, 2, 7, 6)
    before = points.clone()
    chain = LayerChain.of(network, points)
    chain.input_gradient(chain.forward(points), torch.ones(3, 3))
    assert points.equal(before)
    assert all(weight.grad is None for weight in network.parameters())


class Doubling(nn.Linear):
    def forward(self, images: Tensor) -> Tensor:
        return 2 * super().forward(images)


def hooked() -> nn.Module:
    network = chain_of()
    network[1].register_forward_hook(lambda module, inputs, output: 2 * output)
    return network


def rewritten() -> nn.Module:
    network = chain_of()
    network[1].forward = lambda images: torch.ones(len(images), 5)
    return network


@pytest.mark.parametrize(
    "network",
    [
        residual(),
        hooked(),
        rewritten(),
        Written(lambda net, x: net.a(x.flatten(1)), a=nn.Linear(84, 3)),
        chain_of(nn.Conv2d(2, 4, 3, groups=2)),
        chain_of(nn.Conv2d(2, 4, 3, dilation=2)),
        chain_of(nn.Conv2d(2, 4, 3, stride=(1, 2))),
        chain_of(nn.Conv2d(2, 4, 3, padding="same")),
        chain_of(nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular")),
        chain_of(nn.BatchNorm2d(2)),
        chain_of(nn.LeakyReLU()),
        chain_of(weight_norm(nn.Conv2d(2, 4, 3))),
        nn.Sequential(nn.Flatten(0), nn.Linear(84, 3)),
        nn.Sequential(nn.Flatten(), Doubling(84, 3)),
    ],
)
def test_what_is_no_plain_chain_is_left_to_autograd(network):
    assert LayerChain.of(network, torch.zeros(1, 2, 7, 6)) is None


def test_autocast_is_left_to_autograd():
    with torch.autocast("cpu"):
        assert LayerChain.of(convolutional(), some_images()) is None


@pytest.mark.parametrize("rule", ["sign", "gradient"])
def test_both_ways_to_attack_consistency_find_the_same_neighbour(monkeypatch, rule):
    network, images = convolutional(), some_images()
    region, clean = InputRegion.around(images, 0.2), activations(network, images)
    found = []
    for of in (LayerChain.of, lambda network, points: None):
        monkeypatch.setattr(LayerChain, "of", of)
        torch.manual_seed(1)
        steps = StepSchedule((0.03, 0.02, 0.01), momentum=0.5)
        found.append(most_inconsistent_neighbour(network, clean, region, "rank-power", steps, rule))
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=0)
    there = consistency(clean, activations(network, found[0]), "rank-power")
    assert (there < consistency(clean, clean, "rank-power")).all()


def test_both_ways_to_attack_the_label_find_the_same_point(monkeypatch):
    network, images = convolutional(), some_images()
    region, labels = InputRegion.around(images, 0.2), torch.zeros(len(images), dtype=torch.long)
    found = []
    for of in (LayerChain.of, lambda network, points: None):
        monkeypatch.setattr(LayerChain, "of", of)
        found.append(maximise_cross_entropy(network, labels, region, images, StepSchedule.equal(3, 0.05)))
    torch.testing.assert_close(found[0], found[1], atol=1e-6, rtol=0)
    loss = [F.cross_entropy(network(points), labels, reduction="none") for points in (images, found[0])]
    assert (loss[1] > loss[0]).all()
