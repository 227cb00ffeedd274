"""Algorithm 1 against numbers by hand and PyTorch's own functions; the attack of Algorithm 2 against a plain one."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from helpers import Written, convolutional, dense, gradients, quick, residual, same, some_images
from steadynet.attacks.region import InputRegion
from steadynet.attacks.schedule import StepSchedule
from steadynet.errors import UserError
from steadynet.networks.preactivations import Activations, activations
from steadynet.objectives.consistency import consistency, kl_divergence, layer_weights, most_inconsistent_neighbour


def plain_consistency(clean: Activations, moved: Activations, gamma: list[float]) -> Tensor:
    cosines = [
        F.cosine_similarity(one.flatten(1), other.flatten(1)) / weight
        for one, other, weight in zip(clean.preactivations, moved.preactivations, gamma, strict=True)
    ]
    divergence = F.kl_div(moved.logits.log_softmax(1), clean.logits.softmax(1), reduction="none").sum(1)
    return sum(cosines) - divergence


def plain_neighbour(network: nn.Module, images: Tensor, region: InputRegion, gamma: list[float], rule: str) -> Tensor:
    points, clean = region.sample(), activations(network, images)
    for _ in range(3):
        points = points.detach().requires_grad_()
        value = plain_consistency(clean, activations(network, points), gamma).sum()
        (gradient,) = torch.autograd.grad(value, points)
        move = gradient.sign() if rule == "sign" else gradient
        points = torch.min(torch.max(points - 0.05 * move, region.lower), region.upper)
    return points.detach()


def test_algorithm_1_by_hand():
    # cos((3, 4), (4, 3)) = 24/25, cos((1, 0), (0, 2)) = 0, cos((1, 1), (−1, −1)) = −1
    clean = [torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.tensor([[1.0, 1.0], [1.0, 1.0]])]
    moved = [torch.tensor([[4.0, 3.0], [0.0, 2.0]]), torch.tensor([[-1.0, -1.0], [2.0, 2.0]])]
    # p = (1/2, 1/2), q = (3/4, 1/4): KL = ln 2 − ln 3 / 2
    logits, other = torch.zeros(2, 2), torch.tensor([[math.log(3), 0.0], [0.0, 0.0]])
    expected = [0.96 / 2 - 1 / 4 - (math.log(2) - math.log(3) / 2), 0 / 2 + 1 / 4]
    found = consistency(Activations(logits, clean), Activations(other, moved), [2.0, 4.0])
    assert found.tolist() == pytest.approx(expected, abs=1e-6)


def test_kl_divergence_by_hand_and_against_torch():
    assert kl_divergence(torch.zeros(1, 2), torch.tensor([[math.log(3), 0.0]])).item() == pytest.approx(0.1438410)
    logits, other = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0))
    expected = F.kl_div(other.log_softmax(1), logits.softmax(1), reduction="none").sum(1)
    same([kl_divergence(logits, other)], [expected])


def test_kl_divergence_of_sure_logits_is_finite():
    sure = torch.tensor([[200.0, 0.0]])
    assert kl_divergence(sure, sure.flip(1)).item() == pytest.approx(200)
    assert kl_divergence(sure, sure).item() == 0


@pytest.mark.parametrize(
    ("sizes", "gamma", "weights"),
    [
        ([3136, 1568, 100], "one", [1, 1, 1]),
        ([3136, 1568, 100], "rank-power", [8, 4, 2]),
        ([3136, 1568, 100], "rank-size", [3 * 3136, 2 * 1568, 100]),
        ([9, 512, 4, 512], "rank-power", [4, 8, 2, 8]),
        ([9, 512, 4, 512], "rank-size", [18, 3 * 512, 4, 3 * 512]),
        ([7, 7], "rank-power", [2, 2]),
        ([5, 3], [0.5, 7], [0.5, 7]),
    ],
)
def test_layer_weights(sizes, gamma, weights):
    assert layer_weights(sizes, gamma) == weights


@pytest.mark.parametrize("gamma", [[1.0], [1.0, 2.0, 3.0], []])
def test_a_gamma_list_must_fit_the_layers(gamma):
    with pytest.raises(UserError, match=f"gamma has {len(gamma)} numbers, but the network has 2 ReLU layers"):
        layer_weights([5, 3], gamma)


@quick
@given(st.lists(st.integers(1, 50), min_size=1, max_size=6))
def test_smaller_layers_never_weigh_less(sizes):
    for gamma in ("rank-power", "rank-size"):
        weights = layer_weights(sizes, gamma)
        assert [w for _, w in sorted(zip(sizes, weights, strict=True))] == sorted(weights)


@pytest.mark.parametrize("make", [convolutional, residual, lambda: dense(36, 7, 5, 4)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_values_and_gradients_against_plain_autograd(make, layout):
    network, images = make().eval(), some_images()
    others = some_images(seed=2).contiguous(memory_format=layout)
    if isinstance(network[0] if isinstance(network, nn.Sequential) else None, nn.Linear):
        images, others = images.flatten(1), others.flatten(1)
    results = []
    for function in (consistency, plain_consistency):
        value = function(activations(network, images), activations(network, others), [2.0, 0.5])
        results.append([value, *gradients(value.sum(), network)])
    same(*results)


def test_gradients_against_finite_differences():
    generator = torch.Generator().manual_seed(0)
    tensors = [torch.randn(3, 4, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(4)]
    value = lambda v, w, p, q: consistency(Activations(p, [v]), Activations(q, [w]), [2.0])  # noqa: E731
    assert torch.autograd.gradcheck(value, tensors)


def test_equal_passes_are_as_consistent_as_can_be():
    network, images = convolutional(), some_images()
    same([consistency(*[activations(network, images)] * 2, "rank-power")], [torch.full((5,), 1 / 4 + 1 / 2)])


def test_zero_vectors_give_numbers():
    zero, one = torch.zeros(2, 3, requires_grad=True), torch.ones(2, 3, requires_grad=True)
    logits = torch.zeros(2, 2)
    for left, right in [(zero, one), (one, zero), (zero, zero)]:
        value = consistency(Activations(logits, [left]), Activations(logits, [right]), "one")
        assert value.tolist() == [0, 0]
        assert all(
            g.isfinite().all()
            for g in torch.autograd.grad(value.sum(), [left, right], allow_unused=True)
            if g is not None
        )


LAYERS = {"a": nn.Conv2d(1, 2, 3, padding=1), "b": nn.Conv2d(2, 5, 3, 2, 1)}
SLICED = Written(lambda net, x: net.head(net.b(net.a(x))[:, 1:4].relu().flatten(1)), **LAYERS, head=nn.Linear(27, 4))
TRANSPOSED = Written(
    lambda net, x: net.head(net.b(net.a(x)).flatten(2).transpose(1, 2).relu().flatten(1)),
    **LAYERS,
    head=nn.Linear(45, 4),
)


@pytest.mark.parametrize("rule", ["sign", "gradient"])
@pytest.mark.parametrize(
    "network", [convolutional(), residual().eval(), residual(inplace=True).eval(), SLICED, TRANSPOSED]
)
def test_the_neighbour_is_the_one_plain_descent_finds(network, rule):
    images = some_images()
    clean = activations(network, images)
    gamma = [2.0, 0.5][: len(clean.preactivations)]
    region = InputRegion.around(images, 0.2)
    torch.manual_seed(7)
    ours = most_inconsistent_neighbour(network, clean, region, gamma, StepSchedule.equal(3, 0.05), rule)
    torch.manual_seed(7)
    theirs = plain_neighbour(network, images, region, gamma, rule)
    assert region.contains(ours).all()
    assert (ours - theirs).abs().gt(1e-5).float().mean() < 0.01  # a sign at zero may differ
