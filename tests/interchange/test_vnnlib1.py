"""VNN-LIB 1.0, against the format, numbers worked out by hand, and files of the competition."""

import contextlib
import gzip

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from places import SHARED
from steadynet.errors import UserError
from steadynet.interchange.vnnlib.files import read_vnnlib, write_vnnlib
from steadynet.interchange.vnnlib.property import VnnlibProperty
from steadynet.interchange.vnnlib.s_expressions import parse_expressions
from steadynet.interchange.vnnlib.version1 import format_vnnlib1, parse_vnnlib1
from vnnlib_properties import same, vnnlib_properties

PROPERTIES = SHARED / "vnncomp" / "vnnlib"

SMALL = """
; two inputs, two outputs
(declare-const X_0 Real) (declare-const X_1 Real)
(declare-const Y_0 Real) (declare-const Y_1 Real)
(assert (<= X_0 0.5)) (assert (>= X_0 -0.5))
(assert (and (<= X_1 1e-1) (>= X_1 0)))
"""


def test_bounds_and_constraints_by_hand():
    (disjunct,) = parse_vnnlib1(SMALL + "(assert (<= Y_0 Y_1)) (assert (>= (+ (* 2 Y_1) 3) (- Y_0 1)))").disjuncts
    assert disjunct.lower.tolist() == [-0.5, 0.0]
    assert disjunct.upper.tolist() == [0.5, 0.1]
    assert disjunct.matrix.tolist() == [[1, -1], [1, -2]]  # Y_0 − Y_1 ≤ 0 and Y_0 − 2·Y_1 ≤ 4
    assert disjunct.bound.tolist() == [0, 4]
    assert disjunct.satisfied_by(np.array([0.0, 0.05]), np.array([1.0, 1.0]))
    assert not disjunct.satisfied_by(np.array([0.0, 0.2]), np.array([1.0, 1.0]))
    assert not disjunct.satisfied_by(np.array([0.0, 0.05]), np.array([1.5, 1.0]))


def test_or_makes_disjuncts_and_assertions_multiply_them():
    text = SMALL + "(assert (or (<= Y_0 0) (and (>= Y_0 1) (>= Y_1 2)))) (assert (or (<= Y_1 5) (<= X_0 0)))"
    disjuncts = parse_vnnlib1(text).disjuncts
    assert [len(disjunct.bound) for disjunct in disjuncts] == [2, 1, 3, 2]
    assert [disjunct.upper[0] for disjunct in disjuncts] == [0.5, 0.0, 0.5, 0.0]


def test_the_tightest_of_several_bounds_counts():
    (disjunct,) = parse_vnnlib1(SMALL + "(assert (<= X_0 0.25)) (assert (<= X_0 0.75)) (assert (<= Y_0 1))").disjuncts
    assert disjunct.upper[0] == 0.25


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "from X_0 on"),
        ("(assert", "never closed"),
        (")", "never opened"),
        ("(" * 100, "nested deeper"),
        ("(declare-const X_1 Real) (declare-const Y_0 Real)", "without gaps"),
        ("(declare-fun f () Real)", "not a statement"),
        ("(declare-const Z_0 Real)", "neither a number nor a variable"),
        (SMALL + "(assert (= Y_0 Y_1))", "not a formula"),
        (SMALL + "(assert (<= (* Y_0 Y_1) 1))", "not linear"),
        (SMALL + "(assert (<= (+ X_0 X_1) 1))", "only bounds of single inputs"),
        (SMALL + "(assert (<= X_0 Y_0))", "only bounds of single inputs"),
        (SMALL + "(assert (<= 1 2))", "without a variable"),
        (SMALL + "(assert (<= Y_2 2))", "before it is declared"),
        (SMALL + "(assert (<= Y_0 1e999))", "too large"),
        (SMALL + "(assert (<= Y_0 nan))", "neither a number nor a variable"),
        ("(declare-const X_0 Real) (declare-const Y_0 Real) (assert (<= X_0 1))", "no lower or no upper bound"),
        (SMALL + "(assert (or (<= Y_0 0) (<= Y_0 1) (<= Y_0 2)))" * 12, "more than 10000 disjuncts"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(text, reason):
    with pytest.raises(UserError, match=reason) as caught:
        parse_vnnlib1(text)
    assert "\n" not in str(caught.value)


def test_a_missing_a_broken_and_a_packed_file(tmp_path):
    with pytest.raises(UserError, match="No such file"):
        read_vnnlib(tmp_path / "none.vnnlib")
    (tmp_path / "bytes.vnnlib").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "no.vnnlib.gz").write_bytes(b"not gzip")
    for name in ("bytes.vnnlib", "no.vnnlib.gz"):
        with pytest.raises(UserError, match="cannot read"):
            read_vnnlib(tmp_path / name)
    (tmp_path / "yes.vnnlib.gz").write_bytes(gzip.compress((SMALL + "(assert (<= Y_0 0))").encode()))
    assert read_vnnlib(tmp_path / "yes.vnnlib.gz").input_size == 2


