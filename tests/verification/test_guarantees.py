"""Every output says what a proof guarantees."""

from __future__ import annotations

import csv
import json

import pytest

from steadynet.graph.rounding import Arithmetic
from steadynet.verification.guarantees import GuaranteeCount, count_guarantees, describe_guarantee, describe_proofs
from steadynet.verification.properties import Guarantee, Reason, Result, Verdict
from steadynet.verification.vnncomp import combine
from verified import rows_of, said

FLOAT32 = "proved for float32 execution in any order of summation (guarantee: checked)"
SMALL = ("--eps", "0.05", "0.7", "--per-class", "1", "--timeout", "20")


def test_proofs_of_several_kinds_are_counted():
    proof = Result(Verdict.UNSAT, 0.1, arithmetic=Arithmetic.FLOAT32, guarantee=Guarantee.CHECKED)
    trusted = Result(Verdict.UNSAT, 0.1, arithmetic=Arithmetic.FLOAT32, guarantee=Guarantee.SOLVER)
    refuted, undecided = Result(Verdict.SAT, 0.1, guarantee=Guarantee.REPLAYED), Result(Verdict.UNKNOWN, 0.1)
    counts = count_guarantees([refuted, undecided, proof, proof, trusted])
    assert counts == (
        GuaranteeCount(Verdict.UNSAT, Arithmetic.FLOAT32, Guarantee.CHECKED, 2),
        GuaranteeCount(Verdict.UNSAT, Arithmetic.FLOAT32, Guarantee.SOLVER, 1),
        GuaranteeCount(Verdict.SAT, None, Guarantee.REPLAYED, 1),
    )
    line = describe_proofs(counts)
    assert line.startswith(f"unsat: 2 {FLOAT32}; 1 proved")
    assert line.endswith("(guarantee: solver)")
    assert describe_proofs(count_guarantees([refuted, undecided])) == describe_guarantee(undecided) == ""


def test_verify_stores_and_prints_it(run, capsys):
    found = json.loads(said(capsys, "verify", run, *SMALL, "--json"))["guarantees"]
    kinds = {(entry["verdict"], entry["arithmetic"], entry["guarantee"]) for entry in found}
    assert kinds == {("unsat", "float32", "checked"), ("sat", None, "replayed")}
    assert {(row.verdict.value, row.arithmetic, row.guarantee) for row in rows_of(run)} == kinds
    assert sum(entry["count"] for entry in found) == 8
    text = said(capsys, "verify", run, *SMALL, "--arithmetic", "exact")
    assert "unsat: proved in exact arithmetic (guarantee: checked)" in text
    assert {row.arithmetic for row in rows_of(run) if row.verdict is Verdict.UNSAT} == set(Arithmetic)


def test_a_cross_check_says_it_of_every_verifier(run, capsys):
    text = said(capsys, "cross-check", run, *SMALL)
    assert f"branch_and_bound: unsat: {FLOAT32}" in text
    assert "milp: unsat: " in text
    found = json.loads(said(capsys, "cross-check", run, *SMALL, "--json"))["properties"]
    results = [result for row in found for result in row["results"].values()]
    assert {result["guarantee"] for result in results if result["verdict"] == "unsat"} <= {"checked", "solver"}
    assert {result["guarantee"] for result in results if result["verdict"] == "sat"} == {"replayed"}


def test_lists_of_instances_say_it(run, tmp_path, capsys):
    said(capsys, "export", run, "--eps", "0.05", "--per-class", "1", "--out", tmp_path / "exported")
    listed, out = tmp_path / "exported" / "instances.csv", tmp_path / "results.csv"
    assert f"unsat: {FLOAT32}" in said(capsys, "vnncomp", "--instances", listed, "--out", out)
    rows = list(csv.DictReader(out.read_text().splitlines()))
    proofs = {(row["arithmetic"], row["guarantee"]) for row in rows if row["verdict"] == "unsat"}
    assert proofs == {("float32", "checked")}


@pytest.mark.parametrize(
    ("results", "expected"),
    [
        ([], (Verdict.UNSAT, Arithmetic.FLOAT32, Guarantee.CHECKED)),
        ([("float32", "checked"), ("exact", "tool"), ("float32", "solver")], (Verdict.UNSAT, "exact", "tool")),
        ([("float32", "solver"), ("float32", "checked")], (Verdict.UNSAT, "float32", "solver")),
    ],
)
def test_an_instance_has_the_weakest_guarantee_of_its_boxes(results, expected):
    boxes = [
        Result(Verdict.UNSAT, 0.1, arithmetic=Arithmetic(arithmetic), guarantee=Guarantee(guarantee))
        for arithmetic, guarantee in results
    ]
    decided = combine(boxes)
    assert (decided.verdict, decided.arithmetic, decided.guarantee) == expected


def test_an_error_of_one_box_is_tried_again_though_another_is_unknown():
    unknown = Result(Verdict.UNKNOWN, 0.1, reason=Reason.ZERO_MARGIN)
    decided = combine([unknown, Result(Verdict.ERROR, 0.1, reason="boom"), unknown])
    assert (decided.verdict, decided.reason) == (Verdict.ERROR, "boom")
    assert combine([unknown]).reason == "the smallest margin is zero to within rounding"
