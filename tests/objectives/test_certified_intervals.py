"""Improved interval arithmetic: tighter than plain intervals, and sound; the schedules and recipes of training."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from helpers import convolutional, dense, gradients, quick, residual, some_images, some_labels
from runs import same_weights, settings_from, tiny, write_inputs
from steadynet import load_trained
from steadynet.attacks.region import InputRegion
from steadynet.bounds import interval_bounds, substituted_bounds
from steadynet.cli import main
from steadynet.networks import ARCHITECTURES, initialise_for_intervals
from steadynet.networks.preactivations import activations
from steadynet.objectives import Batch, build
from steadynet.runs.directory import RunDirectory
from steadynet.runs.metrics import EpochMetrics
from steadynet.training.loop import resume, train
from steadynet.training.observer import SilentObserver
from steadynet.training.preparation import with_initialisation
from steadynet.training.schedules import ramp
from steadynet.training.settings import resolve


def shifted(network: nn.Module) -> nn.Module:
    """The network with biases that make many of its ReLUs always active."""
    for name, parameter in network.named_parameters():
        if name.endswith("bias"):
            parameter.data += 0.4
    return network


@quick
@given(seed=st.integers(0, 10**6), radius=st.floats(0.0, 0.2), make=st.sampled_from([convolutional, residual, "dense"]))
def test_improved_intervals_are_sound_and_no_wider(seed, radius, make):
    network = dense(36, 9, 8, 7, 4, seed=seed) if make == "dense" else make(seed)
    network = shifted(network).eval()
    images = some_images(4, (36,) if make == "dense" else (1, 6, 6), seed=seed)
    region = InputRegion.around(images, radius)
    plain, improved = interval_bounds(network, region), substituted_bounds(network, region)
    for one, other in zip(improved.relus, plain.relus, strict=True):
        assert (one.lower >= other.lower - 1e-5).all()
        assert (one.upper <= other.upper + 1e-5).all()
    for points in (images, region.lower, region.upper, region.sample(), region.sample()):
        for bound, value in zip(improved.relus, activations(network, points).preactivations, strict=True):
            assert (bound.lower <= value + 1e-5).all()
            assert (bound.upper >= value - 1e-5).all()


def test_improved_intervals_are_tighter_where_relus_are_active():
    network, region = shifted(dense(6, 8, 8, 8, 3)), InputRegion.around(torch.rand(5, 6), 0.1)
    plain, improved = interval_bounds(network, region), substituted_bounds(network, region)
    widths = [[(layer.upper - layer.lower).sum().item() for layer in bounds.relus] for bounds in (plain, improved)]
    assert widths[1][0] == pytest.approx(widths[0][0])
    assert widths[1][1] < 0.95 * widths[0][1]
    assert widths[1][2] < 0.95 * widths[0][2]


def test_rs_can_use_them():
    network = shifted(convolutional())
    batch = Batch(network, some_images(), some_labels(), 0.1)
    plain, improved = (
        build("rs", {"rs": {"improved": switch}}).terms(batch)["instability"] for switch in (False, True)
    )
    assert improved < plain
    assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(improved, network[0].weight))
    assert gradients(build("rs", {"rs": {"improved": True}})(network, some_images(), some_labels(), 0.1), network)


def test_the_smooth_ramp_by_hand():
    # a·t⁴ up to 1/4, then its tangent there, which must end at 1: a·(1/256 + 4/64 · 3/4) = 1
    scale = 1 / (1 / 256 + 3 / 64)
    assert ramp(0.1, "smooth") == pytest.approx(scale * 1e-4)
    assert ramp(0.25, "smooth") == pytest.approx(scale / 256)
    assert ramp(0.6, "smooth") == pytest.approx(scale * (1 / 256 + 0.35 / 16))
    slopes = [(ramp(at + 1e-6, "smooth") - ramp(at, "smooth")) / 1e-6 for at in (0.25 - 2e-6, 0.25 + 1e-6)]
    assert slopes[0] == pytest.approx(slopes[1], rel=1e-3)
    assert [ramp(share, kind) for kind in ("linear", "smooth") for share in (-1, 0, 1, 9)] == pytest.approx(
        [0, 0, 1, 1] * 2
    )


def test_interval_initialisation():
    network = ARCHITECTURES["M1"].build()
    last = network[-1].weight.clone()
    initialise_for_intervals(network)
    for layer, inputs in ((network[0], 16), (network[2], 256), (network[5], 1568)):
        assert layer.weight.std().item() == pytest.approx(math.sqrt(2 * math.pi) / inputs, rel=0.15)
        assert not layer.bias.any()
    assert network[-1].weight.equal(last)


@pytest.mark.parametrize(
    ("data", "eps", "method", "expected"),
    [
        ("mnist", "0.1", "sabr", {"box": 0.4, "l1_weight": 1e-5}),
        ("mnist", "0.3", "sabr", {"box": 0.6, "l1_weight": 1e-6}),
        ("cifar10", "2/255", "sabr", {"box": 0.1, "l1_weight": 1e-6, "eps_factor": 1.5, "shrink": 0.8}),
        ("cifar10", "8/255", "sabr", {"box": 0.7, "l1_weight": 0.0}),
        ("mnist", "0.1", "mtl-ibp", {"ibp_share": 0.01, "l1_weight": 1e-5, "eps_factor": 2.0, "steps": 1}),
        ("mnist", "0.3", "mtl-ibp", {"ibp_share": 0.08, "l1_weight": 1e-6, "eps_factor": 1.334}),
        ("cifar10", "2/255", "mtl-ibp", {"ibp_share": 0.004, "l1_weight": 3e-6, "attack_factor": 2.1, "steps": 8}),
        ("mnist", "0.1", "cc-ibp", {"ibp_share": 0.1, "l1_weight": 2e-6, "eps_factor": 2.0}),
        ("cifar10", "2/255", "exp-ibp", {"ibp_share": 9.5e-2, "l1_weight": 4e-6}),
        ("mnist", "0.3", "taps", {"latent_steps": 5, "taps_weight": 4.0}),
        ("cifar10", "2/255", "staps", {"latent_steps": 8, "box": 0.1}),
        ("cifar10", "8/255", "mtl-ibp", {"ibp_share": 0.5, "l1_weight": 1e-7, "step_share": 10.0}),
    ],
)
def test_published_settings(data, eps, method, expected):
    found = resolve({"data": data, "eps": eps, "method": method}).methods[method]
    assert {key: found[key] for key in expected} == expected
    if method == "sabr":
        assert (found["steps"], found["decay"]) == (8, True)


@pytest.mark.parametrize("method", ["mtl-ibp", "cc-ibp", "exp-ibp", "ibp-r", "sabr", "staps", "madry", "nbc"])
def test_another_search_replaces_the_published_steps(method):
    found = resolve({"data": "cifar10", "eps": "2/255", "method": method, "search": "fast"}).methods[method]
    assert (found["search"], found["steps"]) == ("fast", None)


def test_recipes_are_shares_of_the_training_and_flags_win():
    settings = resolve({"data": "mnist", "method": "ibp+nbc", "epochs": 70})
    assert (settings.hold, settings.warmup, settings.ramp) == (1.0, 20.0, "smooth")
    assert (settings.lr, settings.gradient_clip, settings.initialisation) == (5e-4, 10.0, "auto")
    assert (settings.schedule, settings.drops) == ("drops", (0.714, 0.857))
    short = resolve({"data": "cifar10", "method": "sabr", "epochs": 16, "hold": 0.0, "lr": 1e-3, "gradient_clip": 0.0})
    assert (short.hold, short.warmup, short.lr, short.gradient_clip) == (0.0, 8.0, 1e-3, 0.0)
    plain = resolve({"data": "mnist", "method": "nbc", "recipe": "paper"})
    assert (plain.hold, plain.warmup, plain.lr, plain.schedule, plain.initialisation) == (
        0.0,
        0.0,
        1e-4,
        "constant",
        "default",
    )
    stable = resolve({"data": "mnist", "phases": "rs:5 rs+nbc:5", "recipe": "paper"})
    assert (stable.warmup, stable.ramp, stable.lr, stable.schedule) == (5.0, "linear", 1e-4, "constant")
    assert [settings.radius_share(epochs) for epochs in (0.0, 1.0, 21.0, 70.0)] == pytest.approx([0, 0, 1, 1])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"data": "mnist", "epochs": 70}, ("drops", 5e-4)),
        ({"data": "mnist", "epochs": 35}, ("drops", 5e-4)),
        ({"data": "mnist", "epochs": 34}, ("one-cycle", 2e-3)),
        ({"data": "cifar10", "epochs": 80}, ("drops", 5e-4)),
        ({"data": "cifar10", "epochs": 79}, ("one-cycle", 2e-3)),
        ({"data": "cifar10", "epochs": 20, "schedule": "drops"}, ("drops", 5e-4)),
        ({"data": "cifar10", "epochs": 160, "schedule": "one-cycle"}, ("one-cycle", 2e-3)),
        ({"data": "cifar10", "epochs": 20, "lr": 1e-3}, ("one-cycle", 1e-3)),
    ],
)
def test_a_short_certified_training_has_one_cycle_of_a_larger_rate(given, expected):
    settings = resolve({"method": "sabr", **given})
    assert (settings.schedule, settings.lr) == expected


def test_other_methods_have_the_papers_rate_for_any_number_of_epochs():
    for method in ("nbc", "rs", "madry"):
        settings = resolve({"data": "cifar10", "method": method, "epochs": 2, "recipe": "paper"})
        assert (settings.schedule, settings.lr, settings.initialisation) == ("constant", 1e-5, "default")


@pytest.mark.parametrize(
    ("inputs", "normalised", "expected"),
    [
        (36, False, "ibp"),  # √(2π / 36) = 0.42 of the differences between images reach the last layer
        (36, True, "ibp"),
        (2_560_000, False, "default"),  # √(2π / 2560000) = 0.0016, less than 0.002
        (2_560_000, True, "ibp"),
        (1_440_000, False, "ibp"),  # √(2π / 1440000) = 0.0021
    ],
)
def test_initial_weights_for_intervals_need_batch_norm_or_few_layers(inputs, normalised, expected):
    middle = [nn.BatchNorm1d(1)] if normalised else []
    with torch.device("meta"):  # which has the shapes of weights and no memory for them
        network = nn.Sequential(nn.Linear(inputs, 1), *middle, nn.ReLU(), nn.Linear(1, 2))
    settings = with_initialisation(resolve({"method": "ibp"}), network)
    assert settings.initialisation == expected
    for name in ("default", "ibp"):
        kept = resolve({"method": "ibp", "initialisation": name})
        assert with_initialisation(kept, network).initialisation == name


@pytest.mark.parametrize(("layers", "expected"), [(1, "ibp"), (5, "default")])
def test_a_run_has_the_initial_weights_that_its_configuration_names(layers, expected, tmp_path):
    torch.manual_seed(0)
    hidden = [part for _ in range(layers) for part in (nn.Linear(100, 100), nn.ReLU())]  # 0.25 ** 5 = 0.001
    network = nn.Sequential(nn.Flatten(), *hidden, nn.Linear(100, 2))
    images = SimpleNamespace(images=torch.rand(40, 1, 10, 10), labels=torch.arange(40) % 2)
    data = SimpleNamespace(train=images, test=images, classes=("even", "odd"))
    settings = resolve({"method": "ibp", "eps": 0.1, "epochs": 1, "lr": 1e-9})  # such a rate changes nothing
    run = train(settings, tmp_path / "run", network=network, data=data)
    assert settings.initialisation == "auto"
    assert run.read_config().settings["initialisation"] == expected
    std = math.sqrt(2 * math.pi) / 100 if expected == "ibp" else 1 / math.sqrt(3 * 100)
    assert network[1].weight.std().item() == pytest.approx(std, rel=0.1)


def test_a_configuration_of_an_earlier_version_keeps_its_initial_weights():
    settings = resolve({"method": "ibp", "initialisation": "ibp", "epochs": 1})
    assert resolve(settings.as_config()).initialisation == "ibp"


def test_a_certified_training_says_its_recipe_and_follows_it(tmp_path, capsys):
    write_inputs(tmp_path)
    run = tmp_path / "run"
    assert (
        main(["train", *tiny(tmp_path, method="sabr+nbc", epochs="4", lr="1e-2", schedule="drops"), "--out", str(run)])
        == 0
    )
    shown = capsys.readouterr().out
    assert "training: lr 0.01, schedule drops" in shown
    assert "initialisation auto" in shown
    metrics = RunDirectory(run).read_metrics()
    eps = RunDirectory(run).read_config().eps
    assert 0 < metrics[0].radius < eps
    assert metrics[-1].radius == pytest.approx(eps)
    assert metrics[-1].lr == pytest.approx(1e-2 * 0.2**2)
    assert set(metrics[0].loss) == {"certified", "balance", "l1", "consistency"}


def test_gradients_are_clipped(tmp_path):
    write_inputs(tmp_path)
    weights = {}
    for clip, epochs in (("1e-14", "1"), ("1e-14", "2"), ("0", "2")):  # far below Adam's own ε, nothing moves
        flags = tiny(tmp_path, method="natural", epochs=epochs, gradient_clip=clip, lr="1e-2")
        assert main(["train", *flags, "--out", str(tmp_path / f"{clip}-{epochs}")]) == 0
        parameters = load_trained(tmp_path / f"{clip}-{epochs}").network.parameters()
        weights[clip, epochs] = torch.cat([parameter.detach().flatten() for parameter in parameters])
    assert (weights["1e-14", "1"] - weights["1e-14", "2"]).abs().max() < 1e-5
    assert (weights["0", "2"] - weights["1e-14", "2"]).abs().max() > 1e-3


class _StoppedError(Exception):
    pass


class _StopsAfter(SilentObserver):
    def __init__(self, epochs: int) -> None:
        self.epochs = epochs

    def on_epoch(self, metrics: EpochMetrics) -> None:
        if metrics.epoch == self.epochs:
            raise _StoppedError


@pytest.mark.parametrize("method", ["sabr+nbc", "crown-ibp", "mtl-ibp"])
def test_a_certified_training_goes_on_to_the_same_bits(method, tmp_path):
    write_inputs(tmp_path)
    flags = tiny(tmp_path, method=method, epochs=5, eps="0.1", model=f"{tmp_path / 'net.py'}:with_batch_norm")
    settings = settings_from(flags)
    train(settings, tmp_path / "whole")
    for epochs in (1, 4):  # while ε rises, and after a drop of the rate
        with pytest.raises(_StoppedError):
            train(settings, tmp_path / f"{epochs}", observer=_StopsAfter(epochs))
        resume(tmp_path / f"{epochs}")
        assert same_weights(tmp_path / "whole", tmp_path / f"{epochs}")
