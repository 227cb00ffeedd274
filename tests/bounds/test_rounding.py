"""Bounds with every rounding counted, against networks that are evaluated without rounding, or in any order."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from exact_arithmetic import ORDERS, Exact, Float, exact_input, float_input, values
from extreme_networks import Sample, sample
from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.crown import propagate
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.optimised import Ascent, optimise, refined
from steadynet.bounds.precision import in_float64
from steadynet.bounds.queries import BoundQuery, Trail
from steadynet.bounds.rounding import RoundingRecorder, size_per_channel, sum_of_negatives
from steadynet.graph.graph import Graph, Node
from steadynet.graph.operations import Convolution, Dense, Interval, ReLU, Scale, Sum
from steadynet.graph.rounding import Arithmetic, Execution, execution_error
from steadynet.graph.translate import graph_of

SEEDS = st.integers(0, 10**6)
EXACT, FLOAT32 = (Execution(arithmetic, torch.float32) for arithmetic in (Arithmetic.EXACT, Arithmetic.FLOAT32))


def bounded(graph: Graph, lower: Tensor, upper: Tensor, execution: Execution) -> tuple[BoundedNetwork, list[Interval]]:
    with torch.no_grad():
        return propagate(graph, Interval(lower, upper), execution=execution)


def proved(network: BoundedNetwork, rows: Tensor, trail: Trail | None = None) -> Tensor:
    """Lower bounds of rows · output for the one property of a network."""
    owner = torch.zeros(len(rows), dtype=torch.long)
    query = BoundQuery(network.output, LinearFunctions(rows.to(network.box.lower)), owner)
    with torch.no_grad():
        return network.relaxed().lower(query, trail).proved


# Constants that are not numbers of the network, but are computed from such and rounded.


class Divided(nn.Module):
    """x / 3: the graph multiplies by 1/3, rounded."""

    def forward(self, images: Tensor) -> Tensor:
        return images / 3.0


def clipped(value: float) -> Fraction:
    return min(max(Fraction(value), Fraction(float(torch.tensor(-0.1)))), Fraction(float(torch.tensor(0.3))))


def leaky(value: float) -> Fraction:
    return Fraction(value) * (1 if value > 0 else Fraction(float(torch.tensor(0.01))))


def normalised(value: float) -> Fraction:
    """(x − 0.7) / √(0.3 + 1e-5) + 1.278 to fifty digits: the shift nearly cancels."""
    with localcontext() as context:
        context.prec = 50
        mean, variance, bias = (Decimal(float(torch.tensor(number))) for number in (0.7, 0.3, 1.278))
        return Fraction((Decimal(value) - mean) / (variance + Decimal("1e-5")).sqrt() + bias)


def batch_norm() -> nn.BatchNorm1d:
    layer = nn.BatchNorm1d(1)
    for constant, value in ((layer.running_mean, 0.7), (layer.running_var, 0.3), (layer.bias, 1.278)):
        constant.data.fill_(value)
    return layer.eval()


CONSTANTS: dict[str, tuple[nn.Module, Callable[[float], Fraction], float]] = {
    "division": (Divided(), lambda value: Fraction(value) / 3, 1.0),
    "clipping": (nn.Hardtanh(-0.1, 0.3), clipped, -1.0),
    "leaky ReLU": (nn.LeakyReLU(0.01), leaky, -1.0),
    "batch norm": (batch_norm(), normalised, 1.0),
    "batch norm at zero": (batch_norm(), normalised, 2.0**-20),
}


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("execution", [EXACT, FLOAT32], ids=["exact", "float32"])
def test_constants_that_the_graph_rounds(name: str, execution: Execution) -> None:
    layer, truth, place = CONSTANTS[name]
    point, rows = torch.tensor([[place]]), torch.tensor([[1.0], [-1.0]])
    network, every = bounded(graph_of(nn.Sequential(layer), (1,)), point, point, execution)
    for bounds in (proved(network, rows), proved(in_float64(network), rows)):
        assert Fraction(float(bounds[0])) <= truth(place) <= -Fraction(float(bounds[1]))
    assert Fraction(float(every[-1].lower)) <= truth(place) <= Fraction(float(every[-1].upper))


# Two ReLUs read one value: the multipliers of their splits may cancel where each by itself is rounded.


@pytest.mark.parametrize("large", [1e3, 1e6, 1e9])
def test_multipliers_that_cancel_at_a_value_that_two_relus_read(large: float) -> None:
    one = torch.ones(1, 1)
    layers = [Node("z", Dense(one, None), (0,)), Node("first", ReLU(), (1,)), Node("second", ReLU(), (1,))]
    third = Scale(torch.tensor(1 / 3), torch.tensor(0.0))
    graph = Graph((*layers, Node("third", third, (3,)), Node("sum", Sum(), (2, 4))))
    point = torch.tensor([[3.0]])
    network, _ = bounded(graph, point, point, EXACT)
    for seed in range(50):
        torch.manual_seed(seed)
        multiplier = torch.rand(1, 1) * large  # β·z is taken away at one ReLU and added at the other
        query = BoundQuery(graph.output, LinearFunctions(one), None, multipliers={2: multiplier, 3: -multiplier})
        with torch.no_grad():
            found = network.relaxed().lower(query).proved
        assert Fraction(float(found)) <= 3 + 3 * Fraction(float(third.factor))


def layer_errors(sampled: Sample, order: str) -> list[tuple[str, Fraction, float]]:
    """Per number of each layer, how far float32 is from the exact layer at the same inputs, and what is stated."""
    graph = graph_of(sampled.network, tuple(sampled.lower.shape[1:]))
    precision = sampled.lower.dtype
    numbers = Float(order, np.float64 if precision == torch.float64 else np.float32)
    run, result = values(graph, float_input(sampled.upper), numbers), []
    for position, node in graph.numbered():
        inputs = [run[source] for source in node.inputs]
        if not all(np.isfinite(number) for value in (*inputs, run[position]) for number in value.flat):
            break
        alone = Graph((Node(node.name, node.operation, tuple(range(len(inputs)))),))
        points = [torch.tensor(value.astype(float), dtype=precision)[None] for value in inputs]
        boxes = [Interval(point, point) for point in points]
        recorder = RoundingRecorder(alone, Execution(Arithmetic.FLOAT32, precision), boxes[0])
        recorder.record(1, Node(node.name, node.operation, (0,) * len(inputs)), boxes, node.operation.interval(*boxes))
        stated = recorder.rounding.values.get(1)
        error: Any = 0.0 if stated is None else execution_error(stated.sums, recorder.rounding.execution, stated.inputs)
        shape = torch.Size((1, *run[position].shape))
        if isinstance(error, Tensor):
            error = error.view(*error.shape, *[1] * (len(shape) - error.dim())).expand(shape).flatten().tolist()
        exact = _exactly(node, inputs)
        for number, (found, true) in enumerate(zip(run[position].flat, exact.flat, strict=True)):
            allowed = error[number] if isinstance(error, list) else error
            result.append((type(node.operation).__name__, abs(Fraction(float(found)) - true), allowed))
    return result


def _exactly(node: Node, inputs: list[Any]) -> Any:
    """One operation without rounding."""
    exact = [np.frompyfunc(lambda number: Fraction(float(number)), 1, 1)(value) for value in inputs]
    one = Graph((Node(node.name, node.operation, (0,) * len(inputs)),))
    if len(exact) == 1:
        return values(one, exact[0], Exact())[-1]
    if isinstance(node.operation, Sum):
        return exact[0] + exact[1]
    return np.concatenate(exact, 0)


@settings(max_examples=100, deadline=None)
@given(SEEDS, st.sampled_from([*ORDERS, "fused"]))
def test_float32_is_as_close_to_exact_arithmetic_as_each_layer_states(seed: int, order: str) -> None:
    sampled = sample(seed)
    order = "sequential" if sampled.lower.dtype == torch.float64 and order == "fused" else order
    for name, found, stated in layer_errors(sampled, order):
        assert stated == np.inf or found <= Fraction(stated), name


def inside(interval: Interval, numbers: Any) -> bool:
    """Whether numbers lie in an interval (1, *shape); an interval with an end that is not a number says nothing."""
    ends = zip(interval.lower.flatten().tolist(), interval.upper.flatten().tolist(), numbers.flat, strict=True)
    stated = [(low, high, number) for low, high, number in ends if not np.isnan(low) and not np.isnan(high)]
    return not any(above(low, number) or above(-high, -number) for low, high, number in stated)


def above(bound: float, number: Any) -> bool:
    """Whether a bound lies above a number, without any rounding."""
    if not np.isfinite(bound):
        return bound == np.inf
    return not np.isfinite(float(number)) or Fraction(bound) > Fraction(number)


def margins(rows: Tensor, output: Any) -> list[Any]:
    """The margins of an output; not a number where the output overflows."""
    if not all(np.isfinite(float(number)) for number in output.flat):
        return [np.nan] * len(rows)
    scores = [Fraction(number) for number in output.flat]
    return [sum(int(sign) * score for sign, score in zip(row, scores, strict=True)) for row in rows.tolist()]


def runs(graph: Graph, point: Tensor, execution: Execution) -> list[list[Any]]:
    """Every value at a point: exactly, and for float32 in two orders as well."""
    found = [values(graph, exact_input(point), Exact())]
    if execution.arithmetic is Arithmetic.FLOAT32:
        kind = np.float64 if execution.dtype == torch.float64 else np.float32
        orders = random.sample([*ORDERS, *(["fused"] if kind is np.float32 else [])], 2)
        for order in orders:
            run = values(graph, float_input(point), Float(order, kind))
            found.append([np.frompyfunc(float, 1, 1)(value) for value in run])
    return found


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.sampled_from(Arithmetic))
def test_proved_bounds_hold_at_every_point(seed: int, arithmetic: Arithmetic) -> None:
    sampled = sample(seed)
    graph = graph_of(sampled.network, tuple(sampled.lower.shape[1:]))
    execution, rows, trail = Execution(arithmetic, sampled.lower.dtype), sampled.rows, Trail()
    network, every = bounded(graph, sampled.lower, sampled.upper, execution)
    owner = torch.zeros(len(rows), dtype=torch.long)
    query = BoundQuery(graph.output, LinearFunctions(rows), owner)
    optimised = optimise(network.relaxed(), query, Ascent(iterations=3, slope_rate=0.3)).lower
    found = [proved(network, rows, trail), proved(in_float64(network), rows), optimised]
    inner = refined(network, Ascent(iterations=2, slope_rate=0.4)).bounds
    assert trail.on_input is not None
    worst = [torch.where(row > 0, sampled.lower[0], sampled.upper[0])[None] for row in trail.on_input]
    for point in [*worst, *sampled.points(1)]:
        for run in runs(graph, point, execution):
            assert all(inside(interval, value) for interval, value in zip(every, run, strict=True))
            assert all(inside(interval, run[graph.source(relu)]) for relu, interval in inner.items())
            for bounds in found:
                pairs = zip(bounds.tolist(), margins(rows, run[-1]), strict=True)
                assert not any(above(bound, margin) for bound, margin in pairs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("side", [1, 3, 40])
def test_the_size_of_a_channel_is_never_too_small(dtype, side):
    torch.manual_seed(0)
    rows = torch.randn(2, 3, side, side, dtype=torch.float64) * 2.0 ** torch.randint(-140, 60, (2, 3, side, side))
    rows = rows.to(dtype)
    exact = [[sum(Fraction(abs(value)) for value in channel.flatten().tolist()) for channel in row] for row in rows]
    found = size_per_channel(rows)
    assert size_per_channel(rows[:0]).shape == (0, 3)  # a batch may be empty
    assert all(
        size <= Fraction(float(bound)) <= size * Fraction(1001, 1000) + Fraction(1, 10**30)
        for row, bounds in zip(exact, found, strict=True)
        for size, bound in zip(row, bounds, strict=True)
    )


def wide_range(*shape: int) -> Tensor:
    """Random float32 numbers of very different sizes."""
    return (torch.randn(shape, dtype=torch.float64) * 2.0 ** torch.randint(-140, 60, shape)).float()


@pytest.mark.parametrize("shape", [(3, 40, 40), (3, 1, 1)])
def test_a_sum_of_negatives_is_never_above_the_exact_sum(shape):
    torch.manual_seed(0)
    terms = -wide_range(20, *shape).abs()
    assert sum_of_negatives(terms[:0]).shape == (0,)  # a batch may be empty
    for row, bound in zip(terms, sum_of_negatives(terms).tolist(), strict=True):
        exact = sum(Fraction(value) for value in row.flatten().tolist())
        assert exact * Fraction(1001, 1000) - Fraction(1, 10**30) <= Fraction(bound) <= exact


@pytest.mark.parametrize("side", [6, 9])  # 36 coefficients are added up in float32, 81 in float64
def test_the_bias_of_a_convolution_under_coefficients_that_cancel(side):
    torch.manual_seed(0)
    bias = 2.0 ** torch.tensor([0.0, 40.0, -40.0])
    convolution = Convolution(torch.zeros(3, 1, 4, 4), bias, (1, 1), (0, 0), (1, 1), 1)
    graph = Graph((Node("convolution", convolution, (0,)),))
    box = torch.zeros(1, 1, side + 3, side + 3)
    network, _ = bounded(graph, box, box, EXACT)
    rows = torch.cat([wide_range(100, 3, side, side), torch.randn(100, 3, side, side)])
    for row, bound in zip(rows, proved(network, rows).tolist(), strict=True):
        exact = sum(Fraction(value) for value in (row.double() * bias.double()[:, None, None]).flatten().tolist())
        assert Fraction(bound) <= exact


# Sums with inputs that are zero: adding zero rounds nothing.


def recorded(operation: Dense | Convolution, box: Interval) -> Tensor:
    """The error of an execution at each number of a layer's value."""
    recorder = RoundingRecorder(Graph((Node("layer", operation, (0,)),)), FLOAT32, box)
    recorder.record(1, Node("layer", operation, (0,)), [box], operation.interval(box))
    stated = recorder.rounding.values[1]
    return torch.as_tensor(execution_error(stated.sums, FLOAT32, stated.inputs))


