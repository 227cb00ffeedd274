"""One training over several processes, on several GPUs or hosts, as ``torchrun`` starts them.

Every process has a copy of the whole network and computes the loss of its own slice of every batch. Gradients are
summed over the processes, each weighted by the size of its slice. So every process takes the step that one process
would take with the whole batch.

``DistributedDataParallel`` does the same, but cannot be used here. It expects one call of its ``forward`` per step.
Objectives call the network several times, in modes that intercept its operations, or bound it by its parameters without
calling it. Therefore gradients are summed after the backward pass, many parameters at a time.
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
from steadynet.training.distributed.global_batch import BatchSlice, GlobalBatch
from steadynet.training.distributed.torchrun_env import ProcessRank, this_process

BUCKET_SIZE = 2**23  # how many numbers one communication sums at least, if there are as many
Result = TypeVar("Result")


class ProcessGroup:
    """The processes of one training, as one of them sees them.

    With a single process, every method returns at once without any communication.

    Args:
        process: The rank of this process.
        device: The device of this process.
    """

    def __init__(self, process: ProcessRank | None = None, device: torch.device | None = None) -> None:
        self.process = process or ProcessRank()
        self.device = device or torch.device("cpu")

    @property
    def is_rank_zero(self) -> bool:
        """Whether this is the process that writes files."""
        return self.process.is_rank_zero

    @property
    def is_single(self) -> bool:
        """Whether there is only this process."""
        return self.process.world_size == 1

    def slice_of(self, batch_size: int) -> BatchSlice:
        """Return the slice of a batch that this process computes."""
        return BatchSlice.of_process(batch_size, self.process.rank, self.process.world_size)

    def global_batch(self, batch_slice: BatchSlice | None) -> AbstractContextManager[Any]:
        """Return a context in which random numbers and batch norm are those of the whole batch."""
        return nullcontext() if self.is_single or batch_slice is None else GlobalBatch(batch_slice, _all_reduce_sum)

    def sum_over_batch(self, batch_slice: BatchSlice | None) -> Callable[[Tensor], Tensor]:
        """Return a function that turns a sum over a slice into the sum over the whole batch, with gradients."""
        if self.is_single or batch_slice is None:
            return lambda part: part
        return lambda part: _all_reduce_sum(part if batch_slice.counting else part * 0)

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, without gradients. All processes get the same bits."""
        if self.is_single:
            return tensor
        result = tensor.detach().to(self.device, copy=True)
        with _communication_errors():
            dist.all_reduce(result)
        return result

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set in at least one process."""
        return flag if self.is_single else bool(self.sum(torch.tensor(float(flag))).item())

    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace every gradient by its sum over all processes. A gradient that no process has stays None."""
        if self.is_single:
            return
        counts = self.sum(torch.tensor([float(parameter.grad is not None) for parameter in parameters])).tolist()
        with_gradient = [parameter for parameter, count in zip(parameters, counts, strict=True) if count]
        for parameter in with_gradient:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        for bucket in _buckets([parameter.grad for parameter in with_gradient if parameter.grad is not None]):
            flat = self.sum(torch.cat([gradient.reshape(-1) for gradient in bucket]))
            for gradient, summed in zip(bucket, flat.split([part.numel() for part in bucket]), strict=True):
                gradient.copy_(summed.view_as(gradient))

    def on_rank_zero(self, work: Callable[[], Result]) -> Result | None:
        """Run ``work`` in rank 0 while the other ranks wait.

        Returns:
            The result of ``work`` in rank 0, None in the other ranks.

        Raises:
            UserError: ``work`` raised one. It is raised in all processes.
        """
        if self.is_single:
            return work()
        result, message = None, [""]
        try:
            result = work() if self.is_rank_zero else None
        except UserError as error:
            message = [str(error)]
        with _communication_errors():
            dist.broadcast_object_list(message, 0, device=self.device)
        if message[0]:
            raise UserError(message[0])
        return result

    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        """Copy the values of rank 0's tensors into those of all other ranks, in place."""
        for tensor in tensors if not self.is_single else ():
            sent = tensor.detach().to(self.device, memory_format=torch.contiguous_format, copy=True)
            with _communication_errors():
                dist.broadcast(sent, 0)
            tensor.detach().copy_(sent)

    def broadcast_generators(self) -> None:
        """Copy the state of rank 0's random generators to all other ranks.

        The states are equal already, unless the network draws random numbers by a function that ``GlobalBatch`` does
        not intercept.
        """
        if self.is_single:
            return
        state = torch.get_rng_state()
        self.broadcast([state])
        torch.set_rng_state(state)
        if self.device.type == "cuda":
            state = torch.cuda.get_rng_state(self.device)
            self.broadcast([state])
            torch.cuda.set_rng_state(state, self.device)

    def check_equal(self, what: str, tensors: Sequence[Tensor]) -> None:
        """Check that all processes have bit-identical tensors.

        Args:
            what: What the tensors are, for the error message.
            tensors: The tensors of this process.

        Raises:
            UserError: The tensors of some process differ from those of rank 0.
        """
        if self.is_single:
            return
        checksum = 0
        for tensor in tensors:
            stored = tensor.detach().to("cpu").contiguous().reshape(-1)
            checksum = zlib.crc32(stored.view(torch.uint8).numpy().data, checksum)
        checksums = torch.zeros(self.process.world_size, dtype=torch.int64)
        checksums[self.process.rank] = checksum
        first, *others = self.sum(checksums).tolist()
        for rank, other in enumerate(others, start=1):
            if other != first:
                raise UserError(
                    f"{what} of process {rank} of {self.process.world_size} are not those of the first process"
                )


