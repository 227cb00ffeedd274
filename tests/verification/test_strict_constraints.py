"""Properties whose edge matters: strict constraints on plateaus, and numbers that only exact arithmetic keeps apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from steadynet.interchange.onnx.writer import export_onnx
from steadynet.interchange.vnnlib.property import Disjunct
from steadynet.verification.properties import Reason, Verdict
from steadynet.verification.vnncomp import Instance, decide

BOX = "".join(f"(assert (>= X[0,{i}] 0.0)) (assert (<= X[0,{i}] 1.0))" for i in (0, 1))
HEADER = (
    "(vnnlib-version <2.0>) (declare-network N (declare-input X float32 [1,2]) (declare-output Y float32 [1,2]))" + BOX
)
VERSION_1 = "".join(f"(declare-const {letter}_{i} Real)" for letter in "XY" for i in (0, 1)) + "".join(
    f"(assert (>= X_{i} 0)) (assert (<= X_{i} 1))" for i in (0, 1)
)


def plateaus() -> nn.Module:
    """relu(x_0 − 0.97) and relu(0.03 − x_1): zero nearly everywhere."""
    layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    layers[0].weight.data.copy_(torch.tensor([[1.0, 0.0], [0.0, -1.0]]))
    layers[0].bias.data.copy_(torch.tensor([-0.97, 0.03]))
    return layers


def sums() -> nn.Module:
    """x_0 + x_1 and x_0 − x_1."""
    layers = nn.Sequential(nn.Linear(2, 2, bias=False))
    layers[0].weight.data.copy_(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
    return layers


def decided(tmp_path, network, text, verifier="branch_and_bound"):
    export_onnx(network, (2,), tmp_path / "network.onnx")
    (tmp_path / "property.vnnlib").write_text(text)
    return decide(Instance(tmp_path / "network.onnx", tmp_path / "property.vnnlib", 20), verifier)


@pytest.mark.parametrize("verifier", ["branch_and_bound", "milp"])
@pytest.mark.parametrize(
    "constraints",
    ["(assert (> Y[0,0] 0.0))", "(assert (> Y[0,0] 0.0)) (assert (> Y[0,1] 0.0))", "(assert (!= Y[0,1] 0.0))"],
)
def test_a_counterexample_beside_a_plateau_on_the_edge_is_found(tmp_path, constraints, verifier):
    """At the middle of the box, the outputs lie on the edge of what is asked for, and gradients are zero."""
    assert decided(tmp_path, plateaus(), HEADER + constraints, verifier).verdict is Verdict.SAT


@pytest.mark.parametrize(
    ("asked", "verdict"), [("(> (* 1e-30 Y[0,0]) 0.0)", "sat"), ("(< (* 1e-30 Y[0,0]) 0.0)", "unknown")]
)
def test_constraints_of_very_different_sizes_beside_each_other(tmp_path, asked, verdict):
    """What makes a constraint of size 1e27 clear is infinite for one of size 1e-30."""
    text = f"{HEADER} (assert {asked}) (assert (<= (* 1e27 Y[0,1]) 1e27))"
    assert decided(tmp_path, plateaus(), text).verdict.value == verdict


def test_an_edge_that_is_reached_but_not_crossed_is_unknown(tmp_path):
    found = decided(tmp_path, plateaus(), HEADER + "(assert (< Y[0,0] 0.0))")
    assert (found.verdict, found.reason) == (Verdict.UNKNOWN, Reason.ZERO_MARGIN)


@pytest.mark.parametrize(
    ("constraint", "verdict"),
    [
        ("(>= (+ (* 1e17 Y_0) (* 9 Y_0) (* -1e17 Y_0)) 17.9)", "sat"),  # 9 · Y_0, at most 18
        ("(>= (+ (* 1e17 Y_0) (* 9 Y_0) (* -1e17 Y_0)) 18.1)", "unsat"),
        ("(>= Y_0 (+ 1e17 1.9 -1e17))", "sat"),
        ("(>= (* 8 Y_0) (+ 1e17 17 -1e17))", "unsat"),
        ("(<= (* 8 Y_0) (+ 1e17 -9 -1e17))", "unsat"),
        ("(>= (* 1e-200 1e-200 Y_0) (* 1e-200 1e-200 1.9))", "sat"),
        ("(>= (* 1e-200 1e-200 Y_0) (* 1e-200 1e-200 2.1))", "unsat"),
        ("(>= (* 1e39 Y_0) 1.9e39)", "sat"),
        ("(>= (* 1e39 Y_0) 2.1e39)", "unsat"),
        ("(>= (* 1e-42 Y_0) 2.1e-42)", "unsat"),
    ],
)
def test_numbers_of_a_property_are_computed_exactly(tmp_path, constraint, verdict):
    assert decided(tmp_path, sums(), f"{VERSION_1} (assert {constraint})").verdict.value == verdict


def test_a_counterexample_is_judged_in_exact_arithmetic():
    """y_0 − y_1 ≤ 0 where float64 rounds the difference to zero; and weights that float64 does not hold."""
    box = np.zeros(1), np.ones(1)
    outputs = np.array([2.0**60 + 2.0**8, 2.0**60, 1.0])
    matrix = np.array([[1.0, -1.0, -(2.0**8)]])
    assert Disjunct(*box, matrix, np.zeros(1)).satisfied_by(np.zeros(1), outputs)
    assert not Disjunct(*box, matrix, np.zeros(1), frozenset([0])).satisfied_by(np.zeros(1), outputs)
    assert not Disjunct(*box, matrix, np.zeros(1), rounded=True).satisfied_by(np.zeros(1), outputs)
    small = np.array([[1.0, -1.0, 2.0**-10]])  # float64 loses the last term
    equal = np.array([2.0**60, 2.0**60, 1.0])
    assert not Disjunct(*box, small, np.zeros(1)).satisfied_by(np.zeros(1), equal)
    assert not Disjunct(*box, small, np.zeros(1)).satisfied_by(np.zeros(1), np.array([np.nan, 0.0, 0.0]))
