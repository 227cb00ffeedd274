"""Claims about outputs, against networks whose limits are known and against sampled points."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from steadynet import UserError, Verdict, claims, regions, verify

IMAGE = torch.tensor([[0.5]])


@pytest.fixture
def slopes():
    """Scores (x, 2x − 0.5, 0.3): 0 and 1 are equal at 0.5, and class 2 is the best only below 0.3."""
    network = nn.Sequential(nn.Linear(1, 3))
    network[0].weight.data, network[0].bias.data = torch.tensor([[1.0], [2.0], [0.0]]), torch.tensor([0.0, -0.5, 0.3])
    return network


@pytest.mark.parametrize(
    ("claim", "inside", "outside"),
    [
        (claims.top_k(2), 0.09, 0.11),  # of class 1, whose score 2x − 0.5 is below both others where x is below 0.4
        (claims.never(2), 0.19, 0.21),
        (claims.within(0.2), 0.09, 0.11),  # the second output moves twice as fast as the input
    ],
)
def test_the_limit_of_each_claim(slopes, claim, inside, outside):
    labels = [1] if claim.needs_labels else None
    proved, refuted = (verify(slopes, IMAGE, labels, eps, claim=claim) for eps in (inside, outside))
    assert proved[0].verdict is Verdict.UNSAT
    assert refuted[0].verdict is Verdict.SAT
    point = refuted[0].counterexample
    assert abs(float(point) - 0.5) <= outside + 1e-6


def test_top_one_is_robustness():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 4))
    images = torch.rand(8, 2)
    labels = network(images).argmax(1)
    plain = verify(network, images, labels, 0.1)
    claimed = verify(network, images, labels, 0.1, claim=claims.top_k(1))
    assert [result.verdict for result in claimed] == [result.verdict for result in plain]


def test_random_networks_agree_with_sampled_points():
    torch.manual_seed(1)
    for _ in range(4):
        network = nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 4))
        images = torch.rand(3, 2)
        labels = network(images).argmax(1)
        offsets = 0.2 * (2 * torch.rand(2000, 2) - 1)
        for claim in (claims.top_k(2), claims.never(0), claims.within(0.1)):
            for image, label, result in zip(
                images, labels, verify(network, images, labels, 0.2, claim=claim), strict=True
            ):
                scores = network((image + offsets).clamp(0, 1)).detach()
                kept = {
                    "top 2": (scores.topk(2).indices == label).any(1).all(),
                    "never class 0": (scores.argmax(1) != 0).all(),
                    "outputs within 0.1": ((scores - network(image).detach()).abs() < 0.1).all(),
                }[claim.name]
                assert result.verdict is not Verdict.UNSAT or bool(kept)
                assert result.verdict in (Verdict.UNSAT, Verdict.SAT)


def test_a_claim_in_a_box(slopes):
    box = regions.box(torch.tensor([0.31]), torch.tensor([1.0]))
    assert verify(slopes, IMAGE, region=box, claim=claims.never(2))[0].verdict is Verdict.UNSAT


@pytest.mark.parametrize(
    ("claim", "message"), [(claims.never(7), "no class 7"), (claims.top_k(3), "below the number of classes")]
)
def test_claims_that_make_no_sense(slopes, claim, message):
    with pytest.raises(UserError, match=message):
        verify(slopes, IMAGE, [0], 0.1, claim=claim)
    with pytest.raises(UserError, match="larger than 0"):
        claims.within(0)
