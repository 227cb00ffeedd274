"""How many epochs of each method take the same CPU minutes: 2 for M1, 4 for C1.

    python benchmarks/method_minutes.py [--models M1@0.1 …] [--methods nbc …] [--repeats 2] [--write]

Each method trains for a few steps on one thread, with the settings of ``methods.toml`` in the scale laptop. These steps
are a whole training in small: ε rises over the same share of them. The first ones warm up and do not count. The fastest
of some repeats counts, as other programs on the machine cost CPU seconds, too. Printed are the CPU milliseconds of a
step, the epochs that fit, and the tables for ``methods.toml``; --write puts them there. At least one epoch is trained:
where a whole one takes longer than the minutes, it has fewer training images.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from pathlib import Path

from method_tables import (
    MINUTES,
    MethodSettings,
    Place,
    add_choice,
    chosen_cells,
    read_settings,
    rises_by_itself,
    show,
)
from steadynet import data as data_sets
from steadynet.experiments.cells import Cell
from steadynet.training.loop import train
from steadynet.training.notation import Phase
from steadynet.training.observer import Position, SilentObserver
from steadynet.training.settings import TrainingSettings, resolve

WARM_UP, STEPS = 5, 50  # steps; 50 are the pace of bias-shaping and stable-pruning, which then act once


class _Clock(SilentObserver):
    """Reads the CPU seconds after each step."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_batch(self, position: Position, phase: Phase, radius: float) -> None:
        self.seconds.append(time.process_time())


def step_seconds(cell: Cell) -> float:
    """Mean CPU seconds of a step of a cell's training, over a training of few steps."""
    values = {key: value for key, value in cell.settings.items() if key not in ("warmup", "phases")}
    (phase,) = resolve(cell.settings).plan
    images = (WARM_UP + STEPS) * resolve(cell.settings).batch_size
    values |= {"method": phase.method, "epochs": 1, "train_images": images, "threads": 1, "device": "cpu"}
    settings = resolve(values)
    if not settings.warmup:
        settings = dataclasses.replace(settings, warmup=0.5)
    clock = _Clock()
    with tempfile.TemporaryDirectory() as folder:
        train(settings, Path(folder) / "run", observer=clock)
    return (clock.seconds[-1] - clock.seconds[WARM_UP - 1]) / STEPS


def fitting(settings: TrainingSettings, seconds_per_step: float, images: int, minutes: float) -> dict[str, float]:
    """The settings that make a training take about so many CPU minutes.

    Args:
        settings: The settings of the cell.
        seconds_per_step: CPU seconds of a step.
        images: How many training images there are.
        minutes: The CPU minutes of the training.
    """
    steps = minutes * 60 / seconds_per_step
    per_epoch = -(-images // settings.batch_size)
    epochs = max(1, round(steps / per_epoch))
    found: dict[str, float] = {"epochs": epochs}
    if steps < per_epoch:
        found["train_images"] = settings.batch_size * max(1, round(steps))
    if settings.plan[0].method != "natural" and not rises_by_itself(settings):
        found["warmup"] = epochs / 2
    return found


def main() -> None:
    """Print one line per model and method, then the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_choice(parser)
    parser.add_argument("--repeats", type=int, default=2, metavar="N", help="measure so many times (default: 2)")
    arguments = parser.parse_args()
    found: dict[Place, MethodSettings] = {}
    before = read_settings()
    print(f"{'model':10} {'method':22} {'ms per step':>12} {'epochs':>7} {'CPU min':>8}")
    for cell in chosen_cells(arguments.models, arguments.methods):
        settings, place = resolve(cell.settings), (cell.model, cell.variant.label)
        images = len(data_sets.load(settings.data).split(settings.validation, settings.seed)[0])
        seconds = min(step_seconds(cell) for _ in range(arguments.repeats))
        training = fitting(settings, seconds, images, MINUTES[settings.model])
        old = before.get(place, MethodSettings())
        kept = {key: value for key, value in old.training.items() if key not in ("epochs", "warmup", "train_images")}
        found[place] = MethodSettings(training | kept, old.parts)
        trained = training["epochs"] * -(-training.get("train_images", images) // settings.batch_size)
        print(
            f"{cell.model:10} {cell.variant.label:22} {1e3 * seconds:12.1f} {training['epochs']:7} "
            f"{trained * seconds / 60:8.1f}",
            flush=True,
        )
    print()
    show(found, arguments.write)


if __name__ == "__main__":
    main()
