"""Evidence for an assessor: hashes of known bytes, counts known by hand, refusal of what does not belong together."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shlex
from dataclasses import replace
from fractions import Fraction
from math import comb
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from steadynet.cli import main, parse_command_line
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.report.evidence import read_evidence
from steadynet.report.evidence_pages import evidence_blocks
from steadynet.report.evidence_topics import SECTIONS
from steadynet.report.gather_evidence import gather_evidence
from steadynet.report.hashes import weights_hash
from steadynet.report.intervals import clopper_pearson
from steadynet.report.pdf import BOTTOM, COLUMN, HEIGHT, LEFT, TOP, Table, Text, lay_out, write_pdf
from steadynet.verification.self_test import record as records
from steadynet.verification.stored_verifier import settings_as_flags, stored_verifier
from steadynet.verification.verifiers import make_verifier
from verified import refused, rewrite, said, train_tiny

# The network below gives label 0 to x with x[0] > 0.5: a property at ε holds if x[0] is farther than ε from 0.5.
PIXELS = np.array([[x, 0.5] for x in (0.9, 0.8, 0.55, 0.3, 0.1, 0.2, 0.45)], dtype=np.float32)
LABELS = np.array([0, 0, 0, 0, 1, 1, 1])
HOLDS_AT_01 = [0, 1, 4, 5]  # positions; image 3 has the wrong label itself
RECORD = "self-test.json"


def network():
    made = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    weights = {"0.weight": [[1, 0], [-1, 0]], "0.bias": [0, 1], "2.weight": [[1, 0], [0, 1]], "2.bias": [0, 0]}
    made.load_state_dict({name: torch.tensor(value, dtype=torch.float32) for name, value in weights.items()})
    return made


def verify(*words, per_class=10):
    command = ["verify", "net.onnx", "--data", "images.npz", "--eps", "0.1", "--per-class", str(per_class), *words]
    assert main(command) == 0


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a verified network, its images and the record of a self-test."""
    monkeypatch.chdir(tmp_path)
    np.savez("images.npz", X=PIXELS, y=LABELS)
    export_onnx(network(), (2,), "net.onnx")
    verify()
    write_self_test()
    return tmp_path


def write_self_test(name="branch_and_bound", **settings):
    verifier = make_verifier(name, settings)
    family = records.FamilyRecord("monotone", 9, 8, 1, 0, 0)
    version = records.__version__
    records.write_self_test(
        Path(RECORD),
        records.SelfTestRecord(
            version, name, verifier.settings_line(), 5.0, 1, 0, (family,), (), "steadynet self-test"
        ),
    )


def evidence(*words):
    assert main(["report", "runs/net", "--no-figures", "--evidence", "--self-test", RECORD, *words]) == 0
    return read_evidence(Path("report/evidence.json"))


def shown(found):
    """All words of the pages."""
    blocks = evidence_blocks(found)
    cells = [
        cell for block in blocks if isinstance(block, Table) for row in (block.header, *block.rows) for cell in row
    ]
    return "\n".join([block.text for block in blocks if isinstance(block, Text)] + cells)


def test_verdicts_are_counted_as_they_are_known_by_hand(folder):
    found = evidence("--requirement", "Keep the label.", "--eps-reason", "Noise below 10 %.")
    (net,) = found.networks
    (entry,) = net.properties
    assert (found.requirement, found.eps_reason) == ("Keep the label.", "Noise below 10 %.")
    assert (entry.proved, entry.refuted, entry.misclassified, entry.undecided) == (4, 3, 1, 0)
    assert [verdict.image for verdict in entry.verdicts if verdict.verdict == "unsat"] == HOLDS_AT_01
    assert entry.time_limits == (60.0,)
    assert {(part.verdict, part.arithmetic, part.guarantee, part.count) for part in entry.guarantees} == {
        ("unsat", "float32", "checked", 4),
        ("sat", "", "replayed", 3),
    }
    assert (net.method, net.held_out) == ("imported", False)
    text = shown(found)
    for words in ("Keep the label.", "Noise below 10 %.", "4 of 7", "not known whether", "treated as drawn at random"):
        assert words in text
    for section in SECTIONS:
        assert section.heading in text
    assert "It claims no conformance" in text


