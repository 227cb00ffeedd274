"""Losses between an attack and interval bounds, by hand and at their limits."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from helpers import convolutional, gradients, same, some_images, some_labels
from steadynet.attacks.region import InputRegion
from steadynet.bounds.center_radius import propagate_balls
from steadynet.errors import UserError
from steadynet.graph.graph import Graph, Node
from steadynet.graph.operations import Interval, ReLU, Sum
from steadynet.graph.translate import graph_of
from steadynet.objectives import Batch, available, build
from steadynet.objectives.taps import _InBox, cut_before

EPS = 0.2
EXPRESSIVE = ["mtl-ibp", "cc-ibp", "exp-ibp"]
every_expressive = pytest.mark.parametrize("method", EXPRESSIVE)


def linear(weight: list[list[float]], bias: list[float]) -> nn.Linear:
    layer = nn.Linear(len(weight[0]), len(weight))
    layer.weight.data, layer.bias.data = torch.tensor(weight), torch.tensor(bias)
    return layer


def cancelling() -> nn.Sequential:
    """y = (relu(h - h + 1), 0), h = relu(x) twice: the margin is 1 everywhere, and 0.8 by intervals of 0.5 ± 0.1."""
    first, second = linear([[1.0], [1.0]], [0.0, 0.0]), linear([[1.0, -1.0]], [1.0])
    return nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), linear([[1.0], [0.0]], [0.0, 0.0]))


def loss_by_hand(method: str, **settings: object) -> float:
    objective = build(method, {method: {"balance": 0.0} | settings})
    return objective(cancelling(), torch.tensor([[0.5]]), torch.tensor([0]), 0.1).item()


def loss_of(method: str, network: nn.Module, **settings: object) -> Tensor:
    torch.manual_seed(0)
    objective = build(method, {method: settings})
    return sum(objective.terms(Batch(network, some_images(), some_labels(), EPS)).values())


def cross_entropy(margin: float) -> float:
    return math.log(1 + math.exp(-margin))


def test_expressive_losses_by_hand() -> None:
    attacked, proved, share = 1.0, 0.8, 0.3
    losses = cross_entropy(attacked), cross_entropy(proved)
    assert loss_by_hand("mtl-ibp", ibp_share=share) == pytest.approx(0.7 * losses[0] + 0.3 * losses[1], abs=1e-6)
    assert loss_by_hand("cc-ibp", ibp_share=share) == pytest.approx(cross_entropy(0.7 * attacked + 0.3 * proved))
    assert loss_by_hand("exp-ibp", ibp_share=share) == pytest.approx(losses[0] ** 0.7 * losses[1] ** 0.3, abs=1e-6)


def test_the_radius_is_multiplied() -> None:
    """Over 0.5 ± 0.2, intervals prove the margin 0.6."""
    assert loss_by_hand("cc-ibp", ibp_share=1.0, eps_factor=2.0) == pytest.approx(cross_entropy(0.6), abs=1e-6)
    assert loss_by_hand("sabr", box=1.0, eps_factor=2.0) == pytest.approx(cross_entropy(0.6), abs=1e-6)


def test_sabr_shrinks_boxes_behind_relus() -> None:
    """h = 0.5 ± 0.05 twice, relu(h - h + 1) = 1 ± 0.1, and half of that again."""
    assert loss_by_hand("sabr", box=1.0, shrink=0.5) == pytest.approx(cross_entropy(0.95), abs=1e-6)


@every_expressive
def test_alpha_leads_from_madry_to_ibp(method: str) -> None:
    network = convolutional()
    torch.manual_seed(0)
    madry = build("madry", {"madry": {"steps": 5, "step_size": 0.03}})(network, some_images(), some_labels(), EPS)
    ours = loss_of(method, network, ibp_share=0.0, steps=5, step_size=0.03)
    same([ours, *gradients(ours, network)], [madry, *gradients(madry, network)])
    whole, ibp = loss_of(method, network, ibp_share=1.0), loss_of("ibp", network)
    same([whole, *gradients(whole, network)], [ibp, *gradients(ibp, network)])


def test_mtl_ibp_is_the_weighted_sum() -> None:
    network = convolutional()
    mixed, alone = (loss_of("mtl-ibp", network, ibp_share=share) for share in (0.3, 0.0))
    same([mixed], [0.3 * loss_of("ibp", network) + 0.7 * alone])


def test_steps_and_factors_are_published() -> None:
    settings = available()["mtl-ibp"].published("cifar10", 2 / 255)
    objective = build("mtl-ibp", {"mtl-ibp": settings})
    assert objective.schedule(0.1).lengths == pytest.approx([0.025] * 8)
    assert objective.attack_factor == 2.1
    objective = build("mtl-ibp", {"mtl-ibp": available()["mtl-ibp"].published("mnist", 0.1)})
    assert objective.schedule(0.1).lengths == pytest.approx([1.0])
    assert objective.eps_factor == 2.0


def test_ibp_r_by_hand() -> None:
    """Over 0.05 ± 0.1, h lies in [-0.05, 0.15] twice; relu(h - h + 1) is active."""
    images, labels = torch.tensor([[0.05]]), torch.tensor([0])
    settings = {"area_weight": 2.0, "balance": 0.0, "clip": False}
    terms = build("ibp-r", {"ibp-r": settings}).terms(Batch(cancelling(), images, labels, 0.1))
    assert terms["area"].item() == pytest.approx(2.0 * 2 * 0.15 * 0.05 / 2, abs=1e-6)
    assert terms["adversarial"].item() == pytest.approx(cross_entropy(1.0), abs=1e-6)


def test_ibp_r_without_its_penalty_is_madry() -> None:
    network = convolutional()
    torch.manual_seed(0)
    madry = build("madry", {"madry": {"steps": 5, "step_size": 0.03}})(network, some_images(), some_labels(), EPS)
    settings = {"area_weight": 0.0, "attack_factor": 1.0, "steps": 5, "step_size": 0.03, "decay": False}
    ours = loss_of("ibp-r", network, balance=0.0, **settings)
    same([ours, *gradients(ours, network)], [madry, *gradients(madry, network)])


def test_taps_by_hand() -> None:
    """Behind the first ReLUs, the attack may move both copies of h; at the input, it moves one number."""
    ibp = cross_entropy(0.8)
    assert loss_by_hand("taps", attacked_relus=0) == pytest.approx(ibp, abs=1e-6)
    assert loss_by_hand("taps", attacked_relus=1) == pytest.approx(ibp * ibp, abs=1e-6)
    assert loss_by_hand("taps", attacked_relus=2) == pytest.approx(cross_entropy(1.0) * ibp, abs=1e-6)


@pytest.mark.parametrize("method", ["taps", "staps"])
def test_taps_without_a_second_part_is_ibp_or_sabr(method: str) -> None:
    network = convolutional()
    ours = loss_of(method, network, attacked_relus=0)
    other = loss_of("ibp" if method == "taps" else "sabr", network)
    same([ours, *gradients(ours, network)], [other, *gradients(other, network)])


def test_a_whole_box_of_staps_is_taps() -> None:
    network = convolutional()
    ours, taps = loss_of("staps", network, box=1.0), loss_of("taps", network)
    same([ours, *gradients(ours, network)], [taps, *gradients(taps, network)])


def test_a_latent_point_moves_with_the_end_that_it_is_near() -> None:
    """In the box [0, 1], edges are 0.5 wide."""
    points = torch.tensor([0.9, 0.5, 0.2, 0.0])
    lower, upper = torch.zeros(4, requires_grad=True), torch.ones(4, requires_grad=True)
    _InBox.apply(points, lower, upper).sum().backward()
    same([upper.grad], [torch.tensor([0.8, 0.0, 0.0, 0.0])])
    same([lower.grad], [torch.tensor([0.0, 0.0, 0.6, 1.0])])


def test_equal_weights_give_the_gradient_of_the_product() -> None:
    """The latent point is a corner of its box, so L_TAPS and L_IBP are one function."""
    network = cancelling()
    images, labels = torch.tensor([[0.5]]), torch.tensor([0])
    loss = build("taps", {"taps": {"taps_weight": 1.0, "balance": 0.0}})(network, images, labels, 0.1)
    graph, region = graph_of(network, (1,)), InputRegion.around(images, 0.1)
    assert propagate_balls(graph, Interval(region.lower, region.upper))[-1].interval.lower[
        0, 0
    ].item() == pytest.approx(0.8)
    ibp = build("ibp", {"ibp": {"balance": 0.0}})(network, images, labels, 0.1)
    same(gradients(loss, network), [2 * ibp.item() * gradient for gradient in gradients(ibp, network)], atol=1e-5)


class Skipping(nn.Module):
    """relu(x) + relu(relu(x)), on images that are flattened."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(some_images()[0].numel(), 10)

    def forward(self, images: Tensor) -> Tensor:
        first = images.flatten(1).relu()
        return self.last(first + (first - 0.5).relu())


def test_cuts_that_do_not_exist_are_refused() -> None:
    with pytest.raises(UserError, match="attacked_relus = 9, but the network has"):
        loss_of("taps", convolutional(), attacked_relus=9)
    assert loss_of("taps", Skipping(), attacked_relus=1) > 0
    with pytest.raises(UserError, match="skips the cut"):
        cut_before(Graph((Node("first", ReLU(), (0,)), Node("second", ReLU(), (1,)), Node("sum", Sum(), (1, 2)))), 0)
