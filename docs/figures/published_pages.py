"""Writes the pages of ``docs/results/``, and the generated parts of ``docs/which-method.md`` and of the README.

    python docs/figures/published_pages.py

Every number on them comes from the files in ``results/``. What has not been run is said to be so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import which_method
from larger_networks import Found, larger_networks, which_to_take
from published_grids import SCALE, Published, answer, cost, missing
from steadynet.files import write_text
from steadynet.report.claims import RULE, ClaimPart
from steadynet.report.figures import write_figures
from steadynet.report.layout import tables_of
from steadynet.report.metrics import metric_named
from steadynet.report.pareto import SECONDS, Network, compared_networks, not_beaten
from steadynet.report.tables import as_markdown, facts_in_words, markdown_text

ROOT = Path(__file__).parents[2]
DOCS, RESULTS = ROOT / "docs", ROOT / "results"
MARK = "<!-- Generated from results/ by make results: do not edit. -->"
INTRODUCTION = """\
These pages hold what is published in the folder `results/` of the repository: our numbers beside the paper's. Cells are
published as they are finished, whatever comes out. `make results` writes these pages from the files, and a test checks
their numbers."""
PARTS = """\
A *part* is what the claim says of one metric of one network, over all radii and methods. A claim *holds in part* if
some parts hold, and others do not, lack data or have not been run."""
MEASURED = f"""\
All grids have the scale `{SCALE}`: fewer epochs than the paper, fewer images and less time per proof, on processors
instead of GPUs. The line above each table sums up the settings; `grid.toml` in the folder of the grid has all of them.
The times of proofs are CPU seconds of one thread. The paper's are seconds of α,β-CROWN on GPUs, so times can be
compared between methods, but not with the paper. The paper's own scale (400 epochs, its images and time-outs) has not
been run."""
HEADLINE = "M1@0.3"  # the network and radius of the README
NOT_RUN = "<!-- not run: many hours, and data that is downloaded -->"


@dataclass(frozen=True)
class Question:
    """One page: a research question of the paper, its claim, and the grids that answer it."""

    page: str
    name: str
    claim: str
    grids: tuple[str, ...]


EASIER = "(more properties are proved, more neurons are stable, proofs and time-outs take less time)"
QUESTIONS = (
    Question(
        "rq1",
        "RQ1",
        f"NBC alone gives networks that are easier to verify than those of TRADES, Madry and RS {EASIER}.",
        ("rq1-mnist", "rq1-fashion-mnist", "rq1-cifar10"),
    ),
    Question(
        "rq2",
        "RQ2",
        f"Adding NBC to a method makes its networks easier to verify {EASIER}.",
        ("rq2-mnist", "rq2-fashion-mnist", "rq2-cifar10"),
    ),
    Question(
        "rq3",
        "RQ3",
        f"At similar test accuracy, NBC gives networks that are easier to verify than the other methods {EASIER}.",
        ("rq3-cifar10",),
    ),
    Question(
        "gamma",
        "γ",
        "A γ that is looser on large layers raises accuracy and lowers the share of stable neurons.",
        ("gamma",),
    ),
    Question("beta", "β", "A larger β makes networks easier to verify and lowers accuracy.", ("beta",)),
    Question("sabr", "SABR", "NBC gives higher accuracy than SABR, and more properties are proved.", ("sabr",)),
)


def _commands(grid: Published) -> str:
    data = " ".join(sorted({cell.data for cell in grid.planned}))
    lines = [f"steadynet data fetch {data}", f"steadynet reproduce {grid.name} --scale {SCALE} --workers 2"]
    if grid.experiment:
        lines.append(f"steadynet report results/{grid.name} --open  # what is published")
    return "\n".join([NOT_RUN, "```bash", *lines, "```"])


def section(grid: Published) -> Iterator[str]:
    """The part of a page about one grid."""
    yield f"## {grid.title} (`{grid.name}`)"
    if not grid.experiment:
        yield "**Not enough data**: nothing of this grid is published at this scale yet."
        yield _commands(grid)
        return
    said, why = answer(grid)
    yield f"**The claim: {said}** ({why})."
    if parts := grid.parts():
        yield "\n".join(_claim_rows(parts))
    left = missing(grid)
    yield f"**Not run yet**: {left}." if left else "All cells of this grid have been run."
    if outdated := len(grid.keys - {cell.key for cell in grid.planned}):
        yield f"{outdated} published cells have settings that the grid no longer has."
    if chart := grid.chart():
        yield f"![{chart.title}](../figures/{_figure(grid)})"
    tables = tables_of(grid.experiment)
    yield markdown_text(facts_in_words(tables[0])) + "."
    for table in tables:
        text = as_markdown(replace(table, facts={})).replace("\n\n\n\n", "\n\n")
        yield text.replace("### ", "#### ").replace("## ", "### ", 1).strip()
    yield f"{cost([grid]).in_words()} The commands:"
    yield _commands(grid)


def _claim_rows(parts: Sequence[tuple[str, ClaimPart]]) -> Iterator[str]:
    yield "| network | the claim says | outcome | what was found | by the paper's own numbers |"
    yield "|---|---|---|---|---|"
    for model, part in parts:
        found = markdown_text(part.reason)
        yield f"| {model} | {part.text} | **{part.outcome.value}** | {found} | {part.paper_outcome.value} |"


def _figure(grid: Published) -> str:
    return which_method.FIGURE if grid.name == "methods" else f"results-{grid.name}.png"


def question_page(question: Question, grids: Sequence[Published]) -> str:
    """The page of one research question."""
    parts = [MARK, f"# {question.name}", f"The paper's claim: {question.claim}"]
    parts.append("How it is measured, and what the outcomes mean, is on the [summary page](index.md).")
    for grid in grids:
        parts += section(grid)
    return "\n\n".join(parts) + "\n"


def summary_page(found: dict[Question, list[Published]], methods: Published) -> str:
    """The page with all claims."""
    grids = [grid for of_question in found.values() for grid in of_question]
    rows = ["| question | grid | cells | the claim | why |", "|---|---|---|---|---|"]
    for question, of_question in found.items():
        for grid in of_question:
            said, why = answer(grid)
            there = sum(cell.key in grid.keys for cell in grid.planned)
            rows.append(
                f"| [{question.name}]({question.page}.md) | `{grid.name}` | {there} of {len(grid.planned)} "
                f"| **{said}** | {why} |"
            )
    there = sum(cell.key in methods.keys for cell in methods.planned)
    claims = "\n".join(f"- [{question.name}]({question.page}.md): {question.claim}" for question in found)
    beside = (
        f"[Which method?](../which-method.md) compares every method: {there} of {len(methods.planned)} cells are there."
    )
    spent = f"{cost([*grids, methods]).in_words()} A network that several grids share counts once."
    rule = f"{RULE} The last column of a table of parts applies the same rule to the paper's numbers."
    parts = [MARK, "# The paper's claims", INTRODUCTION, "## All claims", claims, "\n".join(rows), PARTS, beside]
    return "\n\n".join([*parts, "## How it is measured", MEASURED, spent, rule]) + "\n"


def readme_part(methods: Published, others: Mapping[str, Published]) -> str:
    """The figure and the table of the README, once every method has been run on M1 at ε = 0.3."""
    planned = {cell.variant.label for cell in methods.planned if cell.model == HEADLINE}
    networks = next((found for title, found in _compared(methods).items() if title.startswith(f"{HEADLINE},")), [])
    if planned - {network.label for network in networks}:
        return (
            "The paper's tables are being run, one network after the other. [The summary](docs/results/index.md) says "
            "which claims of the paper hold so far, and what has not been run yet."
        )
    best = not_beaten(networks)
    shown = sorted(
        (one for one in networks if one in best or one.label == "nbc"), key=lambda one: -one.accuracy - one.proved
    )
    rows = ["| method | test accuracy | proved, ε = 0.3 | seconds per proof |", "|---|---|---|---|"]
    for one in shown:
        name = f"`{one.label}`" if one in best else f"`{one.label}` (beaten)"
        seconds = metric_named(SECONDS).written(one.seconds)
        rows.append(f"| {name} | {one.accuracy:.1f} % | {one.proved:.1f} % | {seconds} |")
    text = (
        f"M1 on MNIST, trained by {len(networks)} methods for equal CPU minutes. The table has `nbc`, and the methods "
        "that no other one beats in accuracy, proofs and time per proof together ([how it was "
        "measured](docs/which-method.md), [which of the paper's claims hold](docs/results/index.md))."
    )
    figure = f"![{which_method.ALT}](docs/figures/{which_method.FIGURE})"
    small = {one.label: Found(one.accuracy, one.proved) for one in networks}
    more = [part for part in (larger_networks(others), which_to_take(small, others)) if part]
    return "\n\n".join([f"{MARK}\n{text}", figure, "\n".join(rows), *more])


def _compared(methods: Published) -> dict[str, list[Network]]:
    return compared_networks(tables_of(methods.experiment)[-1]) if methods.experiment else {}


def methods_part(methods: Published) -> str:
    """The generated part of the page "Which method should I use?"."""
    if not methods.experiment:
        return "Nothing of this grid has been run and published yet."
    left = missing(methods)
    note = f"**Not run yet**: {left}." if left else "All cells have been run."
    table = tables_of(methods.experiment)[-1]
    text = which_method.results(table, with_figure=methods.chart() is not None)
    return f"{note} {cost([methods]).in_words()}\n\n{text}"


def pages(results: Path) -> dict[str, str]:
    """All generated pages by their path, with the whole text of pages that are generated in part."""
    found = {question: [Published.read(results, name) for name in question.grids] for question in QUESTIONS}
    methods = Published.read(results, "methods")
    texts = {f"docs/results/{question.page}.md": question_page(question, grids) for question, grids in found.items()}
    texts["docs/results/index.md"] = summary_page(found, methods)
    others = {grid.name: grid for grids in found.values() for grid in grids}
    for page, text in (("docs/which-method.md", methods_part(methods)), ("README.md", readme_part(methods, others))):
        texts[page] = which_method.with_results((ROOT / page).read_text(encoding="utf-8"), text)
    return texts


def draw(results: Path, folder: Path) -> None:
    """Write the figure of each published grid."""
    names = ["methods", *(name for question in QUESTIONS for name in question.grids)]
    for grid in [Published.read(results, name) for name in names]:
        if chart := grid.chart():
            with TemporaryDirectory() as place:
                png = next(path for path in write_figures([chart], Path(place)) if path.suffix == ".png")
                (folder / _figure(grid)).write_bytes(png.read_bytes())


def main() -> None:
    """Write all pages and figures."""
    for page, text in pages(RESULTS).items():
        write_text(ROOT / page, text)
    draw(RESULTS, DOCS / "figures")


if __name__ == "__main__":
    main()
