"""Where output goes, and the progress bar.

Results go to standard output (:data:`console`), remarks about them to standard error (:data:`messages`).
"""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Column, Table
from rich.text import Text

console = Console(highlight=False)
messages = Console(stderr=True, highlight=False)


def progress_bar() -> Progress:
    """Return a progress bar of one line that vanishes when it is done.

    Every task of it needs the field ``note``, a remark to the right of the bar. A task may have the field ``left``, the
    time that it still takes, in words; without it the bar estimates the time from its speed so far. Where standard
    output and standard error are no terminals, nothing is shown.
    """
    screen = _screen()
    columns: list[ProgressColumn] = [
        TextColumn("{task.description}", table_column=Column(no_wrap=True)),
        BarColumn(bar_width=8 if screen.width < 100 else 24, table_column=Column(no_wrap=True)),
        TaskProgressColumn(table_column=Column(no_wrap=True)),
        _TimeLeft(compact=True, table_column=Column(no_wrap=True)),
        TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, overflow="ellipsis", ratio=1)),
    ]
    return _Bar(
        *columns,
        console=screen,
        transient=True,
        expand=True,
        redirect_stdout=screen is console,
        disable=not screen.is_terminal,
    )


def _screen() -> Console:
    """Return where a person watches.

    That is standard output if it is a terminal, so that a printed line never lands on the bar; otherwise standard
    error.
    """
    return console if console.is_terminal else messages


class _Bar(Progress):
    """A progress bar with room at its right end for the ``^C`` that a terminal echoes.

    Without the room, the echo would start a new line and the bar would stay on the screen.
    """

    def make_tasks_table(self, tasks: Iterable[Task]) -> Table:
        table = super().make_tasks_table(tasks)
        table.width = max(_screen().width - 3, 1)
        return table


class _TimeLeft(TimeRemainingColumn):
    """The time left: what the task says in its field ``left``, otherwise an estimate from its speed."""

    def render(self, task: Task) -> Text:
        left = task.fields.get("left")
        return super().render(task) if left is None else Text(left, style="progress.remaining")