def test_undecided_images_are_shown_with_their_time_limit(folder):
    def undecide(row):
        return (
            row | {"verdict": "timeout", "timeout": "7.0", "guarantee": "", "arithmetic": ""}
            if row["index"] == "0"
            else row
        )

    rewrite(folder / "runs/net", undecide)
    (entry,) = evidence().networks[0].properties
    assert (entry.proved, entry.refuted, entry.undecided) == (3, 3, 1)
    assert entry.undecided_because == {"timeout": 1, "unknown": 0, "error": 0}
    assert entry.time_limits == (7.0, 60.0)
    text = shown(read_evidence(Path("report/evidence.json")))
    assert "1 of 7 (14.3 %): 1 timeout" in text
    assert "7 s, 60 s" in text


def test_hashes_are_those_of_the_bytes(folder):
    found = evidence()
    (net,) = found.networks
    for file in net.files:
        assert file.sha256 == hashlib.sha256(Path(file.path).read_bytes()).hexdigest()
    roles = {file.role: file.path for file in net.files}
    assert roles["network (ONNX)"] == "runs/net/network.onnx"
    assert roles["data (file)"] == "images.npz"
    assert {"network (weights)", "settings", "verdicts"} <= set(roles)
    (entry,) = net.properties
    assert entry.sample.sha256 == hashlib.sha256(PIXELS.tobytes() + LABELS.astype("<i8").tobytes()).hexdigest()
    refuted = [verdict for verdict in entry.verdicts if verdict.counterexample]
    assert len(refuted) == 3
    for verdict in refuted:
        bytes_there = (folder / "runs/net" / verdict.counterexample).read_bytes()
        assert verdict.counterexample_sha256 == hashlib.sha256(bytes_there).hexdigest()


def test_how_images_were_drawn(folder):
    everything = evidence().networks[0].properties[0].sample
    assert (everything.test_images, everything.per_class, everything.first_of_each_class) == (7, {"0": 4, "1": 3}, 4)
    verify("--out", "runs/two", per_class=2)
    (entry,) = (
        gather_evidence([Path("runs/two")], self_tests=[records.read_self_test(Path(RECORD))]).networks[0].properties
    )
    assert (entry.sample.positions, entry.sample.first_of_each_class) == ((0, 1, 4, 5), 2)
    rows = (folder / "runs/two/verdicts.csv").read_text().splitlines(keepends=True)
    kept = [line for line in rows if not line.startswith("0.1,1,")]  # without the second image of class 0
    (folder / "runs/two/verdicts.csv").write_text("".join(kept))
    (entry,) = (
        gather_evidence([Path("runs/two")], self_tests=[records.read_self_test(Path(RECORD))]).networks[0].properties
    )
    assert (entry.sample.positions, entry.sample.first_of_each_class) == ((0, 4, 5), None)


def exact_tail(successes, count, share):
    """The probability of at least so many successes, in exact arithmetic."""
    p = Fraction(share)
    return sum(comb(count, k) * p**k * (1 - p) ** (count - k) for k in range(successes, count + 1))


@pytest.mark.parametrize(("successes", "count"), [(4, 7), (1, 2), (48, 50), (1, 100), (99, 100)])
def test_the_interval_has_the_tails_that_define_it(successes, count):
    interval = clopper_pearson(successes, count)
    assert float(exact_tail(successes, count, interval.low)) == pytest.approx(0.025, rel=1e-9)
    assert 1 - float(exact_tail(successes + 1, count, interval.high)) == pytest.approx(0.025, rel=1e-9)


def test_intervals_at_the_ends_have_closed_forms():
    for count in (1, 10, 1000):
        all_of, none = clopper_pearson(count, count), clopper_pearson(0, count)
        assert (all_of.high, none.low) == (1.0, 0.0)
        assert all_of.low == pytest.approx(0.025 ** (1 / count), rel=1e-9)
        assert none.high == pytest.approx(1 - 0.025 ** (1 / count), rel=1e-9)
    half = clopper_pearson(1, 2)
    assert (half.low, half.high) == (pytest.approx(1 - 0.975**0.5), pytest.approx(0.975**0.5))


