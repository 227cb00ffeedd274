"""The table and the summary of ``docs/which-method.md``, from the grid ``methods``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from steadynet.report.layout import Table
from steadynet.report.metrics import metric_named
from steadynet.report.pareto import SECONDS, Network, compared_networks, not_beaten
from steadynet.report.tables import as_markdown

PAGE, FIGURE = Path(__file__).parents[1] / "which-method.md", "methods-pareto.png"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
COLUMNS = "Each cell has a method, its test accuracy, its share of proved properties, and its seconds per proof."
CLOSE, NEARLY = 1.0, 5.0  # points
ALT = "Test accuracy against the share of proved properties for every method; colours are the seconds per proof"


@dataclass(frozen=True)
class Wish:
    """What somebody may want most, and the method that the numbers speak for."""

    words: str
    choose: Callable[[Sequence[Network]], Network | None]


def _accurate(networks: Sequence[Network]) -> Network:
    """Most proofs, of the methods whose accuracy is close to the best one of a method that proves something."""
    best = max((one.accuracy for one in networks if one.proved), default=0.0)
    return max((one for one in networks if one.accuracy >= best - CLOSE), key=lambda one: (one.proved, one.accuracy))


def _fast(networks: Sequence[Network]) -> Network | None:
    """The fastest proofs, of the methods with nearly the most proofs."""
    most = max(one.proved for one in networks)
    timed = [one for one in networks if one.seconds is not None and one.proved >= most - NEARLY]
    return min(timed, key=lambda one: (one.seconds, -one.proved), default=None)


def _best(networks: Iterable[Network]) -> Network | None:
    return max(networks, key=lambda one: (one.accuracy + one.proved, one.accuracy), default=None)


WISHES = (
    Wish(f"as many proofs as possible, at most {CLOSE:g} point below the best accuracy with proofs", _accurate),
    Wish("as many proofs as possible", lambda all_: max(all_, key=lambda one: (one.proved, one.accuracy))),
    Wish("a balance: the largest sum of accuracy and proofs", _best),
    Wish(f"fast proofs, at most {NEARLY:g} points below the most proofs", _fast),
    Wish("the largest sum without certified training", lambda all_: _best(one for one in all_ if not _certified(one))),
    Wish("NBC alone", lambda all_: next((one for one in all_ if one.label == "nbc"), None)),
    Wish("the best method with NBC added", lambda all_: _best(one for one in all_ if one.label.endswith("+nbc"))),
)


def _certified(network: Network) -> bool:
    return "ibp" in network.label or "sabr" in network.label or "taps" in network.label


def answers(found: Mapping[str, Sequence[Network]]) -> str:
    """For each wish the method of each network: accuracy, proofs, seconds per proof."""
    rows = [f"| you want | {' | '.join(found)} |", f"|---|{'---|' * len(found)}"]
    for wish in WISHES:
        cells = [_named(wish.choose(networks)) for networks in found.values()]
        rows.append(f"| {wish.words} | {' | '.join(cells)} |")
    return "\n".join(rows)


def _named(network: Network | None) -> str:
    if network is None:
        return "–"
    seconds = f", {metric_named(SECONDS).written(network.seconds)} s" if network.seconds is not None else ""
    return f"`{network.label}`: {network.accuracy:.1f} %, {network.proved:.1f} %{seconds}"


def unbeaten(title: str, networks: Sequence[Network]) -> str:
    """The methods that no other one beats, in one item of a list."""
    return f"- **{title}**, not beaten: {', '.join(f'`{one.label}`' for one in not_beaten(networks))}."


def results(table: Table, with_figure: bool) -> str:
    """The generated part of the page."""
    found = compared_networks(table)
    text = as_markdown(table).replace("### ", "#### ").replace(f"## {table.title}\n", "### The table\n")
    parts = [f"{COLUMNS}\n\n{answers(found)}", "\n".join(unbeaten(*each) for each in found.items())] if found else []
    figure = [f"![{ALT}](figures/{FIGURE})"] if with_figure else []
    return "\n\n".join([*parts, *figure, text])


def with_results(page: str, text: str) -> str:
    """The page with another generated part."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"a page has no marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{text.strip()}\n\n{END}{after}"
