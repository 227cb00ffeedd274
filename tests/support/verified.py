"""A tiny network that is verified in a moment, and helpers to verify it."""

from __future__ import annotations

import csv

from runs import tiny, write_inputs
from steadynet.cli import main
from steadynet.runs.directory import RunDirectory
from steadynet.verification.verdicts import COLUMNS, read_rows

RADII = ("0.05", "0.3", "0.7")
SELECTION = ("--eps", *RADII, "--per-class", "3", "--timeout", "20")


def train_tiny(folder):
    """A finished run, with what it was made of beside it."""
    write_inputs(folder)
    assert main(["train", *tiny(folder, epochs=4), "--out", str(folder / "run")]) == 0
    return folder / "run"


def said(capsys, *arguments):
    assert main([str(word) for word in arguments]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    return output.out


def refused(capsys, *arguments):
    """The one line with which a mistake is answered."""
    assert main([str(word) for word in arguments]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


def rows_of(run):
    return read_rows(RunDirectory(run))


def found(run):
    return sorted((row.eps, row.index, row.label, row.verdict.value) for row in rows_of(run))


def rewrite(run, change):
    """``verdicts.csv`` with each row as ``change`` makes it, from a dictionary."""
    path = run / "verdicts.csv"
    with path.open(newline="") as file:
        table = list(csv.DictReader(file))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows([change(row) for row in table])
