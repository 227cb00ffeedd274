"""The command line: what a newcomer types, and what they get."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from quick_demo import killed_before_the_last_verification, make_quick
from runs import files, finish, same_weights, tiny, write_inputs
from steadynet import load_trained, objectives
from steadynet.cli import main
from steadynet.cli.display import terminal as terminal_display
from steadynet.cli.display import training as training_display
from steadynet.cli.display.training import TrainingDisplay
from steadynet.runs.directory import RunDirectory
from steadynet.runs.metrics import EpochMetrics
from steadynet.training.notation import Phase
from steadynet.training.observer import Position
from steadynet.training.settings import resolve
from verified import said

STEADYNET = Path(sys.executable).with_name("steadynet")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A finished run; its data and model file are beside it."""
    folder = tmp_path_factory.mktemp("finished")
    write_inputs(folder)
    assert main(["train", *tiny(folder, method="nbc", eps=0.05), "--out", str(folder / "run")]) == 0
    return folder / "run"


# Train and evaluate


def test_train_says_what_it_does(run, tmp_path, capsys):
    lines = said(capsys, "train", *tiny(run.parent), "--out", tmp_path / "run").splitlines()
    assert [line.split()[0] for line in lines] == ["epoch", "1/2", "2/2", "trained:", "next:"]
    assert lines[-1] == f"next:    steadynet evaluate {tmp_path / 'run'} --eps 0.1 0.2 0.3"
    assert sorted(files(tmp_path / "run")) == ["config.toml", "metrics.jsonl", "model.py", "weights.safetensors"]


def test_evaluate_shows_a_table_and_writes_json(run, capsys):
    text = said(capsys, "evaluate", run, "--eps", "0.02", "8/255", "--pgd-steps", 5, "--restarts", 2, "--threads", 1)
    assert "PGD-5 accuracy" in text
    result = json.loads((run / "evaluation.json").read_text())
    assert (result["images"], result["pgd_steps"], result["pgd_restarts"]) == (48, 5, 2)
    assert [row["eps"] for row in result["radii"]] == [0.02, 8 / 255]
    assert all(0 <= row["pgd_accuracy"] <= result["accuracy"] <= 1 for row in result["radii"])
    assert all(0 <= row["stable_share_ibp"] <= 1 for row in result["radii"])


def test_json_is_all_that_is_printed(run, capsys):
    result = json.loads(said(capsys, "evaluate", run, "--images", 7, "--pgd-steps", 2, "--json"))
    assert result["images"] == 7
    assert [row["eps"] for row in result["radii"]] == [0.05]  # what it was trained for


def test_overwrite_replaces_a_run(run, tmp_path, capsys):
    out = tmp_path / "run"
    said(capsys, "train", *tiny(run.parent, seed=1), "--out", out)
    (out / "evaluation.json").write_text("{}")
    said(capsys, "train", *tiny(run.parent), "--out", out, "--overwrite")
    said(capsys, "train", *tiny(run.parent), "--out", tmp_path / "new")
    assert same_weights(out, tmp_path / "new")
    assert files(out).keys() == files(tmp_path / "new").keys()


def test_a_run_can_be_moved_without_its_model_file(run, tmp_path, capsys):
    write_inputs(tmp_path)
    said(capsys, "train", *tiny(tmp_path), "--out", tmp_path / "run")
    (tmp_path / "net.py").unlink()
    (tmp_path / "run").rename(tmp_path / "moved")
    assert "accuracy" in said(capsys, "evaluate", tmp_path / "moved", "--eps", "0.1", "--pgd-steps", 1)


def test_a_model_file_may_hold_a_dataclass(run, tmp_path, capsys):
    (tmp_path / "own.py").write_text(
        "from __future__ import annotations\n"
        "from dataclasses import dataclass\n"
        "from torch import nn\n"
        "@dataclass\n"
        "class Width:\n"
        "    value: int = 5\n"
        "def make(image_shape, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(36, Width().value), nn.ReLU(), nn.Linear(5, classes))\n"
    )
    said(capsys, "train", *tiny(run.parent, model=f"{tmp_path / 'own.py'}:make"), "--out", tmp_path / "run")
    assert load_trained(tmp_path / "run").network[1].out_features == 5


