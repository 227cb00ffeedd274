"""``verify`` from Python: what it takes, and what its results show."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from steadynet import Result, UserError, Verdict, verify
from steadynet.verification.results import Results

IMAGES, LABELS = torch.tensor([[[[0.5]]], [[[0.1]]]]), torch.tensor([0, 0])


@pytest.fixture
def network():
    """Label 0 where the pixel is above 0.2: the first image is robust at 0.2, the second is not even right."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(1, 2))
    network[1].weight.data = torch.tensor([[1.0], [0.0]])
    network[1].bias.data = torch.tensor([0.0, 0.2])
    return network


def verdicts(results):
    return [result.verdict for result in results]


@pytest.mark.parametrize(
    ("images", "labels"),
    [
        (IMAGES, LABELS),
        (IMAGES.double(), LABELS.to(torch.int32)),
        (IMAGES.numpy().astype(np.float64), LABELS.numpy()),
        (IMAGES.tolist(), LABELS.tolist()),
        (IMAGES, [[1, 0], [1, 0]]),
        (TensorDataset(IMAGES, LABELS), None),
        (DataLoader(TensorDataset(IMAGES, LABELS), batch_size=1), None),
    ],
)
def test_images_and_labels_in_many_forms(network, images, labels):
    assert verdicts(verify(network, images, labels, 0.2)) == [Verdict.UNSAT, Verdict.SAT]


def test_bytes_are_pixels(network):
    pixels = torch.tensor([[[[128]]]], dtype=torch.uint8)
    assert verdicts(verify(network, pixels, [0], 0.2)) == [Verdict.UNSAT]


def test_one_image_without_a_batch(network):
    assert verdicts(verify(network, IMAGES[0], 0, 0.2)) == [Verdict.UNSAT]


def test_a_list_of_radii(network):
    found = verify(network, IMAGES[:1], [0], [0.1, "1/2"])
    assert {eps: verdicts(results) for eps, results in found.items()} == {0.1: [Verdict.UNSAT], 0.5: [Verdict.SAT]}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((IMAGES, LABELS, 8), "8/255"),
        ((IMAGES, LABELS, 0), "larger than 0"),
        ((IMAGES, LABELS), "radius"),
        ((IMAGES,), "labels"),
        ((IMAGES, [0]), "one label per image"),
        ((IMAGES, [0, 7], 0.1), "label 7"),
        ((255 * IMAGES, LABELS, 0.1), "divide them by 255"),
    ],
)
def test_mistakes_are_one_clear_line(network, arguments, message):
    with pytest.raises(UserError, match=message) as error:
        verify(network, *arguments)
    assert "\n" not in str(error.value)


def test_a_network_without_bounds_raises_and_names_the_layer():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(1, 4), nn.GELU(), nn.Linear(4, 2))
    labels = network(IMAGES).argmax(1)
    with pytest.raises(UserError, match=r"GELU.*layer '2'"):
        verify(network, IMAGES, labels, 0.1)


def test_a_single_score_is_named():
    with pytest.raises(UserError, match="single score"):
        verify(nn.Sequential(nn.Flatten(), nn.Linear(1, 1)), IMAGES, LABELS, 0.1)


def test_what_is_no_network():
    with pytest.raises(UserError, match="the model is int"):
        verify(3, IMAGES, LABELS, 0.1)


def test_results_show_themselves(network):
    results = verify(network, IMAGES, LABELS, 0.2)
    assert repr(results).startswith("Results(ε 0.2: 1 of 2 proved, 1 refuted; ")
    assert results.summary() | {"seconds": 0} == {
        "eps": 0.2, "properties": 2, "proved": 1, "refuted": 1, "timed out": 0, "unknown": 0, "error": 0, "seconds": 0,
    }  # fmt: skip
    assert verdicts(results[1:]) == [Verdict.SAT]
    page = results._repr_html_()
    assert page.count("<img") == 3  # two images and one counterexample
    assert "proved" in page
    assert "refuted" in page


def test_results_as_a_table_and_as_a_figure(network):
    results = verify(network, IMAGES, LABELS, 0.2)
    table = results.to_pandas()
    assert table["verdict"].tolist() == ["unsat", "sat"]
    assert len(results.plot().axes) == 4


def test_a_radius_of_grey_levels_is_printed_as_a_fraction():
    results = Results((Result(Verdict.UNSAT, 0.1),), torch.zeros(1, 4), torch.tensor([3]), 2 / 255)
    assert repr(results) == "Results(ε 2/255: 1 of 1 proved, 0 refuted; 0.1 s)"
