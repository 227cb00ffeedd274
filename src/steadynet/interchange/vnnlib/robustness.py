"""Local robustness as a VNN-LIB property: within a box of inputs, no other class reaches the score of the label."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import lru_cache
from pathlib import Path

import numpy as np
from torch import Tensor

from steadynet.errors import UserError
from steadynet.files import write_text
from steadynet.interchange.vnnlib.property import Disjunct, VnnlibProperty


def robustness_property(lower: Tensor, upper: Tensor, label: int, classes: int) -> VnnlibProperty:
    """Return the property that all inputs in a box keep their label.

    An input violates it if another class has at least the score of the label. The bounds are kept exactly, since every
    float32 number is a float64 number.

    Args:
        lower: The lower corner of the box, of any shape.
        upper: The upper corner of the box, of the same shape.
        label: The class that every input in the box must have.
        classes: The number of classes.

    >>> import torch
    >>> found = robustness_property(torch.zeros(1, 2, 2), torch.ones(1, 2, 2), label=1, classes=3)
    >>> found.input_size, [disjunct.matrix.tolist() for disjunct in found.disjuncts]
    (4, [[[-1.0, 1.0, 0.0]], [[0.0, 1.0, -1.0]]])
    """
    _check_label(label, classes)
    low, high = (corner.detach().cpu().double().flatten().numpy() for corner in (lower, upper))
    one_hot = np.eye(classes)
    disjuncts = [
        Disjunct(low, high, (one_hot[label] - one_hot[other])[None], np.zeros(1))
        for other in range(classes)
        if other != label
    ]
    return VnnlibProperty(len(low), classes, tuple(disjuncts))


def format_robustness(lower: Tensor, upper: Tensor, label: int, classes: int) -> str:
    """Return the same property as text in the subset of VNN-LIB 1.0 that every tool reads.

    Each bound is an assertion of its own, written exactly and without exponents, and classes are compared directly.

    >>> import torch
    >>> print(format_robustness(torch.tensor([2.0**-20]), torch.tensor([0.5]), label=0, classes=3), end="")
    (declare-const X_0 Real)
    (declare-const Y_0 Real)
    (declare-const Y_1 Real)
    (declare-const Y_2 Real)
    (assert (>= X_0 0.00000095367431640625))
    (assert (<= X_0 0.5))
    (assert (or
        (and (>= Y_1 Y_0))
        (and (>= Y_2 Y_0))
    ))
    """
    _check_label(label, classes)
    low, high = (corner.detach().cpu().double().flatten().tolist() for corner in (lower, upper))
    declarations, names = _variables(len(low), classes)
    text = {end: _exactly(end) for end in {*low, *high}}  # images repeat numbers
    pieces = [""] * (4 * len(low))
    pieces[0::4], pieces[2::4] = names
    pieces[1::4], pieces[3::4] = [text[least] for least in low], [text[most] for most in high]
    bounds = "".join([*pieces, "))"])
    others = [f"    (and (>= Y_{other} Y_{label}))" for other in range(classes) if other != label]
    return "\n".join([declarations + bounds, "(assert (or", *others, "))", ""])


@lru_cache(8)
def _variables(inputs: int, classes: int) -> tuple[str, tuple[list[str], list[str]]]:
    """The declarations of all variables, and per input what comes before its least value and before its largest one."""
    names = [f"X_{index}" for index in range(inputs)]
    declared = [*names, *(f"Y_{index}" for index in range(classes))]
    ends = ["", *["))"] * (inputs - 1)]  # of the assertion before
    before = [f"{end}\n(assert (>= {name} " for end, name in zip(ends, names, strict=True)] if inputs else []
    between = [f"))\n(assert (<= {name} " for name in names]
    return "\n".join(f"(declare-const {name} Real)" for name in declared), (before, between)


def _exactly(number: float) -> str:
    """Write all decimal digits of a number, so that even a reader with rational numbers reads this very number.

    >>> _exactly(0.1), _exactly(1.0)
    ('0.1000000000000000055511151231257827021181583404541015625', '1.0')
    """
    return _digits(number, math.copysign(1.0, number) < 0)


@lru_cache(4096)  # images have few different numbers
def _digits(number: float, is_negative: bool) -> str:
    """The digits; −0.0 and 0.0 are equal numbers, but not the same text."""
    text = f"{Decimal(number):f}"
    return text if "." in text else f"{text}.0"


def _check_label(label: int, classes: int) -> None:
    if not 0 <= label < classes:
        raise UserError(f"there is a label {label}, but the network has {classes} classes: 0 to {classes - 1}")


def write_robustness(path: str | Path, lower: Tensor, upper: Tensor, label: int, classes: int) -> None:
    """Write the text of ``format_robustness`` to a file."""
    write_text(Path(path), format_robustness(lower, upper, label, classes))
