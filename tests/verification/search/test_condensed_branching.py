"""Which ReLU of a condensed network is split, with numbers computed by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from steadynet.bounds.condensed import CondensedNetwork, condense
from steadynet.bounds.condensed_bounds import Columns, SplitColumns, lower
from steadynet.bounds.crown import propagate
from steadynet.graph.operations import Interval
from steadynet.graph.translate import graph_of
from steadynet.verification.search.condensed_branching import choose


def small_network() -> CondensedNetwork:
    """The margin 1 − relu(x₁) − 3·relu(x₂) − relu(x₃ + 2) over [−1, 1]³: the first two ReLUs are unstable.

    Both have the chord (x + 1)/2. So the margin is at least 1 − (x₁ + 1)/2 − 3(x₂ + 1)/2 − (x₃ + 2) ≥ −6.
    """
    network = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    values = (torch.eye(3).tolist(), [0.0, 0.0, 2.0], [[-1.0, -3.0, -1.0]], [1.0])
    for parameter, value in zip(network.parameters(), values, strict=True):
        parameter.data = torch.tensor(value)
    network.requires_grad_(False)
    bounded, _ = propagate(graph_of(network, (3,)), Interval(-torch.ones(1, 3), torch.ones(1, 3)))
    return condense(bounded, torch.ones(1, 1), 2**28)


def batch_of(network: CondensedNetwork, *held: list[tuple[int, int]]) -> Columns:
    """One column per list of (ReLU, side)."""
    entries = [(neuron, column, sign) for column, splits in enumerate(held) for neuron, sign in splits]
    neuron, column, sign = (torch.tensor([entry[side] for entry in entries], dtype=torch.long) for side in range(3))
    splits = SplitColumns(neuron, column, sign.float(), torch.zeros(len(entries)))
    slopes = network.lines.lower_slope.repeat(1, len(held))
    return Columns.of(network, torch.zeros(len(held), dtype=torch.long), slopes, splits)


def test_the_relu_is_split_whose_line_takes_most_off_the_bound_and_both_sides_are_bounded():
    network = small_network()
    assert network.neurons == 2
    batch = batch_of(network, [], [(1, -1)], [(1, 1)], [(0, 1), (1, -1)])
    found = lower(network, batch)
    # x₂ ≤ 0 makes relu(x₂) 0: −6 + 3 = −3; x₂ ≥ 0 makes it x₂ itself, at most 1 as before: −6
    assert found.lower.tolist() == pytest.approx([-6, -3, -6, -3])
    choice = choose(network, batch, found)
    assert choice.neurons == [1, 0, 0, None]  # in the last column, no ReLU is unstable
    # x₂ ≥ 0: −6, and x₂ ≤ 0: −3. Behind it, x₁ ≥ 0 changes nothing, and x₁ ≤ 0 gains 1
    assert choice.sides[:, :3].t().tolist() == [pytest.approx(pair) for pair in ([-6, -3], [-3, -2], [-6, -5])]
