"""The pages of docs/results: every number is in the published files, and they say what has not been run."""

from __future__ import annotations

import csv
import json
import re
import shutil
import sys
from pathlib import Path
from statistics import fmean

import pytest

from few_digits import load_few
from pages import ROOT
from published import Inline
from steadynet.data.digits import Digits
from steadynet.experiments import runner
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.grid import names, read_grid
from steadynet.experiments.publishing import publish
from steadynet.report.claims import Outcome

sys.path.insert(0, str(ROOT / "docs" / "figures"))
import published_grids
from larger_networks import larger_networks
from published_grids import Published, answer, missing
from published_pages import QUESTIONS, RESULTS, draw, pages


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """A part of two grids at smoke scale, published."""
    folder = tmp_path_factory.mktemp("pages")
    parts = {
        "rq2-mnist": {"model": ["M1"], "method": ["rs", "rs+nbc"]},
        "methods": {"model": ["M1@0.3"], "method": ["natural", "nbc"]},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Digits, "load", load_few)
        for name, only in parts.items():
            outcome = runner.reproduce(read_grid(name, "smoke"), folder / name, Inline(), only=only)
            assert not outcome.failures
            publish(ExperimentDirectory(folder / name), folder / "results")
    return folder / "results"


def test_the_pages_are_those_of_the_published_files():
    for page, text in pages(RESULTS).items():
        assert (ROOT / page).read_text(encoding="utf-8") == text, f"{page} is out of date: make results"


def test_every_grid_has_a_page():
    shown = [name for question in QUESTIONS for name in question.grids]
    assert sorted([*shown, "methods"]) == names()


def test_every_number_of_the_published_pages_is_in_the_files():
    for name, page in pages_of(RESULTS).items():
        if (RESULTS / name).is_dir():
            assert check_numbers(page, RESULTS / name) > 0


def test_every_number_of_new_pages_is_in_the_files(results):
    texts = pages_of(results)
    assert check_numbers(texts["rq2-mnist"], results / "rq2-mnist") > 40
    assert check_numbers(texts["methods"], results / "methods") > 10


