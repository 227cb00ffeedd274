"""The table of an experiment: one row per cell, metric and radius, with the paper's number beside ours."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from steadynet.experiments.cells import Cell
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.paper_numbers import paper_value
from steadynet.experiments.plan import is_evaluated, is_trained
from steadynet.experiments.shards import VerificationPlan
from steadynet.experiments.tuning import missed_window
from steadynet.experiments.variants import Variant
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import Evaluation, read_evaluation
from steadynet.verification.properties import Verdict
from steadynet.verification.summary import VerdictSummary, summarise

MISSED = "window not reached"  # the note of a variant without a network
DELTA = "_delta"  # the end of a metric's name that is a difference to another variant
TRAINING_MINUTES = "train_cpu_minutes"
MACHINE_METRICS = ("time_s", "time_unsat_timeout_s", TRAINING_MINUTES)  # metrics that depend on the machine
OTHER_VERDICTS = [verdict for verdict in Verdict if verdict is not Verdict.UNSAT]  # beside the proved ones


@dataclass(frozen=True)
class TableRow:
    """One number of a table. ``value`` is in per cent, seconds or a count, as the metric says; None if it is missing.

    ``numerator`` of ``denominator`` is the fraction behind a percentage; a mean has a denominator only.
    """

    experiment: str
    dataset: str
    model: str
    variant: Variant
    seed: int
    metric: str
    eps: float | None
    value: float | None
    numerator: float | None = None
    denominator: int | None = None
    paper_value: float | None = None
    run: str = ""
    note: str = ""

    @property
    def label(self) -> str:
        """The name of the variant in tables."""
        return self.variant.label


def rows_of(
    experiment: ExperimentDirectory, name: str, cells: Sequence[Cell], plans: Mapping[str, VerificationPlan]
) -> list[TableRow]:
    """Return the rows of some cells, in their order.

    Args:
        experiment: The directory with the runs.
        name: The name of the experiment, by which the paper's numbers are found.
        cells: The cells.
        plans: The properties of each cell, by the key of its run.
    """
    rows = [row for cell in cells for row in _rows(experiment, name, cell, plans[cell.key])]
    rows += _differences(rows, cells)
    return [replace(row, paper_value=paper_value(name, row.model, row.variant, row.eps, row.metric)) for row in rows]


def _rows(experiment: ExperimentDirectory, name: str, cell: Cell, plan: VerificationPlan) -> list[TableRow]:
    run = experiment.run(cell.key)
    note = MISSED if missed_window(run.path) else ""

    def row(
        metric: str,
        eps: float | None,
        value: float | None,
        numerator: float | None = None,
        denominator: int | None = None,
    ) -> TableRow:
        place = (name, cell.data, cell.model, cell.variant, cell.seed, metric, eps)
        return TableRow(*place, value, numerator, denominator, None, cell.run, note)

    found = read_evaluation(run) if not note and is_evaluated(run, cell) else None
    right, images = (found.accuracy, found.accuracy_images) if found else (None, None)
    rows = [_share(row, "test_acc_percent", None, right, images)]
    if (minutes := _training_minutes(run)) is not None:
        rows.append(row(TRAINING_MINUTES, None, minutes))
    decided = {} if note else plan.stored_rows(run)
    for eps in cell.radii:
        verdicts = [decided[eps, index] for index in plan.index if (eps, index) in decided]
        complete = len(verdicts) == len(plan.index)
        rows += _verdict_rows(row, eps, summarise(verdicts) if complete else None)
        rows += _attack_rows(row, eps, found, cell.evaluation.attacks)
    return rows


def _training_minutes(run: RunDirectory) -> float | None:
    """Return the CPU minutes of all training steps; None before the end of the training, and if they are not known."""
    if not is_trained(run):
        return None
    seconds = [epoch.cpu_seconds for epoch in run.read_metrics()]
    known = [value for value in seconds if value is not None]
    return sum(known) / 60 if known and len(known) == len(seconds) else None


MakeRow = Callable[..., TableRow]


def _share(row: MakeRow, metric: str, eps: float | None, share: float | None, total: int | None) -> TableRow:
    """Return the row of a percentage, with the fraction behind it."""
    if share is None or total is None:
        return row(metric, eps, None)
    return row(metric, eps, 100 * share, round(share * total), total)


def _verdict_rows(row: MakeRow, eps: float, found: VerdictSummary | None) -> list[TableRow]:
    """Return the rows of one radius. Their values are None until all properties are decided."""
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
    """Return the differences between the rows of a variant and those of the variant that it is set against."""
    against = {cell.variant.label: cell.against for cell in cells if cell.against}
    values = {(row.model, row.label, row.seed, row.metric, row.eps): row.value for row in rows}
    result = []
    for row in rows:
        if row.label not in against or row.metric.startswith("n_") or row.metric == TRAINING_MINUTES:
            continue
        base = values.get((row.model, str(against[row.label]), row.seed, row.metric, row.eps))
        value = None if row.value is None or base is None else row.value - base
        result.append(replace(row, metric=row.metric + DELTA, value=value, numerator=None, denominator=None))
    return result


@dataclass(frozen=True)
class Summary:
    """One number over all seeds: its mean, and the standard deviation if there are several."""

    mean: float | None
    spread: float | None
    paper_value: float | None
    note: str


def summarised(rows: Sequence[TableRow]) -> dict[tuple[str, str, str, float | None], Summary]:
    """Summarise rows over the seeds, by model, label, metric and radius."""
    groups: dict[tuple[str, str, str, float | None], list[TableRow]] = {}
    for row in rows:
        groups.setdefault((row.model, row.label, row.metric, row.eps), []).append(row)
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
