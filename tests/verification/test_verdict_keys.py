"""A stored verdict is used again only for the same network, region, label, property, verifier, settings and version."""

from __future__ import annotations

import csv
import shutil
import time
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from runs import command_line, start
from steadynet import Verdict
from steadynet.cli import main
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.runs.directory import RunDirectory
from steadynet.verification import verdict_key
from steadynet.verification.row_file import RowFile, as_line
from steadynet.verification.verdict_key import NEVER_AGAIN, instance_key, property_keys
from steadynet.verification.verdicts import COLUMNS, OLD_COLUMNS, read_rows
from steadynet.verification.verifiers import make_verifier
from verified import SELECTION, found, refused, rewrite, rows_of, said

IMAGES, LABELS = torch.rand(2, 3, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1])


def key_of(network, images=IMAGES, labels=LABELS, eps=0.1, verifier="branch_and_bound", **settings):
    return property_keys(network, images, labels, [eps], make_verifier(verifier, settings))[eps, 0]


def net(*, seed=0, middle=None):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), middle or nn.ReLU(), nn.Linear(4, 2))


class Scaled(nn.Module):
    """A network with a constant that is no weight."""

    def __init__(self, factor):
        super().__init__()
        self.inner, self.factor = net(), factor

    def forward(self, images):
        return self.inner(images * self.factor)


class Untraceable(nn.Module):
    """A network that no graph is known for."""

    def __init__(self):
        super().__init__()
        self.inner = net()

    def forward(self, images):
        return self.inner(images).sin()


def test_a_key_holds_all_that_a_verdict_depends_on(monkeypatch):
    nudged = IMAGES.clone()
    nudged[0, 0] = torch.nextafter(nudged[0, 0], torch.tensor(2.0))
    keys = [
        key_of(net()),
        key_of(net(seed=1)),
        key_of(net(middle=nn.LeakyReLU(0.5))),  # the same weights in another graph
        key_of(Scaled(1.5)),
        key_of(Scaled(1.25)),  # a constant in the code
        key_of(net().double(), IMAGES.double()),
        key_of(net(), nudged),
        key_of(net(), eps=0.1000001),
        key_of(net(), labels=torch.tensor([1, 1])),
        key_of(net(), verifier="milp"),
        key_of(net(), attack_steps=7),
        key_of(net(), arithmetic="exact"),
    ]
    monkeypatch.setattr(verdict_key, "SOUNDNESS_VERSION", verdict_key.SOUNDNESS_VERSION + 1)
    keys.append(key_of(net()))
    assert len(set(keys)) == len(keys)
    assert {len(key) for key in keys} == {64}


def test_a_key_holds_nothing_else():
    assert key_of(net()) == key_of(net(), timeout=7.0)
    assert key_of(net()) == key_of(nn.Sequential(*net()))
    assert key_of(net()) == key_of(net(), IMAGES[:1], LABELS[:1])


def test_a_network_without_a_graph_is_never_taken_for_another():
    assert key_of(Untraceable()).startswith(NEVER_AGAIN)


def test_external_data_belongs_to_the_network(tmp_path):
    export_onnx(net(), (3,), tmp_path / "net.onnx")
    model = onnx.load(tmp_path / "net.onnx")
    onnx.save_model(model, tmp_path / "split.onnx", save_as_external_data=True, location="data", size_threshold=0)
    (tmp_path / "p.vnnlib").write_text("")
    before = instance_key(tmp_path / "split.onnx", tmp_path / "p.vnnlib", make_verifier("milp", {}))
    content = bytearray((tmp_path / "data").read_bytes())
    content[3] ^= 1
    (tmp_path / "data").write_bytes(content)
    assert instance_key(tmp_path / "split.onnx", tmp_path / "p.vnnlib", make_verifier("milp", {})) != before


# Runs


