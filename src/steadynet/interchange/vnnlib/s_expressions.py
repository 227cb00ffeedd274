"""S-expressions: the brackets of VNN-LIB, read with limits, since files may come from anyone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadynet.errors import UserError

Expression = str | list["Expression"]

# brackets, a word with its indices (VNN-LIB 2.0), a string, a word, a square bracket out of place, a comment
_TOKEN = re.compile(r'[()]|[^\s();"\[\]]+\s*\[[\d\s,]*\]|"[^"]*"|[^\s();\[\]]+|[\[\]]|;[^\n]*')
DEEPEST = 64
MOST_WORDS = 10_000_000  # brackets and comments, too


def read_expressions(text: str) -> list[Expression]:
    """The top-level expressions of a text; comments run from ; to the end of the line.

    >>> read_expressions("(assert (<= X_0 0.5)) ; a bound")
    [['assert', ['<=', 'X_0', '0.5']]]
    >>> read_expressions("(<= X [0, 1] Y[2])")
    [['<=', 'X [0, 1]', 'Y[2]']]
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


def first_word(text: str) -> str:
    """What the first statement of a text is called, before anything else of it is read.

    >>> first_word("; comment (not this) \\n (assert (<= X_0 0.5)")
    'assert'
    """
    tokens = _tokens(text)
    return next(tokens, "") if next(tokens, "") == "(" else ""


def shown(expression: Expression) -> str:
    """The beginning of an expression, for an error message of one line."""
    text = expression if isinstance(expression, str) else "(" + " ".join(map(shown, expression[:4])) + ")"
    text = "".join(letter if letter.isprintable() else "?" for letter in text[:61])
    return text if len(text) <= 60 else text[:60] + "…"


def _tokens(text: str) -> Iterator[str]:
    for count, found in enumerate(_TOKEN.finditer(text)):
        if count >= MOST_WORDS:
            raise UserError(f"there are more than {MOST_WORDS} words")
        if not found[0].startswith(";"):
            yield found[0]
