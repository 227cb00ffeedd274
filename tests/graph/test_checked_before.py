"""Which networks need not be checked again: only what consists of PyTorch's own layers and is exactly what it was."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

from steadynet.graph import checked_before
from steadynet.graph.checked_before import note_checked, was_checked
from steadynet.graph.trace import UnsupportedNetworkError
from steadynet.graph.translate import graph_of
from steadynet.networks.normalise import Normalise

SHAPE = (1, 6, 6)


@pytest.fixture(autouse=True)
def _nothing_is_known():
    checked_before._last.clear()
    yield
    checked_before._last.clear()


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        Normalise([0.1], [0.2]), nn.Conv2d(1, 40, 3, padding=1), nn.BatchNorm2d(40), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(360, 3),
    ).eval()  # fmt: skip


def test_the_same_network_is_run_once(monkeypatch):
    calls = []
    monkeypatch.setattr("steadynet.graph.translate.check_function", lambda *_: calls.append(1))
    one = network()
    graph_of(one, SHAPE)
    graph_of(one, SHAPE)
    graph_of(copy.deepcopy(one), SHAPE)
    assert len(calls) == 1
    graph_of(one, SHAPE, check=False)
    with torch.no_grad():
        one[1].weight[17, 0, 1, 1] += 1e-3
    graph_of(one, SHAPE)
    assert len(calls) == 2


def _parametrized(one: nn.Sequential) -> None:
    parametrize.register_parametrization(one[6], "weight", nn.Identity())


def _plain_weight(one: nn.Sequential) -> None:
    """The weight is no parameter any more; its middle is not seen by ``repr``."""
    weight = one[6].weight.data.clone()
    del one[6].weight
    one[6].weight = weight


def _lambda(one: nn.Sequential) -> None:
    one[3].forward = lambda images: images.relu() + 1e-9


class OwnReLU(nn.ReLU):
    """A subclass may do anything."""


CHANGES = {
    "one bit of a weight": lambda one: one[6].weight.data.view(torch.int32)[1, 180].bitwise_xor_(1),
    "a buffer": lambda one: one[2].running_mean.__setitem__(3, 0.5),
    "the mean of the images": lambda one: one[0].mean.add_(0.1),
    "a setting": lambda one: setattr(one[2], "eps", 1e-3),
    "another padding": lambda one: setattr(one[1], "padding_mode", "reflect"),
    "a hook": lambda one: one[3].register_forward_hook(lambda *_: None),
    "a hook before": lambda one: one[3].register_forward_pre_hook(lambda *_: None),
    "another forward": _lambda,
    "a subclass": lambda one: one.__setitem__(3, OwnReLU()),
    "a parametrization": _parametrized,
    "a weight that is no parameter": _plain_weight,
    "double precision": lambda one: one.double(),
    "other strides": lambda one: setattr(one[6].weight, "data", one[6].weight.data.t().contiguous().t()),
    "without a bias": lambda one: setattr(one[6], "bias", None),
    "another layer": lambda one: one.append(nn.ReLU()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_changes_is_checked_again(change):
    one = network()
    graph_of(one, SHAPE)
    assert was_checked(one, SHAPE)
    CHANGES[change](one)
    assert not was_checked(one, SHAPE)


def test_another_shape_another_function_and_another_precision_are_checked_again(monkeypatch):
    one = network()
    graph_of(one, SHAPE)
    assert not was_checked(one, (1, 7, 7))
    with monkeypatch.context() as patch:
        patch.setattr(F, "relu", torch.tanh)
        assert not was_checked(one, SHAPE)
    with monkeypatch.context() as patch:
        patch.setattr(nn.ReLU, "forward", lambda _, images: images)
        assert not was_checked(one, SHAPE)
    with torch.autocast("cpu"):
        assert not was_checked(one, SHAPE)
    torch.set_float32_matmul_precision("medium")
    try:
        assert not was_checked(one, SHAPE)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert was_checked(one, SHAPE)


def test_a_network_with_a_forward_of_its_own_is_never_known():
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self.noise = 0.0

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.layer(images) + self.noise * torch.rand(2)

    own = Own()
    note_checked(own, (2,))
    assert not checked_before._last
    with pytest.raises(UnsupportedNetworkError):
        graph_of(own, (2,))


def test_large_weights_are_not_kept(monkeypatch):
    monkeypatch.setattr(checked_before, "LARGEST", 100)
    one = network()
    graph_of(one, SHAPE)
    assert not was_checked(one, SHAPE)


def test_weights_that_are_not_numbers_are_refused_though_the_rest_is_known():
    one = network()
    graph_of(one, SHAPE)
    with torch.no_grad():
        one[6].weight[0, 0] = torch.nan
    for _ in range(2):
        with pytest.raises(UnsupportedNetworkError, match="finite"):
            graph_of(one, SHAPE)