def test_another_label_is_another_property(verified, trained, capsys):
    with np.load(trained.parent / "small.npz") as content:
        images, labels = content["X"], content["y"]
    np.savez(trained.parent / "shifted.npz", X=images, y=(labels + 1) % 4)  # every label is wrong now
    said(capsys, "verify", verified, *SELECTION)
    said(capsys, "verify", verified, *SELECTION, "--data", trained.parent / "shifted.npz")
    anew = [row for row in rows_of(verified) if row.data.endswith("shifted.npz")]
    assert len(anew) == 36
    assert not any(row.verdict is Verdict.UNSAT for row in anew if row.eps == 0.05)


def test_the_same_weights_in_another_model_file_are_another_network(verified, capsys):
    source = verified / "model.py"
    source.write_text(source.read_text().replace("nn.ReLU()", "nn.LeakyReLU(0.5)"))
    said(capsys, "verify", verified, *SELECTION)
    assert len(rows_of(verified)) == 72


def test_a_fix_of_the_verifier_decides_anew(verified, whole, capsys, monkeypatch):
    monkeypatch.setattr(verdict_key, "SOUNDNESS_VERSION", verdict_key.SOUNDNESS_VERSION + 1)
    rewrite(verified, lambda row: row | {"decided_by": "before"})
    said(capsys, "verify", verified, *SELECTION)
    assert [row.decided_by == "before" for row in rows_of(verified)] == [True] * 36 + [False] * 36


def test_an_unknown_is_kept_for_the_same_time_out_and_an_error_is_tried_again(verified, capsys):
    verdicts = {"0.05": "unknown", "0.3": "error"}
    change = {"reason": "stored", "counterexample": ""}
    rewrite(verified, lambda row: row | change | {"verdict": verdicts.get(row["eps"], "timeout")})
    text = said(capsys, "verify", verified, *SELECTION)
    assert {row.reason for row in rows_of(verified) if row.eps == 0.05} == {"stored"}
    assert {row.reason for row in rows_of(verified) if row.eps == 0.3} == {""}
    assert "24 × stored" in text
    said(capsys, "verify", verified, "--eps", "0.05", "--per-class", 3, "--timeout", 30)
    assert {row.reason for row in rows_of(verified) if row.eps == 0.05} == {""}


def as_before(run):
    """Rewrite ``verdicts.csv`` as an older version wrote it, with proofs only, and return its text."""
    path = run / "verdicts.csv"
    lines = [as_line(OLD_COLUMNS)]
    for row in csv.DictReader(path.read_text().splitlines()):
        row |= {"verdict": "unsat", "counterexample": "", "task": "01234567"}
        lines.append(as_line([row[name] for name in OLD_COLUMNS]))
    path.write_text("\n".join([*lines, ""]))
    return path.read_text()


@pytest.mark.filterwarnings("always")
def test_a_file_of_an_older_version_is_kept_and_not_used(verified, whole, capsys):
    for name in ("verdicts-old.csv", "verdicts-old-2.csv"):
        text = as_before(verified)
        assert len(rows_of(verified)) == 36  # a report can still show them
        assert main(["verify", str(verified), *SELECTION]) == 0
        (line,) = capsys.readouterr().err.splitlines()
        assert f"verdicts are not used again: it is now {name}" in line
        assert (verified / name).read_text() == text
        assert found(verified) == found(whole)


def test_a_line_cut_short_by_a_kill_harms_nobody(tmp_path):
    file = RowFile(tmp_path / "rows.csv", ("a", "b"))
    file.replace_all(["1,2"])
    with file.path.open("a") as open_file:
        open_file.write("3,")
    assert file.lines() == ["a,b", "1,2"]
    file.append("5,6")
    assert file.path.read_text() == "a,b\n1,2\n5,6\n"


# Lists of instances

BOX = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (>= X_0 0))(assert (<= X_0 1))"


