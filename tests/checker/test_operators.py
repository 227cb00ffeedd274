"""Every operator that ``steadycheck`` reads, with many attributes, against ONNX Runtime: bounds on points enclose it.

What it refuses is fine here, but each operator must be read at least once.
"""

from __future__ import annotations

import numpy as np
import pytest
from test_misreadings import i8, network_of, node, outputs

import steadycheck
from steadycheck import Bounds, Rule


def drawn(kind: str, random: np.random.Generator) -> tuple[list, dict, tuple[int, ...]]:
    """A small network with an operator: nodes from x to y, weights, and the shape of the input."""

    def f4(*shape: int) -> np.ndarray:
        return random.normal(size=shape).astype("f4")

    def sides(low: int, high: int, count: int = 2) -> list[int]:
        return random.integers(low, high, count).tolist()

    image = (1, 4, int(random.integers(4, 8)), int(random.integers(4, 8)))
    if kind == "Conv":
        groups = int(random.choice([1, 2, 4]))
        weights = {"w": f4(4, 4 // groups, *sides(1, 4)), "b": f4(4)}
        given = {"group": groups, "strides": sides(1, 4), "pads": sides(0, 3, 4), "dilations": sides(1, 3)}
        return [node("Conv", ["x", "w", "b"][: random.integers(2, 4)], ["y"], **given)], weights, image
    if kind in ("MaxPool", "AveragePool"):
        given = {"kernel_shape": sides(2, 4), "strides": sides(1, 3), "pads": sides(0, 2, 4)}
        extra = {"count_include_pad": int(random.integers(2))} if kind == "AveragePool" else {}
        return [node(kind, ["x"], ["h"], **given, **extra), node("Mul", ["h", "one"], ["y"])], {"one": f4(1)}, image
    if kind == "Gemm":
        turned = int(random.integers(2))
        weights = {"w": f4(5, 3) if turned else f4(3, 5), "b": f4(*[[5], [1, 5], [1]][random.integers(3)])}
        return [node("Gemm", ["x", "w", "b"], ["y"], transB=turned)], weights, (1, 3)
    if kind == "MatMul":
        if random.integers(2):
            return [node("MatMul", ["x", "w"], ["y"])], {"w": f4(3, 5)}, (1, *sides(1, 4, random.integers(0, 3)), 3)
        return [node("MatMul", ["w", "x"], ["y"])], {"w": f4(5, 3)}, (1, *sides(1, 4, random.integers(0, 2)), 3, 1)
    if kind in ("Add", "Sub", "Mul", "Div"):
        names = ["x", "c"] if random.integers(2) else ["c", "x"]
        shape = image[random.integers(4) :] if random.integers(2) else (1, 4, 1, 1)
        if random.integers(3) == 0:
            return (
                [node("Relu", ["x"], ["c"]), node(kind, names, ["h"]), node("Add", ["h", "z"], ["y"])],
                {"z": f4(1)},
                image,
            )
        return [node(kind, names, ["y"])], {"c": f4(*shape)}, image
    return moved(kind, random, image, f4(1))


def moved(
    kind: str, random: np.random.Generator, image: tuple[int, ...], one: np.ndarray
) -> tuple[list, dict, tuple[int, ...]]:
    """A network that rearranges its input, or has a leaky ReLU."""
    first, weights, names, given = node("Mul", ["x", "one"], ["a"]), {"one": one}, ["a"], {}
    if kind == "LeakyRelu":
        given = {"alpha": float(random.uniform(0, 1.2))} if random.integers(2) else {}
    elif kind == "Reshape":
        sizes = [[1, -1], [0, 0, -1], [1, 2, 2, -1], [-1, 4], [2, 0, -1]][random.integers(5)]
        weights["s"], names = i8(*sizes), ["a", "s"]
    elif kind == "Flatten":
        given = {"axis": int(random.integers(-3, 4))} if random.integers(2) else {}
    elif kind == "Transpose":
        given = {"perm": [0, *(1 + random.permutation(3)).tolist()]} if random.integers(3) else {}
    elif kind == "Gather":
        axis = int(random.integers(-3, 4))
        size = image[axis]
        places = random.integers(-size, size, [(), (5,), (2, 3)][random.integers(3)])
        weights["i"], names, given = np.array(places, np.int64), ["a", "i"], {"axis": axis}
    elif kind == "Pad":
        weights["p"], names = (
            i8(0, 0, *random.integers(-1, 3, 2).tolist(), 0, 0, *random.integers(0, 3, 2).tolist()),
            ["a", "p"],
        )
    elif kind == "Concat":
        names, given = ["a", "x", "a"][: random.integers(1, 4)], {"axis": int(random.integers(-3, 4))}
    return [first, node(kind, names, ["b"], **given), node("Relu", ["b"], ["y"])], weights, image


KINDS = [*steadycheck.OPERATORS, *steadycheck.MOVES]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "Relu"])
def test_an_operator_is_what_onnx_runtime_says(kind: str) -> None:
    read = 0
    for seed in range(40):
        random = np.random.default_rng(seed)
        nodes, weights, shape = drawn(kind, random)
        content, point = network_of(nodes, weights, shape), random.normal(size=shape).astype("f4")
        try:
            network = steadycheck.read_network(content)
        except steadycheck.Refused:
            continue
        wanted, flat = outputs(content, point), point.reshape(-1).astype(float)
        rules = [Rule(seed % 2, np.zeros(0, int))] * len(network.relus())
        found = Bounds(network, (flat, flat), rules)
        low, high = found.lower[network.output], found.upper[network.output]
        assert low.shape == wanted.shape
        assert (low <= wanted).all()
        assert (wanted <= high).all()
        assert (high - low).max() < 1e-3 * (1 + np.abs(wanted).max())
        backward_passes_agree(network, flat, rules, wanted)
        read += 1
    assert read >= 5


def backward_passes_agree(
    network: steadycheck.Network, flat: np.ndarray, rules: list[Rule], wanted: np.ndarray
) -> None:
    """Each output by a backward pass, in both precisions: just below what it is."""
    count, none = len(wanted), np.zeros(0, int)
    leaves = steadycheck.Leaves(
        np.zeros(count, int), np.zeros(count, int), none, none, none + 0.0, none + 0.0, np.zeros(count, int),
        np.eye(count),
    )  # fmt: skip
    violation = steadycheck.Violation(flat, flat, np.eye(count), np.zeros(count))
    for real in ("float64", "float32"):
        bounds = Bounds(network, (flat, flat), rules, real=real)
        found = steadycheck.bound_leaves(bounds, [violation], leaves, np.zeros((1, 0)))
        assert (found <= wanted).all()
        assert (wanted - found).max() < 1e-3 * (1 + np.abs(wanted).max())
