"""Folders of runs and experiments, read into one model: nothing here is computed anew but what a table lacks."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from steadynet import data
from steadynet.errors import UserError
from steadynet.experiments.cells import cells_of
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.grid import checked
from steadynet.experiments.runner import table_of
from steadynet.experiments.status import counts, read_status
from steadynet.experiments.table import TableRow
from steadynet.files import read_toml
from steadynet.report.run_rows import rows_of_run
from steadynet.runs.directory import RunDirectory
from steadynet.runs.metrics import EpochMetrics
from steadynet.verification.verdicts import Row, read_rows


@dataclass(frozen=True, eq=False)
class Run:
    """One trained network: its run directory, what it is called, how it trained, and its verdicts."""

    folder: RunDirectory
    name: str
    dataset: str
    model: str
    method: str
    seed: int
    epochs: list[EpochMetrics]
    verdicts: list[Row]


@dataclass(frozen=True, eq=False)
class Experiment:
    """One table: its rows, the runs they rest on, and how it was made, in words."""

    name: str
    title: str
    rows: list[TableRow]
    runs: list[Run]
    facts: dict[str, str]

    @property
    def radii(self) -> list[float]:
        """The radii of its rows, ascending."""
        return sorted({row.eps for row in self.rows if row.eps is not None})


def collect(folders: Sequence[Path]) -> list[Experiment]:
    """Every experiment below these folders, then the runs that belong to none, a table a data set."""
    experiments, single = [], []
    for folder in folders:
        found = list(_found(folder))
        if not found:
            raise UserError(f"{folder} holds no runs: give run directories, or what steadynet reproduce wrote")
        for path in found:
            if ExperimentDirectory(path).is_experiment():
                experiments.append(_experiment(ExperimentDirectory(path)))
            else:
                single.append(path)
    runs = _runs(dict.fromkeys(single))
    for name in dict.fromkeys(run.dataset for run in runs):
        experiments.append(_of_runs(name, [run for run in runs if run.dataset == name]))
    return experiments


def _found(folder: Path, depth: int = 2) -> Iterator[Path]:
    """The runs and experiments that a folder is or holds."""
    if ExperimentDirectory(folder).is_experiment() or RunDirectory(folder).is_run():
        yield folder
    elif depth and folder.is_dir():
        for child in sorted(folder.iterdir()):
            if child.is_dir() and not child.is_symlink():
                yield from _found(child, depth - 1)


def _experiment(folder: ExperimentDirectory) -> Experiment:
    content = read_toml(folder.grid)
    made = content.get("made", {})
    grid = checked(content, None, str(folder.grid))
    seeds = [int(seed) for seed in made.get("seeds", [0])]
    cells = {cell.key: cell for cell in cells_of(grid, seeds)}
    runs = []
    for path in sorted(folder.runs.glob("*")):
        cell = cells.get(path.name)
        if cell and RunDirectory(path).is_run():
            runs.append(_run(RunDirectory(path), path.name, cell.data, cell.model, cell.method, cell.seed))
    order = list(cells)
    runs.sort(key=lambda run: order.index(run.name))
    rows = _read_table(folder.table_json)
    if rows is None or _is_newer(folder, runs):
        rows = table_of(folder, grid, seeds) if all(is_here(cell.data) for cell in cells.values()) else rows or []
    facts = {"scale": grid.scale, "seeds": ", ".join(map(str, seeds))} | _made(made) | _asked(runs) | _progress(folder)
    return Experiment(grid.name, grid.title, rows, runs, facts)


def _progress(folder: ExperimentDirectory) -> dict[str, str]:
    """How much of a grid is done, as long as it is not all."""
    try:
        tasks = read_status(folder)["tasks"]
    except UserError:
        return {}
    done = counts(tasks.values())["done"]
    return {} if done == len(tasks) else {"done so far": f"{done} of {len(tasks)} tasks"}


def _is_newer(folder: ExperimentDirectory, runs: Iterable[Run]) -> bool:
    """Whether a run holds what the table does not know."""
    written = folder.table_json.stat().st_mtime
    files = (file for run in runs for file in (run.folder.verdicts, run.folder.evaluation))
    return any(file.is_file() and file.stat().st_mtime > written for file in files)


def _read_table(path: Path) -> list[TableRow] | None:
    try:
        known = {field.name for field in fields(TableRow)}
        return [
            TableRow(**{key: value for key, value in row.items() if key in known})
            for row in json.loads(path.read_text(encoding="utf-8"))
        ]
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, AttributeError) as error:
        raise UserError(f"{path} is damaged: steadynet reproduce writes it anew") from error


def is_here(name: str) -> bool:
    """Whether a data set can be read without fetching it."""
    known = data.available()
    return known[name]().is_available() if name in known else Path(name).is_file()


def _run(folder: RunDirectory, name: str, dataset: str, model: str, method: str, seed: int) -> Run:
    return Run(folder, name, dataset, model, method, seed, folder.read_metrics(), _of_one_verifier(read_rows(folder)))


def _of_one_verifier(rows: list[Row]) -> list[Row]:
    """The rows of the verifier (and settings) that decided most; of a property asked twice, the later one."""
    asked = Counter((row.data, row.verifier, row.settings) for row in rows)
    chosen = max(asked, key=lambda key: asked[key], default=None)
    found = {
        (row.eps, row.index, row.fingerprint): row for row in rows if (row.data, row.verifier, row.settings) == chosen
    }
    return sorted(found.values(), key=lambda row: row.eps)


def _runs(folders: Iterable[Path]) -> list[Run]:
    """Runs by themselves; two of the same network, method and seed are told apart by their folders' names."""
    runs = []
    for path in folders:
        folder = RunDirectory(path)
        config = folder.read_config()
        name, dataset, model = path.resolve().name, Path(config.data).name, Path(config.model).name
        runs.append(_run(folder, name, dataset, model, config.method, config.seed))
    places = Counter((run.dataset, run.model, run.method, run.seed) for run in runs)
    names = Counter(run.name for run in runs)
    return [
        run
        if places[run.dataset, run.model, run.method, run.seed] == 1
        else _renamed(run, run.name if names[run.name] == 1 else f"{run.folder.path.resolve().parent.name}/{run.name}")
        for run in runs
    ]


