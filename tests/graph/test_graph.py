"""The numbering of a graph's values, and the part of a graph that computes one of them."""

from __future__ import annotations

import pytest
import torch

from steadynet.graph.graph import Graph, Node
from steadynet.graph.operations import ReLU, Scale, Sum

DOUBLE = Scale(torch.tensor(2.0), torch.tensor(0.0))
GRAPH = Graph(
    (
        Node("twice", DOUBLE, (0,)),  # 2x
        Node("unused", DOUBLE, (1,)),  # 4x
        Node("relu", ReLU(), (1,)),  # relu(2x)
        Node("sum", Sum(), (3, 0)),  # relu(2x) + x
        Node("behind", DOUBLE, (4,)),
    )
)


def test_positions_count_from_one_behind_the_input():
    assert GRAPH.output == 5
    assert GRAPH.relus == [3]
    assert [(position, node.name) for position, node in GRAPH.numbered()][::4] == [(1, "twice"), (5, "behind")]
    assert all(GRAPH.producer(position) is node for position, node in GRAPH.numbered())
    assert GRAPH.source(3) == 1
    assert GRAPH.source(4) == 3


@pytest.mark.parametrize("position", [0, -1, 6])
def test_what_no_node_computes_has_no_producer(position):
    with pytest.raises(IndexError):
        GRAPH.producer(position)


def test_the_part_that_computes_one_value():
    part = GRAPH.up_to(4)
    assert [node.name for node in part.nodes] == ["twice", "relu", "sum"]
    assert [node.inputs for node in part.nodes] == [(0,), (1,), (2, 0)]
    images = torch.tensor([[-1.0, 3.0]])
    assert part.values(images)[-1].tolist() == [[-1.0, 9.0]]
    assert GRAPH.values(images)[4].tolist() == [[-1.0, 9.0]]
    assert GRAPH.up_to(0).nodes == ()
