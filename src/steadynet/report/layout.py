"""A table in the paper's layout: one column per model and method, one line per radius and metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from steadynet.experiments.strength_search import AccuracyWindow
from steadynet.experiments.table import DELTA, MISSED, Summary, TableRow, summarised
from steadynet.experiments.variants import Variant
from steadynet.report.metrics import Metric, is_shown, metric_named, sort_key
from steadynet.report.records import Experiment

SMOKE_WARNING = (
    "Smoke scale: these numbers mean nothing. The networks are hardly trained and few images are verified, only to see "
    "that every step works."
)


@dataclass(frozen=True)
class Entry:
    """One entry of a table: our number beside the paper's.

    ``value`` is the mean over all seeds and ``spread`` their standard deviation. ``count`` of ``total`` is the fraction
    behind a percentage, summed over the seeds; for a mean only ``total`` is known. ``best`` and ``paper_best`` mark the
    numbers to print in bold. ``runs`` names the run directories that the number comes from.
    """

    value: float | None = None
    spread: float | None = None
    count: int | None = None
    total: int | None = None
    paper: float | None = None
    best: bool = False
    paper_best: bool = False
    note: str = ""
    missed_window: bool = False  # tuning found no network within the accuracy window
    runs: tuple[str, ...] = ()

    @property
    def is_there(self) -> bool:
        """Whether we or the paper measured it."""
        return bool(self.runs) or self.paper is not None


@dataclass(frozen=True)
class Line:
    """One metric at one radius, with one entry per column of the table."""

    eps: float | None
    metric: Metric
    entries: list[Entry]


@dataclass(frozen=True)
class Table:
    """One table. ``columns`` are pairs of a model and the label of a variant; ``variants`` holds these by label.

    ``facts`` say how the numbers were measured. ``warning`` says why the numbers mean nothing, if they do not.
    """

    name: str
    title: str
    columns: list[tuple[str, str]]
    variants: dict[str, Variant]
    lines: list[Line]
    facts: dict[str, str]
    warning: str = ""

    @property
    def models(self) -> list[str]:
        """The models, in the order of their columns."""
        return list(dict.fromkeys(model for model, _ in self.columns))

    @property
    def has_paper(self) -> bool:
        """Whether the paper reports any of the numbers."""
        return any(entry.paper is not None for line in self.lines for entry in line.entries)

    @property
    def labels(self) -> list[str]:
        """The labels of the variants, in the order of their columns."""
        return list(self.variants)

    def entries(self, line: Line) -> dict[tuple[str, str], Entry]:
        """The entries of a line, by model and label."""
        return dict(zip(self.columns, line.entries, strict=True))

    def of_model(self, model: str) -> Table:
        """The part of the table about one model, without radii that the model was not verified at."""
        chosen = [number for number, column in enumerate(self.columns) if column[0] == model]
        lines = [replace(line, entries=[line.entries[number] for number in chosen]) for line in self.lines]
        there = [line for line in lines if any(entry.is_there for entry in line.entries)]
        columns = [self.columns[number] for number in chosen]
        variants = {label: self.variants[label] for _, label in columns}
        return replace(self, columns=columns, variants=variants, lines=there)


def tables_of(experiment: Experiment) -> list[Table]:
    """Lay out an experiment: a table of differences first, where it has any, then a table of all values.

    None of our numbers is marked as the best at smoke scale, where they mean nothing.
    """
    rows = [row for row in experiment.rows if is_shown(row.metric)]
    differences = [row for row in rows if row.metric.endswith(DELTA)]
    values = [row for row in rows if not row.metric.endswith(DELTA)]
    tables = []
    if differences:
        title = f"{experiment.title}: differences to the method alone"
        tables.append(
            _table(f"{experiment.name}-differences", title, _with_totals(differences, values), experiment.facts)
        )
    tables.append(_table(experiment.name, experiment.title, values, experiment.facts))
    return [_without_best(table) for table in tables] if experiment.is_smoke else tables


def _without_best(table: Table) -> Table:
    """Mark the numbers of a table as meaningless: no number of ours is the best, and a warning says why."""
    lines = [replace(line, entries=[replace(entry, best=False) for entry in line.entries]) for line in table.lines]
    return replace(table, lines=lines, warning=SMOKE_WARNING)


def _with_totals(differences: Sequence[TableRow], values: Sequence[TableRow]) -> list[TableRow]:
    """Give each difference the number of properties (or images) behind the method's own value."""
    totals = {(row.model, row.label, row.seed, row.metric, row.eps): row.denominator for row in values}
    return [
        replace(row, denominator=totals.get((row.model, row.label, row.seed, row.metric.removesuffix(DELTA), row.eps)))
        for row in differences
    ]