def _renamed(run: Run, name: str) -> Run:
    return replace(run, name=name, method=f"{run.method} ({name})")


def _of_runs(dataset: str, runs: list[Run]) -> Experiment:
    name = f"runs-{dataset}"
    rows = [
        row
        for run in runs
        for row in rows_of_run(run.folder, run.verdicts, (name, run.dataset, run.model, run.method, run.seed), run.name)
    ]
    trained = [run.folder.weights.stat().st_mtime for run in runs if run.folder.weights.is_file()]
    facts = {"scale": "single runs", "seeds": ", ".join(map(str, sorted({run.seed for run in runs})))}
    if trained:
        facts["trained"] = time.strftime("%Y-%m-%d", time.gmtime(max(trained)))
    return Experiment(name, f"Runs on {dataset}", rows, runs, facts | _asked(runs))


def _made(made: dict[str, Any]) -> dict[str, str]:
    """How an experiment was made, in words."""
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


def _asked(runs: Iterable[Run]) -> dict[str, str]:
    """Who decided, in how many seconds at most, and by which bounds stability was judged."""
    rows = [row for run in runs for row in run.verdicts]
    facts = {
        "verifier": ", ".join(sorted({row.verifier for row in rows})),
        "time-out": ", ".join(f"{limit:g} s" for limit in sorted({row.timeout for row in rows})),
        "stable by": ", ".join(sorted({row.stable_method for row in rows if row.stable_method})),
    }
    return {key: value for key, value in facts.items() if value}
