"""Pruning by learned scores: the gradient against autograd, the mask by hand, and the new run."""

from __future__ import annotations

import json
import signal
from dataclasses import asdict

import pytest
import torch
from torch import nn

from helpers import dense, some_images, some_labels
from runs import files, same_weights, settings_from, tiny, weights, write_inputs
from steadynet import load_trained, train
from steadynet.cli import main
from steadynet.files import read_record
from steadynet.runs.directory import RunDirectory
from steadynet.training.hydra import HydraSettings, ScoreOptimiser, initial_scores, learn_mask, top_mask
from steadynet.training.interruption import InterruptedByUserError
from steadynet.training.loop import resume
from steadynet.training.observer import SilentObserver
from steadynet.training.pruning import PruningRecord, prune_run, prune_run_by_scores

QUICK = HydraSettings(keep=0.25, score_epochs=2, epochs=2)


class StoppedError(Exception):
    """Stands for a killed process."""


class StopInSecondTraining(SilentObserver):
    """Scores are learned in the first training; the second one is the fine-tuning."""

    trainings = 0

    def on_start(self, epochs, batches, position):
        self.trainings += 1

    def on_batch(self, position, phase, radius):
        if self.trainings == 2 and position.epoch == 1:
            raise StoppedError


# Scores


def test_scores_by_hand():
    weight = torch.tensor([[[[3.0, -1.5]]], [[[0.0, 0.3]]]])  # two channels with fan-in 2
    assert initial_scores(weight).flatten().tolist() == pytest.approx([3**0.5, -(3**0.5) / 2, 0.0, 3**0.5 / 10])
    assert top_mask(weight, 0.5).flatten().tolist() == [True, True, False, False]
    assert top_mask(weight, 0.01).sum() == 1
    assert initial_scores(torch.zeros(2, 2)).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_the_gradient_of_scores_is_that_of_a_straight_through_mask():
    network, images = dense(4, 5, 3), torch.rand(6, 4)
    layers = [network[0], network[2]]
    plain = [layer.weight.detach().clone() for layer in layers]
    scores = [initial_scores(weight).requires_grad_() for weight in plain]
    through = [
        weight * (top_mask(score, 0.4).float() + score.abs() - score.abs().detach())
        for weight, score in zip(plain, scores, strict=True)
    ]
    hidden = torch.relu(images @ through[0].t() + layers[0].bias.detach())
    (hidden @ through[1].t() + layers[1].bias.detach()).square().sum().backward()
    optimiser = ScoreOptimiser([layer.weight for layer in layers], 0.4, 0.1)
    network(images).square().sum().backward()
    optimiser.step()
    for score, expected in zip(optimiser.scores, scores, strict=True):
        assert torch.allclose(score.grad, expected.grad, rtol=1e-5, atol=1e-6)


def test_scores_find_the_weight_that_the_loss_needs():
    network = nn.Linear(2, 1, bias=False)
    network.weight.data = torch.tensor([[2.0, 1.0]])  # the smaller one is needed
    images = torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    optimiser = ScoreOptimiser([network.weight], 0.5, 0.1)
    for _ in range(50):
        optimiser.zero_grad()
        (network(images) - images[:, 1:]).square().mean().backward()
        optimiser.step()
    assert network.weight.tolist() == [[0.0, 1.0]]


# Runs


def test_learning_a_mask_leaves_the_other_weights_as_they_were(tmp_path):
    write_inputs(tmp_path)
    run = train(settings_from(tiny(tmp_path, method="nbc")), tmp_path / "run")
    trained, before = load_trained(run.path), weights(run.path)
    zeroed = learn_mask(trained, QUICK)
    after = trained.network.state_dict()
    for name in ("1.weight", "3.weight"):
        assert ((after[name] == before[name]) | (after[name] == 0)).all()
        assert int((after[name] != 0).sum()) == round(0.25 * after[name].numel())
    assert all(after[name].equal(before[name]) for name in ("1.bias", "3.bias"))
    assert zeroed == sum(round(0.75 * after[name].numel()) for name in ("1.weight", "3.weight"))
    assert all(parameter.requires_grad for parameter in trained.network.parameters())
    assert trained.network(some_images()).shape == (len(some_labels()), 4)


