"""Which verdicts have a checked proof, in the gallery and in the evidence. The truth is known by hand."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import steadycheck
from steadynet.cli import main
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.report.collect import collect
from steadynet.report.evidence_pages import evidence_blocks
from steadynet.report.gallery import gallery_of
from steadynet.report.gather_evidence import gather_evidence
from steadynet.report.pdf import Text
from steadynet.verification.proofs import of_run

# The network gives label 0 to x with x[0] > 0.5: a property at ε holds if x[0] is farther than ε from 0.5.
PIXELS = np.array([[x, 0.5] for x in (0.9, 0.8, 0.55, 0.1)], dtype=np.float32)
LABELS = np.array([0, 0, 0, 1])
HOLDS = [0, 1, 3]
RUN, PROOFS = Path("runs/net"), Path("runs/net/proofs")


@pytest.fixture
def verified(tmp_path, monkeypatch):
    """A verified network in the current folder, with a proof of every property that holds."""
    monkeypatch.chdir(tmp_path)
    network = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    weights = {"0.weight": [[1, 0], [-1, 0]], "0.bias": [0, 1], "2.weight": [[1, 0], [0, 1]], "2.bias": [0, 0]}
    network.load_state_dict({name: torch.tensor(value, dtype=torch.float32) for name, value in weights.items()})
    np.savez("images.npz", X=PIXELS, y=LABELS)
    export_onnx(network, (2,), "net.onnx")
    assert main(["verify", "net.onnx", "--data", "images.npz", "--eps", "0.1", "--per-class", "10", "--proofs"]) == 0


def shown():
    """Per image, what the gallery says of its proof."""
    return {entry.index: entry.proof for entry in gallery_of(collect([RUN])).properties}


def test_a_checked_proof_is_shown_with_its_checker_and_hash(verified):
    said = shown()
    assert sorted(index for index, text in said.items() if text) == HOLDS
    hashes = {hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in PROOFS.glob("*.proof")}
    for index in HOLDS:
        assert said[index].startswith(f"checked by steadycheck {steadycheck.VERSION} for exact arithmetic, and float32")
        assert any(short in said[index] for short in hashes)


def test_the_evidence_counts_checked_proofs(verified):
    evidence = gather_evidence([RUN])
    (entry,) = evidence.networks[0].properties
    assert (entry.checked_proofs, entry.other_proofs, entry.proved) == (3, 0, 3)
    assert [row.image for row in entry.verdicts if row.proof_sha256] == HOLDS
    words = [block.text for block in evidence_blocks(evidence) if isinstance(block, Text)]
    assert any("has checked and accepted the proof files of 3 of 3 proved images" in text for text in words)


def test_a_damaged_proof_does_not_count(verified):
    path = sorted(PROOFS.glob("*.proof"))[0]
    path.write_bytes(path.read_bytes()[:-1])
    said = [text for text in shown().values() if text]
    assert sum(text.startswith("checked") for text in said) == 2
    assert "there is a proof, but it does not count: steadycheck says: the proof is damaged" in said
    (entry,) = gather_evidence([RUN]).networks[0].properties
    assert (entry.checked_proofs, entry.other_proofs) == (2, 1)


def test_proofs_of_another_network_do_not_count(verified):
    content = bytearray((PROOFS / "model.onnx").read_bytes())
    (PROOFS / "model.onnx").write_bytes(content + b"\x3a\x00")  # an empty graph is merged into it
    assert {text for text in shown().values() if text} == {
        "there is a proof, but it does not count: it is of another network"
    }


def test_a_proof_of_another_property_is_none(verified):
    for path in PROOFS.glob("*.vnnlib"):
        path.write_text(path.read_text().replace("X_0 0.", "X_0 0.0"))
    assert not any(shown().values())


def test_without_steadycheck_nothing_counts(verified, monkeypatch):
    monkeypatch.setattr(of_run, "has_steadycheck", lambda: False)
    assert {text for text in shown().values() if text} == {
        "there is a proof, but it does not count: steadycheck is not installed"
    }


def test_the_version_of_steadycheck_is_that_of_its_distribution():
    project = Path(steadycheck.__file__).with_name("pyproject.toml").read_text()
    assert re.search(r'^version = "(.*)"$', project, re.MULTILINE)[1] == steadycheck.VERSION
