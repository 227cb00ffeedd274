"""Searches that begin with the proofs of another network: they say what is true, whatever the proofs are worth."""

from __future__ import annotations

import copy
import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from steadycheck import Leaves, Refused, Source, read_network, read_property, read_region, regions
from steadynet import verify
from steadynet.bounds.condensed import condense, condense_each
from steadynet.bounds.condensed_bounds import Columns, SplitColumns, lower
from steadynet.bounds.condensed_proof import CondensedProof
from steadynet.bounds.condensed_repair import repair
from steadynet.bounds.crown import propagate
from steadynet.bounds.refinement_by_slopes import NumberedNeurons, refined_by_slopes
from steadynet.bounds.whole_pass import WholePass
from steadynet.errors import UserError
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import Arithmetic, Execution
from steadynet.graph.translate import graph_of
from steadynet.verification.proofs.earlier import EarlierProofs, _leaves_of, beginning_with
from steadynet.verification.proofs.reading import StoredRegion, _slopes, read_proof, sizes_of
from steadynet.verification.properties import DecidedBy, Properties, Verdict, is_counterexample
from steadynet.verification.search import earlier_proofs, earlier_together, earlier_trial
from steadynet.verification.verifiers import make_verifier

INPUTS, RADII = 144, (0.04, 0.06)  # more inputs than are halved; radii at which ReLUs are split


def network(seed: int, width: int = 20) -> nn.Sequential:
    torch.manual_seed(seed)
    made = nn.Sequential(
        nn.Flatten(), nn.Linear(INPUTS, 24), nn.ReLU(), nn.Linear(24, width), nn.ReLU(), nn.Linear(width, 3)
    ).requires_grad_(False)
    for layer, factor in ((1, 3), (3, 2), (5, 2)):
        made[layer].weight *= factor
    return made


def changed(model: nn.Sequential, share: float) -> nn.Sequential:
    """The network with every weight changed by a random share of its layer's size."""
    torch.manual_seed(5)
    other = copy.deepcopy(model)
    for weight in other.parameters():
        weight.add_(share * weight.abs().mean() * torch.randn_like(weight))
    return other


def decide(model, images, labels, eps, earlier):
    verifier = beginning_with(make_verifier("branch_and_bound", {"timeout": 20.0, "clock": "cpu"}), earlier)
    return verifier(Properties.around(model, images, labels, eps))


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    """Networks, images, labels and folders with proofs of what is true at several radii, most of them with splits."""
    found = []
    for seed in range(3):
        model, folder = network(seed), tmp_path_factory.mktemp(f"seed{seed}")
        images = torch.rand(3, 1, 12, 12)
        labels, results = model(images).argmax(1), []
        for eps in RADII:
            results += verify(model, images, labels, eps, proofs=folder, timeout=20)
        assert any(one.verdict is Verdict.UNSAT and one.decided_by != DecidedBy.CROWN for one in results)
        found.append((model, images, labels, folder))
    return found


def test_the_same_network_needs_no_search(proved):
    split = 0
    for model, images, labels, folder in proved:
        for eps in RADII:
            again = decide(model, images, labels, eps, EarlierProofs(folder))
            for one in verify(model, images, labels, eps):
                split += one.verdict is Verdict.UNSAT and one.subproblems > 0
            for one in again:
                if one.verdict is Verdict.UNSAT:
                    assert one.decided_by in (DecidedBy.CROWN, DecidedBy.EARLIER_PROOF)
                    assert one.margin > 0
    assert split > 1


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_a_changed_network_gets_the_verdicts_of_an_ordinary_search(proved, share):
    verdicts = set()
    for model, images, labels, folder in proved:
        other = changed(model, share)
        properties = Properties.around(other, images, labels, RADII[0])
        ours = decide(other, images, labels, RADII[0], EarlierProofs(folder))
        for index, (one, fresh) in enumerate(zip(ours, verify(other, images, labels, RADII[0]), strict=True)):
            assert one.verdict is fresh.verdict
            assert one.verdict is not Verdict.SAT or is_counterexample(properties, index, one.counterexample)
            verdicts.add(one.verdict)
    assert Verdict.UNSAT in verdicts
    assert share < 0.5 or Verdict.SAT in verdicts


