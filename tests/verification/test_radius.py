"""The largest proved and the smallest refuted radius, against networks whose radii are known."""

from __future__ import annotations

import csv

import numpy as np
import pytest
import torch
from torch import nn

from steadynet import UserError, largest_radius
from steadynet.cli import main
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.verification.properties import Properties, is_counterexample
from steadynet.verification.radius import Radius, RadiusSearch
from steadynet.verification.radius_table import certified_accuracy
from steadynet.verification.verifiers import make_verifier


@pytest.fixture
def network():
    """The label is 0 where |x − 0.5| < 0.25, computed by two ReLUs."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2))
    network[1].weight.data, network[1].bias.data = torch.tensor([[1.0], [-1.0]]), torch.tensor([-0.5, 0.5])
    network[3].weight.data, network[3].bias.data = torch.tensor([[-1.0, -1.0], [0.0, 0.0]]), torch.tensor([0.25, 0.0])
    return network


IMAGES = torch.tensor([0.5, 0.6, 0.3, 0.9]).reshape(-1, 1, 1, 1)
LABELS = torch.tensor([0, 0, 0, 0])
TRUE = (0.25, 0.15, 0.05, 0.0)  # the last image is misclassified


def test_the_brackets_hold_the_true_radii(network):
    found = largest_radius(network, IMAGES, LABELS, tolerance=0.004)
    for radius, true in zip(found, TRUE, strict=True):
        assert radius.proved <= true + 1e-6
        assert radius.refuted is not None
        assert radius.refuted >= true - 1e-6
        assert radius.refuted - radius.proved <= 0.004
    assert found[3].refuted == 0


def test_counterexamples_replay_at_the_refuted_radius(network):
    for index, radius in enumerate(largest_radius(network, IMAGES, LABELS, tolerance=0.01)):
        properties = Properties.around(network, IMAGES, LABELS, float(np.nextafter(np.float32(radius.refuted), 1)))
        assert is_counterexample(properties, index, radius.counterexample)


def test_what_is_robust_everywhere_is_proved_up_to_the_largest_radius(network):
    found = largest_radius(network, IMAGES[0], 0, most=0.2)
    assert isinstance(found, Radius)
    assert (found.proved, found.refuted) == (0.2, None)


def test_a_radius_without_verdict_is_not_proved(network):
    """With a verifier that never decides, nothing is proved, and only attacks refute."""

    class Undecided(type(make_verifier("branch_and_bound", {}))):
        def verify(self, properties, on_result):
            from steadynet import Result, Verdict

            for index in range(len(properties)):
                on_result(index, Result(Verdict.TIMEOUT, 1.0))

    search = RadiusSearch(network, IMAGES[:1], LABELS[:1], Undecided(), 0.2, 0.01)
    search.run()
    (radius,) = search.found
    assert (radius.proved, radius.refuted) == (0.0, None)
    assert radius.open_at is not None
    assert radius.open_at <= 0.02


@pytest.mark.parametrize("settings", [{"most": 0}, {"most": 2}, {"tolerance": 0.6}, {"tolerance": 0}])
def test_settings_that_make_no_sense(network, settings):
    with pytest.raises(UserError):
        largest_radius(network, IMAGES, LABELS, **settings)


def test_certified_accuracy():
    found = [Radius(0.1, 0.3), Radius(0.2, None), Radius(0.0, 0.0)]
    assert certified_accuracy(found, 0.15) == (1 / 3, 2 / 3)
    assert certified_accuracy(found, 0.3) == (0, 1 / 3)


def test_the_command_writes_a_table_and_a_curve(network, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    export_onnx(network, (1, 1, 1), "net.onnx")
    np.savez("images.npz", X=IMAGES.numpy(), y=LABELS.numpy())
    words = ["radius", "net.onnx", "--data", "images.npz", "--tolerance", "0.01", "--per-class", "9"]
    assert main(words) == 0
    with open("runs/net/radii.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row, true in zip(rows, TRUE, strict=True):
        assert float(row["proved"]) <= true + 1e-6 <= float(row["refuted"]) + 2e-6
    assert (tmp_path / "runs" / "net" / "radius.png").stat().st_size > 1000
    assert "proved to ε" in capsys.readouterr().out
    assert main(["verify", "net.onnx", "--data", "images.npz", "--eps", "0.1"]) == 0
    assert main(["report", "net.onnx", "--no-figures"]) == 0
    page = (tmp_path / "report" / "index.html").read_text(encoding="utf-8")
    assert "How far images keep their labels" in page
    assert "all:images" not in page
    assert "trained with imported" not in page
