"""Publish the finished cells of an experiment: a folder of small files that can be committed and checked.

A published grid is an experiment's directory: its grid, its test images and its runs. Of each finished run it holds
the configuration, the metrics, the evaluation and the verdicts; of some also the weights. What is written depends on
the runs alone, so that publishing again changes nothing.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tomli_w

from steadynet import __version__
from steadynet.errors import UnknownNameError, UserError
from steadynet.experiments.cells import Cell, cells_of
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.grid import Grid, grid_from
from steadynet.experiments.paper_numbers import paper_numbers
from steadynet.experiments.plan import verification_plans
from steadynet.experiments.provenance import Made, made_from
from steadynet.experiments.published import PublishedNetwork, hash_of_run, read_published
from steadynet.experiments.shards import VerificationPlan
from steadynet.experiments.take_up import is_finished
from steadynet.files import read_toml, write_text
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import read_evaluation
from steadynet.verification.properties import Verdict
from steadynet.verification.verdict_key import SOUNDNESS_VERSION
from steadynet.verification.verdicts import COLUMNS, read_rows, row_as_line

SMALL = ("M1", "M2", "C1", "C2")  # networks whose weights are published, of one seed
WEIGHTS_SEED = 0  # with all seeds, the weights would be too large for a repository
LIMIT = 80_000_000  # bytes of all published files together; weights that do not fit are left out


@dataclass(frozen=True)
class Publication:
    """What was published of one grid: the keys of its cells that are there now, that are new, and that were removed."""

    folder: Path
    there: list[str]
    new: list[str]
    removed: list[str]
    planned: int  # the cells of the grid
    without_room: list[str]  # cells whose weights were left out because of ``LIMIT``


def publish(source: ExperimentDirectory, results: Path, best_of: Sequence[str] = ()) -> Publication:
    """Publish the finished cells of an experiment. Cells that were published earlier stay.

    Args:
        source: The experiment, which may be running.
        results: The folder of all published grids; the grid has a folder of its own there.
        best_of: Models of which the network with the most proofs is published with its weights.

    Raises:
        UserError: ``source`` holds no experiment, or the published grid has another scale.
    """
    if not source.is_experiment():
        raise UserError(f"{source.path} holds no experiment (it has no {source.grid.name})")
    content = read_toml(source.grid)
    grid, made = grid_from(content, None, str(source.grid)), made_from(content.get("made", {}), str(source.grid))
    for model in best_of:
        if model not in grid.models:
            raise UnknownNameError("model", model, grid.models)
    target = ExperimentDirectory(results / grid.name)
    seeds = tuple(sorted({*made.seeds, *_published_seeds(target, grid)}))
    cells = {cell.key: cell for cell in cells_of(grid, seeds)}
    started = [cell for cell in cells.values() if source.run(cell.key).path.is_dir()]
    plans = verification_plans(started)
    finished = [cell for cell in started if is_finished(source.run(cell.key), cell, plans[cell.key])]
    before = _keys(target)
    for cell in finished:
        _publish_run(source.run(cell.key), target.run(cell.key), cell, plans[cell.key], made)
    removed = [key for key in before if key not in cells]  # the grid has other settings now
    for key in removed:
        shutil.rmtree(target.run(key).path)
    without_room = _publish_weights(source, target, [cells[key] for key in _keys(target)], best_of)
    _write(target.grid, grid.to_toml(Made(scale=grid.scale, seeds=seeds, published=True)))
    _write(target.test_images, _test_images(target))
    there = _keys(target)
    new = [key for key in there if key not in before]
    return Publication(target.path, there, new, removed, len(cells_of(grid)), without_room)


def _published_seeds(target: ExperimentDirectory, grid: Grid) -> tuple[int, ...]:
    if not target.is_experiment():
        return ()
    made = made_from(read_toml(target.grid).get("made", {}), str(target.grid))
    if made.scale != grid.scale:
        raise UserError(f"{target.path} has the scale {made.scale}, and the experiment has {grid.scale}")
    return made.seeds


def _keys(target: ExperimentDirectory) -> list[str]:
    return sorted(path.name for path in target.runs.glob("*"))


def _publish_run(run: RunDirectory, copy: RunDirectory, cell: Cell, plan: VerificationPlan, made: Made) -> None:
    """Copy what is published of a run, without its weights."""
    hashed = hash_of_run(run)
    if (old := read_published(copy)) and old.network != hashed:  # another training of the same configuration
        if is_finished(copy, cell, plan):
            return
        shutil.rmtree(copy.path)
    if run.tuning.is_file():
        _write(copy.tuning, run.tuning.read_text(encoding="utf-8"))
    if hashed is None:
        return  # tuning did not reach its window
    for file, other in ((run.metrics, copy.metrics), (run.evaluation, copy.evaluation)):
        _write(other, file.read_text(encoding="utf-8"))
    config = read_toml(run.config)
    if cell.init:
        config["init"] = cell.init.run  # without the path of this machine
    _write(copy.config, tomli_w.dumps(config))
    rows = plan.stored_rows(run)
    lines = [row_as_line(dataclasses.replace(row, counterexample="")) for row in rows.values()]
    _write(copy.verdicts, "".join(f"{line}\n" for line in [",".join(COLUMNS), *lines]))
    known = read_published(copy) or read_published(run) or PublishedNetwork(hashed, 0, made.steadynet or __version__)
    if not known.hardware:
        known = dataclasses.replace(known, torch=made.torch, hardware=made.hardware)
    record = dataclasses.replace(known, network=hashed, soundness=SOUNDNESS_VERSION)
    _write(copy.published, json.dumps(dataclasses.asdict(record), indent=2) + "\n")


def _publish_weights(
    source: ExperimentDirectory, target: ExperimentDirectory, cells: Sequence[Cell], best_of: Sequence[str]
) -> list[str]:
    """Copy the weights of small networks and of the best large ones, once for all grids, as long as there is room."""
    without_room: list[str] = []
    if not paper_numbers(target.path.name):
        return without_room
    stored = _stored_weights(target)
    best = [_best([cell for cell in cells if cell.model == model], target) for model in best_of]
    for cell in cells:
        run, copy = source.run(cell.key), target.run(cell.key)
        is_small = cell.settings["model"] in SMALL and cell.seed == WEIGHTS_SEED
        record = read_published(copy)
        if not record or (cell.model not in best_of and not is_small):
            continue
        wanted = cell.key in best if cell.model in best_of else is_small
        if not wanted:
            copy.weights.unlink(missing_ok=True)
        elif record.network not in stored and hash_of_run(run) == record.network and run.weights.is_file():
            if published_size(target.path.parent) + run.weights.stat().st_size > LIMIT:
                without_room.append(cell.key)
                continue
            shutil.copyfile(run.weights, copy.weights)
            stored.add(record.network)
    return without_room


def published_size(results: Path) -> int:
    """Return how many bytes all published files have."""
    return sum(path.stat().st_size for path in results.rglob("*") if path.is_file())


def _stored_weights(target: ExperimentDirectory) -> set[str]:
    """Return the hashes of all networks whose weights are published, by any grid."""
    files = target.path.parent.glob("*/runs/*/weights.safetensors")
    records = [read_published(RunDirectory(file.parent)) for file in files]
    return {record.network for record in records if record}


def _best(cells: Sequence[Cell], target: ExperimentDirectory) -> str | None:
    """Return the key of the network with the most proofs; of several, the most accurate one."""

    def score(cell: Cell) -> tuple[int, float]:
        run = target.run(cell.key)
        found = read_evaluation(run)
        proved = sum(row.verdict is Verdict.UNSAT for row in read_rows(run))
        return proved, found.accuracy if found else 0.0

    return max(cells, key=score).key if cells else None


def _test_images(target: ExperimentDirectory) -> str:
    """Return the test images of all published verdicts as CSV."""
    rows = [row for key in _keys(target) for row in read_rows(target.run(key))]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["data", "test_image"])
    writer.writerows(sorted({(row.data, row.index) for row in rows}))
    return text.getvalue()


def _write(path: Path, text: str) -> None:
    """Write a file, unless it has this content already."""
    if not path.is_file() or path.read_text(encoding="utf-8") != text:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
