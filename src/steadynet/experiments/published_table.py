"""The table of a published grid. It needs neither data nor weights: the published verdicts are those of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from steadynet.experiments.cells import Cell, cells_of
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.grid import Grid
from steadynet.experiments.published import read_published
from steadynet.experiments.shards import VerificationPlan
from steadynet.experiments.table import TableRow, rows_of
from steadynet.runs.directory import RunDirectory
from steadynet.verification.verdict_key import SOUNDNESS_VERSION
from steadynet.verification.verdicts import Row, read_rows


@dataclass(frozen=True)
class _PublishedPlan(VerificationPlan):
    """The properties that were published of a run."""

    def stored_rows(self, run: RunDirectory) -> dict[tuple[float, int], Row]:
        """Return all published rows; none if they are from before a fix of the verifier."""
        record = read_published(run)
        if record is None or record.soundness != SOUNDNESS_VERSION:
            return {}
        return {(row.eps, row.index): row for row in read_rows(run)}


def published_table(folder: ExperimentDirectory, grid: Grid, seeds: Sequence[int]) -> list[TableRow]:
    """Return the rows of all published cells, in the order of the grid.

    Verdicts from before a fix of the verifier are left out, as if they had not been decided.
    """
    cells = [cell for cell in cells_of(grid, seeds) if folder.run(cell.key).path.is_dir()]
    return rows_of(folder, grid.name, cells, {cell.key: _plan(folder.run(cell.key), cell) for cell in cells})


def _plan(run: RunDirectory, cell: Cell) -> VerificationPlan:
    plan = cell.verification_plan(tuple(dict.fromkeys(row.index for row in read_rows(run))))
    return _PublishedPlan(**vars(plan))
