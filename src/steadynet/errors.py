"""Errors that a user can correct. The command line shows them as one line, without a traceback, with exit code 2."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake that the user can correct. The message is one line: what is wrong, where, and what to do."""


class NotFiniteError(UserError):
    """A training whose loss or weights are no longer finite numbers."""


class UnknownNameError(UserError):
    """A name that does not exist; the message suggests the nearest one that does.

    Args:
        kind: What the name stands for.
        name: The name.
        known: All names that exist.

    >>> print(UnknownNameError("data set", "mnits", ["mnist", "cifar10"]))
    unknown data set 'mnits': did you mean 'mnist'? There are cifar10, mnist.
    """

    def __init__(self, kind: str, name: str, known: Iterable[str]) -> None:
        choices = sorted(known)
        by_lower_case = {choice.lower(): choice for choice in choices}
        near = difflib.get_close_matches(name.lower(), by_lower_case, n=1)
        hint = f": did you mean '{by_lower_case[near[0]]}'? There are" if near else ": there are"
        super().__init__(f"unknown {kind} '{name}'{hint} {', '.join(choices)}.")


def one_line(error: BaseException) -> str:
    """Return the message of an exception on one line, or its type if it has no message.

    >>> one_line(OSError("<urlopen error\\n timed out>")), one_line(EOFError())
    ('urlopen error timed out', 'EOFError')
    """
    said = getattr(error, "strerror", None) or str(error)
    return " ".join(said.split()).strip("<>")[:300] or type(error).__name__
