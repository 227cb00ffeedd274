"""``steadynet self-test``: our verifiers pass, and a verifier that errs is caught."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch

from steadynet.cli import main
from steadynet.verification import verifiers
from steadynet.verification.properties import Result, Verdict
from steadynet.verification.self_test.families import FAMILIES
from steadynet.verification.self_test.known import Outcome
from steadynet.verification.self_test.run import SelfTest
from steadynet.verification.verifiers import Verifier
from steadynet.verification.vnncomp import Instance, decide
from verified import refused, said


@dataclass(frozen=True, kw_only=True)
class AlwaysUnsat(Verifier):
    name, summary = "always_unsat", "says unsat of everything"

    def verify(self, properties, on_result):
        for index in range(len(properties)):
            on_result(index, Result(Verdict.UNSAT, 0.0))


@dataclass(frozen=True, kw_only=True)
class AlwaysSat(Verifier):
    name, summary = "always_sat", "calls every image a counterexample to its own property"

    def verify(self, properties, on_result):
        for index in range(len(properties)):
            on_result(index, Result(Verdict.SAT, 0.0, counterexample=properties.images[index]))


@dataclass(frozen=True, kw_only=True)
class Gives(Verifier):
    name, summary = "gives_up", "reads no network"

    def verify(self, properties, on_result):
        raise ValueError("cannot read it")


@pytest.fixture
def broken(monkeypatch):
    """Three verifiers beside the others."""
    known = {**verifiers.available(), **{plugin.name: plugin for plugin in (AlwaysUnsat, AlwaysSat, Gives)}}
    monkeypatch.setattr(verifiers, "available", lambda: known)


def test_branch_and_bound_says_nothing_wrong():
    result = SelfTest("branch_and_bound", {"timeout": 10.0}, networks=1).run()
    assert [judgement.describe() for judgement in result.wrong()] == []
    assert {count.family for count in result.families()} == set(FAMILIES)
    for count in result.families():
        assert count.of(Outcome.RIGHT) > count.tried / 2, count
    assert result.total().decided > 200


def test_milp_says_nothing_wrong():
    result = SelfTest("milp", {"timeout": 5.0}, networks=1, families=["monotone", "rounding"]).run()
    assert [judgement.describe() for judgement in result.wrong()] == []
    assert result.total().decided > 80


def test_marabou_does_not_support_all_networks_and_is_right_about_the_others():
    pytest.importorskip("maraboupy")
    result = SelfTest("marabou", {"timeout": 5.0}, networks=1, families=["monotone"]).run()
    assert [judgement.describe() for judgement in result.wrong()] == []
    assert result.total().of(Outcome.RIGHT) > 40
    assert "AveragePool" in str([reason for outcome, reason, _ in result.reasons() if outcome is Outcome.NOT_SUPPORTED])


@pytest.mark.parametrize("name", ["always_unsat", "always_sat"])
def test_a_verifier_that_errs_is_caught(broken, capsys, tmp_path, name):
    families = ("--families", "spikes", "monotone", "rounding", "readers")
    assert main(["self-test", "--verifier", name, *families, "--out", str(tmp_path)]) == 1
    text = capsys.readouterr().out
    assert f"it says {'unsat' if name == 'always_unsat' else 'sat'}" in text
    assert f"networks and properties: {tmp_path}" in "".join(text.split("\n"))
    for family in ("spikes", "monotone", "rounding"):
        assert f"WRONG: {family}, " in text
    assert ("WRONG: readers, " in text) == (name == "always_unsat")  # vnncomp itself replays what is called sat
    for folder in tmp_path.iterdir():
        assert f"it says {name.removeprefix('always_')}" in (folder / "verdict.txt").read_text()
    written = [folder for folder in tmp_path.iterdir() if (folder / "network.onnx").is_file()]
    assert len(written) > len(list(tmp_path.iterdir())) / 2  # networks that overflow cannot be written


def test_the_files_of_a_wrong_verdict_are_its_evidence(broken, tmp_path):
    result = SelfTest("always_unsat", {}, families=["monotone"]).run(evidence=tmp_path)
    assert result.wrong()
    folder = next(folder for folder in sorted(tmp_path.iterdir()) if "dense" in folder.name)
    found = decide(Instance(folder / "network.onnx", folder / "property.vnnlib", timeout=20))
    assert found.verdict is Verdict.SAT


def test_a_network_that_a_verifier_cannot_read_is_not_supported_rather_than_wrong(broken, capsys):
    text = said(capsys, "self-test", "--verifier", "gives_up", "--families", "monotone")
    assert "not supported: " in text
    assert "ValueError: cannot read it" in text
    assert "0 properties decided, none of them wrong" in text


def test_a_seed_makes_the_same_network_and_another_seed_makes_another():
    family, kind = FAMILIES["monotone"], "monotone, dense"
    first, again, other = (family.make(kind, seed).properties for seed in (3, 3, 4))
    assert torch.equal(first.network[0].weight, again.network[0].weight)
    assert torch.equal(first.region.lower, again.region.lower)
    assert not torch.equal(first.region.lower, other.region.lower[: len(first)])


def test_mistakes_are_answered_in_one_line(capsys):
    assert "unknown family 'spike'" in refused(capsys, "self-test", "--families", "spike")
    assert "whole number above 0" in refused(capsys, "self-test", "--networks", "0")
    assert "unknown verifier" in refused(capsys, "self-test", "--verifier", "nonsense")
