"""Max pooling written as ReLUs computes the same, and a search over ReLU signs decides it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from steadynet.graph.maxima import has_maxima, without_maxima
from steadynet.graph.translate import graph_of
from steadynet.verification.properties import Properties, Verdict
from steadynet.verification.search import input_splitting
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound

POOLS = [nn.MaxPool2d(2), nn.MaxPool2d(3, 2, 1), nn.MaxPool2d(2, 1, dilation=2), nn.MaxPool2d(3, 2, 1, ceil_mode=True)]


@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_the_same_numbers_come_out(pool):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 2, 2), pool, nn.ReLU(), nn.Conv2d(2, 3, 1))
    images = torch.randn(5, 1, 8, 7, dtype=torch.float64)
    graph = graph_of(network.double(), (1, 8, 7))
    values = graph.values(images)
    expanded = without_maxima(graph, [tuple(value.shape[1:]) for value in values], images)
    assert has_maxima(graph)
    assert not has_maxima(expanded)
    torch.testing.assert_close(expanded.values(images)[-1], network(images))


def pooled(bias: float) -> nn.Sequential:
    """Class 0 scores relu(max(x₁, x₂) − 0.2), class 1 scores ``bias``: on [0, 1]² the smallest margin is −bias."""
    network = nn.Sequential(nn.MaxPool2d((1, 2)), nn.Flatten(), nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2))
    for parameter, value in zip(network.parameters(), ([[1.0]], [-0.2], [[1.0], [0.0]], [0.0, bias]), strict=True):
        parameter.data = torch.tensor(value)
    return network


@pytest.mark.parametrize(("bias", "verdict"), [(0.05, Verdict.SAT), (-0.05, Verdict.UNSAT)])
def test_a_network_with_a_maximum_is_decided_by_relu_splitting(bias, verdict, monkeypatch):
    monkeypatch.setattr(input_splitting, "MOST_INPUTS", 0)
    properties = Properties.around(pooled(bias), torch.full((1, 1, 1, 2), 0.5), torch.tensor([0]), 0.5)
    (result,) = BranchAndBound(restarts=0)(properties)
    assert result.verdict is verdict
