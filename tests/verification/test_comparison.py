"""The arithmetic of ``benchmarks/against_peers.py``: sums, means and contradictions, computed by hand."""

from __future__ import annotations

import pytest

from comparison import Comparison, Measurement, markdown, read_recorded

OURS = [
    Measurement("unsat", 1.0),
    Measurement("sat", 2.0),
    Measurement("timeout", 60.0),
    Measurement("unsat", 0.5),
    Measurement("unknown", 3.0),
]
THEIRS = [
    Measurement("unsat", 2.0),
    Measurement("sat", 16.0),
    Measurement("unsat", 5.0),
    Measurement("timeout", 61.0),
    Measurement("error", 0.1),
]


def test_times_are_compared_on_what_both_decide():
    comparison = Comparison("set", "peer", OURS, THEIRS)
    assert comparison.both == [0, 1]
    assert comparison.totals == (3.0, 18.0)
    assert comparison.total_ratio == 6.0
    assert comparison.geometric_mean == pytest.approx(4.0)  # √(2 · 8)
    assert comparison.contradictions == []


def test_a_proof_beside_a_counterexample_is_a_contradiction():
    theirs = [Measurement("sat", 1.0), Measurement("sat", 1.0), *THEIRS[2:]]
    assert Comparison("set", "peer", OURS, theirs).contradictions == [0]


def test_nothing_in_common_has_no_ratio():
    comparison = Comparison("set", "peer", OURS[2:3], THEIRS[2:3])
    assert (comparison.both, comparison.total_ratio, comparison.geometric_mean) == ([], None, None)
    assert markdown([comparison]).splitlines()[-1] == "| set | 1 | 0 | peer | 1 | 0 | 0.00 | 0.00 | – | – | none |"


def test_a_time_of_zero_counts_as_a_millisecond():
    comparison = Comparison("set", "peer", [Measurement("unsat", 0.0)], [Measurement("unsat", 0.01)])
    assert comparison.total_ratio == pytest.approx(10)


def test_the_sets_must_have_the_same_size():
    with pytest.raises(ValueError, match="5 measurements of ours, 4 of peer"):
        Comparison("set", "peer", OURS, THEIRS[:4])


def test_the_table_has_one_row_per_set_and_peer():
    lines = markdown([Comparison("M1", "peer", OURS, THEIRS), Comparison("M3", "other", OURS, OURS)]).splitlines()
    assert len(lines) == 4
    assert len({line.count("|") for line in lines}) == 1
    assert lines[2] == "| M1 | 5 | 3 | peer | 3 | 2 | 3.00 | 18.00 | 6.0× | 4.0× | none |"
    assert lines[3] == "| M3 | 5 | 3 | other | 3 | 3 | 3.50 | 3.50 | 1.0× | 1.0× | none |"


def test_what_was_recorded_past_the_time_out_is_a_time_out(tmp_path):
    path = tmp_path / "recorded.csv"
    path.write_text("index,verdict,seconds,domains\n0,unsat,2.5,0\n1,sat,31,4\n2,timeout,61.2,9\n")
    assert read_recorded(path, timeout=60.0)[:2] == [Measurement("unsat", 2.5), Measurement("sat", 31.0)]
    assert [row.verdict for row in read_recorded(path, timeout=30.0)] == ["unsat", "timeout", "timeout"]
