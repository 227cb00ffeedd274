"""What engines run: tasks with a job each, and the events that report their progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from steadynet.experiments.strength_search import AccuracyWindow
from steadynet.experiments.tuning import TuningBudget

Kind = Literal["train", "tune", "evaluate", "verify"]
Stage = Literal["train", "evaluate", "verify"]  # of an experiment, in order; tuning is a way to train
State = Literal["waiting", "running", "done", "failed", "blocked"]
TrainingValues = Mapping[str, Any]  # settings of a training by name, as a TOML file gives them


@dataclass(frozen=True)
class TrainJob:
    """Train a network. All paths of a job are relative to the experiment's directory."""

    kind: ClassVar[Kind] = "train"

    run: str
    settings: TrainingValues = field(default_factory=dict)


@dataclass(frozen=True)
class TuneJob:
    """Fine-tune a network so that its accuracy falls into a window."""

    kind: ClassVar[Kind] = "tune"

    run: str
    settings: TrainingValues
    window: AccuracyWindow
    budget: TuningBudget
    trials: str  # the folder of the runs that are tried


@dataclass(frozen=True)
class EvaluateJob:
    """Measure the accuracy of a network on test images, clean and under attack."""

    kind: ClassVar[Kind] = "evaluate"

    run: str
    data: str
    radii: tuple[float, ...]
    pgd_steps: tuple[int, ...]  # one attack each
    images: int | None = None  # how many images are attacked; None for all
    device: str = "cpu"


@dataclass(frozen=True)
class VerifyJob:
    """Decide the properties of one shard."""

    kind: ClassVar[Kind] = "verify"

    run: str
    data: str
    shard: str
    eps: float
    index: tuple[int, ...]  # of the test images
    verifier: str
    verifier_settings: Mapping[str, object] = field(default_factory=dict)
    device: str = "cpu"


Job = TrainJob | TuneJob | EvaluateJob | VerifyJob


@dataclass(frozen=True)
class Task:
    """One piece of work. It consists of plain data, so that it can be sent to another process or machine.

    A task that has been done does nothing when it is run again; one that was killed continues. It reads the files
    below ``reads`` and leaves all its results below ``writes``. Where no file system is shared, the engine copies
    ``reads`` to the task and ``writes`` back.
    """

    name: str
    job: Job
    needs: tuple[str, ...] = ()  # names of tasks that must be done before
    reads: tuple[str, ...] = ()  # paths, relative to the experiment's directory
    writes: tuple[str, ...] = ()
    cpus: int = 1
    gpus: float = 0
    label: str = ""  # for people; ``name`` is for files
    group: str = ""  # tasks of one kind and group take about as long

    @property
    def kind(self) -> Kind:
        """What the task does."""
        return self.job.kind


@dataclass(frozen=True)
class Event:
    """A change of a task: it started, progressed, ended, failed, or is blocked because a task that it needs failed."""

    task: str
    state: State
    done: int = 0  # of ``total`` batches, images or properties
    total: int = 0
    note: str = ""  # what the task is doing, or why it failed
    lost: bool = False  # the worker died, which says nothing about the task: it is tried again
