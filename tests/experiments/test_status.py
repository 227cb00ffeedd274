"""``status.json``: what is written is read again, that of earlier versions is, too, and damaged files are refused."""

from __future__ import annotations

import json

import pytest

from steadynet.errors import UserError
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.experiments.lock import locked
from steadynet.experiments.plan import Plan
from steadynet.experiments.status import StatusFile, read_status
from steadynet.experiments.tasks import Event, Task, TrainJob


@pytest.fixture
def experiment(tmp_path):
    return ExperimentDirectory(tmp_path)


def plan_of(done=()):
    plan = Plan()
    for name in ("one", "other"):
        plan.add(Task(name, TrainJob(name), group="M1"), name in done)
    return plan


def test_what_is_written_is_read(experiment):
    file = StatusFile(experiment, "small", plan_of())
    file.record(Event("one", "running", 3, 10, "epoch 1/2"))
    file.record(Event("other", "failed", note="no memory"))
    file.write()
    with locked(experiment):
        status = read_status(experiment)
    assert (status.name, status.at_work) == ("small", True)
    assert status.tasks == file.status.tasks
    assert status.failures() == {"other": "no memory"}
    assert read_status(experiment).counts() == {"waiting": 1, "failed": 1}, "nobody is at work"


def test_a_later_call_knows_how_long_tasks_took(experiment):
    file = StatusFile(experiment, "small", plan_of())
    for event in (Event("one", "running"), Event("one", "done")):
        file.record(event)
    seconds = file.status.tasks["one"].seconds
    again = StatusFile(experiment, "small", plan_of(done=["one"]))
    assert again.status.tasks["one"].seconds == seconds
    assert again.status.tasks["other"].seconds is None


def test_the_status_of_an_earlier_version_is_read(experiment):
    task = {"kind": "train", "group": "M1", "state": "done", "note": "", "seconds": 2.5}
    earlier = {"name": "small", "started": 1.0, "updated": 2.0, "tasks": {"one": task | {"first_news": [0, 1.5]}}}
    experiment.status.write_text(json.dumps(earlier))
    assert read_status(experiment).tasks["one"].seconds == 2.5


@pytest.mark.parametrize("text", ["{", "[]", '{"tasks": {}}', '{"name": "a", "tasks": {"one": {"kind": "sing"}}}'])
def test_a_damaged_status_is_refused_but_the_experiment_goes_on(experiment, text):
    experiment.status.write_text(text)
    with pytest.raises(UserError, match=r"status.json is damaged"):
        read_status(experiment)
    StatusFile(experiment, "small", plan_of())
    assert len(read_status(experiment).tasks) == 2


def test_a_folder_without_a_status_is_no_experiment(experiment):
    with pytest.raises(UserError, match=r"holds no experiment \(it has no status.json\)"):
        read_status(experiment)
