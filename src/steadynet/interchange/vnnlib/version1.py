"""VNN-LIB 1.0: the text of a property, parsed and formatted.

The variables X_i are the network's inputs and Y_i its outputs. The assertions together describe the counterexamples.
"""

from __future__ import annotations

import re

from steadynet.errors import UserError
from steadynet.interchange.vnnlib.assertions import format_assertions
from steadynet.interchange.vnnlib.formulas import FormulaParser, Variable
from steadynet.interchange.vnnlib.normal_form import NormalForm
from steadynet.interchange.vnnlib.property import VnnlibProperty
from steadynet.interchange.vnnlib.s_expressions import excerpt, parse_expressions

_VARIABLE = re.compile(r"([XY])_(\d{1,9})", re.ASCII)


def parse_vnnlib1(text: str) -> VnnlibProperty:
    """Parse a property in VNN-LIB 1.0."""
    declared: set[Variable] = set()

    def declared_variable(name: str) -> Variable:
        variable = _variable(name)
        if variable not in declared:
            raise UserError(f"{variable.name} is used before it is declared")
        return variable

    parser, asserted = FormulaParser(("<=", ">="), declared_variable), NormalForm()
    for statement in parse_expressions(text):
        match statement:
            case ["declare-const", str(name), "Real"]:
                declared.add(_variable(name))
            case ["assert", formula]:
                asserted.add(parser.formula(formula))
            case _:
                raise UserError(f"not a statement of VNN-LIB 1.0: {excerpt(statement)}")
    input_size, output_size = _count(declared, is_input=True), _count(declared, is_input=False)
    return asserted.to_property(input_size, output_size, lambda index: f"X_{index}")


def _variable(name: str) -> Variable:
    found = _VARIABLE.fullmatch(name)
    if not found:
        raise UserError(f"'{excerpt(name)}' is neither a number nor a variable X_i or Y_i")
    return Variable(found[1] == "X", int(found[2]), f"{found[1]}_{int(found[2])}")


def _count(declared: set[Variable], *, is_input: bool) -> int:
    indices = {variable.flat_index for variable in declared if variable.is_input == is_input}
    if not indices or max(indices) != len(indices) - 1:
        letter = "X" if is_input else "Y"
        raise UserError(f"the variables {letter}_i must be declared from {letter}_0 on, without gaps")
    return len(indices)


def format_vnnlib1(vnnlib_property: VnnlibProperty) -> str:
    """Return a property as text in VNN-LIB 1.0."""
    if any(disjunct.strict for disjunct in vnnlib_property.disjuncts):
        raise UserError("VNN-LIB 1.0 has no strict inequalities: write 2.0")
    inputs = [f"X_{index}" for index in range(vnnlib_property.input_size)]
    outputs = [f"Y_{index}" for index in range(vnnlib_property.output_size)]
    lines = [f"(declare-const {name} Real)" for name in [*inputs, *outputs]]
    return "\n".join([*lines, *format_assertions(vnnlib_property, inputs, outputs, repr), ""])
