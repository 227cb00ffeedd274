"""Idle threads sleep: set before PyTorch is loaded, for the command line and its workers, unless the user chose."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from steadynet.threads import WAIT_SETTINGS, let_threads_sleep

SHOW_POLICY = "import os; print(os.environ.get('OMP_WAIT_POLICY'), 'torch' in sys.modules)"


def without_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in WAIT_SETTINGS}


def said_by(code: str, **environment: str) -> str:
    program = [sys.executable, "-c", f"import sys; {code}"]
    return subprocess.run(
        program, env=without_settings() | environment, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(("given", "policy"), [({}, "passive"), ({"OMP_WAIT_POLICY": "active"}, "active")])
def test_the_command_line_sets_the_policy_before_it_imports_torch(given, policy):
    watched = f"import steadynet.cli as cli; cli.parse_command_line = lambda words: exec({SHOW_POLICY!r}) or exit()"
    assert said_by(f"{watched}; cli.main([])", **given) == f"{policy} False\n"


@pytest.mark.parametrize("name", ["GOMP_SPINCOUNT", "KMP_BLOCKTIME"])
def test_other_settings_of_the_user_are_left_alone(name, monkeypatch):
    for setting in WAIT_SETTINGS:
        monkeypatch.delenv(setting, raising=False)
    monkeypatch.setenv(name, "7")
    let_threads_sleep()
    assert "OMP_WAIT_POLICY" not in os.environ
    assert os.environ[name] == "7"


def test_openmp_obeys():
    # GCC's library prints its settings when it is loaded; another library may not
    shown = subprocess.run(
        [sys.executable, "-c", "from steadynet.threads import let_threads_sleep; let_threads_sleep(); import torch"],
        env=without_settings() | {"OMP_DISPLAY_ENV": "true"},
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    if "OMP_WAIT_POLICY" not in shown:
        pytest.skip("this OpenMP does not print its settings")
    assert "OMP_WAIT_POLICY = 'PASSIVE'" in shown


def test_workers_inherit_the_policy():
    code = (
        "import os; from pathlib import Path; from steadynet.experiments.engines.local import LocalPool; "
        "LocalPool(Path('.'), 0, 1).close(); print(os.environ['OMP_WAIT_POLICY'])"
    )
    assert said_by(code) == "passive\n"
