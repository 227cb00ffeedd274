"""VNN-LIB 2.0, against texts written by hand, the standard's parser, and the same property in version 1.0."""

from __future__ import annotations

import contextlib
import gzip
import subprocess
import sys
import time

import numpy as np
import pytest
import vnnlib
import vnnlib.compat
from hypothesis import given, settings
from hypothesis import strategies as st

from steadynet.errors import UserError
from steadynet.interchange.vnnlib import s_expressions
from steadynet.interchange.vnnlib.files import read_vnnlib, write_vnnlib
from steadynet.interchange.vnnlib.property import Disjunct, VnnlibProperty
from steadynet.interchange.vnnlib.version1 import format_vnnlib1, parse_vnnlib1
from steadynet.interchange.vnnlib.version2 import check_with_standard_parser, format_vnnlib2, parse_vnnlib2
from vnnlib_properties import quarters, same, vnnlib_properties

VERSION = "(vnnlib-version <2.0>)"
NETWORK = "(declare-network N (declare-input X float32 [1,2]) (declare-output Y float32 [1,2]))"
HEAD = VERSION + NETWORK
BOX = HEAD + """
; two inputs, two outputs
(assert (<= X[0,0] 0.5)) (assert (>= X [0, 0] -0.5))
(assert (and (<= X[0,1] 0.1) (>= X[0,1] 0.0)))
"""  # fmt: skip


def test_bounds_and_constraints_by_hand():
    text = BOX + "(assert (<= Y[0,0] Y[0,1])) (assert (>= (+ (* 2.0 Y[0,1]) 3.0) (- Y[0,0] 1.0)))"
    vnnlib.parse_query_string(text)
    (disjunct,) = parse_vnnlib2(text).disjuncts
    assert (disjunct.lower.tolist(), disjunct.upper.tolist()) == ([-0.5, 0.0], [0.5, 0.1])
    assert (disjunct.matrix.tolist(), disjunct.bound.tolist()) == ([[1, -1], [1, -2]], [0, 4])
    assert disjunct.strict == frozenset()


def test_strict_constraints_stay_strict():
    (disjunct,) = parse_vnnlib2(BOX + "(assert (and (< Y[0,0] 1.0) (<= Y[0,1] 2.0) (> Y[0,1] 0.0)))").disjuncts
    assert disjunct.strict == {0, 2}
    inputs = np.zeros(2)
    assert disjunct.satisfied_by(inputs, np.array([0.5, 2.0]))
    for outputs in ([1.0, 1.0], [0.5, 0.0], [0.5, 2.5]):
        assert not disjunct.satisfied_by(inputs, np.array(outputs))


def test_strict_bounds_of_inputs_are_the_next_number_inside():
    below, above = (float(np.nextafter(np.float32(0.25), np.float32(to))) for to in (0, 1))
    text = "(assert (and (< X[0,0] 0.25) (> X[0,1] 0.05) (<= Y[0,0] 1.0)))"
    (disjunct,) = parse_vnnlib2(BOX + text).disjuncts
    assert disjunct.upper[0] == below
    assert disjunct.lower[1] == float(np.float32(0.05)) > 0.05  # float32's 0.05 lies above, and so inside
    (disjunct,) = parse_vnnlib2(BOX + text.replace("(< X[0,0] 0.25)", "(> (* -2.0 X[0,0]) -0.5)")).disjuncts
    assert disjunct.upper[0] == below
    (disjunct,) = parse_vnnlib2(BOX.replace("X float32", "X real") + text).disjuncts
    assert below < disjunct.upper[0] < 0.25 < above
    assert disjunct.upper[0] == np.nextafter(0.25, 0)


def test_equal_and_unequal():
    (disjunct,) = parse_vnnlib2(BOX + "(assert (== (+ Y[0,0] Y[0,1]) 1.0)) (assert (== X[0,0] 0.25))").disjuncts
    assert (disjunct.matrix.tolist(), disjunct.bound.tolist()) == ([[1, 1], [-1, -1]], [1, -1])
    assert disjunct.lower[0] == disjunct.upper[0] == 0.25
    disjuncts = parse_vnnlib2(BOX + "(assert (!= Y[0,0] 1.0))").disjuncts
    assert [disjunct.strict for disjunct in disjuncts] == [{0}, {0}]
    for value in (0.0, 1.0, 2.0):
        outputs = np.array([value, 0.0])
        assert any(disjunct.satisfied_by(np.zeros(2), outputs) for disjunct in disjuncts) == (value != 1)


def test_indices_count_row_by_row_and_names_are_free():
    text = VERSION + "(declare-network net (declare-input image_1 float32 [1,2,3]) (declare-output out float32 []))"
    places = [(i, j) for i in range(2) for j in range(3)]
    text += "".join(
        f"(assert (== image_1[0,{i},{j}] {n}.0))" for n, (i, j) in sorted(enumerate(places), reverse=True)
    ) + "(assert (<= out 1.0))"  # fmt: skip
    vnnlib.parse_query_string(text)
    found = parse_vnnlib2(text)
    assert (found.input_size, found.output_size) == (6, 1)
    assert found.disjuncts[0].lower.tolist() == [0, 1, 2, 3, 4, 5]


