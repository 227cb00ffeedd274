"""Tables: the paper's layout, best in bold, counts, and text that means itself in Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
import re
import shutil
import subprocess
from dataclasses import replace

import pytest

from reports import experiment, of_the_paper, row, verdict, write_run
from steadynet.report.layout import tables_of
from steadynet.report.single_runs import read_single_runs
from steadynet.report.tables import as_csv, as_latex, as_markdown

HOSTILE = r"<b>a|b</b> \end{table} 100 % _x_ #1 ~^ $y$ & {z} *w* ε 日本 é"


def lines(table):
    """The body of a Markdown table, by metric."""
    found = [line.strip("| ").split(" | ") for line in as_markdown(table).splitlines() if line.startswith("| 0.1")]
    return {cells[1]: cells[2:] for cells in found}


def test_a_table_says_which_method_had_an_l1_term_and_how_attacks_searched(tmp_path):
    rs = "[methods.rs]\nl1_weight = 2e-5\nsteps = 10\n"
    folders = [
        write_run(tmp_path / "rs", [verdict(0)], method="rs", more=rs),
        write_run(tmp_path / "nbc", [verdict(0)], more='[methods.nbc]\nsearch = "fast"\n'),
    ]
    (found,) = read_single_runs(folders)
    assert found.facts["L1 term"] == "2e-05: rs; none: nbc"
    assert found.facts["inner attacks"] == "paper: rs; fast: nbc"
    assert "L1 term: 2e-05: rs; none: nbc" in as_markdown(tables_of(found)[0])
    (found,) = read_single_runs(folders[1:])
    assert "L1 term" not in found.facts


def test_many_methods_are_rows():
    made = []
    for number in range(9):
        made += [row(f"m{number}", "unsat_percent", 10.0 * number, numerator=10 * number, denominator=100)]
        made += [row(f"m{number}", "train_cpu_minutes", 2.0, eps=None, denominator=None)]
        made += [row(f"m{number}", "time_s", 1.0, denominator=100 + number)]  # of different numbers of properties
    (table,) = tables_of(experiment(made))
    text = [line for line in as_markdown(table).splitlines() if line.startswith("|")]
    assert text[:4] == [
        "| method | Training (CPU min) | UNSAT % (n=100) | Time (s) |",
        "|---|---:|---:|---:|",
        "| m0 | 2.0 | 0.0 | **1.00** (n=100) |",
        "| m1 | 2.0 | 10.0 | **1.00** (n=101) |",
    ]
    assert text[10] == "| m8 | 2.0 | **80.0** | **1.00** (n=108) |"
    made += [row("m8", "unsat_percent", 7.0, eps=0.3, denominator=100)]
    (table,) = tables_of(experiment(made))
    assert "| UNSAT %, ε 0.1 (n=100) | Time (s), ε 0.1 | UNSAT %, ε 0.3 (n=100) |" in as_markdown(table)
    assert "| m7 | 2.0 | 70.0 | **1.00** (n=107) | – |" in as_markdown(table)


def test_best_is_bold_whichever_way_is_better():
    made = [row("nbc", "unsat_percent", 90.0), row("rs", "unsat_percent", 80.0)]
    made += [row("nbc", "time_s", 9.0), row("rs", "time_s", 8.0)]
    (table,) = tables_of(experiment(made))
    assert lines(table) == {
        "UNSAT %": ["**90.0** (n=1000)", "80.0 (n=1000)"],
        "Time (s)": ["9.00 (n=1000)", "**8.00** (n=1000)"],
    }


def test_equals_share_the_bold_and_one_alone_has_none():
    (table,) = tables_of(experiment([row("nbc", "unsat_percent", 5.01), row("rs", "unsat_percent", 5.04)]))
    assert [entry.best for entry in table.lines[0].entries] == [True, True]
    (table,) = tables_of(experiment([row("nbc", "unsat_percent", 5.0)]))
    assert [entry.best for entry in table.lines[0].entries] == [False]


def test_each_model_and_window_has_its_best():
    found = of_the_paper("rq3-cifar10")
    (table,) = tables_of(found)
    line = next(line for line in table.lines if line.metric.name == "unsat_percent")
    bold = {column for column, entry in zip(table.columns, line.entries, strict=True) if entry.best}
    assert bold == {(model, f"nbc@{window}") for model in ("C1", "C2", "C3") for window in ("1-2", "6-7")}


def test_paper_and_ours_stand_side_by_side():
    found = of_the_paper("rq1-mnist", lambda row: replace(row, value=row.value / 2))
    text = as_markdown(tables_of(found)[0])
    assert "| ε | metric | trades, ours | trades, paper | madry, ours | madry, paper |" in text
    assert "| 0.1 | UNSAT % | 48.3 (n=1000) | 96.6 | 47.5 (n=1000) | 95.0 |" in text
    assert "**48.6** (n=1000) | **97.2** |" in text
    assert "scale: paper; seeds: 0" in text


def test_a_model_has_lines_of_its_own_radii_only():
    text = as_markdown(tables_of(of_the_paper("sabr"))[0])
    mnist, cifar10 = text.split("### C1")
    assert ("| 0.1 |" in mnist, "| 2/255 |" in mnist) == (True, False)
    assert ("| 0.1 |" in cifar10, "| 2/255 |" in cifar10) == (False, True)
    assert "–" not in text


def test_differences_come_first_and_improvements_are_bold():
    made = [row("rs", "unsat_percent", 10.0), row("rs+nbc", "unsat_percent", 30.0)]
    made += [row("rs+nbc", "unsat_percent_delta", 20.0, denominator=None, paper_value=-4.3)]
    made += [row("rs+nbc", "time_s_delta", 2.0, denominator=None, paper_value=-1.0)]
    differences, values = tables_of(experiment(made))
    assert differences.title == "Made up: differences to the method alone"
    assert lines(differences) == {"UNSAT %": ["**+20.0** (n=1000)", "-4.3"], "Time (s)": ["+2.00", "**-1.00**"]}
    assert [method for _, method in values.columns] == ["rs", "rs+nbc"]


def test_seeds_are_averaged_and_their_counts_added():
    made = [row("nbc", "unsat_percent", value, seed=seed, numerator=10 * value) for seed, value in enumerate((40, 60))]
    (table,) = tables_of(experiment([*made, row("rs", "unsat_percent", 1.0)]))
    assert lines(table)["UNSAT %"][0] == "**50.0** ± 14.1 (1000/2000)"


def hostile():
    made = [row(HOSTILE, "unsat_percent", 1.0, model=HOSTILE), row("nbc", "unsat_percent", 2.0, model=HOSTILE)]
    return tables_of(experiment(made, "made-up", HOSTILE, {"commit": HOSTILE}))[0]


def test_markdown_text_means_itself():
    text = as_markdown(hostile())
    assert "<b>" not in text
    header, rule = [line for line in text.splitlines() if line.startswith("|")][:2]
    assert len(re.findall(r"(?<!\\)\|", header)) == len(re.findall(r"\|", rule))


def test_latex_text_means_itself():
    text = as_latex([hostile()])
    assert r"\textless{}b\textgreater{}a\textbar{}b" in text
    assert r"\textbackslash{}end\{table\} 100 \% \_x\_ \#1 \textasciitilde{}\textasciicircum{} \$y\$ \& \{z\}" in text
    assert text.count(r"\end{table}") == 1


def test_wide_latex_tables_are_one_a_model():
    wide, narrow = (as_latex(tables_of(of_the_paper(name))) for name in ("rq1-cifar10", "sabr"))
    assert wide.count(r"\begin{table}") == 3
    assert [f"{{{model}}}" in wide for model in ("C1", "C2", "C3")] == [True] * 3
    assert narrow.count(r"\begin{table}") == 1


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no TeX here: the tables are not compiled")
def test_latex_compiles(tmp_path):
    tables = [table for name in ("rq1-cifar10", "rq2-mnist", "gamma") for table in tables_of(of_the_paper(name))]
    (tmp_path / "tables.tex").write_text(as_latex([*tables, hostile()]), encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "tables.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    log = (tmp_path / "tables.log").read_text(errors="replace")
    assert "Overfull" not in log
    assert (tmp_path / "tables.pdf").stat().st_size > 10_000


def test_csv_has_a_row_a_number():
    (table,) = tables_of(of_the_paper("beta"))
    rows = list(csv.DictReader(io.StringIO(as_csv(table))))
    assert len(rows) == sum(len(line.entries) for line in table.lines)
    best = [row for row in rows if row["metric"] == "unsat_percent" and row["best"] == "1"]
    assert [(row["method"], row["ours"], row["paper"], row["of"]) for row in best] == [
        ("beta=3", "34.0", "34.0", "1000")
    ]


def test_no_row_no_table():
    (table,) = tables_of(experiment([]))
    assert "There are no results yet" in as_markdown(table)
    assert r"\begin{document}" in as_latex([table])
