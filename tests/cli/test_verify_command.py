"""``steadynet verify``: what it shows, what it writes, and how it answers mistakes."""

from __future__ import annotations

import csv
import json
import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

from runs import command_line, command_line_on_a_full_disk, finish, tiny
from steadynet import Verdict, data, load_trained
from steadynet.cli import main
from steadynet.cli.display.verification import show_verification
from steadynet.graph.rounding import Arithmetic
from steadynet.runs.directory import RunDirectory
from steadynet.verification import verifiers
from steadynet.verification.properties import Guarantee
from steadynet.verification.summary import RadiusSummary, VerificationSummary, summarise
from steadynet.verification.verdicts import COLUMNS, Row, load_counterexample, row_as_line
from verified import SELECTION, found, refused, rows_of, said

# What it shows and writes


def test_there_is_one_row_per_property_and_every_counterexample_replays(whole, trained):
    rows, network = rows_of(whole), load_trained(trained).network
    test = data.load(str(trained.parent / "small.npz")).test
    assert len(rows) == 3 * 12
    assert {row.verdict for row in rows} == {Verdict.UNSAT, Verdict.SAT}
    for label in range(4):
        first = torch.nonzero(test.labels == label).flatten()[:3].tolist()
        assert sorted({row.index for row in rows if row.label == label}) == first
    for row in rows:
        assert (row.verifier, row.timeout, row.stable_method or "crown") == ("branch_and_bound", 20.0, "crown")
        assert (row.verdict is Verdict.SAT) == bool(row.counterexample)
        if row.verdict is Verdict.SAT:
            point = load_counterexample(RunDirectory(whole), row)
            image = test.pixels(torch.tensor([row.index]))[0]
            assert 0 <= point.min() <= point.max() <= 1
            assert (point - image).abs().max() <= row.eps + 1e-6
            assert network(point[None]).argmax(1).item() != row.label
        else:
            assert row.margin is not None
            assert row.margin >= 0
    assert len(list((whole / "counterexamples").iterdir())) == sum(row.verdict is Verdict.SAT for row in rows)


def test_json_is_all_that_is_printed_and_fits_the_rows(verified, capsys):
    result = json.loads(said(capsys, "verify", verified, *SELECTION, "--json"))
    rows = rows_of(verified)
    assert (result["verifier"], result["timeout"]) == ("branch_and_bound", 20.0)
    for radius in result["radii"]:
        mine = [row for row in rows if row.eps == radius["eps"]]
        assert radius["properties"] == len(mine) == 12
        assert radius["unsat"] + radius["sat"] == 12
        assert radius["unsat"] == sum(row.verdict is Verdict.UNSAT for row in mine)
        assert radius["unsat"] <= radius["pgd_kept"] <= 12  # no attack succeeds on what is proved
        assert radius["time"] == pytest.approx(np.mean([row.seconds for row in mine]))
    assert result["radii"][0]["unsat"] > result["radii"][2]["unsat"]


def test_the_table(verified, capsys):
    text = said(capsys, "verify", verified, *SELECTION, "--threads", 1)
    assert f"{verified}: 12 properties per radius by branch_and_bound, time-out 20 s" in " ".join(text.split())
    for words in ("ε 0.05", "proved (UNSAT)", "time-outs", "stable neurons (crown)", "Time_U+T", "PGD-100 accuracy"):
        assert words in text
    assert "errors" not in text
    assert "unsat: proved for float32 execution in any order of summation (guarantee: checked)" in text
    assert text.splitlines()[-1] == f"written: {verified / 'verdicts.csv'}"


BY_HAND = [  # verdict, seconds, stable share, reason
    (Verdict.UNSAT, 1.0, 0.9, ""),
    (Verdict.UNSAT, 3.0, 0.8, ""),
    (Verdict.SAT, 10.0, None, ""),
    (Verdict.TIMEOUT, 60.5, 0.4, ""),
    (Verdict.ERROR, 0.5, None, "boom"),
]


