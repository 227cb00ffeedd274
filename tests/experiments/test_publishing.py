"""Finished cells are published, and an experiment elsewhere continues from them."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from few_digits import load_few
from grids import table
from published import run_grid
from runs import files
from steadynet.cli import main
from steadynet.data.digits import Digits
from steadynet.errors import UserError
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.publishing import publish
from steadynet.runs.directory import RunDirectory
from steadynet.verification.verdicts import read_rows


@pytest.fixture(scope="module", autouse=True)
def few_digits():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Digits, "load", load_few)
        yield


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """(experiment, results): a whole grid that is not the paper's, and what is published of it."""
    folder = tmp_path_factory.mktemp("published")
    assert run_grid(folder / "out") == ["natural", "nbc", "near", "far"]
    publish(ExperimentDirectory(folder / "out"), folder / "results")
    return folder / "out", folder / "results"


@pytest.fixture
def results(done, tmp_path):
    """A copy that a test may break."""
    return shutil.copytree(done[1], tmp_path / "results")


def run_of(folder, method, grid="own"):
    (path,) = (folder / grid / "runs").glob(f"M1-{method}-seed-*")
    return RunDirectory(path)


def test_what_is_published(done):
    out, results = done
    published = files(results)
    names = {re.sub(r"M1-(\w+)-.*?/", r"\1/", str(name)) for name in published}
    measured = {"config.toml", "metrics.jsonl", "evaluation.json", "verdicts.csv", "published.json"}
    assert names == {
        *("own/grid.toml", "own/tasks.csv", "own/runs/far/tuning.json", "own/runs/near/tuning.json"),
        *(f"own/runs/{method}/{name}" for method in ("natural", "nbc", "near") for name in measured),
    }
    for content in published.values():
        assert str(out.parent).encode() not in content
    original = RunDirectory(next((out / "runs").glob("M1-nbc-*")))
    assert [(row.eps, row.index, row.verdict, row.key) for row in read_rows(run_of(results, "nbc"))] == [
        (row.eps, row.index, row.verdict, row.key) for row in read_rows(original)
    ]


def test_publishing_again_changes_nothing(done, results):
    before = files(results)
    again = publish(ExperimentDirectory(done[0]), results)
    assert (len(again.there), again.new, again.removed, again.planned) == (4, [], [], 4)
    assert files(results) == before


def test_a_fresh_experiment_takes_up_what_is_published(done, results, tmp_path):
    assert run_grid(tmp_path / "new", reuse=[results]) == []
    assert table(tmp_path / "new") == table(done[0])
    before = files(results)
    publish(ExperimentDirectory(tmp_path / "new"), results)
    assert files(results) == before


def test_a_network_without_weights_is_trained_again_if_another_starts_from_it(results, tmp_path):
    shutil.rmtree(run_of(results, "near").path)
    assert run_grid(tmp_path / "new", reuse=[results]) == ["natural", "near"]
    assert all(row["value"] is not None or row["note"] for row in table(tmp_path / "new"))


@pytest.mark.parametrize("what", ["hash", "evaluation", "verdict"])
def test_a_network_whose_verdicts_do_not_fit_is_trained_again(results, tmp_path, what):
    run = run_of(results, "nbc")
    if what == "hash":
        content = json.loads(run.published.read_text())
        run.published.write_text(json.dumps(content | {"network": "0" * 64}))
    elif what == "verdict":
        run.verdicts.write_text("\n".join(run.verdicts.read_text().splitlines()[:-1]) + "\n")
    else:
        run.evaluation.unlink()
    assert run_grid(tmp_path / "new", reuse=[results]) == ["nbc"]


def test_verdicts_from_before_a_fix_of_the_verifier_are_not_taken_up(done, results, tmp_path, monkeypatch):
    out, before = shutil.copytree(results / "own", tmp_path / "out"), read_rows(run_of(results, "nbc"))
    monkeypatch.setattr("steadynet.verification.verdict_key.SOUNDNESS_VERSION", 10**6)
    assert run_grid(out, only={"method": ["nbc"]}) == ["nbc"]
    publish(ExperimentDirectory(out), results)
    after = read_rows(run_of(results, "nbc"))
    assert [row.index for row in after] == [row.index for row in before]
    assert not {row.key for row in after} & {row.key for row in before}


