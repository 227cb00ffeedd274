"""Constructions that made ``unsat`` wrong: the truth of each is known without floating point."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from torch import Tensor, nn

from exact_arithmetic import ORDERS, Exact, Float, exact_input, float_input, values
from steadynet.attacks.region import InputRegion
from steadynet.graph.translate import graph_of
from steadynet.verification.properties import Properties, Reason, Verdict
from steadynet.verification.verifiers.base import Verifier
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound
from steadynet.verification.verifiers.milp import Milp

SMALLEST = 2.0**-149  # of float32
LOST = 2.0**-25  # added to 1 in float32, it disappears


def verdict(network: nn.Module, lower: Tensor, upper: Tensor, verifier: Verifier) -> Verdict:
    """The verdict that class 0 wins everywhere in a box."""
    network.eval().requires_grad_(False)
    corners = torch.stack([lower, upper])
    image = corners[network(corners).argmax(1).argmin()][None]  # one that is classified right, if there is one
    properties = Properties(network, image, torch.tensor([0]), InputRegion(lower[None], upper[None]))
    return verifier(properties)[0].verdict


def searched(network: nn.Module, lower: list[float], upper: list[float], arithmetic: str = "exact") -> Verdict:
    search = BranchAndBound(timeout=20, arithmetic=arithmetic, restarts=1, attack_steps=1)
    return verdict(network, torch.tensor(lower), torch.tensor(upper), search)


def exact_margin(network: nn.Module, point: list[float]) -> Fraction:
    image = torch.tensor([point])
    first, second = values(graph_of(network, image.shape[1:]), exact_input(image), Exact())[-1]
    return first - second


def float32_margins(network: nn.Module, point: list[float]) -> dict[str, float]:
    """The margin of the network run in float32, by the order of its sums."""
    image, graph = torch.tensor([point]), graph_of(network, (len(point),))
    runs = {order: values(graph, float_input(image), Float(order))[-1] for order in (*ORDERS, "fused")}
    return {order: float(first) - float(second) for order, (first, second) in runs.items()}


def with_margin(network: nn.Sequential, point: list[float], margin: float) -> nn.Sequential:
    """The network with a last bias that makes its exact margin at a point about ``margin``."""
    bias = network[-1].bias
    bias.data[1] = 0.0
    bias.data[0] = float(Fraction(float(bias.data[0])) - exact_margin(network, point) + Fraction(margin))
    return network


def cancelling(scales: list[float], seed: int, width: int = 64, copies: int = 1) -> nn.Sequential:
    """relu(x · first) · second, with terms of both signs that nearly cancel, and layers scaled up and down again."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(1, width), nn.ReLU(), nn.Linear(width, copies), nn.ReLU(), nn.Linear(copies, 2))
    first, second, last = (network[place] for place in (0, 2, 4))
    first.weight.data, first.bias.data = torch.rand(width, 1) + 0.5, torch.zeros(width)
    terms = torch.randn(width)
    second.weight.data, second.bias.data = (terms - terms.mean()).expand(copies, -1).clone(), torch.full((copies,), 1.0)
    last.weight.data = torch.stack([torch.ones(copies), torch.zeros(copies)])
    for layer, scale in zip((first, second, last), scales, strict=True):
        layer.weight.data *= scale
    second.bias.data *= scales[0] * scales[1]
    return network


@pytest.mark.parametrize("arithmetic", ["float32", "exact"])
@pytest.mark.parametrize(
    ("scales", "copies"),
    [([1e-30, 1e30, 1.0], 1), ([1e20, 1e-20, 1.0], 1), ([1.0, 1e20, 1e-20], 1), ([1.0, 1.0, 1.0], 64)],
    ids=["1e-30 then 1e30", "1e20 then 1e-20", "1e20 in the middle", "one error 64 times"],
)
def test_a_margin_below_the_rounding_is_never_proved(scales: list[float], copies: int, arithmetic: str) -> None:
    for seed in range(4):
        network = with_margin(cancelling(scales, seed, copies=copies), [1.0], -1e-8 * copies)
        assert exact_margin(network, [1.0]) < 0
        assert searched(network, [1.0], [1.0], arithmetic) != Verdict.UNSAT


def long_sum(terms: int) -> nn.Sequential:
    """1 + (terms − 2) · 2⁻²⁵ − 1: in float32 one after the other, the small terms are lost."""
    network = nn.Sequential(nn.Linear(terms, 2))
    weight = torch.zeros(2, terms)
    weight[0] = LOST
    weight[0, 0], weight[0, -1] = 1.0, -1.0
    network[0].weight.data, network[0].bias.data = weight, torch.zeros(2)
    return network


def test_a_long_sum_is_proved_for_exact_arithmetic_alone() -> None:
    point = [1.0] * 16_512
    network = with_margin(long_sum(len(point)), point, 1e-4)
    assert exact_margin(network, point) > 0
    assert float32_margins(network, point)["sequential"] < 0
    assert searched(network, point, point, "exact") == Verdict.UNSAT
    assert searched(network, point, point, "float32") != Verdict.UNSAT
    refuted = with_margin(long_sum(len(point)), point, -1e-6)
    assert searched(refuted, point, point, "exact") != Verdict.UNSAT


class Lost(nn.Module):
    """x + 2²⁷ − 2²⁷, which float32 rounds to a multiple of 16."""

    def forward(self, images: Tensor) -> Tensor:
        return (images + 2.0**27) - 2.0**27


