"""Tables as Markdown (one table per model), LaTeX (a complete document in the paper's layout) and CSV."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from steadynet.report.layout import Entry, Line, Table
from steadynet.report.metrics import Metric, radius

LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "ε": r"$\varepsilon$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "γ": r"$\gamma$",
    "±": r"$\pm$",
    "–": "--",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "×": r"$\times$",
    "−": "$-$",
}
STRUT = r"\rule{0pt}{3.9ex}"  # keeps the horizontal line above away from a number with its count
MANY_METHODS = 8  # with more of them, a Markdown table has one row per method
MAX_COLUMNS = 18  # columns of numbers in one LaTeX table
PREAMBLE = r"""\documentclass[a4paper,landscape]{article}
\usepackage[T1]{fontenc}
\usepackage[utf8]{inputenc}
\usepackage[margin=1.2cm]{geometry}
\usepackage{graphicx}
\begin{document}
"""


def markdown_text(text: str) -> str:
    r"""Escape text for a Markdown table.

    >>> markdown_text("a|b <i> *c*")
    'a\\|b &lt;i&gt; \\*c\\*'
    """
    text = " ".join(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").split())
    return re.sub(r"([\\|`*_\[\]])", r"\\\1", text)


def latex_text(text: str) -> str:
    r"""Escape text for LaTeX. A letter that LaTeX cannot print becomes a question mark.

    >>> latex_text("rs_1 & 5 %"), latex_text("ε = 0.1"), latex_text("日")
    ('rs\\_1 \\& 5 \\%', '$\\varepsilon$ = 0.1', '?')
    """
    text = " ".join(text.split())
    return "".join(LATEX.get(letter) or (letter if letter.isascii() else _latin(letter)) for letter in text)


def _latin(letter: str) -> str:
    return letter if "\xc0" <= letter <= "\xff" else "?"


def spread(metric: Metric, entry: Entry) -> str:
    """The standard deviation over the seeds, if there are several."""
    return "" if entry.spread is None else f" ± {metric.written(entry.spread).lstrip('+')}"


def counted(entry: Entry) -> str:
    """The fraction behind a percentage (``count/total``), or the number of values behind a mean (``n=total``)."""
    if entry.total is None:
        return ""
    return f"{entry.count}/{entry.total}" if entry.count is not None else f"n={entry.total}"


def facts_in_words(table: Table) -> str:
    """How the numbers of the table were measured, on one line."""
    return "; ".join(f"{key}: {value}" for key, value in table.facts.items())


def as_markdown(table: Table) -> str:
    """Write a table as Markdown: one table per model, with our column beside the paper's for each method.

    Where many methods are compared without the paper's numbers, each method is a row instead of a column.
    """
    parts = [f"## {markdown_text(table.title)}", markdown_text(facts_in_words(table))]
    if table.warning:
        parts.insert(1, markdown_text(table.warning))
    for model in table.models:
        part = table.of_model(model)
        parts.append(f"### {markdown_text(model)}")
        is_long = len(part.columns) > MANY_METHODS and not table.has_paper
        parts.append("\n".join(_markdown_rows(part) if is_long else _markdown_lines(part, table.has_paper)))
    if not table.lines:
        parts.append("There are no results yet.")
    return "\n\n".join(parts) + "\n"


def _markdown_lines(table: Table, has_paper: bool) -> Iterable[str]:
    names = [markdown_text(method) for _, method in table.columns]
    header = ["ε", "metric"]
    for name in names:
        header += [f"{name}, ours", f"{name}, paper"] if has_paper else [name]
    yield f"| {' | '.join(header)} |"
    yield f"|---|---|{'---:|' * (len(header) - 2)}"
    for line in table.lines:
        cells = [radius(line.eps), markdown_text(line.metric.label)]
        for entry in line.entries:
            cells.append(_markdown_entry(line.metric, entry))
            if has_paper:
                cells.append(_bold(line.metric.written(entry.paper), entry.paper_best))
        yield f"| {' | '.join(cells)} |"


def _markdown_rows(table: Table) -> Iterable[str]:
    """The lines of a table with one row per method. A total that all methods have stands in the head of its column."""
    totals = [{entry.total for entry in line.entries if entry.value is not None} for line in table.lines]
    radii = {line.eps for line in table.lines if line.eps is not None}
    header = ["method"]
    for line, total in zip(table.lines, totals, strict=True):
        where = f", ε {radius(line.eps)}" if line.eps is not None and len(radii) > 1 else ""
        count = next(iter(total)) if len(total) == 1 else None
        header.append(markdown_text(line.metric.label + where) + (f" (n={count})" if count else ""))
    yield f"| {' | '.join(header)} |"
    yield f"|---|{'---:|' * (len(header) - 1)}"
    for number, (_, method) in enumerate(table.columns):
        cells = [markdown_text(method)]
        for line, total in zip(table.lines, totals, strict=True):
            entry = line.entries[number]
            shown = replace(entry, count=None, total=None) if len(total) == 1 else entry
            cells.append(_markdown_entry(line.metric, shown))
        yield f"| {' | '.join(cells)} |"


def _markdown_entry(metric: Metric, entry: Entry) -> str:
    if entry.value is None:
        return markdown_text(entry.note) or "–"
    count = counted(entry)
    return _bold(metric.written(entry.value), entry.best) + spread(metric, entry) + (f" ({count})" if count else "")


def _bold(text: str, best: bool) -> str:
    return f"**{text}**" if best else text


def as_latex(tables: Sequence[Table]) -> str:
    """Write a LaTeX document with one page per table. A table that is too wide is split into one per model."""
    pages = [_latex_table(part) for table in tables if table.lines for part in _narrow(table)]
    return PREAMBLE + "\n\\clearpage\n".join(pages or ["There are no results yet."]) + "\n\\end{document}\n"


def _narrow(table: Table) -> list[Table]:
    width = len(table.columns) * (2 if table.has_paper else 1)
    return [table.of_model(model) for model in table.models] if width > MAX_COLUMNS else [table]


def _latex_table(table: Table) -> str:
    width = 2 if table.has_paper else 1
    is_delta = any(line.metric.is_delta for line in table.lines)
    methods = [[method for of, method in table.columns if of == model] for model in table.models]
    columns = "cl|" + "|".join("r" * len(group) * width for group in methods)
    lines = [
        _row("Model", "", [_wide(latex_text(m), len(g) * width) for m, g in zip(table.models, methods, strict=True)]),
        _row("Method", "", [_wide(latex_text(name), width) for group in methods for name in group]),
    ]
    if table.has_paper:
        lines.append(_row("", "", [r"{\scriptsize ours}", r"{\scriptsize paper}"] * len(table.columns)))
    for eps, group in groupby(table.lines, key=lambda line: line.eps):
        lines.append(r"\hline")
        for number, line in enumerate(group):
            where = rf"$\varepsilon={radius(eps)}$" if eps is not None and not number else ""
            lines.append(_row(where + STRUT, line.metric.latex, _latex_cells(line, table.has_paper)))
    bold = latex_text(table.warning) or ("Improvements are bold." if is_delta else "The best numbers are bold.")
    return "\n".join(
        [
            r"\begin{table}[p]\centering",
            r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\hline",
            *lines,
            r"\hline",
            r"\end{tabular}}",
            rf"\caption{{{latex_text(table.title)}. {latex_text(facts_in_words(table))}. {bold} "
            r"The small print below a number is its count and total, or the number $n$ of values in a mean.}",
            r"\end{table}",
        ]
    )


def _row(first: str, second: str, cells: Sequence[str]) -> str:
    return " & ".join([first, second, *cells]) + r" \\"


def _wide(text: str, columns: int) -> str:
    return rf"\multicolumn{{{columns}}}{{c}}{{{text}}}"


def _latex_cells(line: Line, has_paper: bool) -> list[str]:
    cells = []
    for entry in line.entries:
        text = _latex_number(line.metric, entry.value, entry.best) + latex_text(spread(line.metric, entry))
        count = counted(entry)
        cells.append(rf"\shortstack[r]{{{text}\\{{\tiny {count}}}}}" if count else text)
        if has_paper:
            cells.append(_latex_number(line.metric, entry.paper, entry.paper_best))
    return cells


def _latex_number(metric: Metric, value: float | None, best: bool) -> str:
    text = latex_text(metric.written(value))
    return rf"\textbf{{{text}}}" if best else text


COLUMNS = ["table", "model", "method", "eps", "metric", "ours", "spread", "count", "of"]
COLUMNS += ["paper", "best", "paper_best", "note"]


def as_csv(table: Table) -> str:
    """Write a table as CSV, with one row per entry."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for line in table.lines:
        for (model, method), entry in zip(table.columns, line.entries, strict=True):
            values = [table.name, model, method, line.eps, line.metric.name, entry.value, entry.spread]
            values += [entry.count, entry.total, entry.paper, int(entry.best), int(entry.paper_best), entry.note]
            writer.writerow(["" if value is None else value for value in values])
    return text.getvalue()
