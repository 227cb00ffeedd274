"""The display of an experiment: plain lines where there is no terminal, the time left, and its tables."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest

from steadynet.cli.display import experiment as experiment_display
from steadynet.cli.display.experiment import STATES, ExperimentDisplay
from steadynet.cli.display.grid_table import show_table
from steadynet.experiments import status as status_module
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.plan import Plan
from steadynet.experiments.status import StatusFile
from steadynet.experiments.table import TableRow
from steadynet.experiments.tasks import EvaluateJob, Event, State, Task, TrainJob
from steadynet.experiments.variants import Variant

NAMES = ("one", "other")


def lines_of(tmp_path, capsys, *events):
    plan = Plan()
    for name in NAMES:
        plan.add(Task(name, TrainJob(name), label=f"M1 {name}: train"), False)
    status = StatusFile(ExperimentDirectory(tmp_path), "grid", plan)
    with ExperimentDisplay("A grid") as display:
        display.on_start(plan, status)
        for event in events:
            status.record(event)
            display.on_event(event)
    said = capsys.readouterr()
    assert said.out == "A grid: 2 tasks, 0 of them done\n"
    return said.err.splitlines()


def test_every_state_is_shown():
    assert set(STATES) == set(get_args(State))


def test_ended_and_running_tasks_are_printed_as_plain_lines(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(experiment_display, "LINE_INTERVAL", -1.0)
    monkeypatch.setattr(experiment_display, "BAR_INTERVAL", -1.0)
    running = [Event(name, "running", done, 4, "epoch 1/4") for name in NAMES for done in (0, 1)]
    lines = lines_of(tmp_path, capsys, *running, Event("one", "done"))
    assert lines[1].startswith("0/2 running M1 one: train 25 %")
    assert lines[3].startswith("0/2 running M1 one: train 25 %; M1 other: train 25 %")
    assert lines[-1] == "1/2 one done"


def test_running_tasks_are_not_printed_all_the_time(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(experiment_display, "BAR_INTERVAL", -1.0)
    assert lines_of(tmp_path, capsys, *[Event("one", "running", done, 9) for done in range(9)]) == []


def after(tmp_path, monkeypatch, total, *reports):
    """(status, bar) of a task that reported at these times how much was done."""
    monkeypatch.setattr(status_module, "WRITE_EVERY", -1.0)
    plan = Plan()
    plan.add(Task("one", EvaluateJob("one", "digits", (), ())), False)
    status, display = StatusFile(ExperimentDirectory(tmp_path), "grid", plan), ExperimentDisplay("A grid")
    display.on_start(plan, status)
    display.on_event(Event("one", "running"))
    for when, done in reports:
        monkeypatch.setattr(status_module.time, "time", lambda when=when: when)
        event = Event("one", "running", done, total)
        status.record(event)
        display.on_event(event)
    return status.status.tasks["one"], display.progress.tasks[-1]


def test_the_time_left_counts_the_silence_before_many_verdicts_at_once(tmp_path, monkeypatch):
    task, bar = after(tmp_path, monkeypatch, 20, (1000.0, 0), (1160.0, 1), (1160.4, 8))
    assert task.seconds_left(now=1160.4) == pytest.approx(160.4 * 12 / 8)
    assert bar.fields["left"] == "4 min left"


def test_the_time_left_of_a_search_is_that_of_its_current_training(tmp_path, monkeypatch):
    task, _ = after(tmp_path, monkeypatch, 91, (0.0, 1), (900.0, 90), (1000.0, 1), (1010.0, 11))
    assert task.seconds_left(now=1010.0) == pytest.approx(80.0)


def test_differences_to_a_missing_method_are_not_shown(capsys):
    row = TableRow("grid", "digits", "M1", Variant.plain("rs+nbc"), 0, "unsat_percent", 0.1, 80.0, 8, 10, None, "run")
    for difference, shown in ((None, False), (20.0, True)):
        show_table("A grid", [row, dataclasses.replace(row, metric="unsat_percent_delta", value=difference)])
        assert ("differences" in capsys.readouterr().out) == shown


def test_counts_are_whole_numbers(capsys):
    row = TableRow("grid", "digits", "M1", Variant.plain("nbc"), 0, "n_unsat", 0.1, 8.0, 8, 10, 66.0, "run")
    show_table("A grid", [row])
    assert "8 (66)" in capsys.readouterr().out