def test_cells_that_are_not_finished_are_left_out(done, tmp_path):
    out = shutil.copytree(done[0], tmp_path / "out")
    next((out / "runs").glob("M1-nbc-*/evaluation.json")).unlink()
    verdicts = next((out / "runs").glob("M1-near-*/verdicts.csv"))
    verdicts.write_text(re.sub(r"\n([\d.]+,\d+,\d+),\w+,", r"\n\1,error,", verdicts.read_text(), count=1))
    found = publish(ExperimentDirectory(out), tmp_path / "results")
    assert [key.split("-")[1] for key in found.there] == ["far", "natural"]


def test_weights_of_small_networks_are_published_once_for_all_grids(tmp_path):
    """Two grids of the paper share a training: it is done once, and its weights are stored once."""
    results, first, second = tmp_path / "results", tmp_path / "first", tmp_path / "second"
    only = {"method": ["natural"]}
    assert run_grid(first, "rq1-mnist", only=only) == ["natural"]
    publish(ExperimentDirectory(first), results)
    assert run_grid(second, "rq2-mnist", "madry", reuse=[results], only={"method": ["natural", "madry"]}) == ["madry"]
    publish(ExperimentDirectory(second), results)
    assert run_of(results, "natural", "rq1-mnist").weights.is_file()
    assert not run_of(results, "natural", "rq2-mnist").weights.is_file()
    assert run_of(results, "madry", "rq2-mnist").weights.is_file()
    assert run_grid(tmp_path / "new", "rq2-mnist", "madry", reuse=[results]) == ["near", "far"], "they start from it"


def test_the_best_of_a_large_network(done, tmp_path):
    """A network that is not small is published with its weights if it has the most proofs, and on demand."""
    out = shutil.copytree(done[0], tmp_path / "out")
    (out / "grid.toml").write_text((out / "grid.toml").read_text().replace('"own"', '"rq1-mnist"'))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("steadynet.experiments.publishing.SMALL", ())
        publish(ExperimentDirectory(out), tmp_path / "results")
        assert not list(tmp_path.glob("results/*/runs/*/weights.safetensors"))
        publish(ExperimentDirectory(out), tmp_path / "results", best_of=["M1"])
    (weights,) = tmp_path.glob("results/*/runs/*/weights.safetensors")
    proved = {path.parent: path.read_text().count(",unsat,") for path in out.glob("runs/*/verdicts.csv")}
    assert proved[out / "runs" / weights.parent.name] == max(proved.values())


def test_weights_that_do_not_fit_are_left_out(done, tmp_path, monkeypatch, capsys):
    out = shutil.copytree(done[0], tmp_path / "out")
    (out / "grid.toml").write_text((out / "grid.toml").read_text().replace('"own"', '"rq1-mnist"'))
    monkeypatch.setattr("steadynet.experiments.publishing.LIMIT", 1_000_000)  # a network has 0.67 MB
    found = publish(ExperimentDirectory(out), tmp_path / "results")
    assert len(found.without_room) == 2
    assert len(list(tmp_path.glob("results/*/runs/*/weights.safetensors"))) == 1
    assert main(["publish", str(out), "--to", str(tmp_path / "results")]) == 0
    assert f"no room: {', '.join(found.without_room)}" in capsys.readouterr().out


def test_an_experiment_that_is_stopped_has_its_table(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run_grid(tmp_path / "out", stop_after=4, only={"method": ["natural", "nbc"]})
    rows = {(row["label"], row["metric"], row["eps"]): row["value"] for row in table(tmp_path / "out")}
    assert rows["natural", "unsat_percent", 0.05] is not None
    assert rows.get(("nbc", "unsat_percent", 0.05)) is None
    found = publish(ExperimentDirectory(tmp_path / "out"), tmp_path / "results")
    assert [key.split("-")[1] for key in found.there] == ["natural"]


def test_the_command(done, results, tmp_path, capsys):
    assert main(["publish", str(done[0]), "--to", str(results)]) == 0
    assert "own: 4 of 4 cells, 0 of them new" in capsys.readouterr().out
    assert main(["publish", str(tmp_path / "nothing")]) == 2
    assert "holds no experiment" in capsys.readouterr().err
    smoke = shutil.copytree(done[0], tmp_path / "smoke")
    (smoke / "grid.toml").write_text((smoke / "grid.toml").read_text().replace('scale = "paper"', 'scale = "smoke"'))
    assert main(["publish", str(smoke)]) == 2
    assert "whose numbers mean nothing" in capsys.readouterr().err
    with pytest.raises(UserError, match="has the scale paper"):
        publish(ExperimentDirectory(smoke), results)
