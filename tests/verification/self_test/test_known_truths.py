"""Every truth that the self-test knows, checked in exact rational arithmetic or by brute force."""

from __future__ import annotations

import copy
import functools
import itertools
from fractions import Fraction

import mpmath
import numpy as np
import pytest
import torch
from torch import nn

import soundness
from steadynet.attacks.pgd import find_counterexamples
from steadynet.verification.properties import is_counterexample
from steadynet.verification.self_test import rounding, spikes
from steadynet.verification.self_test.exact import exact_margin, exact_minimum, exact_scores, violated_in_some_order
from steadynet.verification.self_test.families import FAMILIES
from steadynet.verification.self_test.known import Truth
from steadynet.verification.self_test.onnx_instance import refuted, runtime
from steadynet.verification.self_test.rounding_bound import rounding_bound

SEEDS = range(2)
EXACT_VIOLATIONS = (Truth.VIOLATED, Truth.VIOLATED_EXACTLY)


@functools.cache
def made(family, kind, seed):
    return FAMILIES[family].make(kind, seed)


def instances(family, seeds=SEEDS):
    return [(kind, made(family, kind, seed)) for kind in FAMILIES[family].kinds for seed in seeds]


def margins_in_float64(properties, index, points):
    network, label = copy.deepcopy(properties.network).double(), int(properties.labels[index])
    with torch.no_grad():
        scores = network(points.double())
    others = torch.cat([scores[:, :label], scores[:, label + 1 :]], 1)
    return scores[:, label] - others.amax(1)


def is_plain(network):
    return isinstance(network, nn.Sequential) and all(isinstance(layer, (nn.Linear, nn.ReLU)) for layer in network)


# The arithmetic behind the truths


@pytest.mark.parametrize("seed", range(6))
def test_the_exact_minimum_is_below_every_point_and_attained(seed):
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(1, 4), nn.ReLU(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3))
    for layer in network[::2]:
        layer.weight.data.mul_(3)
    place, least = exact_minimum(network, -1.0, 1.0)
    assert -1 <= place <= 1
    assert exact_margin(network, [place]) == least
    assert all(exact_margin(network, [Fraction(step, 150)]) >= least for step in range(-150, 151))


def test_exact_scores_are_those_of_float64_up_to_its_rounding():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    point = torch.rand(3)
    with torch.no_grad():
        found = copy.deepcopy(network).double()(point.double())
    assert [float(score) for score in exact_scores(network, point.tolist())] == pytest.approx(found.tolist(), abs=1e-14)


def test_no_order_of_summation_exceeds_the_rounding_bound():
    for seed in range(5):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(3, 30), nn.ReLU(), nn.Linear(30, 2))
        points = torch.rand(20, 3)
        bound = rounding_bound(network, points)
        for point in points:
            exact = float(exact_margin(network, point.tolist()))
            for order in rounding.ORDERS:
                scores = rounding.float32_scores(network, point, order).astype(np.float64)
                assert abs(float(scores[0] - scores[1]) - exact) <= bound


# Families


@pytest.mark.parametrize("family", ["spikes", "robust", "monotone"])
def test_no_point_violates_a_property_that_holds(family):
    torch.manual_seed(0)
    checked = 0
    for kind, instance in instances(family, range(1)):
        rows = [index for index, truth in enumerate(instance.truths) if truth is Truth.HOLDS]
        for index in rows[:2]:
            points = soundness.points_of(instance.properties, index)
            assert float(margins_in_float64(instance.properties, index, points).min()) > 0, kind
            checked += 1
    assert checked > 3


@pytest.mark.parametrize("family", ["spikes", "monotone"])
def test_the_witness_of_a_violation_replays_and_violates_in_exact_arithmetic(family):
    violated = 0
    for kind, instance in instances(family, range(1)):
        properties = instance.properties
        for index, (truth, witness) in enumerate(zip(instance.truths, instance.witnesses, strict=True)):
            if truth is not Truth.VIOLATED:
                continue
            violated += 1
            assert is_counterexample(properties, index, witness), kind
            label = int(properties.labels[index])
            if is_plain(properties.network):
                assert exact_margin(properties.network, witness.tolist(), label) < 0, kind
            else:
                assert float(margins_in_float64(properties, index, witness[None])) < -1e-9, kind
    assert violated > 3


def test_the_spike_between_two_numbers_lies_between_them():
    for seed in range(4):
        instance = made("spikes", "spike between float32 numbers", seed)
        properties = instance.properties
        middle = [Fraction(value) for value in ((properties.region.lower + properties.region.upper) / 2)[0].tolist()]
        zero = [-Fraction(value) for value in properties.network[0].bias.tolist()]
        below = torch.tensor(float(zero[0]))
        above = Fraction(float(torch.nextafter(below, torch.tensor(1.0))))
        for place, is_violated in ((zero[0], False), ((zero[0] + above) / 2, True), (above, False)):
            assert (exact_margin(properties.network, [place, *middle[1:]]) < 0) == is_violated


def test_float32_overflows_at_the_top_of_a_hat_that_exact_arithmetic_keeps_low():
    for seed in range(4):
        instance = made("spikes", "overflow at the top of a hat", seed)
        for index, (truth, top) in enumerate(zip(instance.truths, instance.witnesses, strict=True)):
            if truth is Truth.VIOLATED_BY_ROUNDING:
                assert is_counterexample(instance.properties, index, top)
                assert 0.99 < exact_margin(instance.properties.network, top.tolist()) < 1.01  # the hat is highest here


