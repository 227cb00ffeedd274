"""How an experiment was made: by which version, on what machine, when."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

from steadynet import __version__


def provenance() -> dict[str, Any]:
    """What is known of this software and this machine."""
    facts = {
        "steadynet": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": _cpu(),
        "cores": os.cpu_count() or 1,
        "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())],
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    return {key: value for key, value in facts.items() if value is not None}


def _commit() -> str | None:
    """The commit of the source tree this package is installed from, if it is one."""
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return None
    asked = subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or None


def _cpu() -> str | None:
    path = Path("/proc/cpuinfo")
    if not path.is_file():
        return platform.processor() or None
    lines = [line for line in path.read_text(errors="replace").splitlines() if line.startswith("model name")]
    return lines[0].partition(":")[2].strip() if lines else None