def test_several_boxes():
    boxes = "(assert (or (and (>= X[0,0] 0.0) (<= Y[0,0] 1.0)) (and (<= X[0,0] -0.25) (>= Y[0,0] 2.0))))"
    one, other = parse_vnnlib2(BOX + boxes).disjuncts
    assert (one.lower[0], one.upper[0], one.bound.tolist()) == (0.0, 0.5, [1])
    assert (other.lower[0], other.upper[0], other.bound.tolist()) == (-0.5, -0.25, [-2])


SECOND = "(declare-network M (declare-input Z float32 [1,2]) (declare-output W float32 [1,2]))"
HIDDEN = '(declare-hidden H float32 [3] "relu;1(")'


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "begins with"),
        (VERSION, "begins with"),
        (NETWORK, "begins with"),
        (HEAD.replace("2.0", "3.0"), "VNN-LIB 3.0 is not known"),
        (HEAD + SECOND, "several networks"),
        (HEAD.replace("N (", "N (equal-to M) ("), "several networks"),
        (HEAD.replace("(declare-output", HIDDEN + "(declare-output"), "hidden neurons"),
        (HEAD.replace("(declare-output", "(declare-input Z float32 [2]) (declare-output"), "several inputs"),
        (HEAD.replace("[1,2])", "[1,2] initialized)", 1), "not one input and one output"),
        (HEAD.replace("X float32", "X int8"), "only float32, float64 and real"),
        (HEAD.replace("X float32", "X float16"), "only float32, float64 and real"),
        (HEAD.replace("[1,2]", "[0,2]"), "empty or too large"),
        (HEAD.replace("[1,2]", "[99999,99999]"), "empty or too large"),
        (HEAD.replace("[1,2]", "[1,,2]"), "not a list of indices"),
        (HEAD.replace("Y", "X"), "declared twice"),
        (HEAD, "has no lower or no upper bound"),
        (BOX + "(assert (<= Y[0] 1.0))", "outside of Y"),
        (BOX + "(assert (<= Y[0,2] 1.0))", "outside of Y"),
        (BOX + "(assert (<= Y 1.0))", "outside of Y"),
        (BOX + "(assert (<= Y[] 1.0))", "no index"),
        (BOX + "(assert (<= Y[0,-1] 1.0))", "not a formula"),
        (BOX + "(assert (<= Z[0,1] 1.0))", "neither a number nor an element of X or Y"),
        (BOX + "(assert (<= (* Y[0,0] Y[0,1]) 1.0))", "not linear"),
        (BOX + "(assert (<= (+ X[0,0] X[0,1]) 1.0))", "only bounds of single inputs"),
        (BOX + "(assert (<= X[0,0] Y[0,1]))", "only bounds of single inputs"),
        (BOX + "(assert (<= 1.0 2.0))", "without a variable"),
        (BOX + "(assert (=> (<= Y[0,0] 1.0) (<= Y[0,0] 1.0)))", "not a formula of and, or, <="),
        (BOX + f"(assert (> X[0,0] 1{'0' * 300}.0))", "too large"),
        (BOX + "(declare-const X_0 Real)", "not an assertion"),
        (BOX + "(assert (!= Y[0,0] 1.0))" * 14, "more than 10000 disjuncts"),
        (VERSION + "(" * 100_000, "nested deeper"),
    ],
)
def test_what_is_wrong_or_beyond_us_is_said_in_a_line(text, reason):
    with pytest.raises(UserError, match=reason) as caught:
        parse_vnnlib2(text)
    assert "\n" not in str(caught.value)


@given(vnnlib_properties(strict=True))
def test_what_is_written_is_read_back_and_passes_the_standards_parser(vnnlib_property):
    text = format_vnnlib2(vnnlib_property)
    vnnlib.parse_query_string(text)
    assert same(parse_vnnlib2(text), vnnlib_property)


@given(vnnlib_properties())
def test_the_versions_say_the_same(vnnlib_property):
    read = parse_vnnlib1(format_vnnlib1(vnnlib_property))
    assert same(parse_vnnlib2(format_vnnlib2(read, (1, 1, read.input_size), (read.output_size,))), vnnlib_property)


@given(vnnlib_properties(values=quarters))
def test_the_standards_own_reading_is_ours(vnnlib_property):
    text = format_vnnlib2(vnnlib_property)
    theirs = vnnlib.compat.transform(vnnlib.parse_query_string(text))
    ours = {
        (tuple(zip(disjunct.lower, disjunct.upper, strict=True)), _rows(disjunct.matrix, disjunct.bound))
        for disjunct in parse_vnnlib2(text).disjuncts
    }
    found = {
        (tuple(map(tuple, box.input_box)), _rows(np.array(part.coeff_matrix), np.array(part.rhs)))
        for box in theirs
        for part in box.output_constraints or [None]
    }
    assert found == ours


