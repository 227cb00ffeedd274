"""The ReLU inputs of a network, whichever way it calls ReLU, without changing what it computes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from helpers import Written, convolutional, gradients, residual, same, some_images
from steadynet.errors import UserError
from steadynet.networks.evaluation_mode import depends_on_mode
from steadynet.networks.preactivations import activations

WAYS = {
    "nn.ReLU": nn.ReLU(),
    "F.relu": F.relu,
    "F.relu by keyword": lambda x: F.relu(input=x),
    "torch.relu": torch.relu,
    "Tensor.relu": lambda x: x.relu(),
    "nn.ReLU in place": nn.ReLU(inplace=True),
    "F.relu in place": lambda x: F.relu(x, inplace=True),
    "F.relu in place by position": lambda x: F.relu(x, True),
    "F.relu_": F.relu_,
    "torch.relu_": torch.relu_,
    "Tensor.relu_": lambda x: x.relu_(),
}


def two_layers(relu) -> nn.Module:
    torch.manual_seed(0)
    return Written(lambda net, x: net.b(relu(net.a(x))), a=nn.Linear(6, 5), b=nn.Linear(5, 3))


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_call_relu_shows_the_same_input(way):
    network, images = two_layers(WAYS[way]), some_images(4, (6,))
    found = activations(network, images)
    same(found.preactivations, [network.a(images)])
    same([found.logits], [network(images)])
    same(gradients(found.logits.square().sum(), network), gradients(network(images).square().sum(), network))


@pytest.mark.parametrize("way", WAYS)
def test_gradients_of_the_preactivations_are_those_before_the_relu(way):
    network, images = two_layers(WAYS[way]), some_images(4, (6,))
    layer = activations(network, images).preactivations[0]
    ours = torch.autograd.grad(layer.pow(3).sum(), list(network.a.parameters()))
    same(list(ours), gradients(network.a(images).pow(3).sum(), network.a))


def test_an_in_place_relu_still_changes_its_input():
    network = Written(lambda net, x: [h := net.a(x), F.relu(h, inplace=True), h][-1], a=nn.Linear(6, 5))
    images = some_images(4, (6,))
    assert (activations(network, images).logits >= 0).all()
    same([activations(network, images).logits], [network(images)])


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_residual_network_with_batch_norm_and_a_reused_relu(inplace, training):
    network, images = residual(inplace=inplace).train(training), some_images()
    found = activations(network, images)
    first = network.norm(network.first(images))
    second = network.second(first.relu()) + first.relu()
    same(found.preactivations, [first, second])
    same([found.logits], [network.head(second.relu().flatten(1))])
    same(gradients(found.logits.square().sum(), network), gradients(network(images).square().sum(), network))


def test_input_gradients_do_not_depend_on_the_memory_layout():
    network = convolutional()
    plain, last = some_images(), some_images().contiguous(memory_format=torch.channels_last)
    found = [
        torch.autograd.grad(activations(network, x.requires_grad_()).logits.square().sum(), x)[0] for x in (plain, last)
    ]
    reference = torch.autograd.grad(network(plain).square().sum(), plain)
    same(found, [*reference, *reference])


def test_a_network_without_relu_is_an_error():
    with pytest.raises(UserError, match="Sequential has no ReLU"):
        activations(nn.Sequential(nn.Linear(6, 5), nn.Tanh()), some_images(1, (6,)))


@pytest.mark.parametrize(
    ("layer", "depends"),
    [(nn.BatchNorm1d(3), True), (nn.Dropout(), True), (nn.InstanceNorm2d(3), True), (nn.Linear(3, 3), False)],
)
def test_which_networks_depend_on_their_mode(layer, depends):
    assert depends_on_mode(nn.Sequential(nn.ReLU(), nn.Sequential(layer))) is depends