def test_the_table_of_larger_networks_counts_the_verdicts():
    """M3 with nbc at ε = 0.2, counted from its file."""
    (folder,) = (RESULTS / "rq1-mnist" / "runs").glob("M3-nbc-seed-0-*")
    with (folder / "verdicts.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if float(row["eps"]) == 0.2]
    share = 100 * sum(row["verdict"] == "unsat" for row in rows) / len(rows)
    accuracy = 100 * json.loads((folder / "evaluation.json").read_text())["accuracy"]
    grids = {name: Published.read(RESULTS, name) for name in ("rq1-mnist", "rq2-mnist", "rq1-cifar10", "rq2-cifar10")}
    assert f"| `nbc` | {accuracy:.1f} %, {share:.1f} % (paper 46.3 %) |" in larger_networks(grids)


def test_a_wrong_number_is_found(results):
    """The check itself: a page with one more proof is refused."""
    page = pages_of(results)["rq2-mnist"]
    with pytest.raises(AssertionError):
        check_numbers(page.replace("/3)", "/4)", 1), results / "rq2-mnist")


def test_what_has_not_been_run_is_said(results):
    texts = pages(results)
    rq2 = Published.read(results, "rq2-mnist")
    assert missing(rq2) == ("M1 (`trades`, `madry`, `trades+nbc`, `madry+nbc`); M2 (nothing yet); M3 (nothing yet)")
    assert f"**Not run yet**: {missing(rq2)}." in texts["docs/results/rq2.md"]
    assert "nothing of this grid is published at this scale yet" in texts["docs/results/rq3.md"]
    assert "| `rq2-mnist` | 2 of 18 | **not enough data** |" in texts["docs/results/index.md"]
    assert "The paper's tables are being run" in texts["README.md"]


def test_verdicts_from_before_a_fix_of_the_verifier_are_not_shown(results, tmp_path):
    old = shutil.copytree(results, tmp_path / "results")
    (run,) = (old / "rq2-mnist" / "runs").glob("M1-rs-seed-*")
    record = json.loads((run / "published.json").read_text())
    (run / "published.json").write_text(json.dumps(record | {"soundness": record["soundness"] - 1}))

    def proved(folder):
        (line,) = re.findall(r"^\| 0.1 \| UNSAT % \|(?=.* – \|$).*", pages_of(folder)["rq2-mnist"], re.MULTILINE)[-1:]
        return [cell.strip() for cell in line.split("|")[3:-1:2]]

    assert all("/3)" in cell for cell in proved(results))
    assert [cell == "–" for cell in proved(old)] == [True, False]


def test_the_answers_by_hand(results, monkeypatch):
    grid = Published.read(results, "rq2-mnist")
    holds, fails, unknown = Outcome.HOLDS, Outcome.DOES_NOT_HOLD, Outcome.NOT_ENOUGH_DATA

    class Part:
        def __init__(self, outcome):
            self.outcome = outcome

    def said(*parts):
        monkeypatch.setattr(published_grids.Published, "parts", lambda self: [(m, Part(o)) for m, o in parts])
        return answer(grid)

    whole = [("M1", holds), ("M2", holds), ("M3", holds)]
    assert said(*whole) == ("holds", "3 of 3 parts hold, 0 do not, 0 lack data")
    assert said(*whole[:2]) == ("holds in part", "2 of 2 parts hold, 0 do not, 0 lack data; not run: M3")
    assert said(*whole[:2], ("M3", fails))[0] == "holds in part"
    assert said(*whole[:2], ("M3", unknown))[0] == "holds in part"
    assert said(("M1", fails), ("M2", unknown))[0] == "does not hold"
    assert said(("M1", unknown))[0] == "not enough data"
    assert said() == ("not enough data", "too little is published yet")


def test_the_figures_are_drawn(results, tmp_path):
    draw(results, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"results-rq2-mnist.png", "methods-pareto.png"}


# --- an independent way from the files to the numbers: only csv and json are used ---


def pages_of(results):
    """The part of a page that is about each grid."""
    texts = pages(results)
    found = {"methods": texts["docs/which-method.md"].partition("<!-- results: begin -->")[2]}
    for question in QUESTIONS:
        for part in texts[f"docs/results/{question.page}.md"].split("\n## ")[1:]:
            found[re.search(r"\(`([\w-]+)`\)", part)[1]] = part
    return found


def check_numbers(page, folder):
    """Compare every number of a grid's tables with what its files say; return how many there were."""
    compared = 0
    for title, model, header, rows in tables_in(page):
        by_method = header[0] == "method"
        for row in rows:
            for name, shown in list(zip(header, row, strict=True))[1 if by_method else 2 :]:
                if name.endswith(", paper") or not re.match(r"\**[-+\d]", shown):
                    continue
                label = row[0] if by_method else name.removesuffix(", ours")
                metric = name.partition(" (n=")[0] if by_method else row[1]
                eps = None if by_method else row[0]
                check_entry(shown, values_of(folder, model, label, metric, eps, "differences" in title))
                compared += 1
    return compared


def check_entry(shown, values):
    number, spread, fraction = re.fullmatch(r"\**([-+\d.]+)\**( ± [\d.]+)?( \(.*\))?", shown).groups()
    mean = fmean(value for value, _, _ in values)
    digits = len(number.partition(".")[2])
    assert abs(float(number) - mean) <= 0.51 * 10**-digits, (shown, values)
    assert bool(spread) == (len(values) > 1)
    if fraction and "/" in fraction:
        count, total = map(int, fraction.strip(" ()").split("/"))
        assert (count, total) == (sum(value[1] for value in values), sum(value[2] for value in values)), shown


def tables_in(page):
    """The tables with our numbers: (title of the table, model, header, rows)."""
    title = model = ""
    block: list[list[str]] = []
    for line in [*page.splitlines(), ""]:
        if line.startswith("### "):
            title = line
        elif line.startswith("#### "):
            model = line.removeprefix("#### ")
        if line.startswith("|"):
            block.append([cell.strip().replace("\\", "") for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
        elif block:
            if block[0][0] in ("ε", "method"):
                yield title, model, block[0], block[2:]
            block = []


def values_of(folder, model, label, metric, eps, is_difference):
    """The value, the count and the total of each seed."""
    ours = by_seed(folder, model, label, metric, eps)
    if not is_difference:
        return list(ours.values())
    base = by_seed(folder, model, label.removesuffix("+nbc"), metric, eps)
    return [(ours[seed][0] - base[seed][0], None, None) for seed in ours if seed in base]


def by_seed(folder, model, label, metric, eps):
    prefix = re.sub(r"[^A-Za-z0-9+@.]+", "-", f"{model}-{label}-seed-")
    found = {}
    for run in sorted((folder / "runs").iterdir()):
        if run.name.startswith(prefix):
            value = measured(run, metric, eps)
            if value is not None:
                found[run.name.removeprefix(prefix).partition("-")[0]] = value
    return found


def measured(run: Path, metric: str, eps: str | None):
    if metric == "Training (CPU min)":
        epochs = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return sum(epoch["cpu_seconds"] for epoch in epochs) / 60, None, None
    evaluation = json.loads((run / "evaluation.json").read_text())
    if metric == "Test accuracy %":
        return share(evaluation["accuracy"], evaluation["accuracy_images"])
    if metric.startswith("PGD"):
        attacks = {attack["pgd_steps"]: attack for attack in [evaluation, *evaluation["other_attacks"]]}
        attack = attacks[int(re.search(r"\d+", metric)[0])]
        radii = [one for one in attack["radii"] if eps is None or same(one["eps"], eps)]
        return share(radii[0]["pgd_accuracy"], attack["images"])
    with (run / "verdicts.csv").open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if eps is None or same(float(row["eps"]), eps)]
    proved = [row for row in rows if row["verdict"] == "unsat"]
    if metric == "UNSAT %":
        return share(len(proved) / len(rows), len(rows))
    if metric == "Stable %":
        stable = [float(row["stable_share"]) for row in rows if row["stable_share"]]
        return (100 * fmean(stable), None, None) if stable else None
    chosen = rows if metric == "Time (s)" else [row for row in rows if row["verdict"] in ("unsat", "timeout")]
    assert metric in ("Time (s)", "Time_U+T (s)")
    return (fmean(float(row["seconds"]) for row in chosen), None, None) if chosen else None


def share(value, total):
    return 100 * value, round(value * total), total


def same(eps: float, written: str) -> bool:
    top, _, bottom = written.partition("/")
    return abs(eps - float(top) / float(bottom or 1)) < 1e-9
