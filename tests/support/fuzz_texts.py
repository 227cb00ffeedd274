"""VNN-LIB texts, and how to change bytes, words, brackets or meaning of them by chance."""

from __future__ import annotations

import random

from steadynet.errors import UserError
from steadynet.interchange.vnnlib.s_expressions import Expression, parse_expressions

ONE = """
; VNN-LIB 1.0
(declare-const X_0 Real) (declare-const X_1 Real)
(declare-const Y_0 Real) (declare-const Y_1 Real) (declare-const Y_2 Real)
(assert (<= X_0 0.5)) (assert (>= X_0 -0.5))
"""
ONES = (
    ONE + "(assert (<= X_1 1.25)) (assert (>= X_1 0)) (assert (<= Y_0 Y_1)) (assert (>= (+ (* 2 Y_1) 3) (- Y_0 1)))",
    ONE + "(assert (or (and (<= X_1 2) (>= X_1 1.5) (<= Y_0 Y_1)) (and (>= X_1 -1) (<= X_1 0.25) (<= Y_2 -0.5))))",
    ONE
    + "(assert (and (<= X_1 1e0) (>= (* 4 X_1) 1))) (assert (or (>= Y_1 Y_0) (>= Y_2 Y_0))) (assert (<= (- Y_2) 3))",
)
TWO = """(vnnlib-version <2.0>) ; VNN-LIB 2.0
(declare-network N (declare-input X float32 [1,2]) (declare-output Y float32 [3]))
(assert (<= X[0,0] 0.5)) (assert (>= X[0,0] -0.5))
"""
TWOS = (
    TWO + "(assert (< X[0,1] 1.25)) (assert (> X[0,1] 0.0)) (assert (< Y[0] Y[1])) (assert (>= (* 2.0 Y[1]) Y[2]))",
    TWO + "(assert (or (and (== X [0, 1] 2.0) (!= Y[0] Y[1])) (and (>= X[0,1] -1.0) (<= X[0,1] 0.25) (<= Y[2] -0.5))))",
    TWO.replace("float32", "real") + "(assert (and (<= X[0,1] 1.0) (>= (* 4.0 X[0,1]) 1.0) (== (+ Y[0] Y[1]) 1.5)))",
)
WORDS = [*'()[]<>;*+-_"\n', "", "0", "1", "-1", "0.25", "1e5", "1e999", "nan", "99999999999", "and", "or", "<=", ">="]
WORDS += ["<", ">", "==", "!=", "X_0", "Y_1", "Y_01", "X[0,1]", "Y[2]", "Y", "[]", "assert", "(assert (or", "Real", "é"]


def changed_bytes(content: bytes, dice: random.Random) -> bytes:
    """A few bytes flipped, set, lost, doubled or swapped; or the rest lost."""
    result = bytearray(content)
    for _ in range(dice.choice([1, 1, 2, 4])):
        place, length = dice.randrange(len(result) + 1), dice.choice([1, 1, 2, 8, 40])
        part = result[place : place + length]
        match dice.randrange(6):
            case 0 if part:
                result[place] ^= 1 << dice.randrange(8)
            case 1 if part:
                result[place] = dice.choice([0, 1, 9, 127, 128, 255, dice.randrange(256)])
            case 2:
                del result[place : place + length]
            case 3:
                result[place:place] = part
            case 4:
                other = dice.randrange(len(result) + 1)
                result[other:other] = part
            case 5 if dice.random() < 0.3:
                del result[place:]
    return bytes(result)


def changed_words(text: str, dice: random.Random) -> str:
    """A word put in somewhere, with or without what stood there."""
    for _ in range(dice.choice([1, 1, 2, 3])):
        place = dice.randrange(len(text) + 1)
        text = text[:place] + dice.choice(WORDS) + text[place + dice.choice([0, 0, 1, 3, 6]) :]
    return text


def changed_tree(text: str, dice: random.Random) -> str:
    """Parts of the expressions lost, doubled, moved, wrapped or replaced, so that brackets still fit."""
    tree = parse_expressions(text)
    for _ in range(dice.choice([1, 1, 2, 3, 5])):
        lists = [part for part in _parts(tree) if isinstance(part, list) and part]
        if not lists:
            break
        one, other = dice.choice(lists), dice.choice(lists)
        place, source = dice.randrange(len(one)), dice.choice(other)
        match dice.randrange(6):
            case 0:
                del one[place]
            case 1:
                one.insert(place, one[place])
            case 2:
                one[place] = _copy(source)
            case 3:
                one[place] = [dice.choice(["and", "or", "-", "+", "assert"]), one[place]]
            case 4:
                one[place] = ["*", dice.choice(["2", "-0.5", "0.0"]), one[place]]
            case 5:
                one[place] = dice.choice(WORDS[12:])
        try:
            tree = parse_expressions(" ".join(map(_text, tree)))
        except UserError:
            break
    return " ".join(map(_text, tree))


def changed_meaning(text: str, dice: random.Random) -> str:
    """Numbers, variables, comparisons, terms and formulas changed into others: mostly still a property."""
    tree = parse_expressions(text)
    variables = [leaf for leaf in _parts(tree[-4:]) if isinstance(leaf, str) and leaf[0] in "XY"]
    comparisons = ["<=", ">="] if "vnnlib-version" not in text else ["<=", ">=", "<", ">", "==", "!="]
    for _ in range(dice.choice([1, 2, 3, 5, 8])):
        found = [part for part in _parts(tree) if isinstance(part, list) and part[0] in (*comparisons, "and", "or")]
        formula, other, way = dice.choice(found), _copy(dice.choice(found)), dice.randrange(8)
        if way == 0:
            tree.append(["assert", _copy(formula)])
        elif formula[0] in ("and", "or"):
            formula[:] = [dice.choice(["and", "or"]), *dice.sample(formula[1:], len(formula) - 1), *[other][: way % 2]]
        elif way == 1:
            formula[:] = [dice.choice(["and", "or"]), _copy(formula), other]
        elif way == 2:
            formula[:] = [dice.choice(comparisons), *formula[:0:-1]]
        else:
            side = dice.choice([1, 2])
            formula[side] = _other_term(formula[side], variables, dice)
    return " ".join(map(_text, tree))


def _other_term(term: Expression, variables: list[str], dice: random.Random) -> Expression:
    match dice.randrange(4):
        case 0:
            return [dice.choice("+-"), term, dice.choice(["0.25", "-1.0", *variables])]
        case 1:
            return ["-", term]
        case 2:
            return ["*", dice.choice(["2.0", "-0.5"]), term]
    return dice.choice(["0.0", "0.75", "-2.0", "0.1", *variables])


def _copy(tree: Expression) -> Expression:
    return tree if isinstance(tree, str) else [_copy(part) for part in tree]


def _text(tree: Expression) -> str:
    return tree if isinstance(tree, str) else "(" + " ".join(map(_text, tree)) + ")"


def _parts(tree: Expression) -> list[Expression]:
    return [tree, *(part for child in tree for part in _parts(child))] if isinstance(tree, list) else [tree]