def test_numbers_computed_by_hand(tmp_path, capsys):
    rows = [
        Row(
            0.1,
            index,
            0,
            verdict,
            seconds,
            None,
            share,
            "crown" if share else "",
            0,
            "",
            reason,
            "",
            "v",
            60.0,
            "",
            "",
            None,
            None,
            "key",
        )
        for index, (verdict, seconds, share, reason) in enumerate(BY_HAND)
    ]
    (tmp_path / "verdicts.csv").write_text("\n".join([",".join(COLUMNS), *map(row_as_line, rows), ""]))
    assert rows_of(tmp_path) == rows
    result = summarise(rows_of(tmp_path))
    assert (result.unsat, result.sat, result.timeout, result.unknown, result.error) == (2, 1, 1, 0, 1)
    assert result.unsat_share == 0.4
    assert result.misclassified == 0
    assert summarise([replace(rows[2], decided_by="misclassified"), rows[0]]).misclassified == 1
    assert result.stable_share == pytest.approx(0.7)  # of the three that have one
    assert result.time == pytest.approx(15.0)
    assert result.time_unsat_timeout == pytest.approx(21.5)
    shown = RadiusSummary(0.1, result, pgd_steps=100, pgd_kept=3)
    show_verification(VerificationSummary("r", "d", "v", 60.0, "", "verdicts.csv", (shown,), {"boom": 1}))
    table = dict(line.strip().split("   ", 1) for line in capsys.readouterr().out.splitlines() if "   " in line.strip())
    assert {name: cell.strip() for name, cell in table.items()} == {
        "proved (UNSAT)": "2/5 (40.0 %)",
        "refuted (SAT)": "1/5 (20.0 %)",
        "time-outs": "1/5 (20.0 %)",
        "errors": "1/5 (20.0 %)",
        "stable neurons (crown)": "70.0 % (3 of 5 images)",
        "Time": "15.0 s",
        "Time_U+T": "21.5 s",
        "PGD-100 accuracy": "3/5 (60.0 %)",
    }


def test_a_row_is_read_back_as_it_was():
    row = Row(8 / 255, 3, 1, Verdict.ERROR, 0.1 + 0.2, 1e-17, None, "", 7, "a, b", 'said "no"\nand left', "", "v", 1.5,
              "a=1 b=2", "own, data.npz", Arithmetic.EXACT, Guarantee.TOOL, "t")  # fmt: skip
    line = row_as_line(row)
    assert "\n" not in line
    cells = dict(zip(COLUMNS, next(csv.reader([line])), strict=True))
    assert (float(cells["eps"]), float(cells["seconds"]), float(cells["margin"])) == (8 / 255, 0.1 + 0.2, 1e-17)
    assert (cells["stable_share"], cells["reason"], cells["data"]) == ("", 'said "no" and left', "own, data.npz")


# Mistakes and failures


@pytest.mark.parametrize(
    ("number", "text"), [(1, "eps,index"), (5, "0.3,oops"), (5, "0.3" + ",1" * 18), (7, ""), (9, '"0.3,1')]
)
def test_a_damaged_file_is_named_and_not_changed(verified, capsys, number, text):
    path = verified / "verdicts.csv"
    lines = path.read_text().splitlines()
    lines[number - 1] = text
    path.write_text("\n".join(lines) + "\n")
    before = path.read_bytes()
    line = refused(capsys, "verify", verified, *SELECTION)
    assert f"{path} is damaged: line {number} is not" in line
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        (["--verifier", "branch_and_bond"], "did you mean 'branch_and_bound'"),
        (["--atack-steps", "3"], "did you mean --attack-steps?"),
        (["--eps", "2"], "is too large"),
        (["--eps", "none"], "a radius is a number"),
        (["--per-class", "0"], "'0' is not a whole number above 0"),
        (["--per-class", "4000"], "but 4000 of each class are asked for"),
        (["--timeout", "0"], "timeout = 0 must be larger than 0"),
        (["--timeout", "soon"], "must be a number, not 'soon'"),
        (["--group", "0"], "group = 0 must be 1 or more"),
        (["--data", "digits"], "cannot take images of shape"),
    ],
)
def test_a_mistake_gets_one_line(run, capsys, flags, complaint):
    assert complaint in refused(capsys, "verify", run, *flags)
    assert not (run / "verdicts.csv").exists()


