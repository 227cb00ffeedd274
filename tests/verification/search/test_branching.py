"""Which ReLU is split, with numbers computed by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from steadynet.bounds.crown import propagate
from steadynet.bounds.optimised import Ascent
from steadynet.graph.operations import Interval
from steadynet.graph.translate import graph_of
from steadynet.verification.search.bounding import BoundedBatch, bound
from steadynet.verification.search.branching import candidates, choose, split_bounds
from steadynet.verification.search.subproblem import Split, Subproblem

RELU = 2  # its position: the input is 0, the first dense layer 1


def batch_of(*splits: Split) -> BoundedBatch:
    """The margin 1 − relu(x₁) − 3·relu(x₂) − relu(x₃ + 2) over [−1, 1]³: the first two ReLUs are unstable.

    Both have the chord (x + 1)/2. So the margin is at least 1 − (x₁ + 1)/2 − 3(x₂ + 1)/2 − (x₃ + 2) ≥ −6.
    """
    network = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    values = (torch.eye(3).tolist(), [0.0, 0.0, 2.0], [[-1.0, -3.0, -1.0]], [1.0])
    for parameter, value in zip(network.parameters(), values, strict=True):
        parameter.data = torch.tensor(value)
    network.requires_grad_(False)
    bounded, _ = propagate(graph_of(network, (3,)), Interval(-torch.ones(1, 3), torch.ones(1, 3)))
    return bound(bounded, torch.ones(1, 1, 1), [Subproblem(0, 0, -10.0, splits)], Ascent(iterations=0))


def test_candidates_are_scored_by_the_height_of_the_chord_times_the_coefficient():
    batch = batch_of()
    assert batch.lower.tolist() == pytest.approx([-6.0])
    found = candidates(batch, 3)
    assert found.positions == [RELU]
    assert found.places[0].tolist()[:2] == [1, 0]
    assert found.scores[0].tolist() == pytest.approx([1.5, 0.5, -1.0])  # the third ReLU is stable


def test_quick_bounds_of_both_sides_of_each_candidate():
    # x₂ ≥ 0 makes the second ReLU x₂ itself, at most 1 as before: −6. x₂ ≤ 0 makes it 0: −6 + 3 = −3.
    # x₁ ≥ 0: −6. x₁ ≤ 0: −6 + 1 = −5.
    batch = batch_of()
    sides = split_bounds(batch, candidates(batch, 2))
    assert sides[:, 0].tolist() == [pytest.approx([-6, -6]), pytest.approx([-3, -5])]


def test_the_candidate_whose_sides_gain_most_is_chosen():
    choice = choose(batch_of(), 2)
    assert choice.neurons == [(RELU, 1, 0.0)]
    assert choice.sides[:, 0].tolist() == pytest.approx([-6, -3])


def test_a_split_relu_is_no_candidate_any_more_and_without_candidates_it_is_a_leaf():
    assert choose(batch_of(Split(RELU, 1, -1)), 2).neurons == [(RELU, 0, 0.0)]
    leaf = batch_of(Split(RELU, 1, -1), Split(RELU, 0, 1))
    assert leaf.lower.tolist() == pytest.approx([-3.0])  # 1 − 1 − 0 − 3
    assert choose(leaf, 2).neurons == [None]


def test_when_time_is_over_nothing_is_known_of_the_sides():
    batch = batch_of()
    assert (split_bounds(batch, candidates(batch, 2), out_of_time=lambda: True) == -torch.inf).all()
