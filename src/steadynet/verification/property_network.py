"""Any property as the one question that a verifier answers: does a label stay?

A property is violated where, for one of its cases, all of C·y − d are ≤ 0, that is, where their maximum is. A maximum
is made of ReLUs, max(a, b) = b + relu(a − b), so the cases become a few more layers: the scores −max(C·y − d) of each
case, and the score 0 of "no case", which must stay the largest. Bounds, attack, search and programs work on it as on
any network; a lower line of such a ReLU, of optimised slope, mixes two constraints in the best proportion.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from steadynet.attacks.region import InputRegion
from steadynet.graph.graph import Graph, Node
from steadynet.graph.graph_network import GraphNetwork
from steadynet.graph.operations import Dense, Operation, Rectifier, Sum
from steadynet.interchange.vnnlib.property import Disjunct, Vector, VnnlibProperty
from steadynet.verification.properties import Properties


@dataclass(frozen=True)
class Questions:
    """Boxes with the same ways to violate the property: as properties, one a box."""

    properties: Properties
    boxes: list[tuple[Vector, Vector]]

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, rows: slice | list[int]) -> Questions:
        boxes = self.boxes[rows] if isinstance(rows, slice) else [self.boxes[row] for row in rows]
        return Questions(self.properties[rows if isinstance(rows, slice) else torch.tensor(rows)], boxes)


def pose(network: GraphNetwork, specification: VnnlibProperty) -> list[Questions]:
    """The property's questions: it holds if every label stays. Boxes without an input ask nothing."""
    by_box: dict[tuple[bytes, bytes], list[Disjunct]] = {}
    for case in specification.disjuncts:
        if bool(np.all(case.lower <= case.upper)):
            by_box.setdefault((case.lower.tobytes(), case.upper.tobytes()), []).append(case)
    by_cases: dict[tuple[bytes, ...], list[list[Disjunct]]] = {}
    for cases in by_box.values():
        by_cases.setdefault(tuple(part.tobytes() for case in cases for part in (case.matrix, case.bound)), []).append(
            cases
        )
    return [_questions(network, alike) for alike in by_cases.values()]


def _questions(network: GraphNetwork, alike: list[list[Disjunct]]) -> Questions:
    """``alike``: for each box its cases, which differ in the box alone."""
    cases = alike[0]
    judge = GraphNetwork(_judged(network.graph, cases), network.input_shape)
    boxes = [(members[0].lower, members[0].upper) for members in alike]
    lower = torch.stack([_rounded(box[0], down=True) for box in boxes]).view(-1, *network.input_shape)
    upper = torch.stack([_rounded(box[1], down=False) for box in boxes]).view(-1, *network.input_shape)
    region = InputRegion(lower, upper)
    labels = torch.full((len(boxes),), len(cases))
    return Questions(Properties(judge, region.project((lower + upper) / 2), labels, region), boxes)


def _rounded(values: Vector, *, down: bool) -> Tensor:
    """The nearest float32 numbers at or below (or above) these: proofs hold for every real input of the box."""
    nearest = values.astype(np.float32)
    wrong = nearest > values if down else nearest < values
    towards = np.float32(-np.inf if down else np.inf)
    return torch.from_numpy(np.where(wrong, np.nextafter(nearest, towards), nearest))


def _judged(graph: Graph, cases: Sequence[Disjunct]) -> Graph:
    """The network with the score of every case, and 0, as its output."""
    nodes = list(graph.nodes)

    def add(name: str, operation: Operation, *inputs: int) -> int:
        nodes.append(Node(f"property.{name}", operation, inputs))
        return len(nodes)

    width = max(1, *(len(case.bound) for case in cases))
    matrix = np.stack([_filled(case.matrix, width) for case in cases])
    bound = np.stack([_filled(case.bound, width) for case in cases])
    value = add(
        "constraints", Dense(_float(matrix.reshape(-1, matrix.shape[-1])), _float(-bound.reshape(-1))), len(nodes)
    )
    while width > 1:
        half = width // 2
        pick = np.eye(len(cases) * width).reshape(len(cases), width, -1)
        ones, others = pick[:, :half], pick[:, half : 2 * half]
        spare = pick[:, 2 * half :]  # of an odd number, the last one waits: max(a, a) = a + relu(0)
        ones, others = np.concatenate([ones, spare], 1), np.concatenate([others, spare], 1)
        width = ones.shape[1]
        difference = add("difference", Dense(_float((ones - others).reshape(len(cases) * width, -1)), None), value)
        above = add("above", Rectifier(), difference)
        other = add("other", Dense(_float(others.reshape(len(cases) * width, -1)), None), value)
        value = add("maximum", Sum(), other, above)
    scores = np.concatenate([-np.eye(len(cases)), np.zeros((1, len(cases)))])
    add("scores", Dense(_float(scores), None), value)
    return Graph(tuple(nodes))


def _filled(rows: Vector, count: int) -> Vector:
    """So many rows: the last one again and again, which changes no maximum."""
    return np.concatenate([rows, np.repeat(rows[-1:], count - len(rows), axis=0)])


def _float(values: Vector) -> Tensor:
    return torch.from_numpy(values.astype(np.float32))
