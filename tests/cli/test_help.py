"""Help and lists: what a newcomer reads first, and that the examples in it work."""

from __future__ import annotations

import resource
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from few_digits import load_few
from steadynet.cli import COMMANDS, FIRST, STAGES, main, parse_command_line
from steadynet.data.digits import Digits
from steadynet.data.mnist import Mnist
from steadynet.errors import UserError
from steadynet.interchange.onnx.writer import export_onnx
from verified import said

STEADYNET = Path(sys.executable).with_name("steadynet")


QUICKER = {  # flags that make a command's examples quick; later flags win
    "train": "--train-images 200 --epochs 1",
    "prune": "--verify-images 0",
    "graft": "--epochs 1 --images 5 --verify-images 0",
    "sparsify": "--images 10 --verify-images 0",
    "evaluate": "--pgd-steps 2 --images 50",
    "verify": "--per-class 1 --timeout 0.2",
    "radius": "--per-class 1 --timeout 0.1 --tolerance 0.05",
    "cross-check": "--timeout 0.2",
    "export": "--per-class 1",
    "vnncomp": "--timeout 0.2",
    "self-test": "--families monotone --networks 1",
    "report": "--no-figures",
    "data": "",
    "list": "",
}


# Help


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_the_first_help_names_every_command_by_stage_and_three_to_try(capsys, arguments):
    text = help_of(capsys, arguments)
    places = [text.index(f"\n{stage}:\n") for stage in STAGES]
    assert places == sorted(places)
    for name, command in COMMANDS.items():
        assert f"\n  {name:<13}{command.summary}\n" in text
    tried = [line for line in FIRST.splitlines() if line.startswith("  steadynet ")]
    assert len(tried) == 3
    assert FIRST in text
    for line in tried:
        assert parse_command_line(line.partition("  steadynet ")[2].split("  ")[0].split()).command in COMMANDS
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_begins_with_a_sentence_and_ends_with_examples(capsys, name):
    text = help_of(capsys, [name, "--help"])
    usage, description = text.split("\n\n")[:2]
    assert usage.startswith(f"usage: steadynet {name} ")
    assert " ".join(description.split()) == COMMANDS[name].description
    assert description[0].isupper()
    assert description.endswith(".")
    examples = text.partition("examples:\n")[2].splitlines()
    assert [line.strip() for line in examples] == list(COMMANDS[name].examples)
    for example in examples:
        assert parse_command_line(shlex.split(example, comments=True)[1:]).command == name


def help_of(capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_the_examples_work_one_after_the_other(tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr(Digits, "load", load_few)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", opened.append)
    export_onnx(nn.Sequential(nn.Flatten(), nn.Linear(4, 2)), (1, 2, 2), "net.onnx")
    np.savez("images.npz", X=np.full((2, 1, 2, 2), 0.5, dtype=np.float32), y=np.array([0, 1]))
    for name, flags in QUICKER.items():
        for example in COMMANDS[name].examples:
            words = shlex.split(example, comments=True)[1:]
            if words[:2] != ["data", "fetch"]:  # which would download
                assert main([*words, *flags.split()]) == 0, example
    assert [page.rpartition("/")[2] for page in opened] == ["index.html"]


def test_version(capsys):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out.startswith("steadynet 0.")


def test_a_flag_for_every_setting(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    text = capsys.readouterr().out
    for flag in ("--data", "--phases", "--init", "--config", "--schedule constant|one-cycle", "--beta N", "--no-clip"):
        assert flag in text


# Lists


def test_the_list_of_everything_is_brief(capsys):
    text = said(capsys, "list")
    lines = text.splitlines()
    for name in ("natural", "nbc", "M1", "digits", "cifar10", "branch_and_bound", "milp", "rq1-mnist", "ray"):
        assert sum(line.split()[:1] == [name] for line in lines) == 1
    assert "rank-power" not in text  # a setting of nbc
    assert lines[-1] == "With all settings: steadynet list methods|models|data|verifiers|experiments|engines"


def test_lists(capsys):
    methods = said(capsys, "list", "methods")
    assert all(f"{name}: " in methods for name in ("natural", "madry", "trades", "rs", "nbc"))
    assert "rank-power" in methods
    models = said(capsys, "list", "models")
    assert "M1" in models
    assert "166,406" in models
    assert said(capsys, "list", "data") == said(capsys, "data", "list")
    assert "fashion-mnist" in said(capsys, "data", "list")
    assert "RQ3: CIFAR-10" in said(capsys, "list", "experiments")
    assert "autoscaling" in said(capsys, "list", "engines")


def test_data_where_and_fetch(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("STEADYNET_DATA", str(tmp_path / "sets"))
    assert said(capsys, "data", "where").strip() == str(tmp_path / "sets")
    assert said(capsys, "data", "fetch", "digits").startswith("digits: /")


def test_a_data_set_that_cannot_be_had_does_not_keep_the_others_waiting(capsys, monkeypatch):
    def nowhere(self):
        raise UserError("cannot get mnist")

    monkeypatch.setattr(Mnist, "fetch", nowhere)
    assert main(["data", "fetch", "mnist", "digits"]) == 2
    printed = capsys.readouterr()
    assert printed.out.startswith("digits: /")
    assert "cannot get mnist" in printed.err


# Quick answers


def test_importing_costs_nothing():
    code = "import sys, steadynet; print(sorted({'torch', 'numpy', 'rich'} & set(sys.modules)))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_help_comes_at_once():
    """In processor time, which other work on the machine does not lengthen much."""

    def seconds():
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([STEADYNET, "--help"], check=True, stdout=subprocess.DEVNULL)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(5)) < 0.3


def test_a_reader_who_leaves_early_is_no_error():
    shell = f"set -o pipefail; {STEADYNET} list models | head -n 1 > /dev/null"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert done.stderr == ""
