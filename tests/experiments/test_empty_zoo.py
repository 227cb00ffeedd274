"""A zoo without networks says so."""

import shutil

import pytest

from places import ROOT
from steadynet.errors import UserError
from steadynet.experiments.zoo import get_network


def test_results_without_weights_are_no_zoo(tmp_path):
    shutil.copytree(ROOT / "results/methods", tmp_path / "results/methods")
    with pytest.raises(UserError, match="no network with its weights yet"):
        get_network(tmp_path / "results", "mnist-m1-nbc", tmp_path / "out")
