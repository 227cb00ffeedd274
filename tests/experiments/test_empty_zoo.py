"""The list of published networks: one line per network, and a message if there is none."""

import shutil

import pytest

from places import ROOT
from steadynet.cli import main
from steadynet.errors import UserError
from steadynet.experiments.zoo import get_network, networks_in


def test_results_without_weights_are_no_zoo(tmp_path):
    shutil.copytree(ROOT / "results/methods", tmp_path / "results/methods")
    with pytest.raises(UserError, match="no network with its weights yet"):
        get_network(tmp_path / "results", "mnist-m1-nbc", tmp_path / "out")


def test_every_network_takes_one_line_of_a_narrow_terminal(capsys):
    assert main(["zoo", "list", "--from", str(ROOT / "results")]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name, network in networks_in(ROOT / "results").items():
        (line,) = (line for line in lines if line.split()[:1] == [name])
        assert all(str(count) in line for count, _ in network.proved.values())
