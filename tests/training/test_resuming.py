"""A training that was stopped, in whatever way, continues and ends with the same bits."""

from __future__ import annotations

import random
import signal
import time

import pytest

from runs import (
    BATCHES,
    command_line,
    command_line_killed_at_write,
    command_line_on_a_full_disk,
    epochs_of,
    files,
    finish,
    same_weights,
    settings_from,
    signalled_command_line,
    start,
    tiny,
    train_or_go_on,
    write_inputs,
)
from steadynet import resolve, train
from steadynet.cli import main
from steadynet.errors import UserError
from steadynet.training.loop import resume
from steadynet.training.observer import SilentObserver


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    write_inputs(folder)
    return folder


def test_killed_at_random_moments_everything_at_once(inputs, tmp_path):
    settings = resolve(
        {
            "model": f"{inputs / 'net.py'}:fragile",
            "phases": "natural:2 trades+nbc:4",
            "schedule": "one-cycle",
            "lr": 0.01,
            "warmup": 3.0,
            "normalise": True,
            "batch_size": 16,
            "steps": 3,
        }
    )
    finish(time.sleep, 0)  # starts the server of processes
    started = time.perf_counter()
    assert finish(train_or_go_on, settings, tmp_path / "whole") == 0
    duration = time.perf_counter() - started
    moments, kills = random.Random(1), 0
    while True:
        process = start(train_or_go_on, settings, tmp_path / "killed")
        process.join(duration * moments.uniform(0.1, 0.33) if kills < 12 else None)
        if process.exitcode is not None:
            break
        process.kill()
        process.join()
        kills += 1
    assert process.exitcode == 0
    assert kills >= 3
    assert same_weights(tmp_path / "whole", tmp_path / "killed")
    assert epochs_of(tmp_path / "killed") == list(range(1, 7))
    assert sorted(path.name for path in (tmp_path / "killed").iterdir()) == [
        "config.toml",
        "metrics.jsonl",
        "model.py",
        "weights.safetensors",
    ]


def test_killed_at_every_write(inputs, tmp_path):
    """config, model, then metrics and checkpoint an epoch, then the weights: seven writes."""
    flags = tiny(inputs)
    assert main(["train", *flags, "--out", str(tmp_path / "whole")]) == 0
    for write in range(8):
        out = tmp_path / f"killed-{write}"
        arguments = ["train", *flags, "--out", str(out), "--resume"]
        code = finish(command_line_killed_at_write, arguments, tmp_path / "said", write)
        assert code == (-signal.SIGKILL if write < 7 else 0)
        assert finish(command_line, arguments, tmp_path / "said") == 0
        assert same_weights(tmp_path / "whole", out)
        assert epochs_of(out) == [1, 2]
        assert (out / "model.py").is_file()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_in_mid_epoch(inputs, tmp_path, number):
    flags, out = tiny(inputs, method="madry", schedule="one-cycle"), tmp_path / "a run"
    assert main(["train", *flags, "--out", str(tmp_path / "whole")]) == 0
    arguments = ["train", *flags, "--out", str(out)]
    assert finish(signalled_command_line, arguments, tmp_path / "said", number, 1, 2) == 130
    said = (tmp_path / "said").read_text().splitlines()
    assert said[-1] == (
        "steadynet: stopped in epoch 2 after batch 2; everything is saved. "
        f"Continue with: steadynet train --resume --out '{out}'"
    )
    assert finish(command_line, ["train", "--resume", "--out", str(out)], tmp_path / "said") == 0
    assert "continues in epoch 2 of 2, batch 3" in (tmp_path / "said").read_text()
    assert same_weights(tmp_path / "whole", out)
    assert epochs_of(out) == [1, 2]


def test_a_signal_in_the_last_batch_of_an_epoch_is_obeyed_too(inputs, tmp_path):
    flags, out = tiny(inputs, epochs=3), tmp_path / "run"
    arguments = ["train", *flags, "--out", str(out)]
    assert finish(signalled_command_line, arguments, tmp_path / "said", signal.SIGINT, 0, BATCHES) == 130
    assert epochs_of(out) == [1]
    assert finish(command_line, ["train", "--resume", "--out", str(out)], tmp_path / "said") == 0
    assert epochs_of(out) == [1, 2, 3]


def test_a_full_disk_leaves_the_checkpoint(inputs, tmp_path):
    flags, out = tiny(inputs), tmp_path / "run"
    assert main(["train", *flags, "--out", str(tmp_path / "whole")]) == 0
    stopped = ["train", *flags, "--out", str(out)]
    assert finish(signalled_command_line, stopped, tmp_path / "said", signal.SIGINT, 1, 2) == 130
    before = files(out)
    going_on = ["train", "--resume", "--out", str(out)]
    assert finish(command_line_on_a_full_disk, going_on, tmp_path / "said", 3000) == 2
    said = (tmp_path / "said").read_text()
    assert "cannot write" in said.splitlines()[-1]
    assert "what was there before is untouched" in said
    assert "Traceback" not in said
    assert {name: content for name, content in files(out).items() if name != "metrics.jsonl"} == {
        name: content for name, content in before.items() if name != "metrics.jsonl"
    }
    assert finish(command_line, going_on, tmp_path / "said") == 0
    assert same_weights(tmp_path / "whole", out)


def test_resuming_a_finished_run_changes_nothing(inputs, tmp_path, capsys):
    arguments = ["train", *tiny(inputs), "--out", str(tmp_path / "run")]
    assert main(arguments) == 0
    before = files(tmp_path)
    assert main([*arguments, "--resume"]) == 0
    assert "is finished" in capsys.readouterr().out
    assert files(tmp_path) == before


def test_resuming_with_other_settings_is_refused(inputs, tmp_path, capsys):
    out = str(tmp_path / "run")
    assert main(["train", *tiny(inputs), "--out", out]) == 0
    assert main(["train", *tiny(inputs, epochs=9, seed=3), "--out", out, "--resume"]) == 2
    assert "but epochs, seed would change" in capsys.readouterr().err
    assert main(["train", *tiny(inputs, device="cpu", threads=1), "--out", out, "--resume"]) == 0


def test_resuming_with_other_data_is_refused(inputs, tmp_path):
    class Stop(SilentObserver):
        def on_epoch(self, metrics):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(settings_from(tiny(inputs)), tmp_path / "run", observer=Stop())
    with pytest.raises(UserError, match="cannot take images of shape"):
        resume(tmp_path / "run", data="digits")
