"""VNN-LIB 1.0: properties of networks as the competition writes them, read and written.

Variables X_i are inputs, Y_i outputs; the assertions together describe the counterexamples. Every assertion is an atom
(<= or >= between linear terms), or atoms joined by ``and`` and ``or``; the whole becomes a list of cases, any of which
violates the property.
"""

from __future__ import annotations

import gzip
import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from steadynet.errors import UserError
from steadynet.interchange.expressions import Expression, read_expressions
from steadynet.interchange.specification import Case, Specification
from steadynet.run_directory import write_atomically

LARGEST_FILE = 256 * 2**20
MOST_CASES = 10_000
_VARIABLE = re.compile(r"([XY])_(\d{1,9})")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass
class _Conjunction:
    """Atoms that hold together: bounds of single inputs, and linear constraints Σ c·Y ≤ bound."""

    lower: dict[int, float] = field(default_factory=dict)
    upper: dict[int, float] = field(default_factory=dict)
    constraints: list[tuple[dict[int, float], float]] = field(default_factory=list)

    def joined(self, other: _Conjunction) -> _Conjunction:
        """Both together."""
        lower, upper = dict(self.lower), dict(self.upper)
        for index, value in other.lower.items():
            lower[index] = max(lower.get(index, -math.inf), value)
        for index, value in other.upper.items():
            upper[index] = min(upper.get(index, math.inf), value)
        return _Conjunction(lower, upper, self.constraints + other.constraints)


def read_vnnlib(path: str | Path) -> Specification:
    """The property in a file, packed by gzip or not; anything malformed is an error of one line that names the file."""
    text = _text(Path(path))
    try:
        return parse_vnnlib(text)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def _text(path: Path) -> str:
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise UserError(f"{path} is larger than {LARGEST_FILE >> 20} MiB")
        return content.decode("utf-8")
    except (OSError, EOFError, UnicodeDecodeError, ValueError) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error


def parse_vnnlib(text: str) -> Specification:
    """The property that a text describes."""
    declared: dict[str, set[int]] = {"X": set(), "Y": set()}
    base, alternatives = _Conjunction(), [_Conjunction()]
    for statement in read_expressions(text):
        match statement:
            case ["declare-const", str(name), "Real"]:
                kind, index = _variable(name)
                declared[kind].add(index)
            case ["assert", formula]:
                cases = _cases(formula)
                if len(cases) == 1:
                    base = base.joined(cases[0]) if _is_compound(formula) else _extend(base, cases[0])
                else:
                    alternatives = _product(alternatives, cases)
            case _:
                raise UserError(f"not a statement of VNN-LIB 1.0: {_shown(statement)}")
    inputs, outputs = (_count(declared[kind], kind) for kind in "XY")
    return Specification(inputs, outputs, tuple(_case(base.joined(part), inputs, outputs) for part in alternatives))


def _extend(base: _Conjunction, atom: _Conjunction) -> _Conjunction:
    """``joined`` in place: files have thousands of single bounds."""
    for index, value in atom.lower.items():
        base.lower[index] = max(base.lower.get(index, -math.inf), value)
    for index, value in atom.upper.items():
        base.upper[index] = min(base.upper.get(index, math.inf), value)
    base.constraints.extend(atom.constraints)
    return base


def _is_compound(formula: Expression) -> bool:
    return isinstance(formula, list) and bool(formula) and formula[0] in ("and", "or")


def _cases(formula: Expression) -> list[_Conjunction]:
    """A formula as cases, any of which may hold."""
    match formula:
        case ["and", *parts] if parts:
            cases = [_Conjunction()]
            for part in parts:
                cases = _product(cases, _cases(part))
            return cases
        case ["or", *parts] if parts:
            return _limited([case for part in parts for case in _cases(part)])
        case ["<=", left, right]:
            return [_atom(_linear(left), _linear(right))]
        case [">=", left, right]:
            return [_atom(_linear(right), _linear(left))]
    raise UserError(f"not a formula of and, or, <= and >=: {_shown(formula)}")


def _product(ones: list[_Conjunction], others: list[_Conjunction]) -> list[_Conjunction]:
    if len(ones) * len(others) > MOST_CASES:
        raise UserError(f"the property has more than {MOST_CASES} cases")
    return [one.joined(other) for one in ones for other in others]


def _limited(cases: list[_Conjunction]) -> list[_Conjunction]:
    if len(cases) > MOST_CASES:
        raise UserError(f"the property has more than {MOST_CASES} cases")
    return cases


Linear = tuple[dict[str, float], float]  # coefficients by variable, and a constant


