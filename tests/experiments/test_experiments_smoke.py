"""Every experiment of steadynet, from training to its table, on a few images."""

from __future__ import annotations

import json

import pytest

from grids import command_line_on_few_digits, reproduce
from steadynet.cli import main
from steadynet.experiments.cells import cells_of
from steadynet.experiments.grid import names, read_grid
from steadynet.experiments.paper_numbers import paper_numbers
from steadynet.experiments.table import MISSED
from steadynet.report.write import write_report


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """The folder of the experiments that are done: what has the same configuration is trained and verified once."""
    return tmp_path_factory.mktemp("experiments")


@pytest.mark.parametrize("name", [name for name in names() if paper_numbers(name)])
def test_it_runs(name, done):
    earlier = [str(path) for path in done.iterdir() if path.is_dir()]
    reuse = ["--reuse", *earlier] if earlier else []
    code, output = reproduce(name, done / name, "--scale", "smoke", *reuse, target=command_line_on_few_digits)
    assert code == 0, output
    rows = json.loads((done / name / "table.json").read_text())
    cells = {(cell.model, cell.variant.label) for cell in cells_of(read_grid(name, "smoke"), [0])}
    assert {(row["model"], row["label"]) for row in rows} == cells
    without = {row["metric"] for row in rows if row["value"] is None and row["note"] != MISSED}
    of_some = {"time_unsat_timeout_s", "stable_percent"}
    assert without <= of_some | {f"{metric}_delta" for metric in of_some}, (
        "means over properties of which there are none"
    )
    assert any(row["note"] == MISSED for row in rows) == (name == "rq3-cifar10")
    assert any(row["paper_value"] is not None for row in rows)
    assert "the paper's" in output


def test_the_grid_of_all_methods_runs(done):
    chosen = ["natural", "nbc", "madry+awp", "taps"]
    words = ["--scale", "smoke", "--only", "model=M1@0.1,M1@0.3", f"method={','.join(chosen)}"]
    code, output = reproduce("methods", done / "methods", *words, target=command_line_on_few_digits)
    assert code == 0, output
    rows = json.loads((done / "methods" / "table.json").read_text())
    assert {(row["model"], row["label"], row["seed"]) for row in rows} == {
        (model, label, seed) for label in chosen for model, seed in (("M1@0.1", 0), ("M1@0.3", 0), ("M1@0.3", 1))
    }
    assert {row["eps"] for row in rows if row["model"] == "M1@0.3"} == {None, 0.3}
    assert not any(row["paper_value"] for row in rows)
    assert "the paper's" not in output
    page = write_report([done / "methods"], done / "methods-report", max_pictures=0)
    table = (page.parent / "tables" / "methods.md").read_text()
    assert "Training (CPU min)" in table
    assert "paper" not in table.partition("### ")[2]
    assert "seeds: 0 (M1@0.1); 0, 1 (M1@0.3)" in table
    assert (page.parent / "figures" / "methods-pareto.png").is_file()


def test_as_a_user_starts_it(tmp_path, capfd):
    """In this process, with workers that the forkserver starts, as for every user."""
    words = ["--scale", "smoke", "--only", "model=M1", "method=nbc", "--workers", "1", "--out", str(tmp_path / "out")]
    assert main(["reproduce", "sabr", *words]) == 0
    output = capfd.readouterr()
    assert "M1 on digits" in output.out
    assert "3/3 M1-nbc-seed-0" in output.err
