"""The table of an experiment, from what its runs hold: a row a cell, metric and radius, with the paper's number."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace

from steadynet.experiments.cells import Cell
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.paper_numbers import paper_numbers
from steadynet.experiments.plan import is_evaluated
from steadynet.experiments.shards import VerificationPlan
from steadynet.experiments.tuning import missed_window
from steadynet.files import write_json, write_text
from steadynet.runs.evaluation import Evaluation, read_evaluation
from steadynet.verification.properties import Verdict
from steadynet.verification.summary import VerdictSummary, summarise
from steadynet.verification.verdicts import read_rows

MISSED = "window not reached"
DELTA = "_delta"  # behind a metric: the difference to the method that a method is set against
OTHER_VERDICTS = tuple(verdict for verdict in Verdict if verdict is not Verdict.UNSAT)
SECONDS = ("time_s", "time_unsat_timeout_s")  # metrics that depend on the machine


@dataclass(frozen=True)
class TableRow:
    """One number: ``value`` is in per cent, seconds or a count, as the metric says; None where there is none."""

    experiment: str
    dataset: str
    model: str
    method: str
    seed: int
    metric: str
    eps: float | None
    value: float | None
    numerator: float | None
    denominator: int | None
    paper_value: float | None
    run: str
    note: str = ""


def rows_of(
    root: ExperimentDirectory, experiment: str, cells: Sequence[Cell], plans: Mapping[str, VerificationPlan]
) -> list[TableRow]:
    """Every row of these cells, in their order, whatever the order in which they were done."""
    rows = [row for cell in cells for row in _rows(root, experiment, cell, plans[cell.key])]
    numbers = paper_numbers(experiment)
    rows += _differences(rows, cells)
    return [replace(row, paper_value=numbers.get((row.model, row.method, row.eps, row.metric))) for row in rows]


def _rows(root: ExperimentDirectory, experiment: str, cell: Cell, plan: VerificationPlan) -> list[TableRow]:
    run = root.run(cell.key)
    note = MISSED if missed_window(run.path) else ""

    def row(
        metric: str, eps: float | None, value: float | None, over: float | None = None, under: int | None = None
    ) -> TableRow:
        place = (experiment, cell.data, cell.model, cell.method, cell.seed, metric, eps)
        return TableRow(*place, value, over, under, None, cell.run, note)

    found = read_evaluation(run) if not note and is_evaluated(run, cell) else None
    right, images = (found.accuracy, found.accuracy_images) if found else (None, None)
    rows = [_share(row, "test_acc_percent", None, right, images)]
    answers = {} if note else plan.matching_rows(read_rows(run))
    for eps in cell.radii:
        verdicts = [answers[eps, index] for index in plan.index if (eps, index) in answers]
        whole = len(verdicts) == len(plan.index)
        rows += _verdict_rows(row, eps, summarise(verdicts) if whole else None)
        rows += _attack_rows(row, eps, found, cell.pgd_steps)
    return rows


MakeRow = Callable[..., TableRow]


def _share(row: MakeRow, metric: str, eps: float | None, share: float | None, of: int | None) -> TableRow:
    """A percentage of a count, with both."""
    if share is None or of is None:
        return row(metric, eps, None)
    return row(metric, eps, 100 * share, round(share * of), of)


def _verdict_rows(row: MakeRow, eps: float, found: VerdictSummary | None) -> list[TableRow]:
    """The rows of one radius; their values are None where not all properties are decided."""
    if found is None:
        metrics = ["unsat_percent", "n_unsat", "stable_percent", "time_s", "time_unsat_timeout_s"]
        return [row(metric, eps, None) for metric in metrics + [f"n_{verdict.value}" for verdict in OTHER_VERDICTS]]
    count, stable = found.properties, found.stable_share
    stable_row = row("stable_percent", eps, None if stable is None else 100 * stable, None, found.stable_properties)
    return [
        _share(row, "unsat_percent", eps, found.unsat_share, count),
        row("n_unsat", eps, found.unsat, found.unsat, count),
        replace(stable_row, note=found.stable_method) if found.stable_method else stable_row,
        row("time_s", eps, found.time, None, count),
        row("time_unsat_timeout_s", eps, found.time_unsat_timeout, None, found.unsat + found.timeout),
        *(
            row(f"n_{verdict.value}", eps, found.count(verdict), found.count(verdict), count)
            for verdict in OTHER_VERDICTS
        ),
    ]


def _attack_rows(row: MakeRow, eps: float, found: Evaluation | None, steps: Sequence[int]) -> list[TableRow]:
    attacks = {attack.pgd_steps: attack.at(eps) for attack in [*found.other_attacks, found]} if found else {}
    shares = {count: measured.pgd_accuracy for count, measured in attacks.items() if measured}
    images = found.images if found else None
    return [_share(row, f"pgd{count}_percent", eps, shares.get(count), images) for count in steps]


def _differences(rows: Sequence[TableRow], cells: Sequence[Cell]) -> list[TableRow]:
    """The rows of methods that are set against another, less that one's."""
    against = {cell.method: cell.against for cell in cells if cell.against}
    values = {(row.model, row.method, row.seed, row.metric, row.eps): row.value for row in rows}
    result = []
    for row in rows:
        if row.method not in against or row.metric.startswith("n_"):
            continue
        base = values.get((row.model, str(against[row.method]), row.seed, row.metric, row.eps))
        value = None if row.value is None or base is None else row.value - base
        result.append(replace(row, metric=row.metric + DELTA, value=value, numerator=None, denominator=None))
    return result


def write_table(root: ExperimentDirectory, rows: Sequence[TableRow]) -> None:
    """``table.json`` and ``table.csv``: the same rows."""
    write_json(root.table_json, [asdict(row) for row in rows])
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(TableRow)])
    writer.writerows([["" if cell is None else cell for cell in asdict(row).values()] for row in rows])
    write_text(root.table_csv, text.getvalue())


@dataclass(frozen=True)
class Summary:
    """One number over all seeds: its mean, and the standard deviation where there are several."""

    mean: float | None
    spread: float | None
    paper_value: float | None
    note: str


def summarised(rows: Sequence[TableRow]) -> dict[tuple[str, str, str, float | None], Summary]:
    """The rows over all seeds, by model, method, metric and radius."""
    groups: dict[tuple[str, str, str, float | None], list[TableRow]] = {}
    for row in rows:
        groups.setdefault((row.model, row.method, row.metric, row.eps), []).append(row)
    result = {}
    for place, group in groups.items():
        values = [row.value for row in group if row.value is not None]
        result[place] = Summary(
            statistics.fmean(values) if values else None,
            statistics.stdev(values) if len(values) > 1 else None,
            group[0].paper_value,
            next((row.note for row in group if row.note), ""),
        )
    return result