def _linear(term: Expression) -> Linear:
    match term:
        case str(word) if _NUMBER.fullmatch(word):
            return {}, _finite(float(word))
        case str(word):
            _variable(word)
            return {word: 1.0}, 0.0
        case ["+", *parts] if parts:
            return _sum(_linear(part) for part in parts)
        case ["-", part]:
            return _scaled(_linear(part), -1.0)
        case ["-", first, *others]:
            return _sum([_linear(first), *(_scaled(_linear(part), -1.0) for part in others)])
        case ["*", one, other]:
            left, right = _linear(one), _linear(other)
            if left[0] and right[0]:
                raise UserError(f"a product of variables is not linear: {_shown(term)}")
            return _scaled(left, right[1]) if left[0] else _scaled(right, left[1])
    raise UserError(f"not a linear term: {_shown(term)}")


def _sum(parts: Iterable[Linear]) -> Linear:
    coefficients: dict[str, float] = {}
    constant = 0.0
    for part, added in parts:
        constant = _finite(constant + added)
        for name, value in part.items():
            coefficients[name] = _finite(coefficients.get(name, 0.0) + value)
    return coefficients, constant


def _scaled(part: Linear, factor: float) -> Linear:
    return {name: _finite(value * factor) for name, value in part[0].items()}, _finite(part[1] * factor)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise UserError("a number is too large")
    return value


def _atom(left: Linear, right: Linear) -> _Conjunction:
    """left ≤ right."""
    coefficients, constant = _sum([left, _scaled(right, -1.0)])
    coefficients = {name: value for name, value in coefficients.items() if value}
    inputs = [name for name in coefficients if name.startswith("X")]
    if not coefficients:
        raise UserError("a comparison without a variable says nothing")
    if not inputs:
        return _Conjunction(constraints=[({_variable(name)[1]: c for name, c in coefficients.items()}, -constant)])
    if len(coefficients) > 1:
        raise UserError(f"only bounds of single inputs can be read, not a constraint on {', '.join(coefficients)}")
    index, factor = _variable(inputs[0])[1], coefficients[inputs[0]]
    value = _finite(-constant / factor)
    return _Conjunction(upper={index: value}) if factor > 0 else _Conjunction(lower={index: value})


def _variable(name: str) -> tuple[str, int]:
    found = _VARIABLE.fullmatch(name)
    if not found:
        raise UserError(f"'{name[:40]}' is neither a number nor a variable X_i or Y_i")
    return found[1], int(found[2])


def _count(indices: set[int], kind: str) -> int:
    if not indices or max(indices) != len(indices) - 1:
        raise UserError(f"the variables {kind}_i must be declared from {kind}_0 on, without gaps")
    return len(indices)


def _case(part: _Conjunction, inputs: int, outputs: int) -> Case:
    for kind, size, used in (
        ("X", inputs, [*part.lower, *part.upper]),
        ("Y", outputs, [index for constraint, _ in part.constraints for index in constraint]),
    ):
        if used and max(used) >= size:
            raise UserError(f"{kind}_{max(used)} is used, but never declared")
    missing = [index for index in range(inputs) if index not in part.lower or index not in part.upper]
    if missing:
        raise UserError(f"X_{missing[0]} has no lower or no upper bound")
    matrix = np.zeros((len(part.constraints), outputs))
    for row, (constraint, _) in enumerate(part.constraints):
        for index, value in constraint.items():
            matrix[row, index] = value
    return Case(
        np.array([part.lower[index] for index in range(inputs)]),
        np.array([part.upper[index] for index in range(inputs)]),
        matrix,
        np.array([bound for _, bound in part.constraints]),
    )


def _shown(expression: Expression) -> str:
    text = expression if isinstance(expression, str) else "(" + " ".join(map(_shown, expression[:4])) + ")"
    return text if len(text) <= 60 else text[:60] + "…"


def write_vnnlib(path: str | Path, specification: Specification) -> None:
    """The property as VNN-LIB 1.0, numbers to the last digit; cases must share one box."""
    text = format_vnnlib(specification)
    write_atomically(Path(path), lambda temporary: temporary.write_text(text, encoding="utf-8"))


def format_vnnlib(specification: Specification) -> str:
    """The text of a property."""
    lines = [f"(declare-const X_{index} Real)" for index in range(specification.inputs)]
    lines += [f"(declare-const Y_{index} Real)" for index in range(specification.outputs)]
    parts = ["    " + _formatted(case) for case in specification.cases]
    return "\n".join([*lines, "(assert (or", *parts, "))", ""])


def _formatted(case: Case) -> str:
    atoms = [f"(>= X_{index} {value!r})" for index, value in enumerate(case.lower.tolist())]
    atoms += [f"(<= X_{index} {value!r})" for index, value in enumerate(case.upper.tolist())]
    for row, bound in zip(case.matrix.tolist(), case.bound.tolist(), strict=True):
        terms = " ".join(f"(* {value!r} Y_{index})" for index, value in enumerate(row) if value)
        atoms.append(f"(<= (+ {terms}) {bound!r})")
    return f"(and {' '.join(atoms)})"
