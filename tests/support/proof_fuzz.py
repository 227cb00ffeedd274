"""Attacks on ``steadycheck``: damaged proofs, and forged proofs of properties that are false by construction.

``python tests/support/proof_fuzz.py --cases 10000`` runs many of them; the test suite runs a few hundred.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import zlib
from collections import Counter
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import steadycheck
from steadynet.verification.proofs.writing import prove

Layers = list[tuple[np.ndarray, np.ndarray]]


def random_layers(random: np.random.Generator, sizes: tuple[int, ...] = (3, 8, 8, 2)) -> Layers:
    """Weights (out, in) and biases of a dense network in float32."""
    return [
        (random.normal(size=(after, before)).astype("f4"), (0.5 * random.normal(size=after)).astype("f4"))
        for before, after in itertools.pairwise(sizes)
    ]


def onnx_bytes(layers: Layers) -> bytes:
    """The network as an ONNX file."""
    nodes, weights, last = [], [], "x"
    for number, (weight, bias) in enumerate(layers):
        weights += [numpy_helper.from_array(weight, f"w{number}"), numpy_helper.from_array(bias, f"b{number}")]
        nodes.append(helper.make_node("Gemm", [last, f"w{number}", f"b{number}"], [f"z{number}"], transB=1))
        last = f"z{number}"
        if number + 1 < len(layers):
            nodes.append(helper.make_node("Relu", [last], [f"y{number}"]))
            last = f"y{number}"
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size])
        for name, size in (("x", layers[0][0].shape[1]), (last, len(layers[-1][0])))
    ]
    graph = helper.make_graph(nodes, "fuzz", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model.SerializeToString()


def vnnlib_bytes(lower: np.ndarray, upper: np.ndarray, outputs: int, violated: str) -> bytes:
    """The property that is violated by an input of a box whose outputs satisfy a formula."""
    lines = [f"(declare-const X_{i} Real)" for i in range(len(lower))]
    lines += [f"(declare-const Y_{i} Real)" for i in range(outputs)]
    for i, (low, high) in enumerate(zip(lower.tolist(), upper.tolist(), strict=True)):
        lines += [f"(assert (>= X_{i} {low!r}))", f"(assert (<= X_{i} {high!r}))"]
    return "\n".join([*lines, f"(assert {violated})", ""]).encode()


def evaluate(layers: Layers, x: np.ndarray) -> np.ndarray:
    """The network at some points, in float64."""
    for number, (weight, bias) in enumerate(layers):
        x = x @ weight.T.astype(float) + bias
        x = np.maximum(x, 0) if number + 1 < len(layers) else x
    return x


@dataclass(frozen=True)
class Target:
    """A true property with its proof, and a false one of the same network that differs in one number only."""

    network: steadycheck.Network
    true_property: bytes
    proof: bytes
    false_property: bytes

    @classmethod
    def random(cls, seed: int, room: float = 0.1) -> Target:
        """The smallest output at many points is m: "y_0 ≤ m" happens; "y_0 ≤ m − room · range" is proved not to."""
        random = np.random.default_rng(seed)
        layers = random_layers(random)
        network = steadycheck.read_network(onnx_bytes(layers))
        lower = np.round(random.uniform(-1, 0, 3), 2).astype("f4").astype(float)
        upper = lower + 1.0
        points = lower + random.uniform(size=(20000, 3)).round() * (upper - lower)
        points = np.concatenate([points, lower + random.uniform(size=(20000, 3)) * (upper - lower)])
        values = evaluate(layers, points)[:, 0]
        least, spread = float(values.min()), float(np.ptp(values)) + 1e-3
        formula = "(<= Y_0 {})"
        true_property = vnnlib_bytes(lower, upper, 2, formula.format(repr(least - room * spread)))
        false_property = vnnlib_bytes(lower, upper, 2, formula.format(repr(least + 1e-6 * spread)))
        proof = prove(network, true_property, lambda number, one: None, exact=False, seconds=20)
        return cls(network, true_property, proof, false_property)


def payload_of(proof: bytes) -> bytearray:
    """What is in a proof."""
    return bytearray(zlib.decompress(proof[len(steadycheck.MAGIC) + 32 :]))


def packed(payload: bytes | bytearray) -> bytes:
    """A proof with this content, whose check sums are right."""
    content = zlib.compress(bytes(payload))
    return steadycheck.MAGIC + hashlib.sha256(content).digest() + content


def accepted(network: steadycheck.Network, property_file: bytes, proof: bytes) -> bool:
    """Whether a proof is accepted; anything but a refusal with a reason is an error of the checker."""
    try:
        steadycheck.check(network, property_file, proof)
    except steadycheck.Refused:
        return False
    return True


SPECIAL = (np.nan, np.inf, -np.inf, -1.0, 1e38, -1e-30, 3e38, 1e-45, 0.0)


def mutated(payload: bytearray, random: np.random.Generator) -> bytearray:
    """A proof with a few changes behind its hashes: bits, special numbers, pieces cut out, repeated or made up."""
    result = bytearray(payload)
    for _ in range(random.integers(1, 4)):
        at, kind = int(random.integers(64, max(len(result), 65))), random.integers(7)
        if kind == 0 and at < len(result):
            result[at] ^= 1 << int(random.integers(8))
        elif kind == 1:
            result[at : at + 4] = np.float32(random.choice(SPECIAL)).tobytes()
        elif kind == 2:
            result[at : at + 8] = np.float64(random.choice(SPECIAL)).tobytes()
        elif kind == 3:
            del result[at : at + int(random.integers(1, 40))]
        elif kind == 4:
            result[at:at] = result[at : at + int(random.integers(1, 40))]
        elif kind == 5:
            result[at : at + 4] = np.uint32(random.choice([0, 1, 2, 3, 8, 255, 2**31, 2**32 - 1])).tobytes()
        else:
            result[at : at + 16] = random.bytes(16)
    return result


def forged(target: Target, random: np.random.Generator) -> bytearray:
    """A proof for the false property: that of the true one with other hashes, multipliers made larger, and changes."""
    payload = payload_of(target.proof)
    payload[32:64] = hashlib.sha256(target.false_property).digest()
    if random.integers(3) == 0:
        return payload
    return mutated(payload, random)


def made_up(target: Target, random: np.random.Generator) -> bytes:
    """A proof of the right structure for the false property, with random trees, slopes and multipliers."""
    payload = payload_of(target.proof)
    parts = [bytes(payload[:32]), hashlib.sha256(target.false_property).digest(), _u4(random.integers(2), 1)]
    kept: list[int] = []
    for relu in target.network.relus():
        size = int(np.prod(target.network.shapes[relu]))
        chosen, level = np.flatnonzero(random.random(size) < random.choice([0.5, 0.9, 1.0])), int(random.integers(4))
        parts += [_u4(level, len(chosen)), np.diff(chosen, prepend=0).astype("<u4").tobytes()]
        if level == 2:
            parts += [random.integers(0, 65536, 2 * len(chosen) * sum(kept)).astype("<u2").tobytes()]
        kept.append(len(chosen))
    parts += [_u4(2), random.integers(0, 65536, 2 * sum(kept)).astype("<u2").tobytes()]
    kinds, depths, path = _random_tree(random)
    betas = random.choice([0.0, 1.0, 10.0, 1e6, 1e30, *SPECIAL], size=sum(depths), p=None).astype("<f4")
    if random.integers(2):
        betas = np.abs(random.normal(size=sum(depths))).astype("<f4")
    cuts = (kinds == 2).sum()
    weight = random.choice([1.0, 0.0, 1e30, *SPECIAL], size=len(depths)).astype("<f4")
    parts += [
        _u4(len(kinds)), kinds.tobytes(), (np.array(path) % max(sum(kept), 1)).astype("<u4").tobytes(),
        random.integers(0, 3, cuts).astype("<u4").tobytes(), random.uniform(-1, 1, cuts).astype("<f8").tobytes(),
        random.integers(0, 3, len(depths)).astype("<u4").tobytes(), betas.tobytes(), weight.tobytes(),
    ]  # fmt: skip
    return packed(b"".join(parts))


def _u4(*numbers: object) -> bytes:
    return np.array(numbers, dtype="<u4").tobytes()


def _random_tree(random: np.random.Generator) -> tuple[np.ndarray, list[int], list[int]]:
    """Kinds of nodes in preorder, the number of ReLU splits above each leaf, and a ReLU for each split."""
    kinds, depths, relus, waiting = [], [], [], [0]
    while waiting:
        depth = waiting.pop()
        kind = int(random.choice(3, p=[0.5, 0.4, 0.1])) if len(kinds) < 60 else 0
        kinds.append(kind)
        if kind == 0:
            depths.append(depth)
        else:
            waiting += [depth + (kind == 1)] * 2
            relus += [int(random.integers(16))] * (kind == 1)
    return np.array(kinds, "u1"), depths, relus


def attack(cases: int, seed: int = 0) -> Counter[str]:
    """Damage and forge so many proofs; counts what was refused, and what was accepted rightly and wrongly."""
    counts: Counter[str] = Counter()
    random = np.random.default_rng(seed)
    targets = [Target.random(seed + number) for number in range(4)]
    for case in range(cases):
        target = targets[case % len(targets)]
        kind = case % 5
        if kind == 0:  # a bit of the file
            damaged = bytearray(target.proof)
            damaged[int(random.integers(len(damaged)))] ^= 1 << int(random.integers(8))
            wrong = accepted(target.network, target.true_property, bytes(damaged))
            counts["accepted wrongly" if wrong else "damaged file refused"] += 1
        elif kind == 1:  # another network or property: a bit of the hashes
            payload = payload_of(target.proof)
            payload[int(random.integers(64))] ^= 1 << int(random.integers(8))
            wrong = accepted(target.network, target.true_property, packed(payload))
            counts["accepted wrongly" if wrong else "other hash refused"] += 1
        elif kind == 2:  # changes behind the hashes: what is accepted is still a proof of what is true
            held = accepted(target.network, target.true_property, packed(mutated(payload_of(target.proof), random)))
            counts["changed, and still a proof" if held else "changed proof refused"] += 1
        else:
            forgery = packed(forged(target, random)) if kind == 3 else made_up(target, random)
            wrong = accepted(target.network, target.false_property, forgery)
            counts["accepted wrongly" if wrong else "forgery refused"] += 1
    return counts


def main() -> None:
    """Run the attack from the command line; the exit code is 1 if something was accepted wrongly."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    counts = attack(given.cases, given.seed)
    for name, number in sorted(counts.items()):
        print(f"{number:7,} {name}")
    print(f"{counts['accepted wrongly']} of {given.cases:,} accepted wrongly")
    raise SystemExit(1 if counts["accepted wrongly"] else 0)


if __name__ == "__main__":
    main()
