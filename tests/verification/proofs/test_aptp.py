"""Trees as text in the form of APTP: read back, their patterns cover all signs, each once."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import pytest
import torch
from torch import nn

from steadynet import verify
from steadynet.cli import main
from steadynet.verification.proofs import aptp
from steadynet.verification.properties import Verdict


def made(inputs: int) -> nn.Sequential:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Flatten(), nn.Linear(inputs, 24), nn.ReLU(), nn.Linear(24, 20), nn.ReLU(), nn.Linear(20, 3)
    )
    network.requires_grad_(False)
    for layer, factor in ((1, 3), (3, 2), (5, 2)):
        network[layer].weight.mul_(factor)
    return network


def patterns(text: str) -> list[dict[int, int]]:
    """The leaves of a file: per split ReLU its sign."""
    (block,) = re.findall(r"\(assert \(or\n(.*?)\n\)\)", text, re.DOTALL)
    return [
        {int(name): 1 if sign == ">=" else -1 for sign, name in re.findall(r"\((>=|<)\s+N_(\d+) 0\)", line)}
        for line in block.splitlines()
    ]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder, network = tmp_path_factory.mktemp("proofs"), made(144)
    images = torch.rand(3, 1, 12, 12)
    labels = network(images).argmax(1)
    results = verify(network, images, labels, 0.04, proofs=folder)
    assert all(one.verdict is Verdict.UNSAT for one in results)
    assert main(["aptp", str(folder), "--out", str(folder / "aptp")]) == 0
    return labels, images, folder / "aptp"


def test_the_patterns_cover_all_signs_once(files):
    _, _, folder = files
    found = [patterns(path.read_text()) for path in sorted(folder.glob("*.aptp"))]
    assert len(found) == 6  # three images, two other classes each
    assert max(map(len, found)) > 4
    for leaves in found:
        assert sum(Fraction(1, 2 ** len(leaf)) for leaf in leaves) == 1
        for one, other in combinations(leaves, 2):
            assert any(other.get(relu, sign) != sign for relu, sign in one.items())
        assert all(1 <= relu <= 44 for leaf in leaves for relu in leaf)


def test_the_rest_says_what_was_proved(files):
    labels, images, folder = files
    for row, label in enumerate(labels.tolist()):
        others = [number for number in range(3) if number != label]
        for number, other in enumerate(others):
            text = (folder / f"image_{row}_eps_0.04_{number}.aptp").read_text()
            assert text.count("(declare-pwl") == 44
            assert text.count("(declare-const X_") == 144
            assert f"(assert (<= Y_{label} Y_{other}))" in text
            bound = float(re.findall(r"\(>= X_7 (\S+)\)\)", text)[0])
            assert bound == float((images[row].flatten()[7] - 0.04).clamp(0, 1))


def test_halved_inputs_are_refused_with_a_reason(files, monkeypatch, tmp_path, capsys):
    _, _, folder = files
    read = aptp.read_proof
    monkeypatch.setattr(aptp, "read_proof", lambda *all_: [replace(region, halves=True) for region in read(*all_)])
    assert main(["aptp", str(folder.parent), "--out", str(tmp_path / "aptp")]) == 0
    assert "inputs are halved" in capsys.readouterr().out
    assert not list(tmp_path.glob("aptp/*"))
    assert main(["aptp", str(tmp_path / "nothing"), "--out", str(tmp_path / "aptp")]) == 2
