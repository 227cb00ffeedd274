"""The table and the summary of ``docs/which-method.md``, from the grid ``methods``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from steadynet.report.layout import Table
from steadynet.report.metrics import metric_named
from steadynet.report.pareto import SECONDS, Network, compared_networks, not_beaten
from steadynet.report.tables import as_markdown

PAGE, FIGURE = Path(__file__).parents[1] / "which-method.md", "methods-pareto.png"
BEGIN, END = "<!-- results: begin -->", "<!-- results: end -->"
ALT = "Test accuracy against the share of proved properties for every method; colours are the seconds per proof"


def summary(title: str, networks: Sequence[Network]) -> str:
    """What the figure shows of one network and radius, in one item of a list."""
    proved, accurate = max(networks, key=lambda one: one.proved), max(networks, key=lambda one: one.accuracy)
    both = max(networks, key=lambda one: one.accuracy + one.proved)
    timed = [one for one in networks if one.seconds is not None]
    fastest = min(timed, key=lambda one: one.seconds or 0.0, default=None)
    parts = [f"most proofs {_named(proved)}", f"highest accuracy {_named(accurate)}", f"largest sum {_named(both)}"]
    if fastest:
        parts.append(f"fastest proofs {_named(fastest)}, {metric_named(SECONDS).written(fastest.seconds)} s each")
    best = ", ".join(f"`{one.label}`" for one in not_beaten(networks))
    return f"- **{title}**: {'; '.join(parts)}. Not beaten: {best}."


def _named(network: Network) -> str:
    return f"`{network.label}` ({network.accuracy:.1f} % accuracy, {network.proved:.1f} % proved)"


def results(table: Table, with_figure: bool) -> str:
    """The generated part of the page."""
    found = compared_networks(table)
    parts = [summary(title, networks) for title, networks in found.items()]
    text = as_markdown(table).replace("### ", "#### ").replace(f"## {table.title}\n", "### The table\n")
    figure = f"![{ALT}](figures/{FIGURE})\n\n" if with_figure else ""
    return "\n".join(parts) + ("\n\n" if parts else "") + figure + text


def with_results(page: str, text: str) -> str:
    """The page with another generated part."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"a page has no marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{text.strip()}\n\n{END}{after}"
