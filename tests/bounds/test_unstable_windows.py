"""Functions that see windows with few unstable ReLUs: their bounds are those of the general way, and they hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from steadynet.bounds import unstable_windows
from steadynet.bounds.backward import BoundedNetwork, BoundQuery, LowerBound
from steadynet.bounds.crown import propagate
from steadynet.bounds.linear_functions import LinearFunctions, single_neurons
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import Arithmetic, Execution
from steadynet.graph.translate import graph_of


def bounded_network(boxes: int, width: float = 0.03) -> BoundedNetwork:
    """Two convolutions and a dense layer; the second convolution sees parts of the first one's map."""
    torch.manual_seed(2)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 5, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(80, 3)
    ).requires_grad_(False)
    image = torch.rand(boxes, 1, 16, 16)
    execution = Execution(Arithmetic.FLOAT32, torch.float32)
    box = Interval(image - width, image + width)
    return propagate(graph_of(network, (1, 16, 16)), box, 2**28, execution=execution)[0]


def lower(bounded: BoundedNetwork, places: Tensor, signs: Tensor) -> LowerBound:
    """Lower bounds of some neurons of the second convolution, or of their negatives."""
    source = bounded.graph.source(bounded.graph.relus[1])
    functions, owner = single_neurons(places, bounded.shapes[source], torch.float32, signs)
    return bounded.relaxed().lower(BoundQuery(source, functions, owner))


def neurons(bounded: BoundedNetwork) -> tuple[Tensor, Tensor]:
    """Random neurons of all properties, with random signs."""
    places = torch.ones(bounded.bounds[bounded.graph.relus[1]].lower.shape).nonzero()
    places = places[torch.randperm(len(places))]
    return places, 2 * torch.randint(2, (len(places),)) - 1


@pytest.mark.parametrize("boxes", [1, 4])
def test_the_bounds_are_those_of_the_general_way(boxes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bounded = bounded_network(boxes)
    first = bounded.bounds[bounded.graph.relus[0]].unstable()
    assert 0 < int(first.sum()) < first.numel() / 4
    places, signs = neurons(bounded)
    found = []
    for share in (-1.0, 1.0):
        monkeypatch.setattr(unstable_windows, "FEW_IN_WINDOWS", share)
        found.append(lower(replace(bounded, drawn={}), places, signs))
    torch.testing.assert_close(found[0].value, found[1].value)
    torch.testing.assert_close(found[0].error, found[1].error)


def test_the_bounds_hold_at_points_of_the_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unstable_windows, "FEW_IN_WINDOWS", 1.0)
    bounded = bounded_network(3, 0.2)
    places, signs = neurons(bounded)
    found, source = lower(bounded, places, signs).proved, bounded.graph.source(bounded.graph.relus[1])
    nearest = torch.full((len(places),), torch.inf)
    for _ in range(300):
        share = torch.rand_like(bounded.box.lower).round()  # corners
        points = bounded.box.lower + share * (bounded.box.upper - bounded.box.lower)
        nearest = torch.minimum(nearest, bounded.graph.values(points)[source][tuple(places.t())] * signs)
    assert (found <= nearest).all()
    assert float((nearest - found).median()) < 0.5


def test_a_bound_that_is_no_number_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unstable_windows, "FEW_IN_WINDOWS", 1.0)
    bounded = bounded_network(2)
    relu = bounded.graph.relus[0]
    known = Interval(*(side.clone() for side in bounded.bounds[relu]))
    known.lower[1] = known.upper[1] = torch.nan
    places, signs = neurons(bounded)
    found = lower(replace(bounded, bounds={**bounded.bounds, relu: known}), places, signs).proved
    assert (found[places[:, 0] == 1] == -torch.inf).all()
    assert found[places[:, 0] == 0].isfinite().all()


def test_functions_with_other_coefficients_are_no_single_neurons() -> None:
    places, signs = torch.tensor([[0, 1, 2, 2]]), torch.tensor([-1])
    functions, _ = single_neurons(places, (4, 5, 5), torch.float32, signs)
    weight = torch.randn(4, 3, 2, 2)
    torch.testing.assert_close(functions.rows_of(weight), -weight[1:2])
    assert type(functions.with_coefficients(functions.coefficients)) is LinearFunctions
