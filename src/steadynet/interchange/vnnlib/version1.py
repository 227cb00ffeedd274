"""VNN-LIB 1.0: the text of a property, parsed and formatted.

The variables X_i are the network's inputs and Y_i its outputs. The assertions together describe the counterexamples.
"""

from __future__ import annotations

import re

from steadynet.errors import UserError
from steadynet.interchange.vnnlib.assertions import format_assertions
from steadynet.interchange.vnnlib.conjunctions import Conjunction, product, property_of
from steadynet.interchange.vnnlib.formulas import Grammar, Variable
from steadynet.interchange.vnnlib.property import VnnlibProperty
from steadynet.interchange.vnnlib.s_expressions import read_expressions, shown

_VARIABLE = re.compile(r"([XY])_(\d{1,9})", re.ASCII)


def parse_vnnlib1(text: str) -> VnnlibProperty:
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
                cases = grammar.disjuncts(formula)
                if len(cases) == 1:
                    base.extend(cases[0])
                else:
                    alternatives = product(alternatives, cases)
            case _:
                raise UserError(f"not a statement of VNN-LIB 1.0: {shown(statement)}")
    inputs, outputs = (_count(declared[kind], kind) for kind in "XY")
    return property_of(base, alternatives, inputs, outputs, lambda index: f"X_{index}")


def _variable(name: str) -> Variable:
    found = _VARIABLE.fullmatch(name)
    if not found:
        raise UserError(f"'{shown(name)}' is neither a number nor a variable X_i or Y_i")
    return Variable(found[1], int(found[2]), f"{found[1]}_{int(found[2])}")


def _count(indices: set[int], kind: str) -> int:
    if not indices or max(indices) != len(indices) - 1:
        raise UserError(f"the variables {kind}_i must be declared from {kind}_0 on, without gaps")
    return len(indices)


def format_vnnlib1(specification: VnnlibProperty) -> str:
    """The text of a property in VNN-LIB 1.0."""
    if any(case.strict for case in specification.disjuncts):
        raise UserError("VNN-LIB 1.0 has no strict inequalities: write 2.0")
    inputs = [f"X_{index}" for index in range(specification.input_size)]
    outputs = [f"Y_{index}" for index in range(specification.output_size)]
    lines = [f"(declare-const {name} Real)" for name in [*inputs, *outputs]]
    return "\n".join([*lines, *format_assertions(specification, inputs, outputs, repr), ""])
