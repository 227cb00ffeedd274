"""What is proved of properties whose truth is known, and of real instances, ``steadycheck`` proves again."""

from __future__ import annotations

from pathlib import Path

import pytest

import steadycheck
from steadynet.verification.proofs.of_instances import InstanceProofs
from steadynet.verification.properties import Verdict
from steadynet.verification.self_test.families import FAMILIES
from steadynet.verification.vnncomp import Instance, decide_with_hints

SHARED = Path(__file__).parents[4] / "shared" / "vnncomp"
UNKNOWN = ("is not known", "a constant, or nothing")  # networks that steadycheck does not read


def proof_of(instance: Instance, folder: Path) -> int | str | None:
    """The number of leaves of a checked proof; why there is none; None if the instance is not proved."""
    result = decide_with_hints(instance, "branch_and_bound", {})
    if result.verdict is not Verdict.UNSAT:
        return None
    proofs = InstanceProofs(folder)
    proofs.write(instance, result)
    for reason in proofs.missing.values():
        return reason
    (written,) = folder.rglob("*.proof")
    network = steadycheck.read_network((written.parent / "model.onnx").read_bytes())
    return steadycheck.check(network, written.with_suffix(".vnnlib").read_bytes(), written.read_bytes()).leaves


@pytest.mark.parametrize("family", ["robust", "monotone", "rounding", "readers"])
def test_proofs_of_the_self_test(family: str, tmp_path: Path) -> None:
    known, checked = FAMILIES[family], 0
    for number, kind in enumerate(list(known.kinds)[:: 3 if family in ("robust", "monotone") else 1]):
        instance = known.make(kind, 0)
        for index, answer in enumerate(instance.decide("branch_and_bound", {"timeout": 10.0})[:2]):
            if answer.verdict is Verdict.UNSAT:
                folder = tmp_path / f"{number}-{index}"
                instance.save(index, folder)
                found = proof_of(Instance(folder / "network.onnx", folder / "property.vnnlib", 10.0), folder / "proofs")
                assert not isinstance(found, str) or any(part in found for part in UNKNOWN), found
                checked += isinstance(found, int)
    assert checked


QUICK = ("mnistfc_prop_13", "img4549")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the instances are not there")
def test_proofs_of_real_instances(tmp_path: Path) -> None:
    checked = 0
    for line in (SHARED / "instances.csv").read_text().split():
        network, property_file, seconds = line.split(",")
        if any(part in property_file for part in QUICK):
            found = proof_of(
                Instance(SHARED / network, SHARED / property_file, float(seconds)), tmp_path / str(checked)
            )
            assert isinstance(found, int), found
            checked += 1
    assert checked == len(QUICK)
