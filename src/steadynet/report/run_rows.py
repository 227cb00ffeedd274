"""The rows of a table from one run directory that belongs to no experiment."""

from __future__ import annotations

from collections.abc import Sequence

from steadynet.experiments.table import TableRow
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import read_evaluation
from steadynet.verification.summary import VerdictSummary, summarise
from steadynet.verification.verdicts import Row

Place = tuple[str, str, str, str, int]  # experiment, data set, model, method, seed


def rows_of_run(run: RunDirectory, verdicts: Sequence[Row], place: Place, name: str) -> list[TableRow]:
    """What was evaluated and verified, a row each."""
    found = read_evaluation(run)
    rows = _shares(place, name, "test_acc_percent", None, found.accuracy, found.images) if found else []
    evaluated = {part.eps: part for part in found.radii} if found else {}
    for eps in sorted({row.eps for row in verdicts} | set(evaluated)):
        decided = [row for row in verdicts if row.eps == eps]
        if decided:
            rows += _verdicts(place, name, eps, summarise(decided))
        part = evaluated.get(eps)
        if found and part:
            attack = f"pgd{found.pgd_steps}_percent"
            rows += _shares(place, name, attack, eps, part.pgd_accuracy, found.images)
            rows += _shares(place, name, "stable_ibp_percent", eps, part.stable_share_ibp, None)
    return rows


def _shares(
    place: Place, name: str, metric: str, eps: float | None, share: float | None, of: int | None
) -> list[TableRow]:
    if share is None:
        return []
    return [TableRow(*place, metric, eps, 100 * share, None if of is None else round(share * of), of, None, name)]


def _verdicts(place: Place, name: str, eps: float, figures: VerdictSummary) -> list[TableRow]:
    count = figures.properties

    def row(metric: str, value: float | None, under: int | None, note: str = "") -> TableRow:
        return TableRow(*place, metric, eps, value, None, under, None, name, note)

    stable = figures.stable_share
    rows = _shares(place, name, "unsat_percent", eps, figures.unsat_share, count)
    if stable is not None:
        rows.append(row("stable_percent", 100 * stable, figures.stable_properties, figures.stable_method or ""))
    rows.append(row("time_s", figures.time, count))
    if figures.time_unsat_timeout is not None:
        judged = figures.unsat + figures.timeout
        rows.append(row("time_unsat_timeout_s", figures.time_unsat_timeout, judged))
    return rows
