"""Functions and classes in a user's own Python file, given as ``file.py:name``."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from steadynet.errors import UnknownNameError, UserError, one_line
from steadynet.plugins.requirements import UnusableError, check_plugin

T = TypeVar("T")


def split_reference(text: str) -> tuple[Path, str] | None:
    """Split ``file.py:name`` into the file and the name in it; return None for any other text.

    >>> path, name = split_reference("folder/mine.py:Smoothing")
    >>> path.as_posix(), name, split_reference("nbc")
    ('folder/mine.py', 'Smoothing', None)
    """
    path, colon, name = text.rpartition(":")
    return (Path(path), name) if colon and path.endswith(".py") else None


def load_class(source: Path, name: str, base: type[T], kind: str) -> type[T]:
    """Load the class of a plug-in from a user's file.

    A file with the same content is imported once per process.

    Args:
        source: The Python file.
        name: The name of the class.
        base: The class that it must derive from.
        kind: What the class is, such as "method"; for the error messages.

    Returns:
        The class.

    Raises:
        UserError: The file is missing or fails, or the class is missing or no usable plug-in.
    """
    if not source.is_file():
        raise UserError(f"there is no file {source}: a {kind} is a name (steadynet list {kind}s) or file.py:Class")
    module = sys.modules.get(_module_name(source)) or import_file(source)
    classes = {key: value for key, value in vars(module).items() if _is_own(value, module)}
    if name not in classes:
        if not classes:
            raise UserError(f"{source} has no class '{name}': it defines no class at all")
        raise UnknownNameError(f"class in {source.name}", name, classes)
    try:
        return check_plugin(classes[name], base, f"{source.name}:{name}")
    except UnusableError as error:
        raise UserError(f"{source}: {error}") from error


def _is_own(value: Any, module: ModuleType) -> bool:
    return inspect.isclass(value) and value.__module__ == module.__name__


def _module_name(source: Path) -> str:
    """Return the name under which a file is imported. It says what the content is, not where the file is."""
    try:
        content = source.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {source}: {one_line(error)}") from error
    return f"steadynet_user_file_{hashlib.sha256(content).hexdigest()[:32]}"


def import_file(source: Path) -> ModuleType:
    """Import a user's file, also if it was imported before.

    Raises:
        UserError: The file cannot be imported. The message has the line that failed.
    """
    spec = importlib.util.spec_from_file_location(_module_name(source), source)
    if spec is None or spec.loader is None:
        raise UserError(f"{source} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass in the file looks for its module here
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's file may fail in any way
        del sys.modules[spec.name]
        raise UserError(f"{source} cannot be imported: {describe_failure(error, source)}") from error
    return module


def describe_failure(error: BaseException, source: Path) -> str:
    """Describe an error, with the line of the user's file that raised it."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename).resolve() == source.resolve()]
    return f"{type(error).__name__}: {one_line(error)}" + (f" (line {lines[-1]})" if lines else "")