def test_a_sum_is_as_long_as_its_inputs_that_may_be_other_than_zero():
    """Two of five inputs: two products, the bias, and one more for luck: γ₄ instead of γ₇."""
    operation = Dense(torch.ones(1, 5), torch.ones(1))
    upper = torch.tensor([[0.0, 2.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0, 1.0]])
    error = recorded(operation, Interval(torch.zeros(2, 5), upper))
    unit = 2.0**-24
    for row, (count, size) in enumerate([(4, 4.0), (7, 6.0)]):
        assert float(error[row, 0]) == pytest.approx(count * unit / (1 - count * unit) * size, rel=3e-3)


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"), [(1, 0, 1, 1), (2, 1, 1, 1), (1, 2, 2, 1), (1, 1, 1, 2)]
)
def test_a_convolution_counts_the_inputs_of_its_fullest_window(stride, padding, dilation, groups):
    torch.manual_seed(0)
    weight = torch.randn(4, 4 // groups, 3, 3)
    operation = Convolution(weight, None, (stride,) * 2, (padding,) * 2, (dilation,) * 2, groups)
    there = torch.rand(3, 4, 7, 7) < torch.tensor([0.1, 0.5, 1.0]).view(3, 1, 1, 1)
    windows = torch.nn.functional.unfold(there.float(), 3, dilation, padding, stride)
    counts = windows.view(3, groups, -1, windows.shape[2]).sum(2).flatten(1).amax(1)
    assert operation.read(there).tolist() == counts.tolist()


@pytest.mark.parametrize("share", [0.02, 0.3, 1.0])
def test_float32_sums_in_any_order_stay_within_the_error_of_the_inputs_that_are_there(share):
    """4,000 inputs, some of them zero; products of one sign, so that errors add up; the exact sum as a fraction."""
    generator = np.random.default_rng(0)
    inputs = (generator.random(4000) + 0.5).astype(np.float32) * (generator.random(4000) < share)
    weights = (generator.random(4000) + 0.5).astype(np.float32)
    image = torch.tensor(inputs)[None]
    error = recorded(Dense(torch.tensor(weights)[None], None), Interval(image, image))
    exact = sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(weights, inputs, strict=True))
    products = (weights * inputs).astype(np.float32)
    largest = 0.0
    for order in range(20):
        mixed = generator.permutation(products) if order else np.sort(products)
        total = mixed.cumsum(dtype=np.float32)[-1]  # one after the other
        largest = max(largest, abs(float(Fraction(float(total)) - exact)))
    assert largest <= float(error)
    assert float(error) <= (share + 0.02) * 4003 * 2.0**-24 * float(exact) * 1.01


def test_inputs_are_counted_whatever_the_default_precision_is():
    operation = Convolution(torch.ones(1, 1, 2, 2), None, (1, 1), (0, 0), (1, 1), 1)
    try:
        torch.set_default_dtype(torch.float64)
        assert operation.read(torch.ones(1, 1, 3, 3, dtype=torch.bool)).tolist() == [4]
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_layer_without_outputs_rounds_nothing():
    assert recorded(Dense(torch.ones(0, 3), torch.ones(0)), Interval(torch.zeros(1, 3), torch.ones(1, 3))).shape == (
        1,
        0,
    )