def test_hats_are_as_deep_as_they_say():
    torch.manual_seed(3)
    place = torch.tensor([0.5, 0.25])
    network = nn.Sequential(*spikes.hat_layers(place, 0.125), spikes.scores(0.01, 1.0))
    assert float(exact_margin(network, place.tolist())) == pytest.approx(-0.01, abs=1e-6)
    assert float(exact_margin(network, [0.5, 0.4])) == pytest.approx(0.99, abs=1e-6)


def test_the_smallest_margin_of_a_monotone_network_lies_in_the_corner_that_it_says():
    for seed in range(4):
        properties = made("monotone", "monotone, dense", seed).properties
        truths = made("monotone", "monotone, dense", seed).truths
        for index in range(0, len(truths), 5):
            corners = zip(properties.region.lower[index].tolist(), properties.region.upper[index].tolist(), strict=True)
            least = min(exact_margin(properties.network, corner) for corner in itertools.product(*corners))
            assert (least > 0) == (truths[index] is Truth.HOLDS)


def test_two_mirrored_networks_are_the_same_function():
    for kind, instance in instances("robust"):
        network = copy.deepcopy(instance.properties.network).double()
        if kind.startswith("mirrored"):
            points = torch.rand(200, *instance.properties.images.shape[1:], dtype=torch.float64)
            with torch.no_grad():
                assert torch.allclose(network.first(points), network.second(points), rtol=0, atol=1e-13), kind


def test_rounding_traps_have_the_truth_of_exact_arithmetic():
    found = set()
    for kind, instance in instances("rounding", range(5)):
        properties, (truth,) = instance.properties, instance.truths
        found.add(truth)
        if "16,512" in kind:
            continue
        lower, upper = float(properties.region.lower), float(properties.region.upper)
        _, least = exact_minimum(properties.network, lower, upper)
        assert (least <= 0) == (truth in EXACT_VIOLATIONS), kind
        if truth is Truth.HOLDS:
            points = torch.linspace(lower, upper, 40).clamp(lower, upper)[:, None]
            assert not any(violated_in_some_order(properties.network, point) for point in points), kind
    assert found == set(Truth)


def test_the_long_sum_has_the_truth_of_exact_arithmetic():
    for seed in range(3):
        instance = made("rounding", "sum of 16,512 terms", seed)
        ends = float(instance.properties.region.lower), float(instance.properties.region.upper)
        least = min(exact_margin(instance.properties.network, [end]) for end in ends)
        assert (least <= 0) == (instance.truths[0] in EXACT_VIOLATIONS)


def test_readers_traps_have_the_truth_that_onnx_runtime_shows():
    generator = np.random.default_rng(0)
    for kind, instance in instances("readers"):
        scores, (truth,) = runtime(instance.model), instance.truths
        shares = [
            np.zeros(instance.lower.shape),
            np.ones(instance.lower.shape),
            *generator.random((30, *instance.lower.shape)),
        ]
        points = [
            np.clip(instance.lower + share * (instance.upper - instance.lower), instance.lower, instance.upper)
            for share in shares
        ]
        seen = any(refuted(scores(point.astype(instance.lower.dtype))) for point in points)
        if truth is Truth.VIOLATED:
            assert seen, kind
        if truth is Truth.HOLDS:
            assert not seen, kind


def test_training_hides_violations_that_an_attack_with_many_restarts_misses():
    torch.manual_seed(1)
    instance = made("trained", "trained, dense", 0)
    properties = instance.properties
    found, _ = find_counterexamples(
        properties.network, properties.images, properties.labels, properties.region, steps=40, restarts=20
    )
    assert not found.any()
    for index, witness in enumerate(instance.witnesses):
        assert is_counterexample(properties, index, witness)
        assert float(margins_in_float64(properties, index, witness[None])) < -1e-6


def margin_in_many_digits(network, point):
    """The margin of class 0 of a network of dense layers, sigmoids and tanhs, to 40 digits."""
    with mpmath.workdps(40):
        values = [mpmath.mpf(number) for number in point.flatten().tolist()]
        for layer in network:
            if isinstance(layer, nn.Linear):
                rows = zip(layer.weight.tolist(), layer.bias.tolist(), strict=True)
                values = [mpmath.fdot(map(mpmath.mpf, row), values) + bias for row, bias in rows]
            elif isinstance(layer, nn.Tanh):
                values = [mpmath.tanh(value) for value in values]
            elif isinstance(layer, nn.Sigmoid):
                values = [1 / (1 + mpmath.exp(-value)) for value in values]
            elif isinstance(layer, nn.ReLU):
                values = [max(value, mpmath.mpf(0)) for value in values]
            else:
                assert isinstance(layer, nn.Flatten)
        return values[0] - values[1]


def test_s_shaped_networks_are_what_their_truths_say():
    """No random point of a box that holds violates it; in many digits, no corner does, and witnesses violate theirs."""
    truths = set()
    for kind, instance in instances("s-shaped"):
        properties = instance.properties
        for index, (truth, witness) in enumerate(zip(instance.truths, instance.witnesses, strict=True)):
            truths.add(truth)
            lower, upper = properties.region.lower[index], properties.region.upper[index]
            points = lower + (upper - lower) * torch.rand(50, *lower.shape).round(decimals=0)
            if truth is Truth.HOLDS:
                assert bool((margins_in_float64(properties, index, points) > 0).all()), kind
                assert bool((margins_in_float64(properties, index, witness[None]) > 0).all()), kind
            if kind.endswith("dense"):
                assert (margin_in_many_digits(properties.network, witness) > 0) == (truth is Truth.HOLDS), kind
    assert truths == {Truth.HOLDS, Truth.VIOLATED}
