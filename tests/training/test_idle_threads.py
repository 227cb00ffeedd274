"""Idle threads sleep: set before PyTorch is loaded, for the command line and its workers, unless the user chose."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from steadynet.training.idle_threads import WAIT_SETTINGS, let_threads_sleep

SHOW_POLICY = "import os; print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules)"


def without_settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in WAIT_SETTINGS}


def said_by(code: str, **environment: str) -> str:
    program = [sys.executable, "-c", f"import sys; {code}"]
    return subprocess.run(
        program, env=without_settings() | environment, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize(("given", "policy"), [({}, "10000"), ({"OMP_WAIT_POLICY": "active"}, None)])
def test_the_command_line_sets_the_policy_before_it_imports_torch(given, policy):
    watched = f"import steadynet.cli as cli; cli.parse_command_line = lambda words: exec({SHOW_POLICY!r}) or exit()"
    assert said_by(f"{watched}; cli.main([])", **given) == f"{policy} False\n"


@pytest.mark.parametrize("name", WAIT_SETTINGS)
def test_what_the_user_has_set_is_left_alone(name, monkeypatch):
    for setting in WAIT_SETTINGS:
        monkeypatch.delenv(setting, raising=False)
    monkeypatch.setenv(name, "7")
    let_threads_sleep()
    assert {setting: os.environ[setting] for setting in WAIT_SETTINGS if setting in os.environ} == {name: "7"}


def test_openmp_obeys():
    # GCC's library prints its settings when it is loaded; another library may not
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            "from steadynet.training.idle_threads import let_threads_sleep; let_threads_sleep(); import torch",
        ],
        env=without_settings() | {"OMP_DISPLAY_ENV": "verbose"},
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    if "GOMP_SPINCOUNT" not in shown:
        pytest.skip("this OpenMP does not print its settings")
    assert "GOMP_SPINCOUNT = '10000'" in shown


def test_workers_inherit_the_policy():
    code = (
        "import os; from pathlib import Path; from steadynet.experiments.engines.local import LocalPool; "
        "LocalPool(Path('.'), 0, 1).close(); print(os.environ['GOMP_SPINCOUNT'])"
    )
    assert said_by(code) == "10000\n"
