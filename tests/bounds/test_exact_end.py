"""Passes that end at the second convolution: the bounds of a whole pass, with every rounding counted."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import exact_arithmetic
from exact_arithmetic import ORDERS, Exact, Float, exact_input, float_input
from steadynet.bounds import graph_of
from steadynet.bounds.crown import propagate
from steadynet.bounds.exact_end import SECOND, exact_end
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.sparse_layers import MapNeurons
from steadynet.bounds.symbolic import SymbolicPass
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Interval, ReLU
from steadynet.graph.rounding import Arithmetic, Execution

EXECUTION = Execution(Arithmetic.FLOAT32, torch.float32)


def two_layers(first: Tensor, second: Tensor) -> nn.Sequential:
    """Two convolutions with kernels of one pixel and a ReLU between them."""
    layers = [nn.Conv2d(weight.shape[1], weight.shape[0], 1, bias=False) for weight in (first, second)]
    for layer, weight in zip(layers, (first, second), strict=True):
        layer.weight.data = weight[:, :, None, None].clone()
    return nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU()).requires_grad_(False)


def lower_bounds(graph: Graph, box: Interval, coefficients: Tensor) -> Tensor:
    """Lower bounds of functions (n, numbers, channel by channel) of the second convolution's value."""
    with torch.no_grad():
        bounded, values = propagate(graph, box, execution=EXECUTION)
        symbolic = SymbolicPass(box, 1 << 24)
        assert bounded.rounding is not None
        for position, node in graph.numbered():
            lines = bounded.lines(position) if isinstance(node.operation, ReLU) else None
            symbolic.step(position, node, bounded.rounding, lines)
        neurons = MapNeurons.all_of(tuple(values[SECOND].lower.shape[1:]))
        end = exact_end(graph, symbolic, neurons)
        assert end is not None
        return end.lower(LinearFunctions(coefficients[:, neurons.elements]), None)


def test_an_end_by_hand():
    """z₁ = (x, −x) on [−1, 3], z₂ = r(x) − r(−x).

    The lines are r(x) ≥ x, r(x) ≤ ¾x + ¾ and r(−x) ≥ 0, r(−x) ≤ −¼x + ¾.
    So z₂ ≥ x + ¼x − ¾ ≥ −2, and −z₂ ≥ −¾x − ¾ ≥ −3.
    """
    graph = graph_of(two_layers(torch.tensor([[1.0], [-1.0]]), torch.tensor([[1.0, -1.0]])), (1, 1, 1))
    box = Interval(torch.full((1, 1, 1, 1), -1.0), torch.full((1, 1, 1, 1), 3.0))
    found = lower_bounds(graph, box, torch.tensor([[1.0], [-1.0]]))
    torch.testing.assert_close(found, torch.tensor([-2.0, -3.0], dtype=torch.float64), atol=1e-4, rtol=0)
    assert bool((found <= torch.tensor([-2.0, -3.0])).all())


@pytest.mark.parametrize("scale", [1.0, 1e-18, 1e15])
@pytest.mark.parametrize("seed", range(6))
def test_a_bound_that_is_attained_counts_every_rounding(seed, scale):
    """Each unstable ReLU has a pixel of its own and takes its upper line, or the lower line zero, at a corner.

    So a bound without rounding is the minimum. In no order of summation may the network fall below what is proved.
    """
    torch.manual_seed(seed)
    channels, size = 12, (3, 4)
    first = torch.diag(torch.rand(channels) + 0.5) * scale
    second = torch.randn(5, channels)
    lower = -torch.rand(1, channels, *size) - 1.0
    box = Interval(lower, torch.rand(1, channels, *size) * 0.9 + 0.05)  # u < −l: the lower line is zero
    graph = graph_of(two_layers(first, second), (channels, *size))
    coefficients = torch.randn(8, 5 * size[0] * size[1])
    proved = lower_bounds(graph, box, coefficients)
    behind = torch.einsum("nohw,oc->nchw", coefficients.view(8, 5, *size).double(), second.double())
    for row, number in enumerate(proved.tolist()):
        corner = torch.where(behind[row] < 0, box.upper, box.lower)  # r is at its top, or at zero
        smallest = reached(coefficients[row], exact_arithmetic.values(graph, exact_input(corner), Exact()))
        runs = [exact_arithmetic.values(graph, float_input(corner), Float(order)) for order in ORDERS]
        assert all(
            Fraction(number) <= value for value in [smallest, *(reached(coefficients[row], run) for run in runs)]
        )
        assert number >= float(smallest) * (1 + 1e-4)  # and no more than rounding is lost


@pytest.mark.parametrize("seed", range(4))
def test_rounding_in_the_network_and_in_the_pass_is_counted(seed):
    """The box is the point zero, and all numbers come from biases: nothing but counted rounding lies between."""
    torch.manual_seed(seed)
    network = two_layers(torch.randn(24, 1), torch.randn(6, 24))
    for layer in (network[0], network[2]):
        layer.bias = nn.Parameter(1 + torch.rand(layer.out_channels), requires_grad=False)
    graph, point = graph_of(network, (1, 3, 3)), torch.zeros(1, 1, 3, 3)
    coefficients = torch.randn(20, 54)
    coefficients = torch.cat([coefficients, -coefficients])
    proved = lower_bounds(graph, Interval(point, point.clone()), coefficients)
    runs = [exact_arithmetic.values(graph, exact_input(point), Exact())]
    runs += [exact_arithmetic.values(graph, float_input(point), Float(order)) for order in ORDERS]
    for row, number in zip(coefficients, proved.tolist(), strict=True):
        assert all(Fraction(number) <= reached(row, run) for run in runs)


def reached(weights: Tensor, run: Sequence[Any]) -> Fraction:
    """A function of the second convolution's value, exactly, in one run of the network."""
    values = run[SECOND].flatten().tolist()
    exactly = [value if isinstance(value, Fraction) else Fraction(float(value)) for value in values]
    return sum((Fraction(weight) * value for weight, value in zip(weights.tolist(), exactly, strict=True)), Fraction(0))


def test_without_unstable_relus_nothing_is_opened():
    graph = graph_of(two_layers(torch.tensor([[1.0]]), torch.tensor([[2.0]])), (1, 2, 2))
    box = Interval(torch.full((1, 1, 2, 2), 1.0), torch.full((1, 1, 2, 2), 2.0))
    found = lower_bounds(graph, box, torch.tensor([[1.0, 0, 0, -1]]))
    torch.testing.assert_close(found, torch.tensor([-2.0], dtype=torch.float64), atol=1e-4, rtol=0)


@pytest.mark.parametrize("side", ["lower", "upper"])
def test_what_is_not_a_number_proves_nothing(side):
    graph = graph_of(two_layers(torch.eye(2), torch.ones(1, 2)), (2, 1, 1))
    box = Interval(torch.full((1, 2, 1, 1), -1.0), torch.full((1, 2, 1, 1), 1.0))
    getattr(box, side)[0, 0] = -torch.inf if side == "lower" else torch.inf
    found = lower_bounds(graph, box, torch.tensor([[1.0], [-1.0]]))
    assert not bool((found > -torch.inf).any())
