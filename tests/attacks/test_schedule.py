"""Schedules of steps, computed by hand."""

import pytest
import torch

from steadynet.attacks.pgd import maximise_cross_entropy
from steadynet.attacks.region import InputRegion
from steadynet.attacks.schedule import StepSchedule
from steadynet.errors import UserError


def test_lengths_by_hand():
    assert StepSchedule.equal(3, 0.1) == StepSchedule((0.1, 0.1, 0.1))
    assert StepSchedule.in_shares((1.0, 0.5, 0.25), 0.4) == StepSchedule((0.4, 0.2, 0.1))
    assert StepSchedule.fast(0.25) == StepSchedule((0.5, 0.25, 0.125), momentum=0.5)
    # 8 steps: shorter from the 5th (50 %), the 8th (7/8 ≥ 80 %); 90 % is never reached
    expected = [0.1] * 4 + [0.01] * 3 + [0.001]
    assert StepSchedule.dropping(8, 0.1, (0.5, 0.8, 0.9)).lengths == pytest.approx(expected)
    assert StepSchedule.dropping(3, 0.1, ()).lengths == (0.1, 0.1, 0.1)


@pytest.mark.parametrize("shares", [(), (0.0,), (1.0, -0.5), (float("nan"),)])
def test_shares_are_larger_than_zero(shares):
    with pytest.raises(UserError, match=r"shares of ε, each larger than 0"):
        StepSchedule.in_shares(shares, 0.1)


def test_an_attack_takes_the_steps_of_its_schedule():
    # the logits (−x, x) and label 0: the loss rises with x, so that each step adds its length, up to the region's edge
    network = torch.nn.Linear(1, 2, bias=False)
    network.weight.data.copy_(torch.tensor([[-1.0], [1.0]]))
    image, label = torch.tensor([[0.5]]), torch.tensor([0])
    region = InputRegion.around(image, 0.4)
    for schedule, reached in (((0.1,), 0.6), ((0.2, 0.1), 0.8), ((0.3, 0.2, 0.1), 0.9)):
        found = maximise_cross_entropy(network, label, region, image, StepSchedule(schedule))
        assert found.item() == pytest.approx(reached)


def test_momentum_remembers_earlier_gradients():
    # The objective falls along x first; at x ≥ 0.2 its gradient along x vanishes and that along y is 1. Gradients are
    # divided by the mean of their absolute values, so momentum ½ keeps half of the first step's direction along x.
    def network(points):
        x, y = points.unbind(1)
        rising = torch.where(x < 0.2, x, y)
        return torch.stack([-rising, rising], 1)

    image, label = torch.zeros(1, 2), torch.tensor([0])
    region = InputRegion.around(image, 1.0, clip=False)
    plain = maximise_cross_entropy(network, label, region, image, StepSchedule((0.3, 0.1)))
    kept = maximise_cross_entropy(network, label, region, image, StepSchedule((0.3, 0.1), momentum=0.5))
    assert plain.tolist() == [pytest.approx([0.3, 0.1])]
    assert kept.tolist() == [pytest.approx([0.4, 0.1])]
