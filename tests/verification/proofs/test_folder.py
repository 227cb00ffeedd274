"""``verify(proofs=...)`` and ``steadycheck FOLDER``: the files, the exit codes, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import steadycheck
from steadynet import verify
from steadynet.attacks.region import InputRegion
from steadynet.data import Images
from steadynet.errors import UserError
from steadynet.runs.directory import RunDirectory
from steadynet.runs.trained import TrainedNetwork
from steadynet.verification.proofs.folder import ProofFolder
from steadynet.verification.run import RunVerification
from steadynet.verification.verifiers import make_verifier


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


def decided(folder: Path, network: nn.Module, image: list[float], label: int) -> str:
    """The verdict on one image in a run with proofs, in which stored verdicts are used again."""
    trained = TrainedNetwork(network, {}, RunDirectory(folder))
    test = Images(torch.tensor(image).view(1, 1, 2, 2), torch.tensor([label]))
    verifier, proofs = make_verifier("branch_and_bound", {"timeout": 20.0}), ProofFolder(folder / "proofs")
    verification = RunVerification(trained, test, torch.tensor([0]), [0.01], verifier, "by hand", proofs=proofs)
    verification.decide()
    return verification.rows[0.01, 0].verdict.value


def test_a_proof_counts_for_its_own_property_only(tmp_path: Path) -> None:
    """Two data sets have an image with the number 0. Each time, the proof is that of the image that was asked for."""
    chosen = nn.Sequential(nn.Flatten(), nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 2, bias=False))
    chosen[1].weight.data.copy_(torch.eye(4))
    chosen[3].weight.data.copy_(torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]))  # which row is brighter
    one, other = [0.75, 0.5, 0.25, 0.25], [0.5, 0.75, 0.25, 0.5]
    for image in (one, other, one):
        assert decided(tmp_path, chosen, image, 0) == "unsat"
        (proof,) = (tmp_path / "proofs").glob("*.proof")
        assert steadycheck.main([str(tmp_path / "proofs")]) == 0
        known = steadycheck.read_network((tmp_path / "proofs" / "model.onnx").read_bytes())
        (violation,) = steadycheck.read_property(proof.with_suffix(".vnnlib").read_bytes(), known)
        assert violation.lower == pytest.approx(np.array(image) - 0.01)
    assert decided(tmp_path, chosen, one, 1) == "sat"
    assert sorted(path.name for path in (tmp_path / "proofs").iterdir()) == ["model.onnx"]
    assert decided(tmp_path, chosen, one, 0) == "unsat"
    assert decided(tmp_path, chosen, one, 1) == "sat"  # stored
    assert sorted(path.name for path in (tmp_path / "proofs").iterdir()) == ["model.onnx"]


def test_a_damaged_proof_is_written_anew(tmp_path: Path) -> None:
    image = [0.75, 0.5, 0.25, 0.25]
    label = int(network()(torch.tensor(image).view(1, 1, 2, 2)).argmax())
    assert decided(tmp_path, network(), image, label) == "unsat"
    (proof,) = (tmp_path / "proofs").glob("*.proof")
    content = proof.read_bytes()
    proof.write_bytes(content[:-1])
    assert decided(tmp_path, network(), image, label) == "unsat"
    assert proof.read_bytes() == content
