"""Read an experiment that ``steadynet reproduce`` wrote, or is still writing."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

from steadynet.errors import UserError
from steadynet.experiments.cells import cells_of
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.grid import checked
from steadynet.experiments.runner import table_of
from steadynet.experiments.status import read_status
from steadynet.experiments.table import TableRow
from steadynet.files import read_toml
from steadynet.report.data_sets import is_here
from steadynet.report.read_run import read_run, verification_facts
from steadynet.report.records import Experiment, Run
from steadynet.runs.directory import RunDirectory


def read_experiment(folder: ExperimentDirectory) -> Experiment:
    """Read an experiment's table and runs. A table that is older than its runs is computed again from them."""
    content = read_toml(folder.grid)
    made = content.get("made", {})
    grid = checked(content, None, str(folder.grid))
    seeds = [int(seed) for seed in made.get("seeds", [0])]
    cells = {cell.key: cell for cell in cells_of(grid, seeds)}
    runs = []
    for path in sorted(folder.runs.glob("*")):
        cell = cells.get(path.name)
        if cell and RunDirectory(path).is_run():
            runs.append(read_run(RunDirectory(path), path.name, cell.data, cell.model, cell.method, cell.seed))
    order = list(cells)
    runs.sort(key=lambda run: order.index(run.name))
    rows = _read_table(folder.table_json)
    if rows is None or _is_newer(folder, runs):
        rows = table_of(folder, grid, seeds) if all(is_here(cell.data) for cell in cells.values()) else rows or []
    facts = {"scale": grid.scale, "seeds": ", ".join(map(str, seeds))}
    facts |= _made(made) | verification_facts(runs) | _progress(folder)
    return Experiment(grid.name, grid.title, rows, runs, facts)


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


def _read_table(path: Path) -> list[TableRow] | None:
    """The rows of a table's file, or None if there is no file."""
    try:
        known = {field.name for field in fields(TableRow)}
        return [
            TableRow(**{key: value for key, value in row.items() if key in known})
            for row in json.loads(path.read_text(encoding="utf-8"))
        ]
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged: steadynet reproduce writes it again") from error


def _made(made: dict[str, Any]) -> dict[str, str]:
    """On which machine, by which version and when an experiment was made, as a report shows it."""
    gpus = made.get("gpus") or []
    hardware = ", ".join(
        str(part) for part in (made.get("cpu"), f"{made['cores']} cores" if "cores" in made else None, *gpus) if part
    )
    dates = [str(made[key])[:10] for key in ("started", "date") if key in made]
    facts = {
        "hardware": hardware,
        "steadynet": str(made.get("steadynet", "")),
        "commit": str(made.get("commit", ""))[:12],
        "date": " to ".join(dict.fromkeys(dates)),
    }
    return {key: value for key, value in facts.items() if value}
