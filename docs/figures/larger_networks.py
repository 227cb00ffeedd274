"""The README's table of larger networks: what each method proves of M3 and C2, beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from published_grids import Published
from steadynet.report.layout import tables_of
from steadynet.report.pareto import ACCURACY, PROVED


@dataclass(frozen=True)
class Setting:
    """A network, one radius, and the grids that have its methods."""

    title: str
    model: str
    eps: float
    grids: tuple[str, ...]


SETTINGS = (
    Setting("M3, MNIST, ε = 0.2", "M3", 0.2, ("rq1-mnist", "rq2-mnist")),
    Setting("C2, CIFAR-10, ε = 4/255", "C2", 4 / 255, ("rq1-cifar10", "rq2-cifar10")),
)
METHODS = ("madry", "trades", "rs", "nbc", "madry+nbc", "trades+nbc", "rs+nbc")
LEAST = 3  # methods, with which a network gets its column
TEXT = (
    "Larger networks, where the paper's claim is strongest: test accuracy and proved properties, with the paper's "
    "share of proved properties behind ours. Ours had 10 to 41 CPU minutes of training, the paper's 400 epochs on "
    "GPUs. The verifiers and time-outs differ, so compare the order of the methods, not one number with the other "
    "([all numbers](docs/results/index.md))."
)


def larger_networks(grids: Mapping[str, Published]) -> str:
    """The table; empty if too little is published."""
    columns = {setting.title: _cells(setting, [grids[name] for name in setting.grids]) for setting in SETTINGS}
    columns = {title: cells for title, cells in columns.items() if len(cells) >= LEAST}
    if not columns:
        return ""
    rows = [f"| method | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for method in METHODS:
        found = [cells.get(method, "not run yet") for cells in columns.values()]
        rows.append(f"| `{method}` | {' | '.join(found)} |")
    return f"{TEXT}\n\n" + "\n".join(rows)


def _cells(setting: Setting, grids: Sequence[Published]) -> dict[str, str]:
    """Per method, accuracy and proofs in words."""
    cells = {}
    for table in (tables_of(grid.experiment)[-1] for grid in grids if grid.experiment):
        lines = {(line.metric.name, line.eps): table.entries(line) for line in table.lines}
        accuracy = lines.get((ACCURACY, None), {})
        proved = next((found for (name, eps), found in lines.items() if name == PROVED and _same(eps, setting.eps)), {})
        for column, entry in proved.items():
            if column[0] == setting.model and entry.value is not None and accuracy[column].value is not None:
                paper = f" (paper {entry.paper:.1f} %)" if entry.paper is not None else ""
                cells.setdefault(column[1], f"{accuracy[column].value:.1f} %, {entry.value:.1f} %{paper}")
    return cells


def _same(one: float | None, other: float) -> bool:
    return one is not None and abs(one - other) < 1e-6
