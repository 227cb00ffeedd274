"""S-expressions, the bracket syntax of VNN-LIB; parsed within limits, since files may come from anyone."""

from __future__ import annotations

import re
from collections.abc import Iterator

from steadynet.errors import UserError

Expression = str | list["Expression"]

MAX_DEPTH = 64
MAX_TOKENS = 10_000_000  # words, brackets and comments
# a bracket, a word with indices (VNN-LIB 2.0), a string, a word, a square bracket in the wrong place, a comment
_TOKEN = re.compile(r'[()]|[^\s();"\[\]]+\s*\[[\d\s,]*\]|"[^"]*"|[^\s();\[\]]+|[\[\]]|;[^\n\r]*')


def parse_expressions(text: str) -> list[Expression]:
    """Parse the top-level expressions of a text; a comment runs from ; to the end of the line.

    >>> parse_expressions("(assert (<= X_0 0.5)) ; a bound")
    [['assert', ['<=', 'X_0', '0.5']]]
    >>> parse_expressions("(<= X [0, 1] Y[2])")
    [['<=', 'X [0, 1]', 'Y[2]']]
    """
    result: list[Expression] = []
    open_lists: list[list[Expression]] = [result]
    for token in _tokens(text):
        if token == "(":
            if len(open_lists) > MAX_DEPTH:
                raise UserError(f"brackets are nested deeper than {MAX_DEPTH}")
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


def first_keyword(text: str) -> str:
    """Return the keyword of the first statement without parsing the rest; empty if there is no statement.

    >>> first_keyword("; comment (not this) \\n (assert (<= X_0 0.5)")
    'assert'
    """
    tokens = _tokens(text)
    return next(tokens, "") if next(tokens, "") == "(" else ""


def excerpt(expression: Expression) -> str:
    """Return the beginning of an expression, for an error message of one line."""
    text = expression if isinstance(expression, str) else "(" + " ".join(map(excerpt, expression[:4])) + ")"
    text = "".join(letter if letter.isprintable() else "?" for letter in text[:61])
    return text if len(text) <= 60 else text[:60] + "…"


def _tokens(text: str) -> Iterator[str]:
    """Iterate over the tokens of a text, without comments."""
    for count, found in enumerate(_TOKEN.finditer(text)):
        if count >= MAX_TOKENS:
            raise UserError(f"there are more than {MAX_TOKENS} words")
        if not found[0].startswith(";"):
            yield found[0]
