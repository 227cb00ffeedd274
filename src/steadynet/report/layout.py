"""A table in the paper's layout: columns are models and methods, lines are radii and metrics, paper beside ours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from steadynet.experiments.table import DELTA, Summary, TableRow, summarised
from steadynet.report.collect import Experiment
from steadynet.report.metrics import Metric, is_shown, metric, place


@dataclass(frozen=True)
class Cell:
    """Ours and the paper's number; ``count`` of ``of`` are summed over the seeds, ``best`` is to be bold."""

    value: float | None = None
    spread: float | None = None
    count: int | None = None
    of: int | None = None
    paper: float | None = None
    best: bool = False
    paper_best: bool = False
    note: str = ""
    runs: tuple[str, ...] = ()

    @property
    def is_there(self) -> bool:
        """Whether anybody measured it, we or the paper."""
        return bool(self.runs) or self.paper is not None


@dataclass(frozen=True)
class Line:
    """One metric at one radius, a cell a column."""

    eps: float | None
    metric: Metric
    cells: list[Cell]


@dataclass(frozen=True)
class Table:
    """One table; ``columns`` are (model, method)."""

    name: str
    title: str
    columns: list[tuple[str, str]]
    lines: list[Line]
    facts: dict[str, str]

    @property
    def models(self) -> list[str]:
        """The models, in the order of their columns."""
        return list(dict.fromkeys(model for model, _ in self.columns))

    @property
    def has_paper(self) -> bool:
        """Whether the paper has any of its numbers."""
        return any(cell.paper is not None for line in self.lines for cell in line.cells)

    def of_model(self, model: str) -> Table:
        """The columns of one model, at the radii that it has."""
        chosen = [number for number, column in enumerate(self.columns) if column[0] == model]
        lines = [replace(line, cells=[line.cells[number] for number in chosen]) for line in self.lines]
        there = [line for line in lines if any(cell.is_there for cell in line.cells)]
        return replace(self, columns=[self.columns[number] for number in chosen], lines=there)


def tables_of(experiment: Experiment) -> list[Table]:
    """The tables of an experiment: where methods are set against others, the differences first, then all values."""
    rows = [row for row in experiment.rows if is_shown(row.metric)]
    differences = [row for row in rows if row.metric.endswith(DELTA)]
    values = [row for row in rows if not row.metric.endswith(DELTA)]
    tables = []
    if differences:
        title = f"{experiment.title}: differences to the method alone"
        tables.append(
            _table(f"{experiment.name}-differences", title, _with_counts(differences, values), experiment.facts)
        )
    tables.append(_table(experiment.name, experiment.title, values, experiment.facts))
    return tables


def _with_counts(differences: Sequence[TableRow], values: Sequence[TableRow]) -> list[TableRow]:
    """Differences with the number of properties (or images) that the method's own value rests on."""
    counts = {(row.model, row.method, row.seed, row.metric, row.eps): row.denominator for row in values}
    return [
        replace(row, denominator=counts.get((row.model, row.method, row.seed, row.metric.removesuffix(DELTA), row.eps)))
        for row in differences
    ]


def _table(name: str, title: str, rows: Sequence[TableRow], facts: dict[str, str]) -> Table:
    columns = list(dict.fromkeys((row.model, row.method) for row in rows))
    models = list(dict.fromkeys(model for model, _ in columns))
    columns.sort(key=lambda column: models.index(column[0]))
    found = summarised(rows)
    groups: dict[tuple[str, str, str, float | None], list[TableRow]] = {}
    for row in rows:
        groups.setdefault((row.model, row.method, row.metric, row.eps), []).append(row)
    keys = sorted({(row.eps, row.metric) for row in rows}, key=lambda key: (key[0] or 0.0, place(key[1])))
    lines = []
    for eps, name_of_metric in keys:
        places = [(*column, name_of_metric, eps) for column in columns]
        cells = [_cell(found[key], groups[key]) if key in found else Cell() for key in places]
        lines.append(with_best(Line(eps, metric(name_of_metric), cells), columns))
    return Table(name, title, columns, lines, facts)


def _cell(summary: Summary, rows: Sequence[TableRow]) -> Cell:
    measured = [row for row in rows if row.value is not None]
    counts = [row.numerator for row in measured if row.numerator is not None]
    totals = [row.denominator for row in measured if row.denominator is not None]
    return Cell(
        summary.mean,
        summary.spread,
        round(sum(counts)) if counts and len(counts) == len(measured) else None,
        sum(totals) if totals and len(totals) == len(measured) else None,
        summary.paper_value,
        note=summary.note,
        runs=tuple(row.run.rpartition("/")[2] for row in rows),
    )


def with_best(line: Line, columns: Sequence[tuple[str, str]]) -> Line:
    """The line with the best of each model (and window of accuracy) marked; of differences, every improvement."""
    groups: dict[tuple[str, str], list[int]] = {}
    for number, (model, method) in enumerate(columns):
        groups.setdefault((model, method.partition("@")[2]), []).append(number)
    cells = list(line.cells)
    for numbers in groups.values():
        ours = _best(line.metric, [cells[number].value for number in numbers])
        papers = _best(line.metric, [cells[number].paper for number in numbers])
        for number in numbers:
            cell = cells[number]
            cells[number] = replace(
                cell,
                best=_is_best(line.metric, cell.value, ours),
                paper_best=_is_best(line.metric, cell.paper, papers),
            )
    return replace(line, cells=cells)


def _best(what: Metric, values: Iterable[float | None]) -> float | None:
    """The value to reach: the best of two or more, as it is written; of differences, better than none."""
    there = [value for value in values if value is not None]
    if what.is_delta:
        return 0.0
    if len(there) < 2:
        return None
    return max(there) if what.higher_is_better else min(there)


def _is_best(what: Metric, value: float | None, best: float | None) -> bool:
    if value is None or best is None:
        return False
    return what.better(value, best) if what.is_delta else what.written(value) == what.written(best)
