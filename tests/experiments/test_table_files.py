"""The files of a table: what is written is read again, and tables of earlier versions are, too."""

from __future__ import annotations

import csv
import json

import pytest

from steadynet.errors import UserError
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.strength_search import AccuracyWindow
from steadynet.experiments.table import TableRow
from steadynet.experiments.table_files import COLUMNS, read_table, write_table
from steadynet.experiments.variants import Variant

BETA = Variant("beta=3", "nbc", {"beta": 3.0, "gamma": (1.0, 2.0)})
TUNED = Variant("nbc@1-2", "nbc", {}, AccuracyWindow(1, 2))
ROWS = [
    TableRow("made", "digits", "M1", BETA, 0, "unsat_percent", 0.1, 40.0, 4, 10, 34.0, "runs/key", "crown"),
    TableRow("made", "digits", "M1", TUNED, 1, "test_acc_percent", None, None),
]


@pytest.fixture
def folder(tmp_path):
    experiment = ExperimentDirectory(tmp_path)
    write_table(experiment, ROWS)
    return experiment


def test_what_is_written_is_read(folder):
    assert read_table(folder, {}) == ROWS


def test_the_fields_of_a_variant_are_columns(folder):
    with folder.table_csv.open(encoding="utf-8", newline="") as file:
        beta, tuned = csv.DictReader(file)
    assert tuple(beta) == COLUMNS
    names = ("label", "method", "settings", "window_low", "window_high", "eps", "value")
    assert [beta[name] for name in names] == ["beta=3", "nbc", "beta=3 gamma=1,2", "", "", "0.1", "40.0"]
    assert [tuned[name] for name in names] == ["nbc@1-2", "nbc", "", "1", "2", "", ""]


def test_an_empty_table_has_its_columns(tmp_path):
    experiment = ExperimentDirectory(tmp_path)
    write_table(experiment, [])
    assert experiment.table_csv.read_text() == ",".join(COLUMNS) + "\n"
    assert read_table(experiment, {}) == []


def test_tables_of_earlier_versions_take_the_fields_from_the_grid(folder):
    content = json.loads(folder.table_json.read_text())
    for row in content:
        row["method"] = row.pop("label")
        del row["settings"], row["window"]
    folder.table_json.write_text(json.dumps(content))
    assert read_table(folder, {"beta=3": BETA, "nbc@1-2": TUNED}) == ROWS
    assert [row.variant for row in read_table(folder, {})] == [Variant.plain("beta=3"), Variant.plain("nbc@1-2")]


def test_there_is_no_table(tmp_path):
    assert read_table(ExperimentDirectory(tmp_path), {}) is None


@pytest.mark.parametrize("text", ["{", "[1]", '[{"method": "nbc"}]', '{"a": 1}'])
def test_a_damaged_table_is_refused(folder, text):
    folder.table_json.write_text(text)
    with pytest.raises(UserError, match=r"table.json is damaged.*"):
        read_table(folder, {})
