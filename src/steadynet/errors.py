"""What goes wrong through no fault of the program: one clear line, exit code 2, no traceback."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A mistake the user can mend: its text is one line that says what is wrong and what would be right."""


class UnknownNameError(UserError):
    """A name that is not in a list, with the nearest right one.

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
    """What an exception says, on one line.

    >>> one_line(OSError("<urlopen error\\n timed out>")), one_line(EOFError())
    ('urlopen error timed out', 'EOFError')
    """
    said = getattr(error, "strerror", None) or str(error)
    return " ".join(said.split()).strip("<>")[:300] or type(error).__name__
