"""What the reference shows of our docstrings: doctests as code, and of a setting its default and its line of help."""

from __future__ import annotations

import ast
import re
from typing import Any

from griffe import Attribute, Docstring, ExprCall, Extension, Object

_DOCTEST = re.compile(r"^>>> .*?(?=\n\s*\n(?!>>>)|\Z)", re.DOTALL | re.MULTILINE)
_ROLE = re.compile(r":\w+:`([^`]+)`")


def as_markdown(text: str) -> str:
    r"""A docstring as Markdown.

    >>> as_markdown("One.\n\n>>> 1 + 1\n2\n\nTwo.")
    'One.\n\n```pycon\n>>> 1 + 1\n2\n```\n\nTwo.'
    """
    text = _DOCTEST.sub(lambda found: f"```pycon\n{found.group()}\n```", text)
    return _ROLE.sub(r"`\1`", text)


class SteadynetDocstrings(Extension):
    """Called by mkdocstrings for every object that it documents."""

    def on_instance(self, *, obj: Object, **_: Any) -> None:
        """Rewrite its docstring."""
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)

    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        """``field: type = setting(default, "help")``: the default is its value, the help its docstring."""
        value = attr.value
        if not isinstance(value, ExprCall) or str(value.function) != "setting" or attr.docstring is not None:
            return
        default, help_text = value.arguments
        attr.docstring = Docstring(str(ast.literal_eval(str(help_text))), parent=attr)
        attr.value = default
