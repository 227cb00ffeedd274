"""VNN-LIB: properties of networks as the competition writes them, read and written; here version 1.0, and the files.

Variables X_i are inputs, Y_i outputs; the assertions together describe the counterexamples. Every assertion is an atom
(<= or >= between linear terms), or atoms joined by ``and`` and ``or``; the whole becomes a list of cases, any of which
violates the property.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from steadynet.errors import UserError, one_line
from steadynet.files import write_atomically
from steadynet.interchange.vnnlib.property import VnnlibProperty
from steadynet.interchange.vnnlib.s_expressions import first_word
from steadynet.interchange.vnnlib.version1 import format_vnnlib1, parse_vnnlib1
from steadynet.interchange.vnnlib.version2 import (
    VERSION_STATEMENT,
    Shape,
    check_by_standard,
    format_vnnlib2,
    parse_vnnlib2,
)

LARGEST_FILE = 256 * 2**20  # bytes, unpacked
VERSIONS = ("1.0", "2.0")


def read_vnnlib(path: str | Path) -> VnnlibProperty:
    """The property in a file, VNN-LIB 1.0 or 2.0, packed by gzip or not; what is malformed is an error of one line."""
    text = _text(Path(path))
    try:
        return parse_vnnlib2(text) if first_word(text) == VERSION_STATEMENT else parse_vnnlib1(text)
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


def write_vnnlib(
    path: str | Path,
    vnnlib_property: VnnlibProperty,
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
        text = format_vnnlib2(vnnlib_property, input_shape, output_shape)
        check_by_standard(text)
    else:
        text = format_vnnlib1(vnnlib_property)
    content = text.encode("utf-8")
    if Path(path).suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    write_atomically(Path(path), lambda temporary: temporary.write_bytes(content))
