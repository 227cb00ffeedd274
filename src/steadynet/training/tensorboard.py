"""Write TensorBoard events of a training, if the optional package is installed."""

from __future__ import annotations

from steadynet.errors import UserError
from steadynet.files import disk_errors
from steadynet.runs.directory import RunDirectory
from steadynet.runs.metrics import EpochMetrics


class EventWriter:
    """Writes the numbers of every epoch as TensorBoard events, into a folder of the run.

    Raises:
        UserError: TensorBoard is not installed.
    """

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
        """Start to write after this many epochs. Events of later epochs, by a training that was killed, are dropped."""
        with disk_errors(self.folder):
            self._writer = self._kind(str(self.folder), purge_step=epochs_done + 1)

    def write(self, metrics: EpochMetrics) -> None:
        """Write every number of one epoch."""
        assert self._writer, "open it first"
        numbers: dict[str, float | None] = {f"loss/{name}": value for name, value in metrics.loss.items()}
        numbers |= {"radius": metrics.radius, "lr": metrics.lr, "seconds": metrics.seconds}
        numbers |= {"validation_accuracy": metrics.validation_accuracy, "stable_share_ibp": metrics.stable_share_ibp}
        with disk_errors(self.folder):
            for name, value in numbers.items():
                if value is not None:
                    self._writer.add_scalar(name, value, metrics.epoch)
            self._writer.flush()
