"""Grids that run: what is done is not done again, some tasks fail, some processes are killed."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import signal
import time

import pytest

from grids import (
    command_line_with_forks,
    give_to_a_slow_starter,
    is_running,
    reproduce,
    table,
    words_of,
    write_grid,
)
from runs import epochs_of, files, same_weights, start
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.lock import locked
from steadynet.files import read_toml
from steadynet.report.collect import collect
from steadynet.runs.directory import RunDirectory
from steadynet.verification.verdicts import read_rows
from verified import refused, said

DYING = """

def dying(image_shape, classes):
    "Kills the process that builds it, the first times."
    import os, pathlib
    here = pathlib.Path({folder!r})
    count = len(list(here.glob("death-*")))
    if count < {deaths}:
        (here / f"death-{{count}}").touch()
        os.kill(os.getpid(), 9)
    return tiny(image_shape, classes)
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """(grid, directory): a grid that ran undisturbed."""
    folder = tmp_path_factory.mktemp("grid")
    grid = write_grid(folder)
    code, output = reproduce(grid, folder / "out")
    assert code == 0, output
    return grid, folder / "out"


def runs_of(out):
    return {path.name.rpartition("-seed-")[0]: path for path in (out / "runs").iterdir()}


def test_what_is_on_disk(finished):
    _, out = finished
    assert {path.name for path in out.iterdir()} == {
        *(".lock", "grid.toml", "tasks.csv", "status.json", "table.csv", "table.json", "runs", "trials")
    }
    assert set(runs_of(out)) == {
        f"{model}-{method}" for model in ("tiny", "fragile") for method in ("natural", "madry+nbc", "tuned")
    }
    for path in runs_of(out).values():
        names = {"config.toml", "weights.safetensors", "metrics.jsonl", "evaluation.json", "verdicts.csv"}
        assert names <= {file.name for file in path.iterdir()}
        assert not (path / "shards").exists()
        assert len(read_rows(RunDirectory(path))) == 24
    made = read_toml(out / "grid.toml")["made"]
    assert {"scale", "seeds", "steadynet", "torch", "cores", "started", "date", "engine"} <= set(made)


def test_proofs_and_attacks_report_that_they_begin(finished):
    tasks = json.loads((finished[1] / "status.json").read_text())["tasks"].values()
    tasks = [task for task in tasks if task["kind"] in ("verify", "evaluate")]
    assert {task["first_done"] for task in tasks} == {0}
    assert all(task["first_reported"] >= task["started"] for task in tasks)


def test_the_same_tasks_for_every_method_in_one_order(finished):
    _, out = finished
    asked = {tuple((row.eps, row.index) for row in read_rows(RunDirectory(path))) for path in runs_of(out).values()}
    assert len(asked) == 1
    images = [line.split(",")[1] for line in (out / "tasks.csv").read_text().splitlines()[1:]]
    assert sorted({index for _, index in asked.pop()}) == sorted(map(int, images))


def test_the_table_says_what_the_runs_hold(finished):
    _, out = finished
    rows = {(row["model"], row["label"], row["metric"], row["eps"]): row for row in table(out)}
    assert all(row["value"] is not None for row in rows.values())
    run = runs_of(out)["tiny-natural"]
    proved = sum(row.verdict.value == "unsat" for row in read_rows(RunDirectory(run)) if row.eps == 0.05)
    row = rows["tiny", "natural", "unsat_percent", 0.05]
    assert (row["numerator"], row["denominator"], row["value"]) == (proved, 12, pytest.approx(100 * proved / 12))
    assert row["run"] == f"runs/{run.name}"
    evaluation = json.loads((run / "evaluation.json").read_text())
    assert rows["tiny", "natural", "test_acc_percent", None]["value"] == pytest.approx(100 * evaluation["accuracy"])
    assert {"pgd3_percent", "pgd5_percent", "stable_percent", "n_timeout"} <= {place[2] for place in rows}
    base = rows["tiny", "natural", "stable_percent", 0.3]["value"]
    ours = rows["tiny", "madry+nbc", "stable_percent", 0.3]["value"]
    assert rows["tiny", "madry+nbc", "stable_percent_delta", 0.3]["value"] == pytest.approx(ours - base)
    seconds = [epoch.cpu_seconds for epoch in RunDirectory(run).read_metrics()]
    (minutes,) = [
        row["value"]
        for row in json.loads((out / "table.json").read_text())
        if row["metric"] == "train_cpu_minutes" and (row["model"], row["label"]) == ("tiny", "natural")
    ]
    assert len(seconds) == 2
    assert minutes == pytest.approx(sum(seconds) / 60)
    assert (out / "table.csv").read_text().count("\n") == len(json.loads((out / "table.json").read_text())) + 1