def test_a_large_constant_added_and_taken_away_again() -> None:
    last = nn.Linear(1, 2)
    last.weight.data, last.bias.data = torch.tensor([[1.0], [0.0]]), torch.tensor([-0.5, 0.0])
    network = nn.Sequential(Lost(), last)
    assert exact_margin(network, [1.0]) == Fraction(1, 2)
    assert float32_margins(network, [1.0])["sequential"] < 0
    assert searched(network, [1.0], [2.0], "float32") != Verdict.UNSAT


@pytest.mark.parametrize("factor", [1e6, 9e8, 1e12, 1e20])
def test_layers_that_are_scaled_up_and_down_again_are_no_proof_for_milp(factor: float) -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 2))
    network.requires_grad_(False)
    network[0].weight *= factor
    network[0].bias *= factor
    network[2].weight /= factor
    points = torch.rand(2000, 2)
    margins = network(points) @ torch.tensor([1.0, -1.0])
    network[4].bias[0] -= float(margins.min()) + 0.1 * float(margins.max() - margins.min())
    worst = points[margins.argmin()].tolist()
    assert exact_margin(network, worst) < 0
    for verifier in (Milp(timeout=20), BranchAndBound(timeout=20)):
        found = verdict(network, torch.zeros(2), torch.ones(2), verifier)
        assert found == Verdict.SAT, verifier.name


@pytest.mark.parametrize("verifier", [Milp(timeout=20), BranchAndBound(timeout=20)], ids=["milp", "branch_and_bound"])
def test_a_network_that_overflows_is_not_proved(verifier: Verifier) -> None:
    network = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2))
    network[0].weight.data, network[0].bias.data = torch.full((2, 1), 1e38), torch.zeros(2)
    network[2].weight.data, network[2].bias.data = torch.tensor([[1e-30, -1e-30], [0.0, 0.0]]), torch.tensor([1.0, 0.0])
    assert not bool(network(torch.tensor([[100.0]])).isfinite().any())
    assert verdict(network, torch.tensor([1.0]), torch.tensor([100.0]), verifier) != Verdict.UNSAT


@pytest.mark.parametrize("verifier", [Milp(timeout=20), BranchAndBound(timeout=20)], ids=["milp", "branch_and_bound"])
def test_a_network_that_overflows_at_one_narrow_place(verifier: Verifier) -> None:
    """Up to 1e50 and down again: exact arithmetic gives class 0 a lead of 1, float32 gives class 1 infinity."""
    layers: list[nn.Module] = []
    hat = ([[1.0], [-1.0]], [-0.43, 0.43]), ([[-1e3, -1e3]], [1.0])  # relu(1 - 1000 · |x - 0.43|)
    for weight, bias in (*hat, *(([[factor]], [0.0]) for factor in (1e25, 1e25, 1e-25, 1e-25))):
        layer = nn.Linear(len(weight[0]), len(weight))
        layer.weight.data, layer.bias.data = torch.tensor(weight), torch.tensor(bias)
        layers += [layer, nn.ReLU()]
    last = nn.Linear(1, 2)
    last.weight.data, last.bias.data = torch.tensor([[0.0], [1.0]]), torch.tensor([2.0, 0.0])
    network = nn.Sequential(*layers, last).requires_grad_(False)
    assert network(torch.tensor([[0.43]]))[0, 1] == torch.inf
    box = InputRegion(torch.tensor([[0.2]]), torch.tensor([[0.9]]))
    result = verifier(Properties(network, torch.tensor([[0.2]]), torch.tensor([0]), box))[0]
    assert result.verdict == Verdict.UNKNOWN
    assert result.reason == Reason.OVERFLOW


@pytest.mark.parametrize("arithmetic", ["float32", "exact"])
@pytest.mark.parametrize("factor", [1e10, 1e20, 1e38])
def test_a_box_of_the_smallest_numbers_there_are(factor: float, arithmetic: str) -> None:
    """Its centre and its half width are no numbers of float32."""
    network = nn.Sequential(nn.Linear(1, 2))
    network[0].weight.data = torch.tensor([[factor], [0.0]])
    network[0].bias.data = torch.tensor([0.0, 1.5 * factor * SMALLEST])
    assert exact_margin(network, [SMALLEST]) < 0
    assert searched(network, [SMALLEST], [2 * SMALLEST], arithmetic) != Verdict.UNSAT


class Copies(nn.Module):
    """A dense layer on many copies of its input."""

    def __init__(self, copies: int) -> None:
        super().__init__()
        self.copies, self.dense = copies, nn.Linear(copies, 2)

    def forward(self, images: Tensor) -> Tensor:
        return self.dense(torch.cat([images] * self.copies, 1))


class Tree(nn.Module):
    """The sum of many products of one input, added up in pairs."""

    def __init__(self, factors: list[float]) -> None:
        super().__init__()
        self.factors, self.last = factors, nn.Linear(1, 2)

    def forward(self, images: Tensor) -> Tensor:
        parts = [images * factor for factor in self.factors]
        while len(parts) > 1:
            parts = [first + second for first, second in zip(parts[::2], parts[1::2], strict=True)]
        return self.last(parts[0])


def test_a_value_that_is_read_many_times() -> None:
    """The parts of its coefficient, one per reader, are added up one after the other, and small ones are lost."""
    factors = [-1.0, *[-LOST] * 126, 1.0]
    tree, copies = Tree(factors), Copies(len(factors))
    tree.last.weight.data, tree.last.bias.data = torch.tensor([[1.0], [0.0]]), torch.tensor([63 * LOST, 0.0])
    copies.dense.weight.data = torch.tensor([factors[::-1], [0.0] * len(factors)])
    copies.dense.bias.data = tree.last.bias.data
    for network in (tree, copies):
        assert exact_margin(network, [1.0]) < 0
        assert searched(network, [0.0], [1.0]) != Verdict.UNSAT
