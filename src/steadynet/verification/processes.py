"""External programs with a time limit: reading their output, and ending every process that they started."""

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

LONGEST_LINE = 2**20  # bytes; a longer line is read as several
ERROR_BYTES_KEPT = 4096  # of the end of the error output
SECONDS_TO_TERMINATE = 0.3  # between SIGTERM and SIGKILL
MARK = "STEADYNET_PROCESS"  # environment variable of the program and, by inheritance, of every process it starts


class ProgramTimeoutError(Exception):
    """An external program did not finish in time."""


class ExternalProgram:
    """A running external program, in a process group of its own.

    Use it in a ``with`` block. Leaving the block ends the program and every process that it started.

    Args:
        command: The program and its arguments.
        folder: The working directory.
        environment: Environment variables to set in addition to the present ones.
        read_output: Whether the standard output is read, by :meth:`lines`. Otherwise it is discarded.

    Raises:
        UserError: The program cannot be started.

    Example:
        >>> import sys
        >>> with ExternalProgram([sys.executable, "-c", "print('a'); print('b')"], Path.cwd()) as program:
        ...     list(program.lines(lambda: time.perf_counter() + 60))
        ['a', 'b']
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        environment: Mapping[str, str] | None = None,
        read_output: bool = True,
    ) -> None:
        self._mark = uuid.uuid4().hex
        self._lines: queue.Queue[str | None] = queue.Queue(1000)  # None: the output has ended
        self._errors = b""
        try:
            self.process = subprocess.Popen(
                list(command),
                cwd=folder,
                env={**os.environ, **(environment or {}), MARK: self._mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if read_output else subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise UserError(f"cannot run {command[0]}: {one_line(error)}") from error
        self._readers = [threading.Thread(target=read, daemon=True) for read in (self._read_output, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def __enter__(self) -> ExternalProgram:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def lines(self, deadline: Callable[[], float]) -> Iterator[str]:
        """Yield each line of the standard output as soon as it is printed, until the program ends.

        Args:
            deadline: Returns the time, on the clock ``time.perf_counter``, at which the program must have printed its
                next line. It is called again for every line, so the deadline may move.

        Raises:
            ProgramTimeoutError: The deadline has passed.
        """
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, min(deadline() - time.perf_counter(), 0.2)))
            except queue.Empty:
                if time.perf_counter() >= deadline():
                    raise ProgramTimeoutError from None
                if self.process.poll() is not None and self._lines.empty():
                    return  # the program has ended, but a process that it started may still hold the pipe open
                continue
            if line is None:
                return
            yield line

    def wait(self, deadline: float) -> int:
        """Wait until the program ends, and return its exit code.

        Raises:
            ProgramTimeoutError: The deadline, on the clock ``time.perf_counter``, has passed.
        """
        try:
            return self.process.wait(max(0.0, deadline - time.perf_counter()))
        except subprocess.TimeoutExpired:
            raise ProgramTimeoutError from None

    def last_error(self) -> str:
        """Return the last line of the error output, or an empty string."""
        self._readers[1].join(0.2)
        lines = self._errors.decode(errors="replace").strip().splitlines()
        return " ".join(lines[-1].split())[:300] if lines else ""

    def end(self) -> None:
        """Terminate the process group, then kill it, and also kill the processes that have left the group."""
        if self.process.poll() is None:
            self._signal_group(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(SECONDS_TO_TERMINATE)
        self._signal_group(signal.SIGKILL)
        for process in marked_processes(self._mark):
            _send(os.kill, process, signal.SIGKILL)
        self.process.wait()
        for stream, reader in zip((self.process.stdout, self.process.stderr), self._readers, strict=True):
            for _ in range(100):  # a reader may wait for room in the queue, or for a pipe that a survivor holds open
                if not reader.is_alive():
                    break
                self._discard_lines()
                reader.join(0.01)
            if stream is not None and not reader.is_alive():
                stream.close()

    def _discard_lines(self) -> None:
        with suppress(queue.Empty):
            while True:
                self._lines.get_nowait()

    def _signal_group(self, number: int) -> None:
        _send(os.killpg, self.process.pid, number)

    def _read_output(self) -> None:
        stream = self.process.stdout
        while stream is not None and (line := stream.readline(LONGEST_LINE)):
            self._lines.put(line.decode(errors="replace").rstrip("\r\n"))
        self._lines.put(None)

    def _read_errors(self) -> None:
        stream = self.process.stderr
        while stream is not None and (part := os.read(stream.fileno(), 2**16)):
            self._errors = (self._errors + part)[-ERROR_BYTES_KEPT:]


def _send(kill: Callable[[int, int], None], target: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        kill(target, number)


def marked_processes(mark: str) -> list[int]:
    """Return the ids of the processes whose environment has ``MARK`` set to this value (on Linux, else none)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"{MARK}={mark}".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:  # the process has ended, or belongs to another user
            continue
    return found
