"""The assertions of a VNN-LIB file, either version, as text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from steadynet.errors import UserError
from steadynet.interchange.vnnlib.property import Disjunct, VnnlibProperty

FormatNumber = Callable[[float], str]


def format_assertions(
    vnnlib_property: VnnlibProperty, inputs: list[str], outputs: list[str], format_number: FormatNumber
) -> list[str]:
    """Return the lines that describe the counterexamples of a property.

    If all disjuncts have the same box, the box is written once.

    Args:
        vnnlib_property: The property.
        inputs: The names of the inputs in the file.
        outputs: The names of the outputs in the file.
        format_number: Writes a number as the version of VNN-LIB wants it.
    """
    disjuncts = vnnlib_property.disjuncts
    for disjunct in disjuncts:
        _check(disjunct)
    if not disjuncts:
        raise UserError("a property without disjuncts cannot be written")
    one_box = all(len(disjunct.bound) and _same_box(disjunct, disjuncts[0]) for disjunct in disjuncts)
    boxes = [[] if one_box else _bounds(disjunct, inputs, format_number) for disjunct in disjuncts]
    parts = [
        box + _constraints(disjunct, outputs, format_number) for box, disjunct in zip(boxes, disjuncts, strict=True)
    ]
    lines = [f"(assert {atom})" for atom in _bounds(disjuncts[0], inputs, format_number)] if one_box else []
    return [*lines, "(assert (or", *(f"    (and {' '.join(part)})" for part in parts), "))"]


def _check(disjunct: Disjunct) -> None:
    numbers = (disjunct.lower, disjunct.upper, disjunct.matrix, disjunct.bound)
    if not all(np.isfinite(values).all() for values in numbers):
        raise UserError("a number that is not finite cannot be written")
    if not (disjunct.matrix != 0).any(1).all():
        raise UserError("a constraint without a variable cannot be written")


def _same_box(one: Disjunct, other: Disjunct) -> bool:
    return np.array_equal(one.lower, other.lower) and np.array_equal(one.upper, other.upper)


def _bounds(disjunct: Disjunct, inputs: list[str], format_number: FormatNumber) -> list[str]:
    lower, upper = disjunct.lower.tolist(), disjunct.upper.tolist()
    atoms = [f"(>= {name} {format_number(value)})" for name, value in zip(inputs, lower, strict=True)]
    return atoms + [f"(<= {name} {format_number(value)})" for name, value in zip(inputs, upper, strict=True)]


def _constraints(disjunct: Disjunct, outputs: list[str], format_number: FormatNumber) -> list[str]:
    atoms = []
    for row, (weights, bound) in enumerate(zip(disjunct.matrix.tolist(), disjunct.bound.tolist(), strict=True)):
        terms = " ".join(f"(* {format_number(value)} {outputs[index]})" for index, value in enumerate(weights) if value)
        atoms.append(f"({'<' if row in disjunct.strict else '<='} (+ {terms}) {format_number(bound)})")
    return atoms
