"""Regions beyond one ε, against points of the region and against networks whose limits are known."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from steadynet import Result, UserError, Verdict, regions, verify
from steadynet.verification.region_properties import _with_image

IMAGES = torch.tensor([[[[0.5, 0.5], [0.5, 0.5]]]])


@pytest.fixture
def bright():
    """Label 0 while the mean of four pixels is below 0.6."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    network[1].weight.data, network[1].bias.data = torch.tensor([[-0.25] * 4, [0.0] * 4]), torch.tensor([0.6, 0.0])
    return network


def verdict(network, region):
    (result,) = verify(network, IMAGES, [0], region=region)
    if result.counterexample is not None:
        assert result.counterexample.shape == IMAGES.shape[1:]
        assert int(network(result.counterexample[None]).argmax(1)) == 1
        assert 0 <= float(result.counterexample.min()) <= float(result.counterexample.max()) <= 1
    return result.verdict


@pytest.mark.parametrize(
    ("inside", "outside"),
    [
        (regions.brightness(-0.4, 0.09), regions.brightness(-0.4, 0.11)),
        (regions.contrast(0.0, 1.19), regions.contrast(0.0, 1.21)),
        (regions.mix(torch.ones(1, 2, 2), 0.19), regions.mix(torch.ones(1, 2, 2), 0.21)),
        (regions.per_channel([0.09]), regions.per_channel([0.11])),
        (regions.patch(0, 0, 1, 1, eps=0.39), regions.patch(0, 0, 1, 1, eps=0.41)),
        (regions.patch(1, 1, 1, 1, eps=0.39), regions.patch(0, 0, 2, 1)),
        (
            regions.linear(torch.eye(4).reshape(4, 1, 2, 2), [0] * 4, [0.09] * 4),
            regions.linear(torch.eye(4).reshape(4, 1, 2, 2), [0] * 4, [0.11] * 4),
        ),
        (
            regions.box(torch.zeros(1, 2, 2), torch.full((1, 2, 2), 0.59)),
            regions.box(torch.zeros(1, 2, 2), torch.full((1, 2, 2), 0.61)),
        ),
    ],
)
def test_the_limit_of_each_region(bright, inside, outside):
    assert verdict(bright, inside) is Verdict.UNSAT
    assert verdict(bright, outside) is Verdict.SAT


def test_pixels_are_clipped(bright):
    """Brightness 0.5 makes all pixels 1, not more, so a network that asks for more than 1 keeps its label."""
    bright[1].bias.data = torch.tensor([1.01, 0.0])
    assert verdict(bright, regions.brightness(0, 5)) is Verdict.UNSAT


def test_an_image_that_keeps_its_label_is_no_counterexample(bright):
    """A result whose numbers describe an image with the right label, as rounding may bring about, is no ``sat``."""
    layers = regions.brightness(0, 1).layers(IMAGES)[0]
    label = torch.tensor(0)
    found = Result(Verdict.SAT, 0.1, counterexample=torch.tensor([0.05]))
    assert _with_image(found, layers, bright, label).verdict is Verdict.UNKNOWN
    found = Result(Verdict.SAT, 0.1, counterexample=torch.tensor([0.2]))
    assert _with_image(found, layers, bright, label).verdict is Verdict.SAT


def test_random_networks_agree_with_sampled_changes():
    torch.manual_seed(0)
    for _ in range(5):
        network = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
        images = torch.rand(4, 1, 2, 2)
        labels = network(images).argmax(1)
        results = verify(network, images, labels, region=regions.brightness(-0.3, 0.3))
        shifts = torch.linspace(-0.3, 0.3, 301).view(-1, 1, 1, 1)
        for image, label, result in zip(images, labels, results, strict=True):
            kept = bool((network((image + shifts).clamp(0, 1)).argmax(1) == label).all())
            assert kept or result.verdict is Verdict.SAT
            assert not (result.verdict is Verdict.UNSAT and not kept)


@pytest.mark.parametrize(
    ("region", "message"),
    [
        (lambda: regions.per_channel([0.1, 0.1]), "2 radii for 1 channels"),
        (lambda: regions.patch(1, 1, 2, 2), "does not lie inside"),
        (lambda: regions.brightness(0.2, 0.1), "above its largest"),
        (lambda: regions.box(torch.ones(1, 2, 2), torch.zeros(1, 2, 2)), "above its upper"),
        (lambda: regions.linear(torch.zeros(1, 5), [0], [1]), "do not fit"),
    ],
)
def test_regions_that_make_no_sense(bright, region, message):
    with pytest.raises(UserError, match=message):
        verify(bright, IMAGES, [0], region=region())


def test_a_radius_or_a_region(bright):
    with pytest.raises(UserError, match="not both"):
        verify(bright, IMAGES, [0], 0.1, region=regions.brightness(0, 0.1))
    assert repr(verify(bright, IMAGES, [0], region=regions.brightness(0, 0.05))).startswith(
        "Results(brightness: 1 of 1"
    )
