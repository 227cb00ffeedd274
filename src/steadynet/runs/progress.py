"""Progress bars for functions that are called from Python."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID

NOTEBOOK_WIDTH = 100  # characters
REFRESHES_PER_SECOND = 4


def in_notebook() -> bool:
    """Tell whether this code runs in a Jupyter kernel. IPython is not imported for that.

    >>> in_notebook()
    False
    """
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    shell = get_ipython() if get_ipython else None
    return getattr(shell, "kernel", None) is not None  # IPython in a terminal has no kernel


class ProgressBar:
    """A progress bar of one line. Use it as a context manager around the work.

    Args:
        description: What is done, in one word.
        wanted: Whether to show the bar. None shows it in notebooks only.

    Example:
        >>> with ProgressBar("attacking", wanted=False) as bar:
        ...     bar.start(10)
        ...     bar.move(3, "of the first radius")
        >>> bar.done
        3
    """

    def __init__(self, description: str, wanted: bool | None = None) -> None:
        self.description, self.done = description, 0
        self._shown = in_notebook() if wanted is None else wanted
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(self, *error: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def start(self, total: int, done: int = 0) -> None:
        """Show the bar.

        Args:
            total: The number of steps.
            done: How many of them are done already.
        """
        self.done = done
        if self._shown:
            self._progress = _progress()
            self._task = self._progress.add_task(self.description, total=total, completed=done, note="")
            self._progress.start()

    def move(self, steps: int = 1, note: str | None = None) -> None:
        """Move the bar, and replace the remark beside it if a new one is given."""
        self.done += steps
        if self._progress is not None and self._task is not None:
            fields = {} if note is None else {"note": note}
            self._progress.update(self._task, completed=self.done, **fields)  # type: ignore[arg-type]


def _progress() -> Progress:
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.table import Column

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TaskProgressColumn(),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, overflow="ellipsis"), markup=False),
        console=_console(),
        refresh_per_second=REFRESHES_PER_SECOND,
        redirect_stdout=False,
        redirect_stderr=False,
    )


def _console() -> Console:
    """Return where the bar is drawn: the output of the cell in a notebook, otherwise standard error.

    A notebook gets the bar as text that overwrites its line. Rich's own widgets would need the package ipywidgets.
    """
    from rich.console import Console

    if not in_notebook():
        return Console(stderr=True)
    return Console(force_jupyter=False, force_terminal=True, legacy_windows=False, width=NOTEBOOK_WIDTH)
