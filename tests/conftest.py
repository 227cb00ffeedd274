"""Fixtures that several files share."""

from __future__ import annotations

import os
import shutil
import signal

import pytest
import torch

from steadynet.cli import main
from tools import milp_tool
from verified import SELECTION, train_tiny

# A suite started in the background would ignore Ctrl-C, and so would its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

if "PYTEST_XDIST_WORKER" in os.environ:  # several workers share the cores: one thread each
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    return train_tiny(tmp_path_factory.mktemp("verified"))


@pytest.fixture(scope="session")
def whole(trained):
    """The same run, verified undisturbed."""
    path = trained.parent / "whole"
    shutil.copytree(trained, path)
    assert main(["verify", str(path), *SELECTION]) == 0
    return path


@pytest.fixture
def run(trained, tmp_path):
    """A copy that a test may break."""
    return shutil.copytree(trained, tmp_path / "run")


@pytest.fixture
def verified(whole, tmp_path):
    """A verified copy that a test may break."""
    return shutil.copytree(whole, tmp_path / "run")


@pytest.fixture(scope="session")
def honest_tool(tmp_path_factory):
    """A tool of the competition that decides, and says what is true."""
    with milp_tool(tmp_path_factory.mktemp("tool")) as folder:
        yield folder