def test_what_is_done_is_not_done_again(finished, tmp_path):
    grid, out = finished
    before = files(out / "runs")
    code, output = reproduce(grid, out)
    assert code == 0
    assert "36 of them done" in output
    assert files(out / "runs") == before


def test_its_runs_are_ordinary_ones(finished, tmp_path, capsys):
    _, out = finished
    run = shutil.copytree(runs_of(out)["tiny-natural"], tmp_path / "run")
    before = (run / "verdicts.csv").read_bytes()
    said(capsys, "verify", run, "--eps", "0.05", "0.3", "--per-class", "3", "--timeout", "20", "--clock", "cpu")
    assert (run / "verdicts.csv").read_bytes() == before, "all of it was decided already"
    said(capsys, "evaluate", run, "--eps", "0.05", "--pgd-steps", "3")


def tasks_done(out, kind=""):
    path = out / "status.json"
    tasks = json.loads(path.read_text())["tasks"] if path.is_file() else {}
    return sum(task["state"] == "done" and kind in task["kind"] for task in tasks.values())


def test_killed_at_ten_random_moments_it_gives_the_same_table(finished, tmp_path):
    grid, undisturbed = finished
    out, chance = tmp_path / "out", random.Random(time.time_ns())
    for attempt, progress in enumerate(sorted(chance.choices(range(25), k=10))):
        process = start(command_line_with_forks, words_of(grid, out), tmp_path / f"{attempt}.log")
        while tasks_done(out) < progress:
            assert process.is_alive(), (tmp_path / f"{attempt}.log").read_text()
            time.sleep(0.01)
        time.sleep(chance.uniform(0, 0.15))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
    code, output = reproduce(grid, out)
    assert code == 0, output
    assert table(out) == table(undisturbed)
    for name, run in runs_of(undisturbed).items():
        assert same_weights(run, runs_of(out)[name])
        assert epochs_of(run) == epochs_of(runs_of(out)[name])


def test_terminated_it_saves_and_says_how_to_go_on(finished, tmp_path):
    grid, undisturbed = finished
    out, log = tmp_path / "out", tmp_path / "terminated.log"
    process = start(command_line_with_forks, words_of(grid, out), log)
    while not tasks_done(out, "verify"):
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGTERM)
    process.join()
    assert process.exitcode == 130
    assert "stopped: everything done is saved" in log.read_text()
    before = tasks_done(out)
    assert collect([out])[0].facts["progress"] == f"{before} of 36 tasks done"
    code, output = reproduce(grid, out)
    assert code == 0
    assert "progress" not in collect([out])[0].facts
    assert int(re.search(r"(\d+) of them done", output)[1]) >= before
    assert table(out) == table(undisturbed)


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="asks Linux about processes")
def test_a_worker_that_has_hardly_begun_ends_with_its_killed_parent(tmp_path):
    process = start(give_to_a_slow_starter, tmp_path)
    path = tmp_path / "worker"
    while not path.is_file() or not path.read_text():
        assert process.is_alive()
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    worker, end = int(path.read_text()), time.monotonic() + 20
    while is_running(worker) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_running(worker)


def test_a_changed_setting_gets_a_new_run_and_a_longer_time_out_does_not(finished, tmp_path):
    _, done = finished
    out = shutil.copytree(done, tmp_path / "out")
    only = ("--only", "model=tiny", "method=natural")
    grid = write_grid(done.parent / "longer", ("timeout = 20.0", "timeout = 30.0"))
    text = grid.read_text().replace(str(done.parent / "longer"), str(done.parent))
    grid.write_text(text)
    assert reproduce(grid, out, *only)[0] == 0
    assert set(os.listdir(out / "runs")) == set(os.listdir(done / "runs"))
    grid.write_text(text.replace("lr = 0.01", "lr = 0.02"))
    assert reproduce(grid, out, *only)[0] == 0
    assert len(os.listdir(out / "runs")) == len(os.listdir(done / "runs")) + 1


def test_runs_of_another_experiment_are_taken_over(finished, tmp_path):
    grid, done = finished
    out = tmp_path / "out"
    code, output = reproduce(grid, out, "--reuse", str(done), "--only", "model=tiny", "method=natural")
    assert code == 0
    assert "6 tasks, 6 of them done" in output
    code, output = reproduce(grid, out, "--reuse", str(tmp_path / "nowhere"))
    assert code == 2
    assert "nowhere: it holds no experiment" in output


