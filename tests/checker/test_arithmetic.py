"""The bounds of ``steadycheck`` against exact rational arithmetic, and against float32 in random orders."""

from __future__ import annotations

from fractions import Fraction
from math import prod

import numpy as np
import pytest

import steadycheck
from proof_fuzz import Layers, onnx_bytes, random_layers
from steadycheck import Bounds, Leaves, Lines, Rule, Violation, bound_leaves

Exact = list[Fraction]


def exact(values: np.ndarray) -> Exact:
    return [Fraction(float(value)) for value in values]


def exact_network(layers: Layers, x: Exact) -> Exact:
    for number, (weight, bias) in enumerate(layers):
        x = [
            sum((Fraction(float(w)) * v for w, v in zip(row, x, strict=True)), Fraction(float(b)))
            for row, b in zip(weight, bias, strict=True)
        ]
        x = [max(v, Fraction(0)) for v in x] if number + 1 < len(layers) else x
    return x


def exact_dual(layers: Layers, bounds: Bounds, row: np.ndarray, alpha: np.ndarray, held: dict, beta: dict) -> Fraction:
    """The bound that slopes and multipliers give, computed without any rounding from the lines of the checker."""
    a, total = exact(row), Fraction(0)
    first = sum(len(lines.named) for lines in bounds.lines.values())
    for number in range(len(layers) - 1, -1, -1):
        weight, bias = layers[number]
        if number + 1 < len(layers):
            lines = bounds.lines[bounds.network.relus()[number]]
            first -= len(lines.named)
            named = {int(element): first + at for at, element in enumerate(lines.named)}
            for element in range(len(a)):
                place, name = lines.place[element], named.get(element)
                slope = chord = Fraction(int(lines.active[element]))
                shift = Fraction(0)
                if place >= 0:
                    slope, chord, shift = (
                        Fraction(float(line[place])) for line in (lines.slope, lines.chord, lines.shift)
                    )
                    slope = slope if name is None else Fraction(float(alpha[name]))
                if name in held:
                    slope = chord = Fraction(int(held[name] > 0))
                    shift = Fraction(0)
                total += min(a[element], Fraction(0)) * shift
                a[element] = a[element] * (slope if a[element] > 0 else chord)
                a[element] -= Fraction(float(beta.get(name, 0.0))) * held.get(name, 0)
        total += sum((v * Fraction(float(b)) for v, b in zip(a, bias, strict=True)), Fraction(0))
        a = [
            sum((v * Fraction(float(weight[j, i])) for j, v in enumerate(a)), Fraction(0))
            for i in range(weight.shape[1])
        ]
    low, high = exact(bounds.lower[0]), exact(bounds.upper[0])
    return total + sum((v * (low[i] if v > 0 else high[i]) for i, v in enumerate(a)), Fraction(0))


def named_rules(network: steadycheck.Network, level: int) -> list[Rule]:
    """All ReLUs have names."""
    return [Rule(level, np.arange(prod(network.shapes[relu]))) for relu in network.relus()]


@pytest.mark.parametrize("real", ["float64", "float32"])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("run_exactly", [True, False])
def test_a_bound_never_exceeds_the_exact_one_and_holds_at_exact_points(seed: int, run_exactly: bool, real: str) -> None:
    random = np.random.default_rng(seed)
    layers = random_layers(random, (3, 5, 4, 2))
    network = steadycheck.read_network(onnx_bytes(layers))
    lower = random.uniform(-1, 0, (1, 3))
    upper = lower + random.uniform(0.01, 1, (1, 3))
    bounds = Bounds(network, (lower[0], upper[0]), named_rules(network, seed % 2), run_exactly, real=real)
    kept = sum(len(lines.named) for lines in bounds.lines.values())
    row = random.normal(size=(1, 2))
    violation = Violation(lower[0], upper[0], row, np.zeros(1))
    points = [exact(lower[0] + random.uniform(size=3) * (upper - lower)[0]) for _ in range(30)]
    for _ in range(5):
        alpha = random.integers(0, 256, kept) / 255
        held = {int(relu): int(random.choice([-1, 1])) for relu in random.permutation(kept)[: random.integers(0, 3)]}
        beta = {relu: float(np.float32(abs(random.normal()))) for relu in held}
        leaves = Leaves(
            np.zeros(1, int), np.zeros(1, int), np.zeros(len(held), int), np.array(list(held), int),
            np.array([*held.values(), 0.0])[:-1],
            np.array([*beta.values(), 0.0])[:-1], np.ones(1, int), np.ones((1, 1)),
        )  # fmt: skip
        table = np.stack([np.full(kept, -1.0), alpha]).astype(real).astype(float)
        found = float(bound_leaves(bounds, [violation], leaves, table)[0])
        reference = exact_dual(layers, bounds, row[0], table[1], held, beta)
        assert Fraction(found) <= reference
        if run_exactly:
            assert float(reference) - found < (1e-9 if real == "float64" else 1e-3) * (1 + abs(found))
        if not held:
            for point in points:
                value = sum(Fraction(float(c)) * y for c, y in zip(row[0], exact_network(layers, point), strict=True))
                assert value >= Fraction(found)


