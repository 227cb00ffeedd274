"""Interval bounds: by hand, exact at a point, sound on random networks and points, monotone, differentiable."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from helpers import Written, convolutional, dense, quick, residual, shaken, some_images
from steadynet.attacks.region import InputRegion
from steadynet.bounds import LayerBounds, interval_bounds
from steadynet.graph.operations import Interval
from steadynet.networks.preactivations import activations

small = st.integers(1, 3)


class Random(nn.Module):
    """A network drawn from every operation there are bounds for."""

    def __init__(self, draw: st.DrawFn) -> None:
        super().__init__()
        torch.manual_seed(draw(st.integers(0, 10**6)))
        self.kinds = draw(st.lists(st.sampled_from(sorted(BLOCKS)), min_size=1, max_size=4))
        self.blocks = nn.ModuleList()
        images = torch.zeros(1, 2, 6, 5)
        for kind in self.kinds:
            self.blocks.append(shaken(BLOCKS[kind](draw, images.shape[1])).eval())
            images = JOINTS.get(kind, lambda x, y: y)(images, self.blocks[-1](images))
        self.head = nn.Linear(images[0].numel(), 3)

    def forward(self, images: Tensor) -> Tensor:
        for kind, block in zip(self.kinds, self.blocks, strict=True):
            images = JOINTS.get(kind, lambda x, y: y)(images, block(images))
        return self.head(images.view(images.size(0), -1))


def _same_size(draw: st.DrawFn, channels: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU(inplace=draw(st.booleans())))


BLOCKS = {
    "convolution": lambda draw, channels: nn.Sequential(
        nn.Conv2d(
            channels,
            draw(small) * channels,
            (draw(small), draw(small)),
            stride=(draw(small), draw(small)),
            padding=(draw(st.integers(3, 4)), draw(st.integers(3, 4))),
            dilation=(draw(small), draw(small)),
            groups=draw(st.sampled_from([1, channels])),
            bias=draw(st.booleans()),
        ),
        nn.ReLU(),
    ),
    "batch norm": lambda draw, channels: nn.Sequential(nn.BatchNorm2d(channels), nn.LeakyReLU(draw(st.floats(0, 1)))),
    "max pool": lambda draw, channels: nn.MaxPool2d(3, draw(small), 1, ceil_mode=draw(st.booleans())),
    "average pool": lambda draw, channels: nn.AvgPool2d(2, draw(small), 1, count_include_pad=draw(st.booleans())),
    "sum": _same_size,
    "difference": _same_size,
    "concatenation": _same_size,
    "constants": lambda draw, channels: Written(
        lambda net, x: (1 - x) * torch.linspace(-2, 1, channels)[:, None, None]
    ),
}
JOINTS = {
    "sum": lambda x, y: x + y,
    "difference": lambda x, y: x - y,
    "concatenation": lambda x, y: torch.cat([x, y], 1),
}


def inside(bounds: Interval, value: Tensor) -> bool:
    slack = 1e-5 * (1 + value.abs().max())
    return bool(((value >= bounds.lower - slack) & (value <= bounds.upper + slack)).all())


def layers_and_output(bounds: LayerBounds) -> list[Interval]:
    return [*bounds.relus, bounds.output]


def test_by_hand():
    # y = relu(x₁ − 2x₂ + 1) and relu(−x₁ + 1) on [−1, 1] × [0, 2]: before the relu [−4, 2] and [0, 2]
    network = dense(2, 2, 1)
    network[0].weight.data, network[0].bias.data = torch.tensor([[1.0, -2.0], [-1.0, 0.0]]), torch.tensor([1.0, 1.0])
    network[2].weight.data, network[2].bias.data = torch.tensor([[3.0, -1.0]]), torch.tensor([0.5])
    region = InputRegion(torch.tensor([[-1.0, 0.0]]), torch.tensor([[1.0, 2.0]]))
    bounds = interval_bounds(network, region)
    assert bounds.method == "ibp"
    assert bounds.relus[0].lower.tolist() == [[-4, 0]]
    assert bounds.relus[0].upper.tolist() == [[2, 2]]
    assert (bounds.output.lower.item(), bounds.output.upper.item()) == (-1.5, 6.5)
    assert bounds.stable()[0].tolist() == [[False, True]]
    assert bounds.stable_share().tolist() == [0.5]


def test_stable_means_that_zero_is_not_strictly_inside():
    layer = Interval(torch.tensor([[0.0, -1.0, -1.0, 0.1]]), torch.tensor([[1.0, 0.0, 1.0, 0.2]]))
    other = Interval(torch.full((1, 1), -1.0), torch.full((1, 1), 1.0))
    bounds = LayerBounds("by hand", [layer, other], other)
    assert bounds.stable()[0].tolist() == [[True, True, False, True]]
    assert bounds.stable_share().tolist() == pytest.approx([3 / 5])


@quick
@given(st.data(), st.floats(0, 0.5))
def test_random_points_stay_inside_the_bounds_of_random_networks(data, radius):
    network = Random(data.draw).eval()
    region = InputRegion.around(torch.rand(3, 2, 6, 5) * 2 - 0.5, radius, clip=False)
    with torch.no_grad():
        output = interval_bounds(network, region).output
        points = [region.lower, region.upper, *(region.sample() for _ in range(5))]
        corners = [torch.where(torch.rand_like(region.lower) > 0.5, region.lower, region.upper) for _ in range(5)]
        assert all(inside(output, network(point.clone())) for point in points + corners)


@quick
@given(st.data())
def test_radius_zero_gives_the_values_of_random_networks(data):
    network, images = Random(data.draw).eval(), torch.rand(3, 2, 6, 5)
    with torch.no_grad():
        output, expected = interval_bounds(network, InputRegion(images, images)).output, network(images.clone())
    torch.testing.assert_close(output.lower, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(output.upper, output.lower, rtol=0, atol=0)


@pytest.mark.parametrize("network", [convolutional(), residual().eval(), residual(inplace=True).eval()])
def test_relu_inputs_stay_inside_and_are_exact_at_a_point(network):
    images = some_images()
    region = InputRegion.around(images, 0.1)
    bounds, point = interval_bounds(network, region), interval_bounds(network, InputRegion.around(images, 0.0))
    for _ in range(20):
        layers = activations(network, region.sample()).preactivations
        assert all(inside(bound, layer) for bound, layer in zip(bounds.relus, layers, strict=True))
    for bound, layer in zip(point.relus, activations(network, images).preactivations, strict=True):
        torch.testing.assert_close(bound.lower, layer)


def test_bounds_of_one_affine_layer_are_attained():
    layer = nn.Sequential(nn.Conv2d(1, 3, 3, stride=2, padding=1))
    region = InputRegion.around(some_images(1), 0.1)
    output = interval_bounds(layer, region).output
    slopes = torch.autograd.functional.jacobian(lambda x: layer(x).flatten(), region.lower)[:, 0]
    best = torch.where(slopes > 0, region.upper, region.lower)  # one corner an output
    highest = layer(best).flatten(1).diagonal()
    torch.testing.assert_close(output.upper.flatten(), highest, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("network", [convolutional(), residual().eval(), dense(36, 9, 9, 4)])
def test_a_larger_region_has_wider_bounds_and_fewer_stable_relus(network):
    images = some_images().flatten(1) if isinstance(next(network.children()), nn.Linear) else some_images()
    with torch.no_grad():
        series = [interval_bounds(network, InputRegion.around(images, radius)) for radius in (0.0, 0.01, 0.1, 0.4)]
    for narrow, wide in itertools.pairwise(series):
        for a, b in zip(layers_and_output(narrow), layers_and_output(wide), strict=True):
            assert (b.lower <= a.lower + 1e-5).all()
            assert (b.upper >= a.upper - 1e-5).all()
        assert (narrow.stable_share() >= wide.stable_share()).all()


def test_each_image_has_its_own_bounds():
    network, region = convolutional(), InputRegion.around(some_images(), 0.1)
    whole = interval_bounds(network, region)
    one = interval_bounds(network, region[torch.tensor([3])])
    torch.testing.assert_close(one.output.lower[0], whole.output.lower[3])


def test_gradients_of_bounds_agree_with_differences():
    network = shaken(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2)).double()).eval()
    region = InputRegion.around(some_images(2, (3,)).double(), 0.2)
    weights = list(network.parameters())
    directions = [torch.randn_like(weight) for weight in weights]

    def total(distance: float) -> Tensor:
        with torch.no_grad():
            for weight, direction in zip(weights, directions, strict=True):
                weight.add_(direction, alpha=distance)
        output = interval_bounds(network, region).output
        return output.lower.sum() + 2 * output.upper.sum()

    slopes = torch.autograd.grad(total(0), weights)
    slope = sum((one * other).sum() for one, other in zip(slopes, directions, strict=True))
    up, down = total(1e-6), total(-2e-6)
    assert slope.item() == pytest.approx(((up - down) / 2e-6).item(), rel=1e-5)


def test_bounds_follow_an_optimiser_step():
    network, region = convolutional(), InputRegion.around(some_images(), 0.1)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    widths = []
    for _ in range(5):
        output = interval_bounds(network, region).output
        widths.append((output.upper - output.lower).mean())
        optimiser.zero_grad()
        widths[-1].backward()
        optimiser.step()
    assert all(after < before for before, after in itertools.pairwise(widths))


def test_training_mode_is_bounded_as_in_evaluation():
    network, region = residual(), InputRegion.around(some_images(), 0.1)
    training, evaluation = interval_bounds(network.train(), region), interval_bounds(network.eval(), region)
    assert training.output.lower.equal(evaluation.output.lower)
