"""VNN-LIB 2.0: the text of a property, parsed and formatted.

Read are properties of one network with one input and one output tensor, with any formula that is linear in the
outputs. Texts are parsed here and not by the standard's own parser (the package ``vnnlib``), since that one can crash
the process on deeply nested brackets. It does check what is written. Elements are counted in row-major order.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np

from steadynet.errors import UserError, one_line
from steadynet.interchange.vnnlib.assertions import format_assertions
from steadynet.interchange.vnnlib.formulas import FormulaParser, Variable
from steadynet.interchange.vnnlib.normal_form import NormalForm
from steadynet.interchange.vnnlib.property import DeclaredTensor, VnnlibProperty
from steadynet.interchange.vnnlib.s_expressions import Expression, excerpt, parse_expressions

VERSION_STATEMENT = "vnnlib-version"
COMPARISONS = ("<=", ">=", "<", ">", "==", "!=")
NUMBER_TYPES: dict[str, type[np.floating]] = {
    "float32": np.float32,
    "float64": np.float64,
    "real": np.float64,
    "Real": np.float64,
}
MAX_TENSOR_SIZE = 10_000_000
_VERSION = re.compile(r"<(\d{1,9})\.\d{1,9}>", re.ASCII)
_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
_INDEXED = re.compile(r"([A-Za-z]\w*)\s*\[([\d\s,]*)\]", re.ASCII)

Shape = tuple[int, ...]


@dataclass(frozen=True)
class _Tensor:
    """The declared input or output of the network."""

    is_input: bool
    declared: DeclaredTensor

    @property
    def name(self) -> str:
        """The name in the file."""
        return self.declared.name

    @property
    def shape(self) -> Shape:
        """The lengths of the axes."""
        return self.declared.shape

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    def variable(self, indices: Shape) -> Variable:
        """Return the element at some indices."""
        name = _element_name(self.name, indices)
        if len(indices) != len(self.shape) or any(at >= size for at, size in zip(indices, self.shape, strict=True)):
            raise UserError(f"{name} lies outside of {self.name}, which has the shape {list(self.shape)}")
        flat_index = 0
        for at, size in zip(indices, self.shape, strict=True):
            flat_index = flat_index * size + at
        return Variable(self.is_input, flat_index, name)

    def name_at(self, flat_index: int) -> str:
        """Return the name of an element by its index in the flattened tensor."""
        return _element_name(self.name, tuple(map(int, np.unravel_index(flat_index, self.shape))))


def parse_vnnlib2(text: str) -> VnnlibProperty:
    """Parse a property in VNN-LIB 2.0.

    Strict constraints on outputs stay strict. A strict bound of an input becomes the next number of the input's type.
    """
    match parse_expressions(text):
        case [["vnnlib-version", str(version)], ["declare-network", str(), *declarations], *rest] if (
            found := _VERSION.fullmatch(version)
        ):
            if int(found[1]) != 2:
                raise UserError(f"VNN-LIB {version.strip('<>')} is not known, only 1.0 and 2.0")
            source, target = _tensors(declarations)
        case _:
            raise UserError("VNN-LIB 2.0 begins with (vnnlib-version <2.0>) and (declare-network …)")
    tensors = {tensor.name: tensor for tensor in (source, target)}
    input_type = NUMBER_TYPES[source.declared.number_type]
    parser = FormulaParser(COMPARISONS, lambda word: _variable(word, tensors), input_type)
    asserted = NormalForm()
    for statement in rest:
        asserted.add(parser.formula(_asserted_formula(statement)))
    read = asserted.to_property(source.size, target.size, source.name_at)
    return replace(read, declared=(source.declared, target.declared))


def _tensors(declarations: list[Expression]) -> tuple[_Tensor, _Tensor]:
    match declarations:
        case [["declare-input", str(x), str(x_type)], ["declare-output", str(y), str(y_type)]]:
            source, target = _tensor(x, x_type, is_input=True), _tensor(y, y_type, is_input=False)
            if source.name == target.name:
                raise UserError(f"{source.name} is declared twice")
            return source, target
    kinds = [part[0] if isinstance(part, list) and part else part for part in declarations]
    for kind, reason in (
        ("declare-hidden", "constraints on hidden neurons are not supported"),
        ("equal-to", "several networks are not supported"),
        ("isomorphic-to", "several networks are not supported"),
    ):
        if kind in kinds:
            raise UserError(reason)
    if kinds.count("declare-input") > 1 or kinds.count("declare-output") > 1:
        raise UserError("a network with several inputs or outputs is not supported")
    raise UserError(f"not one input and one output: {excerpt(declarations)}")


def _tensor(name: str, type_and_shape: str, *, is_input: bool) -> _Tensor:
    found = _INDEXED.fullmatch(type_and_shape)
    if not _NAME.fullmatch(name) or not found:
        raise UserError(f"not a tensor's name, type and shape: {excerpt([name, type_and_shape])}")
    number_type, shape = found[1], _indices(found[2])
    if number_type not in NUMBER_TYPES:
        raise UserError(f"{name} has the type {number_type}: only float32, float64 and real are supported")
    if not all(shape) or math.prod(shape) > MAX_TENSOR_SIZE:
        raise UserError(f"{name} has the shape {list(shape)[:8]}, which is empty or too large")
    return _Tensor(is_input, DeclaredTensor(name, number_type, shape))


def _indices(text: str) -> Shape:
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    if not all(word.isdigit() and len(word) < 10 for word in words):
        raise UserError(f"not a list of indices: [{excerpt(text)}]")
    return tuple(map(int, words))


def _asserted_formula(statement: Expression) -> Expression:
    match statement:
        case ["assert", formula]:
            return formula
        case ["declare-network", *_]:
            raise UserError("several networks are not supported")
    raise UserError(f"not an assertion: {excerpt(statement)}")


def _variable(word: str, tensors: dict[str, _Tensor]) -> Variable:
    found = _INDEXED.fullmatch(word)
    name = found[1] if found else word
    if name not in tensors:
        raise UserError(f"'{excerpt(word)}' is neither a number nor an element of {' or '.join(tensors)}")
    if found and not found[2].strip():
        raise UserError(f"'{excerpt(word)}' has no index")
    return tensors[name].variable(_indices(found[2]) if found else ())


def _element_name(name: str, indices: Shape) -> str:
    return f"{name}[{','.join(map(str, indices))}]" if indices else name


def _element_names(name: str, shape: Shape) -> list[str]:
    return [_element_name(name, tuple(map(int, indices))) for indices in np.ndindex(*shape)]


def format_vnnlib2(
    vnnlib_property: VnnlibProperty,
    input_shape: Shape | None = None,
    output_shape: Shape | None = None,
    number_type: str = "float32",
) -> str:
    """Return a property as text in VNN-LIB 2.0.

    Args:
        vnnlib_property: The property.
        input_shape: The shape of the network's input, with the batch axis. By default (1, inputs).
        output_shape: The shape of the network's output, likewise.
        number_type: The type of their numbers, "float32" or "float64".
    """
    input_shape = input_shape or (1, vnnlib_property.input_size)
    output_shape = output_shape or (1, vnnlib_property.output_size)
    _check_shape("inputs", vnnlib_property.input_size, input_shape)
    _check_shape("outputs", vnnlib_property.output_size, output_shape)
    lines = [
        f"({VERSION_STATEMENT} <2.0>)",
        "(declare-network N",
        f"    (declare-input {DeclaredTensor('X', number_type, input_shape)})",
        f"    (declare-output {DeclaredTensor('Y', number_type, output_shape)})",
        ")",
    ]
    names = _element_names("X", input_shape), _element_names("Y", output_shape)
    return "\n".join([*lines, *format_assertions(vnnlib_property, *names, format_number), ""])


def _check_shape(what: str, size: int, shape: Shape) -> None:
    if math.prod(shape) != size or min(shape) < 1:
        raise UserError(f"the property has {size} {what}, but the shape {list(shape)} has not")


def format_number(value: float) -> str:
    """Write a number exactly. VNN-LIB 2.0 has no exponents, and a number without a point would be an integer.

    >>> format_number(1e-05), format_number(-3.0), format_number(1e22)
    ('0.00001', '-3.0', '10000000000000000000000.0')
    """
    text = format(Decimal(repr(value)), "f")
    return text if "." in text else f"{text}.0"


def check_with_standard_parser(text: str) -> None:
    """Check a text with the standard's own parser (the package ``vnnlib``), if it is installed."""
    try:
        from vnnlib import parse_query_string
    except ImportError:  # there is no wheel for this machine, or another package has this name
        return
    try:
        parse_query_string(text)
    except Exception as error:  # of its own types, or of what its C++ code lets through
        raise UserError(f"the standard's parser rejects the text that was to be written: {one_line(error)}") from error
