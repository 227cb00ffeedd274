"""``vnncomp --proofs``: which proofs stand in the folder after lists of instances, and what failures do to verdicts."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path

import numpy as np
import torch
from torch import nn

import steadycheck
from steadynet.cli import main
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.verification import instances
from steadynet.verification.proofs import writing


def write_network(path: Path, margin: float) -> None:
    """y_0 = relu(x_0) + margin and y_1 = relu(x_1)."""
    layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    for layer, bias in ((layers[0], [0.0, 0.0]), (layers[2], [margin, 0.0])):
        layer.weight.data.copy_(torch.eye(2))
        layer.bias.data.copy_(torch.tensor(bias))
    path.parent.mkdir(parents=True, exist_ok=True)
    export_onnx(layers, (2,), path)


def write_property(path: Path, high: float) -> None:
    """For x in [0, high]²: never y_1 ≥ y_0. It holds if and only if the margin is larger than ``high``."""
    names = "".join(f"(declare-const {letter}_{i} Real)" for letter in "XY" for i in (0, 1))
    box = "".join(f"(assert (>= X_{i} 0)) (assert (<= X_{i} {high}))" for i in (0, 1))
    path.write_text(f"{names} {box} (assert (>= Y_1 Y_0))")


def decided(folder: Path, *lines: str, proofs: str = "proofs") -> list[str]:
    """The verdicts of a list of instances."""
    (folder / "instances.csv").write_text("".join(f"{line},20\n" for line in lines))
    out = folder / "results.csv"
    arguments = ["vnncomp", "--instances", str(folder / "instances.csv"), "--out", str(out)]
    assert main([*arguments, "--proofs", str(folder / proofs)]) == 0
    rows = {(row["network"], row["property"]): row["verdict"] for row in csv.DictReader(out.read_text().splitlines())}
    return [rows[network, name] for network, name in (line.split(",") for line in lines)]


def checked(folder: Path) -> int:
    """How many proofs stand below a folder, all of them valid."""
    models = list(folder.glob("*/model.onnx"))
    for model in models:
        assert not list(model.parent.glob("*.proof")) or steadycheck.main([str(model.parent)]) == 0
    return len(list(folder.rglob("*.proof")))


def test_a_network_without_relus_whose_margin_is_as_small_as_rounding(tmp_path: Path, capsys) -> None:
    """At x = (1.7, 1.3), x_0 · 1.3 − x_1 · 1.7 is 0 but for rounding. The verdict stays, whatever the proof does."""
    layer = nn.Linear(2, 1, bias=False)
    layer.weight.data.copy_(torch.tensor([[1.3, -1.7]]))
    export_onnx(nn.Sequential(layer), (2,), tmp_path / "linear.onnx")
    names = "(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real)"
    corner = [repr(float(np.float32(number))) for number in (1.7, 1.3)]
    box = "".join(f"(assert (>= X_{i} {number})) (assert (<= X_{i} {number}))" for i, number in enumerate(corner))
    for name, limit in (("tight", 2e-6), ("wide", 1e-3)):
        (tmp_path / f"{name}.vnnlib").write_text(f"{names} {box} (assert (>= Y_0 {limit!r}))")
    assert decided(tmp_path, "linear.onnx,tight.vnnlib", "linear.onnx,wide.vnnlib") == ["unsat", "unsat"]
    assert checked(tmp_path / "proofs") >= 1
    assert "was not proved" in capsys.readouterr().out


def test_a_proof_that_cannot_be_written_costs_neither_its_verdict_nor_the_list(tmp_path, monkeypatch, capsys) -> None:
    write_network(tmp_path / "n.onnx", 2.0)
    for name, high in (("p", 1.0), ("q", 1.5)):
        write_property(tmp_path / f"{name}.vnnlib", high)

    def fails(*arguments: object, **options: object) -> bytes:
        raise ValueError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(writing, "prove", fails)
        assert decided(tmp_path, "n.onnx,p.vnnlib", "n.onnx,q.vnnlib") == ["unsat", "unsat"]
    assert "it could not be written: ValueError: a defect" in " ".join(capsys.readouterr().out.split())
    assert not list(tmp_path.rglob("*.proof"))
    assert decided(tmp_path, "n.onnx,p.vnnlib", "n.onnx,q.vnnlib") == ["unsat", "unsat"]
    assert checked(tmp_path / "proofs") == 2


def test_an_instance_that_fails_is_an_error_and_the_list_goes_on(tmp_path, monkeypatch) -> None:
    write_network(tmp_path / "n.onnx", 2.0)
    for name in ("p", "q"):
        write_property(tmp_path / f"{name}.vnnlib", 1.0)
    decide = instances.decide_with_hints

    def fails_once(instance, *arguments, **options):
        if instance.property_file.stem == "p":
            raise ValueError("a defect")
        return decide(instance, *arguments, **options)

    monkeypatch.setattr(instances, "decide_with_hints", fails_once)
    assert decided(tmp_path, "n.onnx,p.vnnlib", "n.onnx,q.vnnlib") == ["error", "unsat"]
    assert "ValueError: a defect" in (tmp_path / "results.csv").read_text()


def test_networks_and_properties_of_one_name_have_proofs_of_their_own(tmp_path: Path) -> None:
    for folder, margin, high in (("a", 2.0, 1.0), ("b", 2.5, 0.75)):
        write_network(tmp_path / folder / "n.onnx", margin)
        write_property(tmp_path / folder / "p.vnnlib", high)
    lines = ["a/n.onnx,a/p.vnnlib", "b/n.onnx,b/p.vnnlib", "a/n.onnx,b/p.vnnlib"]
    assert decided(tmp_path, *lines) == ["unsat"] * 3
    assert checked(tmp_path / "proofs") == 3
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "proofs").rglob("*.proof")}
    assert decided(tmp_path, *reversed(lines)) == ["unsat"] * 3  # stored, with their proofs
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "proofs").rglob("*.proof")} == written


def test_no_proof_stands_under_the_name_of_a_network_that_was_changed(tmp_path: Path) -> None:
    """The name of the folder is that of the content, which is refuted now: only what it was before has a proof."""
    write_network(tmp_path / "n.onnx", 2.0)
    write_property(tmp_path / "p.vnnlib", 1.0)
    assert decided(tmp_path, "n.onnx,p.vnnlib") == ["unsat"]
    (proof,) = (tmp_path / "proofs").rglob("*.proof")
    before = hashlib.sha256((tmp_path / "n.onnx").read_bytes()).hexdigest()
    assert proof.parent.name == f"n-{before[:8]}"
    write_network(tmp_path / "n.onnx", 0.5)
    (tmp_path / "results.csv").unlink()
    assert decided(tmp_path, "n.onnx,p.vnnlib") == ["sat"]
    after = hashlib.sha256((tmp_path / "n.onnx").read_bytes()).hexdigest()
    assert not (tmp_path / "proofs" / f"n-{after[:8]}").exists()
    assert checked(tmp_path / "proofs") == 1  # of the network that it was, which is beside it
