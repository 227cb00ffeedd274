"""S-expressions: the brackets of VNN-LIB, read with limits, since files may come from anyone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadynet.errors import UserError

Expression = str | list["Expression"]

_TOKEN = re.compile(r"[()]|[^\s();]+|;[^\n]*")
DEEPEST = 64


def read_expressions(text: str) -> list[Expression]:
    """The top-level expressions of a text; comments run from ; to the end of the line.

    >>> read_expressions("(assert (<= X_0 0.5)) ; a bound")
    [['assert', ['<=', 'X_0', '0.5']]]
    """
    result: list[Expression] = []
    open_lists: list[list[Expression]] = [result]
    for token in _tokens(text):
        if token == "(":
            if len(open_lists) > DEEPEST:
                raise UserError(f"brackets are nested deeper than {DEEPEST}")
            inner: list[Expression] = []
            open_lists[-1].append(inner)
            open_lists.append(inner)
        elif token == ")":
            if len(open_lists) == 1:
                raise UserError("a bracket is closed that was never opened")
            open_lists.pop()
        else:
            open_lists[-1].append(token)
    if len(open_lists) > 1:
        raise UserError("a bracket is never closed")
    return result


def _tokens(text: str) -> Iterator[str]:
    return (token for token in _TOKEN.findall(text) if not token.startswith(";"))
