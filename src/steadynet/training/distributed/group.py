"""One training over several processes, on several GPUs or hosts, as ``torchrun`` starts them.

Every process has the whole network and its slice of every batch; gradients are summed over the processes, each by its
share of the batch, so that the step is that of the mean over the whole batch. This is what DistributedDataParallel
does. Its wrapper is not used: it counts on one call of its own ``forward`` a step, and objectives pass the network
several times, in modes that intercept its calls, or bound it by its parameters without calling it at all. The sum is
taken after the backward pass, in buckets.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib import import_module
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from steadynet.errors import UserError, one_line
from steadynet.training.distributed.global_batch import GlobalBatch, Rows
from steadynet.training.distributed.torchrun_env import Rank, this_process

BUCKET = 2**23  # numbers summed at once
Result = TypeVar("Result")


class Group:
    """The processes of one training, seen from one of them; alone, every method costs nothing."""

    def __init__(self, rank: Rank | None = None, device: torch.device | None = None) -> None:
        self.rank = rank or Rank()
        self.device = device or torch.device("cpu")

    @property
    def is_first(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank.is_first

    @property
    def is_alone(self) -> bool:
        """Whether there is no other."""
        return self.rank.count == 1

    def rows(self, total: int) -> Rows:
        """The rows of a batch that are this process's."""
        return Rows.of(total, self.rank.number, self.rank.count)

    def seeing_all(self, rows: Rows | None) -> AbstractContextManager[Any]:
        """While active, random numbers and batch norm of these rows are those of the whole batch."""
        return nullcontext() if self.is_alone or rows is None else GlobalBatch(rows, _total)

    def total_of(self, rows: Rows | None) -> Callable[[Tensor], Tensor]:
        """What makes a sum over these rows one over the whole batch, with gradients."""
        if self.is_alone or rows is None:
            return lambda part: part
        return lambda part: _total(part if rows.counting else part * 0)

    def total(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, the same bits on each."""
        if self.is_alone:
            return tensor
        result = tensor.detach().to(self.device, copy=True)
        with _company():
            dist.all_reduce(result)
        return result

    def any(self, flag: bool) -> bool:
        """Whether the flag is set on some process."""
        return flag if self.is_alone else bool(self.total(torch.tensor(float(flag))).item())

    def add_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """The sum of every gradient over all processes; what no process has a gradient of keeps none."""
        if self.is_alone:
            return
        there = self.total(torch.tensor([float(parameter.grad is not None) for parameter in parameters])).tolist()
        found = [parameter for parameter, count in zip(parameters, there, strict=True) if count]
        for parameter in found:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for bucket in _buckets([parameter.grad for parameter in found if parameter.grad is not None]):
            flat = self.total(torch.cat([gradient.reshape(-1) for gradient in bucket]))
            for gradient, summed in zip(bucket, flat.split([part.numel() for part in bucket]), strict=True):
                gradient.copy_(summed.view_as(gradient))

    def on_first(self, work: Callable[[], Result]) -> Result | None:
        """What the first process makes of this, None on the others, which wait; its mistake is everybody's."""
        if self.is_alone:
            return work()
        result, mistake = None, [""]
        try:
            result = work() if self.is_first else None
        except UserError as error:
            mistake = [str(error)]
        with _company():
            dist.broadcast_object_list(mistake, 0, device=self.device)
        if mistake[0]:
            raise UserError(mistake[0])
        return result

    def share(self, tensors: Sequence[Tensor]) -> None:
        """Give every process the first one's values, in place."""
        for tensor in tensors if not self.is_alone else ():
            sent = tensor.detach().to(self.device, memory_format=torch.contiguous_format, copy=True)
            with _company():
                dist.broadcast(sent, 0)
            tensor.detach().copy_(sent)

    def share_generators(self) -> None:
        """Give every process the first one's random numbers to come.

        They are in step already, unless the network draws some in a way that ``GlobalBatch`` does not know.
        """
        if self.is_alone:
            return
        state = torch.get_rng_state()
        self.share([state])
        torch.set_rng_state(state)
        if self.device.type == "cuda":
            state = torch.cuda.get_rng_state(self.device)
            self.share([state])
            torch.cuda.set_rng_state(state, self.device)

    def check_same(self, what: str, tensors: Sequence[Tensor]) -> None:
        """An error unless all processes have the same bits."""
        if self.is_alone:
            return
        code = 0
        for tensor in tensors:
            stored = tensor.detach().to("cpu").contiguous().reshape(-1)
            code = zlib.crc32(stored.view(torch.uint8).numpy().data, code)
        codes = torch.zeros(self.rank.count, dtype=torch.int64)
        codes[self.rank.number] = code
        first, *others = self.total(codes).tolist()
        for number, other in enumerate(others, start=1):
            if other != first:
                raise UserError(f"{what} of process {number} of {self.rank.count} are not those of the first process")


@contextmanager
def joined(device: str) -> Iterator[Group]:
    """The group of the processes that ``torchrun`` started, once all are there; alone where it did not.

    NCCL on CUDA, one GPU a process; gloo on CPUs. The group's threads end with it, whatever happens: alive when the
    interpreter ends, they abort some processes. But for NCCL after an error: it would wait for the others.
    """
    rank = this_process()
    if rank.count == 1:
        yield Group()
        return
    group = Group(rank, _own_device(device, rank))
    ours = not dist.is_initialized()
    with _company():
        if group.device.type == "cuda":
            torch.cuda.set_device(group.device)
        if ours:
            _meet(group)
    try:
        group.any(False)  # nobody goes on, and writes, before all have come and read
        yield group
        if ours:
            group.any(False)
    except BaseException:
        ours = ours and group.device.type == "cpu"
        raise
    finally:
        if ours:
            dist.destroy_process_group()


def _meet(group: Group) -> None:
    """Wait for the others; after a restart by ``torchrun``, not for the addresses of those that are gone."""
    # Imported later, as optimizers do, its functions take the group for a default: its threads would outlive it.
    import_module("torch.distributed.nn")
    store, _, _ = next(iter(dist.rendezvous("env://")))  # type: ignore[attr-defined]
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"steadynet-{attempt}", store)  # type: ignore[attr-defined]
    backend = "nccl" if group.device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=group.rank.number, world_size=group.rank.count)


def _own_device(device: str, rank: Rank) -> torch.device:
    if device == "mps":
        raise UserError("several processes cannot share device mps: train in one process, or with --device cpu")
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if rank.local_count > torch.cuda.device_count():
        raise UserError(
            f"{rank.local_count} processes on a machine with {torch.cuda.device_count()} GPUs: start as many processes "
            "as there are GPUs (torchrun --nproc-per-node), or train with --device cpu"
        )
    return torch.device("cuda", rank.local)


@contextmanager
def _company() -> Iterator[None]:
    """A process that is gone is one line, not a traceback of the library."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"lost the other processes of this training ({one_line(error).rpartition('] ')[2][:80]}): "
            "the same command with --resume goes on from the last checkpoint"
        ) from error


def _total(tensor: Tensor) -> Tensor:
    return _Total.apply(tensor)  # type: ignore[no-untyped-call]


class _Total(torch.autograd.Function):
    """The sum over all processes; each one's loss depends on it, so its gradient is the sum of all, too."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        result = tensor.detach().clone(memory_format=torch.contiguous_format)
        with _company():
            dist.all_reduce(result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _Total.forward(ctx, gradient)


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """The tensors in order, those of one type together, until a bucket is full."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        if bucket and (tensor.dtype != bucket[0].dtype or sum(part.numel() for part in bucket) >= BUCKET):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket
