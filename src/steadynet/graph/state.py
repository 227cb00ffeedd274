"""What a forward may change or read beside its images: weights, attributes, variables, random numbers, clocks."""

from __future__ import annotations

import gc
import random
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_DEEPEST = 4  # containers within containers that are looked into
_LONGEST = 1000  # elements of a container that are looked at; of a longer one only its length
_OF_MODULES = {"_parameters", "_buffers", "_modules"}  # where PyTorch keeps what ``named_parameters`` and others name
_CLOCKS = {"time", "datetime"}


def weights_and_numbers(network: nn.Module) -> dict[str, Any]:
    """Return copies of the weights, buffers and numbers of a network, by name."""
    state: dict[str, Any] = {
        name: value.clone() for name, value in (*network.named_parameters(), *network.named_buffers())
    }
    for prefix, module in network.named_modules():
        numbers = {key: value for key, value in vars(module).items() if isinstance(value, bool | int | float)}
        state |= {f"{prefix}.{key}".lstrip("."): value for key, value in numbers.items()}
    return state


def other_state(network: nn.Module) -> dict[str, Any]:
    """Return copies of all else that a forward may count or remember in: attributes, classes, global variables."""
    state: dict[str, Any] = {}
    for prefix, module in network.named_modules():
        if type(module).__module__.startswith("torch."):
            continue
        found = {key: value for key, value in vars(module).items() if key not in _OF_MODULES}
        for kind in type(module).__mro__:
            if not kind.__module__.startswith("torch."):
                found |= _of_class(kind)
        found |= {key: value for function in found.values() for key, value in _around(function).items()}
        for key, value in found.items():
            copy = _copy(value)
            if copy is not None:
                state[f"{prefix}.{key}".lstrip(".")] = copy
    return state


def random_state() -> tuple[Any, ...]:
    """Return the states of the random generators that Python, NumPy and PyTorch share."""
    return random.getstate(), _copy(np.random.get_state()), torch.random.get_rng_state()


def same_state(one: Any, other: Any) -> bool:
    """Whether two copies of a state are the same."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        same = one.shape == other.shape and one.dtype == other.dtype
        return same and (one.equal(other) or bool((one.eq(other) | (one.isnan() & other.isnan())).all()))
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(same_state, one, other))
    return type(one) is type(other) and bool(one == other)


@contextmanager
def clocks_read() -> Iterator[set[str]]:
    """Collect the names of the clocks that are read inside a ``with`` block; none while a profiler is at work.

    >>> import time
    >>> with clocks_read() as clocks:
    ...     _ = time.time()
    >>> clocks
    {'time.time'}
    """
    found: set[str] = set()
    if sys.getprofile() is not None:  # there can be only one, and it is the user's
        yield found
        return
    collecting = gc.isenabled()

    def note(frame: Any, event: str, function: Any) -> None:
        if event == "c_call":
            owner = getattr(function, "__self__", None)
            module = owner.__name__ if isinstance(owner, ModuleType) else getattr(owner, "__module__", None)
            if module in _CLOCKS:
                found.add(f"{module}.{function.__name__}")

    gc.disable()  # whoever measures how long it takes to collect garbage reads a clock, too
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)
        if collecting:
            gc.enable()


def _of_class(kind: type) -> dict[str, Any]:
    return {f"{kind.__name__}.{key}": value for key, value in vars(kind).items() if not key.startswith("__")}


def _around(function: Any) -> dict[str, Any]:
    """Return the global variables that a function names, what it took from functions around it, and its own."""
    if not isinstance(function, FunctionType):
        return {}
    code, place = function.__code__, function.__globals__
    found = {f"{function.__module__}.{name}": place[name] for name in code.co_names if name in place}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            found[f"{function.__qualname__}.{name}"] = cell.cell_contents
        except ValueError:  # not set yet
            continue
    own = (function.__defaults__, function.__kwdefaults__, vars(function))
    return found | {f"{function.__qualname__}'s variables": own}


def _copy(value: Any, depth: int = 0) -> Any:
    """Copy a number, text, tensor, generator, or a container or an object of such; None for anything else."""
    if isinstance(value, bool | int | float | complex | str | bytes):
        return value
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray | np.generic):
        return (str(value.dtype), np.shape(value), value.tobytes())
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, torch.Generator):
        return value.get_state()
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    if isinstance(value, list | tuple | set | frozenset | dict | deque):
        return _container(value, depth)
    if type(value).__module__ == "itertools":
        return repr(value)  # how far a counter has come
    if isinstance(value, nn.Module | type | ModuleType) or callable(value) or not hasattr(value, "__dict__"):
        return None
    return _container(vars(value), depth)


def _container(value: Any, depth: int) -> tuple[Any, ...]:
    if depth >= _DEEPEST or len(value) > _LONGEST:
        return (len(value),)
    parts = value.items() if isinstance(value, dict) else sorted(value, key=repr) if isinstance(value, set) else value
    return tuple(_copy(part, depth + 1) for part in parts)
