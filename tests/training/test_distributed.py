"""A training over several processes has the same batches, losses and steps as a training in one."""

from __future__ import annotations

import signal
import time
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ranks import Torchrun, finish_ranks, killed_in_step, naming_threads, start_afresh, with_other_weights
from runs import (
    BATCHES,
    IMAGES,
    command_line,
    finish,
    same_weights,
    signalled_command_line,
    tiny,
    weights,
    write_inputs,
)
from steadynet.runs.directory import RunDirectory
from steadynet.training.distributed.global_batch import BatchSlice, GlobalBatch

# No bias before batch norm: its gradient is zero but for rounding, which Adam makes a step of.
NORMALISED = """

def normalised(image_shape, classes):
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
        nn.Conv2d(4, 6, 2), nn.ReLU(), nn.Flatten(), nn.Dropout(0.2), nn.LazyLinear(classes),
    )


def normalised_features(image_shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
"""


needs_names_of_threads = pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="threads are named under Linux"
)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    with (folder / "net.py").open("a") as file:
        file.write(NORMALISED)
    finish(time.sleep, 0)  # starts the server of processes
    return folder


def assert_same_training(one, other):
    first, second = RunDirectory(one).read_metrics(), RunDirectory(other).read_metrics()
    assert len(first) == len(second) > 0
    for row, its in zip(first, second, strict=True):
        assert its.loss == pytest.approx(row.loss, abs=1e-4)
        assert its.validation_accuracy == row.validation_accuracy
    ours = weights(other)
    assert all(torch.allclose(value, ours[name], atol=1e-4) for name, value in weights(one).items())


def test_torchrun_trains_as_one_process_does(inputs, tmp_path):
    """Batches have 127 images, and the last one of an epoch has 55: neither can be halved.

    The radius and the learning rate are small, because rounding errors grow: an attack follows the sign of gradients,
    some of which are almost zero. At larger ones, a change of 1e-7 in the initial weights changes the loss by 3e-3.
    """
    flags = ["train", "--data", "digits", "--model", f"{inputs / 'net.py'}:tiny", "--phases", "natural:2 nbc:2"]
    flags += ["--train-images", "436", "--batch-size", "127", "--lr", "0.001", "--eps", "0.1"]
    assert finish(command_line, [*flags, "--out", str(tmp_path / "one")], tmp_path / "said") == 0
    with Torchrun([*flags, "--out", str(tmp_path / "two")], tmp_path / "torchrun") as started:
        assert started.finish() == 0
    assert_same_training(tmp_path / "one", tmp_path / "two")
    assert started.output.read_text().count("trained: ") == 1
    assert not (tmp_path / "two" / "checkpoint.safetensors").exists()


@pytest.mark.parametrize(
    ("method", "model", "batch_size", "count"),
    [
        ("madry", "tiny", IMAGES - 1, 2),  # the last batch has one image, and one process none
        ("nbc", "normalised", 33, 3),
        ("rs", "tiny", 33, 2),
        ("crown-ibp", "tiny", 33, 2),
        ("sabr", "normalised_features", 33, 2),
    ],
)
def test_every_kind_of_method_trains_as_in_one_process(inputs, tmp_path, method, model, batch_size, count):
    flags = ["train", *tiny(inputs, method=method, model=f"{inputs / 'net.py'}:{model}", batch_size=batch_size)]
    assert finish(command_line, [*flags, "--out", str(tmp_path / "one")], tmp_path / "said") == 0
    codes = finish_ranks([*flags, "--out", str(tmp_path / "several")], tmp_path / "said", count)
    assert codes == [0] * count
    assert all((tmp_path / f"said-{number}").read_text() == "" for number in range(1, count))
    assert_same_training(tmp_path / "one", tmp_path / "several")


def test_killed_and_resumed_the_weights_have_the_same_bits(inputs, tmp_path):
    flags = ["train", *tiny(inputs, method="nbc", model=f"{inputs / 'net.py'}:normalised", epochs=3)]
    assert finish_ranks([*flags, "--out", str(tmp_path / "whole")], tmp_path / "said") == [0, 0]
    arguments = [*flags, "--out", str(tmp_path / "killed"), "--resume"]
    killed = partial(killed_in_step, number=BATCHES + 3)  # in the second epoch
    codes = finish_ranks(arguments, tmp_path / "said", first=killed, others=killed)
    assert -signal.SIGKILL in codes
    assert set(codes) <= {-signal.SIGKILL, 2}  # the one that is killed later may notice that the other is gone
    assert not (tmp_path / "killed" / "weights.safetensors").exists()
    assert finish_ranks(arguments, tmp_path / "said") == [0, 0]
    assert "continues in epoch 2 of 3, batch 1" in (tmp_path / "said-0").read_text()
    assert same_weights(tmp_path / "whole", tmp_path / "killed")


