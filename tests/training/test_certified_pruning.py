"""Pruning: what goes and what stays, by hand; what it reports; and that the new run can be used."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
import torch
from torch import nn

from helpers import convolutional, residual, some_images, some_labels
from runs import files, tiny, write_inputs
from steadynet import load_trained
from steadynet.cli import main
from steadynet.data import Images
from steadynet.files import read_record
from steadynet.runs.directory import RunDirectory
from steadynet.training.pruning import PrunedCounts, PruningRecord, prune_network


def test_small_weights_and_rare_relus_by_hand():
    network = nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 2))
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[1.0], [1.0], [-1.0]]))
        network[0].bias.copy_(torch.tensor([-0.85, -0.75, 2.0]))  # active above 0.85, above 0.75, always
        network[2].weight.copy_(torch.tensor([[1e-3, 5e-4, 1.0], [-5e-4, 0.0, 2.0]]))
    images = Images(torch.arange(10)[:, None] / 10, torch.zeros(10, dtype=torch.long))  # 0.9 alone is above 0.85
    pruned = prune_network(network, images, weights=1e-3, relus=0.1)
    assert network[0].weight.flatten().tolist() == [0.0, 1.0, -1.0]
    assert network[0].bias.tolist() == [0.0, -0.75, 2.0]
    assert network[2].weight.tolist() == [[pytest.approx(1e-3), 0.0, 1.0], [0.0, 0.0, 2.0]]
    assert pruned == PrunedCounts(2, 9, 1, 3)


def test_channels_go_when_all_their_relus_are_rare():
    network = convolutional()
    with torch.no_grad():
        network[0].bias.copy_(torch.tensor([-100.0, 0.0, 100.0]))  # never, sometimes, always active
    before = [parameter.clone() for parameter in network.parameters()]
    pruned = prune_network(network, Images(some_images(50), torch.zeros(50).long()), weights=0.0, relus=0.0)
    assert not network[0].weight[0].any()
    assert network[0].bias[0] == 0
    assert network[0].weight[1:].equal(before[0][1:])
    assert pruned.relus % 9 == 0
    assert pruned.relus >= 9
    assert pruned.all_relus == 45
    assert pruned.weights == 0


def test_a_channel_with_one_relu_in_use_stays():
    network = nn.Sequential(nn.Conv2d(1, 1, 1), nn.ReLU(), nn.Flatten(), nn.Linear(4, 2))
    network[0].weight.data.fill_(1.0), network[0].bias.data.fill_(-0.5)
    images = torch.zeros(10, 1, 2, 2)
    images[:, :, 1, 1] = 1.0
    assert prune_network(network, Images(images, torch.zeros(10).long()), weights=0.0, relus=0.1).relus == 0
    assert network[0].weight.item() == 1.0


def test_nothing_goes_where_thresholds_are_below_everything():
    network = convolutional()
    before = [parameter.clone() for parameter in network.parameters()]
    prune_network(network, Images(some_images(50), torch.zeros(50).long()), weights=0.0, relus=-1.0)
    assert all(one.equal(other) for one, other in zip(network.parameters(), before, strict=True))


def test_relus_that_share_their_input_stay():
    network = residual().eval()
    images = Images(some_images(), some_labels())
    expected = network(some_images())
    pruned = prune_network(network, images, weights=0.0, relus=1.0)  # every ReLU is rare, but none has its own layer
    assert pruned.relus == 0
    assert network(some_images()).equal(expected)


def test_prune_writes_a_run_that_evaluate_and_verify_load(tmp_path, capsys):
    write_inputs(tmp_path)
    run, out = tmp_path / "run", tmp_path / "smaller"
    assert main(["train", *tiny(tmp_path, method="rs", eps="0.05"), "--out", str(run)]) == 0
    before = files(run)
    capsys.readouterr()
    assert main(["prune", str(run), "--weights", "0.05", "--relus", "0.2", "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    result = read_record(RunDirectory(out).pruning, PruningRecord)
    for measured in (result.before, result.after):
        assert f"{100 * measured.accuracy:.1f} %" in shown
        assert f"{100 * measured.stable_share_ibp:.1f} %" in shown
    assert json.loads(RunDirectory(out).pruning.read_text()) == asdict(result)
    assert list(asdict(result)) == ["pruned", "thresholds", "zeroed", "before", "after", "hydra"]
    assert files(run) == before
    smaller = load_trained(out)
    matrices = [parameter for parameter in smaller.network.parameters() if parameter.dim() > 1]
    assert all(((matrix == 0) | (matrix.abs() >= 0.05)).all() for matrix in matrices)
    assert result.zeroed.weights > 0
    assert main(["evaluate", str(out), "--pgd-steps", "2"]) == 0
    assert main(["verify", str(out), "--eps", "0.05", "--per-class", "1", "--timeout", "5"]) == 0
    assert main(["prune", str(run), "--out", str(out)]) == 2
    assert main(["prune", str(run), "--relus", "2", "--out", str(tmp_path / "other")]) == 2
    assert not (tmp_path / "other").exists()
