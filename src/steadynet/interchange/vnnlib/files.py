"""VNN-LIB: properties of networks as the competition writes them, read and written; here version 1.0, and the files.

Variables X_i are inputs, Y_i outputs; the assertions together describe the counterexamples. Every assertion is an atom
(<= or >= between linear terms), or atoms joined by ``and`` and ``or``; the whole becomes a list of cases, any of which
violates the property.
"""

from __future__ import annotations

import gzip
import re
import zlib
from pathlib import Path

from steadynet.errors import UserError, one_line
from steadynet.files import write_atomically
from steadynet.interchange.vnnlib.assertions import format_assertions
from steadynet.interchange.vnnlib.conjunctions import Conjunction, product, specification_of
from steadynet.interchange.vnnlib.expressions import first_word, read_expressions, shown
from steadynet.interchange.vnnlib.formulas import Grammar, Variable
from steadynet.interchange.vnnlib.specification import Specification
from steadynet.interchange.vnnlib.version2 import (
    VERSION_STATEMENT,
    Shape,
    check_by_standard,
    format_vnnlib2,
    parse_vnnlib2,
)

LARGEST_FILE = 256 * 2**20  # bytes, unpacked
VERSIONS = ("1.0", "2.0")
_VARIABLE = re.compile(r"([XY])_(\d{1,9})", re.ASCII)


def read_vnnlib(path: str | Path) -> Specification:
    """The property in a file, VNN-LIB 1.0 or 2.0, packed by gzip or not; what is malformed is an error of one line."""
    text = _text(Path(path))
    try:
        return parse_vnnlib2(text) if first_word(text) == VERSION_STATEMENT else parse_vnnlib(text)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _text(path: Path) -> str:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise UserError(f"{path} is larger than {LARGEST_FILE >> 20} MiB")
        return content.decode("utf-8")
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise UserError(f"cannot read {path}: {one_line(error)}") from error


def parse_vnnlib(text: str) -> Specification:
    """The property that a text in VNN-LIB 1.0 describes."""
    declared: dict[str, set[int]] = {"X": set(), "Y": set()}

    def used(name: str) -> Variable:
        variable = _variable(name)
        if variable.place not in declared[variable.kind]:
            raise UserError(f"{variable.name} is used, but never declared before")
        return variable

    grammar, base, alternatives = Grammar(("<=", ">="), used), Conjunction(), [Conjunction()]
    for statement in read_expressions(text):
        match statement:
            case ["declare-const", str(name), "Real"]:
                declared[_variable(name).kind].add(_variable(name).place)
            case ["assert", formula]:
                cases = grammar.cases(formula)
                if len(cases) == 1:
                    base.extend(cases[0])
                else:
                    alternatives = product(alternatives, cases)
            case _:
                raise UserError(f"not a statement of VNN-LIB 1.0: {shown(statement)}")
    inputs, outputs = (_count(declared[kind], kind) for kind in "XY")
    return specification_of(base, alternatives, inputs, outputs, lambda index: f"X_{index}")


def _variable(name: str) -> Variable:
    found = _VARIABLE.fullmatch(name)
    if not found:
        raise UserError(f"'{shown(name)}' is neither a number nor a variable X_i or Y_i")
    return Variable(found[1], int(found[2]), f"{found[1]}_{int(found[2])}")


def _count(indices: set[int], kind: str) -> int:
    if not indices or max(indices) != len(indices) - 1:
        raise UserError(f"the variables {kind}_i must be declared from {kind}_0 on, without gaps")
    return len(indices)


def write_vnnlib(
    path: str | Path,
    specification: Specification,
    *,
    version: str = "1.0",
    input_shape: Shape | None = None,
    output_shape: Shape | None = None,
) -> None:
    """The property as VNN-LIB 1.0 or 2.0, numbers to the last digit, packed if the path ends in .gz.

    The shapes are the network's, for 2.0 only; without them tensors are (1, n). What is written in 2.0 has passed the
    standard's own parser, where that is installed.
    """
    if version not in VERSIONS:
        raise UserError(f"there is no VNN-LIB {version}, only {' and '.join(VERSIONS)}")
    if version == "2.0":
        text = format_vnnlib2(specification, input_shape, output_shape)
        check_by_standard(text)
    else:
        text = format_vnnlib(specification)
    content = text.encode("utf-8")
    if Path(path).suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    write_atomically(Path(path), lambda temporary: temporary.write_bytes(content))


def format_vnnlib(specification: Specification) -> str:
    """The text of a property in VNN-LIB 1.0."""
    if any(case.strict for case in specification.cases):
        raise UserError("VNN-LIB 1.0 has no strict inequalities: write 2.0")
    inputs = [f"X_{index}" for index in range(specification.inputs)]
    outputs = [f"Y_{index}" for index in range(specification.outputs)]
    lines = [f"(declare-const {name} Real)" for name in [*inputs, *outputs]]
    return "\n".join([*lines, *format_assertions(specification, inputs, outputs, repr), ""])
