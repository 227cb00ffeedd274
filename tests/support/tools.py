"""Tools of the competition as small scripts: honest ones, and others."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CLIENT = """\
import json, socket, sys
_, _, onnx, vnnlib, result, timeout = sys.argv[1:]
with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    server.sendall(json.dumps([onnx, vnnlib, result, timeout]).encode())
    said = b"".join(iter(lambda: server.recv(65536), b""))
open(result, "wb").write(said)
"""


def write_tool(folder: Path, run: str, prepare: str | None = None) -> Path:
    """A folder that keeps the contract; the scripts' arguments are ``$1`` v1 to ``$5`` result and ``$6`` time-out."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("run_instance.sh", run), ("prepare_instance.sh", prepare)):
        if text is not None:
            (folder / name).write_text(f"#!/bin/bash\n{text}\n")
    return folder


@contextmanager
def milp_tool(folder: Path) -> Iterator[Path]:
    """A tool that uses our MILP, in a server process that stays, so that each property is cheap."""
    address = os.path.relpath(folder / "socket")  # the name of a socket must be short
    address = address if len(address) < 90 else str(folder / "socket")
    program = [sys.executable, str(Path(__file__).with_name("milp_server.py")), address]
    server = subprocess.Popen(program, env={**os.environ, "OMP_NUM_THREADS": "1"})
    try:
        while not (folder / "socket").exists():
            assert server.poll() is None
            time.sleep(0.02)
        client = folder / "client.py"
        client.write_text(CLIENT.format(address=str(folder / "socket")))
        yield write_tool(folder / "milp-tool", f'exec "{sys.executable}" -S -E "{client}" "$@"')
    finally:
        server.kill()
        server.wait()
