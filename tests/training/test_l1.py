"""The L1 term that the training adds to any method."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import convolutional, gradients, same, some_images, some_labels
from steadynet.errors import UserError
from steadynet.objectives import Batch, build, parts_of
from steadynet.training.settings import resolve

EPS = 0.2


def loss_of(settings, method: str, network: nn.Module) -> dict[str, Tensor]:
    torch.manual_seed(0)
    return settings.objective(method).terms(Batch(network, some_images(), some_labels(), EPS))


def test_the_l1_term_by_hand():
    network = nn.Sequential(nn.Flatten(), nn.Linear(36, 2), nn.ReLU(), nn.Linear(2, 4))
    for parameter in network.parameters():
        parameter.data.fill_(-0.5)  # 36·2 + 2·4 = 80 weights; biases do not count
    settings = resolve({"method": "natural", "l1_weight": 0.01})
    terms = loss_of(settings, "natural", network)
    assert list(terms) == ["cross_entropy", "l1"]
    assert terms["l1"].item() == pytest.approx(0.01 * 80 * 0.5)
    natural = F.cross_entropy(network(some_images()), some_labels())
    found = gradients(sum(terms.values()), network)
    expected = [
        gradient - 0.01 * (parameter.dim() > 1)  # the derivative of |w| at w < 0 is −1
        for gradient, parameter in zip(gradients(natural, network), network.parameters(), strict=True)
    ]
    same(found, expected)


@pytest.mark.parametrize("method", ["nbc", "trades", "trades+nbc", "madry"])
def test_any_method_can_have_an_l1_term(method):
    network = convolutional()
    without, with_l1 = (
        loss_of(resolve({"method": method} | given), method, network) for given in ({}, {"l1_weight": 0.1})
    )
    assert set(with_l1) == {*without, "l1"}
    weights = sum(parameter.abs().sum().item() for parameter in network.parameters() if parameter.dim() > 1)
    assert with_l1["l1"].item() == pytest.approx(0.1 * weights)
    assert all(with_l1[name].equal(term) for name, term in without.items())


@pytest.mark.parametrize("method", ["rs", "rs+nbc", "sabr", "ibp"])
def test_a_method_with_its_own_l1_term_has_it_once(method):
    main, network = parts_of(method)[0], convolutional()
    own = resolve({"method": method}).methods[main]["l1_weight"]
    assert own == {"rs": 2e-5, "sabr": 1e-6, "ibp": 0.0}[main]  # its authors', unless the user gives another
    settings = resolve({"method": method, "l1_weight": 0.3})
    assert settings.methods[main]["l1_weight"] == 0.3
    alone = build(main, {main: {"l1_weight": 0.3}})
    torch.manual_seed(0)
    expected = alone.terms(Batch(network, some_images(), some_labels(), EPS))["l1"]
    assert loss_of(settings, method, network)["l1"].equal(expected)


def test_the_l1_weight_of_one_phase_is_not_that_of_another():
    settings = resolve({"phases": "natural:1 rs:1", "l1_weight": 0.1, "methods": {"rs": {"l1_weight": 0.2}}})
    network = convolutional()
    one, other = (loss_of(settings, method, network)["l1"] for method in ("natural", "rs"))
    same([2 * one], [other])


def test_an_l1_weight_is_zero_or_more():
    with pytest.raises(UserError, match=r"l1_weight = -1.0 must be 0 or more"):
        resolve({"l1_weight": -1.0})