def test_verdicts_of_another_network_or_other_images_are_refused(folder, capsys):
    capsys.readouterr()
    moved = PIXELS.copy()
    moved[0, 1] = 0.25  # the verdict would be the same, but it was not found for this image
    np.savez("images.npz", X=moved, y=LABELS)
    line = refused(capsys, "report", "runs/net", "--no-figures", "--evidence", "--self-test", RECORD)
    assert "1 of 7 verdicts of runs/net at ε 0.1 are of another network, other images" in line


def test_a_counterexample_that_does_not_replay_is_refused(folder, capsys):
    capsys.readouterr()
    rows = read_rows_of_net()
    first, second = (row for row in rows if row["verdict"] == "sat" and row["index"] in "26")
    kept = folder / "runs/net" / first["counterexample"]
    kept.write_bytes((folder / "runs/net" / second["counterexample"]).read_bytes())
    line = refused(capsys, "report", "runs/net", "--no-figures", "--evidence", "--self-test", RECORD)
    assert "does not replay" in line


def read_rows_of_net():
    header, *lines = Path("runs/net/verdicts.csv").read_text().splitlines()
    return [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]


def test_a_self_test_of_another_verifier_is_refused(folder, capsys):
    capsys.readouterr()
    write_self_test(restarts=7)
    line = refused(capsys, "report", "runs/net", "--no-figures", "--evidence", "--self-test", RECORD)
    assert "is not about the verifier that decided" in line


def test_without_a_record_a_short_self_test_is_run(folder, monkeypatch):
    monkeypatch.setattr(records, "SHORT", ("rounding",))
    (test,) = gather_evidence([Path("runs/net")]).self_tests
    assert [entry.family for entry in test.families] == ["rounding"]
    assert test.total().tried == test.families[0].tried > 5
    assert (test.total().wrong, test.wrong) == (0, ())
    assert parse_command_line(shlex.split(test.command)[1:]).families == ["rounding"]


