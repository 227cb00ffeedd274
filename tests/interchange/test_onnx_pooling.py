"""Poolings whose windows PyTorch does not have: uneven or wide padding, dilations, windows that ``ceil_mode`` adds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper

from onnx_files import one_node, same_as_runtime, write
from steadynet import crown_bounds
from steadynet.attacks.region import InputRegion
from steadynet.errors import UserError
from steadynet.interchange.onnx.reader import read_onnx


@pytest.mark.parametrize("kind", ["MaxPool", "AveragePool"])
def test_windows_of_any_kind_are_those_of_onnx_runtime(kind: str, tmp_path: Path) -> None:
    """Random windows on small images: the same numbers as ONNX Runtime computes."""
    random = np.random.default_rng(0)
    for _ in range(80):
        shape, kernel = [1, 2, *random.integers(5, 9, 2).tolist()], random.integers(1, 4, 2).tolist()
        options = {"kernel_shape": kernel, "strides": random.integers(1, 4, 2).tolist()}
        options |= {"pads": random.integers(0, kernel * 2).tolist(), "ceil_mode": int(random.integers(0, 2))}
        if kind == "MaxPool":
            options["dilations"] = random.integers(1, 3, 2).tolist()
        elif not options["ceil_mode"]:
            options["count_include_pad"] = int(random.integers(0, 2))
        same_as_runtime(one_node(tmp_path / "pool.onnx", kind, {}, shape, 19, **options), shape)


def test_a_maximum_with_uneven_padding_after_a_relu(tmp_path: Path) -> None:
    """Where ``ceil_mode`` has added windows, zeros written out around the image would add one more."""
    options = {"kernel_shape": [2, 2], "strides": [1, 2], "pads": [0, 1, 1, 1], "ceil_mode": 1}
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("MaxPool", ["r"], ["y"], **options)]
    read = same_as_runtime(write(tmp_path / "pool.onnx", nodes, {}, [1, 1, 4, 5], 11), [1, 1, 4, 5])
    assert read(torch.ones(1, 1, 4, 5)).shape == (1, 12)


def test_bounds_of_a_maximum_beside_wide_padding(tmp_path: Path) -> None:
    """Of the image 1 2 / 3 4 minus 10, with two pixels of padding around it: maxima of numbers below 0."""
    path = one_node(tmp_path / "pool.onnx", "MaxPool", {}, [1, 1, 2, 2], kernel_shape=[3, 3], pads=[2, 2, 2, 2])
    image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]) - 10
    expected = torch.tensor([[1, 2, 2, 2], [3, 4, 4, 4], [3, 4, 4, 4], [3, 4, 4, 4]]).view(1, 16) - 10.0
    network = read_onnx(path)
    assert torch.equal(network(image), expected)
    found = crown_bounds(network, InputRegion.around(image, 0.25, clip=False)).output
    assert bool((found.lower <= expected - 0.25).all() and (found.upper >= expected + 0.25).all())
    assert bool((found.upper - found.lower < 0.51).all())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"kernel_shape": [2, 2], "pads": [0, 0, 3, 3]}, "padding that is as wide as the window"),
        ({"kernel_shape": [2, 2], "pads": [1, 0, 1, 0], "dilations": [4, 1]}, "sees nothing but padding"),
    ],
)
def test_windows_that_onnx_runtime_refuses_or_that_see_no_pixel(options: dict, reason: str, tmp_path: Path) -> None:
    path = one_node(tmp_path / "pool.onnx", "MaxPool", {}, [1, 1, 3, 3], **options)
    with pytest.raises(UserError, match=rf"{reason}.*, at MaxPool"):
        read_onnx(path)
