"""The certified losses against numbers computed by hand, points of the box, finite differences and each other."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from helpers import convolutional, dense, gradients, quick, residual, same, some_images, some_labels
from random_networks import make
from steadynet.attacks.region import InputRegion
from steadynet.bounds import crown_bounds, graph_of
from steadynet.bounds.center_radius import Ball, propagate_balls
from steadynet.bounds.margins import crown_margins, ibp_margins
from steadynet.errors import UserError
from steadynet.graph.graph import Graph, Node
from steadynet.graph.operations import Dense, Interval
from steadynet.graph.training_graph import LiveGraph
from steadynet.objectives import Batch, available, build
from steadynet.objectives.certified import CertifiedObjective, Propagated, warmup_regulariser

CERTIFIED = ["ibp", "crown-ibp", "sabr", "mtl-ibp", "cc-ibp", "exp-ibp", "ibp-r", "taps", "staps"]
EPS = 0.2
every_certified = pytest.mark.parametrize("method", CERTIFIED)


def loss_of(
    method: str, network: nn.Module, *, radius: float = EPS, share: float = 1.0, seed: int = 0, **settings: object
) -> Tensor:
    images = some_images().to(next(network.parameters()).dtype)
    torch.manual_seed(seed)
    return sum(build(method, {method: settings}).terms(Batch(network, images, some_labels(), radius, share)).values())


def by_hand() -> nn.Sequential:
    """h₁ = relu(x₁ + x₂), h₂ = relu(x₁ − x₂); y = (h₁, h₁ + h₂ − 1)."""
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
        network[0].bias.zero_()
        network[2].weight.copy_(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
        network[2].bias.copy_(torch.tensor([0.0, -1.0]))
    return network


def test_certified_methods_are_these():
    assert sorted(name for name, plugin in available().items() if issubclass(plugin, CertifiedObjective)) == sorted(
        CERTIFIED
    )


def test_ibp_by_hand():
    # x = (0.5, 0.4) ± 0.1: h₁ ∈ [0.7, 1.1], h₂ ∈ [0, 0.3]; y₀ − y₁ = 1 − h₂ ≥ 0.7, the h₁ of both cancel when folded
    images, labels = torch.tensor([[0.5, 0.4]]), torch.tensor([0])
    loss = build("ibp")(by_hand(), images, labels, 0.1)
    assert loss.item() == pytest.approx(math.log(1 + math.exp(-0.7)), abs=1e-6)
    region = InputRegion.around(images, 0.1)
    graph = graph_of(by_hand(), (2,))
    values = propagate_balls(graph, Interval(region.lower, region.upper))
    same([ibp_margins(graph, values, labels)], [torch.tensor([[0.0, 0.7]])])
    unfolded = Graph((*graph.nodes, Node("again", Dense(torch.eye(2), None), (3,))))
    values = propagate_balls(unfolded, Interval(region.lower, region.upper))
    same([ibp_margins(unfolded, values, labels)], [torch.tensor([[0.0, 0.7 - 1.1 + 0.7]])])


def test_kappa_by_hand():
    images, labels = torch.tensor([[0.5, 0.4]]), torch.tensor([0])
    clean = math.log(1 + math.exp(-0.9))
    worst = math.log(1 + math.exp(-0.7))
    for share, kappa in ((0.0, 1.0), (0.25, 0.8), (1.0, 0.2)):
        objective = build("ibp", {"ibp": {"kappa_end": 0.2, "balance": 0.0}})
        terms = objective.terms(Batch(by_hand(), images, labels, 0.1, share))
        assert terms["cross_entropy"].item() == pytest.approx(kappa * clean, abs=1e-6)
        assert terms["certified"].item() == pytest.approx((1 - kappa) * worst, abs=1e-6)


def test_the_warm_up_regulariser_by_hand():
    # one layer of three ReLUs, centres 5, −1, 0.2 (mean 1.4), radius 1/2: one active, one inactive, one unstable
    layer = Ball(torch.tensor([[5.0, -1.0, 0.2]]), torch.full((1, 3), 0.5))
    box = Ball(torch.full((1, 2), 0.1), torch.full((1, 2), 0.1))
    tightness, means, variances = (0.5 - 0.1 / 0.5) / 0.5, (0.5 - 1 / 5) / 0.5, (0.5 - 2.4**2 / 3.6**2) / 0.5
    found = warmup_regulariser(Propagated([box], [layer]))
    assert found.item() == pytest.approx(tightness + means + variances, abs=1e-6)
    lonely = Ball(torch.tensor([[1.1, 2.1]]), torch.full((1, 2), 0.1))  # no inactive ReLU to balance
    assert warmup_regulariser(Propagated([box], [lonely])).item() == pytest.approx(0.0)


def test_the_regulariser_fades():
    network = convolutional()
    terms = [
        build("ibp").terms(Batch(network, some_images(), some_labels(), share * EPS, share))["balance"]
        for share in (0.25, 0.5, 1.0)
    ]
    assert terms[0] > terms[1] > 0
    assert terms[2] == 0


@every_certified
@pytest.mark.parametrize("make", [convolutional, residual])
def test_at_radius_zero_every_certified_loss_is_the_cross_entropy(method, make):
    network = make().train()
    expected = F.cross_entropy(make().train()(some_images()), some_labels())
    for share in (0.0, 1.0):
        settings = {"attacked_relus": 0} if "attacked_relus" in fields(method) else {}  # else a product of two losses
        found = loss_of(method, network, radius=0.0, share=share, balance=0.0, l1_weight=0.0, **settings)
        assert found.item() == pytest.approx(expected.item(), abs=1e-5)


@quick
@given(seed=st.integers(0, 10**6), radius=st.floats(0.0, 0.4), place=st.floats(0, 1))
def test_ibp_is_never_below_the_loss_of_a_point(seed, radius, place):
    network = dense(4, 7, 5, 3, seed=seed)
    images = torch.rand(6, 4, generator=torch.Generator().manual_seed(seed))
    labels = torch.arange(6) % 3
    region = InputRegion.around(images, radius)
    graph = graph_of(network, (4,))
    values = propagate_balls(graph, Interval(region.lower, region.upper))
    for margins in (ibp_margins, crown_margins):
        worst = F.cross_entropy(-margins(graph, values, labels), labels, reduction="none")
        corners = torch.where(torch.rand_like(images) < place, region.lower, region.upper)
        for points in (images, region.sample(), corners):
            assert (worst >= F.cross_entropy(network(points), labels, reduction="none") - 1e-5).all()
    ibp = build("ibp")(network, images, labels, radius)
    assert ibp >= F.cross_entropy(network(region.sample()), labels) - 1e-5


@pytest.mark.parametrize("make", [convolutional, residual])
def test_a_whole_box_of_sabr_is_ibp(make):
    network = make().train()
    sabr = loss_of("sabr", network, box=1.0)
    ibp = loss_of("ibp", network)
    same([sabr, *gradients(sabr, network)], [ibp, *gradients(ibp, network)])


@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_small_boxes_lie_in_the_region_and_shrink_the_loss(share):
    network = convolutional()
    regions = []

    class Watching(available()["sabr"]):  # type: ignore[misc]
        def propagate(self, batch: Batch, region: InputRegion, shrink: float = 1.0) -> Propagated:
            regions.append(region)
            return super().propagate(batch, region, shrink)

    loss = Watching(box=share)(network, some_images(), some_labels(), EPS)
    whole = InputRegion.around(some_images(), EPS)
    assert (regions[0].lower >= whole.lower - 1e-6).all()
    assert (regions[0].upper <= whole.upper + 1e-6).all()
    assert ((regions[0].upper - regions[0].lower) <= 2 * share * EPS + 1e-6).all()
    assert loss <= build("ibp")(network, some_images(), some_labels(), EPS) + 1e-6


@pytest.mark.parametrize("make", [convolutional, residual])
def test_crown_ibp_starts_at_crown_and_ends_at_ibp(make):
    network, images, labels = make().eval(), some_images(), some_labels()
    start = loss_of("crown-ibp", network, share=0.0, kappa_start=0.0, balance=0.0)
    graph, region = graph_of(network, tuple(images.shape[1:])), InputRegion.around(images, EPS)
    margins = crown_margins(graph, propagate_balls(graph, Interval(region.lower, region.upper)), labels)
    same([start], [F.cross_entropy(-margins, labels)])
    same([loss_of("crown-ibp", network)], [loss_of("ibp", network)])
    values = propagate_balls(graph, Interval(region.lower, region.upper))
    mixed = 0.3 * margins + 0.7 * ibp_margins(graph, values, labels)
    same([loss_of("crown-ibp", network, crown_end=0.3)], [F.cross_entropy(-mixed, labels)])


def test_crown_margins_are_those_of_a_network_that_computes_margins():
    """One hidden layer: its interval bounds are exact, so the verifier's CROWN sees the same lines."""
    network, images, labels = dense(4, 9, 3), torch.rand(5, 4), torch.tensor([0, 1, 2, 0, 1])
    region = InputRegion.around(images, EPS)
    graph = graph_of(network, (4,))
    found = crown_margins(graph, propagate_balls(graph, Interval(region.lower, region.upper)), labels)
    for row, label in enumerate(labels):
        margin = nn.Linear(3, 3, bias=False)
        margin.weight.data = torch.eye(3)[label] - torch.eye(3)
        expected = crown_bounds(nn.Sequential(*network, margin), region[row : row + 1]).output.lower
        same([found[row]], [expected[0].detach()], atol=1e-5)