def write_instance(folder: Path, factor: float, limit: float) -> Path:
    """A list of one instance: can x ↦ factor·x reach the limit on [0, 1]?"""
    folder.mkdir(exist_ok=True)
    network = nn.Sequential(nn.Linear(1, 1, bias=False))
    network[0].weight.data.fill_(factor)
    export_onnx(network, (1,), folder / "net.onnx")
    (folder / "p.vnnlib").write_text(BOX + f"(assert (>= Y_0 {limit}))")
    (folder / "instances.csv").write_text("net.onnx,p.vnnlib,20\n")
    return folder / "instances.csv"


def verdict_of(capsys, listed, *flags):
    """The only verdict that the table shows, which must be that of the list."""
    text = said(capsys, "vnncomp", "--instances", listed, *flags)
    words = [word for word in text.split() if word in ("sat", "unsat")]
    assert len(set(words)) == 1
    return words[0]


def test_names_of_files_never_find_a_verdict(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)  # for the default table, results.csv
    assert verdict_of(capsys, write_instance(tmp_path / "a", 2.0, 3.0)) == "unsat"
    assert verdict_of(capsys, write_instance(tmp_path / "b", 4.0, 3.0)) == "sat"  # another folder
    assert verdict_of(capsys, write_instance(tmp_path / "a", 4.0, 3.0)) == "sat"  # another network in the same file
    assert verdict_of(capsys, write_instance(tmp_path / "a", 4.0, 5.0)) == "unsat"  # another property
    assert verdict_of(capsys, tmp_path / "a" / "instances.csv", "--verifier", "milp") == "unsat"
    assert verdict_of(capsys, tmp_path / "a" / "instances.csv", "--attack-steps", "7") == "unsat"
    rows = list(csv.DictReader((tmp_path / "results.csv").read_text().splitlines()))
    # b and the changed a are the same network and property, so the third is not decided again
    assert [row["verdict"] for row in rows] == ["unsat", "sat", "unsat", "unsat", "unsat"]
    assert [row["verifier"] for row in rows].count("milp") == 1
    assert len({row["key"] for row in rows}) == 5
    assert verdict_of(capsys, write_instance(tmp_path / "a", 2.0, 3.0)) == "unsat"
    assert len((tmp_path / "results.csv").read_text().splitlines()) == 6


@pytest.mark.filterwarnings("always")
def test_a_table_of_an_older_version_is_kept_and_not_used(tmp_path, capsys):
    listed = write_instance(tmp_path / "a", 4.0, 3.0)
    header = "network,property,timeout,verdict,seconds,decided_by,reason,counterexample"
    text = f"{header}\nnet.onnx,p.vnnlib,20,unsat,1,,,\n"
    (tmp_path / "results.csv").write_text(text)
    assert main(["vnncomp", "--instances", str(listed), "--out", str(tmp_path / "results.csv")]) == 0
    assert "it is now results-old.csv" in capsys.readouterr().err
    assert (tmp_path / "results-old.csv").read_text() == text
    assert verdict_of(capsys, listed, "--out", tmp_path / "results.csv") == "sat"


def test_a_counterexample_whose_file_is_lost_is_looked_for_again(tmp_path, capsys):
    listed, out = write_instance(tmp_path / "a", 4.0, 3.0), tmp_path / "results.csv"
    assert verdict_of(capsys, listed, "--out", out) == "sat"
    shutil.rmtree(tmp_path / "results-counterexamples")
    assert verdict_of(capsys, listed, "--out", out) == "sat"
    assert len(list((tmp_path / "results-counterexamples").iterdir())) == 1


