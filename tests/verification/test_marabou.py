"""Marabou, for real where it is installed: it agrees with ours, and no misreading or crash becomes a proof."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch
from test_verifiers_contract import threshold
from torch import nn

from helpers import dense, some_images
from steadynet import Verdict, verify
from steadynet.networks import build
from steadynet.verification.properties import Reason
from steadynet.verification.verifiers import marabou_queries
from steadynet.verification.verifiers.marabou_queries import PropertyAnswer, run_in_fork

pytest.importorskip("maraboupy.MarabouCore")


def test_it_decides_as_ours_do():
    """Some properties hold and some do not; a scale a feature is what Marabou reads only as a batch norm."""
    torch.manual_seed(0)
    norm = nn.BatchNorm1d(10)
    norm.weight.data.uniform_(0.5, 2)
    norm.bias.data.normal_()
    for network in (dense(4, 10, 10, 3, seed=2), nn.Sequential(nn.Linear(4, 10), nn.ReLU(), norm, nn.Linear(10, 3))):
        network.eval()
        images = some_images(6, (4,))
        labels = network(images).argmax(1)
        found = {
            name: [result.verdict.value for result in verify(network, images, labels, 0.25, name, timeout=20)]
            for name in ("marabou", "milp")
        }
        assert found["marabou"] == found["milp"]
    assert {"sat", "unsat"} >= set(found["milp"])


def test_it_reads_m1():
    """One property of the paper's smallest network on small images, at a radius where bounds alone prove it."""
    torch.manual_seed(0)
    network = build("M1", (1, 12, 12), 2).eval()
    image = torch.rand(1, 1, 12, 12)
    with torch.no_grad():
        list(network.children())[-1].bias[0] += 1
    (result,) = verify(network, image, torch.tensor([0]), 1e-4, "marabou", timeout=60)
    assert (result.verdict, result.decided_by) == (Verdict.UNSAT, "marabou")


def with_dilation() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 2, dilation=2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3))


def with_padded_pool() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3))


def with_average() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8, 3))


@pytest.mark.parametrize("build_one", [with_dilation, with_padded_pool, with_average])
def test_what_marabou_misreads_is_an_error(build_one):
    torch.manual_seed(0)
    network = build_one().eval()
    images = some_images(2)
    results = verify(network, images, network(images).argmax(1), 0.001, "marabou", timeout=20)
    assert [result.verdict for result in results] == [Verdict.ERROR] * 2
    assert all(result.reason for result in results)


def test_a_network_that_marabou_reads_as_another_one_in_silence_is_an_error():
    """Its reader ignores dilations; with this stride all shapes fit nevertheless."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 2, 2, stride=2, dilation=2), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3)).eval()
    images = some_images(1, (1, 7, 7))
    (result,) = verify(network, images, network(images).argmax(1), 0.001, "marabou", timeout=20)
    assert (result.verdict, result.reason) == (
        Verdict.ERROR,
        "RuntimeError: Marabou reads this network as another one",
    )


def test_a_tie_is_no_proof_and_no_refutation():
    """At 0.6 − 0.1 both classes have the same score: the network keeps its label, the property file's does not."""
    image = torch.tensor([[0.5 + 2**-4]])
    (result,) = verify(threshold(), image, torch.tensor([0]), 2**-4, "marabou", timeout=20)
    assert result.verdict in (Verdict.UNKNOWN, Verdict.SAT)
    if result.verdict is Verdict.UNKNOWN:
        assert result.reason == Reason.ZERO_MARGIN


def test_forks_crash_hang_and_raise_alone():
    large = PropertyAnswer("sat", points=[[0.5] * 100_000])
    assert run_in_fork(lambda: large, 5) == large
    killed = run_in_fork(lambda: os.kill(os.getpid(), signal.SIGKILL), 5)
    assert killed == PropertyAnswer("error", "Marabou crashed with signal 9")
    assert run_in_fork(lambda: 1 / 0, 5) == PropertyAnswer("error", "ZeroDivisionError: division by zero")
    started = time.perf_counter()
    assert run_in_fork(lambda: time.sleep(60), 0.2) == PropertyAnswer("timeout")
    assert time.perf_counter() - started < 2


def test_a_process_that_dies_is_every_property_s_error(monkeypatch, tmp_path):
    script = tmp_path / "dies.py"
    script.write_text("import sys; print('{}', flush=True); sys.exit('no memory')")
    monkeypatch.setattr(marabou_queries, "__file__", str(script))
    results = verify(threshold(), torch.tensor([[0.9], [0.1]]), torch.tensor([0, 1]), 0.1, "marabou")
    assert [result.verdict for result in results] == [Verdict.ERROR] * 2
    assert results[0].reason == "Marabou's process ended: no memory"
