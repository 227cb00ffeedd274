"""The files of an experiment's table: ``table.json`` for programs and ``table.csv`` for spreadsheets."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from steadynet.errors import UserError
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.table import TableRow
from steadynet.experiments.variants import Variant, as_value, settings_text
from steadynet.files import read_json, record_from, write_json, write_text

_VARIANT = ("label", "method", "settings", "window")
COLUMNS = (
    *("experiment", "dataset", "model", "label", "method", "settings", "window_low", "window_high", "seed", "metric"),
    *("eps", "value", "numerator", "denominator", "paper_value", "run", "note"),
)


def write_table(experiment: ExperimentDirectory, rows: Sequence[TableRow]) -> None:
    """Write both files, which hold the same rows."""
    write_json(experiment.table_json, [_as_json(row) for row in rows])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(["" if value is None else value for value in _as_csv(row).values()] for row in rows)
    write_text(experiment.table_csv, text.getvalue())


def _as_json(row: TableRow) -> dict[str, Any]:
    """Return a row with the fields of its variant in place of the variant."""
    window = row.variant.window
    variant = {
        "label": row.variant.label,
        "method": row.variant.method,
        "settings": dict(row.variant.settings),
        "window": [window.low, window.high] if window else None,
    }
    content: dict[str, Any] = {}
    for entry in fields(row):
        content |= variant if entry.name == "variant" else {entry.name: getattr(row, entry.name)}
    return content


def _as_csv(row: TableRow) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for name, value in _as_json(row).items():
        if name == "settings":
            content["settings"] = settings_text(value)
        elif name == "window":
            content["window_low"], content["window_high"] = value or (None, None)
        else:
            content[name] = value
    return content


def read_table(experiment: ExperimentDirectory, variants: Mapping[str, Variant]) -> list[TableRow] | None:
    """Read ``table.json``.

    Args:
        experiment: The directory.
        variants: The variants of its grid by label. A table that an older version wrote names the label only.

    Returns:
        The rows, or None if there is no file.

    Raises:
        UserError: The file is damaged.
    """
    path = experiment.table_json
    if not path.is_file():
        return None
    content = read_json(path)
    try:
        return [_from_json(row, variants) for row in content]
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{path} is damaged ({error}): steadynet reproduce writes it again") from error


def _from_json(content: Mapping[str, Any], variants: Mapping[str, Variant]) -> TableRow:
    variant = {key: content[key] for key in _VARIANT if key in content}
    if "label" not in variant:
        label = variant["method"]
        known = variants.get(label, Variant.plain(label))
        variant = {"label": label, "method": known.method, "settings": dict(known.settings)}
        variant["window"] = [known.window.low, known.window.high] if known.window else None
    variant["settings"] = {name: as_value(value) for name, value in variant["settings"].items()}
    window = variant.pop("window")
    if window:
        variant["window"] = {"low": window[0], "high": window[1]}
    others = {key: value for key, value in content.items() if key not in _VARIANT}
    return record_from(TableRow, others | {"variant": variant})
