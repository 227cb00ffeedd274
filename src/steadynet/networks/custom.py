"""A user's own network: ``file.py:factory``."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from steadynet.errors import UnknownNameError, UserError, one_line


def load_factory(source: Path, factory: str, image_shape: tuple[int, ...], classes: int) -> nn.Module:
    """What ``factory`` in the file ``source`` returns; it may take ``image_shape`` and ``classes``, or nothing."""
    if not source.is_file():
        raise UserError(f"no file {source}: --model takes M1, …, C3 or file.py:factory")
    module = _imported(source)
    functions = {name: value for name, value in vars(module).items() if callable(value) and not name.startswith("_")}
    if factory not in functions:
        raise UnknownNameError(f"factory in {source.name}", factory, functions)
    return _call(functions[factory], source, {"image_shape": image_shape, "classes": classes})


def _imported(source: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"steadynet_model_{source.stem}", source)
    if spec is None or spec.loader is None:
        raise UserError(f"{source} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses in the file look for their own module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # whatever the user's own file raises
        raise UserError(f"{source} cannot be imported: {_described(error, source)}") from error
    return module


def _described(error: BaseException, source: Path) -> str:
    """What went wrong, and in which line of the user's file."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(source)]
    return f"{type(error).__name__}: {one_line(error)}" + (f" (line {lines[-1]})" if lines else "")


def _call(factory: Any, source: Path, offered: dict[str, Any]) -> nn.Module:
    name = f"{source.name}:{factory.__name__}"
    parameters = inspect.signature(factory).parameters
    needed = [key for key, value in parameters.items() if value.default is value.empty and value.kind < 2]
    strange = sorted(set(needed) - set(offered))
    if strange:
        raise UserError(f"{name} wants {', '.join(strange)}; a factory may take image_shape and classes, or nothing")
    try:
        network = factory(**{key: value for key, value in offered.items() if key in parameters})
    except (Exception, SystemExit) as error:  # whatever the user's own factory raises
        raise UserError(f"{name} failed: {_described(error, source)}") from error
    if not isinstance(network, nn.Module):
        raise UserError(f"{name} returned {type(network).__name__}, not an nn.Module")
    return network
