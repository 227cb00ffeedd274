"""Read an experiment that ``steadynet reproduce`` wrote, or is still writing."""

from __future__ import annotations

from collections.abc import Iterable

from steadynet.errors import UserError
from steadynet.experiments.cells import cells_of
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.grid import Grid, grid_from
from steadynet.experiments.provenance import Made, made_from
from steadynet.experiments.published import read_published
from steadynet.experiments.published_table import published_table
from steadynet.experiments.runner import table_of
from steadynet.experiments.status import read_status
from steadynet.experiments.table import TableRow
from steadynet.experiments.table_files import read_table
from steadynet.files import read_toml
from steadynet.report.data_sets import is_here
from steadynet.report.read_run import read_run, training_facts, verification_facts
from steadynet.report.records import Experiment, Run
from steadynet.runs.directory import RunDirectory


def read_experiment(folder: ExperimentDirectory) -> Experiment:
    """Read an experiment's table and runs. A table that is older than its runs is computed again from them."""
    content, source = read_toml(folder.grid), str(folder.grid)
    grid, made = grid_from(content, None, source), made_from(content.get("made", {}), source)
    cells = {cell.key: cell for cell in cells_of(grid, made.seeds)}
    runs = []
    for path in sorted(folder.runs.glob("*")):
        cell = cells.get(path.name)
        if cell and RunDirectory(path).is_run():
            runs.append(read_run(RunDirectory(path), path.name, cell.data, cell.model, cell.variant, cell.seed))
    order = list(cells)
    runs.sort(key=lambda run: order.index(run.name))
    rows = _rows(folder, grid, made, runs, all(is_here(cell.data) for cell in cells.values()))
    facts = {"scale": grid.scale, "seeds": _seeds(runs) or ", ".join(map(str, made.seeds))}
    facts |= (
        (_published(runs) if made.published else _made(made))
        | training_facts(runs)
        | verification_facts(runs)
        | _progress(folder)
    )
    return Experiment(grid.name, grid.title, rows, runs, facts, grid.scale)


def _rows(
    folder: ExperimentDirectory, grid: Grid, made: Made, runs: Iterable[Run], data_is_here: bool
) -> list[TableRow]:
    if made.published:
        return published_table(folder, grid, made.seeds)
    rows = read_table(folder, grid.variants)
    if (rows is None or _is_newer(folder, runs)) and data_is_here:
        return table_of(folder, grid, made.seeds)
    return rows or []


def _seeds(runs: Iterable[Run]) -> str:
    """The seeds of the runs, for each model if the models have different ones."""
    found: dict[str, set[int]] = {}
    for run in runs:
        found.setdefault(run.model, set()).add(run.seed)
    texts = {model: ", ".join(map(str, sorted(seeds))) for model, seeds in found.items()}
    if len(set(texts.values())) < 2:
        return next(iter(texts.values()), "")
    return "; ".join(f"{text} ({model})" for model, text in texts.items())


def _progress(folder: ExperimentDirectory) -> dict[str, str]:
    """How many tasks of a grid are done, until all are."""
    try:
        status = read_status(folder)
    except UserError:
        return {}
    done, total = status.counts()["done"], len(status.tasks)
    return {} if done == total else {"progress": f"{done} of {total} tasks done"}


def _is_newer(folder: ExperimentDirectory, runs: Iterable[Run]) -> bool:
    """Whether a run has results that were written after the table."""
    written = folder.table_json.stat().st_mtime
    files = (file for run in runs for file in (run.folder.verdicts, run.folder.evaluation))
    return any(file.is_file() and file.stat().st_mtime > written for file in files)


def _published(runs: Iterable[Run]) -> dict[str, str]:
    """Where the networks of a published experiment were trained, and by which version."""
    records = [record for run in runs if (record := read_published(run.folder))]
    found = {"hardware": {one.hardware for one in records}, "steadynet": {one.steadynet for one in records}}
    return {key: "; ".join(sorted(values - {""})) for key, values in found.items() if values - {""}}


def _made(made: Made) -> dict[str, str]:
    """On which machine, by which version and when an experiment was made, as a report shows it."""
    dates = [date[:10] for date in (made.started, made.date) if date]
    facts = {
        "hardware": made.hardware,
        "steadynet": made.steadynet,
        "commit": (made.commit or "")[:12],
        "date": " to ".join(dict.fromkeys(dates)),
    }
    return {key: value for key, value in facts.items() if value}
