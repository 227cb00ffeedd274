"""The ReLU inputs of any ``nn.Module``: modules, functions, methods, in place or not, reused or not.

A torch function mode sees every ReLU call whichever way it was written, so no module has to be known or hooked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from steadynet.errors import UserError
from steadynet.input_gradient import relu_keeping_layout

_PURE = {F.relu, torch.relu, torch.Tensor.relu}
_IN_PLACE = {F.relu_, torch.relu_, torch.Tensor.relu_}


class Activations(NamedTuple):
    """What one forward pass shows: the logits and each ReLU's input, in the order they were computed."""

    logits: Tensor
    preactivations: list[Tensor]


class InterceptReLU(TorchFunctionMode):
    """While active, every ReLU call is answered by ``replacement(preactivation)`` instead.

    An in-place ReLU is given a copy of its input, and its result is written back, so the module sees what it expects.
    """

    def __init__(self, replacement: Callable[[Tensor], Tensor]) -> None:
        self.replacement = replacement

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func in _PURE or func in _IN_PLACE:
            tensor: Tensor = args[0] if args else kwargs["input"]
            in_place = func in _IN_PLACE or (func is F.relu and (kwargs.get("inplace") or (len(args) > 1 and args[1])))
            return tensor.copy_(self.replacement(tensor.clone())) if in_place else self.replacement(tensor)
        return func(*args, **kwargs)


def activations(network: nn.Module, images: Tensor) -> Activations:
    """One forward pass with all its ReLU inputs; a network without a ReLU is an error.

    >>> network = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    >>> [tuple(layer.shape) for layer in activations(network, torch.zeros(5, 2)).preactivations]
    [(5, 3)]
    """
    found: list[Tensor] = []

    def record(preactivation: Tensor) -> Tensor:
        found.append(preactivation)
        return relu_keeping_layout(preactivation)

    with InterceptReLU(record):
        logits = network(images)
    if not found:
        raise UserError(
            f"{type(network).__name__} has no ReLU: consistency and stability are about ReLU inputs, "
            "so use nn.ReLU, F.relu or torch.relu as its activation"
        )
    return Activations(logits, found)


def depends_on_mode(network: nn.Module) -> bool:
    """Whether the network computes something else in training than in evaluation (batch norm, dropout)."""
    kinds = (nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd, nn.modules.instancenorm._InstanceNorm)
    return any(isinstance(module, kinds) for module in network.modules())
