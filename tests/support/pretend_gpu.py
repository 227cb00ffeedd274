"""A GPU that is none: tensors that say they live on another device, and whose numbers a CPU tensor inside them holds.

The device is called "meta", the one besides "cpu" that every build of PyTorch can differentiate on. As on CUDA,
tensors of two devices do not mix, but for single numbers in element-wise operations and for indices on the CPU; a CPU's
generator draws nothing there; there is no ``numpy()``; what is created without a device is on the CPU. Not as on CUDA
are speed, memory, streams, the order of sums, the precision of libraries, and operations that CUDA does not have.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils._pytree import tree_leaves, tree_map

DEVICE = torch.device("meta")
CPU = torch.device("cpu")
_aten = torch.ops.aten
_INDEXING = {
    _aten.index.Tensor,
    _aten.index_put.default,
    _aten.index_put_.default,
    _aten._index_put_impl_.default,
    _aten._unsafe_index.Tensor,
}
_COPIES = {_aten.copy_.default, _aten._to_copy.default}
_WITH_A_NUMBER = {_aten.fill_.Tensor, _aten.masked_fill.Tensor, _aten.masked_fill_.Tensor, *_INDEXING}


class PretendTensor(Tensor):
    """A tensor on the pretended GPU."""

    held: Tensor

    @staticmethod
    def __new__(cls, real: Tensor) -> PretendTensor:
        result = Tensor._make_wrapper_subclass(
            cls,
            real.shape,
            strides=real.stride(),
            storage_offset=real.storage_offset(),
            dtype=real.dtype,
            device=DEVICE,
        )
        result.held = real
        return result

    def tolist(self) -> Any:
        """PyTorch's own, which copies to the CPU first, refuses subclasses."""
        return self.held.tolist()

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(func, args, kwargs or {})


class PretendGPU(TorchDispatchMode):
    """While active, there is a second device; ``calls`` counts what ran on it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self._numbers = _Numbers()

    def __enter__(self) -> PretendGPU:
        self._numbers.__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._numbers.__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += any(isinstance(leaf, PretendTensor) for leaf in tree_leaves((args, kwargs)))
        return _run(func, args, kwargs or {})


class _Numbers(TorchFunctionMode):
    """``torch.tensor(numbers, device=…)`` and indices that are lists: on "meta" PyTorch would forget the numbers."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.tensor, torch.as_tensor) and not isinstance(args[0], Tensor):
            device = torch.device(kwargs.get("device") or torch.get_default_device())
            return func(*args, **kwargs | {"device": CPU}).to(device)
        if func in (Tensor.__getitem__, Tensor.__setitem__):
            args = (args[0], _with_tensors(args[1]), *args[2:])
        return func(*args, **kwargs)


def _with_tensors(index: Any) -> Any:
    """The index, its lists of places as tensors."""
    if isinstance(index, tuple):
        return tuple(map(_with_tensors, index))
    return torch.tensor(index, device=CPU) if isinstance(index, list) else index


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """The call on the tensors inside, once it is one that a GPU would take."""
    leaves = tree_leaves((args, kwargs))
    there = [leaf for leaf in leaves if isinstance(leaf, PretendTensor)]
    if any(isinstance(leaf, Tensor) and leaf.is_meta for leaf in leaves if not isinstance(leaf, PretendTensor)):
        raise RuntimeError(f"{func}: a tensor without numbers")
    target = kwargs.get("device") or (DEVICE if there else CPU)
    if not there and target.type == CPU.type:
        return func(*args, **kwargs)
    if there:
        _refuse_mixing(func, args, leaves)
    if target.type == DEVICE.type and any(isinstance(leaf, torch.Generator) for leaf in leaves):
        raise RuntimeError(f"{func}: expected a generator of device '{DEVICE}', but found one of 'cpu'")
    known = {id(tensor.held): tensor for tensor in there}
    inside = tree_map(lambda leaf: leaf.held if isinstance(leaf, PretendTensor) else leaf, (args, kwargs))
    if kwargs.get("device") is not None:
        inside[1]["device"] = CPU
    found = func(*inside[0], **inside[1])
    if target.type == CPU.type or (func is _aten.copy_.default and not isinstance(args[0], PretendTensor)):
        return args[0] if func is _aten.copy_.default else found
    return return_and_correct_aliasing(func, args, kwargs, tree_map(lambda leaf: _outside(leaf, known), found))


def _outside(leaf: Any, known: dict[int, PretendTensor]) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    return known[id(leaf)] if id(leaf) in known else PretendTensor(leaf)


def _refuse_mixing(func: Any, args: Any, leaves: list[Any]) -> None:
    strange = [leaf for leaf in leaves if isinstance(leaf, Tensor) and not isinstance(leaf, PretendTensor)]
    if func in _COPIES:
        return
    if torch.Tag.pointwise in func.tags or func in _WITH_A_NUMBER:
        strange = [leaf for leaf in strange if leaf.dim()]
    if func in _INDEXING and isinstance(args[0], PretendTensor):
        indices = {id(leaf) for leaf in args[1]}
        strange = [leaf for leaf in strange if id(leaf) not in indices]
    if strange:
        shapes = [tuple(leaf.shape) for leaf in strange]
        raise RuntimeError(f"{func}: expected all tensors to be on the same device, but {shapes} are on the CPU")
