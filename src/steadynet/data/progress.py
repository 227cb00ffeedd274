"""Show that a data set is fetched, and how far the download is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

OnProgress = Callable[
    [str, int, "int | None"], None
]  # called with: what is fetched, bytes so far, bytes in all or None


def silent(label: str, done: int, total: int | None) -> None:
    """Show nothing."""


def announce(line: str) -> None:
    """Write one line to stderr, so that a long download is never silent, wherever stderr goes."""
    sys.stderr.write(f"steadynet: {line}\n")
    sys.stderr.flush()


@contextmanager
def progress_bar() -> Iterator[OnProgress]:
    """Yield a callback that draws progress bars on stderr; it draws nothing if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, TaskID] = {}

        def show(label: str, done: int, total: int | None) -> None:
            if label not in tasks:
                tasks[label] = bar.add_task(label, total=total)
            bar.update(tasks[label], completed=done, total=total)

        yield show
