"""Make one process's slice of a batch behave like the whole batch: same random numbers, same batch norm.

In a training over several processes, each process computes the loss of its own slice of every batch. An objective or a
network may draw random numbers for the batch, or normalise by the batch's statistics. On a slice alone, both would
differ from what one process does with the whole batch. While :class:`GlobalBatch` is active, it intercepts such calls:

- Random numbers are drawn for the whole batch, and each process keeps those of its slice. So the generators of all
  processes stay in the same state.
- Batch norm uses the statistics of the whole batch, and gradients flow through them to all processes.

Objectives and networks need not know that there are several processes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

Sum = Callable[[Tensor], Tensor]  # sums a tensor over all processes, with gradients

# Functions that draw random numbers: for a tensor like the given one, into the given one, or to zero parts of it.
_DRAWS_LIKE = {torch.rand_like, torch.randn_like, torch.randint_like, torch.bernoulli}
_DRAWS_INTO = {torch.Tensor.uniform_, torch.Tensor.normal_, torch.Tensor.bernoulli_}
_DROPOUTS = {F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout}


@dataclass(frozen=True)
class BatchSlice:
    """The rows of a batch that one process computes.

    A process must compute something even if the batch has fewer rows than there are processes. It then computes the
    first row of the batch, and none of its rows counts.

    Attributes:
        start: The first row.
        stop: The row after the last one.
        batch_size: The number of rows of the whole batch.
        counting: How many rows of the slice count in the loss: all of them or none.
    """

    start: int
    stop: int
    batch_size: int
    counting: int

    @classmethod
    def of_process(cls, batch_size: int, rank: int, world_size: int) -> BatchSlice:
        """Return the slice of one process. All slices together are the batch, in order and as even as possible.

        >>> BatchSlice.of_process(5, rank=0, world_size=2)
        BatchSlice(start=0, stop=2, batch_size=5, counting=2)
        >>> BatchSlice.of_process(5, rank=1, world_size=2)
        BatchSlice(start=2, stop=5, batch_size=5, counting=3)
        >>> BatchSlice.of_process(1, rank=0, world_size=2)
        BatchSlice(start=0, stop=1, batch_size=1, counting=0)
        """
        start, stop = batch_size * rank // world_size, batch_size * (rank + 1) // world_size
        if start == stop:
            return cls(0, 1, batch_size, counting=0)
        return cls(start, stop, batch_size, counting=stop - start)

    @property
    def weight(self) -> float:
        """The weight of the mean over this slice in the mean over the whole batch."""
        return self.counting / self.batch_size

    def take(self, batch: Tensor) -> Tensor:
        """Return this slice of a tensor that holds the whole batch."""
        return batch[self.start : self.stop]


class GlobalBatch(TorchFunctionMode):
    """A context in which calls on this process's slice are computed as for the whole batch.

    Args:
        batch_slice: The slice of this process.
        sum_over_processes: Sums a tensor over all processes, with gradients.
    """

    def __init__(self, batch_slice: BatchSlice, sum_over_processes: Sum) -> None:
        self.slice, self.sum_over_processes = batch_slice, sum_over_processes

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        if not self._has_rows_of_slice(args):
            return func(*args, **kwargs)
        if func in _DRAWS_LIKE | _DRAWS_INTO | _DROPOUTS:
            return self._draw_for_whole_batch(func, *args, **kwargs)
        if func is F.batch_norm and kwargs.get("training"):
            return self._batch_norm(*args, **kwargs)
        if func is torch.var_mean and _is_batch_norm_variance(*args, **kwargs):
            mean, variance = self._mean_and_variance(args[0])
            return variance, mean
        return func(*args, **kwargs)

    def _has_rows_of_slice(self, args: tuple[Any, ...]) -> bool:
        """Whether the first argument is a tensor with one row per row of the slice."""
        rows = self.slice.stop - self.slice.start
        return bool(args) and isinstance(args[0], Tensor) and args[0].dim() > 0 and len(args[0]) == rows

    def _draw_for_whole_batch(self, func: Callable[..., Tensor], own: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Call a random function on a tensor of the whole batch, and return the rows of the slice."""
        whole = self._zeros_for_whole_batch(own)
        if func in _DROPOUTS or func is torch.bernoulli:  # their result depends on the values, too
            whole[self.slice.start : self.slice.stop] = own
        in_place = func in _DRAWS_INTO or bool(kwargs.pop("inplace", False))
        result = self.slice.take(func(whole, *args, **kwargs))
        return own.copy_(result) if in_place else result

    def _zeros_for_whole_batch(self, own: Tensor) -> Tensor:
        """Return zeros with the rows of the whole batch, in the memory layout that the whole batch would have.

        Random functions fill a tensor in the order of its memory, so another layout would give other numbers.
        """
        size, strides, row = own[0].numel(), own.stride()[1:], own.shape[1:]
        is_dense = 1 + sum((length - 1) * stride for length, stride in zip(row, strides, strict=True)) == size
        shape = (self.slice.batch_size, *row)
        return own.new_empty_strided(shape, (size, *strides)).zero_() if is_dense else own.new_zeros(shape)

    def _mean_and_variance(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """Return the mean and the (biased) variance of each channel over the whole batch, each of shape (channels,)."""
        axes = [axis for axis in range(values.dim()) if axis != 1]
        counted = values[: self.slice.counting]
        counted = counted if counted.dtype == torch.float64 else counted.float()
        count = self._values_per_channel(values)
        mean = self.sum_over_processes(counted.sum(axes)) / count
        variance = self.sum_over_processes((counted - _per_channel(mean, values)).square().sum(axes)) / count
        return mean, variance

    def _values_per_channel(self, values: Tensor) -> int:
        """Return how many values each channel has in the whole batch."""
        return values[0].numel() // values.shape[1] * self.slice.batch_size

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
        """Compute ``F.batch_norm`` in training mode, with the statistics of the whole batch."""
        mean, variance = self._mean_and_variance(values)
        count = self._values_per_channel(values)
        with torch.no_grad():
            if running_mean is not None:
                running_mean.lerp_(mean.to(running_mean), momentum)
            if running_var is not None:
                running_var.lerp_((variance * count / (count - 1)).to(running_var), momentum)
        factor = torch.rsqrt(variance + eps)
        factor = factor if weight is None else factor * weight
        result = (values - _per_channel(mean, values)) * _per_channel(factor, values)
        return (result if bias is None else result + _per_channel(bias, values)).to(values.dtype)


def _per_channel(tensor: Tensor, like: Tensor) -> Tensor:
    """Reshape (channels,) so that it broadcasts along the channels of ``like``."""
    return tensor.view(1, -1, *[1] * (like.dim() - 2))


def _is_batch_norm_variance(values: Tensor, dim: Any = None, *, correction: Any = 1, **_: Any) -> bool:
    """Whether arguments of ``torch.var_mean`` ask for batch norm's variance: biased, over all axes but channels."""
    others = {axis for axis in range(values.dim()) if axis != 1}
    return correction == 0 and isinstance(dim, (list, tuple)) and set(dim) == others and values.dim() > 1
