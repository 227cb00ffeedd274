"""Serve the page on this machine only, and make it again when files change, so that a running grid can be watched."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from steadynet.errors import UserError, one_line
from steadynet.experiments.directory import ExperimentDirectory
from steadynet.report.content import make_report
from steadynet.report.gallery import MAX_PICTURES
from steadynet.report.page import page_of
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
    """The page of some folders, up to date with their files."""

    def __init__(self, folders: Sequence[Path], max_pictures: int = MAX_PICTURES) -> None:
        self.folders, self.max_pictures = folders, max_pictures
        self._lock = threading.Lock()
        self._made: tuple[str, bytes] | None = None

    def version(self) -> str:
        """A fingerprint of all files that the page is made from; it changes when they change."""
        digest = hashlib.sha256()
        for folder in self.folders:
            for path in sorted(folder.rglob("*")):
                if path.name in WATCHED:
                    try:
                        facts = path.stat()
                    except OSError:  # removed since it was listed
                        continue
                    digest.update(f"{path}\0{facts.st_mtime_ns}\0{facts.st_size}\n".encode())
        return digest.hexdigest()[:16]

    def html(self) -> bytes:
        """The current page. If a file is half-written at this moment, the page before it."""
        with self._lock:
            version = self.version()
            if self._made is None or self._made[0] != version:
                try:
                    text = page_of(make_report(self.folders), self.max_pictures, live=version)
                    self._made = version, text.encode()
                except UserError:
                    if self._made is None:
                        raise
            return self._made[1]


def _handler(live: LivePage, hosts: set[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers with the page, or with its version."""

        def do_GET(self) -> None:
            """Answer requests addressed to this machine; other web sites cannot read the page through a browser."""
            if self.headers.get("Host") not in hosts:
                self._answer(403, "text/plain", b"this server answers requests to this machine only")
                return
            try:
                if self.path in ("/", "/index.html"):
                    self._answer(200, "text/html; charset=utf-8", live.html())
                elif self.path == "/state.json":
                    self._answer(200, "application/json", json.dumps({"version": live.version()}).encode())
                else:
                    self._answer(404, "text/plain", b"not found")
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
            """Log nothing."""

    return Handler


def make_server(folders: Sequence[Path], port: int, max_pictures: int = MAX_PICTURES) -> ThreadingHTTPServer:
    """Make a server that only this machine can reach. The caller starts it with ``serve_forever``.

    Args:
        folders: Run directories, experiments, or folders that hold some.
        port: The port; 0 picks a free one.
        max_pictures: How many counterexamples the page draws at most.

    Returns:
        The server. It has made the page once, so that a mistake shows now and not at the first request.

    Raises:
        UserError: If a folder holds no runs, if a file is damaged, if the port is in use, or if the extra
            ``steadynet[report]`` is not installed.
    """
    live = LivePage(folders, max_pictures)
    live.html()
    hosts: set[str] = set()
    try:
        server = ThreadingHTTPServer((HOST, port), _handler(live, hosts))
    except OSError as error:
        raise UserError(f"cannot serve on port {port}: {one_line(error)}; choose another with --port") from error
    hosts |= {f"{name}:{server.server_port}" for name in (HOST, "localhost")}
    server.daemon_threads = True
    return server