def test_a_counterexample_whose_file_was_changed_is_looked_for_again(tmp_path, capsys):
    listed, out = write_instance(tmp_path / "a", 4.0, 3.0), tmp_path / "results.csv"
    assert verdict_of(capsys, listed, "--out", out) == "sat"
    (file,) = (tmp_path / "results-counterexamples").iterdir()
    written = file.read_text()
    file.write_text("sat\n((X_0 5.0)\n(Y_0 0.0))\n")
    assert verdict_of(capsys, listed, "--out", out) == "sat"
    assert all(one.read_text().startswith("sat\n((X_0 ") for one in (tmp_path / "results-counterexamples").iterdir())
    rows = list(csv.DictReader(out.read_text().splitlines()))
    last = (tmp_path / rows[-1]["counterexample"]).read_text()
    assert last != "sat\n((X_0 5.0)\n(Y_0 0.0))\n", written


@pytest.mark.parametrize("content", [b"my notes, without a line end", b"\x00\xff\x00"])
def test_another_file_is_never_taken_for_an_empty_table(tmp_path, capsys, content):
    out = tmp_path / "results.csv"
    out.write_bytes(content)
    assert "holds something else" in refused(
        capsys, "vnncomp", "--instances", write_instance(tmp_path / "a", 4.0, 3.0), "--out", out
    )
    assert out.read_bytes() == content


# Two processes at once


def run_at_once(commands, folder):
    """Start all commands together; each must end well."""
    outputs = [folder / f"said-{number}" for number in range(len(commands))]
    processes = [start(command_line, *each) for each in zip(commands, outputs, strict=True)]
    for process, output in zip(processes, outputs, strict=True):
        process.join()
        assert process.exitcode == 0, output.read_text()


def test_two_processes_verify_one_run(run, whole, tmp_path):
    shared = ["--per-class", "3", "--timeout", "20"]
    run_at_once(
        [
            ["verify", str(run), "--eps", "0.05", "0.3", "0.7", *shared],
            ["verify", str(run), "--eps", "0.7", "0.3", "0.05", *shared],
            ["verify", str(run), "--eps", "0.05", "0.2", *shared, "--verifier", "milp"],
        ],
        tmp_path,
    )
    rows = read_rows(RunDirectory(run))
    ours = [row for row in rows if row.verifier == "branch_and_bound"]
    assert sorted((row.eps, row.index, row.label, row.verdict.value) for row in ours) == found(whole)
    assert len(rows) - len(ours) == 24
    assert not list(run.rglob("*.tmp"))


def test_two_processes_write_one_table(tmp_path):
    for name, factor in (("a", 2.0), ("b", 4.0)):
        listed = write_instance(tmp_path / name, factor, 3.0)
        limits = [0.125 * number for number in range(1, 33)]
        for number, limit in enumerate(limits):
            (tmp_path / name / f"{number}.vnnlib").write_text(BOX + f"(assert (>= Y_0 {limit}))")
        listed.write_text("".join(f"net.onnx,{number}.vnnlib,20\n" for number in range(len(limits))))
    out = tmp_path / "results.csv"
    commands = [["vnncomp", "--instances", str(tmp_path / name / "instances.csv"), "--out", str(out)] for name in "ab"]
    run_at_once(commands, tmp_path)
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert len(rows) == len({row["key"] for row in rows}) == 64
    assert [row["verdict"] for row in rows].count("sat") == 16 + 32
    assert all((tmp_path / row["counterexample"]).is_file() for row in rows if row["verdict"] == "sat")


def test_who_starts_waits_for_who_writes(tmp_path):
    """A start removes what killed processes left, but never the file that another process is writing."""
    file, moments = RowFile(tmp_path / "rows.csv", COLUMNS), []
    with file.locked():
        process = start(_replace_all, file)
        time.sleep(0.5)
        moments.append(file.path.exists())
    process.join()
    assert [*moments, file.path.exists()] == [False, True]


def _replace_all(file: RowFile) -> None:
    with file.locked():
        file.replace_all([])


def test_a_damaged_table_is_refused(verified, capsys):
    (verified / "verdicts.csv").write_text("eps,index\n0.1,3\n")
    assert "is damaged: line 1" in refused(capsys, "verify", verified, *SELECTION)
