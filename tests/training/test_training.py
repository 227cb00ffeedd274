"""The loop: it learns, does as it is told, and says what is wrong."""

from __future__ import annotations

import copy
import dataclasses
import json
import re

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import nn

from runs import BATCHES, IMAGES, epochs_of, same_weights, settings_from, tiny, weights, write_inputs
from steadynet import data, load_trained, networks, resolve, train
from steadynet.cli import main
from steadynet.errors import UserError
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import accuracy
from steadynet.training.observer import SilentObserver
from steadynet.training.state import assemble


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    return folder


class Watcher(SilentObserver):
    """Remembers what an observer is told."""

    def __init__(self):
        self.radii, self.methods, self.epochs = [], [], []

    def on_batch(self, position, phase, radius):
        self.radii.append(radius)
        self.methods.append(phase.method)

    def on_epoch(self, metrics):
        self.epochs.append(metrics)


def settings_of(inputs, **changes):
    return settings_from(tiny(inputs, **changes))


def test_natural_training_learns_digits(tmp_path):
    values = {"method": "natural", "epochs": 3, "lr": 2e-3, "schedule": "one-cycle", "threads": 1}
    train(resolve(values), tmp_path / "run")
    trained = load_trained(tmp_path / "run")
    assert accuracy(trained.network, trained.data().test) > 0.85


# What goes wrong


def test_a_loss_that_is_not_finite_names_the_place(inputs, tmp_path):
    with pytest.raises(UserError) as caught:
        train(settings_of(inputs, lr=1e30), tmp_path / "run")
    for part in ("the loss is not finite (cross_entropy = ", "at batch 2 of epoch 1, phase natural", "no checkpoint"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (2, "the loss is not finite (cross_entropy = nan) at batch 3 of epoch 2"),
        (BATCHES, "the weights 1.weight are not finite after batch 6 of epoch 2"),
    ],
)
def test_a_network_that_breaks_never_replaces_a_good_checkpoint(inputs, tmp_path, batch, said):
    class Explode(SilentObserver):
        def on_batch(self, position, phase, radius):
            if (position.epoch, position.batch) == (1, batch):
                network[1].weight.data.fill_(float("nan"))

    network = nn.Sequential(nn.Flatten(), nn.Linear(36, 8), nn.ReLU(), nn.Linear(8, 4))
    checkpoint = tmp_path / "run" / "checkpoint.safetensors"
    with pytest.raises(UserError, match=re.escape(said)) as caught:
        train(settings_of(inputs), tmp_path / "run", network=network, observer=Explode())
    assert f"the last good checkpoint is {checkpoint}" in str(caught.value)
    assert all(tensor.isfinite().all() for tensor in load_file(checkpoint).values())
    assert epochs_of(tmp_path / "run") == [1]


