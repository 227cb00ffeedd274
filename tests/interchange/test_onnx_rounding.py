"""ONNX files whose arithmetic rounds: nothing is folded as if it did not, and every tensor is compared by itself."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper

from onnx_files import runtime, same_as_runtime, weights, write
from steadynet.errors import UserError
from steadynet.graph.operations import Dense, Scale
from steadynet.interchange.onnx import reader, writer
from steadynet.interchange.onnx.reader import read_onnx
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.verification.properties import Verdict
from steadynet.verification.vnncomp import Instance, decide

LARGE = np.float32(2**27)  # beside it, float32 does not see numbers below 8


def node(kind: str, *names: str, **options) -> onnx.NodeProto:
    *inputs, output = names
    return helper.make_node(kind, inputs, [output], **options)


def constant(*numbers: float) -> np.ndarray:
    return np.array(numbers, dtype=np.float32)


# what computes y from x in float32 as 0 wherever 0 ≤ x ≤ 7, and as x in exact arithmetic
SWALLOWING = {
    "sum and difference": [node("Add", "x", "large", "a"), node("Sub", "a", "large", "y")],
    "difference and sum": [node("Sub", "x", "large", "a"), node("Add", "large", "a", "y")],
    "negated": [node("Sub", "large", "x", "a"), node("Sub", "large", "a", "y")],
    "signs between": [
        node("Add", "x", "large", "a"), node("Neg", "a", "b"), node("Neg", "b", "c"), node("Sub", "c", "large", "y"),
    ],
    "sum of many": [node("Sum", "x", "large", "minus", "y")],
    "sum of many, constant first": [node("Sum", "large", "x", "minus", "y")],
    "bias of a dense layer": [
        node("Gemm", "x", "one", "large", "a", transB=1), node("Sub", "a", "large", "y"),
    ],
    "bias after a matrix product": [
        node("MatMul", "x", "one", "a"), node("Add", "a", "large", "b"), node("Add", "b", "minus", "y"),
    ],
    "scaled": [
        node("Add", "x", "large", "a"), node("Mul", "a", "four", "b"), node("Sub", "b", "large4", "c"),
        node("Div", "c", "four", "y"),
    ],
    "batch norm": [
        node("Unsqueeze", "x", "axis", "u"),
        node("BatchNormalization", "u", "ones", "biggest", "zeros", "ones", "v", epsilon=0.0),
        node("Squeeze", "v", "axis", "w"), node("Sub", "w", "large", "y"),
    ],
}  # fmt: skip
GIVEN = {
    "large": constant(LARGE), "minus": constant(-LARGE), "one": constant(1).reshape(1, 1), "four": constant(4),
    "large4": constant(4 * LARGE), "axis": np.array([2]), "ones": constant(1), "zeros": constant(0),
    "biggest": constant(LARGE),
}  # fmt: skip


def with_given(path: Path, nodes: list[onnx.NodeProto], shape: list[int], more: dict | None = None) -> Path:
    given = GIVEN | (more or {})
    used = {name for entry in nodes for name in entry.input}
    return write(path, nodes, {name: value for name, value in given.items() if name in used}, shape)


def vnnlib(path: Path, low: float, high: float, *constraints: str, outputs: int = 1) -> Path:
    lines = ["(declare-const X_0 Real)", *(f"(declare-const Y_{index} Real)" for index in range(outputs))]
    lines += [f"(assert (>= X_0 {low}))", f"(assert (<= X_0 {high}))", *(f"(assert {part})" for part in constraints)]
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("name", SWALLOWING)
@pytest.mark.parametrize("verifier", ["branch_and_bound", "milp"])
def test_large_constants_that_cancel_are_not_folded(name, verifier, tmp_path):
    """In exact arithmetic 1 ≤ y ≤ 2 would be proved; ONNX Runtime computes 0."""
    path = with_given(tmp_path / "model.onnx", SWALLOWING[name], [1, 1])
    assert float(runtime(path, constant(1.5).reshape(1, 1)).reshape(())) == 0
    result = decide(Instance(path, vnnlib(tmp_path / "p.vnnlib", 1, 2, "(<= Y_0 0.5)"), 20), verifier)
    assert result.verdict is not Verdict.UNSAT
    wide = decide(Instance(path, vnnlib(tmp_path / "q.vnnlib", 1, 2, "(<= Y_0 -1000)"), 20), verifier)
    assert wide.verdict is Verdict.UNSAT


@pytest.mark.parametrize("name", SWALLOWING)
def test_the_network_read_computes_what_the_file_does(name, tmp_path):
    path = with_given(tmp_path / "model.onnx", SWALLOWING[name], [1, 1])
    network = read_onnx(path)
    points = torch.linspace(-40, 40, 101).view(-1, 1)
    expected = [float(runtime(path, point.view(1, 1).numpy()).reshape(())) for point in points]
    assert network(points).flatten().tolist() == expected


def test_what_is_exact_is_still_merged(tmp_path):
    nodes = [
        node("Neg", "x", "a"), node("Mul", "a", "four", "b"), node("Add", "b", "ones", "c"), node("Neg", "c", "d"),
        node("MatMul", "d", "one", "e"), node("Add", "e", "four", "y"),
    ]  # fmt: skip
    path = with_given(tmp_path / "model.onnx", nodes, [1, 1])
    first, second = read_onnx(path).graph.nodes
    assert isinstance(first.operation, Scale)
    assert (first.operation.factor.item(), first.operation.shift.item(), first.operation.roundings) == (4, -1, 0)
    assert isinstance(second.operation, Dense)
    assert second.operation.bias is not None


ROUNDED = {
    "a quotient": ([node("Div", "x", "three", "y")], 1),
    "a quotient by a power of two": ([node("Div", "x", "four", "y")], 0),
    "a folded quotient": ([node("Div", "four", "three", "c"), node("Mul", "x", "c", "y")], 1),
    "a folded root": ([node("Sqrt", "three", "c"), node("Add", "x", "c", "y")], 1),
    "a folded root that is exact": ([node("Sqrt", "four", "c"), node("Mul", "c", "x", "y")], 0),
    "a folded sum that is exact": ([node("Add", "four", "three", "c"), node("Mul", "c", "x", "y")], 0),
    "a folded sum that is not": ([node("Add", "large", "three", "c"), node("Mul", "c", "x", "y")], 1),
    "a product of what was rounded": (
        [node("Div", "four", "three", "c"), node("Mul", "c", "c", "d"), node("Mul", "x", "d", "y")], 4,
    ),
    "alpha": ([node("Gemm", "x", "one", "y", alpha=0.1)], 1),
    "beta": ([node("Gemm", "x", "one", "three", "y", beta=0.1)], 1),
    "a mean": ([node("MatMul", "x", "three_columns", "a"), node("ReduceMean", "a", "y", axes=[1])], 1),
}  # fmt: skip


@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_constants_are_counted(name, tmp_path):
    nodes, expected = ROUNDED[name]
    more = {"three": constant(3), "three_columns": constant(1, 2, 3).reshape(1, 3)}
    path = with_given(tmp_path / "model.onnx", nodes, [1, 1], more)
    operations = [entry.operation for entry in same_as_runtime(path, [1, 1]).graph.nodes]
    assert max(getattr(operation, "roundings", 0) for operation in operations) == expected


LOST = {
    "a folded sum that cancels": (
        [node("Add", "small", "large", "a"), node("Sub", "a", "large", "c"), node("Add", "x", "c", "y")],
        "lose their digits",
    ),
    "a product that underflows": ([node("Gemm", "x", "tiny", "y", alpha=1e-30)], "overflow or underflow"),
    "a quotient that underflows": ([node("Div", "x", "huge", "y")], "overflow or underflow"),
    "a folded product that underflows": (
        [node("Mul", "tiny", "tiny", "c"), node("Mul", "x", "c", "y")], "lose their digits",
    ),
    "a division by zero": ([node("Div", "x", "zeros", "y")], "a division by zero"),
    "a clip to a rounded limit": (
        [node("Div", "number", "three", "c"), node("Clip", "x", "c", "y")], "rounded when they are computed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LOST)
def test_constants_that_lose_their_digits_are_refused(name, tmp_path):
    nodes, message = LOST[name]
    more = {
        "small": constant(3), "tiny": constant(1e-30).reshape(1, 1), "huge": constant(3e38),
        "number": np.float32(1), "three": np.float32(3),
    }  # fmt: skip
    path = with_given(tmp_path / "model.onnx", nodes, [1, 1], more)
    with pytest.raises(UserError, match=message) as caught:
        read_onnx(path)
    assert "\n" not in str(caught.value)


def misread(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Make the reader take an operator for one that leaves its data as it is."""
    monkeypatch.setitem(reader.OPERATORS, kind, lambda entry, builder: entry.value(0))


