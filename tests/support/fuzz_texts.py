"""VNN-LIB texts, and random mutations of their bytes, words, brackets or meaning."""

from __future__ import annotations

import random

from steadynet.errors import UserError
from steadynet.interchange.vnnlib.s_expressions import Expression, parse_expressions

VERSION1_HEAD = """
; VNN-LIB 1.0
(declare-const X_0 Real) (declare-const X_1 Real)
(declare-const Y_0 Real) (declare-const Y_1 Real) (declare-const Y_2 Real)
(assert (<= X_0 0.5)) (assert (>= X_0 -0.5))
"""
VERSION1_TEXTS = tuple(
    VERSION1_HEAD + assertions
    for assertions in (
        "(assert (<= X_1 1.25)) (assert (>= X_1 0)) (assert (<= Y_0 Y_1)) (assert (>= (+ (* 2 Y_1) 3) (- Y_0 1)))",
        "(assert (or (and (<= X_1 2) (>= X_1 1.5) (<= Y_0 Y_1)) (and (>= X_1 -1) (<= X_1 0.25) (<= Y_2 -0.5))))",
        "(assert (and (<= X_1 1e0) (>= (* 4 X_1) 1))) (assert (or (>= Y_1 Y_0) (>= Y_2 Y_0))) (assert (<= (- Y_2) 3))",
    )
)
VERSION2_HEAD = """(vnnlib-version <2.0>) ; VNN-LIB 2.0
(declare-network N (declare-input X float32 [1,2]) (declare-output Y float32 [3]))
(assert (<= X[0,0] 0.5)) (assert (>= X[0,0] -0.5))
"""
VERSION2_TEXTS = (
    VERSION2_HEAD
    + "(assert (< X[0,1] 1.25)) (assert (> X[0,1] 0.0)) (assert (< Y[0] Y[1])) (assert (>= (* 2.0 Y[1]) Y[2]))",
    VERSION2_HEAD
    + "(assert (or (and (== X [0, 1] 2.0) (!= Y[0] Y[1])) (and (>= X[0,1] -1.0) (<= X[0,1] 0.25) (<= Y[2] -0.5))))",
    VERSION2_HEAD.replace("float32", "real")
    + "(assert (and (<= X[0,1] 1.0) (>= (* 4.0 X[0,1]) 1.0) (== (+ Y[0] Y[1]) 1.5)))",
)
WORDS = [*'()[]<>;*+-_"\n', "", "0", "1", "-1", "0.25", "1e5", "1e999", "nan", "99999999999", "and", "or", "<=", ">="]
WORDS += ["<", ">", "==", "!=", "X_0", "Y_1", "Y_01", "X[0,1]", "Y[2]", "Y", "[]", "assert", "(assert (or", "Real", "é"]


def mutate_bytes(content: bytes, rng: random.Random) -> bytes:
    """Flip, set, delete, double or move a few bytes, or delete the rest."""
    result = bytearray(content)
    for _ in range(rng.choice([1, 1, 2, 4])):
        place, length = rng.randrange(len(result) + 1), rng.choice([1, 1, 2, 8, 40])
        part = result[place : place + length]
        match rng.randrange(6):
            case 0 if part:
                result[place] ^= 1 << rng.randrange(8)
            case 1 if part:
                result[place] = rng.choice([0, 1, 9, 127, 128, 255, rng.randrange(256)])
            case 2:
                del result[place : place + length]
            case 3:
                result[place:place] = part
            case 4:
                other = rng.randrange(len(result) + 1)
                result[other:other] = part
            case 5 if rng.random() < 0.3:
                del result[place:]
    return bytes(result)


def mutate_words(text: str, rng: random.Random) -> str:
    """Insert words at random places, or replace what stands there."""
    for _ in range(rng.choice([1, 1, 2, 3])):
        place = rng.randrange(len(text) + 1)
        text = text[:place] + rng.choice(WORDS) + text[place + rng.choice([0, 0, 1, 3, 6]) :]
    return text


def mutate_tree(text: str, rng: random.Random) -> str:
    """Delete, double, move, wrap or replace parts of the expressions; brackets still match."""
    tree = parse_expressions(text)
    for _ in range(rng.choice([1, 1, 2, 3, 5])):
        lists = [part for part in _parts(tree) if isinstance(part, list) and part]
        if not lists:
            break
        one, other = rng.choice(lists), rng.choice(lists)
        place, source = rng.randrange(len(one)), rng.choice(other)
        match rng.randrange(6):
            case 0:
                del one[place]
            case 1:
                one.insert(place, one[place])
            case 2:
                one[place] = _copy(source)
            case 3:
                one[place] = [rng.choice(["and", "or", "-", "+", "assert"]), one[place]]
            case 4:
                one[place] = ["*", rng.choice(["2", "-0.5", "0.0"]), one[place]]
            case 5:
                one[place] = rng.choice(WORDS[12:])
        try:
            tree = parse_expressions(" ".join(map(_text, tree)))
        except UserError:
            break
    return " ".join(map(_text, tree))


def mutate_meaning(text: str, rng: random.Random) -> str:
    """Replace numbers, variables, comparisons, terms and formulas; most results are still a property."""
    tree = parse_expressions(text)
    variables = [leaf for leaf in _parts(tree[-4:]) if isinstance(leaf, str) and leaf[0] in "XY"]
    comparisons = ["<=", ">="] if "vnnlib-version" not in text else ["<=", ">=", "<", ">", "==", "!="]
    for _ in range(rng.choice([1, 2, 3, 5, 8])):
        found = [part for part in _parts(tree) if isinstance(part, list) and part[0] in (*comparisons, "and", "or")]
        formula, other, way = rng.choice(found), _copy(rng.choice(found)), rng.randrange(8)
        if way == 0:
            tree.append(["assert", _copy(formula)])
        elif formula[0] in ("and", "or"):
            formula[:] = [rng.choice(["and", "or"]), *rng.sample(formula[1:], len(formula) - 1), *[other][: way % 2]]
        elif way == 1:
            formula[:] = [rng.choice(["and", "or"]), _copy(formula), other]
        elif way == 2:
            formula[:] = [rng.choice(comparisons), *formula[:0:-1]]
        else:
            side = rng.choice([1, 2])
            formula[side] = _other_term(formula[side], variables, rng)
    return " ".join(map(_text, tree))


def _other_term(term: Expression, variables: list[str], rng: random.Random) -> Expression:
    match rng.randrange(4):
        case 0:
            return [rng.choice("+-"), term, rng.choice(["0.25", "-1.0", *variables])]
        case 1:
            return ["-", term]
        case 2:
            return ["*", rng.choice(["2.0", "-0.5"]), term]
    return rng.choice(["0.0", "0.75", "-2.0", "0.1", *variables])


def _copy(tree: Expression) -> Expression:
    return tree if isinstance(tree, str) else [_copy(part) for part in tree]


def _text(tree: Expression) -> str:
    return tree if isinstance(tree, str) else "(" + " ".join(map(_text, tree)) + ")"


def _parts(tree: Expression) -> list[Expression]:
    return [tree, *(part for child in tree for part in _parts(child))] if isinstance(tree, list) else [tree]