def test_a_warning_is_one_line(run, tmp_path, capsys):
    (tmp_path / "own.py").write_text("import warnings\nwarnings.warn('mind\\nthe gap')\n")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        main(["train", *tiny(run.parent, model=f"{tmp_path / 'own.py'}:make"), "--out", str(tmp_path / "run")])
    assert capsys.readouterr().err.splitlines()[0] == "steadynet: warning: mind the gap"


@pytest.fixture
def quick_demo(monkeypatch):
    make_quick(monkeypatch)


def test_a_killed_demo_goes_on_where_it_was(tmp_path, capsys, quick_demo, monkeypatch):
    """It is interrupted in the second training, then killed while it verifies; nothing is done twice."""
    command = ["demo", "--epochs", "2", "--threads", "1", "--out", str(tmp_path / "demo")]
    interrupted = TrainingDisplay.on_batch

    def on_batch(self, position, phase, radius):
        interrupted(self, position, phase, radius)
        if (phase.method, position.epoch, position.batch) == ("nbc", 1, 1):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(TrainingDisplay, "on_batch", on_batch)
    assert main(command) == 130
    assert capsys.readouterr().err == (
        f"steadynet: stopped: everything so far is saved. Continue with: steadynet {' '.join(command)}\n"
    )
    before = {name: content for name, content in files(tmp_path / "demo").items() if name.startswith("natural/")}
    assert {"natural/weights.safetensors", "natural/evaluation.json", "natural/verdicts.csv"} <= before.keys()
    assert "nbc/checkpoint.safetensors" in files(tmp_path / "demo")

    monkeypatch.setattr(TrainingDisplay, "on_batch", interrupted)
    assert finish(killed_before_the_last_verification, command, tmp_path / "said") == -signal.SIGKILL
    assert "continues in epoch 2 of 2, batch 2" in (tmp_path / "said").read_text()
    text = said(capsys, *command)
    assert f"already trained: {tmp_path / 'demo' / 'nbc'}" in text
    assert "epoch" not in text.split("The same network, trained twice")[0]  # no epoch is trained again
    after = files(tmp_path / "demo")
    assert {name: after[name] for name in before} == before
    assert "nbc/checkpoint.safetensors" not in after
    assert [row.epoch for row in RunDirectory(tmp_path / "demo" / "nbc").read_metrics()] == [1, 2]
    said(capsys, *command[:2], "1", *command[3:])  # other settings are another demo
    assert len(RunDirectory(tmp_path / "demo" / "natural").read_metrics()) == 1


def test_demo_compares_two_networks(tmp_path, capsys, quick_demo):
    text = said(capsys, "demo", "--epochs", 1, "--out", tmp_path / "demo")
    assert "proved robust at ε 0.1" in text
    for radius in ("0.1", "0.2", "0.3"):
        assert re.search(rf"under attack \(PGD-2\) at ε {radius} +\d+\.\d % +\d+\.\d %", text)
        assert re.search(rf"stable neurons \(ibp\) at ε {radius} +\d+\.\d % +\d+\.\d %", text)
    assert re.search(r"Of the same 10 images, \d+ are proved robust with NBC and \d+ without it.", text)
    assert {"natural", "nbc", "report"} == {path.name for path in (tmp_path / "demo").iterdir()}
    page = tmp_path / "demo" / "report" / "index.html"
    assert text.splitlines()[-2] == f"See both networks, with every image and counterexample: {page}"
    assert re.match(
        r"steadycheck has checked the proofs, without trusting steadynet: (\d+) of \1 are valid", text.splitlines()[-1]
    )
    assert page.is_file()


# Plug-ins


