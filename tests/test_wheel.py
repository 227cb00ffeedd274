"""A wheel holds all that a user needs: it lists, trains, verifies and reports from a new virtual environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

from places import ROOT
from steadynet.files import read_toml

PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
# A demo that takes a moment, from whatever package is installed.
DEMO = """
import steadynet
from steadynet.cli import demo, main

assert steadynet.__file__.startswith({place!r}), steadynet.__file__
assert main(["list"]) == 0
demo.RADII, demo.PGD_STEPS, demo.PER_CLASS, demo.TIMEOUT = (0.1,), 2, 1, 0.2
demo.TRAINING["train_images"] = 256
assert main(["demo", "--epochs", "1", "--threads", "1"]) == 0
"""


def build_wheel(folder: Path) -> Path:
    """Build the wheel from a copy of the source, so that nothing is left behind in it."""
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder / "dist")]
    subprocess.run([*PIP, "wheel", *options, str(folder)], check=True)
    (wheel,) = (folder / "dist").iterdir()
    return wheel


def new_environment(folder: Path) -> Path:
    """Make a virtual environment that sees the other packages of this one, but not the source of steadynet."""
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    (site / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")  # .pth files of that folder do not count
    return folder / "bin" / "python"


def test_a_user_installs_nothing_that_only_the_tests_need():
    project = read_toml(ROOT / "pyproject.toml")["project"]
    (installed,) = re.findall(r"--editable \"\.\[(\w+)\]\" --editable ./checker\n\trm", (ROOT / "Makefile").read_text())
    needed = " ".join([*project["dependencies"], *project["optional-dependencies"][installed]])
    assert "torch" in needed
    assert not [name for name in ("ray", "marabou", "mypy", "selenium", "mkdocs", "pytest", "ruff") if name in needed]


def test_the_wheel_runs_the_demo_in_a_new_environment(tmp_path):
    (tmp_path / "source").mkdir()
    (tmp_path / "work").mkdir()
    wheel = build_wheel(tmp_path / "source")
    python = new_environment(tmp_path / "environment")
    install = ["--python", str(python), "install", "--quiet", "--no-deps", "--no-index", "--ignore-installed"]
    subprocess.run([*PIP, *install, str(wheel)], check=True)
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-c", DEMO.format(place=str(tmp_path / "environment"))],
        cwd=tmp_path / "work",
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for text in ("Methods, for train --method", "The same network, trained twice", "See both networks"):
        assert text in done.stdout
    assert (tmp_path / "work/demo/report/index.html").is_file()
    version = subprocess.run(
        [python.with_name("steadynet"), "--version"], env=environment, capture_output=True, text=True, check=True
    )
    assert version.stdout.startswith("steadynet ")