def _table(name: str, title: str, rows: Sequence[TableRow], facts: dict[str, str]) -> Table:
    columns = list(dict.fromkeys((row.model, row.label) for row in rows))
    models = list(dict.fromkeys(model for model, _ in columns))
    columns.sort(key=lambda column: models.index(column[0]))
    by_label = {row.label: row.variant for row in rows}
    variants = {label: by_label[label] for _, label in columns}
    found = summarised(rows)
    groups: dict[tuple[str, str, str, float | None], list[TableRow]] = {}
    for row in rows:
        groups.setdefault((row.model, row.label, row.metric, row.eps), []).append(row)
    order = sorted({(row.eps, row.metric) for row in rows}, key=lambda key: (key[0] or 0.0, sort_key(key[1])))
    lines = []
    for eps, metric_name in order:
        keys = [(*column, metric_name, eps) for column in columns]
        entries = [_entry(found[key], groups[key]) if key in found else Entry() for key in keys]
        lines.append(with_best(Line(eps, metric_named(metric_name), entries), columns, variants))
    return Table(name, title, columns, variants, lines, facts)


def _entry(summary: Summary, rows: Sequence[TableRow]) -> Entry:
    measured = [row for row in rows if row.value is not None]
    counts = [row.numerator for row in measured if row.numerator is not None]
    totals = [row.denominator for row in measured if row.denominator is not None]
    return Entry(
        summary.mean,
        summary.spread,
        round(sum(counts)) if counts and len(counts) == len(measured) else None,
        sum(totals) if totals and len(totals) == len(measured) else None,
        summary.paper_value,
        note=summary.note,
        missed_window=any(row.note == MISSED for row in rows),
        runs=tuple(row.run.rpartition("/")[2] for row in rows),
    )


def with_best(line: Line, columns: Sequence[tuple[str, str]], variants: Mapping[str, Variant]) -> Line:
    """Mark the best entry of each model and accuracy window; in a line of differences, mark every improvement."""
    groups: dict[tuple[str, AccuracyWindow | None], list[int]] = {}
    for number, (model, label) in enumerate(columns):
        groups.setdefault((model, variants[label].window), []).append(number)
    entries = list(line.entries)
    for numbers in groups.values():
        ours = _best(line.metric, [entries[number].value for number in numbers])
        papers = _best(line.metric, [entries[number].paper for number in numbers])
        for number in numbers:
            entry = entries[number]
            entries[number] = replace(
                entry,
                best=_is_best(line.metric, entry.value, ours),
                paper_best=_is_best(line.metric, entry.paper, papers),
            )
    return replace(line, entries=entries)


def _best(metric: Metric, values: Iterable[float | None]) -> float | None:
    """The best of two or more values, or None; for differences, 0, which every improvement beats."""
    there = [value for value in values if value is not None]
    if metric.is_delta:
        return 0.0
    if len(there) < 2 or not metric.is_quality:
        return None
    return max(there) if metric.higher_is_better else min(there)


def _is_best(metric: Metric, value: float | None, best: float | None) -> bool:
    """Whether a value looks like the best one in print; a difference has to be an improvement."""
    if value is None or best is None:
        return False
    return metric.better(value, best) if metric.is_delta else metric.written(value) == metric.written(best)