def test_a_new_method_is_one_file(run, tmp_path, capsys, monkeypatch):
    (tmp_path / "shouting.py").write_text(
        "from dataclasses import dataclass\n"
        "from steadynet.objectives.base import Batch, Objective\n"
        "from steadynet.plugins import setting\n"
        "@dataclass(frozen=True, kw_only=True)\n"
        "class Shouting(Objective):\n"
        "    name = 'shouting'\n"
        "    summary = 'logits, loud'\n"
        "    loudness: float = setting(2.5, 'how loud, in % of a shout')\n"
        "    def terms(self, batch):\n"
        "        return {'shout': self.loudness * batch.clean.logits.square().mean()}\n"
    )
    monkeypatch.setattr(objectives, "__path__", [*objectives.__path__, str(tmp_path)])
    try:
        assert "shouting: logits, loud" in said(capsys, "list", "methods")
        with pytest.raises(SystemExit):
            main(["train", "--help"])
        assert "shouting: how loud, in % of a shout (default: 2.5)" in " ".join(capsys.readouterr().out.split())
        flags = [*tiny(run.parent, method="shouting+nbc"), "--loudness", "3", "--out", tmp_path / "run"]
        text = said(capsys, "train", *flags)
        assert "shouting: loudness 3.0" in text
        assert "shout consistency" in text
    finally:
        sys.modules.pop("steadynet.objectives.shouting", None)


# The terminal


@pytest.fixture
def terminal(monkeypatch):
    screen = Console(file=StringIO(), force_terminal=True, width=80, highlight=False, color_system=None)
    for module in (terminal_display, training_display):
        monkeypatch.setattr(module, "console", screen)
    return screen


def test_the_bar_is_one_line_of_a_narrow_terminal(terminal):
    with TrainingDisplay(resolve({"phases": "rs:200 rs+nbc:200"})) as shown:
        shown.on_start(400, 468, Position())
        sums = {"adversarial": 90.0, "instability": -0.1, "l1": 3.0, "consistency": -40.0}
        shown.on_batch(Position(epoch=299, batch=30, sums=sums), Phase("rs+nbc", 200), 0.3)
        lines = terminal.render_lines(shown.progress.get_renderable())
        assert len(lines) == 1
        text = "".join(segment.text for segment in lines[0])
        assert text.startswith("epoch 300/400 rs+nbc ")
        assert "adversarial 3.00" in text


def test_the_rows_of_an_epoch_fit_a_narrow_terminal(terminal):
    with TrainingDisplay() as shown:
        shown.on_start(400, 468, Position())
    terminal.file.truncate(0)
    loss = {"adversarial": 12.345, "instability": -0.123, "l1": 0.5, "consistency": -1.234}
    for epoch in (399, 400):
        shown.on_epoch(EpochMetrics(epoch, "rs+nbc", 0.3, 1e-4, 1234.5, loss, validation_accuracy=1.0))
    lines = terminal.file.getvalue().strip("\0").splitlines()
    assert len(lines) == 3
    assert max(map(len, lines)) <= 80
    assert lines[0].split() == ["epoch", "accuracy", "stable", *loss, "time"]


@pytest.mark.skipif(shutil.which("script") is None, reason="needs script, of util-linux")
def test_a_training_in_a_real_terminal_leaves_only_its_rows(run, tmp_path):
    """``script`` gives it a terminal. What stays on the screen is what a pipe would get."""
    command = f"{STEADYNET} train {' '.join(tiny(run.parent))} --out {tmp_path / 'run'}"
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80"}
    written = subprocess.check_output(["script", "-qec", command, "/dev/null"], env=environment).decode()
    assert "\x1b[" in written  # it had a terminal
    kept: list[str] = []
    for line in written.split("\n"):
        if "\x1b[1A" in line:  # one line up: the one above is written over
            kept.pop()
        kept.append(line.rpartition("\x1b[2K")[2].strip())
    assert [line.split()[0] for line in kept if line] == ["epoch", "1/2", "2/2", "trained:", "next:"]