def _rows(matrix, bound):
    return tuple(sorted((*row, end) for row, end in zip(matrix.tolist(), bound.tolist(), strict=True)))


@pytest.mark.parametrize("name", ["p.vnnlib", "p.vnnlib.gz"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_files_of_either_version_packed_or_not(tmp_path, name, version):
    vnnlib_property = parse_vnnlib2(BOX + "(assert (or (<= Y[0,0] 1.0) (>= Y[0,1] 0.00001)))")
    write_vnnlib(tmp_path / name, vnnlib_property, version=version)
    content = (tmp_path / name).read_bytes()
    text = (gzip.decompress(content) if name.endswith(".gz") else content).decode()
    assert ("vnnlib-version <2.0>" in text) == (version == "2.0")
    assert same(read_vnnlib(tmp_path / name), vnnlib_property)
    (tmp_path / "commented.vnnlib").write_text("; (assert\n" + text)
    assert same(read_vnnlib(tmp_path / "commented.vnnlib"), vnnlib_property)


def _one(lower=0.0, weight=1.0, bound=1.0, strict=()):
    one = np.array([lower])
    return VnnlibProperty(1, 1, (Disjunct(one, one, np.array([[weight]]), np.array([bound]), frozenset(strict)),))


@pytest.mark.parametrize(
    ("vnnlib_property", "options", "reason"),
    [
        (_one(), {"version": "2.1"}, "no VNN-LIB 2.1"),
        (_one(), {"version": "2.0", "input_shape": (1, 2)}, "has 1 inputs"),
        (_one(), {"version": "2.0", "output_shape": (-1, -1)}, "has 1 outputs"),
        (_one(strict={0}), {}, "no strict"),
        (_one(bound=np.inf), {"version": "2.0"}, "not finite"),
        (_one(lower=np.nan), {}, "not finite"),
        (_one(weight=0.0), {}, "without a variable"),
        (VnnlibProperty(1, 1, ()), {}, "without disjuncts"),
        (_one(bound=5e-324), {"version": "2.0"}, "standard's parser rejects"),
    ],
)
def test_what_cannot_be_written_leaves_no_file(tmp_path, vnnlib_property, options, reason):
    with pytest.raises(UserError, match=reason):
        write_vnnlib(tmp_path / "p.vnnlib", vnnlib_property, **options)
    assert not list(tmp_path.iterdir())


def test_without_the_standards_parser_there_is_no_check(monkeypatch):
    with pytest.raises(UserError, match="rejects"):
        check_with_standard_parser("(nonsense)")
    monkeypatch.setitem(sys.modules, "vnnlib", None)
    check_with_standard_parser("(nonsense)")


def test_reading_does_not_load_the_standards_parser():
    lines = "import sys, steadynet.interchange.vnnlib.files; sys.exit('vnnlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", lines], check=False).returncode == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (HEAD.replace("[1,2]", "[3000,3000]"), "no lower or no upper bound"),
        (BOX.replace("Y float32 [1,2]", "Y float32 [9999999]") + "(assert (<= Y[0] 1.0))" * 20, "too large"),
        (BOX + f"(assert (or {'(and (<= X[0,0] 1.0) (<= Y[0,0] 1.0))' * 10_001}))", "more than 10000 disjuncts"),
        ("X[ " * 100_000, "begins with"),
        ('"' + "a " * 100_000, "begins with"),
    ],
)
def test_a_short_text_is_refused_shortly(text, reason):
    start = time.perf_counter()
    with pytest.raises(UserError, match=reason):
        parse_vnnlib2(text)
    assert time.perf_counter() - start < 10


def test_too_many_words_are_refused(monkeypatch):
    monkeypatch.setattr(s_expressions, "MAX_TOKENS", 100)
    with pytest.raises(UserError, match="more than 100 words"):
        parse_vnnlib2(BOX + ";\n" * 100)


def test_a_thousand_bounds_in_one_and_are_read_at_once():
    size = 20_000
    bounds = " ".join(f"(<= X[{i}] 1.0) (>= X[{i}] 0.0)" for i in range(size))
    text = HEAD.replace("X float32 [1,2]", f"X float32 [{size}]")
    assert len(parse_vnnlib2(text + f"(assert (and {bounds} (<= Y[0,0] 1.0)))").disjuncts) == 1


WORDS = [*"()<>*+-[]", "assert", "and", "or", "<=", "==", "!=", "X[0,0]", "Y[0,1]", "Y", "[0]", "1.0", BOX, '"', ";"]


@settings(max_examples=300)
@given(st.lists(st.sampled_from(WORDS)))
def test_words_in_any_order_are_read_or_refused(words):
    with contextlib.suppress(UserError):
        assert parse_vnnlib2(BOX + " ".join(words)).disjuncts


@settings(max_examples=300)
@given(st.integers(0, len(BOX) - 1), st.characters())
def test_a_changed_character_is_read_or_refused(place, character):
    with contextlib.suppress(UserError):
        assert parse_vnnlib2(BOX[:place] + character + BOX[place + 1 :] + "(assert (<= Y[0,0] Y[0,1]))").disjuncts
