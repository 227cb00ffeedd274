"""Equations become MathML when the site is built, so that a page needs no script for them."""

from __future__ import annotations

import html
import re
from typing import Any

from latex2mathml.converter import convert

_EQUATION = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


def on_page_content(content: str, **_: Any) -> str:
    r"""The page with each equation that pymdownx.arithmatex found, ``$…$`` or ``$$…$$``, as MathML.

    >>> on_page_content('<span class="arithmatex">\\(x\\)</span>')
    '<math xmlns="http://www.w3.org/1998/Math/MathML" display="inline"><mrow><mi>x</mi></mrow></math>'
    """
    return _EQUATION.sub(_as_mathml, content)


def _as_mathml(found: re.Match[str]) -> str:
    tag, _, latex = found.groups()
    mathml = convert(html.unescape(latex).strip(), display="block" if tag == "div" else "inline")
    return f'<div class="equation">{mathml}</div>' if tag == "div" else mathml
