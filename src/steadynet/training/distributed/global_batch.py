"""A slice of a batch that behaves as the whole batch would: the same random numbers, the same batch norm.

One process of several computes the loss of its rows only. An objective, or a network, that draws random numbers for
these rows, or normalises by the statistics of the batch, would then not do what it does in one process. While
:class:`GlobalBatch` is active, every such call is answered for the whole batch: random numbers are drawn for all rows
and this process takes its own, so that all processes' generators stay in step; statistics are those of all rows, and
gradients flow through them to all processes. No objective and no network has to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

Total = Callable[[Tensor], Tensor]  # the sum of a tensor over all processes, with gradients

_DRAWS = {torch.rand_like, torch.randn_like, torch.randint_like, torch.bernoulli}
_FILLS = {torch.Tensor.uniform_, torch.Tensor.normal_, torch.Tensor.bernoulli_}
_DROPS = {F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout}


class Rows(NamedTuple):
    """The rows of a batch of ``total`` that one process computes, and how many of them count.

    A process for which nothing is left computes the first row, too, and none of its rows count.
    """

    start: int
    stop: int
    total: int
    counting: int

    @classmethod
    def of(cls, total: int, process: int, processes: int) -> Rows:
        """The share of one process: as even as can be, in order.

        >>> [tuple(Rows.of(5, process, 2)) for process in range(2)], tuple(Rows.of(1, 0, 2))
        ([(0, 2, 5, 2), (2, 5, 5, 3)], (0, 1, 1, 0))
        """
        start, stop = total * process // processes, total * (process + 1) // processes
        return cls(start, stop, total, stop - start) if stop > start else cls(0, 1, total, 0)

    @property
    def share(self) -> float:
        """The weight of the mean over these rows in the mean over all."""
        return self.counting / self.total

    def __call__(self, tensor: Tensor) -> Tensor:
        """These rows of a tensor that has all."""
        return tensor[self.start : self.stop]


class GlobalBatch(TorchFunctionMode):
    """While active, calls on this process's rows are answered as for the whole batch."""

    def __init__(self, rows: Rows, total: Total) -> None:
        self.rows, self.total = rows, total

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if func in _DRAWS | _FILLS | _DROPS and self._is_batch(args):
            return self._drawn(func, *args, **kwargs)
        if func is F.batch_norm and kwargs.get("training") and self._is_batch(args):
            return self._batch_norm(*args, **kwargs)
        if func is torch.var_mean and self._is_batch(args) and _over_batch(*args, **kwargs):
            mean, variance = self._moments(args[0])
            return variance, mean
        return func(*args, **kwargs)

    def _is_batch(self, args: tuple[Any, ...]) -> bool:
        rows = self.rows.stop - self.rows.start
        return bool(args) and isinstance(args[0], Tensor) and args[0].dim() > 0 and len(args[0]) == rows

    def _drawn(self, func: Callable[..., Tensor], own: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """The function on a tensor of all rows, in the layout it would have; of its result, the own rows."""
        whole = self._whole_like(own)
        if func in _DROPS or func is torch.bernoulli:
            whole[self.rows.start : self.rows.stop] = own
        in_place = func in _FILLS or bool(kwargs.pop("inplace", False))
        result = self.rows(func(whole, *args, **kwargs))
        return own.copy_(result) if in_place else result

    def _whole_like(self, own: Tensor) -> Tensor:
        """Zeros for all rows; random numbers fill a tensor in the order of its memory, so that is kept."""
        size, strides, row = own[0].numel(), own.stride()[1:], own.shape[1:]
        dense = 1 + sum((length - 1) * stride for length, stride in zip(row, strides, strict=True)) == size
        shape = (self.rows.total, *row)
        return own.new_empty_strided(shape, (size, *strides)).zero_() if dense else own.new_zeros(shape)

    def _moments(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance (by count) a channel, over all rows of all processes; shapes (channels,)."""
        axes = [axis for axis in range(values.dim()) if axis != 1]
        counted = values[: self.rows.counting]
        counted = counted if counted.dtype == torch.float64 else counted.float()
        count = values[0].numel() // values.shape[1] * self.rows.total
        mean = self.total(counted.sum(axes)) / count
        variance = self.total((counted - _as_channels(mean, values)).square().sum(axes)) / count
        return mean, variance

    def _batch_norm(
        self,
        values: Tensor,
        running_mean: Tensor | None = None,
        running_var: Tensor | None = None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = True,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        mean, variance = self._moments(values)
        count = values[0].numel() // values.shape[1] * self.rows.total
        with torch.no_grad():
            if running_mean is not None:
                running_mean.lerp_(mean.to(running_mean), momentum)
            if running_var is not None:
                running_var.lerp_((variance * count / (count - 1)).to(running_var), momentum)
        factor = torch.rsqrt(variance + eps)
        factor = factor if weight is None else factor * weight
        result = (values - _as_channels(mean, values)) * _as_channels(factor, values)
        return (result if bias is None else result + _as_channels(bias, values)).to(values.dtype)


def _as_channels(tensor: Tensor, like: Tensor) -> Tensor:
    return tensor.view(1, -1, *[1] * (like.dim() - 2))


def _over_batch(values: Tensor, dim: Any = None, *, correction: Any = 1, **_: Any) -> bool:
    """Whether a variance is a batch norm's: by count, a channel, over everything else."""
    others = {axis for axis in range(values.dim()) if axis != 1}
    return correction == 0 and isinstance(dim, (list, tuple)) and set(dim) == others and values.dim() > 1
