"""The README's table of larger networks beside the paper's numbers, and which method to take."""

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
FAR = Setting("C2, CIFAR-10, ε = 8/255", "C2", 8 / 255, ("rq1-cifar10", "rq2-cifar10"))
METHODS = ("madry", "trades", "rs", "nbc", "madry+nbc", "trades+nbc", "rs+nbc")
LEAST = 3  # methods, with which a network gets its column
TEXT = (
    "Larger networks, where the paper's claim is strongest: test accuracy and proved properties, with the paper's "
    "share of proved properties behind ours. Ours had 10 to 41 CPU minutes of training, the paper's 400 epochs on "
    "GPUs. The verifiers and time-outs differ, so compare the order of the methods, not one number with the other "
    "([all numbers](docs/results/index.md))."
)


@dataclass(frozen=True)
class Found:
    """What a method reached: test accuracy and proved properties in percent, and the paper's proved properties."""

    accuracy: float
    proved: float
    paper: float | None = None

    def __str__(self) -> str:
        return f"{self.accuracy:.1f} %, {self.proved:.1f} %"

    @property
    def beside_paper(self) -> str:
        """The same with the paper's number behind it."""
        return str(self) if self.paper is None else f"{self} (paper {self.paper:.1f} %)"


def larger_networks(grids: Mapping[str, Published]) -> str:
    """The table; empty if too little is published."""
    columns = _columns(grids)
    if not columns:
        return ""
    rows = [f"| method | {' | '.join(columns)} |", f"|---|{'---|' * len(columns)}"]
    for method in METHODS:
        found = [cells[method].beside_paper if method in cells else "not run yet" for cells in columns.values()]
        rows.append(f"| `{method}` | {' | '.join(found)} |")
    return f"{TEXT}\n\n" + "\n".join(rows)


def which_to_take(small: Mapping[str, Found], grids: Mapping[str, Published]) -> str:
    """In words, where NBC is the best choice and where it is not.

    Args:
        small: what each method reaches on M1 at ε = 0.3.
        grids: the grids of the larger networks.
    """
    columns = list(_columns(grids).values())
    if len(columns) < len(SETTINGS):
        return ""
    m3, c2 = columns
    far = _cells(FAR, [grids[name] for name in FAR.grids])
    most = max(small, key=lambda name: small[name].proved)
    parts = [
        "Which one to take (accuracy, proved):",
        "",
        "- *NBC alone* keeps accuracy on larger networks and makes them provable: M3 at ε = 0.2 has " + _listed(m3),
        "- *Certified training, or RS with NBC,* gives more and faster proofs at a large radius, for some accuracy: on "
        "M1 at ε = 0.3, " + _listed(small, (most, "rs+nbc", "nbc", "rs", "madry")),
        "- *On CIFAR-10*, NBC keeps most accuracy, and RS proves more at large radii: C2 at ε = 4/255 has "
        f"{_listed(c2)} At 8/255, {_listed(far)}",
    ]
    return "\n".join(parts)


def _listed(found: Mapping[str, Found], names: Sequence[str] = ("nbc", "rs", "rs+nbc", "trades", "madry")) -> str:
    return "; ".join(f"`{name}` {found[name]}" for name in dict.fromkeys(names) if name in found) + "."


def _columns(grids: Mapping[str, Published]) -> dict[str, dict[str, Found]]:
    """Per setting and method, what was found, where enough methods are there."""
    columns = {setting.title: _cells(setting, [grids[name] for name in setting.grids]) for setting in SETTINGS}
    return {title: cells for title, cells in columns.items() if len(cells) >= LEAST}


def _cells(setting: Setting, grids: Sequence[Published]) -> dict[str, Found]:
    """Per method, what was found."""
    cells: dict[str, Found] = {}
    for table in (tables_of(grid.experiment)[-1] for grid in grids if grid.experiment):
        lines = {(line.metric.name, line.eps): table.entries(line) for line in table.lines}
        accuracy = lines.get((ACCURACY, None), {})
        proved = next((found for (name, eps), found in lines.items() if name == PROVED and _same(eps, setting.eps)), {})
        for column, entry in proved.items():
            if column[0] == setting.model and entry.value is not None and accuracy[column].value is not None:
                cells.setdefault(column[1], Found(accuracy[column].value, entry.value, entry.paper))
    return cells


def _same(one: float | None, other: float) -> bool:
    return one is not None and abs(one - other) < 1e-6
