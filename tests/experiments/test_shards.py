"""An experiment uses stored verdicts only for the network, labels and verifier that they were found with."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from steadynet.experiments.shards import VerificationPlan
from steadynet.runs.directory import RunDirectory
from steadynet.runs.tensors import load_tensors, save_tensors
from steadynet.runs.trained import load_trained
from steadynet.verification import verdict_key


@pytest.fixture
def plan(trained):
    """The properties that the fixture ``verified`` has decided."""
    test = load_trained(trained).data().test
    index = tuple(test.first_of_each_class(3).tolist())
    data, settings = str(trained.parent / "small.npz"), {"timeout": 20.0}
    return VerificationPlan(data, index, (0.05, 0.3, 0.7), "branch_and_bound", settings, shard_size=5)


def test_stored_rows_come_in_the_order_of_the_plan(verified, plan):
    run = RunDirectory(verified)
    assert list(plan.stored_rows(run)) == [(eps, index) for eps in plan.radii for index in plan.index]
    assert plan.undecided_shards(run) == []


def test_verdicts_of_other_weights_are_not_used(verified, plan):
    run = RunDirectory(verified)
    tensors, facts = load_tensors(run.weights)
    first = next(iter(tensors.values())).view(-1)
    first[0] = torch.nextafter(first[0], torch.tensor(9.0))
    save_tensors(run.weights, tensors, facts)
    assert plan.stored_rows(run) == {}
    assert sum(len(shard.index) for shard in plan.undecided_shards(run)) == 36


def test_verdicts_of_other_labels_settings_and_versions_are_not_used(verified, plan, tmp_path, monkeypatch):
    run = RunDirectory(verified)
    with np.load(plan.data) as content:
        np.savez(tmp_path / "other.npz", X=content["X"], y=(content["y"] + 1) % 4)
    exact, shorter = {"timeout": 20.0, "arithmetic": "exact"}, {"timeout": 9.0}
    changes = [{"data": str(tmp_path / "other.npz")}, {"verifier": "milp"}]
    changes += [{"verifier_settings": exact}, {"verifier_settings": shorter}]
    for change in changes:
        assert replace(plan, **change).stored_rows(run) == {}, change
    monkeypatch.setattr(verdict_key, "SOUNDNESS_VERSION", verdict_key.SOUNDNESS_VERSION + 1)
    assert plan.stored_rows(run) == {}
