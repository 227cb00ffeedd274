"""Choose the device to compute on, and make sure that it computes in full precision."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from steadynet.errors import UserError

DEVICES = ("cuda", "cpu")  # the devices that have float64, which proofs need
_LARGEST_ERROR = 1e-5  # relative; in the check below, float32 is off by less than 1e-6 and TF32 by more than 1e-4


def pick_device(name: str, among: Sequence[str] = ("cuda", "mps", "cpu")) -> torch.device:
    """Return the device of a name.

    Args:
        name: ``cuda``, ``mps``, ``cpu``, or ``auto`` for the first available device.
        among: The devices that ``auto`` may choose, best first.

    Raises:
        UserError: This machine does not have the device.

    >>> pick_device("cpu")
    device(type='cpu')
    """
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device in among if there[device])
    if not there[name]:
        raise UserError(f"device {name} is not available on this machine")
    return torch.device(name)


def device_of(network: nn.Module) -> torch.device:
    """Return the device that a network is on: that of its first weight, and the CPU if it has none."""
    weights = (*network.parameters(), *network.buffers())
    return weights[0].device if weights else torch.device("cpu")


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Compute float32 in full precision while the context is active.

    Autocast, TF32 and the flushing of small numbers to zero are switched off. At the end of the context, they are as
    the caller had set them.

    Args:
        device: The device to compute on.

    Raises:
        UserError: The device still multiplies less precisely than float32, so its bounds would prove nothing.

    >>> with full_precision(torch.device("cpu")):
    ...     torch.get_float32_matmul_precision()
    'highest'
    """
    kinds = {"cpu", "cuda"} | ({device.type} if torch.amp.is_autocast_available(device.type) else set())
    with ExitStack() as stack:
        for kind in sorted(kinds):
            stack.enter_context(torch.autocast(kind, enabled=False))
        stack.enter_context(_no_tf32())
        stack.enter_context(_no_flushing())
        _check_precision(device)
        yield


@contextmanager
def plain_convolutions() -> Iterator[None]:
    """Compute convolutions on CUDA as plain sums of products while the context is active.

    The faster algorithms of cuDNN (Winograd, FFT) have much larger rounding errors.
    """
    cudnn: Any = torch.backends.cudnn
    before = cudnn.enabled
    cudnn.enabled = False
    try:
        yield
    finally:
        cudnn.enabled = before


@contextmanager
def _no_tf32() -> Iterator[None]:
    """Switch TF32 off while the context is active.

    PyTorch has old switches and, since 2.9, new ones. An old switch cannot be read where a new one disagrees with it.
    """
    cudnn: Any = torch.backends.cudnn
    old = _read(torch.get_float32_matmul_precision), _read(lambda: cudnn.allow_tf32)
    new = [(switch, switch.fp32_precision) for switch in _new_switches()]
    try:
        torch.set_float32_matmul_precision("highest")
        cudnn.allow_tf32 = False
        for switch, _ in new:
            switch.fp32_precision = "ieee"
        yield
    finally:
        if old[0] is not None:
            torch.set_float32_matmul_precision(old[0])
        if old[1] is not None:
            cudnn.allow_tf32 = old[1]
        for switch, value in new:
            switch.fp32_precision = "none"  # back to the default, which follows a more general switch
            if switch.fp32_precision != value:
                switch.fp32_precision = value


@contextmanager
def _no_flushing() -> Iterator[None]:
    """Keep numbers below the smallest normal one while the context is active: a flushed one would be a wrong bound."""
    flushed = float(torch.tensor(2.0**-126) * 0.5) == 0
    torch.set_flush_denormal(False)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)


def _new_switches() -> list[Any]:
    libraries = (torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn)
    found = [getattr(library, name, None) for library in libraries for name in ("matmul", "conv", "rnn")]
    return [switch for switch in found if hasattr(switch, "fp32_precision")]


def _read(switch: Any) -> Any:
    try:
        return switch()
    except RuntimeError:  # the caller has set the new switches
        return None


def _check_precision(device: torch.device) -> None:
    """Multiply and convolve (1 + 2⁻¹²) by itself, which gives 1 in TF32, bfloat16 and half precision."""
    size, exact = 64, (1 + 2.0**-12) ** 2
    factor = torch.full((size, size), 1 + 2.0**-12, device=device)
    kernel = torch.full((size, 1, 8, 8), 1 + 2.0**-12, device=device)
    found = [factor @ factor, torch.conv2d(factor.view(size, 1, 8, 8), kernel)]
    if any(float((value / (size * exact) - 1).abs().max()) > _LARGEST_ERROR for value in found):
        raise UserError(f"device {device} multiplies less precisely than float32, so its bounds would prove nothing")
