"""Variants of methods: a method with the settings and the accuracy window that a grid trains it with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from steadynet.experiments.strength_search import AccuracyWindow

Value = str | float | bool | tuple[float, ...]
VariantKey = tuple[str, tuple[tuple[str, Value], ...], AccuracyWindow | None]


@dataclass(frozen=True)
class Variant:
    """A method as one column of a table.

    ``label`` is its name in tables, which is unique in a grid. ``method`` is the training method, such as ``nbc`` or
    ``rs+nbc``. ``settings`` are the settings of the method that the grid gives to this variant alone, and ``window``
    is the accuracy window that it is tuned to.
    """

    label: str
    method: str
    settings: Mapping[str, Value] = field(default_factory=dict)
    window: AccuracyWindow | None = None

    @classmethod
    def plain(cls, method: str) -> Variant:
        """Return a method without settings of its own."""
        return cls(method, method)

    @property
    def key(self) -> VariantKey:
        """Everything but the label, to compare variants of different grids."""
        return self.method, tuple(sorted(self.settings.items())), self.window


def label_of(method: str, settings: Mapping[str, Value], window: AccuracyWindow | None) -> str:
    """Return the name of a variant in tables: its settings, or its method if it has none, and its window.

    >>> label_of("nbc", {"beta": 3.0}, None), label_of("rs+nbc", {}, AccuracyWindow(1, 2))
    ('beta=3', 'rs+nbc@1-2')
    """
    window_text = f"@{window.low:g}-{window.high:g}" if window else ""
    return (settings_text(settings) or method) + window_text


def as_value(value: Any) -> Value:
    """Return the value of a setting as TOML or JSON holds it, with a tuple in place of a list."""
    return tuple(value) if isinstance(value, list) else value


def settings_text(settings: Mapping[str, Value]) -> str:
    """Return settings as text.

    >>> settings_text({"beta": 3.0, "gamma": "one"})
    'beta=3 gamma=one'
    """
    return " ".join(f"{name}={_text(value)}" for name, value in settings.items())


def _text(value: Value) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def settings_from_text(text: str) -> dict[str, Value]:
    """Read settings from the text that :func:`settings_text` returns.

    >>> settings_from_text("beta=3 gamma=one")
    {'beta': 3.0, 'gamma': 'one'}
    """
    pairs = [part.partition("=") for part in text.split()]
    return {name: _value(value) for name, _, value in pairs}


def _value(text: str) -> Value:
    try:
        return float(text)
    except ValueError:
        return text
