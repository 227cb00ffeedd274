"""The searches of inner attacks."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from helpers import convolutional, some_images, some_labels
from steadynet.attacks.schedule import StepSchedule
from steadynet.objectives import Batch, available, build, certified
from steadynet.plugins import settings_of

EPS = 0.2


def terms_of(name: str, network: nn.Module, **settings: object) -> dict[str, Tensor]:
    torch.manual_seed(0)
    return build(name, {name: settings}).terms(Batch(network, some_images(), some_labels(), EPS))


ATTACKING = [
    name for name in sorted(available()) if "search" in [entry.name for entry in settings_of(available()[name])]
]


@pytest.mark.parametrize("name", ATTACKING)
def test_every_attacking_method_has_the_same_searches(name):
    make, radius = available()[name], 0.3
    assert make(search="fast").schedule(radius) == StepSchedule((0.6, 0.3, 0.15), momentum=0.5)
    assert make(search=(1.0, 0.5)).schedule(radius) == StepSchedule((0.3, 0.15))
    assert make(search="paper") == make()
    assert make(search="fast", steps=make().steps) == make(search="fast")  # as an old config.toml with --search fast
    assert make(search="fast").steps is None


def test_the_search_of_the_paper_is_bit_for_bit_what_its_authors_do():
    for name in ("madry", "trades", "rs", "nbc"):
        assert available()[name]().schedule(0.3) == StepSchedule((0.3 / 10,) * 10)
    for name in ("mtl-ibp", "cc-ibp", "exp-ibp"):  # one step to a corner
        assert available()[name]().schedule(0.3) == StepSchedule((10 * 0.3,))
    for name in ("sabr", "staps", "ibp-r"):
        half = 0.3 / 2
        expected = (*[half] * 4, *[half * 0.1] * 3, half * 0.1**2)
        assert available()[name]().schedule(0.3) == StepSchedule(expected)


@pytest.mark.parametrize("name", ATTACKING)
def test_the_search_changes_the_attacked_point_only(name):
    found = {search: terms_of(name, convolutional(), search=search) for search in ("paper", "fast", (2.0, 1.0))}
    assert len({tuple(term.item() for term in terms.values()) for terms in found.values()}) == 3
    assert all(terms.keys() == found["paper"].keys() for terms in found.values())


def test_sabr_attacks_in_shares_of_the_smaller_region(monkeypatch):
    seen = []
    monkeypatch.setattr(certified, "maximise_cross_entropy", lambda *given: seen.append(given[-1]) or given[3])
    terms_of("sabr", convolutional(), box=0.4, search=(1.0,))
    terms_of("sabr", convolutional(), box=0.4, steps=1)  # its authors' steps are shares of ε
    assert [schedule.lengths[0] for schedule in seen] == pytest.approx([0.6 * EPS, 0.5 * EPS])
