"""Sweeps: one method of a grid file that stands for several, one per value of a setting and per accuracy window."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from steadynet import objectives
from steadynet.errors import UserError
from steadynet.experiments.grid_tables import MethodTable
from steadynet.experiments.scales import laid_over
from steadynet.experiments.strength_search import AccuracyWindow
from steadynet.experiments.variants import Value, Variant, as_value, label_of
from steadynet.plugins import make

Parts = Mapping[str, Mapping[str, Any]]  # settings of the parts of a method


def expand(methods: Mapping[str, MethodTable], place: str) -> dict[str, MethodTable]:
    """Replace each method with a sweep, or with several accuracy windows, by its variants.

    The first window of all methods comes before the second one of any.

    >>> list(expand({"nbc": MethodTable(sweep={"nbc": {"beta": (0.0, 3.0)}})}, "mine.toml"))
    ['beta=0', 'beta=3']
    >>> list(expand({"rs": MethodTable(drop=[[1, 2], [6, 7]]), "nbc": MethodTable(drop=[[1, 2], [6, 7]])}, "mine.toml"))
    ['rs@1-2', 'nbc@1-2', 'rs@6-7', 'nbc@6-7']

    Raises:
        UserError: A window or a value is not valid, or two variants would have the same name.
    """
    several_sweeps = sum(bool(table.sweep) for table in methods.values()) > 1
    found: list[tuple[int, str, MethodTable]] = []
    for name, table in methods.items():
        found += _variants(name, table, f"{place} [methods.{name}]", several_sweeps)
    result: dict[str, MethodTable] = {}
    for _, name, table in sorted(found, key=lambda entry: entry[0]):
        if name in result:
            raise UserError(f"{place}: two methods are called {name}")
        result[name] = table
    return result


def _variants(
    name: str, table: MethodTable, place: str, several_sweeps: bool
) -> Iterator[tuple[int, str, MethodTable]]:
    """Yield the variants of a method: the number of its window, its name and its table."""
    is_list = isinstance(table.drop, list | tuple) and bool(table.drop) and isinstance(table.drop[0], list | tuple)
    if not table.sweep and not is_list:
        window_of(table, place)
        yield 0, name, table
        return
    for number, drop in enumerate(table.drop if is_list else [table.drop]):
        for swept in _combinations(table.sweep, place):
            variant = replace(
                table,
                method=_method_of(name, table),
                phases=table.phases or name,
                drop=drop,
                parts=laid_over(table.parts, swept),
                sweep={},
            )
            label = label_of(name, _flat(swept), window_of(variant, place))
            yield number, f"{name} {label}" if several_sweeps and table.sweep else label, variant


def _combinations(sweep: Mapping[str, Mapping[str, tuple[Any, ...]]], place: str) -> Iterator[Parts]:
    axes = [(part, name, values) for part, table in sweep.items() for name, values in table.items()]
    for part, name, values in axes:
        for value in values:
            make(objectives.named(part, kind=f"method in {place} sweep"), {name: value})
    for chosen in itertools.product(*(values for _, _, values in axes)):
        parts: dict[str, dict[str, Any]] = {}
        for (part, name, _), value in zip(axes, chosen, strict=True):
            parts.setdefault(part, {})[name] = value
        yield parts


def window_of(table: MethodTable, place: str) -> AccuracyWindow | None:
    """Return the accuracy window of a method; None if it is not tuned.

    Raises:
        UserError: ``drop`` is not two numbers.
    """
    drop = table.drop
    if drop is None:
        return None
    is_pair = isinstance(drop, list | tuple) and len(drop) == 2
    if not is_pair or not all(isinstance(bound, int | float) for bound in drop):
        raise UserError(f"{place}: drop is two numbers, the least and the most: [1, 2]; or several such pairs")
    try:
        return AccuracyWindow(*drop)
    except UserError as error:
        raise UserError(f"{place}: {error}") from error


def variant_of(name: str, table: MethodTable, place: str) -> Variant:
    """Return the variant that an expanded method is."""
    return Variant(name, _method_of(name, table), _flat(table.parts), window_of(table, place))


def _method_of(name: str, table: MethodTable) -> str:
    """Return the method that a table trains: what it says, else its only phase, else its name."""
    if table.method:
        return table.method
    phases = (table.phases or name).split()
    return phases[0].partition(":")[0] if len(phases) == 1 else name


def _flat(parts: Parts) -> dict[str, Value]:
    """Return the settings of all parts by name. If two parts have different values, the name of the part is added.

    >>> _flat({"nbc": {"beta": 2.0, "steps": 5}, "madry": {"steps": 5}})
    {'beta': 2.0, 'steps': 5}
    >>> _flat({"nbc": {"steps": 5}, "madry": {"steps": 9}})
    {'nbc.steps': 5, 'madry.steps': 9}
    """
    entries = [(part, name, value) for part, table in parts.items() for name, value in table.items()]
    values: dict[str, list[Value]] = {}
    for _, name, value in entries:
        values.setdefault(name, []).append(value)
    return {
        name if all(other == value for other in values[name]) else f"{part}.{name}": as_value(value)
        for part, name, value in entries
    }