def test_a_full_disk_keeps_what_is_decided(run, whole, tmp_path):
    arguments = ["verify", str(run), *SELECTION]
    assert finish(command_line_on_a_full_disk, arguments, tmp_path / "said", 3000) == 2
    text = (tmp_path / "said").read_text()
    assert "cannot write" in text.splitlines()[-1]
    assert "Traceback" not in text
    kept = rows_of(run)
    assert kept
    assert finish(command_line, arguments, tmp_path / "said") == 0
    assert rows_of(run)[: len(kept)] == kept
    assert found(run) == found(whole)


def test_training_again_removes_the_verdicts(verified, trained, capsys):
    said(capsys, "train", *tiny(trained.parent), "--out", verified, "--overwrite")
    assert not (verified / "verdicts.csv").exists()
    assert not (verified / "counterexamples").exists()


# Plug-ins

PLUGIN = """
from dataclasses import dataclass
from steadynet.plugins import setting
from steadynet.verification.properties import Result, Verdict
from steadynet.verification.verifiers.base import Verifier

@dataclass(frozen=True, kw_only=True)
class Guess(Verifier):
    name = 'guess'
    summary = 'says what it is told'
    word: str = setting('unsat', 'what to say')

    def verify(self, properties, on_result):
        for index in range(len(properties)):
            point = properties.images[index] if self.word == 'sat' else None
            on_result(index, Result(Verdict(self.word), 0.5, point, reason='a guess' if self.word == 'error' else ''))
"""


@pytest.fixture
def guess(tmp_path, monkeypatch):
    """A verifier that is one file."""
    (tmp_path / "guess.py").write_text(PLUGIN)
    monkeypatch.setattr(verifiers, "__path__", [*verifiers.__path__, str(tmp_path)])
    yield
    sys.modules.pop("steadynet.verification.verifiers.guess", None)


def test_a_new_verifier_is_one_file(guess, run, capsys):
    assert "guess: says what it is told" in said(capsys, "list", "verifiers")
    with pytest.raises(SystemExit):
        main(["verify", "--help"])
    assert "guess: what to say (default: unsat)" in " ".join(capsys.readouterr().out.split())
    ask = ["verify", run, "--verifier", "guess", "--eps", "0.05", "--per-class", 3]
    assert "12/12 (100.0 %)" in said(capsys, *ask, "--word", "unknown")
    text = said(capsys, *ask, "--word", "error")
    assert "errors" in text
    assert "12 × a guess" in text
    assert "did you mean 'word'" not in refused(capsys, *ask, "--attack-steps", 3)


def test_a_wrong_counterexample_is_an_error(guess, run, capsys):
    text = said(capsys, "verify", run, "--verifier", "guess", "--eps", "0.05", "--per-class", 3, "--word", "sat")
    wrong = sum(row.verdict is Verdict.ERROR for row in rows_of(run))
    assert wrong >= 8  # those that the network classifies rightly
    assert f"{wrong} × the counterexample given does not replay" in text


def test_a_proof_that_an_attack_refutes_is_reported(guess, run, capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert main(["verify", str(run), "--verifier", "guess", "--eps", "0.7", "--per-class", "1"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert all("guess proved test image" in line and "at ε 0.7, but an attack refutes it" in line for line in lines)


def test_lists_of_verifiers(capsys):
    text = said(capsys, "list", "verifiers")
    assert "branch_and_bound: " in text
    assert "timeout" in text
