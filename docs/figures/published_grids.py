"""What is published of the paper's grids: which cells, what they say of its claims, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from steadynet.experiments.cells import Cell, cells_of
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.grid import read_grid
from steadynet.experiments.published import read_published
from steadynet.report.charts import Chart
from steadynet.report.claims import Claim, ClaimPart, Outcome
from steadynet.report.collect import collect
from steadynet.report.layout import tables_of
from steadynet.report.paper_claims import claims_of
from steadynet.report.records import Experiment
from steadynet.report.table_charts import table_charts

SCALE = "laptop"
FIGURES = ("bars", "radii", "sweep", "pareto", "overview")  # the first of these that a grid has is its figure


@dataclass(frozen=True)
class Published:
    """One grid: its cells at laptop scale, and what is published of it; ``experiment`` is None if nothing is."""

    name: str
    title: str
    planned: list[Cell]
    folder: ExperimentDirectory
    experiment: Experiment | None

    @classmethod
    def read(cls, results: Path, name: str) -> Published:
        """Read a grid and what is published of it."""
        folder = ExperimentDirectory(results / name)
        (experiment,) = collect([folder.path]) if folder.is_experiment() else (None,)
        grid = read_grid(name, experiment.scale if experiment else SCALE)
        return cls(name, grid.title, cells_of(grid), folder, experiment)

    @property
    def keys(self) -> set[str]:
        """The names of the published runs."""
        return {path.name for path in self.folder.runs.glob("*")} if self.experiment else set()

    def claims(self) -> list[tuple[str, Claim]]:
        """The paper's claims in each network's part of the table."""
        tables = tables_of(self.experiment) if self.experiment else []
        return [
            (model, claim) for table in tables for model in table.models for claim in claims_of([table.of_model(model)])
        ]

    def parts(self) -> list[tuple[str, ClaimPart]]:
        """What the claims say about each metric of each network."""
        return [(model, part) for model, claim in self.claims() for part in claim.parts]

    def chart(self) -> Chart | None:
        """The figure of the page."""
        tables = tables_of(self.experiment) if self.experiment else []
        charts = {chart.name.rpartition("-")[2]: chart for table in tables for chart in table_charts(table)}
        return next((charts[kind] for kind in FIGURES if kind in charts), None)


def answer(grid: Published) -> tuple[str, str]:
    """The plain answer to the claim that a grid is about, and what it rests on."""
    parts = grid.parts()
    if not parts:
        return "not enough data", "nothing is published yet" if not grid.experiment else "too little is published yet"
    count = {outcome: sum(part.outcome is outcome for _, part in parts) for outcome in Outcome}
    holds, fails, open_ = (count[one] for one in (Outcome.HOLDS, Outcome.DOES_NOT_HOLD, Outcome.NOT_ENOUGH_DATA))
    why = f"{holds} of {len(parts)} parts hold, {fails} do not, {open_} lack data"
    absent = dict.fromkeys(cell.model for cell in grid.planned if cell.model not in {model for model, _ in parts})
    if absent:
        why += f"; not run: {', '.join(absent)}"
    if not holds:
        return ("does not hold" if fails else "not enough data"), why
    return ("holds in part" if fails or open_ or absent else "holds"), why


def missing(grid: Published) -> str:
    """Which cells of a grid are not published, by network."""
    left: dict[str, dict[str, list[int]]] = {}
    for cell in grid.planned:
        if cell.key not in grid.keys:
            left.setdefault(cell.model, {}).setdefault(cell.variant.label, []).append(cell.seed)
    texts = []
    for model, by_label in left.items():
        whole = {label for label, seeds in by_label.items() if len(seeds) == _seeds(grid, model)}
        if whole == {cell.variant.label for cell in grid.planned if cell.model == model}:
            texts.append(f"{model} (nothing yet)")
            continue
        by_seeds: dict[str, list[str]] = {}
        for label, seeds in by_label.items():
            kind = "" if label in whole else f" with seed{'s' * (len(seeds) > 1)} {' and '.join(map(str, seeds))}"
            by_seeds.setdefault(kind, []).append(f"`{label}`")
        every = len({cell.variant.label for cell in grid.planned if cell.model == model})
        names = [
            f"{'all methods' if kind and len(labels) == every else ', '.join(labels)}{kind}"
            for kind, labels in by_seeds.items()
        ]
        texts.append(f"{model} ({', '.join(names)})")
    return "; ".join(texts)


def _seeds(grid: Published, model: str) -> int:
    return len({cell.seed for cell in grid.planned if cell.model == model})


@dataclass(frozen=True)
class Cost:
    """CPU minutes, and what they were spent on."""

    networks: int
    properties: int
    training: float
    proofs: float

    def in_words(self) -> str:
        """The cost as a sentence."""
        return (
            f"{self.networks} networks took {self.training:,.0f} CPU minutes to train, and {self.properties:,} "
            f"properties {self.proofs:,.0f} CPU minutes to decide."
        )


def cost(grids: Sequence[Published]) -> Cost:
    """What some grids cost. A network that several grids share counts once."""
    runs = {}
    for grid in grids:
        for run in grid.experiment.runs if grid.experiment else ():
            record = read_published(run.folder)
            runs[record.network if record else run.name] = run
    seconds = [epoch.cpu_seconds or 0.0 for run in runs.values() for epoch in run.epochs]
    verdicts = [row.seconds for run in runs.values() for row in run.verdicts]
    return Cost(len(runs), len(verdicts), sum(seconds) / 60, sum(verdicts) / 60)
