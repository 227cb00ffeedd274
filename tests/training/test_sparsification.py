"""Sparsification: the linear programs by hand and against their constraints, and the new run."""

from __future__ import annotations

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch import nn

from helpers import convolutional, dense, some_images
from runs import files, settings_from, tiny, write_inputs
from steadynet import load_trained, train
from steadynet.bounds import graph_of
from steadynet.cli import main
from steadynet.data import Images
from steadynet.errors import UserError
from steadynet.files import read_record
from steadynet.runs.directory import RunDirectory
from steadynet.training.sparse_layers import LinearConstraints, same_leads, same_state, sparsest
from steadynet.training.sparsification import (
    SparsificationRecord,
    SparsifySettings,
    sparsify_network,
    sparsify_run,
)

CLOSE = 1e-4


def own_labels(network: nn.Module, pixels: torch.Tensor) -> Images:
    return Images(pixels, network(pixels).argmax(1))


def norm(layer: nn.Module) -> float:
    """‖W‖₁ + ‖b‖₁."""
    return sum(value.detach().abs().sum().item() for value in layer.parameters())


# Linear programs


def test_the_smallest_solution_by_hand():
    rows = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]])
    # the second unknown alone meets both: 2·v₂ ≥ 4, v₂ ≤ 3
    found = sparsest(LinearConstraints(rows, np.array([4.0, -np.inf]), np.array([np.inf, 3.0])), 10.0)
    assert found == pytest.approx([0.0, 2.0, 0.0])
    found = sparsest(LinearConstraints(rows, np.array([4.0, -3.0]), np.array([np.inf, -3.0])), 10.0)
    assert np.abs(found).sum() == pytest.approx(7.0)  # 4, 0, −3 or 0, 2, −5 or between them
    assert rows @ found == pytest.approx([4.0, -3.0])
    impossible = LinearConstraints(np.array([[1.0], [1.0]]), np.array([1.0, 3.0]), np.array([2.0, 4.0]))
    assert sparsest(impossible, 10.0) is None


def test_scales_of_rows_do_not_matter():
    rows = np.array([[1e-6, 0.0], [0.0, 1e6]])
    found = sparsest(LinearConstraints(rows, np.array([2e-6, 3e6]), np.array([3e-6, 4e6])), 10.0)
    assert found == pytest.approx([2.0, 3.0])


def test_constraints_of_a_neuron_by_hand():
    inputs = np.array([[1.0], [2.0], [3.0]])
    constraints = same_state(inputs, np.array([-2.0, 4.0, -1e-6]), 0.25)
    assert constraints.lower.tolist() == [-np.inf, 3.0, -np.inf]
    assert constraints.upper.tolist() == [pytest.approx(-4e-4), 5.0, pytest.approx(-1e-6)]


def test_constraints_of_the_last_layer_by_hand():
    inputs, scores = np.array([[1.0, 5.0]]), np.array([[0.0, 3.0, 1.0]])
    constraints = same_leads(inputs, scores, np.array([1]), 0.5)
    assert constraints.rows.tolist() == [[-1.0, -5.0, 1.0, 5.0, 0.0, 0.0], [0.0, 0.0, 1.0, 5.0, -1.0, -5.0]]
    assert constraints.lower.tolist() == [1.5, 1.0]


# Networks


def test_every_neuron_keeps_its_state_and_value():
    network = dense(30, 12, 8, 4)
    images = own_labels(network, torch.rand(15, 30, generator=torch.Generator().manual_seed(0)))
    before = graph_of(network, (30,)).values(images.pixels())
    norms = [norm(layer) for layer in network]
    layers, left = sparsify_network(network, images, SparsifySettings(delta=0.2, margin=0.5))
    after = graph_of(network, (30,)).values(images.pixels())
    assert [(layer.name, layer.rows, layer.weights) for layer in layers] == [
        ("0", 12, 372),
        ("2", 8, 104),
        ("4", 4, 36),
    ]
    assert left == []
    assert layers[0].changed == 12  # its inputs are as before, so the old weights are a solution
    assert ((after[1] > 0) == (before[1] > 0)).all()
    active = before[1] > 0
    assert ((after[1] / before[1] - 1).abs()[active] <= 0.2 + CLOSE).all()
    assert after[-1].argmax(1).equal(images.labels)
    own = torch.nn.functional.one_hot(images.labels, 4).bool()
    old, new = (values[own][:, None] - values[~own].view(-1, 3) for values in (before[-1], after[-1]))
    assert layers[2].changed == 4
    assert (new >= 0.5 * old - CLOSE).all()
    for number, layer in ((0, layers[0]), (2, layers[1]), (4, layers[2])):
        assert sum(int((value != 0).sum()) for value in network[number].parameters()) == layer.after
        assert layer.after < layer.before
        assert norm(network[number]) < norms[number]


