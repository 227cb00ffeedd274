"""Proofs of small networks: what the search proves, ``steadycheck`` proves again; what is false has no proof."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import steadycheck
from steadynet.interchange.onnx.writer import onnx_model
from steadynet.interchange.vnnlib.robustness import format_robustness
from steadynet.verification.proofs.prover import NoProofError
from steadynet.verification.proofs.writing import open_network, prove
from steadynet.verification.properties import Properties, Verdict
from steadynet.verification.verifiers import make_verifier


def networks() -> dict[str, nn.Module]:
    torch.manual_seed(5)
    return {
        "dense": nn.Sequential(
            nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 12), nn.ReLU(), nn.Linear(12, 3)
        ),
        "convolutional": nn.Sequential(
            nn.Conv2d(1, 3, 3, 2, 1), nn.ReLU(), nn.Conv2d(3, 4, 2, 1, 1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
            nn.Linear(36, 3),
        ),
        "pooled": nn.Sequential(
            nn.Conv2d(1, 3, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(2, 1, 1), nn.Flatten(), nn.Linear(27, 3)
        ),
    }  # fmt: skip


@pytest.mark.parametrize("kind", networks())
def test_every_proved_property_has_a_proof_that_checks(kind: str) -> None:
    network = networks()[kind].eval()
    for parameter in network.parameters():
        parameter.data *= 2
    images = torch.rand(4, 1, 4, 4)
    labels = network(images).argmax(1)
    onnx_file = onnx_model(network, (1, 4, 4)).SerializeToString()
    known = open_network(onnx_file)
    decided = dict.fromkeys(Verdict, 0)
    for eps in (0.01, 0.2, 1.0):
        properties = Properties.around(network, images, labels, eps)
        verifier = replace(make_verifier("branch_and_bound", {"timeout": 20.0}), hints=True)
        for index, result in enumerate(verifier(properties)):
            decided[result.verdict] += 1
            box = properties.region[index : index + 1]
            content = format_robustness(box.lower, box.upper, int(labels[index]), 3).encode()
            if result.verdict is Verdict.UNSAT:
                proof = prove(known, content, lambda number, one: result.hints, exact=False, seconds=20)  # noqa: B023
                found = steadycheck.check(known, content, proof)
                assert found.arithmetic == "exact arithmetic, and float32 in any order of summation"
                assert len(proof) < 5000 * found.leaves
            else:
                with pytest.raises(NoProofError):
                    prove(known, content, lambda number, one: None, exact=False, seconds=0.05)
    assert decided[Verdict.UNSAT] >= 4
    assert decided[Verdict.SAT] >= 1
