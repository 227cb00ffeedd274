"""The judge of the fuzzing: a mutated file must be refused in one line, or be read as what it says."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import torch
import vnnlib

from fuzz_outcomes import Kind
from steadynet.errors import UserError
from steadynet.interchange.onnx.reader import read_onnx
from steadynet.interchange.onnx.runtime import runtime_function
from steadynet.interchange.vnnlib.files import read_vnnlib
from steadynet.interchange.vnnlib.property import VnnlibProperty
from steadynet.interchange.vnnlib.s_expressions import Expression, first_keyword, parse_expressions
from steadynet.interchange.vnnlib.version1 import format_vnnlib1, parse_vnnlib1
from steadynet.interchange.vnnlib.version2 import format_vnnlib2, parse_vnnlib2
from vnnlib_properties import same

POINTS = 6
NEAR = Fraction(1, 10**5)

# from inputs and outputs to: whether they violate the property, and whether rounding cannot have changed that
Truth = Callable[[np.ndarray, np.ndarray], tuple[bool, bool]]


class WrongError(Exception):
    """What was read is not what the file says."""


def judge(path: Path) -> Kind:
    """Whether a file was refused or read; anything that is raised is a fault of the reader."""
    try:
        found = read_onnx(path) if path.suffix == ".onnx" else read_vnnlib(path)
    except UserError as error:
        if "\n" in str(error) or not str(error):
            raise WrongError(f"not one line: {error!r}") from error
        return Kind.REFUSED
    if path.suffix == ".onnx":
        _judge_network(path, found)
    else:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        _judge_property(content.decode(), found)
    return Kind.READ


def _judge_network(path: Path, network: torch.nn.Module) -> None:
    model = onnx.load(path)
    given = {entry.name for entry in model.graph.initializer}
    (entry,) = (entry for entry in model.graph.input if entry.name not in given)
    shape = [max(1, axis.dim_value) for axis in entry.type.tensor_type.shape.dim]
    image = np.random.default_rng(99).uniform(-1, 1, shape).astype(np.float32)
    expected = runtime_function(model)(image).reshape(-1)
    with torch.no_grad():
        found = network(torch.from_numpy(image).view(1, *network.input_shape))[0].numpy()
    if found.shape != expected.shape or not np.allclose(
        found, expected, rtol=0, atol=1e-3 * (float(np.abs(expected).max()) + 0.01)
    ):
        raise WrongError(f"{found} is read, but ONNX Runtime computes {expected}")


def _judge_property(text: str, found: VnnlibProperty) -> None:
    if not any(disjunct.strict for disjunct in found.disjuncts) and not same(
        parse_vnnlib1(format_vnnlib1(found)), found
    ):
        raise WrongError("it is another property after it was written as 1.0 and read again")
    if not same(parse_vnnlib2(format_vnnlib2(found)), found):
        raise WrongError("it is another property after it was written as 2.0 and read again")
    truth = _truth_of_version2(text) if first_keyword(text) == "vnnlib-version" else _truth_of_version1(text)
    random = np.random.default_rng(len(text))
    for turn in range(POINTS if truth else 0):
        box = found.disjuncts[turn % len(found.disjuncts)]
        weight = random.choice([0, 0, 0.5, 1, 1], found.input_size)
        inputs = (box.lower + weight * (box.upper - box.lower)).astype(np.float32).astype(np.float64)
        outputs = random.integers(-8, 9, found.output_size) / 4
        violated, clear = truth(inputs, outputs)
        if clear and violated != any(disjunct.satisfied_by(inputs, outputs) for disjunct in found.disjuncts):
            raise WrongError(f"at {inputs}, {outputs} the file says {violated}, the property that was read does not")


class _Comparison:
    """Compares exactly, and remembers whether the reader's float64 numbers can tell the two sides apart."""

    def __init__(self) -> None:
        self.clear = True

    def compare(self, sign: str, left: Fraction, right: Fraction) -> bool:
        dyadic = all(
            side.denominator <= 2**30 and side.denominator & (side.denominator - 1) == 0 for side in (left, right)
        )
        small = abs(left) + abs(right) < 2**20
        if not (dyadic and small) and abs(left - right) <= NEAR * (1 + abs(left) + abs(right)):
            self.clear = False
        signs = {"<=": left <= right, ">=": left >= right, "<": left < right, ">": left > right}
        return (signs | {"==": left == right, "!=": left != right})[sign]


def _truth_of_version1(text: str) -> Truth:
    formulas = [statement[1] for statement in parse_expressions(text) if statement[0] == "assert"]

    def truth(inputs: np.ndarray, outputs: np.ndarray) -> tuple[bool, bool]:
        comparison, values = _Comparison(), {"X": inputs, "Y": outputs}

        def number(term: Expression) -> Fraction:
            if isinstance(term, str):
                return Fraction(values[term[0]][int(term[2:])]) if term[0] in values else Fraction(term)
            return _calculate(term[0], [number(part) for part in term[1:]])

        def holds(formula: Expression) -> bool:
            if formula[0] in ("and", "or"):
                parts = [holds(part) for part in formula[1:]]
                return all(parts) if formula[0] == "and" else any(parts)
            return comparison.compare(formula[0], number(formula[1]), number(formula[2]))

        return holds(["and", *formulas]), comparison.clear

    return truth


def _calculate(sign: str, numbers: list[Fraction]) -> Fraction:
    if sign == "*":
        result = Fraction(1)
        for factor in numbers:
            result *= factor
        return result
    if sign == "+":
        return sum(numbers, Fraction(0))
    return numbers[0] - sum(numbers[1:], Fraction(0)) if len(numbers) > 1 else -numbers[0]


SIGNS = {
    vnnlib.LessEqual: "<=", vnnlib.GreaterEqual: ">=", vnnlib.LessThan: "<", vnnlib.GreaterThan: ">",
    vnnlib.Equal: "==", vnnlib.NotEqual: "!=",
}  # fmt: skip


def _truth_of_version2(text: str) -> Truth | None:
    """The truth by the standard's own parser; None if it refuses the text, since it is stricter about numbers."""
    try:
        query = vnnlib.parse_query_string(text)
    except Exception:
        return None

    def truth(inputs: np.ndarray, outputs: np.ndarray) -> tuple[bool, bool]:
        comparison, values = _Comparison(), {vnnlib.SymbolKind.Input: inputs, vnnlib.SymbolKind.Output: outputs}

        def number(term: vnnlib.ArithExpr) -> Fraction:
            if isinstance(term, vnnlib.Var):
                return Fraction(values[term.kind].reshape(term.shape)[tuple(term.indices)])
            if isinstance(term, vnnlib.Literal):
                return Fraction(term.lexeme)
            sign = {vnnlib.Plus: "+", vnnlib.Multiply: "*"}.get(type(term), "-")
            return _calculate(sign, [number(part) for part in term.children()])

        def holds(formula: vnnlib.BoolExpr) -> bool:
            if isinstance(formula, vnnlib.Connective):
                parts = [holds(part) for part in formula.args]
                return all(parts) if isinstance(formula, vnnlib.And) else any(parts)
            return comparison.compare(SIGNS[type(formula)], number(formula.lhs), number(formula.rhs))

        violated = [holds(assertion.expr) for assertion in query.assertions]
        return all(violated), comparison.clear

    return truth
