"""Handle Ctrl-C and SIGTERM between two batches, where everything can be saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from steadynet.errors import UserError


class InterruptedByUserError(UserError):
    """The user stopped the training. Everything is saved, and the message says how to continue."""


@contextmanager
def terminated_as_by_ctrl_c() -> Iterator[None]:
    """While active, SIGTERM, which the schedulers of clusters send, raises ``KeyboardInterrupt`` as Ctrl-C does."""
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
    """While active, the first Ctrl-C (or SIGTERM) only sets ``requested``; the second one interrupts at once.

    A signal that the process ignores stays ignored: a worker process leaves Ctrl-C to the process that started it.
    """

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interruption:
        if threading.current_thread() is threading.main_thread():
            handled = [n for n in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(n) is not signal.SIG_IGN]
            self._previous = {number: signal.signal(number, self._request) for number in handled}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
