"""A user's own network: ``file.py:factory``."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from typing import Any

from torch import nn

from steadynet.errors import UnknownNameError, UserError


def load_factory(source: Path, factory: str, image_shape: tuple[int, ...], classes: int) -> nn.Module:
    """What ``factory`` in the file ``source`` returns; it may take ``image_shape`` and ``classes``, or nothing."""
    if not source.is_file():
        raise UserError(f"no file {source}: --model takes M1, …, C3 or file.py:factory")
    spec = importlib.util.spec_from_file_location(source.stem, source)
    if spec is None or spec.loader is None:
        raise UserError(f"{source} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (SyntaxError, ImportError, NameError) as error:
        raise UserError(f"{source} cannot be imported: {error}") from error
    functions = {name: value for name, value in vars(module).items() if callable(value) and not name.startswith("_")}
    if factory not in functions:
        raise UnknownNameError(f"factory in {source.name}", factory, functions)
    return _call(functions[factory], f"{source.name}:{factory}", {"image_shape": image_shape, "classes": classes})


def _call(factory: Any, name: str, offered: dict[str, Any]) -> nn.Module:
    parameters = inspect.signature(factory).parameters
    needed = [key for key, value in parameters.items() if value.default is value.empty and value.kind < 2]
    strange = sorted(set(needed) - set(offered))
    if strange:
        raise UserError(f"{name} wants {', '.join(strange)}; a factory may take image_shape and classes, or nothing")
    network = factory(**{key: value for key, value in offered.items() if key in parameters})
    if not isinstance(network, nn.Module):
        raise UserError(f"{name} returned {type(network).__name__}, not an nn.Module")
    return network
