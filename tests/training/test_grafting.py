"""Linearity grafting: the formula and the mask by hand, bounds and proofs of grafted networks, and the new run."""

from __future__ import annotations

import copy
import json
from dataclasses import asdict

import pytest
import torch
from torch import nn

from helpers import CLASSES, IMAGE, Written, convolutional, dense, residual, some_images
from onnx_files import runtime
from runs import files, same_weights, settings_from, tiny, write_inputs
from steadynet import load_trained, train, verify
from steadynet.attacks.region import InputRegion
from steadynet.bounds import crown_bounds, interval_bounds
from steadynet.cli import main
from steadynet.data import Images
from steadynet.errors import UserError
from steadynet.files import read_record
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.networks import GRAFTED, build
from steadynet.networks.grafting import GraftedReLU, grafted_layers, weight_matrices, with_grafted_relus
from steadynet.objectives.l1 import l1_norm
from steadynet.runs.directory import RunDirectory
from steadynet.training.grafting import GraftedCounts, GraftRecord, GraftSettings, graft_network, graft_run
from steadynet.training.loop import resume
from steadynet.training.observer import SilentObserver


def partly_grafted(network: nn.Module, shape: tuple[int, ...], seed: int = 0) -> nn.Module:
    """The network with about half of its ReLUs replaced by lines with random slopes and shifts."""
    generator = torch.Generator().manual_seed(seed)
    for layer in grafted_layers(with_grafted_relus(network, shape)).values():
        layer.graft(torch.rand(layer.keep.shape, generator=generator) < 0.5, 0.4)
        with torch.no_grad():
            layer.factor.add_(torch.randn(layer.keep.shape, generator=generator) * (1 - layer.keep))
            layer.shift.add_(torch.randn(layer.keep.shape, generator=generator) * (1 - layer.keep))
    return network.eval()


# The layer


def test_the_formula_by_hand():
    layer = GraftedReLU((2, 2))
    layer.graft(torch.tensor([[True, False], [False, True]]), slope=0.5)
    layer.shift.data[1, 1] = 3.0
    assert layer(torch.tensor([[[-4.0, -4.0], [4.0, -4.0]]])).tolist() == [[[-2.0, 0.0], [4.0, 1.0]]]


NETWORKS = {
    "convolutional": (convolutional(), 2),
    "dense": (nn.Sequential(nn.Flatten(), dense(36, 9, 7, CLASSES)), 2),
    "residual": (residual().eval(), 0),  # its only ReLU is called twice
    "M1": (build("M1", IMAGE, CLASSES), 3),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_an_empty_mask_changes_no_bit(name):
    network, relus = copy.deepcopy(NETWORKS[name])
    expected = network(some_images())
    before = network.state_dict()
    with_grafted_relus(network, IMAGE)
    assert len(grafted_layers(network)) == relus
    assert network(some_images()).equal(expected)
    assert all(network.state_dict()[key].equal(value) for key, value in before.items())


def test_only_lines_of_grafted_neurons_are_trained_in_copies_too():
    network = copy.deepcopy(partly_grafted(convolutional(), IMAGE))
    layers = list(grafted_layers(network).values())
    before = [(layer.factor.clone(), layer.shift.clone(), layer.keep.clone()) for layer in layers]
    optimiser = torch.optim.Adam(network.parameters(), 0.1)
    for _ in range(3):
        optimiser.zero_grad()
        (network(some_images()).square().sum() + sum(layer.factor.sum() for layer in layers)).backward()
        optimiser.step()
    for layer, (factor, shift, keep) in zip(layers, before, strict=True):
        assert layer.keep.equal(keep)
        for now, then in ((layer.factor, factor), (layer.shift, shift)):
            assert not now[keep == 1].any()
            assert (now != then)[keep == 0].all()


def test_lines_are_no_weights_for_the_l1_norm():
    network = with_grafted_relus(convolutional(), IMAGE)
    expected = l1_norm(network).item()
    for layer in grafted_layers(network).values():
        layer.graft(torch.ones_like(layer.keep, dtype=torch.bool), 0.4)
    assert l1_norm(network).item() == expected
    assert len(weight_matrices(network)) == 3


# The mask


def test_the_most_unstable_relus_of_all_layers_by_hand():
    network = nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2))
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[1.0], [2.0], [1.0]]))
        network[0].bias.copy_(torch.tensor([-0.5, -1.0, 5.0]))  # around 0.5: ±0.1, ±0.2, always active
        network[2].weight.copy_(torch.tensor([[0.0, 0.0, 0.5], [0.0, 0.0, 0.0]]))
        network[2].bias.copy_(torch.tensor([-2.75, -1.0]))  # around 0.5: ±0.05; never active
    images = Images(torch.tensor([[0.5], [0.5], [0.57]]), torch.zeros(3).long())  # the last: −0.03…0.17 and so on
    chosen = {}
    for count in range(6):
        grafted = copy.deepcopy(network)
        counts = graft_network(grafted, images, 0.1, share=count / 5, slope=0.4)
        keeps = [layer.keep.tolist() for layer in grafted_layers(grafted).values()]
        chosen[count] = keeps
        assert counts == GraftedCounts(min(count, 3), 5)
    assert chosen[0] == [[1, 1, 1], [1, 1]]
    assert chosen[1] == [[1, 0, 1], [1, 1]]  # reaches farther over zero
    assert chosen[2] == [[0, 0, 1], [1, 1]]
    assert chosen[3] == chosen[5] == [[0, 0, 1], [0, 1]]  # what is always stable stays


