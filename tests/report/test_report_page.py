"""The report of real, small runs and of a smoke-scale experiment: its files, its page, and hostile text in them."""

from __future__ import annotations

import base64
import json
import re
import shutil

import numpy as np
import pytest

from grids import reproduce
from reports import verdict, write_run
from runs import write_inputs
from steadynet.cli import main
from steadynet.report.collect import collect
from steadynet.report.content import make_report
from steadynet.report.interactive import plotly_source
from steadynet.report.page import page_of
from steadynet.runs.directory import RunDirectory
from steadynet.runs.trained import load_trained
from steadynet.verification.properties import Verdict
from steadynet.verification.verdicts import load_counterexample, read_rows
from verified import refused, said

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


# the comparison with SABR on one network, which is tiny; its names are the paper's, so it is set beside its numbers
GRID = """
name = "sabr"
title = "SABR and nbc"

[training]
data = "{folder}/small.npz"
eps = 0.1
epochs = 2
batch_size = 32
lr = 0.01

[verification]
eps = [0.1]
per_class = 3

[evaluation]
pgd_steps = 3

[models.M1]
network = "{folder}/net.py:tiny"

[methods.sabr]

[methods.nbc]

[scales.smoke]
training = {{ epochs = 1 }}
"""


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    folder = tmp_path_factory.mktemp("smoke")
    write_inputs(folder)
    (folder / "grid.toml").write_text(GRID.format(folder=folder))
    code, output = reproduce(folder / "grid.toml", folder / "sabr", "--scale", "smoke")
    assert code == 0, output
    return folder / "sabr"