@pytest.mark.parametrize("most_failing", [0.0, 1.0])
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_proofs_with_many_leaves_are_tried_in_several_batches(proved, monkeypatch, share, most_failing):
    monkeypatch.setattr(earlier_together, "MOST_LEAVES", -1)
    monkeypatch.setattr(earlier_trial, "SAMPLE", 1)
    monkeypatch.setattr(earlier_proofs, "MANY", 0)
    monkeypatch.setattr(earlier_trial, "MOST_FAILING", most_failing)
    monkeypatch.setattr(earlier_trial, "NEARLY", 100.0 * share)
    monkeypatch.setattr(earlier_trial, "BATCH", 3)
    monkeypatch.setattr(earlier_proofs, "BATCH", 3)
    monkeypatch.setattr(earlier_proofs, "TEACHERS", 2)
    tried = 0
    for model, images, labels, folder in proved:
        other = changed(model, share)
        properties = Properties.around(other, images, labels, RADII[0])
        earlier = EarlierProofs(folder)
        ours = decide(other, images, labels, RADII[0], earlier)
        tried += earlier.used
        for index, (one, fresh) in enumerate(zip(ours, verify(other, images, labels, RADII[0]), strict=True)):
            assert one.verdict is fresh.verdict
            assert one.verdict is not Verdict.SAT or is_counterexample(properties, index, one.counterexample)
    assert tried > 0


def barely_false(model: nn.Sequential, image, label: int, eps: float) -> nn.Sequential:
    """The network with the label's score lowered until some input of the box gets another label."""
    other, low, high = copy.deepcopy(model), 0.0, 10.0
    for _ in range(9):
        middle = (low + high) / 2
        other[5].bias[label] = model[5].bias[label] - middle
        is_false = verify(other, image[None], torch.tensor([label]), eps, timeout=20)[0].verdict is Verdict.SAT
        low, high = (low, middle) if is_false else (middle, high)
    other[5].bias[label] = model[5].bias[label] - high
    return other


@pytest.mark.parametrize(("most_leaves", "nearly"), [(-1, 0.0), (-1, 100.0), (48, 0.0), (48, 100.0)])
def test_leaves_that_fail_in_float64_as_well_stay_open(proved, monkeypatch, most_leaves, nearly):
    """Of a property that is barely false, most leaves of the old proof hold; those that fail are not forgotten.

    Each property is tried by itself, or several together, or those leaves are split, too.
    """
    monkeypatch.setattr(earlier_together, "MOST_LEAVES", most_leaves)
    monkeypatch.setattr(earlier_together, "NEARLY", nearly)
    monkeypatch.setattr(earlier_trial, "NEARLY", nearly)
    monkeypatch.setattr(earlier_proofs, "MANY", 2)
    monkeypatch.setattr(earlier_proofs, "TEACHERS", 2)
    for passes in (WholePass, CondensedProof):
        monkeypatch.setattr(passes, "promising", lambda _, bounds: torch.ones_like(bounds, dtype=torch.bool))
    falsified = 0
    for model, images, labels, folder in proved:
        for one, eps in itertools.product(range(len(images)), RADII):
            found = verify(model, images[one : one + 1], labels[one : one + 1], eps, timeout=20)[0]
            if found.verdict is Verdict.UNSAT and found.subproblems > 2:
                other = barely_false(model, images[one], int(labels[one]), eps)
                again = decide(other, images[one : one + 1], labels[one : one + 1], eps, EarlierProofs(folder))
                assert again[0].verdict is Verdict.SAT
                falsified += 1
    assert falsified > 0


@pytest.mark.parametrize(("most_leaves", "nearly"), [(-1, 100.0), (48, 0.0), (48, 100.0)])
@pytest.mark.parametrize("share", [0.02, 0.5])
def test_forged_hints_change_no_verdict(proved, monkeypatch, share, most_leaves, nearly):
    """Whatever slopes, multipliers and refinements a file has: here they are random."""
    monkeypatch.setattr(earlier_together, "MOST_LEAVES", most_leaves)
    monkeypatch.setattr(earlier_together, "NEARLY", nearly)
    monkeypatch.setattr(earlier_trial, "NEARLY", nearly)
    genuine, forged = EarlierProofs._converted, []

    def forge(self, proof, *of):
        found = genuine(self, proof, *of)
        if found is None:
            return None
        torch.manual_seed(len(forged))
        width = sum(len(layer.elements) for layer in found.layers)
        refined = {
            layer.position: 3 * torch.randn(2, len(layer.elements), layer.rows.start) for layer in found.layers[1:]
        }
        row = torch.randint(3, found.leaves.row.shape)
        table = np.random.default_rng(len(forged)).integers(65536, size=(2, width)).astype(np.uint16)
        splits = replace(found.leaves.splits, beta=5 * torch.rand_like(found.leaves.splits.beta))
        forged.append(
            replace(found, leaves=replace(found.leaves, row=row, table=table, splits=splits), refined=refined)
        )
        return forged[-1]

    monkeypatch.setattr(EarlierProofs, "_converted", forge)
    for model, images, labels, folder in proved:
        other = changed(model, share)
        properties = Properties.around(other, images, labels, RADII[0])
        ours = decide(other, images, labels, RADII[0], EarlierProofs(folder))
        for index, (one, fresh) in enumerate(zip(ours, verify(other, images, labels, RADII[0]), strict=True)):
            assert one.verdict is fresh.verdict
            assert one.verdict is not Verdict.SAT or is_counterexample(properties, index, one.counterexample)
    assert forged


