"""Ctrl-C and SIGTERM at a moment of our choosing: between two batches."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from steadynet.errors import UserError


class InterruptedByUserError(UserError):
    """Stopped by the user, everything saved; the text says how to go on."""


@contextmanager
def terminated_as_by_ctrl_c() -> Iterator[None]:
    """While active, SIGTERM (as schedulers of clusters send it) does what Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Interruption:
    """While active, the first Ctrl-C (or SIGTERM) only sets ``requested``; the second interrupts at once.

    What the process ignores stays ignored: a worker's Ctrl-C is for the process that started it.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            heard = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
            self._previous = {number: signal.signal(number, self._note) for number in heard}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
