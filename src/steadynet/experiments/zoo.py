"""The zoo: published networks by name, to be copied into a run directory."""

from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from steadynet.errors import UnknownNameError, UserError
from steadynet.experiments.cells import Cell, cells_of
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.grid import grid_from
from steadynet.experiments.provenance import made_from
from steadynet.experiments.published import hash_of_run, read_published
from steadynet.files import read_toml
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import read_evaluation
from steadynet.verification.properties import Verdict
from steadynet.verification.verdicts import read_rows

RESULTS = "results"
SHORT = ("rq1-", "rq2-")  # grids whose networks have the shortest names
WHERE = "published networks are in the folder results/ of steadynet's repository: clone it, and give --from DIR/results"


@dataclass(frozen=True)
class ZooNetwork:
    """A published network with its weights, and what is known of it."""

    name: str
    grid: str
    cell: Cell
    run: RunDirectory

    @property
    def accuracy(self) -> float | None:
        """The share of test images that it classifies correctly."""
        found = read_evaluation(self.run)
        return found.accuracy if found else None

    @property
    def proved(self) -> dict[float, tuple[int, int]]:
        """How many properties are proved, of how many, by radius."""
        rows = read_rows(self.run)
        verdicts = {eps: [row.verdict for row in rows if row.eps == eps] for eps in self.cell.radii}
        return {eps: (found.count(Verdict.UNSAT), len(found)) for eps, found in verdicts.items()}


def find_results(folder: Path | None = None) -> Path:
    """Return the folder of the published grids: the one given, ``results`` here, or that of the source tree.

    Raises:
        UserError: There is none, as where steadynet was installed without its repository.
    """
    source_tree = Path(__file__).resolve().parents[3]
    places = [folder] if folder else [Path(RESULTS), source_tree / RESULTS]
    for place in places:
        if any(place.glob("*/grid.toml")):
            return place
    empty = folder or next((place for place in places if place.is_dir()), None)
    raise UserError(f"{empty} holds no published networks yet" if empty else WHERE)


def networks_in(results: Path) -> dict[str, ZooNetwork]:
    """Return the published networks with weights, by name.

    A name is made of the data, the network and the method, as in ``mnist-m1-nbc``, after the grid for those of other
    tables than RQ1 and RQ2, as in ``sabr-mnist-m1-nbc``.
    """
    found: dict[str, ZooNetwork] = {}
    for path in sorted(results.glob("*/grid.toml")):
        folder, content = ExperimentDirectory(path.parent), read_toml(path)
        made = made_from(content.get("made", {}), str(path))
        for cell in cells_of(grid_from(content, None, str(path)), made.seeds):
            run = folder.run(cell.key)
            if run.weights.is_file():
                name = _name(path.parent.name, cell, found)
                found[name] = ZooNetwork(name, path.parent.name, cell, run)
    return found


def _name(grid: str, cell: Cell, taken: dict[str, ZooNetwork]) -> str:
    seed = f"-seed-{cell.seed}" if cell.seed else ""
    short = re.sub(r"[^a-z0-9+@.]+", "-", f"{cell.data}-{cell.model}-{cell.variant.label}{seed}".lower())
    return short if grid.startswith(SHORT) and short not in taken else f"{grid.partition('-')[0]}-{short}"


def get_network(results: Path, name: str, out: Path) -> RunDirectory:
    """Copy a published network into a new run directory.

    Its published verdicts are not copied, so that ``verify`` decides anew.

    Args:
        results: The folder of the published grids.
        name: The name of the network.
        out: The run directory.

    Raises:
        UserError: There is no such network, ``out`` is not empty, or the weights are not those that were published.
    """
    known = networks_in(results)
    if not known:
        raise UserError(f"{results} holds results, but no network with its weights yet")
    if name not in known:
        raise UnknownNameError("published network", name, known)
    source, copy = known[name].run, RunDirectory(out)
    if not copy.is_free():
        raise UserError(f"{out} is not empty: choose another folder with --out")
    record = read_published(source)
    if record is None or hash_of_run(source) != record.network:
        raise UserError(f"{source.weights} is damaged: it is not the network that was published")
    out.mkdir(parents=True, exist_ok=True)
    for path in (source.config, source.metrics, source.evaluation, source.weights):
        shutil.copyfile(path, out / path.name)
    return copy
