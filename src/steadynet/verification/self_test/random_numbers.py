"""Random numbers for the instances, from PyTorch's global generator, which the self-test seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor

Item = TypeVar("Item")


def integer(low: int, high: int) -> int:
    """Draw a whole number from low to high, both included."""
    return int(torch.randint(low, high + 1, ()))


def uniform(low: float, high: float) -> float:
    """Draw a number from low to high."""
    return low + (high - low) * float(torch.rand((), dtype=torch.float64))


def power_of_ten(low: float, high: float) -> float:
    """Draw a number from 10^low to 10^high whose logarithm is uniform."""
    return float(10.0 ** uniform(low, high))


def pick(items: Sequence[Item]) -> Item:
    """Draw one of several items."""
    return items[integer(0, len(items) - 1)]


def point(shape: Sequence[int], low: float = 0.3, high: float = 0.7) -> Tensor:
    """Draw a point with coordinates between low and high, in float32."""
    return low + (high - low) * torch.rand(*shape)