@every_certified
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_gradients_by_finite_differences(method, share):
    network = dense(4, 5, 4, 3).double()
    images = torch.rand(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    labels = torch.tensor([0, 1, 2, 0])

    def value() -> Tensor:
        torch.manual_seed(0)
        chosen = {name: 0 for name in ("steps", "attacked_relus") if name in fields(method)}  # attacks have no gradient
        objective = build(method, {method: {"l1_weight": 0.01} | chosen})
        return sum(objective.terms(Batch(network, images, labels, share * 0.1, share)).values())

    found = gradients(value(), network)
    for parameter, gradient in zip(network.parameters(), found, strict=True):
        for index in range(0, parameter.numel(), 3):
            place, step = parameter.data.view(-1), 1e-6
            before = place[index].item()
            ends = []
            for sign in (1, -1):
                place[index] = before + sign * step
                ends.append(value().item())
            place[index] = before
            assert gradient.view(-1)[index].item() == pytest.approx((ends[0] - ends[1]) / (2 * step), abs=1e-6)


def fields(method: str) -> set[str]:
    return set(available()[method].__dataclass_fields__)


def test_batch_norm_is_that_of_the_clean_batch():
    network, images = residual().train(), some_images()
    batch = Batch(network, images, some_labels(), EPS)
    same([batch.graph.values(images)[-1]], [residual().train()(images)])
    same([batch.logits_at(images)], [batch.clean.logits])
    assert network.norm.num_batches_tracked == 1
    frozen = residual().train()
    frozen.norm.eval()
    batch = Batch(frozen, images, some_labels(), EPS)
    same([batch.graph.values(images)[-1]], [frozen(images)])


def test_gradients_flow_through_the_statistics():
    network = residual().double().train()
    images = some_images().double()
    batch = Batch(network, images, some_labels(), EPS)
    same(gradients(batch.graph.values(images)[-1].sum(), network), gradients(network(images).sum(), network))


@pytest.mark.parametrize("make", [convolutional, residual])
@pytest.mark.parametrize("mode", [True, False])
def test_a_kept_graph_follows_the_weights(make, mode):
    network = make().train(mode)
    live = LiveGraph(network)
    optimiser = torch.optim.SGD(network.parameters(), 0.1)
    for _ in range(3):
        kept, fresh = (
            build("ibp").terms(Batch(network, some_images(), some_labels(), EPS, 1.0, given))["certified"]
            for given in (live, None)
        )
        same([kept], [fresh])
        optimiser.zero_grad()
        kept.backward()
        optimiser.step()


@pytest.mark.parametrize("seed", range(24))
def test_balls_are_the_intervals(seed):
    case = make(seed)  # dense, convolutional, residual, with maxima, leaky ReLUs and batch norm
    graph, region = graph_of(case.network, tuple(case.images.shape[1:])), case.properties().region
    box = Interval(region.lower, region.upper)
    for ball, interval in zip(propagate_balls(graph, box), graph.intervals(box), strict=True):
        same(list(ball.interval), list(interval), atol=1e-4)


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("ibp", {"kappa_end": 1.5}),
        ("ibp", {"balance": -1.0}),
        ("ibp", {"l1_weight": -1.0}),
        ("crown-ibp", {"crown_start": -0.1}),
        ("sabr", {"box": 1.1}),
        ("sabr", {"steps": -1}),
        ("sabr", {"shrink": 0.0}),
        ("mtl-ibp", {"ibp_share": 2.0}),
        ("cc-ibp", {"eps_factor": 0.0}),
        ("ibp-r", {"area_weight": -1.0}),
        ("taps", {"attacked_relus": -1}),
        ("taps", {"taps_weight": 0.0}),
        ("staps", {"box": -0.1}),
    ],
)
def test_settings_that_do_not_fit(method, settings):
    with pytest.raises(UserError, match=f"^{next(iter(settings))} = "):
        build(method, {method: settings})


def test_steps_of_the_attack_fall():
    steps = available()["sabr"]().schedule(0.2).lengths
    assert steps == pytest.approx([0.1] * 4 + [0.01] * 3 + [0.001])
    assert available()["sabr"](decay=False).schedule(0.2).lengths == pytest.approx([0.1] * 8)
