"""Methods and verifiers in a user's own file, ``file.py:Class``: used from a user's folder, kept, resumed, refused."""

from __future__ import annotations

import shutil

import pytest

from pages import blocks
from runs import command_line, files, finish, same_weights, signalled_command_line, tiny, write_inputs
from steadynet import resolve, verify
from steadynet.cli import main
from steadynet.experiments.cells import cells_of
from steadynet.experiments.grid import read_grid
from steadynet.runs.directory import RunDirectory
from verified import refused, rows_of, said

METHOD = "smoothed.py:LabelSmoothing"
VERIFIER = "attack_only.py:AttackOnly"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder with the two files that CONTRIBUTING shows, and small data."""
    write_inputs(tmp_path)
    for block in blocks("CONTRIBUTING.md"):
        if block.title and block.title.endswith(".py"):
            (tmp_path / block.title).write_text(block.code)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# Methods


def test_a_method_trains_with_its_own_flags_and_the_run_keeps_its_file(folder, capsys):
    flags = tiny(folder, method=f"{METHOD}+nbc", smoothing=0.25, eps=0.05)
    said(capsys, "train", *flags, "--out", "run")
    settings = RunDirectory(folder / "run").read_config().settings
    assert settings["method"] == f"{METHOD}+nbc"
    assert settings["methods"][METHOD] == {"smoothing": 0.25}
    assert settings["methods"]["nbc"]["beta"] == 1.0
    assert (folder / "run/methods/smoothed.py").read_bytes() == (folder / "smoothed.py").read_bytes()
    (row, _) = RunDirectory(folder / "run").read_metrics()
    assert {"smoothed", "consistency"} <= row.loss.keys()


def test_a_stopped_training_continues_without_the_original_file(folder):
    flags = tiny(folder, method=METHOD, smoothing=0.25)
    assert main(["train", *flags, "--out", "whole"]) == 0
    assert finish(signalled_command_line, ["train", *flags, "--out", "run"], folder / "said", 2, 1, 2) == 130
    (folder / "smoothed.py").write_text("class LabelSmoothing: broken")
    assert finish(command_line, ["train", "--resume", "--out", "run"], folder / "said") == 0
    assert same_weights(folder / "whole", folder / "run")


def test_a_file_that_changes_during_a_training_does_not_change_the_training(folder):
    from steadynet.training.loop import train
    from steadynet.training.observer import SilentObserver

    class Editor(SilentObserver):
        def on_epoch(self, metrics):
            text = blocks_text.replace("1 - self.smoothing", "3 - self.smoothing")
            (folder / "smoothed.py").write_text(text)

    blocks_text = (folder / "smoothed.py").read_text()
    values = {"data": "small.npz", "model": "net.py:tiny", "epochs": 3, "lr": 0.01, "method": METHOD, "batch_size": 32}
    train(resolve(values), "whole")
    train(resolve(values), "edited", observer=Editor())
    assert (folder / "smoothed.py").read_text() != blocks_text
    assert same_weights(folder / "whole", folder / "edited")


def test_a_method_in_phases_in_a_changed_network_and_in_a_search(folder, capsys):
    flags = tiny(folder, method=None, epochs=None, phases=f"natural:1 {METHOD}:1", smoothing=0.2)
    said(capsys, "train", *flags, "--out", "run")
    (folder / "smoothed.py").rename(folder / "elsewhere.py")
    said(capsys, "graft", "run", "--epochs", 1, "--out", "grafted")
    assert "methods/smoothed.py" in files(folder / "grafted")
    words = ["--init", "run", "--method", "elsewhere.py:LabelSmoothing", "--target-drop", 0, 100, "--epochs", 1]
    said(capsys, "tune", *words, "--trials", 1, "--eps", "0.01", "--batch-size", 32, "--out", "tuned")
    assert "methods/elsewhere.py" in files(folder / "tuned")


def test_a_method_in_a_grid(folder):
    (folder / "grid.toml").write_text(
        'title = "Mine"\n[training]\ndata = "small.npz"\nepochs = 4\n[models.own]\nnetwork = "net.py:tiny"\n'
        f'[methods.alone]\nphases = "{METHOD}"\n[methods.late]\nphases = "natural:1/2 {METHOD}+nbc:1/2"\n'
        f'[parts."{METHOD}"]\nsmoothing = 0.3\n'
    )
    alone, late = cells_of(read_grid("grid.toml"))
    assert alone.settings["phases"] == f"{METHOD}:4"
    assert late.settings["phases"] == f"natural:2 {METHOD}+nbc:2"
    assert late.settings["methods"][METHOD] == {"smoothing": 0.3}
    with (folder / "smoothed.py").open("a") as file:
        file.write("# another content is another run\n")
    assert cells_of(read_grid("grid.toml"))[0].key != alone.key


@pytest.mark.parametrize(
    ("method", "line"),
    [
        (
            "missing.py:Smoothing",
            "there is no file missing.py: a method is a name (steadynet list methods) or file.py:C",
        ),
        ("smoothed.py", "method 'smoothed.py' names no class: write smoothed.py:MyMethod"),
        ("smoothed.py:LabelSmoothin", "unknown class in smoothed.py 'LabelSmoothin': did you mean 'LabelSmoothing'?"),
        (
            "attack_only.py:AttackOnly",
            "attack_only.py:AttackOnly is not a subclass of steadynet.objectives.base.Objective",
        ),
        ("empty.py:Smoothing", "empty.py has no class 'Smoothing': it defines no class at all"),
        ("broken.py:Smoothing", "broken.py cannot be imported: ZeroDivisionError: division by zero (line 2)"),
        ("half.py:Half", "half.py:Half does not define summary, terms"),
        (f"{METHOD}+madry", f"method '{METHOD}+madry' joins {METHOD} and madry: only regularisers can join another"),
        (f"{METHOD}+other/{METHOD}", "the methods are in two files called smoothed.py: rename one of them"),
    ],
)
def test_a_method_that_cannot_be_used_is_one_line(folder, capsys, method, line):
    (folder / "empty.py").write_text("")
    (folder / "broken.py").write_text("# broken\n1 / 0\n")
    (folder / "half.py").write_text(
        "from steadynet.objectives.base import Objective\nclass Half(Objective):\n    name = 'half'\n"
    )
    (folder / "other").mkdir()
    text = (folder / "smoothed.py").read_text().replace("    name =", "    is_regulariser = True\n    name =")
    (folder / "other/smoothed.py").write_text(text)
    assert line in refused(capsys, "train", *tiny(folder, method=method), "--out", "run")
    assert not (folder / "run").exists()


# Verifiers


def test_a_verifier_decides_with_its_own_flags(folder, trained, capsys):
    run = shutil.copytree(trained, folder / "run")
    words = ["run", "--eps", "0.7", "--per-class", 1]
    said(capsys, "verify", *words, "--verifier", VERIFIER, "--attack-steps", 30)
    rows = rows_of(run)
    assert {row.verifier for row in rows} == {"attack_only"}
    assert "sat" in {row.verdict.value for row in rows}
    text = said(capsys, "cross-check", *words, "--verifiers", "branch_and_bound", VERIFIER, "--timeout", 20)
    assert "attack_only" in text
    assert "no contradiction" in text
    said(capsys, "export", "run", "--eps", "0.7", "--per-class", 1, "--out", "exported")
    said(capsys, "vnncomp", "--instances", "exported/instances.csv", "--verifier", VERIFIER, "--out", "results.csv")
    assert "sat" in (folder / "results.csv").read_text()


def test_a_verdict_is_used_again_only_for_the_same_content(folder, trained):
    run = shutil.copytree(trained, folder / "run")
    words = ["verify", "run", "--eps", "0.7", "--per-class", "1", "--verifier"]
    assert main([*words, VERIFIER]) == 0
    first = [row.key for row in rows_of(run)]
    shutil.copy(folder / "attack_only.py", folder / "again.py")
    assert main([*words, "again.py:AttackOnly"]) == 0
    assert [row.key for row in rows_of(run)] == first  # the same content in another file
    (folder / "again.py").write_text((folder / "again.py").read_text() + "\n# edited\n")
    assert main([*words, "again.py:AttackOnly"]) == 0
    assert len({row.key for row in rows_of(run)} - set(first)) == len(first)


def test_a_verifier_from_python(folder, trained):
    from steadynet import load_trained

    network = load_trained(trained).network
    test = load_trained(trained).data().test
    (result,) = verify(network, test.pixels()[:1], test.labels[:1], 0.9, verifier=VERIFIER, attack_steps=50)
    assert result.verdict.value == "sat"


@pytest.mark.parametrize(
    ("verifier", "line"),
    [
        ("missing.py:Own", "there is no file missing.py: a verifier is a name (steadynet list verifiers) or file.py:C"),
        ("attack_only.py", "verifier 'attack_only.py' names no class: write attack_only.py:MyVerifier"),
        ("attack_only.py:Attack", "unknown class in attack_only.py 'Attack': did you mean 'AttackOnly'?"),
        (METHOD, f"{METHOD} is not a subclass of steadynet.verification.verifiers.base.Verifier"),
        ("taken.py:AttackOnly", "taken.py:AttackOnly has the name 'milp', as another verifier has"),
    ],
)
def test_a_verifier_that_cannot_be_used_is_one_line(folder, trained, capsys, verifier, line):
    (folder / "taken.py").write_text((folder / "attack_only.py").read_text().replace('"attack_only"', '"milp"'))
    assert line in refused(capsys, "verify", trained, "--verifier", verifier)


def test_verifiers_of_the_same_name_are_not_compared(folder, trained, capsys):
    (folder / "again.py").write_text((folder / "attack_only.py").read_text() + "\n# edited\n")
    words = ["--verifiers", "milp", VERIFIER, "again.py:AttackOnly", "--eps", "0.1", "--per-class", 1]
    assert "two verifiers have the same name (milp, attack_only, attack_only)" in refused(
        capsys, "cross-check", trained, *words
    )
