"""VNN-LIB numbers that float64 does not hold: no allowed input is lost, and no other one counts as a counterexample."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from steadynet.interchange.onnx.writer import export_onnx
from steadynet.interchange.vnnlib.formulas import FormulaParser, Variable
from steadynet.interchange.vnnlib.normal_form import NormalForm
from steadynet.interchange.vnnlib.property import Disjunct
from steadynet.verification.properties import Verdict
from steadynet.verification.vnncomp import Instance, decide

TINY = "0." + 30 * "0" + "1"  # 1e-31: 0.5 and 0.5 + 1e-31 are the same number of float64
HEADER = "(vnnlib-version <2.0>) (declare-network N (declare-input X float32 [1,1]) (declare-output Y float32 [1,2]))"


def verdict(tmp_path, text: str, *, arithmetic: str = "float32", verifier: str = "branch_and_bound") -> Verdict:
    """What is decided of the network with the outputs relu(x) and 2⁻⁵⁴."""
    network = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2))
    for parameter, value in zip(network.parameters(), ([[1.0]], [0.0], [[1.0], [0.0]], [0.0, 2.0**-54]), strict=True):
        parameter.data = torch.tensor(value)
    export_onnx(network, (1,), tmp_path / "network.onnx")
    (tmp_path / "property.vnnlib").write_text(HEADER + text)
    settings = {"arithmetic": arithmetic} if verifier == "branch_and_bound" else {}
    return decide(Instance(tmp_path / "network.onnx", tmp_path / "property.vnnlib", 10), verifier, **settings).verdict


@pytest.mark.parametrize(
    "text",
    [
        f"(assert (>= X[0,0] 0.5)) (assert (< X[0,0] (+ 0.5 {TINY}))) (assert (>= Y[0,0] 0.0))",
        f"(assert (== X[0,0] 0.5)) (assert (!= X[0,0] (+ 0.5 {TINY}))) (assert (>= Y[0,0] 0.0))",
        f"(assert (>= X[0,0] 0.5)) (assert (< (- X[0,0] {TINY}) 0.5)) (assert (>= Y[0,0] 0.0))",
        f"(assert (<= X[0,0] 0.5)) (assert (> X[0,0] (- 0.5 {TINY}))) (assert (>= Y[0,0] 0.0))",
    ],
)
@pytest.mark.parametrize("verifier", ["branch_and_bound", "milp"])
def test_a_strict_bound_loses_no_allowed_input(tmp_path, text, verifier):
    """The input 0.5 violates each of these."""
    assert verdict(tmp_path, text, verifier=verifier) is Verdict.SAT


def test_a_strict_bound_of_a_box_loses_no_corner_in_exact_arithmetic(tmp_path):
    text = f"(assert (>= X[0,0] 0.25)) (assert (< X[0,0] (+ 0.5 {TINY}))) (assert (>= Y[0,0] 0.5))"
    assert verdict(tmp_path, text, arithmetic="exact") is Verdict.SAT


def test_a_box_that_is_empty_by_less_than_a_rounding_is_empty(tmp_path):
    text = f"(assert (<= X[0,0] 0.5)) (assert (>= X[0,0] (+ 0.5 {TINY}))) (assert (>= Y[0,0] 0.0))"
    assert verdict(tmp_path, text) is Verdict.UNSAT


def test_an_input_beside_a_bound_is_no_counterexample(tmp_path):
    """0.5 is what float64 makes of the upper bound, which is smaller."""
    text = f"(assert (>= X[0,0] 0.4)) (assert (<= X[0,0] (- 0.5 {TINY}))) (assert (>= Y[0,0] 0.5))"
    assert verdict(tmp_path, text) is not Verdict.SAT


def test_outputs_are_judged_by_the_exact_bound(tmp_path):
    """Y_0 + Y_1 is 1 + 2⁻⁵⁴, which is more than 1 + 1e-17, though float64 has no number between 1 and 1 + 2⁻⁵²."""
    point = "(assert (== X[0,0] 1.0))"
    assert verdict(tmp_path, point + "(assert (<= (+ Y[0,0] Y[0,1]) (+ 1.0 1e-17)))") is not Verdict.SAT
    assert verdict(tmp_path, point + "(assert (<= (+ Y[0,0] Y[0,1]) (+ 1.0 1e-16)))") is Verdict.SAT


def _read(*formulas: str) -> Disjunct:
    parser, form = FormulaParser(("<=", ">=", "<", ">"), lambda word: Variable(word == "X", 0, word)), NormalForm()
    for text in formulas:
        sign, left, *right = text.split()
        form.add(parser.formula([sign, left, ["*", *right]]))
    return form.to_property(1, 1, lambda index: "X").disjuncts[0]


NUMBERS = st.floats(-4, 4, width=32, allow_nan=False)
FACTORS = st.tuples(NUMBERS, NUMBERS, NUMBERS)  # their product may have 72 digits, and float64 holds 53


def _product(factors: tuple[float, float, float]) -> Fraction:
    return Fraction(factors[0]) * Fraction(factors[1]) * Fraction(factors[2])


@given(factors=FACTORS, beside=st.integers(-2, 2), sign=st.sampled_from(["<=", "<", ">=", ">"]))
def test_any_input_is_judged_as_by_fractions(factors, beside, sign):
    """x ⋚ a product, at numbers of float32 close to it."""
    limit = _product(factors)
    point = np.float32(float(limit))
    for _ in range(abs(beside)):
        point = np.nextafter(point, np.float32(np.copysign(np.inf, beside)))
    exact = Fraction(float(point))
    truth = {"<=": exact <= limit, "<": exact < limit, ">=": exact >= limit, ">": exact > limit}[sign]
    disjunct = _read(">= X -99 1", "<= X 99 1", f"{sign} X {' '.join(map(repr, factors))}", "<= Y 1 1")
    assert disjunct.satisfied_by(np.array([float(point)]), np.array([0.0])) == truth
    assert not truth or disjunct.lower[0] <= float(point) <= disjunct.upper[0]  # what a proof speaks of has it, too
    assert not truth or not disjunct.is_empty


@given(factors=FACTORS, beside=st.integers(-2, 2), strict=st.booleans())
def test_any_output_is_judged_as_by_fractions(factors, beside, strict):
    limit = _product(factors)
    value = float(limit)
    for _ in range(abs(beside)):
        value = float(np.nextafter(value, np.copysign(np.inf, beside)))
    truth = Fraction(value) < limit if strict else Fraction(value) <= limit
    disjunct = _read(">= X -1 1", "<= X 1 1", f"{'<' if strict else '<='} Y {' '.join(map(repr, factors))}")
    assert disjunct.satisfied_by(np.array([0.0]), np.array([value])) == truth
    assert not truth or value <= disjunct.bound[0]
