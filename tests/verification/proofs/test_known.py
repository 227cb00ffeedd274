"""What is proved of properties whose truth is known, and of real instances, ``steadycheck`` proves again."""

from __future__ import annotations

from pathlib import Path

import pytest

from checked_proofs import SHARED, UNKNOWN, of_family, of_instances


@pytest.mark.parametrize("family", ["robust", "monotone", "rounding", "readers"])
def test_proofs_of_the_self_test(family: str, tmp_path: Path) -> None:
    found = [outcome for _, outcome in of_family(family, tmp_path, every=3 if family in ("robust", "monotone") else 1)]
    for outcome in found:
        assert not isinstance(outcome, str) or any(part in outcome for part in UNKNOWN), outcome
    assert any(isinstance(outcome, int) for outcome in found)


QUICK = ("mnistfc_prop_13", "img4549")


@pytest.mark.skipif(not SHARED.is_dir(), reason="the instances are not there")
def test_proofs_of_real_instances(tmp_path: Path) -> None:
    found = list(of_instances(SHARED, tmp_path, QUICK))
    assert len(found) == len(QUICK)
    assert all(isinstance(outcome, int) for _, outcome in found), found