@pytest.mark.parametrize("real", ["float64", "float32"])
def test_the_upper_line_lies_above_the_relu_at_both_ends(real: str) -> None:
    random = np.random.default_rng(0)
    low, high = -(10.0 ** random.uniform(-12, 5, 300)), 10.0 ** random.uniform(-12, 5, 300)
    lines = Lines(low, high, np.zeros(0, int), 0, real, 1e-30 if real == "float32" else steadycheck.TINY)
    assert len(lines.open) == 300
    for least, most, chord, shift in zip(low, high, lines.chord, lines.shift, strict=True):
        slope, at_zero = Fraction(float(chord)), Fraction(float(shift))
        assert slope * Fraction(least) + at_zero >= 0
        assert slope * Fraction(most) + at_zero >= Fraction(most)


def scaled(random: np.random.Generator, powers: tuple[int, ...]) -> Layers:
    """Weights of very different sizes, with rows that nearly cancel."""
    layers = []
    for (weight, bias), power in zip(random_layers(random, (3, 6, 5, 2)), powers, strict=True):
        weight[1] = -weight[0] * np.float32(1 + 2.0**-20)
        layers.append(((weight * 10.0**power).astype("f4"), (bias * 10.0**power).astype("f4")))
    return layers


@pytest.mark.parametrize("real", ["float64", "float32"])
@pytest.mark.parametrize(
    "powers", [(0, 0, 0), (5, -5, 0), (-5, 5, 2), (-18, 18, 0), (-30, 5, 25), (2, 2, 2), (-20, -20, 0)]
)
def test_bounds_hold_for_weights_of_extreme_sizes(powers: tuple[int, ...], real: str) -> None:
    """At random points, in exact arithmetic, and in float32 in random orders of summation."""
    for seed in range(4):
        random = np.random.default_rng(seed)
        layers = scaled(random, powers)
        network = steadycheck.read_network(onnx_bytes(layers))
        lower = random.uniform(-1, 1, 3).astype("f4")
        upper = lower + np.float32(random.choice([0.0, 1e-6, 0.1, 1.0]))
        box = lower.astype(float), upper.astype(float)
        bounds = Bounds(network, box, named_rules(network, seed % 2), real=real)
        kept, none, one = sum(len(lines.named) for lines in bounds.lines.values()), np.zeros(0, int), np.zeros(1, int)
        row = random.normal(size=(1, 2))
        table = np.stack([np.full(kept, -1.0), random.integers(0, 65536, kept) / 65535])
        leaves = Leaves(one, one, none, none, none + 0.0, none + 0.0, one + seed // 2, np.ones((1, 1)))
        found = float(bound_leaves(bounds, [Violation(*box, row, np.zeros(1))], leaves, table)[0])
        for _ in range(20):
            point = np.clip(lower + random.uniform(size=3).round() * (upper - lower), lower, upper).astype("f4")
            for values in (exact_network(layers, exact(point)), exact(in_float32(layers, point, random))):
                value = sum(Fraction(float(c)) * y for c, y in zip(row[0], values, strict=True))
                assert found == -np.inf or value >= Fraction(found)
        assert real == "float32" or found > -np.inf


def in_float32(layers: Layers, values: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The network in float32, summed in random orders."""
    for number, (weight, bias) in enumerate(layers):
        terms = np.concatenate([weight * values, bias[:, None]], 1)[:, random.permutation(weight.shape[1] + 1)]
        total = np.zeros(len(weight), "f4")
        for column in terms.T:
            total = (total + column).astype("f4")
        values = np.maximum(total, 0) if number + 1 < len(layers) else total
    return values


@pytest.mark.parametrize("seed", range(4))
def test_intervals_hold_for_float32_in_random_orders_of_summation(seed: int) -> None:
    """Large weights that cancel: float32 in one order of summation differs from another, and both are enclosed."""
    random = np.random.default_rng(seed)
    layers = [((1e3 * weight).astype("f4"), bias) for weight, bias in random_layers(random, (40, 30, 2))]
    network = steadycheck.read_network(onnx_bytes(layers))
    x = random.uniform(-1, 1, 40).astype("f4")
    box = x.astype(float)
    bounds = Bounds(network, (box, box), named_rules(network, 1))
    exactly = Bounds(network, (box, box), named_rules(network, 1), exact=True)
    differs = 0
    for _ in range(50):
        values = in_float32(layers, x, random)
        assert (values >= bounds.lower[-1]).all()
        assert (values <= bounds.upper[-1]).all()
        differs += bool(((values < exactly.lower[-1]) | (values > exactly.upper[-1])).any())
    assert differs  # so that the room for float32 is needed


def test_boxes_that_are_written_are_the_boxes_that_are_proved() -> None:
    """A float32 number is written exactly; another decimal number is rounded outwards."""
    assert steadycheck.outwards("0.100000001490116119384765625", True, np.float32) == float(np.float32(0.1))
    assert steadycheck.outwards("0.1", True, np.float32) < 0.1 < steadycheck.outwards("0.1", False, np.float32)
    assert steadycheck.outwards("-0.1", True, np.float32) < -0.1 < steadycheck.outwards("-0.1", False, np.float32)
    assert Fraction(steadycheck.outwards("0.1", True, np.float64)) <= Fraction("0.1")
    assert Fraction(steadycheck.outwards("0.1", False, np.float64)) >= Fraction("0.1")