def test_what_is_read_is_what_the_checker_reads(proved):
    numbers = 0
    for _, _, _, folder in proved:
        network = read_network((folder / "model.onnx").read_bytes())
        for proof in folder.glob("*.proof"):
            groups = regions(read_property(proof.with_suffix(".vnnlib").read_bytes(), network))
            (ours,) = read_proof(proof.read_bytes(), sizes_of(network), groups)
            source = Source(proof.read_bytes())
            source.array("u1", 64 + 2 * 4)  # hashes, arithmetic, number of boxes
            theirs = read_region(source, sizes_of(network), groups[0])
            np.testing.assert_allclose(
                ours.slopes / 65535, theirs.table[1:], rtol=1e-6
            )  # its row 0 stands for defaults
            for named, slopes, rule in zip(ours.kept, ours.refined, theirs.rules, strict=True):
                np.testing.assert_array_equal(named, rule.named)
                assert (slopes is None) == (rule.slopes is None)
                if slopes is not None:
                    np.testing.assert_allclose(slopes / 65535, rule.slopes, rtol=1e-6)
                    numbers += slopes.size
            for one, other in zip(ours.leaves, theirs.leaves, strict=True):
                np.testing.assert_array_equal(one, other)
            numbers += ours.slopes.size
    assert numbers > 1000
    with pytest.raises(Refused, match="ends too early"):
        _slopes(source, 10**6, 10)


def test_a_multiplier_below_zero_is_no_multiplier():
    numbers = np.array([-2.0, np.nan, 0.5])
    none, leaf, relu = np.zeros(2, int), np.array([0, 0, 1]), np.array([0, 1, 0])
    tree = Leaves(none, none, leaf, relu, np.ones(3), numbers, slopes=none, weights=np.ones((2, 1)))
    region = StoredRegion([np.arange(2)], [None], np.zeros((0, 2), np.uint16), tree, halves=False, violations=1)
    found = _leaves_of(region, (), torch.zeros(1))
    assert found.splits.beta.tolist() == [0.0, 0.0, 0.5]


def test_a_changed_network_gets_the_verdict_of_an_exact_solver(proved):
    model, images, labels, folder = proved[1]
    other = changed(model, 0.1)
    (one,) = decide(other, images[1:2], labels[1:2], RADII[0], EarlierProofs(folder))
    (exact,) = make_verifier("milp", {})(Properties.around(other, images[1:2], labels[1:2], RADII[0]))
    assert one.verdict is exact.verdict


def test_a_proof_is_found_by_what_it_says_not_by_its_name(proved, tmp_path):
    model, images, labels, folder = proved[0]
    (tmp_path / "model.onnx").write_bytes((folder / "model.onnx").read_bytes())
    for number, proof in enumerate(sorted(folder.glob("*.proof"))):
        (tmp_path / f"{number}.proof").write_bytes(proof.read_bytes())
        text = proof.with_suffix(".vnnlib").read_text()
        (tmp_path / f"{number}.vnnlib").write_text("; another text, which says the same\n" + text)
    named, renamed = EarlierProofs(folder), EarlierProofs(tmp_path)
    for eps in RADII:
        decide(model, images, labels, eps, named)
        decide(model, images, labels, eps, renamed)
    assert named.used == renamed.used > 0

    others = EarlierProofs(folder)  # proofs of these boxes, but of other labels
    decide(model, images, (labels + 1) % 3, RADII[0], others)
    assert others.used == 0


def test_another_architecture_is_searched_as_usual(proved):
    _, images, _, folder = proved[0]
    other, earlier = network(7, width=21), EarlierProofs(folder)
    labels = other(images).argmax(1)
    results = decide(other, images, labels, RADII[1], earlier)
    fresh = verify(other, images, labels, RADII[1])
    assert [one.verdict for one in results] == [one.verdict for one in fresh]
    assert earlier.used == 0
    assert "other ReLU layers" in earlier.described()


def test_damaged_proofs_are_passed_over(proved, tmp_path):
    model, images, labels, folder = proved[0]
    for file in folder.iterdir():
        content = file.read_bytes()
        (tmp_path / file.name).write_bytes(content[:-9] if file.suffix == ".proof" else content)
    earlier = EarlierProofs(tmp_path)
    results = decide(model, images, labels, RADII[0], earlier)
    assert [one.verdict for one in results] == [one.verdict for one in verify(model, images, labels, RADII[0])]
    assert earlier.used == 0


