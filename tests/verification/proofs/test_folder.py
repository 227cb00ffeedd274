"""``verify(proofs=...)`` and ``steadycheck FOLDER``: the files, the exit codes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import steadycheck
from steadynet import verify
from steadynet.attacks.region import InputRegion
from steadynet.errors import UserError


def network() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))


def test_a_folder_of_proofs_is_checked_as_a_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = torch.rand(3, 1, 2, 2)
    labels = network()(images).argmax(1)
    results = verify(network(), images, labels, eps=0.01, proofs=tmp_path)
    names = sorted(path.name for path in tmp_path.glob("*.proof"))
    assert names == [f"image_{index}_eps_0.01.proof" for index in range(3) if results[index].verdict.value == "unsat"]
    assert steadycheck.main([str(tmp_path)]) == 0
    assert f"{len(names)} of {len(names)} proofs are valid" in capsys.readouterr().out

    first = tmp_path / names[0]
    first.write_bytes(first.read_bytes()[:-1])
    assert steadycheck.main([str(tmp_path)]) == 1
    assert f"{names[0]}: refused: the proof is damaged" in capsys.readouterr().out
    assert steadycheck.main([str(tmp_path / "model.onnx"), str(tmp_path / "nothing.vnnlib"), str(first)]) == 1
    assert steadycheck.main([str(tmp_path / "empty")]) == 2


def test_another_network_removes_the_proofs_of_the_first(tmp_path: Path) -> None:
    images = torch.rand(1, 1, 2, 2)
    verify(network(), images, network()(images).argmax(1), eps=0.001, proofs=tmp_path)
    assert list(tmp_path.glob("*.proof"))
    other = network()
    other[1].weight.data += 1
    verify(other, images, 1 - other(images).argmax(1), eps=0.001, proofs=tmp_path)
    assert not list(tmp_path.glob("*.proof"))


def test_proofs_come_from_our_own_search_only(tmp_path: Path) -> None:
    images = torch.rand(1, 1, 2, 2)
    with pytest.raises(UserError, match="proofs come from branch_and_bound only"):
        verify(network(), images, [0], eps=0.1, verifier="milp", proofs=tmp_path)


def test_the_box_in_the_file_is_the_box_that_was_proved(tmp_path: Path) -> None:
    image = torch.tensor([[[[0.1, 0.7], [0.3, 1.0]]]])
    verify(network(), image, network()(image).argmax(1), eps=0.003, proofs=tmp_path)
    known = steadycheck.read_network((tmp_path / "model.onnx").read_bytes())
    (violation,) = steadycheck.read_property(next(tmp_path.glob("*.vnnlib")).read_bytes(), known)
    proved = InputRegion.around(image, 0.003)
    assert violation.lower.tolist() == proved.lower.flatten().double().tolist()
    assert violation.upper.tolist() == proved.upper.flatten().double().tolist()
