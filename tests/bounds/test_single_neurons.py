"""Single neurons carried back through their layer: rows of its weight, against products with unit vectors."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from steadynet.bounds import graph_of
from steadynet.bounds.crown import propagate
from steadynet.bounds.linear_functions import LinearFunctions, single_neurons
from steadynet.bounds.queries import BoundQuery
from steadynet.graph.operations import Interval

NETWORKS = {
    "dense": (nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)), (6,)),
    "dense on maps": (nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Linear(5, 4)), (2, 7, 7)),
    "convolution": (nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 3, 2, 1)), (2, 7, 7)),
    "dilation": (nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.Conv2d(3, 4, 2, 1, 1, 2)), (2, 7, 7)),
    "groups": (nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 2, 1, 1, 1, 2)), (2, 7, 7)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_single_neuron_is_bounded_as_its_unit_vector_is(name: str) -> None:
    torch.manual_seed(0)
    network, shape = NETWORKS[name]
    images = torch.rand(3, *shape)
    with torch.no_grad():
        bounded, values = propagate(graph_of(network, shape), Interval(images - 0.1, images + 0.1))
        output = bounded.output
        every = torch.ones_like(values[output].lower, dtype=torch.bool).nonzero()
        sign = torch.where(torch.rand(len(every)) < 0.5, 1, -1)
        functions, owner = single_neurons(every, bounded.shapes[output], torch.float32, sign)
        units = torch.zeros(len(every), *bounded.shapes[output])
        units[(torch.arange(len(every)), *every[:, 1:].t())] = sign.float()
        relaxed = bounded.relaxed()
        found, expected = (
            relaxed.lower(BoundQuery(output, some, owner)).value for some in (functions, LinearFunctions(units))
        )
        at_images = (bounded.graph.values(images)[output][owner] * units).flatten(1).sum(1)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert bool((found <= at_images + 1e-5).all())