def test_what_cannot_be_used_is_refused_in_one_line(proved, tmp_path):
    model, images, labels, folder = proved[0]
    with pytest.raises(UserError, match="there are no proofs in"):
        verify(model, images, labels, 0.1, from_proofs=tmp_path)
    with pytest.raises(UserError, match="earlier proofs help branch_and_bound only"):
        verify(model, images, labels, 0.1, verifier="milp", from_proofs=folder)


def test_proofs_of_a_search_from_proofs_are_valid(proved, tmp_path):
    import steadycheck

    model, images, labels, folder = proved[0]
    other = changed(model, 0.05)
    results = verify(other, images, labels, RADII[0], from_proofs=folder, proofs=tmp_path)
    written = list(tmp_path.glob("*.proof"))
    assert len(written) == sum(one.verdict is Verdict.UNSAT for one in results) > 0
    assert steadycheck.main([str(tmp_path)]) == 0


@pytest.fixture(scope="module")
def bounded():
    model = network(0)
    image = torch.rand(1, 1, 12, 12)
    box = Interval((image - 0.05).clamp(0, 1), (image + 0.05).clamp(0, 1))
    execution = Execution(Arithmetic.FLOAT32, torch.float32)
    whole, _ = propagate(graph_of(model, (1, 12, 12)), box, 1 << 28, execution=execution)
    return model, whole


def test_bounds_from_any_slopes_hold(bounded):
    model, whole = bounded
    torch.manual_seed(0)
    first, second = whole.graph.relus
    layers = (
        NumberedNeurons(first, (24,), torch.arange(24), slice(0, 24)),
        NumberedNeurons(second, (20,), torch.arange(20), slice(24, 44)),
    )
    points = whole.box.lower + torch.rand(500, 1, 12, 12) * (whole.box.upper - whole.box.lower)
    values = model[:4](points)
    for _ in range(5):
        proof = CondensedProof(condense_each([whole], whole, torch.eye(3)[None], 1 << 28, proofs=True)[0])
        better = refined_by_slopes(proof, layers, {second: torch.rand(2, 20, 24)}).bounds[second]
        assert proof.network.whole.bounds[second] is better  # the next pass has them
        assert (better.lower >= whole.bounds[second].lower).all()
        assert (better.lower <= values.min(0).values).all()
        assert (better.upper >= values.max(0).values).all()


@pytest.mark.parametrize("count", [12, 200])
def test_a_repair_says_what_its_slopes_give(bounded, count):
    _, whole = bounded
    condensed = condense(whole, torch.tensor([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]]), 1 << 28)
    torch.manual_seed(0)
    columns = torch.arange(count)
    splits = SplitColumns(
        torch.randint(condensed.neurons, (count,)), columns, torch.randint(2, (count,)) * 2.0 - 1, torch.rand(count)
    )
    batch = Columns.of(condensed, columns % 2, torch.rand(condensed.neurons, count), splits)
    before = lower(condensed, batch).lower
    wanted = float(before.median())
    reached = repair(condensed, batch, 6, wanted=wanted)
    torch.testing.assert_close(reached, lower(condensed, batch).lower)
    torch.testing.assert_close(reached[before > wanted], before[before > wanted])
    assert (reached > wanted).sum() > (before > wanted).sum()
    assert (batch.splits.beta >= 0).all()
    assert ((batch.slopes >= 0) & (batch.slopes <= 1)).all()


def test_a_network_whose_relus_are_all_stable_in_the_box_is_decided(tmp_path):
    """By hand: y₀ − y₁ = relu(x + 1) − t is at least 5/4 − t on [1/4, 3/4]: robust for t = 1, not for t = 13/10."""

    def made(threshold: float) -> nn.Sequential:
        model = nn.Sequential(nn.Linear(1, 1), nn.ReLU(), nn.Linear(1, 2)).requires_grad_(False)
        values = ([[1.0]], [1.0], [[1.0], [0.0]], [0.0, threshold])
        for parameter, value in zip(model.parameters(), values, strict=True):
            parameter.copy_(torch.tensor(value))
        return model

    image, folder = torch.tensor([[0.5]]), tmp_path / "proofs"
    assert verify(made(1.0), image, [0], 0.25, proofs=folder)[0].verdict is Verdict.UNSAT
    (result,) = verify(made(1.3), image, [0], 0.25, from_proofs=folder, attack_steps=0, restarts=0, programs=False)
    assert result.verdict is Verdict.SAT
