"""``steadynet cross-check``: the same properties through several verifiers, Marabou among them."""

from __future__ import annotations

import json

import pytest
import torch

from steadynet import load_trained
from steadynet.cli import main
from steadynet.interchange.onnx.files import load_model
from steadynet.interchange.onnx.runtime import runtime_function
from steadynet.interchange.vnnlib.files import read_vnnlib
from steadynet.runs.tensors import load_tensors
from tools import write_tool
from verified import refused, said

SELECTION = ("--per-class", "1", "--timeout", "20")


def test_marabou_agrees_with_ours(run, capsys):
    pytest.importorskip("maraboupy.MarabouCore")
    names = ["branch_and_bound", "milp", "marabou"]
    radii = ("--eps", "0.05", "0.7")
    result = json.loads(said(capsys, "cross-check", run, "--verifiers", *names, *radii, *SELECTION, "--json"))
    assert list(result["verifiers"]) == names
    assert result["contradictions"] == []
    assert len(result["properties"]) == 8
    verdicts = [{result["verdict"] for result in row["results"].values()} for row in result["properties"]]
    assert verdicts.count({"unsat"}) >= 3
    assert verdicts.count({"sat"}) >= 3
    assert sum(map(len, verdicts)) == 8  # every verifier decides every property of the tiny network
    for name in names:
        total = result["totals"][name]
        assert total["unsat"] + total["sat"] == 8
        mine = [row["results"][name]["seconds"] for row in result["properties"]]
        assert total["seconds"] == pytest.approx(sum(mine), abs=1e-4)
    assert {row["results"]["marabou"]["decided_by"] for row in result["properties"]} <= {"marabou", "misclassified"}
    assert not (run / "cross-check").exists()


def test_the_table(run, capsys):
    text = said(capsys, "cross-check", run, "--eps", "0.05", *SELECTION, "--threads", 1)
    assert f"{run}: 4 properties" in " ".join(text.split())
    for words in ("image", "label", "branch_and_bound", "milp", " 0.05 ", "total unsat", "total time"):
        assert words in text
    assert text.splitlines()[-1] == "no contradiction"


def test_a_liar_is_found_and_the_evidence_kept(run, tmp_path, capsys):
    liar = write_tool(tmp_path / "liar", 'echo unsat > "$5"')
    verifiers = ["--verifiers", "branch_and_bound", "competition", "--tool", str(liar)]
    command = ["cross-check", str(run), *verifiers, "--eps", "0.7", *SELECTION]
    assert main([*command, "--json"]) == 1
    result = json.loads(capsys.readouterr().out)
    refuted = [row for row in result["properties"] if row["results"]["branch_and_bound"]["verdict"] == "sat"]
    lied = [row for row in refuted if row["results"]["competition"]["verdict"] == "unsat"]  # not of misclassified ones
    assert lied
    assert [(found["index"], found["eps"]) for found in result["contradictions"]] == [
        (row["index"], 0.7) for row in lied
    ]
    network = load_trained(run).network
    for found in result["contradictions"]:
        assert (found["proved_by"], found["refuted_by"]) == (["competition"], ["branch_and_bound"])
        assert found["wrong"] == ["competition"]
        folder = run / "cross-check" / f"image-{found['index']}-eps-0.7"
        assert found["evidence"] == str(folder)
        assert json.loads((folder / "evidence.json").read_text()) == found
        point = load_tensors(folder / "counterexample.safetensors")[0]["input"]
        outputs = runtime_function(load_model(folder / "model.onnx"))(point[None].numpy())
        torch.testing.assert_close(torch.from_numpy(outputs), network(point[None]).detach())
        specification = read_vnnlib(folder / "property.vnnlib")
        inputs = point.double().flatten().numpy()
        assert any(case.satisfied_by(inputs, outputs[0].astype(float)) for case in specification.disjuncts)
        assert found["settings"]["competition"]["tool"] == str(liar)
    assert main(command) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert "CONTRADICTION on image" in text
    assert "it replays, so competition is wrong. Evidence:" in text


def test_a_verifier_that_does_not_decide_contradicts_none(run, tmp_path, capsys):
    for number, script in enumerate(("echo timeout", "echo unknown", "echo sat", "echo 'sat\n((X_0 0.5))'", "true")):
        tool = write_tool(tmp_path / f"tool{number}", f'{script} > "$5"')
        verifiers = ("--verifiers", "competition", "branch_and_bound", "--tool", tool)
        text = said(capsys, "cross-check", run, *verifiers, "--eps", "0.05", *SELECTION)
        assert "no contradiction" in text
        assert ("said sat, but gave" in text) == ("sat" in script)
    assert not (run / "cross-check").exists()


def test_mistakes_give_one_line_before_any_work(tmp_path, capsys, monkeypatch):
    for name in ("COMPETITION_TOOL", "ABCROWN_HOME"):
        monkeypatch.delenv(name, raising=False)
    nowhere = tmp_path / "no-run"
    for words, complaint in (
        (["--verifiers", "branch_and_bond", "milp"], "did you mean 'branch_and_bound'"),
        (["--verifiers", "milp", "--restarts", "3"], "--restarts is not a setting of milp"),
        (["--verifiers", "milp", "competition"], "--tool FOLDER"),
        (["--verifiers", "milp", "competition", "--tool", str(tmp_path)], "has no run_instance.sh"),
        (["--verifiers", "milp", "alpha_beta_crown"], "--abcrown-home FOLDER"),
        (
            ["--verifiers", "milp", "alpha_beta_crown", "--abcrown-home", str(tmp_path)],
            "no complete_verifier/abcrown.py",
        ),
    ):
        assert complaint in refused(capsys, "cross-check", nowhere, *words)
    assert "does not exist: give the directory" in refused(capsys, "cross-check", nowhere)


def test_one_verifier_is_no_cross_check(run, capsys):
    assert "needs two verifiers, not milp" in refused(
        capsys, "cross-check", run, "--verifiers", "milp", "milp", *SELECTION
    )


def test_without_marabou_the_message_says_how_to_install_it(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    line = refused(capsys, "verify", tmp_path, "--verifier", "marabou")
    assert 'pip install "steadynet[marabou]"' in line
