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
                    "the label is among the top 2": (scores.topk(2).indices == label).any(1).all(),
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


def non_negative(inputs: int) -> nn.Sequential:
    """A network that is monotone by construction: no weight is negative."""
    network = nn.Sequential(nn.Linear(inputs, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    for layer in network[::2]:
        layer.weight.data.abs_()
    network[0].bias.data = -network[0].weight.data.sum(1) / 2  # so that ReLUs are unstable
    return network


def test_monotone_by_construction():
    torch.manual_seed(0)
    network, box = non_negative(3), regions.box(torch.zeros(3), torch.ones(3))
    for feature in range(3):
        rising, falling = (
            verify(
                network,
                [[0.5] * 3],
                region=box,
                claim=claims.monotone(feature, 1, decreasing=decreasing, tolerance=0.01),
                clock="cpu",
            )[0]
            for decreasing in (False, True)
        )
        assert rising.verdict is Verdict.UNSAT
        assert falling.verdict is Verdict.SAT
        first, second = falling.counterexample
        assert second[feature] > first[feature]
        assert torch.equal(first[[i for i in range(3) if i != feature]], second[[i for i in range(3) if i != feature]])
        assert network(second)[1] - network(first)[1] >= 0.01


def hat() -> nn.Sequential:
    """The output is 1 − |x − 0.7|, whatever the second input is: it rises up to 0.7, and then falls."""
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1))
    network[0].weight.data, network[0].bias.data = torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), torch.tensor([-0.7, 0.7])
    network[2].weight.data, network[2].bias.data = torch.tensor([[-1.0, -1.0]]), torch.tensor([1.0])
    return network


@pytest.mark.parametrize(("eps", "verdict"), [(0.19, Verdict.UNSAT), (0.21, Verdict.SAT)])
def test_monotone_up_to_where_the_output_falls(eps, verdict):
    """Around 0.5, the box reaches beyond 0.7 by eps − 0.2; the tolerance is small against that."""
    (result,) = verify(hat(), [[0.5, 0.5]], eps=eps, claim=claims.monotone(0, tolerance=0.005))
    assert result.verdict is verdict


def test_the_tolerance_of_a_monotone_claim_is_its_limit():
    """From 0.7 to the edge of the box at 0.8, the output falls by 0.1."""
    box = regions.box(torch.tensor([0.4, 0.0]), torch.tensor([0.8, 1.0]))
    proved, refuted = (
        verify(hat(), [[0.5, 0.5]], region=box, claim=claims.monotone(0, tolerance=tolerance))[0].verdict
        for tolerance in (0.11, 0.09)
    )
    assert (proved, refuted) == (Verdict.UNSAT, Verdict.SAT)


def test_monotone_claims_on_random_networks_agree_with_sampled_pairs():
    torch.manual_seed(2)
    verdicts = set()
    for _ in range(6):
        network = nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
        image = torch.rand(1, 1, 2, 2)
        (result,) = verify(network, image, eps=0.05, claim=claims.monotone((0, 1, 0), 2, tolerance=0.002))
        below = (image + 0.05 * (2 * torch.rand(4000, 1, 2, 2) - 1)).clamp(0, 1)
        above = below.clone()
        top = (image[0, 0, 1, 0] + 0.05).clamp(0, 1)
        above[:, 0, 1, 0] += torch.rand(4000) * (top - below[:, 0, 1, 0])
        kept = bool((network(above)[:, 2] - network(below)[:, 2] > -0.002).all())
        assert result.verdict in (Verdict.UNSAT, Verdict.SAT)
        assert kept or result.verdict is Verdict.SAT
        verdicts.add(result.verdict)
    assert len(verdicts) == 2  # both happen


def test_a_pair_of_images_in_a_notebook():
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    network[1].weight.data.fill_(-1.0)
    found = verify(network, torch.full((1, 1, 2, 2), 0.5), eps=0.1, claim=claims.monotone(3))
    assert found[0].counterexample.shape == (2, 1, 2, 2)
    assert "counterexample" in found._repr_html_()
    found.plot()


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        (claims.monotone(1), "no feature 1"),
        (claims.monotone((0, 0)), "no feature"),
        (claims.monotone(0, 3), "output 3"),
    ],
)
def test_monotone_claims_that_make_no_sense(slopes, claim, message):
    with pytest.raises(UserError, match=message):
        verify(slopes, IMAGE, eps=0.1, claim=claim)
    with pytest.raises(UserError, match="larger than 0"):
        claims.monotone(0, tolerance=0)
