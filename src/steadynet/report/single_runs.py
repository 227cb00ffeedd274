"""Run directories that belong to no experiment: one experiment is made of all runs on the same data set."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from steadynet import data
from steadynet.experiments.table import TableRow
from steadynet.experiments.variants import Variant
from steadynet.report.read_run import read_run, training_facts, verification_facts
from steadynet.report.records import Experiment, Run
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import read_evaluation
from steadynet.verification.summary import VerdictSummary, summarise


def read_single_runs(folders: Iterable[Path]) -> list[Experiment]:
    """Read run directories and group them by data set."""
    runs = _distinct([_read(RunDirectory(path)) for path in folders])
    datasets = dict.fromkeys(run.dataset for run in runs)
    return [_experiment(dataset, [run for run in runs if run.dataset == dataset]) for dataset in datasets]


def _read(folder: RunDirectory) -> Run:
    config = folder.read_config()
    name, dataset, model = folder.path.resolve().name, data.own_path(config.data).name, Path(config.model).name
    return read_run(folder, name, dataset, model, Variant.plain(config.method), config.seed)


def _distinct(runs: list[Run]) -> list[Run]:
    """Add the folder's name to the method where two runs have the same network, method and seed."""
    alike = Counter((run.dataset, run.model, run.label, run.seed) for run in runs)
    names = Counter(run.name for run in runs)
    result = []
    for run in runs:
        if alike[run.dataset, run.model, run.label, run.seed] > 1:
            parent = run.folder.path.resolve().parent.name
            name = run.name if names[run.name] == 1 else f"{parent}/{run.name}"
            result.append(replace(run, name=name, variant=replace(run.variant, label=f"{run.label} ({name})")))
        else:
            result.append(run)
    return result


def _experiment(dataset: str, runs: list[Run]) -> Experiment:
    name = f"runs-{dataset}"
    facts = {"runs": str(len(runs)), "seeds": ", ".join(map(str, sorted({run.seed for run in runs})))}
    trained = [run.folder.weights.stat().st_mtime for run in runs if run.folder.weights.is_file()]
    if trained:
        facts["trained"] = time.strftime("%Y-%m-%d", time.gmtime(max(trained)))
    rows = [row for run in runs for row in _rows(name, run)]
    return Experiment(name, f"Runs on {dataset}", rows, runs, facts | training_facts(runs) | verification_facts(runs))


def _rows(experiment: str, run: Run) -> list[TableRow]:
    """One row per metric and radius that was evaluated or verified."""
    base = TableRow(experiment, run.dataset, run.model, run.variant, run.seed, "", None, None, run=run.name)
    evaluation = read_evaluation(run.folder)
    rows = [_share(base, "test_acc_percent", evaluation.accuracy, evaluation.images)] if evaluation else []
    evaluated = {part.eps: part for part in evaluation.radii} if evaluation else {}
    for eps in sorted({row.eps for row in run.verdicts} | set(evaluated)):
        here = replace(base, eps=eps)
        verdicts = [row for row in run.verdicts if row.eps == eps]
        if verdicts:
            rows += _verdict_rows(here, summarise(verdicts))
        if evaluation and eps in evaluated:
            part = evaluated[eps]
            rows.append(_share(here, f"pgd{evaluation.pgd_steps}_percent", part.pgd_accuracy, evaluation.images))
            if part.stable_share_ibp is not None:
                rows.append(replace(here, metric="stable_ibp_percent", value=100 * part.stable_share_ibp))
    return rows


def _share(base: TableRow, metric: str, share: float, total: int) -> TableRow:
    return replace(base, metric=metric, value=100 * share, numerator=round(share * total), denominator=total)


def _verdict_rows(base: TableRow, summary: VerdictSummary) -> list[TableRow]:
    """The rows of one radius that come from verdicts, without those that no property has a value for."""
    rows = []
    if summary.unsat_share is not None:
        rows.append(_share(base, "unsat_percent", summary.unsat_share, summary.properties))
    if summary.stable_share is not None:
        stable = replace(base, metric="stable_percent", value=100 * summary.stable_share)
        rows.append(replace(stable, denominator=summary.stable_properties, note=summary.stable_method or ""))
    rows.append(replace(base, metric="time_s", value=summary.time, denominator=summary.properties))
    if summary.time_unsat_timeout is not None:
        count = summary.unsat + summary.timeout
        value = summary.time_unsat_timeout
        rows.append(replace(base, metric="time_unsat_timeout_s", value=value, denominator=count))
    return rows