def two_outputs(path: Path, offset: float) -> Path:
    """Write a network with the outputs −10⁶ and max(0, x) + offset."""
    nodes = [
        node("Gemm", "x", "both", "biases", "a"), node("Add", "a", "offset", "b"), node("Relu", "b", "c"),
        node("Add", "c", "last", "y"),
    ]  # fmt: skip
    given = {
        "both": constant(0, 1).reshape(1, 2), "biases": constant(0, 0), "offset": constant(0, offset),
        "last": constant(-1e6, 0),
    }  # fmt: skip
    return write(path, nodes, given, [1, 1])


@pytest.mark.parametrize("kind", ["Add", "Relu"])
def test_a_large_output_hides_no_wrong_one(kind, tmp_path, monkeypatch):
    path = two_outputs(tmp_path / "model.onnx", 0.25)
    read_onnx(path)
    misread(monkeypatch, kind)
    with pytest.raises(UserError, match="ONNX Runtime computes something else"):
        read_onnx(path)


def test_a_reading_that_is_wrong_in_the_box_alone_is_found(tmp_path, monkeypatch):
    """relu(x − 1000) is 0 on ordinary inputs, however it is read; in the box of the property it is not."""
    nodes = [node("Sub", "x", "far", "a"), node("Relu", "a", "b"), node("Add", "b", "ones", "y")]
    path = with_given(tmp_path / "model.onnx", nodes, [1, 1], {"far": constant(1000)})

    def zero(entry, builder):
        return builder.multiply(entry.value(0), 0.0)

    monkeypatch.setitem(reader.OPERATORS, "Relu", zero)
    read_onnx(path)
    with pytest.raises(UserError, match="ONNX Runtime computes something else"):
        decide(Instance(path, vnnlib(tmp_path / "p.vnnlib", 999, 1001, "(>= Y_0 1.5)"), 20))


