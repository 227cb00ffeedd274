"""Read and write text, TOML and JSON files, and the records (frozen dataclasses) that they hold.

Every write is atomic: a reader sees either the old file or the new one, never half of one.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import json
import os
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import tomli_w
from filelock import FileLock, Timeout

from steadynet.errors import UserError
from steadynet.plugins import fits, requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEMPORARY = ".tmp"
LOCK = ".lock"
PATIENCE = 60.0  # seconds to wait for another process that is writing the same file
Record = TypeVar("Record")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file.

    Raises:
        UserError: The file cannot be read or is not valid TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}") from error


def write_toml(path: Path, content: Mapping[str, Any]) -> None:
    """Write a TOML file atomically."""
    write_text(path, tomli_w.dumps(content))


def read_json(path: Path) -> Any:
    """Read a JSON file that steadynet wrote.

    Raises:
        UserError: The file cannot be read or is not valid JSON.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{path} is damaged: move it away, and it will be written again") from error


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_record(path: Path, record: Any) -> None:
    """Write a dataclass as a JSON file, atomically; :func:`read_record` reads it."""
    write_json(path, dataclasses.asdict(record))


def read_record(path: Path, kind: type[Record]) -> Record:
    """Read a JSON file that steadynet wrote into a record.

    Args:
        path: The file.
        kind: The dataclass that the file holds.

    Raises:
        UserError: The file is not valid JSON, or its content does not fit the record.
    """
    content = read_json(path)
    try:
        return record_from(kind, content)
    except ValueError as error:
        raise UserError(f"{path} is damaged ({error}): move it away, and it will be written again") from error


def record_from(kind: type[Record], content: object, place: str = "") -> Record:
    """Build a dataclass from parsed JSON or TOML, and check every field against its annotation.

    Annotations may be plain types, ``Literal``, ``X | None``, ``tuple[X, ...]`` (a list in the file),
    ``Mapping[str, X]`` and other dataclasses. A field with a default may be missing.

    Args:
        kind: The dataclass to build.
        content: The parsed object: a dictionary with one entry per field.
        place: Where the object lies in the file, for error messages.

    Raises:
        ValueError: A field is missing, unknown or of another type. The message names it.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Point:
    ...     x: float
    ...     tags: tuple[str, ...] = ()
    >>> record_from(Point, {"x": 1, "tags": ["a", "b"]})
    Point(x=1, tags=('a', 'b'))
    >>> record_from(Point, {"x": "far"})
    Traceback (most recent call last):
    ...
    ValueError: x = 'far' must be a number
    """
    if not isinstance(content, dict):
        raise ValueError(f"{place or 'the content'} is not an object")
    hints = _type_hints(typing.cast(Any, kind))
    fields = {field.name: field for field in dataclasses.fields(typing.cast(Any, kind))}
    unknown = [key for key in content if key not in fields]
    if unknown:
        raise ValueError(f"unknown key {_joined(place, unknown[0])}")
    for name, field in fields.items():
        required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if required and name not in content:
            raise ValueError(f"it has no {_joined(place, name)}")
    return kind(**{name: _value_from(hints[name], value, _joined(place, name)) for name, value in content.items()})


@functools.cache
def _type_hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _joined(place: str, name: object) -> str:
    return f"{place}.{name}" if place else str(name)


def _value_from(hint: Any, value: Any, place: str) -> Any:
    """Convert one parsed value to the type of its annotation."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType) and value is not None:
        others = [argument for argument in arguments if argument is not types.NoneType]
        hint = others[0] if len(others) == 1 else hint
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return record_from(typing.cast(Any, hint), value, place)
    if origin is tuple and isinstance(value, list):
        return tuple(_value_from(arguments[0], part, f"{place}[{index}]") for index, part in enumerate(value))
    if origin in (dict, Mapping) and isinstance(value, dict):
        return {key: _value_from(arguments[1], part, _joined(place, key)) for key, part in value.items()}
    if origin in (dict, Mapping) or (hint is not Any and not fits(value, hint)):
        raise ValueError(f"{place} = {value!r} {requirement(hint)}")
    return value


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """Call ``write`` with a temporary path next to ``path``, then move the temporary file to ``path``.

    A reader sees either the old file or the new one, also if this process is killed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}{TEMPORARY}")
    with disk_errors(path):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write(temporary)
            with temporary.open("rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def append_line(path: Path, line: str, to_disk: bool = True) -> None:
    """Append one line to a file in a single write.

    If the process is killed meanwhile, the file ends with the whole line or with a part that has no line end.

    Args:
        path: The file.
        line: The line, without its line end.
        to_disk: Whether to wait until the line is on the disk, where a power cut cannot lose it.
    """
    with disk_errors(path), path.open("ab", buffering=0) as file:
        content = f"{line}\n".encode()
        if file.write(content) != len(content):  # a full disk takes a part before it complains
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if to_disk:
            os.fsync(file.fileno())


@contextmanager
def locked_file(path: Path) -> Iterator[None]:
    """Keep other processes that lock the same file from changing it inside a ``with`` block.

    The lock is a file of its own, ``.NAME.lock``. It is free again when the process ends, also if it is killed.

    Raises:
        UserError: Another process has held the lock for a minute, or the lock cannot be written.
    """
    lock = FileLock(path.with_name(f".{path.name}{LOCK}"))
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(timeout=PATIENCE, poll_interval=0.01)
        except Timeout as error:
            raise UserError(
                f"another process has kept {path} locked for {PATIENCE:g} s: end that process, then try again"
            ) from error
    try:
        yield
    finally:
        lock.release()


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn an operating system error while writing ``path`` into a one-line ``UserError`` that names the file."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; what was there before is untouched"
        ) from error
