"""Files written whole or not at all: text, TOML and JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tomli_w

from steadynet.errors import UserError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEMPORARY = ".tmp"


def read_toml(path: Path) -> dict[str, Any]:
    """A TOML file; what is wrong with it is said in one line."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from error
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{path} is not valid TOML: {error}") from error


def write_toml(path: Path, content: Mapping[str, Any]) -> None:
    """A TOML file, written whole or not at all."""
    write_text(path, tomli_w.dumps(content))


def read_json(path: Path) -> Any:
    """What a JSON file of ours holds; an error that says what to do if it is damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is damaged: move it away, and it is made anew") from error


def write_json(path: Path, content: Any) -> None:
    """A JSON file, written whole or not at all."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """A text file, written whole or not at all."""
    write_atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def write_atomically(path: Path, write: Callable[[Path], Any]) -> None:
    """``write`` a temporary file beside ``path``, then put it in its place: readers see the old file or the new one."""
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
    """A line at the end of a file, in one write: a reader, or a kill, sees it whole or without its line end.

    ``to_disk`` waits until it is safe from a power cut, too.
    """
    with disk_errors(path), path.open("ab", buffering=0) as file:
        file.write(f"{line}\n".encode())
        if to_disk:
            os.fsync(file.fileno())


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """A full disk, a missing right, a folder in the way: one line that names the file."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot write {path}: {error.strerror or error}; what was there before is untouched"
        ) from error
