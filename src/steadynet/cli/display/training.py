"""The live view of a training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from steadynet.cli.display.numbers import percent
from steadynet.cli.display.terminal import console, progress_bar
from steadynet.plugins import describe_value
from steadynet.runs.directory import RunDirectory
from steadynet.runs.metrics import EpochMetrics
from steadynet.training.notation import Phase
from steadynet.training.observer import Observer, Position
from steadynet.training.settings import TrainingSettings
from steadynet.training.tensorboard import EventWriter


class TrainingDisplay:
    """An observer that shows a progress bar of all batches and prints one row per epoch.

    Use it as a context manager around the training.

    Args:
        settings: The settings of the training. Those that the user may not have chosen are printed at the start;
            without ``settings``, none are.
    """

    def __init__(self, settings: TrainingSettings | None = None) -> None:
        self.settings = settings
        self.epochs = self.batches = 0
        self.columns: list[str] = []
        self.progress = progress_bar()

    def __enter__(self) -> TrainingDisplay:
        self.progress.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.progress.__exit__(*error)

    def on_start(self, epochs: int, batches: int, position: Position) -> None:
        """Print what is trained, and show the bar."""
        self.epochs, self.batches, self.columns = epochs, batches, []
        for name, values in self._settings_to_show().items():
            shown = [f"{key} {describe_value(value)}" for key, value in values.items() if value is not None]
            if shown:
                console.print(f"{name}: {', '.join(shown)}", soft_wrap=True)
        done = position.epoch * batches + position.batch
        if done:
            console.print(f"continues in epoch {position.epoch + 1} of {epochs}, batch {position.batch + 1}")
        self.task = self.progress.add_task("training", total=epochs * batches, completed=done, note="")

    def _settings_to_show(self) -> dict[str, dict[str, Any]]:
        """Return the settings of each part of the method, and those of the training that the method's recipe sets."""
        if self.settings is None:
            return {}
        by_recipe = {name: getattr(self.settings, name) for name in self.settings.chosen_by_recipe()}
        return {**self.settings.methods, "training": by_recipe}

    def on_batch(self, position: Position, phase: Phase, radius: float) -> None:
        """Move the bar and show the loss terms."""
        terms = "  ".join(f"{name} {value:.2f}" for name, value in position.means().items())
        self.progress.update(
            self.task,
            completed=position.epoch * self.batches + position.batch,
            description=f"epoch {position.epoch + 1}/{self.epochs} {phase.method}",
            note=f"{terms}  ε {radius:.3g}",
        )

    def on_epoch(self, metrics: EpochMetrics) -> None:
        """Print one row; above it the names of the columns, if they have changed."""
        cells = {"epoch": f"{metrics.epoch}/{self.epochs}"}
        if metrics.validation_accuracy is not None:
            cells["accuracy"] = percent(metrics.validation_accuracy)
            cells["stable"] = percent(metrics.stable_share_ibp)
        cells |= {name: f"{value:.3f}" for name, value in metrics.loss.items()}
        cells["time"] = f"{metrics.seconds:.0f} s"
        if list(cells) != self.columns:
            self.columns = list(cells)
            self._print_row({name: name for name in cells})
        self._print_row(cells)

    def _print_row(self, cells: dict[str, str]) -> None:
        console.print(" ".join(f"{cell:>{max(7, len(name))}}" for name, cell in cells.items()), soft_wrap=True)


class WithEvents:
    """An observer that writes TensorBoard events and passes everything on to another observer."""

    def __init__(self, inner: Observer, writer: EventWriter) -> None:
        self.inner, self.writer = inner, writer

    def on_start(self, epochs: int, batches: int, position: Position) -> None:
        """Open the file of events at the epoch where the training starts or continues."""
        self.writer.open(position.epoch)
        self.inner.on_start(epochs, batches, position)

    def on_batch(self, position: Position, phase: Phase, radius: float) -> None:
        """Pass the batch on."""
        self.inner.on_batch(position, phase, radius)

    def on_epoch(self, metrics: EpochMetrics) -> None:
        """Write every number of the epoch, then pass it on."""
        self.writer.write(metrics)
        self.inner.on_epoch(metrics)


@contextmanager
def observing(run: RunDirectory, settings: TrainingSettings) -> Iterator[Observer]:
    """Show a training, and write TensorBoard events into ``run`` if the settings ask for them."""
    with TrainingDisplay(settings) as display:
        if not settings.tensorboard:
            yield display
            return
        with EventWriter(run) as writer:
            yield WithEvents(display, writer)
