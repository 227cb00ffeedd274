"""Counterexamples in the form of VNN-LIB 2.0: read back by a parser of the tests' own, replayed with no tolerance."""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from steadynet.cli import main
from steadynet.interchange.onnx.writer import export_onnx

TYPES = {"float32": np.float32, "float64": np.float64, "real": np.float32}
HEADER = re.compile(r"(\w+) (\w+) \[([\d,]*)\]")


def parse(text: str) -> tuple[str, dict[str, tuple[str, tuple[int, ...], list[str]]]]:
    """Return the verdict and, for each variable, its type, its shape and its values as they are written."""
    verdict, *lines = text.splitlines()
    found: dict[str, tuple[str, tuple[int, ...], list[str]]] = {}
    while lines:
        name, kind, lengths = HEADER.fullmatch(lines.pop(0)).groups()
        shape = tuple(int(length) for length in lengths.split(",") if length)
        size = math.prod(shape)
        values, lines = lines[:size], lines[size:]
        assert len(values) == size
        assert all(re.fullmatch(r"-?\d+\.\d+", value) for value in values)
        assert name not in found
        found[name] = kind, shape, values
    return verdict, found


def network(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(5, 12), nn.ReLU(), nn.Linear(12, 3)).to(dtype)


def property_text(kind: str, lower: list[str], upper: list[str], constraint: str, names: tuple[str, str]) -> str:
    x, y = names
    lines = ["(vnnlib-version <2.0>)", "(declare-network N"]
    lines += [f"  (declare-input {x} {kind} [1,1,1,5])", f"  (declare-output {y} {kind} [1,3])", ")"]
    for index, (low, high) in enumerate(zip(lower, upper, strict=True)):
        lines += [f"(assert (>= {x}[0,0,0,{index}] {low}))", f"(assert (<= {x}[0,0,0,{index}] {high}))"]
    return "\n".join([*lines, f"(assert {constraint})", ""])


def outputs_of(path: Path, images: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: images})[0]


LOWER, UPPER = ["0.1", "-0.3", "0.1", "0.7", "0.00001"], ["0.9", "0.3", "0.1", "0.7000001", "0.00003"]


@pytest.mark.parametrize("command", ["vnncomp", "vnncomp --out", "vnncomp --instances", "verify"])
@pytest.mark.parametrize("kind", ["float32", "real", "float64"])
@pytest.mark.parametrize("names", [("X", "Y"), ("image", "scores")])
def test_a_counterexample_is_read_back_and_replays(command, kind, names, tmp_path, capsys):
    dtype = torch.float64 if kind == "float64" else torch.float32
    model, x, y = tmp_path / "model.onnx", *names
    export_onnx(network(dtype), (1, 1, 5), model)
    middle = np.array([0.5, 0.0, 0.1, 0.70000005, 0.00002]).astype(TYPES[kind]).reshape(1, 1, 1, 5)
    scores = outputs_of(model, middle)[0].astype(float)
    constraint = f"(>= {y}[0,1] {scores[1] + 0.02:.6f})"
    file = tmp_path / "p.vnnlib"
    file.write_text(property_text(kind, LOWER, UPPER, constraint, names))
    words = {
        "vnncomp": ["vnncomp", str(model), str(file)],
        "vnncomp --out": ["vnncomp", str(model), str(file), "--out", str(tmp_path / "result.txt")],
        "vnncomp --instances": ["vnncomp", "--instances", str(tmp_path / "instances.csv")],
        "verify": ["verify", str(file), "--network", f"N={model}"],
    }[command]
    (tmp_path / "instances.csv").write_text("model.onnx,p.vnnlib,30\n")
    if command == "vnncomp --instances":
        words += ["--out", str(tmp_path / "results.csv")]
    assert main(words) == 0
    written = capsys.readouterr().out
    if command == "vnncomp --out":
        written = (tmp_path / "result.txt").read_text()
    elif command == "vnncomp --instances":
        (stored,) = (tmp_path / "results-counterexamples").iterdir()
        written = stored.read_text()

    verdict, found = parse(written)
    assert verdict == "sat"
    assert list(found) == [x, y]
    assert found[x][:2] == (kind, (1, 1, 1, 5))
    assert found[y][:2] == (kind, (1, 3))
    for value, low, high in zip(found[x][2], LOWER, UPPER, strict=True):
        assert Fraction(low) <= Fraction(value) <= Fraction(high)
    inputs = np.array([float(value) for value in found[x][2]]).astype(TYPES[kind]).reshape(1, 1, 1, 5)
    replayed = outputs_of(model, inputs)[0].astype(float)
    assert replayed.tolist() == [float(value) for value in found[y][2]]
    assert replayed[1] >= float(constraint.split()[-1].rstrip(")"))


def test_inputs_are_numbers_of_the_networks_precision_wherever_the_box_has_one(tmp_path, capsys):
    model, file = tmp_path / "model.onnx", tmp_path / "p.vnnlib"
    export_onnx(network(torch.float32), (1, 1, 5), model)
    file.write_text(property_text("float32", LOWER, UPPER, "(<= Y[0,0] 1000.0)", ("X", "Y")))
    assert main(["vnncomp", str(model), str(file)]) == 0
    _, found = parse(capsys.readouterr().out)
    for index, value in enumerate(found["X"][2]):
        assert index == 2 or float(np.float32(float(value))) == float(value)
    assert found["X"][2][2] == "0.1"  # no number of float32 lies in its box


def test_other_verdicts_and_properties_in_version_1_are_as_before(tmp_path, capsys):
    model, file = tmp_path / "model.onnx", tmp_path / "p.vnnlib"
    export_onnx(network(torch.float32), (1, 1, 5), model)
    file.write_text(property_text("float32", LOWER, UPPER, "(>= Y[0,0] 1000.0)", ("X", "Y")))
    assert main(["vnncomp", str(model), str(file)]) == 0
    assert capsys.readouterr().out == "unsat\n"
    lines = [f"(declare-const X_{index} Real)" for index in range(5)]
    lines += [f"(declare-const Y_{index} Real)" for index in range(3)]
    lines += [f"(assert (>= X_{index} 0)) (assert (<= X_{index} 1))" for index in range(5)]
    file.write_text("\n".join([*lines, "(assert (<= Y_0 1000))"]))
    assert main(["vnncomp", str(model), str(file)]) == 0
    verdict, first, *_ = capsys.readouterr().out.splitlines()
    assert verdict == "sat"
    assert first.startswith("((X_0 ")