def test_export_compares_each_output_by_itself(tmp_path, monkeypatch):
    """A bias that is written wrongly beside an output of −10⁶."""
    layer = torch.nn.Sequential(torch.nn.Linear(2, 2))
    with torch.no_grad():
        layer[0].bias.copy_(torch.tensor([-1e6, 0.3]))
    path = tmp_path / "model.onnx"
    export_onnx(layer, (2,), path)
    original = writer._OnnxGraph.add_weight
    monkeypatch.setattr(writer._OnnxGraph, "add_weight", lambda graph, tensor: original(graph, tensor + 0.01))
    with pytest.raises(UserError, match="ONNX Runtime computes something else"):
        export_onnx(layer, (2,), path)


def chain(path: Path, random: np.random.Generator) -> Path:
    """Write a chain of sums, products and quotients with constants of all sizes, on one number."""
    nodes, given, name = [], {}, "x"
    for step in range(int(random.integers(2, 7))):
        constants = [constant(random.normal() * 10.0 ** random.uniform(-3, 9))]
        constants += [-given[key] for key in given] * 2  # so that something cancels
        given[f"c{step}"] = constants[int(random.integers(len(constants)))]
        kind = str(random.choice(["Add", "Sub", "Mul", "Div", "Neg"]))
        operands = [name] if kind == "Neg" else [name, f"c{step}"]
        if kind in ("Add", "Sub", "Mul") and random.random() < 0.5:
            operands.reverse()
        nodes.append(node(kind, *operands, f"v{step}"))
        name = f"v{step}"
    nodes.append(node("Identity", name, "y"))
    used = {operand for entry in nodes for operand in entry.input}
    return write(path, nodes, {key: given[key] for key in given if key in used}, [1, 1])


