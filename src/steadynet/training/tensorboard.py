"""TensorBoard events of a training, where the optional extra is installed."""

from __future__ import annotations

from typing import Any

from steadynet.errors import UserError
from steadynet.files import disk_errors
from steadynet.runs.directory import RunDirectory


class EventWriter:
    """The numbers of every epoch as TensorBoard events, in a folder of the run."""

    def __init__(self, run: RunDirectory) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError("--tensorboard needs an extra: pip install 'steadynet[tensorboard]'") from error
        self.folder, self._kind = run.events, SummaryWriter
        self._writer: SummaryWriter | None = None

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer:
            self._writer.close()

    def open(self, epochs_done: int) -> None:
        """Start to write; events of later epochs, from before a training was killed, count no more."""
        with disk_errors(self.folder):
            self._writer = self._kind(str(self.folder), purge_step=epochs_done + 1)

    def write(self, metrics: dict[str, Any]) -> None:
        """Every number of one epoch."""
        assert self._writer, "open it first"
        numbers = {f"loss/{name}": value for name, value in metrics["loss"].items()}
        numbers |= {name: value for name, value in metrics.items() if isinstance(value, float)}
        with disk_errors(self.folder):
            for name, value in numbers.items():
                self._writer.add_scalar(name, value, metrics["epoch"])
            self._writer.flush()