def test_a_network_without_relu_modules_is_refused():
    network = Written(lambda net, x: net.b(net.a(x).relu()), a=nn.Linear(2, 3), b=nn.Linear(3, 2))
    images = Images(torch.rand(2, 2), torch.zeros(2).long())
    with pytest.raises(UserError, match=r"no nn\.ReLU that is called once"):
        graft_network(network, images, 0.1, share=0.5, slope=0.4)


# Bounds, proofs and ONNX


def test_bounds_hold_and_grafted_relus_are_stable():
    network = partly_grafted(convolutional(), IMAGE)
    region = InputRegion.around(some_images(), 0.2)
    points = region.lower + torch.rand(200, *region.lower.shape) * (region.upper - region.lower)
    outputs = torch.stack([network(point) for point in points])
    for bounds in (interval_bounds(network, region), crown_bounds(network, region)):
        assert (bounds.output.lower <= outputs + 1e-5).all()
        assert (bounds.output.upper >= outputs - 1e-5).all()
        for stable, layer in zip(bounds.stable(), grafted_layers(network).values(), strict=True):
            assert stable[:, layer.keep == 0].all()


def test_a_network_of_lines_has_exact_bounds():
    network = with_grafted_relus(dense(2, 3, 2), (2,))
    (layer,) = grafted_layers(network).values()
    layer.graft(torch.ones(3, dtype=torch.bool), 0.5)
    first, last = (module for module in network if isinstance(module, nn.Linear))
    matrix = 0.5 * last.weight @ first.weight
    middle, radius = torch.tensor([[0.4, 0.6]]), 0.1
    bounds = crown_bounds(network, InputRegion.around(middle, radius))
    assert torch.allclose(bounds.output.upper, network(middle) + radius * matrix.abs().sum(1), atol=1e-5)
    assert torch.allclose(bounds.output.lower, network(middle) - radius * matrix.abs().sum(1), atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_verifiers_agree_on_grafted_networks(seed):
    network = partly_grafted(dense(3, 6, 5, 3, seed=seed), (3,), seed)
    images = torch.rand(6, 3, generator=torch.Generator().manual_seed(seed))
    labels = network(images).argmax(1)
    ours, exact = (
        [result.verdict for result in verify(network, images, labels, 0.1, verifier=name, timeout=20)]
        for name in ("branch_and_bound", "milp")
    )
    assert ours == exact
    assert {verdict.value for verdict in ours} <= {"sat", "unsat"}


def test_onnx_runtime_computes_the_same(tmp_path):
    network = partly_grafted(convolutional(), IMAGE)
    export_onnx(network, IMAGE, tmp_path / "grafted.onnx")
    expected = network(some_images()).detach()
    assert torch.allclose(
        torch.from_numpy(runtime(tmp_path / "grafted.onnx", some_images().numpy())), expected, atol=1e-5
    )


# The run


class StoppedError(Exception):
    """Stands for a killed process."""


class StopAfter(SilentObserver):
    def __init__(self, epoch: int, batch: int) -> None:
        self.place = (epoch, batch)

    def on_batch(self, position, phase, radius):
        if (position.epoch, position.batch) == self.place:
            raise StoppedError


def test_graft_writes_a_run_that_other_commands_load(tmp_path, capsys):
    write_inputs(tmp_path)
    run, out = tmp_path / "run", tmp_path / "lines"
    assert (
        main(
            [
                "train",
                *tiny(tmp_path, phases="natural:1 nbc:1", method=None, epochs=None),
                "--normalise",
                "--out",
                str(run),
            ]
        )
        == 0
    )
    before = files(run)
    capsys.readouterr()
    flags = ["--epochs", "2", "--images", "8", "--verify-images", "2", "--slope", "0.3"]
    assert main(["graft", str(run), *flags, "--out", str(out)]) == 0
    shown = capsys.readouterr().out
    record = read_record(RunDirectory(out).grafting, GraftRecord)
    for measured in (record.before, record.after):
        for share in (measured.accuracy, measured.pgd_accuracy, measured.stable_share_ibp, measured.proved):
            assert f"{100 * share:.1f} %" in shown
    assert json.loads(RunDirectory(out).grafting.read_text()) == asdict(record)
    assert record.settings == GraftSettings(epochs=2, images=8, slope=0.3)
    assert record.lines == GraftedCounts(4, 8)
    assert files(run) == before
    grafted = load_trained(out)
    assert grafted.config.model.endswith(f"net.py:tiny{GRAFTED}")
    assert grafted.config.settings["method"] == "nbc"
    (layer,) = grafted_layers(grafted.network).values()
    assert int((layer.keep == 0).sum()) == 4
    assert (layer.factor != 0).equal(layer.keep == 0)
    assert ((layer.factor - 0.3).abs()[layer.keep == 0] > 1e-3).all()  # it was trained
    (tmp_path / "net.py").unlink()  # the run has its own copy
    assert main(["evaluate", str(out), "--pgd-steps", "2"]) == 0
    assert main(["verify", str(out), "--eps", "0.05", "--per-class", "1", "--timeout", "5"]) == 0
    assert main(["export", str(out), "--eps", "0.05", "--per-class", "1", "--out", str(tmp_path / "exported")]) == 0
    assert main(["graft", str(run), "--epochs", "1", "--out", str(out)]) == 2
    assert main(["graft", str(out), "--epochs", "1", "--out", str(tmp_path / "other")]) == 2
    assert main(["graft", str(run), "--share", "2", "--out", str(tmp_path / "other")]) == 2
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("place", [(0, 2), (1, 3)])
def test_a_killed_fine_tuning_resumes_to_the_same_bits(tmp_path, place):
    write_inputs(tmp_path)
    run = train(settings_from(tiny(tmp_path, schedule="one-cycle")), tmp_path / "run")
    settings = GraftSettings(images=4, epochs=2, line_lr=0.05)
    graft_run(load_trained(run.path), tmp_path / "whole", settings)
    with pytest.raises(StoppedError):
        graft_run(load_trained(run.path), tmp_path / "killed", settings, observer=StopAfter(*place))
    resume(tmp_path / "killed")
    assert same_weights(tmp_path / "whole", tmp_path / "killed")


def test_a_network_given_in_python_is_loaded_with_its_lines(tmp_path):
    write_inputs(tmp_path)
    model = dense(36, 8, 4)
    network = nn.Sequential(nn.Flatten(), *model)
    run = train(settings_from(tiny(tmp_path)), tmp_path / "run", network=copy.deepcopy(network))
    graft_run(load_trained(run.path, copy.deepcopy(network)), tmp_path / "lines", GraftSettings(images=4, epochs=1))
    loaded = load_trained(tmp_path / "lines", copy.deepcopy(network))
    assert len(grafted_layers(loaded.network)) == 1
    with pytest.raises(UserError, match="given in Python"):
        load_trained(tmp_path / "lines")
