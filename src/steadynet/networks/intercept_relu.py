"""Replace every ReLU call of any ``nn.Module`` while a context is active."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

_PURE = {F.relu, torch.relu, torch.Tensor.relu}
_IN_PLACE = {F.relu_, torch.relu_, torch.Tensor.relu_}


class InterceptReLU(TorchFunctionMode):
    """A context in which every ReLU call returns ``replacement(preactivation)`` instead.

    For an in-place ReLU, the replacement gets a copy of the input, and its result is written into the input.

    Args:
        replacement: A function from the input of a ReLU to its output.

    >>> with InterceptReLU(lambda preactivation: preactivation.abs()):
    ...     torch.nn.ReLU()(torch.tensor([-2.0, 3.0]))
    tensor([2., 3.])
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
