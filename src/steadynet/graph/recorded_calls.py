"""Record what a forward does with its images: the PyTorch functions that it calls, and whether it looks at values.

A trace runs the code of a forward once, on a stand-in for the images. It stands for every run of the forward only if
that code does the same for all images. So a real run must call the same functions with the same numbers, and must not
turn the values of tensors into Python numbers, on which it could decide what to compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from torch import Tensor
from torch.overrides import TorchFunctionMode, resolve_name

# What Python may know of a tensor that is computed from images: none of it depends on the pixels.
_NO_VALUES = {
    "__len__", "_version", "device", "dim", "dtype", "element_size", "get_device", "itemsize", "layout",
    "names", "nbytes", "ndim", "ndimension", "nelement", "numel", "requires_grad", "retains_grad", "shape", "size",
    "storage_offset", "stride", "type",
}  # fmt: skip


class Call(NamedTuple):
    """A call of a PyTorch function on data: its name, and those of its arguments that are no tensors."""

    function: str
    arguments: tuple[Any, ...]


class RecordedCalls(TorchFunctionMode):
    """Records the calls of PyTorch functions on some images, and on what is computed from them.

    Args:
        images: The images. Tensors that do not depend on them, such as weights, are not recorded.

    Attributes:
        calls: The calls, in order.
        looked_by: The first function that turned the values of data into something that Python can decide on; empty if
            there was none.

    >>> import torch
    >>> images = torch.tensor([[1.0, -2.0]])
    >>> with RecordedCalls(images) as record:
    ...     result = torch.relu(2 * images + torch.ones(2))
    >>> [call.function for call in record.calls], record.looked_by
    (['torch.Tensor.mul', 'torch.Tensor.add', 'torch.relu'], '')
    >>> with RecordedCalls(images) as record:
    ...     branch = bool(images.sum() > 0)
    >>> record.looked_by
    'torch.Tensor.__bool__'
    """

    def __init__(self, images: Tensor) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.looked_by = ""
        self._data: dict[int, Tensor] = {}  # by storage; kept, so that no other tensor gets the same storage
        self._keep(images)

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function, and note what it was if it works on data."""
        given = (args, kwargs or {})
        on_data = any(self._is_data(tensor) for tensor in _tensors(given))
        result = func(*args, **(kwargs or {}))
        if not on_data:
            return result
        name = _name(func)
        results = [*_tensors(result)]
        if results or result is None:
            self.calls.append(Call(name, tuple(_other_values(given))))
            changed = [] if results else [*_tensors(args)][:1]  # x[0] = y returns nothing and changes x
            for tensor in (*results, *changed):
                self._keep(tensor)
        elif not _says_no_values(name) and not self.looked_by:
            self.looked_by = name
        return result

    def _keep(self, tensor: Tensor) -> None:
        if tensor.numel():
            self._data[tensor.untyped_storage().data_ptr()] = tensor

    def _is_data(self, tensor: Tensor) -> bool:
        return bool(tensor.numel()) and tensor.untyped_storage().data_ptr() in self._data


@lru_cache(maxsize=1024)
def _name(function: Callable[..., Any]) -> str:
    return resolve_name(function) or getattr(function, "__name__", str(function))


def _says_no_values(name: str) -> bool:
    """Whether a function says something of a tensor that does not depend on its values, such as its shape."""
    word = name.removesuffix(".__get__").rpartition(".")[2]
    return word in _NO_VALUES or (word.startswith("is_") and word != "is_nonzero")


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


def _other_values(value: Any) -> Iterable[Any]:
    """All that is no tensor in some arguments, as text: numbers, shapes, options."""
    if isinstance(value, (tuple, list)):
        for part in value:
            yield from _other_values(part)
    elif isinstance(value, dict):
        for name in sorted(value):
            yield name
            yield from _other_values(value[name])
    elif not isinstance(value, Tensor):
        yield repr(value)
