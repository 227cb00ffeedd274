"""How an experiment was made: by which version of the software, on which machine and when."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import torch

from steadynet import __version__
from steadynet.errors import UserError
from steadynet.files import record_from


@dataclass(frozen=True)
class Provenance:
    """The software and the machine. What is not known is empty or None."""

    steadynet: str = ""
    commit: str | None = None
    python: str = ""
    torch: str = ""
    system: str = ""
    cpu: str | None = None
    cores: int | None = None
    gpus: tuple[str, ...] = ()
    date: str = ""

    @property
    def hardware(self) -> str:
        """The machine in words.

        >>> Provenance(cpu="A processor", cores=2).hardware
        'A processor, 2 cores'
        """
        cores = f"{self.cores} cores" if self.cores else None
        return ", ".join(part for part in (self.cpu, cores, *self.gpus) if part)


@dataclass(frozen=True)
class Made(Provenance):
    """How an experiment was made, as ``grid.toml`` holds it in its table [made]."""

    scale: str | None = None
    seeds: tuple[int, ...] = (0,)
    engine: str = ""
    started: str = ""
    files: Mapping[str, str] = field(default_factory=dict)  # hashes of the user's files by path
    published: bool = False  # it holds finished runs only, whose verdicts are those that were planned

    def to_toml(self) -> dict[str, Any]:
        """Return the content of the table; what is not known is left out."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return {name: value for name, value in values.items() if value not in (None, "", (), {}, False)}


def made_from(table: Mapping[str, Any], source: str) -> Made:
    """Read the table [made] of a grid file.

    Raises:
        UserError: The table is damaged.
    """
    try:
        return record_from(Made, dict(table))
    except ValueError as error:
        raise UserError(f"{source} [made] is damaged ({error}): delete this table") from error


def provenance() -> Provenance:
    """Return what is known of this software and this machine."""
    return Provenance(
        steadynet=__version__,
        commit=_commit(),
        python=platform.python_version(),
        torch=str(torch.__version__),
        system=f"{platform.system()} {platform.machine()}",
        cpu=_cpu(),
        cores=os.cpu_count() or 1,
        gpus=tuple(torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())),
        date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )


def _commit() -> str | None:
    """Return the commit of the source tree that this package is installed from, if it is one."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    result = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return result.stdout.strip() or None


def _cpu() -> str | None:
    path = Path("/proc/cpuinfo")
    if not path.is_file():
        return platform.processor() or None
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.startswith("model name")]
    return lines[0].partition(":")[2].strip() if lines else None