def test_a_grid_may_stop_after_its_trainings_and_go_on_later(tmp_path):
    grid, out = write_grid(tmp_path), tmp_path / "out"
    only = ("--scale", "quick", "--only", "model=tiny", "method=natural")
    assert reproduce(grid, out, *only, "--until", "train")[0] == 0
    (run,) = (out / "runs").iterdir()
    trained = (run / "weights.safetensors").stat().st_mtime_ns
    assert not (run / "evaluation.json").exists()
    assert reproduce(grid, out, *only, "--until", "evaluate")[0] == 0
    assert (run / "evaluation.json").exists()
    assert not (run / "verdicts.csv").exists()
    assert reproduce(grid, out, *only)[0] == 0
    assert read_rows(RunDirectory(run))
    assert (run / "weights.safetensors").stat().st_mtime_ns == trained


def test_a_failing_job_is_reported_and_stops_no_other(tmp_path, capsys):
    grid = write_grid(tmp_path, ("net.py:fragile", "net.py:failing"))
    out = tmp_path / "out"
    code, output = reproduce(grid, out, "--scale", "quick")
    assert code == 1
    assert "KeyError" in output
    assert output.count("failed: fragile-") == 2, "the third starts from one of them"
    assert {row["model"] for row in table(out)} == {"tiny"}
    status = said(capsys, "status", out)
    assert "failed: fragile-natural" in status
    assert "blocked" in status


def test_a_worker_that_dies_is_replaced_and_its_job_tried_again(tmp_path):
    grid = write_grid(tmp_path, ("net.py:tiny", "net.py:dying"))
    source = tmp_path / "net.py"
    plain = source.read_text()
    only = ("--scale", "quick", "--only", "model=tiny", "method=natural")
    source.write_text(plain + DYING.format(folder=str(tmp_path), deaths=2))
    code, output = reproduce(grid, tmp_path / "out", *only)
    assert code == 0, output
    assert output.count("tried again") == 2
    source.write_text(plain + DYING.format(folder=str(tmp_path), deaths=99))
    code, output = reproduce(grid, tmp_path / "hopeless", *only)
    assert code == 1
    assert "its worker died (exit code -9)" in output


def test_several_seeds_have_a_spread(finished, tmp_path):
    grid, done = finished
    out = shutil.copytree(done, tmp_path / "out")
    code, output = reproduce(grid, out, "--seeds", "0", "1", "--only", "model=tiny", "method=natural")
    assert code == 0
    assert "±" in output
    assert "mean ± standard deviation over the seeds" in " ".join(output.split())
    assert reproduce(grid, out, "--only", "model=tiny", "method=natural")[0] == 0  # the other seed stays in the table
    assert {row["seed"] for row in table(out) if row["label"] == "natural" and row["model"] == "tiny"} == {0, 1}


def test_status(finished, tmp_path, capsys, monkeypatch):
    _, done = finished
    out = shutil.copytree(done, tmp_path / "experiments" / "small")
    assert "finished" in said(capsys, "status", out)
    content = json.loads((out / "status.json").read_text())
    running = next(name for name, task in content["tasks"].items() if task["kind"] == "train")
    content["tasks"][running] |= {"state": "running", "done": 1, "total": 4, "note": "epoch 1/4"}
    (out / "status.json").write_text(json.dumps(content))
    stopped = said(capsys, "status", out)
    assert "stopped" in stopped
    assert "time left, once it is continued" in stopped
    monkeypatch.chdir(tmp_path)
    with locked(ExperimentDirectory(out)):
        at_work = said(capsys, "status")
    assert "at work" in at_work
    assert f"running: {running} 1/4 epoch 1/4" in at_work
    found = json.loads(said(capsys, "status", out, "--json"))
    assert found[str(out)]["tasks"][running]["state"] == "waiting"


def test_mistakes(finished, tmp_path, capsys, monkeypatch):
    grid, done = finished
    monkeypatch.chdir(tmp_path)
    assert "did you mean 'local'" in refused(capsys, "reproduce", grid, "--engine", "locale", "--out", tmp_path / "x")
    assert "such as model=M1" in refused(capsys, "reproduce", grid, "--only", "M1")
    assert "workers = 0" in refused(capsys, "reproduce", grid, "--workers", "0")
    assert "no experiment" in refused(capsys, "status", tmp_path)
    assert "there are no experiments" in refused(capsys, "status")
    with locked(ExperimentDirectory(done)):
        assert "another steadynet is at work" in refused(capsys, "reproduce", grid, "--out", done)
