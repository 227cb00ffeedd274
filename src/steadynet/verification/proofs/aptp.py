"""The trees of proofs as text in the form of APTP (activation pattern tree proofs), which ``APTPchecker`` reads.

A file has one way to violate the property: the box of inputs, the sign patterns of the leaves, and the constraints on
the outputs. It has no slopes and no multipliers, so a checker of such files solves a program per leaf.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from steadycheck import Network, Refused, Violation, read_network, read_property, regions
from steadynet.errors import UserError, one_line
from steadynet.files import write_text
from steadynet.verification.proofs.reading import StoredRegion, read_proof, sizes_of


def write_aptp(folder: Path, out: Path) -> tuple[int, dict[str, str]]:
    """Write the trees of all proofs of a folder.

    Args:
        folder: The folder of proofs, or a run that has one.
        out: Where to write ``NAME_i.aptp`` for violation i of each property.

    Returns:
        How many files were written; and per proof that has no such form, why.

    Raises:
        UserError: There are no proofs.
    """
    folder = folder / "proofs" if (folder / "proofs").is_dir() else folder
    proofs, model = sorted(folder.glob("*.proof")), folder / "model.onnx"
    if not proofs or not model.is_file():
        raise UserError(f"there are no proofs in {folder}: write some with steadynet verify … --proofs")
    network, written, refused = read_network(model.read_bytes()), 0, {}
    for proof in proofs:
        try:
            text = proof.with_suffix(".vnnlib").read_bytes()
            files = list(aptp_files(network, text, proof.read_bytes()))
        except (Refused, OSError, UserError) as error:
            refused[proof.name] = one_line(error)
            continue
        for number, content in enumerate(files):
            write_text(out / f"{proof.stem}_{number}.aptp", content)
        written += len(files)
    return written, refused


def aptp_files(network: Network, property_file: bytes, proof: bytes) -> Iterator[str]:
    """Yield the text for each violation of one property.

    Raises:
        Refused: The proof is damaged, or of another property.
        UserError: Inputs are halved, which this form of APTP has no words for.
    """
    groups = regions(read_property(property_file, network))
    sizes = sizes_of(network)
    for group, region in zip(groups, read_proof(proof, sizes, groups, property_file), strict=True):
        if region.halves:
            raise UserError("inputs are halved: APTP's patterns are of ReLU signs on one box")
        for number, violation in enumerate(group):
            yield _text(violation, _patterns(region, number, sizes), sum(sizes))


def _patterns(region: StoredRegion, number: int, sizes: list[int]) -> list[str]:
    """The sign patterns of the leaves; ReLUs are numbered from 1, over all layers in order."""
    starts = np.cumsum([0, *sizes[:-1]])
    names = np.concatenate([start + elements for start, elements in zip(starts, region.kept, strict=True)]) + 1
    leaves = region.trees[number]
    if len(leaves) == 1:  # a pattern must say something: both signs of one ReLU
        return ["(and (<  N_1 0))", "(and (>= N_1 0))"]
    return [
        "(and "
        + " ".join(
            f"({'>=' if sign > 0 else '< '} N_{names[relu]} 0)"
            for relu, sign in zip(leaf.relus, leaf.signs, strict=True)
        )
        + ")"
        for leaf in leaves
    ]


def _text(violation: Violation, patterns: list[str], relus: int) -> str:
    lower, upper, (_, outputs) = violation.lower, violation.upper, violation.matrix.shape
    lines = ["; Input variables", *(f"(declare-const X_{index} Real)" for index in range(len(lower)))]
    lines += ["; Output variables", *(f"(declare-const Y_{index} Real)" for index in range(outputs))]
    lines += ["; Hidden variables", *(f"(declare-pwl N_{index} ReLU)" for index in range(1, relus + 1))]
    lines += ["; Input constraints"]
    for index, (least, most) in enumerate(zip(lower.tolist(), upper.tolist(), strict=True)):
        lines += [f"(assert (>= X_{index} {_number(least)}))", f"(assert (<= X_{index} {_number(most)}))"]
    lines += ["; Hidden constraints", "(assert (or", *(f"    {pattern}" for pattern in patterns), "))"]
    lines += ["; Output constraints"]
    lines += [
        f"(assert {_constraint(row, bound)})" for row, bound in zip(violation.matrix, violation.bound, strict=True)
    ]
    return "\n".join([*lines, ""])


def _constraint(row: NDArray[np.float64], bound: float) -> str:
    """The constraint row · y ≤ bound, in the words of VNN-LIB."""
    positive, negative = (np.flatnonzero(row == sign).tolist() for sign in (1.0, -1.0))
    if len(positive) == len(negative) == 1 and bound == 0:
        return f"(<= Y_{positive[0]} Y_{negative[0]})"
    if len(positive) + len(negative) == 1:
        return f"(<= Y_{positive[0]} {_number(bound)})" if positive else f"(>= Y_{negative[0]} {_number(-bound)})"
    raise UserError("a constraint on outputs that has no simple form")


def _number(number: float) -> str:
    """All decimal digits of a number, without an exponent."""
    digits = format(Decimal(number + 0.0), "f")
    return digits if "." in digits else f"{digits}.0"
