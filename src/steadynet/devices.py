"""Where tensors live, and how precisely they are computed with there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from steadynet.errors import UserError

DEVICES = ("cuda", "cpu")  # those with float64, without which nothing is proved
_LEAST_PRECISE = 1e-5  # relative; float32 is within 1e-6 of the truth here, TF32 and the like 5e-4 and more off


def pick_device(name: str, among: Sequence[str] = ("cuda", "mps", "cpu")) -> torch.device:
    """The device asked for; ``auto`` is the first one there is ``among`` these."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        name = next(device for device in among if there[device])
    if not there[name]:
        raise UserError(f"device {name} is not available on this machine")
    return torch.device(name)


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Float32 that is float32 while active: no autocast, no TF32, whatever the caller has chosen, who has it back then.

    A device that still multiplies less precisely is an error: bounds computed there would prove nothing.
    """
    kinds = {"cpu", "cuda"} | ({device.type} if torch.amp.is_autocast_available(device.type) else set())
    with ExitStack() as stack:
        for kind in sorted(kinds):
            stack.enter_context(torch.autocast(kind, enabled=False))
        stack.enter_context(_no_tf32())
        _check_precision(device)
        yield


@contextmanager
def plain_convolutions() -> Iterator[None]:
    """Convolutions on CUDA as sums of products while active: cuDNN's faster ways (Winograd, FFT) round much more."""
    cudnn: Any = torch.backends.cudnn
    before = cudnn.enabled
    cudnn.enabled = False
    try:
        yield
    finally:
        cudnn.enabled = before


@contextmanager
def _no_tf32() -> Iterator[None]:
    """PyTorch has old switches and, since 2.9, new ones; the old cannot be read where the new say something else."""
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
            switch.fp32_precision = "none"  # as the switch above it says
            if switch.fp32_precision != value:
                switch.fp32_precision = value


def _new_switches() -> list[Any]:
    libraries = (torch.backends.cuda, torch.backends.cudnn, torch.backends.mkldnn)
    found = [getattr(library, name, None) for library in libraries for name in ("matmul", "conv", "rnn")]
    return [switch for switch in found if hasattr(switch, "fp32_precision")]


def _read(switch: Any) -> Any:
    try:
        return switch()
    except RuntimeError:  # the caller has used the new switches
        return None


def _check_precision(device: torch.device) -> None:
    """(1 + 2⁻¹²)² is 1 in TF32, bfloat16 and half precision."""
    size, exact = 64, (1 + 2.0**-12) ** 2
    factor = torch.full((size, size), 1 + 2.0**-12, device=device)
    kernel = torch.full((size, 1, 8, 8), 1 + 2.0**-12, device=device)
    found = [factor @ factor, torch.conv2d(factor.view(size, 1, 8, 8), kernel)]
    if any(float((value / (size * exact) - 1).abs().max()) > _LEAST_PRECISE for value in found):
        raise UserError(f"device {device} multiplies less precisely than float32, so that no bound would hold there")
