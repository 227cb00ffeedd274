"""PGD: inside the region, to the known minimum of a linear function; and only real counterexamples are claimed."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from helpers import Written, convolutional, dense, quick, residual, some_images, some_labels
from steadynet.attacks.pgd import descend, find_counterexamples, maximise_cross_entropy, misclassified
from steadynet.attacks.region import InputRegion
from steadynet.attacks.schedule import StepSchedule
from steadynet.networks.evaluation_mode import evaluation_mode


@quick
@given(st.integers(0, 1000), st.floats(0.01, 1), st.booleans())
def test_a_linear_function_is_minimal_in_a_corner(seed, radius, clip):
    torch.manual_seed(seed)
    slope, images = torch.randn(6), torch.rand(3, 6)
    region = InputRegion.around(images, radius, clip=clip)
    found = descend(lambda x: x @ slope, region, region.sample(), steps=20, step_size=radius / 5)
    assert found.equal(torch.where(slope > 0, region.lower, region.upper))
    assert not found.requires_grad


def test_the_bare_gradient_by_hand():
    # x² + 3y from (1, 0.5): gradient (2, 3), step 0.1; then (1.6, 3) with y stopped by the box at 0
    region = InputRegion(torch.tensor([[-1.0, 0.0]]), torch.tensor([[1.0, 1.0]]))
    found = descend(
        lambda x: x[:, 0] ** 2 + 3 * x[:, 1],
        region,
        torch.tensor([[1.0, 0.5]]),
        steps=2,
        step_size=0.1,
        rule="gradient",
    )
    assert found[0].tolist() == pytest.approx([0.64, 0.0])


def test_no_step_is_the_start():
    start = some_images()
    assert descend(lambda x: x.sum((1, 2, 3)), InputRegion.around(start, 0.1), start, steps=0, step_size=1).equal(start)


def test_start_is_not_changed_and_gradients_need_not_be_on():
    start = some_images()
    before = start.clone()
    with torch.no_grad():
        moved = descend(lambda x: x.sum((1, 2, 3)), InputRegion.around(start, 0.1), start, steps=3, step_size=0.1)
    assert start.equal(before)
    assert not start.requires_grad
    assert (moved <= start).all()


def test_parameters_get_no_gradient():
    network, images = convolutional(), some_images()
    region = InputRegion.around(images, 0.1)
    maximise_cross_entropy(network, some_labels(), region, images, StepSchedule.equal(3, 0.05))
    assert all(parameter.grad is None for parameter in network.parameters())


def test_cross_entropy_rises():
    network, images, labels = convolutional(), some_images(), some_labels()
    region = InputRegion.around(images, 0.3)
    points = maximise_cross_entropy(network, labels, region, images, StepSchedule.equal(10, 0.03))
    before, after = (F.cross_entropy(network(x), labels, reduction="none") for x in (images, points))
    assert (after > before).all()
    assert region.contains(points).all()


@quick
@given(st.integers(0, 1000), st.floats(0, 0.5), st.integers(0, 4), st.integers(1, 3))
def test_every_counterexample_is_real(seed, radius, steps, restarts):
    network, images = dense(6, 8, 4, seed=seed), some_images(8, (6,), seed=seed)
    labels = network(images).argmax(1)
    labels[0] = (labels[0] + 1) % 4  # the image itself is a counterexample
    region = InputRegion.around(images, radius)
    found, points = find_counterexamples(network, images, labels, region, steps=steps, restarts=restarts)
    assert found[0]
    assert region.contains(points).all()
    assert (network(points).argmax(1) != labels)[found].all()
    assert points[~found].equal(images[~found])
    assert points[0].equal(images[0])


def test_a_counterexample_that_exists_is_found():
    # the label is 1 where x > 0.6, and the image is at 0.5
    network = nn.Sequential(nn.Linear(1, 2))
    network[0].weight.data, network[0].bias.data = torch.tensor([[0.0], [1.0]]), torch.tensor([0.6, 0.0])
    images, labels = torch.tensor([[0.5]]), torch.tensor([0])
    near, far = (InputRegion.around(images, radius) for radius in (0.09, 0.11))
    assert not find_counterexamples(network, images, labels, near, steps=10, restarts=3)[0]
    assert find_counterexamples(network, images, labels, far, steps=10, restarts=3)[0]


def test_a_gradient_that_is_no_number_claims_nothing():
    network = Written(lambda net, x: net.a((x - x).abs().sqrt()), a=nn.Linear(2, 2))  # its gradient is NaN
    images = some_images(3, (2,))
    labels = network(images).argmax(1)
    found, points = find_counterexamples(network, images, labels, InputRegion.around(images, 0.1), steps=3)
    assert not found.any()
    assert points.equal(images)


def test_a_wrong_image_outside_the_region_is_no_counterexample():
    network, images = dense(2, 3, 2), some_images(1, (2,))
    labels = 1 - network(images).argmax(1)
    elsewhere = InputRegion(images + 1, images + 1)
    assert not find_counterexamples(network, images, labels, elsewhere, steps=0)[0]


def test_misclassified():
    network = nn.Identity()
    assert misclassified(network, torch.eye(3), torch.tensor([0, 2, 2])).tolist() == [False, True, False]


def test_evaluation_mode_gives_every_module_its_mode_back():
    network = residual().train()
    network.norm.eval()
    before = [module.training for module in network.modules()]
    with evaluation_mode(network):
        assert not any(module.training for module in network.modules())
    assert [module.training for module in network.modules()] == before
    with pytest.raises(ValueError, match="stop"), evaluation_mode(network):
        raise ValueError("stop")
    assert [module.training for module in network.modules()] == before


def test_searching_leaves_modes_and_running_statistics_alone():
    network, images = residual().train(), some_images()
    statistics = {name: value.clone() for name, value in network.named_buffers()}
    find_counterexamples(network, images, some_labels(), InputRegion.around(images, 0.2), steps=2)
    assert network.training
    assert all(value.equal(statistics[name]) for name, value in network.named_buffers())
