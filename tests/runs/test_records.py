"""What a run directory holds reads back as it was written, under the same keys; damage is one line."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

from helpers import dense
from runs import tiny, write_inputs
from steadynet import evaluate, load_trained
from steadynet.cli import main
from steadynet.data import Images
from steadynet.errors import UserError
from steadynet.runs.config import InputFacts, RunConfig, read_config, write_config
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import Evaluation, RadiusEvaluation, accuracy, read_evaluation, write_evaluation
from steadynet.runs.metrics import EpochMetrics

RADII = (RadiusEvaluation(0.1, 0.5, 0.25), RadiusEvaluation(0.2, 0.0, None))
PLAIN = Evaluation(10, 0.9, 100, 1, RADII)
OF_A_GRID = Evaluation(10, 0.95, 100, 1, RADII, accuracy_images=1000, other_attacks=(PLAIN,))
METRICS = EpochMetrics(1, "nbc", 0.1, 1e-3, 2.5, {"cross_entropy": 0.5, "consistency": -0.75}, 0.9, None)
CONFIG = RunConfig({"data": "digits", "model": "M1", "eps": 0.1, "method": "nbc"}, InputFacts((1, 28, 28), 10))


@pytest.mark.parametrize("evaluation", [PLAIN, OF_A_GRID])
def test_an_evaluation_reads_back_as_itself(evaluation, tmp_path):
    write_evaluation(RunDirectory(tmp_path), evaluation)
    assert read_evaluation(RunDirectory(tmp_path)) == evaluation


def test_the_keys_of_an_evaluation():
    plain = ["images", "accuracy", "pgd_steps", "pgd_restarts", "radii"]
    assert list(PLAIN.to_json()) == plain
    assert list(OF_A_GRID.to_json()) == [*plain, "accuracy_images", "other_attacks"]
    assert list(OF_A_GRID.to_json()["other_attacks"][0]) == plain
    assert list(PLAIN.to_json()["radii"][0]) == ["eps", "pgd_accuracy", "stable_share_ibp"]


def test_a_run_that_was_not_evaluated(tmp_path):
    assert read_evaluation(RunDirectory(tmp_path)) is None


@pytest.mark.parametrize("content", ["{", "[]", '{"images": 10}', json.dumps(PLAIN.to_json() | {"radii": [{}]})])
def test_a_damaged_evaluation_is_one_line(content, tmp_path):
    (tmp_path / "evaluation.json").write_text(content)
    with pytest.raises(UserError, match=r"evaluation\.json is damaged"):
        read_evaluation(RunDirectory(tmp_path))


def test_metrics_read_back_as_themselves(tmp_path):
    run = RunDirectory(tmp_path)
    later = EpochMetrics(2, "nbc", 0.1, 1e-3, 2.5, {"cross_entropy": 0.4}, cpu_seconds=4.5)
    run.add_metrics(METRICS)
    run.add_metrics(later)
    assert run.read_metrics() == [METRICS, later]
    first, second = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    common = ["epoch", "method", "radius", "lr", "seconds", "loss"]
    assert list(first) == [*common, "validation_accuracy", "stable_share_ibp"]
    assert list(second) == [*common, "cpu_seconds"]  # without validation images


def test_an_epoch_that_is_trained_again_replaces_its_metrics_and_later_ones(tmp_path):
    run = RunDirectory(tmp_path)
    for epoch in (1, 2, 3, 2):
        run.add_metrics(EpochMetrics(epoch, "nbc", 0.1, 1e-3, 2.5, {}))
    assert [row.epoch for row in run.read_metrics()] == [1, 2]


@pytest.mark.parametrize(
    ("settings", "weight", "searches"),
    [
        ({}, 0.0, {}),
        (
            {"l1_weight": 1e-5, "methods": {"natural": {}, "nbc": {"search": "fast", "beta": 1.0}}},
            1e-5,
            {"nbc": "fast"},
        ),
        ({"methods": {"rs": {"l1_weight": 2e-5, "steps": 10}}}, 2e-5, {"rs": "paper"}),  # of an earlier version
        ({"methods": {"madry": {"search": [1.0, 0.5]}}}, 0.0, {"madry": "1.0,0.5"}),
        ({"methods": 3, "l1_weight": "x"}, 0.0, {}),
    ],
)
def test_what_a_configuration_says_about_l1_and_searches(settings, weight, searches):
    config = RunConfig(CONFIG.settings | settings, CONFIG.input)
    assert (config.l1_weight, config.searches) == (weight, searches)


@pytest.mark.parametrize("line", ["3", "{", '{"epoch": 2}', '{"epoch": "two"}'])
def test_a_damaged_line_ends_the_metrics(line, tmp_path):
    run = RunDirectory(tmp_path)
    run.metrics.write_text(f"{METRICS.to_line()}\n{line}\n{METRICS.to_line()}\n")
    assert run.read_metrics() == [METRICS]


def test_a_configuration_reads_back_as_itself(tmp_path):
    for facts in (CONFIG.input, InputFacts((3, 4, 4), 2, (0.1, 0.2, 0.3), (1.0, 1.0, 0.5))):
        config = RunConfig(CONFIG.settings, facts)
        write_config(tmp_path / "config.toml", config)
        assert read_config(tmp_path / "config.toml") == config
    assert (config.data, config.model, config.eps, config.method, config.seed) == ("digits", "M1", 0.1, "nbc", 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("eps = 0.1", "eps = 'large'"), "eps = 'large' must be a number"),
        (("classes = 10", "classes = 'ten'"), "input.classes = 'ten' must be a whole number"),
        (("classes = 10", "classes = 10\nwidth = 3"), "unknown key input.width"),
    ],
)
def test_a_damaged_configuration_is_one_line(change, said, tmp_path):
    path = tmp_path / "config.toml"
    write_config(path, CONFIG)
    path.write_text(path.read_text().replace(*change))
    with pytest.raises(UserError, match=r"config\.toml is damaged: ") as caught:
        read_config(path)
    assert said in str(caught.value)


def test_evaluate_takes_a_trained_network_with_its_own_data_and_radius(tmp_path):
    write_inputs(tmp_path)
    assert main(["train", *tiny(tmp_path, eps="0.05"), "--out", str(tmp_path / "run")]) == 0
    trained = load_trained(tmp_path / "run")
    torch.manual_seed(0)
    found = evaluate(trained, pgd_steps=2)
    test = trained.data().test
    assert (found.images, [row.eps for row in found.radii]) == (len(test), [0.05])
    assert found.accuracy == accuracy(trained.network, test)
    torch.manual_seed(0)
    assert evaluate(trained.network, test, 0.05, pgd_steps=2) == found


@pytest.mark.parametrize("given", [{}, {"images": Images(torch.rand(2, 3), torch.tensor([0, 1]))}, {"radii": 0.1}])
def test_evaluate_says_what_a_plain_model_needs(given):
    with pytest.raises(UserError, match=r"evaluate needs images and radii .*: evaluate\(model, images, 0\.1\)"):
        evaluate(dense(3, 4, 2), **given)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_evaluate_refuses_weights_that_are_no_numbers(value):
    network = dense(3, 4, 2)
    next(network.parameters()).data[0, 0] = value
    with pytest.raises(UserError, match="weights that are NaN or infinite"):
        evaluate(network, Images(torch.rand(2, 3), torch.tensor([0, 1])), 0.1)


def test_a_network_without_relus_has_no_stable_share():
    network = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 2))
    found = evaluate(network, Images(torch.rand(2, 3), torch.tensor([0, 1])), [0.1, 0.2], pgd_steps=1)
    assert [row.stable_share_ibp for row in found.radii] == [None, None]
    assert found.at(0.3) is None