def data_of(page):
    """What a page shows, as its script reads it."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_a_run_becomes_a_report(whole, tmp_path, capsys):
    evaluated = shutil.copytree(whole, tmp_path / "runs" / "first")
    said(capsys, "evaluate", evaluated, "--eps", "0.05", "--pgd-steps", "2")
    out = tmp_path / "report"
    assert said(capsys, "report", tmp_path / "runs", "--out", out) == f"written: {out / 'index.html'}\n"
    found = {path.relative_to(out).as_posix() for path in out.rglob("*.*")}
    assert {"index.html", "report.md", *(f"tables/runs-small.npz.{kind}" for kind in ("md", "tex", "csv"))} <= found
    for name in ("verdicts", "radii", "cactus", "training"):
        assert {f"figures/runs-small.npz-{name}.png", f"figures/runs-small.npz-{name}.svg"} <= found
    assert "figures/runs-small.npz-layers.png" not in found  # the network has one layer: that is no figure
    assert "| 0.05 | PGD-2 % |" in (out / "tables" / "runs-small.npz.md").read_text()
    report = (out / "report.md").read_text()
    assert "claims" not in report  # no table has data on one
    assert "by steadynet 0." in report


def test_the_table_says_what_the_verdicts_say(whole):
    page = data_of(page_of(make_report([whole])))
    (table,) = page["experiments"][0]["tables"]
    rows = read_rows(RunDirectory(whole))
    for shown in table["rows"]:
        there = [row for row in rows if row.eps == shown["eps"]]
        proved = sum(row.verdict is Verdict.UNSAT for row in there)
        entries = dict(zip([metric["label"] for metric in table["metrics"]], shown["entries"], strict=True))
        assert entries["Proved %"]["count"] == f"{proved}/{len(there)}"
    assert len(page["gallery"]["columns"]["run"]) == len(rows)


def test_a_zero_is_a_number(tmp_path):
    """A share of 0 is shown and sorted like any other; a note beside it does not take its place."""
    run = write_run(tmp_path / "run", [verdict(0, verdict=Verdict.TIMEOUT, stable_share=0.0)])
    (table,) = data_of(page_of(make_report([run])))["experiments"][0]["tables"]
    (shown,) = table["rows"]
    entries = dict(zip([metric["label"] for metric in table["metrics"]], shown["entries"], strict=True))
    assert [entries[label]["value"] for label in ("Proved %", "Stable neurons %")] == [0.0, 0.0]


def test_pictures_are_the_image_and_the_counterexample(whole):
    run = RunDirectory(whole)
    gallery = data_of(page_of(make_report([whole])))["gallery"]
    columns = gallery["columns"]
    refuted = [number for number, found in enumerate(columns["difference"]) if found]
    assert refuted == [number for number, label in enumerate(columns["predicted"]) if label is not None]
    assert refuted
    network = load_trained(whole).network
    rows = {(row.eps, row.index): row for row in read_rows(run)}
    for number in refuted:
        eps = columns["eps"][number]
        image = np.frombuffer(base64.b64decode(gallery["pictures"][columns["picture"][number]]), np.uint8) / 255
        steps = np.frombuffer(base64.b64decode(columns["difference"][number]), np.int8) / 127 * eps
        stored = load_counterexample(run, rows[eps, columns["index"][number]])
        assert np.abs(image + steps - stored.flatten().numpy()).max() <= eps / 100
        assert columns["predicted"][number] == int(network(stored[None]).argmax()) != columns["label"][number]


def test_pictures_can_be_limited(whole):
    gallery = data_of(page_of(make_report([whole]), max_pictures=1))["gallery"]
    assert sum(found is not None for found in gallery["columns"]["difference"]) == 1
    assert "not drawn" in gallery["notes"][0]


def test_an_experiment_at_smoke_scale(smoke, tmp_path, capsys):
    said(capsys, "report", smoke, "--out", tmp_path, "--no-figures")
    page = data_of((tmp_path / "index.html").read_text())
    facts = dict(page["experiments"][0]["facts"])
    assert {"scale", "seeds", "hardware", "date", "verifier", "time-out"} <= set(facts)
    assert facts["scale"] == "smoke"
    meaning = "proved for float32 execution in any order of summation (guarantee: checked)"
    assert facts["meaning of proved"] == meaning
    assert meaning in page["gallery"]["guarantees"]
    text = (tmp_path / "tables" / "sabr.md").read_text()
    assert "| ε | metric | sabr, ours | sabr, paper | nbc, ours | nbc, paper |" in text
    assert re.search(r"\| 0\.1 \| UNSAT % \| .*/\d.* \| 22\.0 \| .* \| \*\*100\.0\*\* \|", text)
    (claim,) = page["experiments"][0]["claims"]
    assert (claim["name"], claim["outcome"], claim["paperOutcome"]) == ("SABR", "NOT_ENOUGH_DATA", "HOLDS")
    assert {part["reason"] for part in claim["parts"]} == {"numbers at smoke scale mean nothing"}
    assert not any(part["comparisons"] for part in claim["parts"])
    report = (tmp_path / "report.md").read_text()
    assert "## The paper's claims" in report
    assert "RQ1" not in report, "only claims that the grid speaks of are shown"
    assert any(run for row in page["experiments"][0]["tables"][0]["rows"] for run in row["runs"] or [0])


def test_a_grid_that_still_runs(smoke, tmp_path):
    """Without a table and with half of its verdicts: what is there is shown, the rest is not made up."""
    grid = shutil.copytree(smoke, tmp_path / "sabr")
    (grid / "table.json").unlink()
    for run in (grid / "runs").iterdir():
        lines = (run / "verdicts.csv").read_text().splitlines(keepends=True)
        (run / "verdicts.csv").write_text("".join(lines[:2]))
    (found,) = collect([grid])
    values = {(row.label, row.metric): row.value for row in found.rows}
    assert values["nbc", "unsat_percent"] is None
    assert values["nbc", "test_acc_percent"] is not None
    assert sum(len(run.verdicts) for run in found.runs) == 2


def test_hostile_text_stays_text(tmp_path):
    rows = [verdict(0, reason=HOSTILE, decided_by=HOSTILE, settings=HOSTILE, data=HOSTILE, verifier=HOSTILE)]
    write_run(tmp_path / "<b>run", rows, method=HOSTILE, data=HOSTILE, model=HOSTILE)
    page = page_of(make_report([tmp_path / "<b>run"]))
    assert "<img src=x" not in page
    assert "</script><script>alert" not in page
    assert page.count("<script") - plotly_source().count("<script") == 3
    assert data_of(page)["gallery"]["columns"]["reason"] == [HOSTILE]


def test_the_page_asks_for_nothing(tmp_path):
    write_run(tmp_path / "run", [verdict(0)])
    page = page_of(make_report([tmp_path / "run"])).replace(plotly_source(), "")
    assert re.findall(r"""(?:src|href)\s*=\s*["'][^"']*["']""", page) == ['href="data:,"']
    assert not re.search(r"https?://", page)
    assert "default-src 'none'" in page


def test_two_runs_of_a_kind_are_told_apart(tmp_path):
    for folder in ("a/one", "a/two", "b/two"):
        write_run(tmp_path / folder, [verdict(0)])
    (found,) = collect([tmp_path / "a", tmp_path / "b"])
    assert [run.label for run in found.runs] == ["nbc (one)", "nbc (a/two)", "nbc (b/two)"]


def test_the_verifier_that_decided_most_is_shown(tmp_path):
    rows = [verdict(number, verifier="ours") for number in range(3)] + [verdict(0, verifier="other")]
    rows.append(verdict(1, verifier="ours", verdict=Verdict.TIMEOUT, key="of a corrected version"))
    (found,) = collect([write_run(tmp_path / "run", rows)])
    assert {row.verifier for row in found.runs[0].verdicts} == {"ours"}
    expected = [(0, Verdict.UNSAT), (1, Verdict.TIMEOUT), (2, Verdict.UNSAT)]
    assert sorted((row.index, row.verdict) for row in found.runs[0].verdicts) == expected


def test_data_that_is_not_here_is_said(tmp_path):
    write_run(tmp_path / "run", [verdict(0, data="gone.npz")], data="gone.npz")
    gallery = data_of(page_of(make_report([tmp_path / "run"])))["gallery"]
    assert gallery["notes"] == ["No pictures: the data set gone.npz is not on this machine."]


def test_mistakes_are_one_line(tmp_path, capsys, monkeypatch):
    assert "holds no runs" in refused(capsys, "report", tmp_path)
    assert "missing does not exist: give run directories" in refused(capsys, "report", tmp_path / "missing")
    run = write_run(tmp_path / "run", [verdict(0)])
    (run / "evaluation.json").write_text("{")
    assert "evaluation.json is damaged: move it away" in refused(capsys, "report", run)
    (run / "evaluation.json").unlink()
    (tmp_path / "file").write_text("")
    assert "cannot write" in refused(capsys, "report", run, "--out", tmp_path / "file")
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    assert "pip install 'steadynet[report]'" in refused(capsys, "report", run, "--out", tmp_path / "out")


def test_open_shows_the_page(tmp_path, monkeypatch, capsys):
    opened = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    run = write_run(tmp_path / "run", [verdict(0)])
    assert main(["report", str(run), "--out", str(tmp_path / "out"), "--no-figures", "--open"]) == 0
    assert opened == [(tmp_path / "out" / "index.html").as_uri()]
