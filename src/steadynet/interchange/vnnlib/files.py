"""VNN-LIB files of version 1.0 or 2.0, plain or compressed with gzip: read and written."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from steadynet.errors import UserError, one_line
from steadynet.files import write_atomically
from steadynet.interchange.vnnlib.property import VnnlibProperty
from steadynet.interchange.vnnlib.s_expressions import first_keyword
from steadynet.interchange.vnnlib.version1 import format_vnnlib1, parse_vnnlib1
from steadynet.interchange.vnnlib.version2 import (
    VERSION_STATEMENT,
    Shape,
    check_with_standard_parser,
    format_vnnlib2,
    parse_vnnlib2,
)

VERSIONS = ("1.0", "2.0")
MAX_FILE_SIZE = 256 * 2**20  # bytes, decompressed


def read_vnnlib(path: str | Path) -> VnnlibProperty:
    """Read a property from a VNN-LIB file of version 1.0 or 2.0.

    Args:
        path: The file. If its name ends in .gz, it is decompressed.

    Returns:
        The property, as a disjunction of input boxes with linear constraints on the outputs.

    Raises:
        UserError: The file cannot be read, is malformed, or contains something other than bounds of single inputs
            and linear constraints on outputs. The message is one line.

    >>> from tempfile import TemporaryDirectory
    >>> lines = ["(declare-const X_0 Real)", "(declare-const Y_0 Real)"]
    >>> lines += ["(assert (>= X_0 0.0))", "(assert (<= X_0 0.5))", "(assert (>= Y_0 3.0))"]
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "property.vnnlib"
    ...     _ = path.write_text("".join(lines))
    ...     found = read_vnnlib(path)
    >>> found.disjuncts[0].upper, found.disjuncts[0].matrix, found.disjuncts[0].bound  # −Y_0 ≤ −3
    (array([0.5]), array([[-1.]]), array([-3.]))
    """
    text = _read_text(Path(path))
    try:
        return parse_vnnlib2(text) if first_keyword(text) == VERSION_STATEMENT else parse_vnnlib1(text)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _read_text(path: Path) -> str:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(MAX_FILE_SIZE + 1)
        if len(content) > MAX_FILE_SIZE:
            raise UserError(f"{path} is larger than {MAX_FILE_SIZE >> 20} MiB")
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
    number_type: str = "float32",
) -> None:
    """Write a property as a VNN-LIB file; numbers are written exactly.

    A text of version 2.0 is checked with the standard's own parser (the package ``vnnlib``), if it is installed.

    Args:
        path: The file to write. If its name ends in .gz, it is compressed.
        vnnlib_property: The property.
        version: The version of VNN-LIB, "1.0" or "2.0".
        input_shape: The shape of the network's input, with the batch axis; used by version 2.0. By default (1, inputs).
        output_shape: The shape of the network's output, likewise.
        number_type: The type of the network's numbers, "float32" or "float64"; used by version 2.0.

    Raises:
        UserError: The property cannot be expressed in this version, or the file cannot be written.

    >>> import torch
    >>> from tempfile import TemporaryDirectory
    >>> from steadynet.interchange.vnnlib.robustness import robustness_property
    >>> robust = robustness_property(torch.zeros(2), torch.ones(2), label=0, classes=2)
    >>> with TemporaryDirectory() as folder:
    ...     write_vnnlib(f"{folder}/property.vnnlib.gz", robust, version="2.0")
    ...     read_vnnlib(f"{folder}/property.vnnlib.gz").input_size
    2
    """
    if version not in VERSIONS:
        raise UserError(f"there is no VNN-LIB {version}, only {' and '.join(VERSIONS)}")
    if version == "2.0":
        text = format_vnnlib2(vnnlib_property, input_shape, output_shape, number_type)
        check_with_standard_parser(text)
    else:
        text = format_vnnlib1(vnnlib_property)
    content = text.encode("utf-8")
    if Path(path).suffix == ".gz":
        content = gzip.compress(content, mtime=0)
    write_atomically(Path(path), lambda temporary: temporary.write_bytes(content))
