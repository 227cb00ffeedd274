"""The outcomes of the paper's claims, on tables whose outcome is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reports import experiment, of_the_paper, row
from steadynet.experiments.grid import names
from steadynet.experiments.paper_numbers import paper_numbers
from steadynet.experiments.table import MISSED
from steadynet.report.claims import Outcome
from steadynet.report.layout import tables_of
from steadynet.report.paper_claims import claims_of

OF_THE_PAPER = [name for name in names() if paper_numbers(name)]


def judge(made):
    return {claim.name: claim for claim in claims_of(tables_of(made))}


@pytest.mark.parametrize("name", OF_THE_PAPER)
def test_the_papers_own_numbers_bear_out_its_claims(name):
    (claim,) = judge(of_the_paper(name)).values()
    assert claim.paper_outcome == Outcome.HOLDS
    assert [part.outcome for part in claim.parts if part.outcome != Outcome.HOLDS] == []
    assert all(part.comparisons for part in claim.parts)


@pytest.mark.parametrize("name", OF_THE_PAPER)
def test_numbers_turned_around_refute_them(name):
    (claim,) = judge(of_the_paper(name, lambda row: replace(row, value=-row.value))).values()
    assert (claim.outcome, claim.paper_outcome) == (Outcome.DOES_NOT_HOLD, Outcome.HOLDS)


@pytest.mark.parametrize("name", OF_THE_PAPER)
def test_few_properties_are_not_enough(name):
    (claim,) = judge(of_the_paper(name, tasks=20)).values()
    assert claim.outcome == Outcome.NOT_ENOUGH_DATA
    assert "only 20 properties per network, at least 50 are needed; so far as claimed in" in claim.parts[0].reason


def rq1(nbc, other, counts=(None, None), methods=("trades", "madry", "rs")):
    rows = [row("nbc", "unsat_percent", nbc, numerator=counts[0])]
    rows += [row(method, "unsat_percent", other, numerator=counts[1]) for method in methods]
    return judge(experiment(rows))["RQ1"].parts[0]


def test_a_missing_baseline_is_named():
    part = rq1(90.0, 10.0, methods=("trades", "rs"))
    assert part.outcome == Outcome.NOT_ENOUGH_DATA
    assert "no numbers for madry yet; so far as claimed in 2 of 2" in part.reason


def test_a_missing_number_is_counted():
    rows = [row("nbc", "unsat_percent", 50.0)]
    rows += [row(method, "unsat_percent", None if method == "rs" else 1.0) for method in ("trades", "madry", "rs")]
    part = judge(experiment(rows))["RQ1"].parts[0]
    assert (part.outcome, part.reason[:32]) == (Outcome.NOT_ENOUGH_DATA, "1 of 3 comparisons lack a number")


def test_a_difference_within_chance_is_no_evidence():
    assert rq1(50.2, 50.0, (502, 500)).outcome == Outcome.NOT_ENOUGH_DATA
    assert "may be chance" in rq1(50.2, 50.0, (502, 500)).reason
    assert rq1(60.0, 50.0, (600, 500)).outcome == Outcome.HOLDS
    assert rq1(40.0, 50.0, (400, 500)).outcome == Outcome.DOES_NOT_HOLD


@pytest.mark.parametrize(
    ("difference", "outcome"),
    [(1.0, Outcome.NOT_ENOUGH_DATA), (10.0, Outcome.HOLDS), (-10.0, Outcome.DOES_NOT_HOLD)],
)
def test_a_difference_in_a_table_of_differences_may_be_chance_too(difference, outcome):
    """1,000 properties for each of three methods: 1.96 · sqrt(0.5 / 3000) is 2.5 points."""
    methods = ("trades+nbc", "madry+nbc", "rs+nbc")
    rows = [row(method, "unsat_percent_delta", difference, denominator=None) for method in methods]
    rows += [row(method, "unsat_percent", 50.0) for method in methods]
    part = judge(experiment(rows))["RQ2"].parts[0]
    assert part.outcome == outcome
    assert ("may be chance" in part.reason) == (outcome == Outcome.NOT_ENOUGH_DATA)


def test_the_comparisons_are_there():
    part = rq1(60.0, 50.0)
    assert part.comparisons[0].label == "M1, ε 0.1: nbc and trades"
    assert {(pair.one.value, pair.other.value) for pair in part.comparisons} == {(60.0, 50.0)}


def test_a_window_that_was_missed_is_left_out():
    def missed(row):
        gone = row.model == "C1" and row.label == "rs@1-2"
        return replace(row, value=None, note=MISSED) if gone else row

    part = judge(of_the_paper("rq3-cifar10", missed))["RQ3"].parts[0]
    assert part.outcome == Outcome.HOLDS
    assert not any("C1" in pair.label and "rs@1-2" in pair.label for pair in part.comparisons)


def test_runs_without_a_claim_have_none():
    assert judge(experiment([row("natural", "unsat_percent", 1.0), row("nbc", "unsat_percent", 2.0)])) == {}
