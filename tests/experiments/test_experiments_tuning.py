"""Tuning: a strength that costs a given accuracy is found, or it is said that there is none."""

from __future__ import annotations

import json
import math

import pytest

from runs import files, tiny, write_inputs
from steadynet.cli import main
from steadynet.data import load
from steadynet.errors import UserError
from steadynet.experiments.strength_search import AccuracyWindow, search
from steadynet.experiments.tuning import TuningBudget, strength_of
from steadynet.runs.evaluation import accuracy
from steadynet.runs.trained import load_trained
from verified import refused


def test_the_strength_of_each_method():
    assert strength_of("rs") == ("rs", "rs_weight")
    assert strength_of("rs+nbc") == ("nbc", "beta")
    assert strength_of("natural") == (None, "eps")


@pytest.mark.parametrize("start", [0.01, 1.0, 300.0])
def test_search_finds_a_window_from_above_and_from_below(start):
    found, tried = search(lambda strength: 3 * math.log2(1 + strength), AccuracyWindow(6, 7), start, most=12)
    assert 6 <= 3 * math.log2(1 + found) <= 7
    assert tried[-1][0] == found


def test_search_gives_up():
    assert search(lambda strength: 1.0, AccuracyWindow(6, 7), 1.0, most=5)[0] is None
    found, tried = search(lambda strength: 10 * (strength > 2), AccuracyWindow(6, 7), 1.0, most=9)
    assert found is None
    assert len(tried) == 9, "a step that jumps over the window"
    found, tried = search(lambda strength: strength, AccuracyWindow(6, 7), 1.0, most=9, high=5.0)
    assert found is None
    assert tried[-1][0] == 5.0, "no further than allowed"


def test_search_takes_few_steps():
    """A line over the logarithm is met at once, and where short fine-tunings tell its form, after one look."""
    found, tried = search(lambda strength: 5 + 2 * math.log(strength), AccuracyWindow(8.5, 9.5), 1.0, most=9)
    assert found == pytest.approx(math.exp(2), rel=0.1)
    assert len(tried) == 3
    short = [(strength, strength**0.8) for strength in (1.0, 4.0, 16.0)]
    found, tried = search(lambda strength: strength**0.8 - 1.2, AccuracyWindow(6, 7), 9.0, 4, expected=short)
    assert 6 <= found**0.8 - 1.2 <= 7
    assert len(tried) == 2


def test_search_leaves_a_strength_that_is_not_what_costs():
    found, tried = search(lambda strength: 3 + strength, AccuracyWindow(1, 2), 1e-4, most=9)
    assert found is None
    assert len(tried) == 3, "three weaker strengths cost the same"


def test_mistakes():
    with pytest.raises(UserError, match="the first must be less"):
        AccuracyWindow(2, 1)
    with pytest.raises(UserError, match="trials = 0 must be 1 or more"):
        TuningBudget(trials=0)


@pytest.fixture(scope="module")
def natural(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tuning")
    write_inputs(folder)
    assert main(["train", *tiny(folder, epochs=6), "--out", str(folder / "natural")]) == 0
    return folder / "natural"


def tune(natural, out, low, high, *more):
    words = ["--method", "nbc", "--epochs", "2", "--trial-epochs", "1", "--lr", "0.02", "--steps", "2", "--eps", "0.3"]
    words += ["--batch-size", "32", "--init", str(natural), "--target-drop", str(low), str(high), "--out", str(out)]
    return main(["tune", *words, *more])


def test_a_window_that_is_reached(natural, tmp_path, capsys):
    out = tmp_path / "tuned"
    assert tune(natural, out, 5, 60) == 0
    assert "found: nbc.beta" in capsys.readouterr().out
    record = json.loads((out / "tuning.json").read_text())
    assert record["reached"]
    assert 5 <= record["drop"] <= 60
    data = load(str(natural.parent / "small.npz"))
    held_out = data.split(0.1, 0)[1]
    before, after = (accuracy(load_trained(path).network, held_out) for path in (natural, out))
    assert 100 * (before - after) == pytest.approx(record["drop"])
    assert load_trained(out).config.settings["methods"]["nbc"]["beta"] == record["value"]
    assert load_trained(out).config.settings["phases"] == "nbc:2"
    before = files(tmp_path)
    assert tune(natural, out, 5, 60) == 0, "found already"
    assert files(tmp_path) == before


def test_a_window_that_cannot_be_reached(natural, tmp_path, capsys):
    out = tmp_path / "tuned"
    assert tune(natural, out, 99, 100, "--trials", "2", "--full-trials", "1") == 1
    assert "nbc cannot reach the window" in capsys.readouterr().out
    assert not (out / "weights.safetensors").exists()
    assert not json.loads((out / "tuning.json").read_text())["reached"]


def test_a_run_that_was_not_tuned_is_not_overwritten(natural, capsys):
    before = files(natural)
    assert tune(natural, natural, 5, 60) == 2
    assert "holds a run that was not tuned" in capsys.readouterr().err
    assert files(natural) == before


def test_what_is_wrong_is_said(natural, tmp_path, capsys):
    assert "such as --init runs/first" in refused(capsys, "tune", "--target-drop", 1, 2, "--out", tmp_path / "x")
    assert "is not a run directory" in refused(
        capsys, "tune", "--init", tmp_path, "--target-drop", 1, 2, "--out", tmp_path / "x"
    )
