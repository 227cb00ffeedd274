"""Published verdicts are decided again from the published weights, 30 a day drawn at random; and the zoo."""

from __future__ import annotations

import dataclasses
import shutil
import time

import pytest

from few_digits import load_few
from published import run_grid
from recheck import RESULTS, drawn, published_verdicts, recheck
from runs import same_weights
from steadynet.cli import main
from steadynet.data.digits import Digits
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.publishing import publish
from steadynet.experiments.zoo import networks_in
from steadynet.verification.properties import Verdict
from verified import said


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Two networks, published with their weights."""
    folder = tmp_path_factory.mktemp("zoo")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Digits, "load", load_few)
        run_grid(folder / "out", "rq1-mnist", only={"method": ["natural", "nbc"]})
        publish(ExperimentDirectory(folder / "out"), folder / "results")
        yield folder / "results"


def test_thirty_published_verdicts_are_decided_again():
    verdicts = published_verdicts(RESULTS) if RESULTS.is_dir() else []
    if not verdicts:
        pytest.skip("no published network with weights has its data on this machine")
    today = time.strftime("%Y-%m-%d")
    found = list(recheck(drawn(verdicts, 30, seed=today), timeout=1.0))
    assert [str(one) for one in found if one.is_contradiction] == [], f"drawn with the seed {today}"


def test_a_wrong_verdict_is_found(results):
    """A verdict that is turned around is a contradiction."""
    verdicts = published_verdicts(results)
    assert len(verdicts) == 16
    assert not any(one.is_contradiction for one in recheck(verdicts))
    other = {Verdict.UNSAT: Verdict.SAT, Verdict.SAT: Verdict.UNSAT}
    decided = [(network, row) for network, row in verdicts if row.verdict in other]
    assert {row.verdict for _, row in decided} == set(other)
    turned = [(network, dataclasses.replace(row, verdict=other[row.verdict])) for network, row in decided]
    assert all(one.is_contradiction for one in recheck(turned, timeout=5.0))


def test_verdicts_of_another_network_are_found(results, tmp_path):
    broken = shutil.copytree(results, tmp_path / "results")
    one, other = (network.run.weights for network in networks_in(broken).values())
    shutil.copyfile(one, other)
    with pytest.raises(AssertionError, match="verdicts of another network"):
        list(recheck(published_verdicts(broken)))


def test_the_draw_depends_on_the_date_alone(results):
    verdicts = published_verdicts(results)
    first, again, later = (drawn(verdicts, 5, seed) for seed in ("2026-01-01", "2026-01-01", "2026-01-02"))
    assert first == again != later
    assert len(drawn(verdicts, 99, "x")) == 16


def test_the_zoo(results, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(results, "results")
    assert list(networks_in(results)) == ["digits-m1-natural", "digits-m1-nbc"]
    assert "digits-m1-nbc" in said(capsys, "zoo", "list")
    text = said(capsys, "zoo", "get", "digits-m1-nbc")
    assert "steadynet verify runs/digits-m1-nbc --eps 0.01" in text
    copy = tmp_path / "runs" / "digits-m1-nbc"
    assert same_weights(copy, networks_in(results)["digits-m1-nbc"].run.path)
    said(capsys, "verify", copy, "--eps", "0.01", "--per-class", "1", "--timeout", "1")
    for words, message in {
        ("get", "digits-m1-nbc"): "is not empty",
        ("get", "m1"): "unknown published network",
        ("get",): "name the network to copy: digits-m1-natural, digits-m1-nbc",
        ("list", "m1"): "did you mean steadynet zoo get m1",
        ("fetch",): "unknown action",
        ("list", "--from", "nowhere"): "nowhere holds no published networks",
    }.items():
        assert main(["zoo", *words]) == 2
        assert message in capsys.readouterr().err


def test_a_damaged_network_is_refused(results, tmp_path, capsys):
    broken = shutil.copytree(results, tmp_path / "results")
    one, other = (network.run.weights for network in networks_in(broken).values())
    shutil.copyfile(one, other)
    assert main(["zoo", "get", "digits-m1-nbc", "--from", str(broken), "--out", str(tmp_path / "run")]) == 2
    assert "is not the network that was published" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_without_the_repository_it_says_where_the_networks_are(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("steadynet.experiments.zoo.__file__", str(tmp_path / "lib/site-packages/steadynet/a/zoo.py"))
    assert main(["zoo", "list"]) == 2
    assert "in the folder results/ of steadynet's repository" in capsys.readouterr().err