def test_the_record_of_a_self_test_is_what_the_command_counts(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    out = said(capsys, "self-test", "--families", "rounding", "--timeout", "2", "--record", RECORD)
    test = records.read_self_test(Path(RECORD))
    (counted,) = re.findall(r"rounding +(\d+) +(\d+) +(\d+) +(\d+) +(\d+)", out)
    (entry,) = test.families
    assert tuple(map(int, counted)) == (entry.tried, entry.right, entry.undecided, entry.not_supported, entry.wrong)
    assert test.is_about(make_verifier("branch_and_bound", {"timeout": 60.0}))
    assert not test.is_about(make_verifier("branch_and_bound", {"restarts": 7}))


def test_the_commands_repeat_the_work(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = train_tiny(tmp_path)
    verify_tiny = ["verify", str(run), "--eps", "0.05", "--per-class", "2", "--timeout", "20", "--restarts", "5"]
    assert main([*verify_tiny, "--no-condense"]) == 0
    write_self_test(restarts=5, condense=False)
    found = gather_evidence([run], self_tests=[records.read_self_test(Path(RECORD))])
    (net,) = found.networks
    before = [(verdict.image, verdict.verdict, verdict.key) for verdict in net.properties[0].verdicts]
    assert net.held_out
    for command in net.commands:
        assert main(shlex.split(command)[1:]) == 0
    assert weights_hash(load_file(f"{run}-again/weights.safetensors")) == net.weights_sha256
    (again,) = gather_evidence([run], self_tests=[records.read_self_test(Path(RECORD))]).networks
    assert [(verdict.image, verdict.verdict, verdict.key) for verdict in again.properties[0].verdicts] == before


def test_a_run_without_verdicts_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run = train_tiny(tmp_path)
    capsys.readouterr()
    assert "there are no verdicts" in refused(capsys, "report", run, "--no-figures", "--evidence")
    assert "belongs to --evidence" in refused(capsys, "report", run, "--requirement", "Keep the label.")
    assert "is empty" in refused(capsys, "report", run, "--evidence", "--eps-reason", " ")


def test_every_line_of_the_pages_lies_within_the_margins(folder):
    found = evidence("--requirement", "word " * 400 + "x" * 300, "--eps-reason", "$a_b$ costs 5 $ & <b>")
    long_name = replace(found.networks[0], name="runs/" + "long-name-" * 20)
    many = replace(found, networks=(*found.networks, *[long_name] * 8))
    pages = lay_out(evidence_blocks(many), "footer " * 40)
    assert len(pages) > 3
    for number, page in enumerate(pages, 1):
        assert any(text.text == f"page {number} of {len(pages)}" for text in page.texts)
        for text in page.texts:
            assert text.x >= LEFT - 0.01
            assert text.right <= LEFT + COLUMN + 0.01, text.text
            assert text.y + text.style.size <= HEIGHT - TOP + 0.01
        assert all(text.y >= BOTTOM - 3 for text in page.texts[:-2])  # the last two are the foot
    write_pdf(folder / "many.pdf", pages, "Many")
    content = (folder / "many.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert len(re.findall(rb"/Type /Page\b", content)) == len(pages)


def test_the_json_file_holds_what_the_record_holds(folder):
    found = evidence()
    content = json.loads(Path("report/evidence.json").read_text())
    assert content["networks"][0]["properties"][0]["proved"] == 4
    assert content["format"] == 3
    assert content["self_tests"][0]["families"] == [
        {"family": "monotone", "tried": 9, "right": 8, "undecided": 1, "not_supported": 0, "wrong": 0}
    ]
    assert read_evidence(Path("report/evidence.json")) == found
    assert Path("report/evidence.pdf").read_bytes().startswith(b"%PDF")
    assert Path("report/index.html").is_file()


def test_a_verifier_is_made_again_from_its_settings():
    for settings in ({}, {"restarts": 0, "batch": 8}, {"group": 3, "programs": False}, {"arithmetic": "exact"}):
        given = make_verifier("branch_and_bound", settings | {"timeout": 3.0})
        assert stored_verifier("branch_and_bound", given.settings_line(), 3.0) == given
        words = ["self-test", "--timeout", "3", *settings_as_flags(given)]
        typed = parse_command_line(words)
        assert {key: getattr(typed, f"verifier.{key}") for key in settings} == settings


def ask(*words):
    assert main(["verify", "net.onnx", "--data", "images.npz", *words]) == 0


def search_radii(*words):
    assert main(["radius", "net.onnx", "--data", "images.npz", "--per-class", "9", "--tolerance", "0.01", *words]) == 0


def test_regions_and_claims_are_counted_as_they_are_known_by_hand(folder):
    """Brightness moves both numbers, of which the network sees the first; the limits are those of a box."""
    np.savez("limits.npz", lower=np.array([0.6, 0.0]), upper=np.array([1.0, 1.0]))
    ask("--brightness", "-0.1", "0.1")
    ask("--region", "limits.npz")
    ask("--eps", "0.1", "--claim", "never", "1")
    ask("--eps", "0.1", "--claim", "rises", "0", "0")
    ask("--eps", "0.1", "--claim", "falls", "0", "0")
    found = evidence("--requirement", "Keep the label.")
    eps, bright, limits, never, rises, falls = found.networks[0].properties
    assert (eps.eps, eps.region, eps.claim) == (0.1, "each number within ε 0.1", "the label stays")
    assert (bright.eps, bright.region, bright.proved, bright.refuted) == (None, "brightness -0.1 to 0.1", 4, 3)
    assert (limits.proved, limits.refuted) == (4, 3)  # label 0 everywhere: so is that of the first four
    assert (never.claim, never.proved, never.refuted) == ("never class 1", 2, 5)  # the two images above 0.6
    assert (rises.proved, falls.refuted) == (7, 7)  # the first output is the first number
    assert falls.claim == "output 0 never rises by 0.001 as feature 0 grows"
    roles = {file.role: file.path for file in found.networks[0].files}
    assert (roles["verdicts (regions)"], roles["limits of regions"]) == ("runs/net/regions.csv", "limits.npz")
    text = shown(found)
    for words in ("brightness -0.1 to 0.1", "never class 1", "P5: For an image x", "each number within its limits in"):
        assert words in text
    for command in found.networks[0].commands:
        assert main(shlex.split(command)[1:]) == 0
    again = evidence().networks[0].properties
    assert [(entry.proved, entry.refuted) for entry in again] == [(4, 3), (4, 3), (4, 3), (2, 5), (7, 0), (0, 7)]
    assert len(read_evidence(Path("report/evidence.json")).networks[0].properties) == 6


def test_regions_of_other_images_or_limits_are_refused(folder, capsys):
    np.savez("limits.npz", lower=np.array([0.6, 0.0]), upper=np.array([1.0, 1.0]))
    ask("--region", "limits.npz")
    evidence()
    np.savez("limits.npz", lower=np.array([0.7, 0.0]), upper=np.array([1.0, 1.0]))
    capsys.readouterr()
    line = refused(capsys, "report", "runs/net", "--no-figures", "--evidence", "--self-test", RECORD)
    assert "7 of 7 verdicts of runs/net on each number within its limits in limits.npz" in line
    assert "steadynet verify runs/net" in line


@pytest.mark.parametrize("words", [["--brightness", "-0.1", "0.1"], ["--eps", "0.1", "--claim", "falls", "0", "0"]])
def test_a_counterexample_of_a_region_that_does_not_replay_is_refused(folder, capsys, words):
    ask(*words)
    rows = [line for line in Path("runs/net/regions.csv").read_text().splitlines() if ",sat," in line]
    first, second = (re.search(r"counterexamples/[^,]*", row)[0] for row in (rows[0], rows[-1]))
    kept = (folder / "runs/net" / second).read_bytes()
    (folder / "runs/net" / first).write_bytes(kept)
    capsys.readouterr()
    line = refused(capsys, "report", "runs/net", "--no-figures", "--evidence", "--self-test", RECORD)
    assert "does not replay" in line


def test_radii_are_in_the_evidence_with_their_intervals(folder):
    search_radii()
    found = evidence()
    (radii,) = found.networks[0].radii
    true = [0.4, 0.3, 0.05, 0.0, 0.4, 0.3, 0.05]
    for image, radius in zip(radii.images, true, strict=True):
        assert image.proved <= radius + 1e-6 <= image.refuted + 2e-6
        assert image.refuted - image.proved <= 0.01
    quarter = next(share for share in radii.shares if share.eps == 0.25)
    assert (quarter.proved, quarter.refuted, quarter.open) == (4, 3, 0)
    assert quarter.proved_share == clopper_pearson(4, 7)
    assert (radii.most, radii.tolerance, radii.time_limit) == (0.5, 0.01, 10.0)
    for image in radii.images:
        bytes_there = (folder / "runs/net" / image.counterexample).read_bytes()
        assert image.counterexample_sha256 == hashlib.sha256(bytes_there).hexdigest()
    text = shown(found)
    for words in ("R1: how far each image keeps its label", "nothing proved", "4 of 7", "18.4 to 90.2 %", "--max-eps"):
        assert words in text
    assert "radii" in {file.role for file in found.networks[0].files}


def test_radii_alone_are_evidence_and_belong_to_their_images(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.savez("images.npz", X=PIXELS, y=LABELS)
    export_onnx(network(), (2,), "net.onnx")
    search_radii()
    write_self_test()
    found = evidence()
    assert (found.networks[0].properties, len(found.networks[0].radii)) == ((), 1)
    lay_out(evidence_blocks(found), "foot")
    (command,) = found.networks[0].commands
    assert main(shlex.split(command)[1:]) == 0
    stored = folder_rows("radii.csv")
    swapped = [row | {"counterexample": stored[0]["counterexample"]} if row["index"] == "5" else row for row in stored]
    write_rows("radii.csv", swapped)
    capsys.readouterr()
    words = ("report", "runs/net", "--no-figures", "--evidence", "--self-test", RECORD)
    assert "does not replay" in refused(capsys, *words)
    write_rows("radii.csv", [row | {"proved": "0.35"} if row["index"] == "1" else row for row in stored])
    assert "the radius of image 1 in runs/net/radii.csv is of another network" in refused(capsys, *words)


def folder_rows(name):
    with Path("runs/net", name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_rows(name, rows):
    with Path("runs/net", name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
