"""The page on this machine alone, made anew when files change, so that a grid can be watched while it runs."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from steadynet.errors import UserError, one_line
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.report.gallery import MOST_PICTURES
from steadynet.report.write import make_report, page_of
from steadynet.runs.directory import RunDirectory

HOST = "127.0.0.1"
_EXPERIMENT, _RUN = ExperimentDirectory(Path()), RunDirectory(Path())
WATCHED = {
    file.name
    for file in (
        _EXPERIMENT.grid,
        _EXPERIMENT.table_json,
        _RUN.metrics,
        _RUN.evaluation,
        _RUN.verdicts,
        _RUN.config,
    )
}


class LivePage:
    """The page of some folders; ``version`` changes when their files do."""

    def __init__(self, folders: Sequence[Path], most_pictures: int = MOST_PICTURES) -> None:
        self.folders, self.most_pictures = folders, most_pictures
        self._lock = threading.Lock()
        self._made: tuple[str, bytes] | None = None

    def version(self) -> str:
        """A name for the state of all files that the page is made of."""
        digest = hashlib.sha256()
        for folder in self.folders:
            for path in sorted(folder.rglob("*")):
                if path.name in WATCHED:
                    try:
                        facts = path.stat()
                    except OSError:  # gone since it was listed
                        continue
                    digest.update(f"{path}\0{facts.st_mtime_ns}\0{facts.st_size}\n".encode())
        return digest.hexdigest()[:16]

    def html(self) -> bytes:
        """The page as it is now; what is half-written at this moment leaves the page before in place."""
        with self._lock:
            version = self.version()
            if self._made is None or self._made[0] != version:
                try:
                    text = page_of(make_report(self.folders), self.most_pictures, live=version)
                    self._made = version, text.encode()
                except UserError:
                    if self._made is None:
                        raise
            return self._made[1]


def _handler(live: LivePage, hosts: set[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Two answers: the page, and its version."""

        def do_GET(self) -> None:
            """Answer, but only who asks for this machine by its name: no other site reads through a browser."""
            if self.headers.get("Host") not in hosts:
                self._answer(403, "text/plain", b"ask for this machine")
                return
            try:
                if self.path in ("/", "/index.html"):
                    self._answer(200, "text/html; charset=utf-8", live.html())
                elif self.path == "/state.json":
                    self._answer(200, "application/json", json.dumps({"version": live.version()}).encode())
                else:
                    self._answer(404, "text/plain", b"there is nothing here")
            except UserError as error:
                self._answer(500, "text/plain; charset=utf-8", one_line(error).encode())

        def _answer(self, code: int, kind: str, content: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.send_header("X-Content-Type-Options", "nosniff")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            """Say nothing."""

    return Handler


def make_server(folders: Sequence[Path], port: int, most_pictures: int = MOST_PICTURES) -> ThreadingHTTPServer:
    """A server on this machine alone; port 0 picks a free one. The page is made once, so that mistakes show at once."""
    live = LivePage(folders, most_pictures)
    live.html()
    hosts: set[str] = set()
    try:
        server = ThreadingHTTPServer((HOST, port), _handler(live, hosts))
    except OSError as error:
        raise UserError(f"cannot serve on port {port}: {one_line(error)}; choose another with --port") from error
    hosts |= {f"{name}:{server.server_port}" for name in (HOST, "localhost")}
    server.daemon_threads = True
    return server
