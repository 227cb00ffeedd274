"""Regularisers that change weights in place: bias shaping, stable pruning, adversarial weight perturbation."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from helpers import convolutional, residual, same, some_images, some_labels
from steadynet import resolve, train
from steadynet.errors import UserError
from steadynet.objectives import Batch, Moment, Objective, build
from steadynet.runs.trained import load_trained
from steadynet.training.weight_perturbation import perturbed_weights

EPS, FIRST = 0.1, Moment(1, 50)


def four_neurons() -> nn.Sequential:
    """z = x + bias for four neurons, over x = 0.5 ± 0.1: [−0.05, 0.15], [−0.18, 0.02], [−0.1, 0.1] and [0.4, 0.6]."""
    network = nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 2))
    network[0].weight.data, network[0].bias.data = torch.ones(4, 1), torch.tensor([-0.45, -0.58, -0.5, 0.0])
    return network


def shaped(method: str, network: nn.Module, images: Tensor, moment: Moment = FIRST, **settings: object) -> None:
    objective = build(method, {method: settings})
    objective.after_step(Batch(network, images, torch.zeros(len(images), dtype=torch.long), EPS), moment)


def test_bias_shaping_by_hand() -> None:
    """The costs are 0.05, 0.02 and 0.1: two of three unstable neurons become stable."""
    network = four_neurons()
    shaped("bias-shaping", network, torch.tensor([[0.5]]), shaping=0.7)
    same([network[0].bias.data], [torch.tensor([-0.4, -0.6, -0.5, 0.0])], atol=1e-6)


def test_bias_shaping_sees_the_whole_batch() -> None:
    """With a second image at 0.6, the second neuron has [−0.18, 0.12]: it costs more than the first."""
    network = four_neurons()
    shaped("bias-shaping", network, torch.tensor([[0.5], [0.6]]), shaping=0.34)
    same([network[0].bias.data], [torch.tensor([-0.4, -0.58, -0.5, 0.0])], atol=1e-6)


def test_every_neuron_can_become_stable() -> None:
    network = convolutional()
    shaped("bias-shaping", network, some_images(), shaping=1.0)
    graph_bounds = build("ibp").propagate(
        Batch(network, some_images(), None, EPS), Batch(network, some_images(), None, EPS).region(True)
    )
    for layer in graph_bounds.relus:
        lower, upper = (end.flatten(2) if end.dim() > 2 else end[:, :, None] for end in layer.interval)
        assert ((lower.amin((0, 2)) >= -1e-5) | (upper.amax((0, 2)) <= 1e-5)).all()


def test_stable_pruning_by_hand() -> None:
    """The mean upper bounds are 0.15, 0.02, 0.1 and 0.6: the lowest quarter goes, and whatever is never active."""
    network = four_neurons()
    network[0].bias.data[2] = -2.0
    shaped("stable-pruning", network, torch.tensor([[0.5]]), pruning=0.34)
    same([network[0].weight.data.flatten()], [torch.tensor([1.0, 0.0, 0.0, 1.0])])
    same([network[0].bias.data], [torch.tensor([-0.45, -0.58, -2.0, 0.0])])


@pytest.mark.parametrize("method", ["bias-shaping", "stable-pruning"])
def test_neurons_change_at_their_pace_and_in_the_first_epochs(method: str) -> None:
    for moment in (Moment(1, 49), Moment(21, 100)):
        network = four_neurons()
        network[0].bias.data[2] = -0.61  # never active
        before = [parameter.clone() for parameter in network.parameters()]
        shaped(method, network, torch.tensor([[0.5]]), moment)
        same(list(network.parameters()), before)


def test_layers_that_several_nodes_read_stay() -> None:
    network = residual().eval()
    for method in ("bias-shaping", "stable-pruning"):
        shaped(method, network, some_images())  # no error: what cannot be changed alone is left


def test_weights_move_against_the_loss_and_back() -> None:
    network = convolutional()
    before = [parameter.clone() for parameter in network.parameters()]

    def loss() -> Tensor:
        return nn.functional.cross_entropy(network(some_images()), some_labels())

    plain = loss().item()
    with perturbed_weights(network, loss, 0.01):
        assert loss().item() > plain
        for parameter, kept in zip(network.parameters(), before, strict=True):
            moved = (parameter - kept).norm() / kept.norm().clamp_min(1e-12)
            assert moved.item() == pytest.approx(0.01 if parameter.dim() > 1 else 0.0, rel=1e-3)
    for parameter, kept in zip(network.parameters(), before, strict=True):
        assert parameter.equal(kept)


def trained(method: str, out: Path, **settings: object) -> list[Tensor]:
    resolved = resolve({"data": "digits", "method": method, "epochs": 1, "train_images": 128, "seed": 3, **settings})
    return list(load_trained(train(resolved, out).path).network.state_dict().values())


def test_awp_without_a_perturbation_is_its_base_method(tmp_path: Path) -> None:
    alone, joined, perturbed = (
        trained("madry", tmp_path / "alone"),
        trained("madry+awp", tmp_path / "joined", gamma_awp=0.0),
        trained("madry+awp", tmp_path / "perturbed"),
    )
    assert all(one.equal(other) for one, other in zip(alone, joined, strict=True))
    assert not all(one.equal(other) for one, other in zip(alone, perturbed, strict=True))


def test_awp_starts_after_its_epochs() -> None:
    objective: Objective = build("trades+awp", {"awp": {"awp_after": 2, "gamma_awp": 0.005}})
    assert [objective.perturbation(Moment(epoch, 1)) for epoch in (1, 2, 3)] == [0.0, 0.0, 0.005]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("awp", {"gamma_awp": -1.0}),
        ("awp", {"awp_after": -1}),
        ("bias-shaping", {"shaping": 2.0}),
        ("bias-shaping", {"pace": 0}),
        ("stable-pruning", {"pruning": -0.1}),
    ],
)
def test_settings_that_do_not_fit(method: str, settings: dict[str, float]) -> None:
    with pytest.raises(UserError, match=f"^{next(iter(settings))} = "):
        build(method, {method: settings})
