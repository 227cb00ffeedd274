"""Merge ReLUs that read opposite numbers: relu(−z) = relu(z) − z, so one of the two is enough.

Networks of maxima and minima, such as two-level lattice networks, are often written with such pairs:
min(a, b) = (relu(a + b) − relu(−a − b) − relu(a − b) − relu(b − a)) / 2. Two lines around each of these ReLUs lose the
connection between them. Merged, the first pair is a + b without any ReLU, and the second needs one ReLU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from steadynet.graph.graph import Graph, Node
from steadynet.graph.operations import Dense, Interval, Operation, ReLU, Shape
from steadynet.graph.rounding import Rounding, underflow_unit, unit_roundoff

_LEAST = underflow_unit(torch.float32) / unit_roundoff(torch.float32)


@dataclass(frozen=True)
class MergedDense(Operation):
    """A dense layer behind ReLUs whose opposites were merged: y = A·relu(z) + B·(z, v) + bias.

    It reads relu(z), z, the numbers v of pairs that need no ReLU, and the input x of the layer that computes z and v,
    on which nothing but the rounding depends: a network computes z and −z by two sums, which may round differently. So
    relu(−z) may differ from relu(z) − z by the errors of both.

    Attributes:
        on_relus: A, (out, ReLUs).
        on_inputs: B, (out, ReLUs + pairs without a ReLU).
        bias: (out), or None.
        sizes: of the same shape, how large the original coefficients of a neuron, or of a pair, are in all.
        paired: of the same shape, how large the coefficient of the neuron is that was merged into another one.
        weight_before: the weight of the layer that computes (z, v).
        bias_before: its bias, or None.
        columns: how many neurons the original layer reads.
    """

    on_relus: Tensor
    on_inputs: Tensor
    bias: Tensor | None
    sizes: Tensor
    paired: Tensor
    weight_before: Tensor
    bias_before: Tensor | None
    columns: int

    def apply(self, *inputs: Tensor) -> Tensor:
        return self.linear(*inputs) + (0 if self.bias is None else self.bias)

    def linear(self, *inputs: Tensor) -> Tensor:
        return F.linear(inputs[0], self.on_relus) + F.linear(torch.cat(inputs[1:3], -1), self.on_inputs)

    def interval(self, *inputs: Interval) -> Interval:
        lower, upper = (torch.cat([part[side] for part in inputs[1:3]], -1) for side in (0, 1))
        relus, numbers = Dense(self.on_relus, self.bias), Dense(self.on_inputs, None)
        one, other = relus.interval(inputs[0]), numbers.interval(Interval(lower, upper))
        return Interval(one.lower + other.lower, one.upper + other.upper)

    def rounding(self, *largest: Tensor) -> Rounding:
        read = torch.cat(largest[1:3], -1)  # relu(z) and relu(−z) are at most |z|
        size = F.linear(read, self.sizes) + (0 if self.bias is None else self.bias.abs())
        before = Dense(self.weight_before, self.bias_before)
        lost = 8 * _LEAST * (1 + largest[3].sum(-1, keepdim=True) + largest[3].shape[-1])  # by numbers taken for zero
        size = size + 4 * F.linear(before.size(largest[3]) + lost, self.paired)  # two errors, and their own rounding
        terms = max(self.columns, self.weight_before.shape[1]) + 1
        return Rounding(size, terms, len(self.on_relus))

    def backward(self, rows: Tensor, shapes: Sequence[Shape]) -> list[Tensor]:
        numbers = (rows @ self.on_inputs).split([shapes[1][-1], shapes[2][-1]], -1)
        nothing = torch.zeros((), dtype=rows.dtype, device=rows.device).expand(len(rows), *shapes[3])
        return [rows @ self.on_relus, *numbers, nothing]

    def constant(self, rows: Tensor, dtype: torch.dtype) -> Tensor | float:
        return Dense(self.on_relus, self.bias).constant(rows, dtype)


@dataclass(frozen=True)
class _Pairs:
    """The neurons of a layer: ``kept`` without an opposite, and the pairs ``first`` and ``second``."""

    kept: list[int]
    first: list[int]
    second: list[int]


def without_opposites(graph: Graph) -> tuple[Graph, list[int]]:
    """Return a graph that computes the same with opposite ReLUs merged, and the new position of each old value.

    Merged are ReLUs between two dense layers that no other operation reads, where a pair needs no ReLU at all. The
    input of a merged layer of ReLUs is split into two values; its position is that of the first.
    """
    uses = Counter(source for node in graph.nodes for source in node.inputs)
    nodes: list[Node] = []
    place = [0]

    def add(name: str, operation: Operation, *inputs: int) -> int:
        nodes.append(Node(name, operation, inputs))
        return len(nodes)

    merged: dict[int, tuple[int, ...]] = {}  # by the position of a ReLU: those of relu(z), z, v and x
    pairs_of: dict[int, tuple[_Pairs, _Pairs, Dense]] = {}
    for position, node in graph.numbered():
        found = _mergeable(graph, position, uses)
        operation = node.operation
        if found is not None:
            needed, spare = found
            before = graph.producer(position - 1)
            assert isinstance(before.operation, Dense)
            source, name = place[before.inputs[0]], before.name
            nodes.pop()  # the whole layer before the ReLU, which was the last one
            layers = [_rows(before.operation, rows) for rows in (needed.kept + needed.first, spare.first)]
            z, v = add(name, layers[0], source), add(f"{name} (no ReLU)", layers[1], source)
            r = add(node.name, operation, z)
            merged[position] = (r, z, v, source)
            pairs_of[position] = (needed, spare, _rows(before.operation, needed.kept + needed.first + spare.first))
            place.append(r)
        elif node.inputs[0] in merged:
            assert isinstance(operation, Dense)
            behind = _behind(operation, *pairs_of[node.inputs[0]])
            place.append(add(node.name, behind, *merged[node.inputs[0]]))
        else:
            place.append(add(node.name, operation, *(place[source] for source in node.inputs)))
    return Graph(tuple(nodes)), place


def _mergeable(graph: Graph, position: int, uses: Counter[int]) -> tuple[_Pairs, _Pairs] | None:
    """The pairs of a ReLU layer, those that need a ReLU and those that do not; None if nothing can be merged."""
    node = graph.producer(position)
    if not isinstance(node.operation, ReLU) or node.operation.slope or position in (1, graph.output):
        return None
    source = node.inputs[0]
    behind = graph.producer(position + 1)
    if source != position - 1 or behind.inputs != (position,) or uses[source] != 1 or uses[position] != 1:
        return None
    before, after = graph.producer(source).operation, behind.operation
    if not isinstance(before, Dense) or not isinstance(after, Dense) or before.roundings or after.roundings:
        return None
    pairs = _opposites(before)
    needed, spare = _Pairs(pairs.kept, [], []), _Pairs([], [], [])
    for one, other in zip(pairs.first, pairs.second, strict=True):
        needs = _needs_relu(after.weight, one, other)
        if needs is None:
            return None
        (needed if needs else spare).first.append(one)
        (needed if needs else spare).second.append(other)
    return (needed, spare) if spare.first and needed.kept + needed.first else None


def _opposites(layer: Dense) -> _Pairs:
    """Pair each neuron with one whose weights and bias are exactly opposite."""
    bias = torch.zeros_like(layer.weight[:, 0]) if layer.bias is None else layer.bias
    if not bool(torch.isin(-bias, bias).any()):
        return _Pairs(list(range(len(bias))), [], [])
    rows = (torch.cat([layer.weight, bias[:, None]], 1).detach().cpu() + 0.0).numpy()  # −0 becomes 0
    waiting: dict[bytes, list[int]] = {}
    first, second = [], []
    for index, (row, negated) in enumerate(zip(rows, 0.0 - rows, strict=True)):
        opposite = waiting.get(negated.tobytes())
        if opposite:
            first.append(opposite.pop())
            second.append(index)
        else:
            waiting.setdefault(row.tobytes(), []).append(index)
    return _Pairs(sorted(set(range(len(rows))) - set(first) - set(second)), first, second)


def _needs_relu(weight: Tensor, one: int, other: int) -> bool | None:
    """Whether a merged pair still needs a ReLU: its coefficients do not cancel. None if their sum would be rounded."""
    exact = weight[:, one].double() + weight[:, other].double()
    if weight.dtype == torch.float64 or not torch.equal((weight[:, one] + weight[:, other]).double(), exact):
        return None
    return bool(exact.any())


def _rows(layer: Dense, rows: list[int]) -> Dense:
    bias = None if layer.bias is None else layer.bias.detach()[rows]
    return replace(layer, weight=layer.weight.detach()[rows], bias=bias)


def _behind(layer: Dense, needed: _Pairs, spare: _Pairs, before: Dense) -> MergedDense:
    """The layer that reads merged ReLUs: c·relu(z) + d·relu(−z) = (c + d)·relu(z) − d·z, and c·z where c + d = 0."""
    weight = layer.weight.detach()
    kept, first, second, dropped = (weight[:, rows] for rows in (needed.kept, needed.first, needed.second, spare.first))
    none = torch.zeros_like(kept)
    return MergedDense(
        torch.cat([kept, first + second], 1),
        torch.cat([none, -second, dropped], 1),
        None if layer.bias is None else layer.bias.detach(),
        torch.cat([kept.abs(), first.abs() + 2 * second.abs(), 2 * dropped.abs()], 1),
        torch.cat([none, second.abs(), dropped.abs()], 1),
        before.weight,
        before.bias,
        weight.shape[1],
    )
