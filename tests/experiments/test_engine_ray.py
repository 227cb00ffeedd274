"""The engine ``ray`` on a real cluster of two nodes on this machine: its results, nodes that die, copied files."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import pytest

from steadynet.errors import UserError
from steadynet.experiments.engines.file_transfer import ChangeTracker, FileChanges, apply_changes, read_files
from steadynet.experiments.engines.local import Local
from steadynet.experiments.engines.ray import Ray, check_demands, connect, import_ray
from steadynet.experiments.grid import grid_from
from steadynet.experiments.runner import Watcher, reproduce
from steadynet.experiments.table import MACHINE_METRICS
from steadynet.experiments.tasks import Task, TrainJob
from steadynet.runs.directory import RunDirectory
from steadynet.runs.tensors import load_tensors
from steadynet.runs.trained import load_trained
from steadynet.verification.verdicts import read_rows
from verified import refused

try:
    ray = import_ray()
except UserError as error:
    pytest.skip(str(error), allow_module_level=True)

BATCHES = 4  # an epoch
NODE = {"num_cpus": 1, "object_store_memory": 100 * 2**20}
GRID = {
    "name": "tiny",
    "training": {"data": "digits", "epochs": 5, "lr": 2e-3, "eps": 0.1, "train_images": 400, "batch_size": 100},
    # property after property, each a twentieth of a second
    "verification": {"eps": [0.01], "per_class": 6, "timeout": 100, "shard": 30, "verifier": "milp"},
    "evaluation": {"pgd_steps": 3, "images": 50},
    "models": {"M1": {}},
    "methods": {"natural": {}},
}
SEEDS = (0, 1)
ATTEMPTS = 3  # to kill a node in the middle of a task
PROPERTIES = 60  # a network
MIDDLE = range(1, 18)  # of the 30 properties of a shard
own_view = pytest.mark.skipif(
    not Path("/proc/self/cwd").exists(), reason="needs a path that each process sees elsewhere"
)


class Nodes:
    """A cluster with a head and another node, each with a working directory of its own."""

    def __init__(self, folder):
        from ray.cluster_utils import Cluster

        self.folder, self.count = folder, 0
        with self.working_directory():
            self.cluster = Cluster(initialize_head=True, head_node_args=NODE | {"include_dashboard": False})
        self.other = self.add()

    @contextlib.contextmanager
    def working_directory(self):
        self.count += 1
        place = self.folder / f"node-{self.count}"
        place.mkdir()
        before = os.getcwd()
        os.chdir(place)
        try:
            yield
        finally:
            os.chdir(before)

    def add(self):
        with self.working_directory():
            return self.cluster.add_node(**NODE)

    def kill_and_replace(self):
        self.cluster.remove_node(self.other, allow_graceful=False)
        self.other = self.add()


class Killer(Watcher):
    """Kills a node while both verify, until a task is lost by it; keeps the verdicts from before."""

    def __init__(self, nodes, root):
        self.nodes, self.root = nodes, root
        self.running, self.killed, self.lost, self.decided = set(), set(), [], []

    def on_start(self, plan, status):
        self.tasks = plan.tasks

    def on_event(self, event):
        if event.state == "waiting":
            assert "tried again" in event.note
            if self.tasks[event.task].kind == "verify":  # a training may be lost to a node that an earlier test killed
                self.lost.append("verify")
        self.running.discard(event.task)
        if event.state == "running" and self.tasks[event.task].kind == "verify":
            self.running.add(event.task)
        both = len(self.running) == 2 and self.running != self.killed
        if both and event.done in MIDDLE and not self.lost:
            decided = [row for path in self.root.glob("runs/*/shards/*") for row in read_rows(RunDirectory(path))]
            if len(decided) > 1:
                self.killed = set(self.running)
                self.decided += decided
                self.nodes.kill_and_replace()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    nodes = Nodes(tmp_path_factory.mktemp("nodes"))
    yield nodes
    nodes.cluster.shutdown()


@pytest.fixture(scope="module")
def connected(nodes):
    """A connection that all tests share, so that the workers have started."""
    with connect(ray, nodes.cluster.address):
        yield


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """The results of the engine ``local``."""
    out = tmp_path_factory.mktemp("local")
    assert not reproduce(grid_from(GRID, None, "tiny"), out, Local(), seeds=SEEDS).failures
    return made_in(out)


def made_in(out):
    """The table without times, the verdicts as they are in their files, and the files of all runs."""
    lines = (out / "table.csv").read_text().splitlines()
    table = [line for line in lines if not any(metric in line for metric in MACHINE_METRICS)]
    runs = sorted((out / "runs").iterdir())
    verdicts = [[line.split(",")[:4] for line in (run / "verdicts.csv").read_text().splitlines()] for run in runs]
    weights = [{name: value.tolist() for name, value in load_trained(run).network.state_dict().items()} for run in runs]
    files = sorted(path.relative_to(out).as_posix() for path in (out / "runs").rglob("*"))
    return {"table": table, "verdicts": verdicts, "weights": weights, "files": files}


def check_grid(nodes, out, expected):
    """The table is the same as by the engine ``local`` although a node dies; nothing is lost or decided twice."""
    for attempt in range(ATTEMPTS):
        place = out / f"attempt-{attempt}"
        killer = Killer(nodes, place)
        assert not reproduce(grid_from(GRID, None, "tiny"), place, Ray(), seeds=SEEDS, watcher=killer).failures
        assert made_in(place) == expected
        if killer.lost:  # else its task had ended just before the node did
            break
    check_what_a_death_costs(place, killer, expected)


def check_what_a_death_costs(out, killer, expected):
    assert set(killer.lost) == {"verify"}
    assert [len(table) for table in expected["verdicts"]] == [1 + PROPERTIES] * len(SEEDS)
    rows = [row for run in (out / "runs").iterdir() for row in read_rows(RunDirectory(run))]
    assert len(rows) == len({row.key for row in rows}) == PROPERTIES * len(SEEDS)
    assert killer.decided
    assert set(killer.decided) <= set(rows)  # to the microsecond: not decided again
    assert not list(out.glob(".leases"))


PLACES = ["shared", pytest.param("not shared", marks=own_view)]


def place_of(how, folder, monkeypatch):
    """A directory that all nodes see, or one that every process sees elsewhere."""
    monkeypatch.chdir(folder)
    return folder / "out" if how == "shared" else Path("/proc/self/cwd/out")


@pytest.mark.parametrize("how", PLACES)
def test_a_training_outlives_its_node_and_is_saved_by_ctrl_c(nodes, tmp_path, monkeypatch, capfd, how):
    out = place_of(how, tmp_path, monkeypatch)
    settings = {"data": "digits", "model": "M1", "phases": "natural:5000", "lr": 2e-3, "train_images": 400}
    tasks = [
        Task(name, TrainJob(name, settings | {"batch_size": 100}), reads=(name,), writes=(name,))
        for name in ("one", "other")
    ]
    done, killed, lost = {}, [], []

    def watch(event):
        if event.state == "waiting":
            lost.append(event.task)
            done.clear()
        done[event.task] = max(event.done, done.get(event.task, 0))
        if lost and done.get(lost[0]):
            assert done[lost[0]] > BATCHES  # its first report: it has not started again
            raise KeyboardInterrupt
        if not killed and len(done) == 2 and min(done.values()) > 4 * BATCHES:
            killed.append(nodes.kill_and_replace())

    with pytest.raises(KeyboardInterrupt):
        Ray(address=nodes.cluster.address).run(out, tasks, watch)
    assert len(lost) == 1
    for task in tasks:
        run = RunDirectory(out / task.name)
        position = load_tensors(run.checkpoint)[1]["position"]
        assert position["epoch"] >= 1
        assert not run.weights.exists()
    assert not ray.is_initialized()
    assert capfd.readouterr() == ("", "")


def test_a_node_is_killed_while_it_verifies(nodes, connected, tmp_path, expected, capfd):
    check_grid(nodes, tmp_path, expected)
    assert capfd.readouterr() == ("", "")


@own_view
def test_no_file_system_is_shared(nodes, connected, tmp_path, expected, monkeypatch):
    out = place_of("not shared", tmp_path, monkeypatch)
    check_grid(nodes, out, expected)
    assert "steadynet-" not in "".join(path.read_text() for path in out.glob("*/runs/*/config.toml"))
    assert not list(nodes.folder.glob("*/*"))


def test_ray_is_not_installed(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "ray", None)
    grid = tmp_path / "grid.toml"
    grid.write_text('name = "tiny"\n[training]\ndata = "digits"\neps = 0.1\n[models.M1]\n[methods.natural]\n')
    words = ("reproduce", grid, "--out", tmp_path / "out", "--engine", "ray")
    assert "pip install steadynet[ray]" in refused(capsys, *words)


@pytest.mark.parametrize(
    ("address", "said"),
    [("nowhere", "must be auto or HOST:PORT"), ("localhost:1", "no Ray cluster answers at localhost:1")],
)
def test_there_is_no_cluster(address, said, tmp_path):
    with pytest.raises(UserError, match=said):
        connect(NotConnected, address)


class NotConnected:
    is_initialized = staticmethod(lambda: False)


def test_no_node_has_as_much_as_a_task_asks_for():
    with pytest.raises(UserError, match="train asks for 1 CPUs and 1 GPUs, but the nodes have 2 and 0; 4 and 0"):
        check_demands([{"CPU": 2}, {"CPU": 4}], [Task("train", TrainJob("run"), gpus=1)])


def test_files_are_copied_there_and_back(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    apply_changes(here, FileChanges({"run/a": b"a", "run/b": b"b", "other/c": b"c"}))
    apply_changes(there, read_files(here, ["run", "run/a", "missing"]))
    tracker = ChangeTracker(there, ["run"])
    assert tracker.since_last_call() == FileChanges()
    apply_changes(there, FileChanges({"run/a": b"new", "run/for/a/while": b"x"}, deleted=("run/b",)))
    assert tracker.since_last_call() == FileChanges({"run/a": b"new", "run/for/a/while": b"x"}, ("run/b",))
    (there / "run/for/a/while").unlink()
    assert tracker.since_last_call() == FileChanges(deleted=("run/for/a/while",))
    assert tracker.since_start() == FileChanges({"run/a": b"new"}, ("run/b", "run/for/a/while"))
    apply_changes(here, tracker.since_start())
    assert read_files(here, ["run", "other"]).written == {"run/a": b"new", "other/c": b"c"}
