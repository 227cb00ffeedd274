"""The page that says which method to use: its generated part says what the table holds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reports import experiment, row
from steadynet.report.layout import tables_of

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "figures"))
from which_method import BEGIN, END, PAGE, results, with_results


def test_the_summary_by_hand():
    rows = []
    numbers = {
        "natural": (99.9, 0.0, None),
        "rs": (98.0, 90.0, 0.5),
        "nbc": (98.5, 88.0, 0.1),
        "ibp": (97.0, 80.0, 0.2),
    }
    for method, (accuracy, proved, seconds) in numbers.items():
        rows += [row(method, "test_acc_percent", accuracy, eps=None), row(method, "unsat_percent", proved)]
        rows += [row(method, "time_unsat_timeout_s", seconds)]
    (table,) = tables_of(experiment(rows))
    text = results(table, with_figure=True)
    assert text.splitlines()[2:12] == [
        "| you want | M1, ε 0.1 |",
        "|---|---|",
        "| as many proofs as possible, at most 1 point below the best accuracy with proofs "
        "| `rs`: 98.0 %, 90.0 %, 0.500 s |",
        "| as many proofs as possible | `rs`: 98.0 %, 90.0 %, 0.500 s |",
        "| a balance: the largest sum of accuracy and proofs | `rs`: 98.0 %, 90.0 %, 0.500 s |",
        "| fast proofs, at most 5 points below the most proofs | `nbc`: 98.5 %, 88.0 %, 0.100 s |",
        "| the largest sum without certified training | `rs`: 98.0 %, 90.0 %, 0.500 s |",
        "| NBC alone | `nbc`: 98.5 %, 88.0 %, 0.100 s |",
        "| the best method with NBC added | – |",
        "",
    ]
    assert "- **M1, ε 0.1**, not beaten: `natural`, `rs`, `nbc`." in text
    assert "(figures/methods-pareto.png)" in text
    assert "### The table" in text
    assert "#### M1" in text


def test_it_replaces_what_stands_between_the_marks():
    page = PAGE.read_text(encoding="utf-8")
    once = with_results(page, "FIRST")
    assert with_results(once, "SECOND").count("SECOND") == 1
    assert "FIRST" not in with_results(once, "SECOND")
    assert with_results(once, "SECOND").partition(BEGIN)[0] == page.partition(BEGIN)[0]
    assert with_results(once, "SECOND").partition(END)[2] == page.partition(END)[2]
    with pytest.raises(SystemExit, match="has no marks"):
        with_results("nothing", "text")