def test_random_chains_of_arithmetic(tmp_path):
    """What ONNX Runtime computes at a point of a box is never proved to be impossible there."""
    random = np.random.default_rng(0)
    decided = 0
    for number in range(60):
        path = chain(tmp_path / f"{number}.onnx", random)
        point = constant(random.normal()).reshape(1, 1)
        value, (low, high) = float(runtime(path, point)[0, 0]), (float(point[0, 0]) - 1e-3, float(point[0, 0]) + 1e-3)
        for constraint in (f"({sign} Y_0 {Decimal(value):f})" for sign in ("<=", ">=")):
            try:
                result = decide(Instance(path, vnnlib(tmp_path / "p.vnnlib", low, high, constraint), 10))
            except UserError:
                continue
            decided += 1
            assert result.verdict is not Verdict.UNSAT, (number, constraint)
    assert decided > 80


def test_what_overflows_is_refused_as_such(tmp_path):
    nodes = [node("Mul", "x", "huge", "a"), node("Mul", "a", "huge", "b"), node("Sub", "b", "b", "c")]
    path = with_given(
        tmp_path / "model.onnx", [*nodes, node("Identity", "c", "y")], [1, 1], {"huge": constant(2.0**80)}
    )
    with pytest.raises(UserError, match="it overflows: layer 'b' computes inf"):
        read_onnx(path)


def test_weights_of_ordinary_layers_are_not_counted_as_rounded(tmp_path):
    nodes = [node("Conv", "x", "kernel", "bias", "a"), node("Relu", "a", "b"), node("Flatten", "b", "c")]
    nodes += [node("Gemm", "c", "matrix", "last", "y")]
    given = {"kernel": weights(2, 1, 3, 3), "bias": weights(2), "matrix": weights(8, 3), "last": weights(3)}
    graph = read_onnx(write(tmp_path / "model.onnx", nodes, given, [1, 1, 4, 4])).graph
    assert all(getattr(entry.operation, "roundings", 0) == 0 for entry in graph.nodes)


@pytest.mark.parametrize("constants", [0, 1])
def test_a_sum_of_many_tensors_may_be_run_in_any_order(constants, tmp_path):
    """In the order of the file, a − a + 30 c is 0.0291. With all c between the two, float32 swallows each of them."""
    large, small, count = np.float32(16384), np.float32(0.00097), 30
    swallowed = large
    for _ in range(count):
        swallowed = np.float32(swallowed + small)
    assert swallowed - large == 0
    parts = [f"c{index}" for index in range(count - constants)] + ["c"] * constants
    nodes = [node("Slice", "x", "zero", "one", "axis", "a"), node("Neg", "a", "b")]
    nodes += [node("Slice", "x", "one", "two", "axis", name) for name in parts if name != "c"]
    nodes.append(node("Sum", "a", "b", *parts, "y"))
    given = {name: np.array([number]) for name, number in (("zero", 0), ("one", 1), ("two", 2), ("axis", 1))}
    network = write(tmp_path / "sum.onnx", nodes, {**given, "c": constant(small)}, [1, 2])
    point = f"(assert (= X_0 {large})) (assert (= X_1 {float(small)!r}))".replace("=", "<=")
    point += point.replace("<=", ">=")
    text = "(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real)" + point
    (tmp_path / "sum.vnnlib").write_text(text + "(assert (<= Y_0 0.01))")
    assert decide(Instance(network, tmp_path / "sum.vnnlib", 10)).verdict is not Verdict.UNSAT
    (tmp_path / "sum.vnnlib").write_text(text + "(assert (<= Y_0 -5.0))")
    assert decide(Instance(network, tmp_path / "sum.vnnlib", 10)).verdict is Verdict.UNSAT
