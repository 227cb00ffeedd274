"""Attempts to fool ``steadycheck``: damaged and forged proofs, hostile numbers, bombs, other files."""

from __future__ import annotations

import hashlib
import zlib

import numpy as np
import pytest

import proof_fuzz
import steadycheck
from proof_fuzz import Target, accepted, packed, payload_of


@pytest.fixture(scope="module")
def target() -> Target:
    return Target.random(0)


def test_no_damaged_or_forged_proof_is_accepted_wrongly() -> None:
    counts = proof_fuzz.attack(400, seed=7)
    assert counts["accepted wrongly"] == 0
    assert counts["forgery refused"] == 160
    assert counts["damaged file refused"] == 80


def test_weights_of_zero_prove_nothing(target: Target) -> None:
    payload = payload_of(target.proof)
    leaves = steadycheck.check(target.network, target.true_property, target.proof).leaves
    payload[-4 * leaves :] = np.zeros(leaves, "<f4").tobytes()  # the weights λ come last
    assert not accepted(target.network, target.true_property, packed(payload))


def test_the_attack_would_notice_a_checker_that_takes_negative_multipliers(
    target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With λ < 0, "the largest output is too small" would pass for "the smallest output is too large"."""
    payload = payload_of(target.proof)
    above = target.true_property.replace(b"(assert (<= Y_0 ", b"(assert (<= Y_0 1")  # far above all outputs: false
    payload[32:64] = hashlib.sha256(above).digest()
    leaves = steadycheck.check(target.network, target.true_property, target.proof).leaves
    payload[-4 * leaves :] = np.full(leaves, -1.0, "<f4").tobytes()
    assert not accepted(target.network, above, packed(payload))


@pytest.mark.parametrize("number", [-1.0, np.nan, np.inf])
def test_weights_that_are_no_weights_are_refused(target: Target, number: float) -> None:
    payload = payload_of(target.proof)
    payload[-4:] = np.float32(number).tobytes()
    assert not accepted(target.network, target.true_property, packed(payload))


def test_a_leaf_that_is_dropped_and_a_leaf_too_many_are_refused(target: Target) -> None:
    payload = payload_of(target.proof)
    leaves = steadycheck.check(target.network, target.true_property, target.proof).leaves
    nodes = 2 * leaves - 1
    at = payload.index(np.uint32(nodes).tobytes() + b"\x02")  # the number of nodes, then a cut
    for change in (-1, 1):
        other = bytearray(payload)
        other[at : at + 4] = np.uint32(nodes + change).tobytes()
        if change < 0:
            del other[at + 4 + nodes - 1]
        else:
            other[at + 4 + nodes : at + 4 + nodes] = b"\x00"
        assert not accepted(target.network, target.true_property, packed(other))


def test_a_wider_box_and_another_network_are_refused(target: Target) -> None:
    wider = target.true_property.replace(b"(assert (<= X_0 ", b"(assert (<= X_0 1")
    assert wider != target.true_property
    assert not accepted(target.network, wider, target.proof)
    other = Target.random(1)
    assert not accepted(other.network, target.true_property, target.proof)


def test_a_wider_box_is_refused_even_if_its_hash_is_in_the_proof(target: Target) -> None:
    text = target.true_property.decode().splitlines()
    for number, line in enumerate(text):
        if line.startswith("(assert (<= X_"):
            text[number] = line.rsplit(" ", 1)[0] + " 50.0))"
    wider = "\n".join(text).encode()
    payload = payload_of(target.proof)
    payload[32:64] = hashlib.sha256(wider).digest()
    assert not accepted(target.network, wider, packed(payload))


def test_a_bomb_and_other_files_are_refused(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steadycheck, "MOST_BYTES", 1 << 16)
    for content in (packed(bytes(1 << 20)), b"", b"PK", steadycheck.MAGIC, steadycheck.MAGIC + zlib.compress(b"")):
        assert not accepted(target.network, target.true_property, content)


def test_a_chain_of_splits_is_refused_before_it_takes_all_memory(target: Target) -> None:
    payload = payload_of(target.proof)
    leaves = steadycheck.check(target.network, target.true_property, target.proof).leaves
    at = payload.index(np.uint32(2 * leaves - 1).tobytes() + b"\x02")
    many = 2_000_000
    chain = np.uint32(many).tobytes() + b"\x01" * many + np.zeros(many, "<u4").tobytes()
    assert not accepted(target.network, target.true_property, packed(payload[:at] + chain))
