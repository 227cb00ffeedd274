"""A verifier, made again from what ``verdicts.csv`` says of it; and its settings as a user types them."""

from __future__ import annotations

import re
import types
import typing
from typing import Any

from steadynet.errors import UserError
from steadynet.plugins import Setting, describe_value, make, settings_of
from steadynet.verification.verifiers import Verifier, named


def stored_verifier(name: str, line: str, timeout: float) -> Verifier:
    """Make the verifier that decided a row of ``verdicts.csv``.

    Args:
        name: The name of the verifier.
        line: Its settings, as :meth:`Verifier.settings_line` wrote them.
        timeout: Its time-out in seconds.

    Raises:
        UserError: There is no such verifier, or this version of it has other settings.

    >>> verifier = stored_verifier("milp", "", 5.0)
    Traceback (most recent call last):
    ...
    steadynet.errors.UserError: this version of milp has other settings than its stored verdicts...
    >>> from steadynet.verification.verifiers import make_verifier
    >>> given = make_verifier("branch_and_bound", {"restarts": 7, "condense": False, "timeout": 5.0})
    >>> stored_verifier("branch_and_bound", given.settings_line(), 5.0) == given
    True
    """
    kind = named(name)
    known = {entry.name: entry for entry in settings_of(kind) if entry.name != "timeout"}
    starts = "|".join(map(re.escape, known))
    parts = re.split(rf"(?:^| )({starts})=", line)[1:] if known else []
    try:
        values = {key: _value(text, known[key]) for key, text in zip(parts[::2], parts[1::2], strict=True)}
        verifier = make(kind, values | {"timeout": timeout})
    except ValueError as error:
        raise _differs(name) from error
    if verifier.settings_line() != line:
        raise _differs(name)
    return verifier


def _differs(name: str) -> UserError:
    return UserError(f"this version of {name} has other settings than its stored verdicts: run steadynet verify again")


def _value(text: str, entry: Setting) -> Any:
    """Read the value of a setting as :func:`~steadynet.plugins.describe_value` wrote it."""
    if text == describe_value(entry.default):
        return entry.default
    is_union = typing.get_origin(entry.type) in (typing.Union, types.UnionType)
    for hint in typing.get_args(entry.type) if is_union else (entry.type,):
        try:
            return _read(text, hint)
        except (ValueError, TypeError, KeyError):
            continue
    raise ValueError(f"{entry.name} = {text}")


def _read(text: str, hint: Any) -> Any:
    if hint is type(None):
        return {describe_value(None): None}[text]
    if hint is bool:
        return {describe_value(True): True, describe_value(False): False}[text]
    if typing.get_origin(hint) is typing.Literal:
        return {str(choice): choice for choice in typing.get_args(hint)}[text]
    if typing.get_origin(hint) is tuple:
        kind = typing.get_args(hint)[0]
        return tuple(kind(part) for part in text.split(","))
    return hint(text)


def settings_as_flags(verifier: Verifier) -> list[str]:
    """Return the settings of a verifier that are not the default, without its time-out, as flags of the command line.

    >>> from steadynet.verification.verifiers import make_verifier
    >>> settings_as_flags(make_verifier("branch_and_bound", {"restarts": 7, "condense": False}))
    ['--restarts', '7', '--no-condense']
    """
    words: list[str] = []
    for entry in settings_of(type(verifier)):
        value, name = getattr(verifier, entry.name), entry.name.replace("_", "-")
        if entry.name == "timeout" or value == entry.default or value is None:
            continue
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        else:
            words += [f"--{name}", as_typed(value)]
    return words


def as_typed(value: Any) -> str:
    """Write a number, a text or a tuple of them as a user types it, with all its digits.

    >>> as_typed(2.0), as_typed(8 / 255), as_typed((1.0, 0.5))
    ('2', '0.03137254901960784', '1,0.5')
    """
    if isinstance(value, tuple):
        return ",".join(map(as_typed, value))
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)