def test_keeping_everything_changes_nothing_before_fine_tuning(tmp_path):
    write_inputs(tmp_path)
    run = train(settings_from(tiny(tmp_path)), tmp_path / "run")
    trained = load_trained(run.path)
    assert learn_mask(trained, HydraSettings(keep=1.0, score_epochs=1)) == 0
    assert all(trained.network.state_dict()[name].equal(value) for name, value in weights(run.path).items())


def test_prune_by_hydra_writes_a_run_that_other_commands_load(tmp_path, capsys):
    write_inputs(tmp_path)
    run, out = tmp_path / "run", tmp_path / "sparse"
    flags = tiny(tmp_path, phases="natural:1 madry+awp:1", method=None, epochs=None, eps="0.05")
    assert main(["train", *flags, "--out", str(run)]) == 0
    before = files(run)
    capsys.readouterr()
    hydra = ["--method", "hydra", "--keep", "0.25", "--score-epochs", "1", "--epochs", "2", "--verify-images", "2"]
    assert main(["prune", str(run), *hydra, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    record = read_record(RunDirectory(out).pruning, PruningRecord)
    for measured in (record.before, record.after):
        for share in (measured.accuracy, measured.pgd_accuracy, measured.stable_share_ibp, measured.proved):
            assert f"{100 * share:.1f} %" in shown
    assert json.loads(RunDirectory(out).pruning.read_text()) == asdict(record)
    assert record.thresholds is None
    assert record.hydra == HydraSettings(keep=0.25, score_epochs=1, epochs=2)
    assert (record.zeroed.weights, record.zeroed.all_weights) == (240, 320)  # of 36·8 + 8·4
    assert f"{record.zeroed.weights}/{record.zeroed.all_weights}" in shown
    assert files(run) == before
    for name, weight in weights(out).items():
        if name.endswith("weight"):
            assert int((weight != 0).sum()) == weight.numel() // 4
            assert not weight[weight != 0].equal(weights(run)[name][weight != 0])  # they were fine-tuned
    assert main(["evaluate", str(out), "--pgd-steps", "2"]) == 0
    assert main(["prune", str(run), "--method", "hydra", "--out", str(out)]) == 2
    assert main(["prune", str(run), "--keep", "0.2", "--out", str(tmp_path / "other")]) == 2
    assert main(["prune", str(run), "--method", "hydra", "--relus", "0.2", "--out", str(tmp_path / "other")]) == 2
    assert main(["prune", str(run), "--method", "hydra", "--keep", "0", "--out", str(tmp_path / "other")]) == 2
    assert not (tmp_path / "other").exists()


def test_stopping_while_scores_are_learned_writes_nothing(tmp_path):
    class CtrlC(SilentObserver):
        def on_batch(self, position, phase, radius):
            if position.batch == 2:
                signal.raise_signal(signal.SIGINT)

    write_inputs(tmp_path)
    run = train(settings_from(tiny(tmp_path)), tmp_path / "run")
    with pytest.raises(InterruptedByUserError, match="nothing is written: run the command again"):
        prune_run_by_scores(load_trained(run.path), tmp_path / "stopped", QUICK, observer=CtrlC())
    assert not (tmp_path / "stopped").exists()


def test_a_killed_fine_tuning_keeps_its_zeros_when_it_resumes(tmp_path):
    write_inputs(tmp_path)
    run = train(settings_from(tiny(tmp_path)), tmp_path / "run")
    prune_run_by_scores(load_trained(run.path), tmp_path / "whole", QUICK)
    with pytest.raises(StoppedError):
        prune_run_by_scores(load_trained(run.path), tmp_path / "killed", QUICK, observer=StopInSecondTraining())
    resume(tmp_path / "killed")
    assert same_weights(tmp_path / "whole", tmp_path / "killed")


def test_zeros_of_any_run_can_be_kept_in_a_training(tmp_path):
    write_inputs(tmp_path)
    run = train(settings_from(tiny(tmp_path)), tmp_path / "run")
    prune_run(load_trained(run.path), tmp_path / "pruned", weights=0.1, relus=0.0)
    zeros = {name: weight == 0 for name, weight in weights(tmp_path / "pruned").items() if weight.dim() > 1}
    for keep in (True, False):
        out = tmp_path / f"kept-{keep}"
        flags = tiny(tmp_path, init=tmp_path / "pruned", l1_weight=1e-4) + ["--keep-zeros"] * keep
        assert main(["train", *flags, "--out", str(out)]) == 0
        assert all((weights(out)[name] == 0).equal(places) for name, places in zeros.items()) is keep
