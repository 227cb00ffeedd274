"""The assertions of VNN-LIB, either version, as text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from steadynet.errors import UserError
from steadynet.interchange.vnnlib.property import Disjunct, VnnlibProperty

Number = Callable[[float], str]


def format_assertions(
    vnnlib_property: VnnlibProperty, inputs: list[str], outputs: list[str], number: Number
) -> list[str]:
    """Lines that say when a property is violated; a box that all cases share is said once."""
    cases = vnnlib_property.disjuncts
    for case in cases:
        _check(case)
    if not cases:
        raise UserError("a property without cases cannot be written")
    shared = all(len(case.bound) and _same_box(case, cases[0]) for case in cases)
    boxes = [[] if shared else _bounds(case, inputs, number) for case in cases]
    parts = [box + _constraints(case, outputs, number) for box, case in zip(boxes, cases, strict=True)]
    lines = [f"(assert {atom})" for atom in _bounds(cases[0], inputs, number)] if shared else []
    return [*lines, "(assert (or", *(f"    (and {' '.join(part)})" for part in parts), "))"]


def _check(case: Disjunct) -> None:
    if not all(np.isfinite(values).all() for values in (case.lower, case.upper, case.matrix, case.bound)):
        raise UserError("a number that is not finite cannot be written")
    if not (case.matrix != 0).any(1).all():
        raise UserError("a constraint without a variable cannot be written")


def _same_box(one: Disjunct, other: Disjunct) -> bool:
    return np.array_equal(one.lower, other.lower) and np.array_equal(one.upper, other.upper)


def _bounds(case: Disjunct, inputs: list[str], number: Number) -> list[str]:
    lower = [f"(>= {name} {number(value)})" for name, value in zip(inputs, case.lower.tolist(), strict=True)]
    return lower + [f"(<= {name} {number(value)})" for name, value in zip(inputs, case.upper.tolist(), strict=True)]


def _constraints(case: Disjunct, outputs: list[str], number: Number) -> list[str]:
    atoms = []
    for row, (weights, bound) in enumerate(zip(case.matrix.tolist(), case.bound.tolist(), strict=True)):
        terms = " ".join(f"(* {number(value)} {outputs[index]})" for index, value in enumerate(weights) if value)
        atoms.append(f"({'<' if row in case.strict else '<='} (+ {terms}) {number(bound)})")
    return atoms
