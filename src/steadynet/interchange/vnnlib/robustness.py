"""Local robustness as a property file says it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from torch import Tensor

from steadynet.files import write_atomically
from steadynet.interchange.vnnlib.property import Disjunct, VnnlibProperty


def robustness_property(lower: Tensor, upper: Tensor, label: int, classes: int) -> VnnlibProperty:
    """Violated where an input of the box [lower, upper] gives another class at least the label's score.

    The corners, of any shape, are kept exactly: every float32 is a float64.

    >>> import torch
    >>> found = robustness_property(torch.zeros(1, 2, 2), torch.ones(1, 2, 2), label=1, classes=3)
    >>> found.input_size, [case.matrix.tolist() for case in found.disjuncts]
    (4, [[[-1.0, 1.0, 0.0]], [[0.0, 1.0, -1.0]]])
    """
    low, high = (corner.detach().cpu().double().flatten().numpy() for corner in (lower, upper))
    eye = np.eye(classes)
    cases = [
        Disjunct(low, high, (eye[label] - eye[other])[None], np.zeros(1)) for other in range(classes) if other != label
    ]
    return VnnlibProperty(len(low), classes, tuple(cases))


def format_robustness(lower: Tensor, upper: Tensor, label: int, classes: int) -> str:
    """The same property in the few words of VNN-LIB that every tool reads, numbers to the last digit.

    Bounds stand alone, once, without exponents; classes are compared directly.

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
    low, high = (corner.detach().cpu().double().flatten().tolist() for corner in (lower, upper))
    lines = [f"(declare-const X_{index} Real)" for index in range(len(low))]
    lines += [f"(declare-const Y_{index} Real)" for index in range(classes)]
    for index, ends in enumerate(zip(low, high, strict=True)):
        least, most = (np.format_float_positional(end, trim="0") for end in ends)
        lines += [f"(assert (>= X_{index} {least}))", f"(assert (<= X_{index} {most}))"]
    others = [f"    (and (>= Y_{other} Y_{label}))" for other in range(classes) if other != label]
    return "\n".join([*lines, "(assert (or", *others, "))", ""])


def write_robustness(path: str | Path, lower: Tensor, upper: Tensor, label: int, classes: int) -> None:
    """The property as a file, whole or not at all."""
    text = format_robustness(lower, upper, label, classes)
    write_atomically(Path(path), lambda temporary: temporary.write_text(text, encoding="utf-8"))
