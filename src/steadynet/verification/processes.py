"""Other people's programs, run with a limit: their lines as they come, and nothing of them left behind."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from steadynet.errors import UserError, one_line

LONGEST_LINE = 2**20  # bytes; more without a line end counts as a line
KEPT = 4096  # bytes of what it complained of last
TO_END = 0.3  # seconds between the request to end and the kill
MARK = "STEADYNET_PROCESS"  # in the environment of the program and of all it starts


class OverdueError(Exception):
    """The program took longer than it may."""


class ExternalProgram:
    """A running program with its own process group; leaving the ``with`` block ends it and all that it started.

    ``heard``: whether anybody wants its lines.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None, heard: bool = True
    ) -> None:
        self._mark = uuid.uuid4().hex
        self._lines: queue.Queue[str | None] = queue.Queue(1000)
        self._complaints = b""
        try:
            self.process = subprocess.Popen(
                list(command),
                cwd=folder,
                env={**os.environ, **(environment or {}), MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if heard else subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise UserError(f"cannot run {command[0]}: {one_line(error)}") from error
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_complaints)]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> ExternalProgram:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def lines(self, end: Callable[[], float]) -> Iterator[str]:
        """What it prints, line by line, until it is done; past ``end()``, by ``time.perf_counter``, it is overdue."""
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, min(end() - time.perf_counter(), 0.2)))
            except queue.Empty:
                if time.perf_counter() >= end():
                    raise OverdueError from None
                if self.process.poll() is not None and self._lines.empty():
                    return  # what it left behind may hold the pipe open
                continue
            if line is None:
                return
            yield line

    def wait(self, end: float) -> int:
        """Its exit code, once it is done."""
        try:
            return self.process.wait(max(0.0, end - time.perf_counter()))
        except subprocess.TimeoutExpired:
            raise OverdueError from None

    def complaint(self) -> str:
        """The last line it wrote to its error output."""
        self._readers[1].join(0.2)
        lines = self._complaints.decode(errors="replace").strip().splitlines()
        return " ".join(lines[-1].split())[:300] if lines else ""

    def end(self) -> None:
        """Ask the whole group to end, then kill it, and whatever of it has left the group."""
        if self.process.poll() is None:
            self._signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(TO_END)
        self._signal(signal.SIGKILL)
        for survivor in marked(self._mark):
            _kill(os.kill, survivor, signal.SIGKILL)
        self.process.wait()
        for stream, reader in zip((self.process.stdout, self.process.stderr), self._readers, strict=True):
            for _ in range(100):  # the queue may be full, or the pipe in the hands of one that no signal reaches
                if not reader.is_alive():
                    break
                self._empty()
                reader.join(0.01)
            if stream is not None and not reader.is_alive():
                stream.close()

    def _empty(self) -> None:
        while True:
            try:
                self._lines.get_nowait()
            except queue.Empty:
                return

    def _signal(self, number: int) -> None:
        _kill(os.killpg, self.process.pid, number)

    def _read(self) -> None:
        stream = self.process.stdout
        while stream is not None and (line := stream.readline(LONGEST_LINE)):
            self._lines.put(line.decode(errors="replace").rstrip("\r\n"))
        self._lines.put(None)

    def _read_complaints(self) -> None:
        stream = self.process.stderr
        while stream is not None and (part := os.read(stream.fileno(), 2**16)):
            self._complaints = (self._complaints + part)[-KEPT:]


def _kill(how: Callable[[int, int], None], target: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        how(target, number)


def marked(mark: str) -> list[int]:
    """The processes whose environment carries this mark, where the system tells (Linux)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # gone, or another user's
            continue
    return found