def test_a_signal_to_any_process_saves_and_stops_all(inputs, tmp_path):
    flags, out = ["train", *tiny(inputs, method="madry")], tmp_path / "run"
    assert finish_ranks([*flags, "--out", str(tmp_path / "whole")], tmp_path / "said") == [0, 0]
    signalled = partial(signalled_command_line, number=signal.SIGINT, epoch=1, batch=2)
    assert finish_ranks([*flags, "--out", str(out)], tmp_path / "said", first=signalled) == [130, 130]
    assert (tmp_path / "said-0").read_text().splitlines()[-1] == (
        "steadynet: stopped in epoch 2 after batch 2; everything is saved. "
        f"Continue with: torchrun … -m steadynet train --resume --out {out}"
    )
    assert (tmp_path / "said-1").read_text() == ""
    assert finish_ranks(["train", "--resume", "--out", str(out)], tmp_path / "said") == [0, 0]
    assert same_weights(tmp_path / "whole", out)


# What goes wrong


def test_a_mistake_is_one_line_and_nothing_hangs(tmp_path):
    with Torchrun(["train", "--data", "mnits", "--out", str(tmp_path / "run")], tmp_path / "torchrun") as started:
        assert started.finish() == 1  # torchrun's own; it reports ours
    assert "exitcode  : 2" in started.output.read_text()
    (line,) = started.said()
    assert line.startswith("steadynet: error: unknown data set 'mnits': did you mean 'mnist'?")
    assert not (tmp_path / "run").exists()


def test_a_process_that_dies_ends_the_others(inputs, tmp_path):
    arguments = ["train", *tiny(inputs), "--out", str(tmp_path / "run")]
    assert finish_ranks(arguments, tmp_path / "said", others=killed_in_step) == [2, -signal.SIGKILL]
    said = (tmp_path / "said-0").read_text().splitlines()
    assert said[-1].startswith("steadynet: error: lost the other processes of this training (")
    assert not any("Traceback" in line for line in said)


@needs_names_of_threads
def test_weights_that_drift_apart_are_never_saved(inputs, tmp_path):
    arguments = ["train", *tiny(inputs), "--out", str(tmp_path / "run")]
    said = said_by_rank_zero(arguments, tmp_path / "said", with_other_weights, [2, 2])
    assert "the weights of process 1 of 2 are not those of the first" in said
    assert not (tmp_path / "run" / "checkpoint.safetensors").exists()


@needs_names_of_threads
def test_a_training_that_ends_well_leaves_no_thread(inputs, tmp_path):
    said_by_rank_zero(["train", *tiny(inputs), "--out", str(tmp_path / "run")], tmp_path / "said", command_line, [0, 0])


def said_by_rank_zero(arguments, output, others, expected_codes):
    """Run two processes, and check that no thread of the group outlives it in rank 0.

    A thread that is still there when the interpreter ends aborts the process in about one of a hundred trainings.
    """
    codes = finish_ranks(arguments, output, first=naming_threads, others=others, start_first=start_afresh)
    assert codes == expected_codes
    said = output.with_name(f"{output.name}-0").read_text()
    (line,) = [line for line in said.splitlines() if line.startswith("threads: ")]
    assert "gloo" not in line
    return said


# Random numbers of a slice


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    "draw",
    [
        torch.rand_like,
        torch.randn_like,
        lambda images: torch.empty_like(images).uniform_(-1, 1),
        nn.Dropout(0.4),
        nn.Dropout2d(0.4),
        lambda images: F.dropout(images.clone(), 0.4, inplace=True),
    ],
)
def test_a_slice_gets_the_random_numbers_of_its_rows(draw, layout):
    images = torch.rand(5, 3, 4, 4).contiguous(memory_format=layout)
    torch.manual_seed(1)
    expected, after = draw(images), torch.rand(1)
    parts = []
    for rank in range(2):
        own = BatchSlice.of_process(5, rank, 2)
        torch.manual_seed(1)
        with GlobalBatch(own, lambda part: part):
            parts.append(draw(own.take(images)))
        assert torch.equal(torch.rand(1), after)
    assert torch.equal(torch.cat(parts), expected)
