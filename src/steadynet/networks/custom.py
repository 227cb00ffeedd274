"""Networks that a user wrote, given as ``file.py:factory``."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

from torch import nn

from steadynet.errors import UnknownNameError, UserError
from steadynet.plugins.user_files import describe_failure, import_file


def load_factory(source: Path, factory: str, image_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Call a function in a user's file that builds a network.

    Args:
        source: The Python file.
        factory: The name of the function. It may take ``image_shape`` and ``classes``, or nothing.
        image_shape: The shape of one image.
        classes: The number of classes.

    Returns:
        The network that the function returns.

    Raises:
        UserError: The file or the function is missing, fails, or returns no ``nn.Module``.
    """
    if not source.is_file():
        raise UserError(f"there is no file {source}: --model takes M1, …, C3 or file.py:factory")
    module = import_file(source)
    functions = {name: value for name, value in vars(module).items() if callable(value) and not name.startswith("_")}
    if factory not in functions:
        raise UnknownNameError(f"factory in {source.name}", factory, functions)
    return _call(functions[factory], source, {"image_shape": image_shape, "classes": classes})


def _call(factory: Any, source: Path, offered: dict[str, Any]) -> nn.Module:
    name = f"{source.name}:{factory.__name__}"
    parameters = inspect.signature(factory).parameters
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    needed = [key for key, value in parameters.items() if value.default is value.empty and value.kind in by_position]
    unknown = sorted(set(needed) - set(offered))
    if unknown:
        raise UserError(f"{name} wants {', '.join(unknown)}; a factory may take image_shape and classes, or nothing")
    try:
        network = factory(**{key: value for key, value in offered.items() if key in parameters})
    except (Exception, SystemExit) as error:  # the user's function may fail in any way
        raise UserError(f"{name} failed: {describe_failure(error, source)}") from error
    if not isinstance(network, nn.Module):
        raise UserError(f"{name} returned {type(network).__name__}, not an nn.Module")
    return network