def test_a_neuron_that_is_never_active_loses_its_weights():
    network = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2))
    network[0].bias.data = torch.tensor([-10.0, 10.0])
    sparsify_network(network, own_labels(network, torch.rand(9, 3)), SparsifySettings())
    assert not network[0].weight[0].any()
    assert network[0].bias[0] < 0


def set_parameters(network, *values):
    for parameter, value in zip(network.parameters(), values, strict=True):
        parameter.data = torch.tensor(value)


def test_a_neuron_without_a_solution_stays():
    network = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2))
    set_parameters(network, [[1.0]], [0.0], [[1.0]], [-0.22], [[1.0], [-1.0]], [0.1, 0.0])
    images = Images(torch.tensor([[0.2], [0.25]]), torch.zeros(2).long())
    layers, _ = sparsify_network(network, images, SparsifySettings(delta=0.5))
    # the first neuron may be anything from 0.125 to 0.3 on both images, and b = 0.125 is the smallest solution;
    # the second one was inactive on one image and active on the other, but now has the same input on both
    assert (network[0].weight.item(), network[0].bias.item()) == (0.0, 0.125)
    assert [layer.changed for layer in layers] == [1, 0, 2]
    assert (network[2].weight.item(), network[2].bias.item()) == (1.0, pytest.approx(-0.22))


def test_without_tolerance_the_weights_stay_and_without_time_too():
    network = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2))
    set_parameters(network, [[1.0]], [0.0], [[1.0], [-1.0]], [0.0, 0.0])
    images = Images(torch.tensor([[0.2], [0.4], [0.9]]), torch.zeros(3).long())
    layers, _ = sparsify_network(network, images, SparsifySettings(delta=0.0))
    assert [layer.changed for layer in layers] == [1, 2]
    assert network[0].weight.item() == pytest.approx(1.0, abs=1e-5)
    network[0].weight.data.fill_(2.0)
    layers, _ = sparsify_network(network, images, SparsifySettings(row_timeout=1e-9))
    assert [layer.changed for layer in layers] == [0, 0]
    assert network[0].weight.item() == 2.0


def test_convolutions_and_shared_layers_stay():
    network = convolutional()
    before = [parameter.clone() for parameter in network.parameters()]
    layers, left = sparsify_network(network, own_labels(network, some_images()), SparsifySettings())
    assert [layer.name for layer in layers] == ["5"]
    assert left == ["0", "2"]
    assert all(one.equal(other) for one, other in zip(list(network.parameters())[:4], before[:4], strict=True))
    square = nn.Linear(4, 4)
    tied = nn.Sequential(square, nn.ReLU(), square)
    assert sparsify_network(tied, own_labels(tied, torch.rand(3, 4)), SparsifySettings()) == ([], ["0"])


# Runs


def test_sparsify_writes_a_run_that_other_commands_load(tmp_path, capsys):
    write_inputs(tmp_path)
    run, out = tmp_path / "run", tmp_path / "sparse"
    assert main(["train", *tiny(tmp_path, eps="0.05", epochs=6), "--normalise", "--out", str(run)]) == 0
    before = files(run)
    capsys.readouterr()
    assert main(["sparsify", str(run), "--images", "12", "--verify-images", "2", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    record = read_record(RunDirectory(out).sparsification, SparsificationRecord)
    for measured in (record.before, record.after):
        for share in (measured.accuracy, measured.pgd_accuracy, measured.stable_share_ibp, measured.proved):
            assert f"{100 * share:.1f} %" in shown
    assert json.loads(RunDirectory(out).sparsification.read_text()) == json.loads(json.dumps(asdict(record)))
    assert record.settings == SparsifySettings(images=12)
    assert 1 <= record.images <= 12
    assert all(f"layer {layer.name}: " in shown for layer in record.layers)
    assert files(run) == before
    sparse = load_trained(out)
    left = sum(int((value != 0).sum()) for value in sparse.network.parameters())
    assert left == sum(layer.after for layer in record.layers)
    assert left < sum(layer.before for layer in record.layers) / 2
    assert main(["evaluate", str(out), "--pgd-steps", "2"]) == 0
    assert main(["verify", str(out), "--eps", "0.05", "--per-class", "1", "--timeout", "5"]) == 0
    assert main(["sparsify", str(run), "--out", str(out)]) == 2
    assert main(["sparsify", str(run), "--delta", "1", "--out", str(tmp_path / "other")]) == 2
    assert not (tmp_path / "other").exists()


def test_a_network_that_is_always_wrong_is_refused(tmp_path):
    write_inputs(tmp_path)
    run = train(settings_from(tiny(tmp_path, epochs=1)), tmp_path / "run")
    trained = load_trained(run.path)
    with torch.no_grad():
        trained.network[3].weight.zero_()
        trained.network[3].bias.fill_(float("nan"))
    with pytest.raises(UserError, match="none of the images"):
        sparsify_run(trained, tmp_path / "out", SparsifySettings(images=1))
