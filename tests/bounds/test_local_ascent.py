"""The ascent in blocks against the ascent over all neurons: the same slopes, up to rounding."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from steadynet.bounds import local_ascent
from steadynet.bounds.condensed import CondensedNetwork, condense
from steadynet.bounds.condensed_bounds import Columns, SplitColumns, ascend
from steadynet.bounds.crown import propagate
from steadynet.bounds.local_ascent import local_slopes
from steadynet.bounds.optimised import Ascent
from steadynet.bounds.relaxation import Relaxation
from steadynet.graph.operations import Interval
from steadynet.graph.translate import graph_of

ASCENT = Ascent(iterations=4, slope_rate=0.4)


def second_layer(seed: int, slope: float = 0.0) -> tuple[CondensedNetwork, torch.Tensor]:
    """The first layer of a small condensed network, and both signs of the neurons of its second one as functions."""
    torch.manual_seed(seed)
    activation = nn.LeakyReLU(slope) if slope else nn.ReLU()
    layers = [nn.Conv2d(1, 3, 3, 2, 1), activation, nn.Conv2d(3, 4, 3, 1), activation, nn.Flatten(), nn.LazyLinear(3)]
    network = nn.Sequential(*layers)
    network(torch.rand(1, 1, 10, 10))
    network = network.double().eval().requires_grad_(False)
    image = torch.rand(1, 1, 10, 10, dtype=torch.float64)
    with torch.no_grad():
        whole, _ = propagate(graph_of(network, (1, 10, 10)), Interval(image - 0.4, image + 0.4))
    identity = torch.eye(3, dtype=torch.float64)
    small = condense(whole, identity[:1] - identity[1:], 2**28)
    first, second = small.layers[:2]
    rows, matrix = first.rows, second.matrix.dense()
    functions = torch.cat([matrix, -matrix])
    lines = Relaxation(small.lines.lower_slope[rows], small.lines.upper_slope[rows], small.lines.upper_shift[rows])
    constants = torch.cat([second.constant, -second.constant])
    before = replace(
        small,
        layers=(first,),
        bounds=Interval(*(side[rows] for side in small.bounds)),
        lines=lines,
        floor=small.floor[rows],
        margins=functions.t().contiguous(),
        constants=constants,
    )
    return before, functions


@pytest.mark.parametrize("slope", [0.0, 0.1])
@pytest.mark.parametrize("seed", range(4))
def test_slopes_are_those_of_the_ascent_over_all_neurons(seed, slope):
    before, functions = second_layer(seed, slope)
    count = len(functions)
    none, number = torch.zeros(0, dtype=torch.long), torch.zeros(0, dtype=torch.float64)
    splits = SplitColumns(none, none, number, number.clone())
    batch = Columns.of(before, torch.arange(count), before.lines.lower_slope.repeat(1, count), splits)
    ascend(before, batch, ASCENT, wanted=1e-3)
    found = local_slopes(before, functions, ASCENT, 1e-3)
    assert found is not None
    seen = (functions[:, before.inputs :] != 0).t()
    assert 0 < int(seen.sum()) < seen.numel()  # there is something to leave out
    torch.testing.assert_close(found[seen], batch.slopes[seen])


def test_functions_whose_codes_clash_share_a_block(monkeypatch):
    before, functions = second_layer(1)
    expected = local_slopes(before, functions, ASCENT, 1e-3)
    together = torch.zeros(len(functions), dtype=torch.long)
    monkeypatch.setattr(torch.Tensor, "unique", lambda codes, return_inverse: (codes[:1], together))
    found = local_slopes(before, functions, ASCENT, 1e-3)
    torch.testing.assert_close(found, expected)


def test_large_blocks_and_deeper_layers_are_left_to_columns(monkeypatch):
    before, functions = second_layer(2)
    assert local_slopes(replace(before, layers=before.layers * 2), functions, ASCENT, 1e-3) is None
    monkeypatch.setattr(local_ascent, "MOST_ENTRIES", 1)
    assert local_slopes(before, functions, ASCENT, 1e-3) is None