def test_a_later_phase_that_cannot_work_is_said_at_once(inputs, tmp_path):
    settings = settings_of(
        inputs, model=f"{inputs / 'net.py'}:without_relu", method=None, epochs=None, phases="natural:1 nbc:1"
    )
    with pytest.raises(UserError, match="no ReLU"):
        train(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_batch_of_one_image_is_said_at_once(inputs, tmp_path):
    settings = settings_of(inputs, model=f"{inputs / 'net.py'}:with_batch_norm", batch_size=IMAGES - 1)
    with pytest.raises(UserError, match="natural fails on a batch of 1 image: Expected more than 1 value"):
        train(settings, tmp_path / "run")


# What it does


def test_metrics_have_one_line_an_epoch(inputs, tmp_path):
    watcher = Watcher()
    train(settings_of(inputs, method="nbc", epochs=3), tmp_path / "run", observer=watcher)
    rows = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert rows == [dataclasses.asdict(metrics) for metrics in watcher.epochs]
    assert [row["epoch"] for row in rows] == [1, 2, 3]
    assert set(rows[0]["loss"]) == {"cross_entropy", "consistency"}
    assert all(0 <= row["validation_accuracy"] <= 1 and 0 <= row["stable_share_ibp"] <= 1 for row in rows)


def test_phases_follow_each_other(inputs, tmp_path):
    watcher = Watcher()
    train(settings_of(inputs, method=None, epochs=None, phases="natural:1 madry:2"), tmp_path / "run", observer=watcher)
    assert watcher.methods == ["natural"] * BATCHES + ["madry"] * 2 * BATCHES
    assert [metrics.method for metrics in watcher.epochs] == ["natural", "madry", "madry"]


def test_the_radius_rises_over_the_warm_up(inputs, tmp_path):
    watcher = Watcher()
    train(settings_of(inputs, method="madry", eps="0.3", epochs=3, warmup=2), tmp_path / "run", observer=watcher)
    rising = [0.3 * batch / 12 for batch in range(1, 13)]
    assert watcher.radii == pytest.approx(rising + [0.3] * 6)
    assert [metrics.radius for metrics in watcher.epochs] == pytest.approx([0.15, 0.3, 0.3])


def test_the_one_cycle_rate_rises_and_falls(inputs, tmp_path):
    watcher = Watcher()
    train(settings_of(inputs, epochs=4, schedule="one-cycle"), tmp_path / "run", observer=watcher)
    rates = [metrics.lr for metrics in watcher.epochs]
    assert max(rates) <= 0.01
    assert rates[0] > rates[-1]
    assert rates[-1] < 1e-6


def test_the_same_seed_gives_the_same_weights_and_another_does_not(inputs, tmp_path):
    for name, seed in (("one", 0), ("same", 0), ("other", 1)):
        train(settings_of(inputs, method="madry", seed=seed), tmp_path / name)
    assert same_weights(tmp_path / "one", tmp_path / "same")
    assert not same_weights(tmp_path / "one", tmp_path / "other")


def test_init_starts_from_another_runs_weights(inputs, tmp_path):
    train(settings_of(inputs, seed=5), tmp_path / "first")
    train(settings_of(inputs, init=tmp_path / "first", lr=1e-30), tmp_path / "second")
    first, second = weights(tmp_path / "first"), weights(tmp_path / "second")
    assert all(torch.allclose(first[name], second[name], atol=1e-20) for name in first)


def test_normalisation_is_the_first_layer(inputs, tmp_path):
    resolved = resolve(settings_of(inputs).as_config() | {"normalise": True})
    train(resolved, tmp_path / "run")
    trained = load_trained(tmp_path / "run")
    pixels = trained.data().split(0.1, 0)[0].pixels()
    scaled = trained.network[0](pixels)
    assert scaled.mean().item() == pytest.approx(0, abs=1e-5)
    assert scaled.std(correction=0).item() == pytest.approx(1, abs=1e-5)


def test_flat_features_can_be_normalised(inputs, tmp_path):
    np.savez(tmp_path / "flat.npz", X=np.random.default_rng(0).random((40, 36)), y=np.arange(40) % 4)
    resolved = resolve(settings_of(inputs).as_config() | {"normalise": True, "data": str(tmp_path / "flat.npz")})
    train(resolved, tmp_path / "run")
    trained = load_trained(tmp_path / "run")
    assert trained.network[0](trained.data().train.pixels()).shape == (32, 36)


def test_weights_are_safetensors_that_anyone_can_read(inputs, tmp_path):
    train(settings_of(inputs), tmp_path / "run")
    with safe_open(tmp_path / "run" / "weights.safetensors", "pt") as file:
        assert set(file.keys()) == {"1.weight", "1.bias", "3.weight", "3.bias"}


def test_tied_weights_can_be_saved(inputs, tmp_path):
    train(settings_of(inputs, model=f"{inputs / 'net.py'}:tied"), tmp_path / "run")
    network = load_trained(tmp_path / "run").network
    assert torch.equal(network[3].weight, network[5].weight)


def test_a_network_given_in_python_is_given_again(inputs, tmp_path):
    def make():
        return nn.Sequential(nn.Flatten(), nn.Linear(36, 5), nn.ReLU(), nn.Linear(5, 4))

    train(settings_of(inputs), tmp_path / "run", network=make())
    assert load_trained(tmp_path / "run", make()).network[1].weight.shape == (5, 36)
    with pytest.raises(UserError, match="given in Python: pass it again"):
        load_trained(tmp_path / "run")


def test_tensorboard_events(inputs, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    out = tmp_path / "run"
    assert main(["train", *tiny(inputs), "--tensorboard", "--out", str(out)]) == 0
    events = EventAccumulator(str(out / "tensorboard"))
    events.Reload()
    assert {"loss/cross_entropy", "validation_accuracy", "stable_share_ibp", "lr"} <= set(events.Tags()["scalars"])
    assert [event.step for event in events.Scalars("loss/cross_entropy")] == [1, 2]


def test_trying_out_the_phases_leaves_no_trace(inputs):
    dataset = data.load(inputs / "small.npz")
    network = networks.build(f"{inputs / 'net.py'}:with_batch_norm", dataset.image_shape, dataset.class_count)
    before, generator = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    assemble(settings_of(inputs, method="madry"), RunDirectory(inputs / "run"), network, dataset)
    assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
    assert torch.equal(generator, torch.get_rng_state())