@contextmanager
def join_process_group(device: str) -> Iterator[ProcessGroup]:
    """Join the processes that ``torchrun`` started, and leave them at the end of the context.

    The context starts when all processes have joined. If ``torchrun`` did not start this process, the group has a
    single process. The processes communicate by NCCL on CUDA, with one GPU per process, and by gloo on CPUs.

    The group and its threads are destroyed at the end, also after an error: threads that outlive the interpreter abort
    the process now and then. The exception is NCCL after an error, because destroying it would wait for the others.

    Args:
        device: The setting ``device`` of the training.

    Raises:
        UserError: The processes cannot use this device, or another process is gone.
    """
    process = this_process()
    if process.world_size == 1:
        yield ProcessGroup()
        return
    group = ProcessGroup(process, _device_of(process, device))
    is_ours = not dist.is_initialized()  # a script may have made a group before it calls us
    with _communication_errors():
        if group.device.type == "cuda":
            torch.cuda.set_device(group.device)
        if is_ours:
            _initialise(group)
    try:
        group.any(False)  # no process continues, and writes, before all have joined and read
        yield group
        if is_ours:
            group.any(False)
    except BaseException:
        is_ours = is_ours and group.device.type == "cpu"
        raise
    finally:
        if is_ours:
            dist.destroy_process_group()


def _initialise(group: ProcessGroup) -> None:
    """Make PyTorch's process group, once all processes have called this.

    After a restart by ``torchrun``, the store still holds the addresses of the processes that are gone. A prefix with
    the number of the attempt keeps them apart.
    """
    # torch.distributed.nn binds the process group that exists when it is first imported as the default of its
    # functions. Optimisers import it. Imported before there is a group, it cannot keep the group's threads alive.
    import_module("torch.distributed.nn")
    store, _, _ = next(iter(dist.rendezvous("env://")))  # type: ignore[attr-defined]
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = dist.PrefixStore(f"steadynet-{attempt}", store)  # type: ignore[attr-defined]
    backend = "nccl" if group.device.type == "cuda" else "gloo"
    dist.init_process_group(backend, store=store, rank=group.process.rank, world_size=group.process.world_size)


def _device_of(process: ProcessRank, device: str) -> torch.device:
    """Return the device of this process: the CPU, or a GPU of its own."""
    if device == "mps":
        raise UserError("several processes cannot share device mps: train in one process, or with --device cpu")
    if device == "cpu" or (device == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if process.local_world_size > torch.cuda.device_count():
        raise UserError(
            f"{process.local_world_size} processes on a machine with {torch.cuda.device_count()} GPUs: start as many "
            "processes as there are GPUs (torchrun --nproc-per-node), or train with --device cpu"
        )
    return torch.device("cuda", process.local_rank)


@contextmanager
def _communication_errors() -> Iterator[None]:
    """Turn an error of a communication into a one-line ``UserError``: it means that another process is gone."""
    try:
        yield
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"lost the other processes of this training ({one_line(error).rpartition('] ')[2][:80]}): "
            "run the same command with --resume to continue from the last checkpoint"
        ) from error


def _all_reduce_sum(tensor: Tensor) -> Tensor:
    """Sum a tensor over all processes, with gradients."""
    return _AllReduceSum.apply(tensor)  # type: ignore[no-untyped-call]


class _AllReduceSum(torch.autograd.Function):
    """The sum over all processes.

    The losses of all processes depend on the sum. So the gradient of each summand is the sum of all their gradients.
    """

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        result = tensor.detach().clone(memory_format=torch.contiguous_format)
        with _communication_errors():
            dist.all_reduce(result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _AllReduceSum.forward(ctx, gradient)


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Group consecutive tensors of one data type until a bucket is full."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        if bucket and (tensor.dtype != bucket[0].dtype or sum(part.numel() for part in bucket) >= BUCKET_SIZE):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket
