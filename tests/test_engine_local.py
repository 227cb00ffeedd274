"""The engine local shares out GPUs: of the tasks that use one, one a GPU at a time, while others go on."""

from __future__ import annotations

from dataclasses import dataclass

from steadynet.experiments.engines.base import Engine, Pool
from steadynet.experiments.engines.local import LocalPool, _Worker
from steadynet.experiments.tasks import Event, Task

TRAININGS = [Task(f"training {number}", "train", {"settings": {}}) for number in range(4)]
ON_A_CPU = Task("training on a CPU", "train", {"settings": {"device": "cpu"}})
PROOFS = Task("proofs", "verify", {"device": "cpu"})
PROOFS_ON_A_GPU = Task("proofs on a GPU", "verify", {"device": "auto"}, gpus=0.5)


class Sent(list):
    send = list.append


def pool_of(workers, gpus):
    """A pool whose workers only note what they are given."""
    pool = object.__new__(LocalPool)
    pool._gpus, pool._workers = range(gpus), [_Worker(None, Sent()) for _ in range(workers)]
    return pool


def test_a_gpu_has_one_task_at_a_time():
    pool = pool_of(workers=5, gpus=2)
    for task in TRAININGS[:2]:
        assert pool.can_take(task)
        pool.submit(task)
    assert [pool.can_take(task) for task in (TRAININGS[2], PROOFS_ON_A_GPU, PROOFS, ON_A_CPU)] == [
        False,
        False,
        True,
        True,
    ]
    pool.submit(PROOFS)
    pool._workers[1].task = None  # it has ended
    assert pool.can_take(PROOFS_ON_A_GPU)
    pool.submit(PROOFS_ON_A_GPU)
    assert [worker.pipe for worker in pool._workers] == [
        [(TRAININGS[0], 0)],
        [(TRAININGS[1], 1), (PROOFS_ON_A_GPU, 1)],
        [(PROOFS, None)],
        [],
        [],
    ]


def test_without_a_gpu_only_workers_count():
    pool = pool_of(workers=3, gpus=0)
    for task in TRAININGS[:3]:
        assert pool.has_room()
        assert pool.can_take(task)
        pool.submit(task)
    assert not pool.has_room()
    assert [worker.gpu for worker in pool._workers] == [None] * 3


class OneAtATime(Pool):
    """Takes one training at a time, and any number of others; everything is done at the next look."""

    def __init__(self):
        self.running, self.together = [], []

    def has_room(self):
        return True

    def can_take(self, task):
        return task.kind != "train" or all(other.kind != "train" for other in self.running)

    def submit(self, task):
        self.running.append(task)

    def events(self):
        self.together.append([task.name for task in self.running])
        ended, self.running = self.running, []
        return [Event(task.name, "done") for task in ended]

    def close(self):
        pass


@dataclass(frozen=True, kw_only=True)
class Planned(Engine):
    name, summary = "planned", "for this test"
    pool: OneAtATime

    def open(self, root, tasks):
        return self.pool


def test_a_task_that_cannot_be_taken_lets_others_pass(tmp_path):
    pool = OneAtATime()
    Planned(pool=pool).run(tmp_path, [*TRAININGS[:2], PROOFS], lambda event: None)
    assert pool.together == [["training 0", "proofs"], ["training 1"]]
