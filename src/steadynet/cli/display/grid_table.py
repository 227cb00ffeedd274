"""The table of an experiment in a terminal: our numbers beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence

from steadynet.cli.display.tables import heading, table
from steadynet.cli.display.terminal import console
from steadynet.experiments.table import DELTA, MISSED, Summary, TableRow, summarised
from steadynet.report.metrics import metric_named
from steadynet.training.notation import written_radius

COUNT = "n_unsat"
HIDDEN = ("n_sat", "n_timeout", "n_unknown", "n_error")  # metrics that only the files have
NAMES_WIDTH, CELL_WIDTH = 24, 14  # characters


def show_table(title: str, rows: Sequence[TableRow]) -> None:
    """Print tables for each model: one line per metric and radius, one column per method.

    The values of a method come first, then its differences to the method that it is compared with. The paper's number
    stands in parentheses.
    """
    if not rows:
        heading(f"{title}: nothing is done yet")
    shown = [row for row in rows if row.metric not in HIDDEN]
    if all(row.paper_value is None for row in rows if row.metric == COUNT):
        shown = [row for row in shown if row.metric != COUNT]
    for model in dict.fromkeys(row.model for row in rows):
        own = [row for row in shown if row.model == model]
        data = ", ".join(dict.fromkeys(row.dataset for row in own))
        for is_delta in (False, True):
            part = [row for row in own if row.metric.endswith(DELTA) == is_delta]
            if not is_delta or any(row.value is not None for row in part):  # there may be nothing to compare with
                _show_part(f"{title}: {model} on {data}{_remarks(part, is_delta)}", part)
    for model, label in dict.fromkeys((row.model, row.label) for row in rows if row.note == MISSED):
        console.print(f"{model} by {label}: {MISSED}", soft_wrap=True)


def _remarks(rows: Sequence[TableRow], is_delta: bool) -> str:
    """Return what the title of a table says about its numbers."""
    remarks = ["differences"] if is_delta else []
    remarks += ["ours (the paper's)"] if any(row.paper_value is not None for row in rows) else []
    remarks += ["mean ± standard deviation over the seeds"] if len({row.seed for row in rows}) > 1 else []
    return "".join(f", {remark}" for remark in remarks)


def _show_part(title: str, rows: Sequence[TableRow]) -> None:
    """Print one table, or several if the terminal is too narrow for all methods."""
    numbers, labels = summarised(rows), list(dict.fromkeys(row.label for row in rows))
    columns = max(1, (console.width - NAMES_WIDTH) // CELL_WIDTH)
    lines = list(dict.fromkeys((row.metric, row.eps, row.model) for row in sorted(rows, key=_order)))
    for start in range(0, len(labels), columns):
        part = labels[start : start + columns]
        cells = []
        for metric, eps, model in lines:
            found = [_number(numbers.get((model, label, metric, eps)), metric) for label in part]
            cells.append([_radius(eps), _label(metric), *found])
        table(title, ["ε", "", *part], cells)


def _order(row: TableRow) -> tuple[bool, float]:
    return row.metric.endswith(DELTA), row.eps or 0.0


def _radius(eps: float | None) -> str:
    """Write a radius as the paper does.

    >>> [_radius(eps) for eps in (None, 0.1, 2 / 255)]
    ['', '0.1', '2/255']
    """
    return "" if eps is None else written_radius(eps)


def _label(metric: str) -> str:
    """Return the name of a metric in the table.

    >>> [_label(metric) for metric in ("n_unsat", "pgd100_percent", "time_s_delta")]
    ['#UNSAT', 'PGD-100 %', 'Δ Time (s)']
    """
    plain = metric.removesuffix(DELTA)
    label = "#UNSAT" if plain == COUNT else metric_named(plain).label
    return f"Δ {label}" if plain != metric else label


def _number(summary: Summary | None, metric: str) -> str:
    """Write a number with its spread over the seeds and the paper's number."""
    if summary is None:
        return ""
    size = abs(summary.mean or 0.0)
    digits = 1 if size >= 1 else 2 if size >= 0.1 or not size else 3
    if metric.startswith(COUNT) and summary.spread is None:
        digits = 0
    ours = "–" if summary.mean is None else f"{summary.mean:.{digits}f}"
    spread = "" if summary.spread is None else f"±{summary.spread:.{digits}f}"
    paper = "" if summary.paper_value is None else f" ({summary.paper_value:g})"
    return f"{ours}{spread}{paper}"