def test_two_spellings_of_a_variable_are_one():
    (disjunct,) = parse_vnnlib1(SMALL + "(assert (<= (+ Y_1 Y_01 (* 2 3 Y_0)) 1))").disjuncts
    assert disjunct.matrix.tolist() == [[6, 2]]


@given(vnnlib_properties())
def test_what_is_written_is_read_back_to_the_last_digit(vnnlib_property):
    assert same(parse_vnnlib1(format_vnnlib1(vnnlib_property)), vnnlib_property)


def test_a_file_is_written_whole(tmp_path):
    (disjunct,) = parse_vnnlib1(SMALL + "(assert (<= Y_0 Y_1))").disjuncts
    write_vnnlib(tmp_path / "property.vnnlib", VnnlibProperty(2, 2, (disjunct,)))
    assert read_vnnlib(tmp_path / "property.vnnlib").disjuncts[0].upper.tolist() == disjunct.upper.tolist()
    assert [path.name for path in tmp_path.iterdir()] == ["property.vnnlib"]


WORDS = ["(", ")", "assert", "and", "or", "<=", ">=", "X_0", "Y_0", "1", "-", "*", "+", "declare-const", "Real"]


@settings(max_examples=400)
@given(st.lists(st.sampled_from(WORDS)))
def test_words_in_any_order_are_read_or_refused(words):
    with contextlib.suppress(UserError):
        assert parse_vnnlib1(" ".join(words)).disjuncts


@settings(max_examples=300)
@given(st.integers(0, len(SMALL) - 1), st.characters())
def test_a_changed_character_is_read_or_refused(place, character):
    with contextlib.suppress(UserError):
        assert parse_vnnlib1(SMALL[:place] + character + SMALL[place + 1 :] + "(assert (<= Y_0 Y_1))").disjuncts


@pytest.mark.skipif(not PROPERTIES.is_dir(), reason="the competition's files are not beside this checkout")
@pytest.mark.parametrize(
    ("name", "inputs", "disjuncts", "constraints"),
    [
        ("mnistfc_prop_0_0.05", 784, 9, 1),
        ("resnet2b_prop_2_eps_0.008", 3072, 9, 1),
        ("cifar10_small_index1189_eps0.012_target1_orig0", 3072, 1, 9),
        ("cifar_base_kw-img2908-eps0.019869281045751634", 3072, 9, 1),
    ],
)
def test_the_competitions_files(name, inputs, disjuncts, constraints):
    found = read_vnnlib(PROPERTIES / f"{name}.vnnlib")
    assert (found.input_size, found.output_size, len(found.disjuncts)) == (inputs, 10, disjuncts)
    for disjunct in found.disjuncts:
        assert disjunct.matrix.shape == (constraints, 10)
        assert np.all(disjunct.lower <= disjunct.upper)
        assert np.all(np.sort(disjunct.matrix, 1)[:, [0, -1]] == [-1, 1])  # each compares two outputs


@pytest.mark.parametrize("end", ["\n", "\r", "\r\n"])
def test_every_end_of_a_line_ends_a_comment(end):
    assert parse_expressions(f"(or a ; comment{end} b) ; end") == [["or", "a", "b"]]
