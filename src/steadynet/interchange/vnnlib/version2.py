"""VNN-LIB 2.0: one network with one input and one output tensor, and any formula that is linear in the outputs.

The text is read by our own reader, for the standard's parser (the package ``vnnlib``) may crash the process on deep
brackets; that parser checks what we write. Indices count in row-major order.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal

import numpy as np

from steadynet.errors import UserError, one_line
from steadynet.interchange.vnnlib.assertions import format_assertions
from steadynet.interchange.vnnlib.conjunctions import Conjunction, product, property_of
from steadynet.interchange.vnnlib.formulas import Grammar, Variable
from steadynet.interchange.vnnlib.property import VnnlibProperty
from steadynet.interchange.vnnlib.s_expressions import Expression, read_expressions, shown

VERSION_STATEMENT = "vnnlib-version"
COMPARISONS = ("<=", ">=", "<", ">", "==", "!=")
NUMBERS: dict[str, type[np.floating]] = {"float32": np.float32, "real": np.float64, "Real": np.float64}
LARGEST_TENSOR = 10_000_000
_VERSION = re.compile(r"<(\d{1,9})\.\d{1,9}>", re.ASCII)
_NAME = re.compile(r"[A-Za-z]\w*", re.ASCII)
_INDEXED = re.compile(r"([A-Za-z]\w*)\s*\[([\d\s,]*)\]", re.ASCII)

Shape = tuple[int, ...]


class _Tensor:
    """A declared input (X) or output (Y)."""

    def __init__(self, kind: str, name: str, element: str, shape: Shape) -> None:
        if element not in NUMBERS:
            raise UserError(f"{name} is of {element}: only float32 and real can be decided")
        if not all(shape) or math.prod(shape) > LARGEST_TENSOR:
            raise UserError(f"{name} has the shape {list(shape)[:8]}, which is empty or too large")
        self.kind, self.name, self.number, self.shape = kind, name, NUMBERS[element], shape

    def variable(self, place: Shape) -> Variable:
        """The element at a place."""
        named = _named(self.name, place)
        if len(place) != len(self.shape) or any(at >= size for at, size in zip(place, self.shape, strict=True)):
            raise UserError(f"{named} lies outside of {self.name}, which has the shape {list(self.shape)}")
        index = 0
        for at, size in zip(place, self.shape, strict=True):
            index = index * size + at
        return Variable(self.kind, index, named)

    def name_at(self, index: int) -> str:
        """What the element at an index of the flat tensor is called."""
        return _named(self.name, tuple(map(int, np.unravel_index(index, self.shape))))


def parse_vnnlib2(text: str) -> VnnlibProperty:
    """The property that a text in VNN-LIB 2.0 describes.

    Strict constraints on outputs stay strict; a strict bound of an input is the next number of its type inside.
    """
    match read_expressions(text):
        case [["vnnlib-version", str(version)], ["declare-network", str(), *declarations], *rest] if (
            found := _VERSION.fullmatch(version)
        ):
            if int(found[1]) != 2:
                raise UserError(f"VNN-LIB {version.strip('<>')} is not known, only 1.0 and 2.0")
            source, target = _tensors(declarations)
        case _:
            raise UserError("VNN-LIB 2.0 begins with (vnnlib-version <2.0>) and (declare-network …)")
    tensors = {tensor.name: tensor for tensor in (source, target)}
    grammar = Grammar(COMPARISONS, lambda word: _variable(word, tensors), source.number)
    base, alternatives = Conjunction(), [Conjunction()]
    for assertion in rest:
        cases = grammar.disjuncts(_asserted(assertion))
        if len(cases) == 1:
            base.extend(cases[0])
        else:
            alternatives = product(alternatives, cases)
    return property_of(base, alternatives, math.prod(source.shape), math.prod(target.shape), source.name_at)


def _tensors(declarations: list[Expression]) -> tuple[_Tensor, _Tensor]:
    match declarations:
        case [["declare-input", str(x), str(x_type)], ["declare-output", str(y), str(y_type)]]:
            source, target = _tensor("X", x, x_type), _tensor("Y", y, y_type)
            if source.name == target.name:
                raise UserError(f"{source.name} is declared twice")
            return source, target
    kinds = [part[0] if isinstance(part, list) and part else part for part in declarations]
    for kind, said in (
        ("declare-hidden", "constraints on hidden neurons cannot be decided"),
        ("equal-to", "several networks cannot be decided"),
        ("isomorphic-to", "several networks cannot be decided"),
    ):
        if kind in kinds:
            raise UserError(said)
    if kinds.count("declare-input") > 1 or kinds.count("declare-output") > 1:
        raise UserError("a network with several inputs or outputs cannot be decided")
    raise UserError(f"not one input and one output: {shown(declarations)}")


def _tensor(kind: str, name: str, type_and_shape: str) -> _Tensor:
    found = _INDEXED.fullmatch(type_and_shape)
    if not _NAME.fullmatch(name) or not found:
        raise UserError(f"not a tensor's name, type and shape: {shown([name, type_and_shape])}")
    return _Tensor(kind, name, found[1], _indices(found[2]))


def _indices(text: str) -> Shape:
    words = [word.strip() for word in text.split(",")] if text.strip() else []
    if not all(word.isdigit() and len(word) < 10 for word in words):
        raise UserError(f"not a list of indices: [{shown(text)}]")
    return tuple(map(int, words))


def _asserted(statement: Expression) -> Expression:
    match statement:
        case ["assert", formula]:
            return formula
        case ["declare-network", *_]:
            raise UserError("several networks cannot be decided")
    raise UserError(f"not an assertion: {shown(statement)}")


def _variable(word: str, tensors: dict[str, _Tensor]) -> Variable:
    found = _INDEXED.fullmatch(word)
    name = found[1] if found else word
    if name not in tensors:
        raise UserError(f"'{shown(word)}' is neither a number nor an element of {' or '.join(tensors)}")
    if found and not found[2].strip():
        raise UserError(f"'{shown(word)}' has no index")
    return tensors[name].variable(_indices(found[2]) if found else ())


def _named(name: str, place: Shape) -> str:
    return f"{name}[{','.join(map(str, place))}]" if place else name


def _names(name: str, shape: Shape) -> list[str]:
    return [_named(name, tuple(map(int, place))) for place in np.ndindex(*shape)]


def format_vnnlib2(
    vnnlib_property: VnnlibProperty, input_shape: Shape | None = None, output_shape: Shape | None = None
) -> str:
    """The text of a property of a network with these shapes, batch axis and all: (1, n) if not given."""
    shapes = [input_shape or (1, vnnlib_property.input_size), output_shape or (1, vnnlib_property.output_size)]
    for kind, shape, size in zip(
        ("in", "out"), shapes, (vnnlib_property.input_size, vnnlib_property.output_size), strict=True
    ):
        if math.prod(shape) != size or min(shape) < 1:
            raise UserError(f"the property has {size} {kind}puts, the shape {list(shape)} does not")
    x, y = (f"float32 [{','.join(map(str, shape))}]" for shape in shapes)
    lines = [f"({VERSION_STATEMENT} <2.0>)", "(declare-network N"]
    lines += [f"    (declare-input X {x})", f"    (declare-output Y {y})", ")"]
    names = _names("X", shapes[0]), _names("Y", shapes[1])
    return "\n".join([*lines, *format_assertions(vnnlib_property, *names, _decimal), ""])


def _decimal(value: float) -> str:
    """A number to the last digit; VNN-LIB 2.0 has no exponents, and a point makes it a float.

    >>> _decimal(1e-05), _decimal(-3.0), _decimal(1e22)
    ('0.00001', '-3.0', '10000000000000000000000.0')
    """
    text = format(Decimal(repr(value)), "f")
    return text if "." in text else f"{text}.0"


def check_by_standard(text: str) -> None:
    """Let the standard's parser read a text of ours, where it is installed."""
    try:
        from vnnlib import parse_query_string
    except ImportError:  # no wheel for this machine, or another package of that name
        return
    try:
        parse_query_string(text)
    except Exception as error:  # its own, and what its C++ lets through
        raise UserError(f"the standard's parser refuses what was to be written: {one_line(error)}") from error
