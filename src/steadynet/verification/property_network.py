"""Any linear VNN-LIB property as a robustness property of a slightly longer network.

A VNN-LIB property is violated where, for one of its disjuncts, all entries of C·y − d are ≤ 0, that is, where their
maximum is ≤ 0. A maximum can be written with ReLUs, max(a, b) = b + relu(a − b), so a few more layers compute one score
per disjunct, −max(C·y − d), and one more score that is always 0. The property holds if and only if this last score
stays the largest: a robustness property whose label is the last output.

Bounds, attack and search treat the longer network like any other. When they optimise the slope of the lower line of one
of the added ReLUs, they find the best mixture of two constraints.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from steadynet.attacks.region import InputRegion
from steadynet.errors import UserError
from steadynet.graph.graph import Graph, Node
from steadynet.graph.graph_network import GraphNetwork
from steadynet.graph.operations import Dense, Operation, ReLU, Sum
from steadynet.graph.trace import some_weight
from steadynet.interchange.vnnlib.property import Disjunct, Vector, VnnlibProperty
from steadynet.verification.properties import OutputConstraints, Properties

_CLEAR_SHARE, _CLEAR = 2.0**-20, 1e-30  # by how much a clear counterexample satisfies a constraint: of its size; alone


@dataclass(frozen=True)
class BoxProperties:
    """Robustness properties of one longer network, one per input box of a VNN-LIB property.

    ``boxes`` holds the lower and the upper corner of each box as the VNN-LIB file has them, in float64. ``disjuncts``
    are those of the first box; the others differ from them in nothing but the box. ``tightened`` says that these
    properties ask for clear counterexamples only, so that a proof of them proves nothing.
    """

    properties: Properties
    boxes: list[tuple[Vector, Vector]]
    disjuncts: list[Disjunct]
    tightened: bool = False

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, rows: slice | list[int]) -> BoxProperties:
        boxes = self.boxes[rows] if isinstance(rows, slice) else [self.boxes[row] for row in rows]
        properties = self.properties[rows if isinstance(rows, slice) else torch.tensor(rows)]
        return replace(self, properties=properties, boxes=boxes)

    def for_clear_counterexamples(self, network: GraphNetwork, index: int, outputs: Vector) -> BoxProperties:
        """Return the property of one box again, with constraints that only a clear counterexample satisfies.

        Args:
            network: The network that the VNN-LIB property is about.
            index: The box.
            outputs: How large the outputs are, without their signs.
        """
        lower, upper = self.boxes[index]
        disjuncts = []
        for disjunct in self.disjuncts:
            unit = _units(disjunct.matrix)
            sizes = (
                np.abs(disjunct.matrix) @ outputs + np.abs(disjunct.bound)
            ) / unit  # as the longer network has them
            rows = sorted(disjunct.strict) or list(range(len(disjunct.bound)))  # mostly, the edge of a strict one
            bound = disjunct.bound.copy()
            bound[rows] -= (_CLEAR_SHARE * sizes.max() + _CLEAR) * unit[rows]  # of any size: a maximum rounds them all
            disjuncts.append(replace(disjunct, lower=lower, upper=upper, bound=bound))
        return replace(_box_properties(network, [disjuncts]), tightened=True)


def as_robustness(network: GraphNetwork, vnnlib_property: VnnlibProperty) -> list[BoxProperties]:
    """Return robustness properties that all hold if and only if the VNN-LIB property holds.

    Args:
        network: The network that the property is about.
        vnnlib_property: The property. Each disjunct must have at least one constraint on the outputs.

    Returns:
        One entry per set of output constraints, since each set needs a longer network of its own. An entry has one
        property per box with these constraints. Empty boxes are left out.
    """
    by_box: dict[tuple[bytes, bytes], list[Disjunct]] = {}
    for disjunct in vnnlib_property.disjuncts:
        if not disjunct.is_empty:
            by_box.setdefault((disjunct.lower.tobytes(), disjunct.upper.tobytes()), []).append(disjunct)
    by_constraints: dict[tuple[bytes, ...], list[list[Disjunct]]] = {}
    for disjuncts in by_box.values():
        constraints = tuple(part.tobytes() for disjunct in disjuncts for part in (disjunct.matrix, disjunct.bound))
        by_constraints.setdefault(constraints, []).append(disjuncts)
    return [_box_properties(network, boxes) for boxes in by_constraints.values()]


def check_numbers(vnnlib_property: VnnlibProperty, dtype: torch.dtype) -> None:
    """Refuse a property whose numbers a network's precision does not hold. Empty boxes do not matter.

    Raises:
        UserError: A bound of an input, or a constant beside outputs, is too large.
    """
    precision, largest = str(dtype).removeprefix("torch."), torch.finfo(dtype).max
    for disjunct in vnnlib_property.disjuncts:
        if not bool(np.all(disjunct.lower <= disjunct.upper)):
            continue
        if max(np.abs(corner).max(initial=0) for corner in (disjunct.lower, disjunct.upper)) > largest:
            raise UserError(f"the box of the property has numbers that {precision} does not hold")
        if np.abs(disjunct.bound / _units(disjunct.matrix)).max(initial=0) > largest:
            raise UserError(f"the property compares outputs with numbers that {precision} does not hold")


def _box_properties(network: GraphNetwork, disjuncts_of_boxes: list[list[Disjunct]]) -> BoxProperties:
    """Return the properties of several boxes, whose disjuncts differ in nothing but the box."""
    disjuncts, dtype = disjuncts_of_boxes[0], some_weight(network).dtype
    graph, constraints = _with_scores(network.graph, disjuncts, dtype)
    longer = GraphNetwork(graph, network.input_shape)
    boxes = [(members[0].lower, members[0].upper) for members in disjuncts_of_boxes]
    lower = torch.stack([rounded(box[0], dtype, down=True) for box in boxes]).view(-1, *network.input_shape)
    upper = torch.stack([rounded(box[1], dtype, down=False) for box in boxes]).view(-1, *network.input_shape)
    region = InputRegion(lower, upper)
    labels = torch.full((len(boxes),), len(disjuncts))  # the last output, which is always 0
    middle = region.project((lower + upper) / 2)
    return BoxProperties(Properties(longer, middle, labels, region, constraints=constraints), boxes, disjuncts)


def rounded(values: Vector, dtype: torch.dtype, *, down: bool) -> Tensor:
    """Round to a precision, down or up: outwards, so that proofs hold for every real input of a box, or inwards.

    >>> tenth = np.array([0.1])
    >>> [rounded(tenth, torch.float32, down=down).item() for down in (True, False)]
    [0.09999999403953552, 0.10000000149011612]
    """
    exact = torch.from_numpy(values)
    nearest = exact.to(dtype)
    wrong = nearest.double() > exact if down else nearest.double() < exact
    towards = torch.full_like(nearest, -torch.inf if down else torch.inf)
    return torch.where(wrong, torch.nextafter(nearest, towards), nearest)


def _with_scores(graph: Graph, disjuncts: Sequence[Disjunct], dtype: torch.dtype) -> tuple[Graph, OutputConstraints]:
    """Append the layers that compute −max(C·y − d) for each disjunct, and a last score of 0.

    Returns:
        The longer graph, and where it computes C·y − d.
    """
    nodes, count = list(graph.nodes), len(disjuncts)

    def add(name: str, operation: Operation, *inputs: int) -> int:
        nodes.append(Node(f"property.{name}", operation, inputs))
        return len(nodes)

    def dense(weight: Vector, bias: Vector | None = None, *, rounded: bool = False) -> Dense:
        """Return a layer in the network's precision. What float32 does not hold was rounded, here or by the parser."""
        constants = [torch.from_numpy(part) for part in (weight, bias) if part is not None]
        roundings = int(rounded or any(bool((part.float().double() != part).any()) for part in constants))
        held = [part.to(dtype) for part in constants]
        return Dense(held[0], None if bias is None else held[1], roundings)

    # All C·y − d in one layer, with the same number of constraints for each disjunct.
    width = max(1, *(len(disjunct.bound) for disjunct in disjuncts))
    matrix = np.concatenate([_padded(disjunct.matrix, width) for disjunct in disjuncts])
    bound = np.concatenate([_padded(disjunct.bound, width) for disjunct in disjuncts])
    unit = _units(matrix)
    rounded = any(disjunct.rounded for disjunct in disjuncts)
    value = add("constraints", dense(matrix / unit[:, None], -bound / unit, rounded=rounded), len(nodes))
    constraints = OutputConstraints(value, tuple(max(1, len(disjunct.bound)) for disjunct in disjuncts), width)
    # Halve the number of values per disjunct, again and again: max(a, b) = b + relu(a − b) of one half and the other.
    while width > 1:
        half = width // 2
        select = np.eye(count * width).reshape(count, width, -1)
        spare = select[:, 2 * half :]  # the last of an odd number has no partner: max(a, a) = a + relu(0)
        first = np.concatenate([select[:, :half], spare], 1)
        second = np.concatenate([select[:, half : 2 * half], spare], 1)
        width = first.shape[1]
        difference = add("difference", dense((first - second).reshape(count * width, -1)), value)
        above = add("above", ReLU(), difference)
        other = add("other", dense(second.reshape(count * width, -1)), value)
        value = add("maximum", Sum(), other, above)
    add("scores", dense(np.concatenate([-np.eye(count), np.zeros((1, count))])), value)
    return Graph(tuple(nodes)), constraints


def _units(matrix: Vector) -> Vector:
    """Return powers of two that rows are divided by so that their largest weight lies near 1; 1 if it does already.

    A constraint may have weights that float32 does not hold, such as 1e39. To divide a row by a power of two changes no
    digit of it.

    >>> _units(np.array([[1.0, 0.5], [-0.25, 0.0], [1e39, 1.0], [0.0, 0.0]]))[[0, 1, 3]]
    array([1., 1., 1.])
    """
    sizes = np.abs(matrix).max(1, initial=0)
    exponents = np.frexp(sizes)[1]
    return np.where((np.abs(exponents) > 20) & (sizes != 0), np.ldexp(1.0, exponents), 1.0)


def _padded(rows: Vector, count: int) -> Vector:
    """Repeat the last row until there are ``count`` rows, which does not change the maximum."""
    return np.concatenate([rows, np.repeat(rows[-1:], count - len(rows), axis=0)])
