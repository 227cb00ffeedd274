"""A stopped verification continues, and decides no property twice unless the property has changed."""

from __future__ import annotations

import os
import shlex
import shutil
import signal

import numpy as np

from runs import command_line, files, finish, tiny
from steadynet import Verdict
from steadynet.runs.directory import RunDirectory
from steadynet.verification import row_file, verifiers
from steadynet.verification.verdicts import VerdictFile
from verified import SELECTION, found, rewrite, rows_of, said


def killed_after(arguments, output, count, half):
    """Run ``steadynet``, and kill it after some rows, or (``half``) in the middle of writing the next one."""
    append, left = row_file.append_line, iter(range(count))

    def add(path, line, to_disk=True):
        if next(left, None) is None:
            if half:
                with path.open("a") as file:
                    file.write(line[: len(line) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        append(path, line, to_disk)

    row_file.append_line = add
    command_line(arguments, output)


def signalled_after(arguments, output, count):
    """Run ``steadynet``, and press Ctrl-C after some rows."""
    append, left = row_file.append_line, iter(range(count - 1))

    def add(path, line, to_disk=True):
        append(path, line, to_disk)
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGINT)

    row_file.append_line = add
    command_line(arguments, output)


def test_killed_it_goes_on_and_decides_nothing_twice(run, whole, tmp_path):
    arguments, stored = ["verify", str(run), *SELECTION], 0
    for count, half in ((0, True), (1, False), (9, True), (14, False)):
        before = (run / "verdicts.csv").read_text() if (run / "verdicts.csv").is_file() else ""
        assert finish(killed_after, arguments, tmp_path / "said", count, half) == -signal.SIGKILL
        written = (run / "verdicts.csv").read_text()
        assert written.endswith("\n") != half
        assert before.rpartition("\n")[0] in written  # seconds and all: nothing was decided again
        stored += count
        assert len(rows_of(run)) == stored
    survived = (run / "verdicts.csv").read_text().rpartition("\n")[0]
    assert finish(command_line, arguments, tmp_path / "said") == 0
    assert (run / "verdicts.csv").read_text().startswith(survived)
    assert found(run) == found(whole)
    assert len((run / "verdicts.csv").read_text().splitlines()) == 1 + 36
    assert files(run / "counterexamples").keys() == files(whole / "counterexamples").keys()


def test_ctrl_c_says_how_to_go_on(run, whole, tmp_path, capsys):
    arguments = ["verify", str(run), *SELECTION, "--fresh"]
    assert finish(signalled_after, arguments, tmp_path / "said", 7) == 130
    line = (tmp_path / "said").read_text().splitlines()[-1]
    assert line.startswith("steadynet: stopped: ")
    assert " of 36 properties are decided and saved. Continue with: steadynet verify " in line
    assert len(rows_of(run)) >= 7
    words = shlex.split(line.partition("Continue with: ")[2])
    assert "--fresh" not in words
    before = (run / "verdicts.csv").read_text()
    said(capsys, *words[1:])
    assert (run / "verdicts.csv").read_text().startswith(before)
    assert found(run) == found(whole)


def test_what_is_finished_is_not_touched(verified, capsys, monkeypatch):
    before = files(verified)
    monkeypatch.setattr(verifiers.available()["branch_and_bound"], "verify", None)  # the verifier must not be called
    said(capsys, "verify", verified, *SELECTION)
    assert files(verified) == before


def test_fewer_are_a_part_and_more_are_added(verified, capsys):
    before = (verified / "verdicts.csv").read_text()
    said(capsys, "verify", verified, "--eps", "0.3", "--per-class", 2, "--timeout", 20)
    assert (verified / "verdicts.csv").read_text() == before
    said(capsys, "verify", verified, "--eps", "0.3", "1/10", "--per-class", 4, "--timeout", 20)
    assert (verified / "verdicts.csv").read_text().startswith(before)
    assert len(rows_of(verified)) == 36 + 4 + 16


def test_a_time_out_is_tried_again_with_another_one(verified, capsys):
    def of_radius(change):
        return lambda row: row | change if row["eps"] == "0.05" else row

    def verify(timeout):
        said(capsys, "verify", verified, "--eps", "0.05", "--per-class", 3, "--timeout", timeout)
        return {(row.verdict, row.timeout) for row in rows_of(verified) if row.eps == 0.05}

    rewrite(verified, of_radius({"verdict": "timeout", "counterexample": ""}))
    assert verify(20) == {(Verdict.TIMEOUT, 20.0)}
    assert {timeout for verdict, timeout in verify(30) if verdict is Verdict.UNSAT} == {30.0}
    assert {timeout for _, timeout in verify(25)} == {30.0}  # what is decided in time is decided
    rewrite(verified, of_radius({"seconds": "28"}))
    assert {timeout for _, timeout in verify(25)} == {25.0}  # but not in the time that is allowed now
    rewrite(verified, of_radius({"verdict": "error", "reason": "boom", "counterexample": ""}))
    assert Verdict.ERROR not in {verdict for verdict, _ in verify(25)}


def test_other_settings_decide_anew_beside_the_old(verified, capsys):
    said(capsys, "verify", verified, *SELECTION, "--attack-steps", 7)
    assert len(rows_of(verified)) == 72
    assert {"attack_steps=7" in row.settings for row in rows_of(verified)} == {True, False}


def test_fresh_decides_anew(verified, whole, capsys):
    rewrite(verified, lambda row: row | {"decided_by": "somebody"})
    said(capsys, "verify", verified, *SELECTION)
    assert {row.decided_by for row in rows_of(verified)} == {"somebody"}
    said(capsys, "verify", verified, "--fresh", "--eps", "0.05", "--per-class", 3, "--timeout", 20)
    assert {row.eps for row in rows_of(verified) if row.decided_by == "somebody"} == {0.3, 0.7}
    assert found(verified) == found(whole)


def test_other_images_and_other_weights_are_other_properties(verified, whole, trained, tmp_path, capsys):
    generator = np.random.default_rng(5)
    np.savez(tmp_path / "other.npz", X=generator.integers(0, 255, (80, 6, 6), dtype=np.uint8), y=np.arange(80) % 4)
    said(capsys, "verify", verified, *SELECTION, "--data", tmp_path / "other.npz")
    assert len(rows_of(verified)) == 72
    shutil.copytree(trained, tmp_path / "again")
    shutil.copy(whole / "verdicts.csv", tmp_path / "again")  # somebody's mistake: verdicts of another network
    arguments = tiny(trained.parent, epochs=1, seed=9)
    said(capsys, "train", *arguments, "--out", tmp_path / "new")
    shutil.copy(tmp_path / "new" / "weights.safetensors", tmp_path / "again")
    said(capsys, "verify", tmp_path / "again", *SELECTION)
    assert len(rows_of(tmp_path / "again")) == 72


def test_a_counterexample_that_does_not_replay_is_looked_for_again(verified, whole, capsys):
    lost, damaged, wrong, *_ = refuted = sorted((verified / "counterexamples").iterdir())
    assert len(refuted) > 3
    before = wrong.read_bytes()
    lost.unlink()
    damaged.write_bytes(b"noise")
    shutil.copy(refuted[3], wrong)  # of another image
    rewrite(verified, lambda row: row | {"decided_by": "somebody"})
    said(capsys, "verify", verified, *SELECTION)
    assert found(verified) == found(whole)
    anew = {row.counterexample for row in rows_of(verified) if row.decided_by != "somebody"}
    assert anew == {path.relative_to(verified).as_posix() for path in (lost, damaged, wrong)}
    assert len(wrong.read_bytes()) == len(before)


def test_what_others_are_writing_is_left_alone(tmp_path):
    ours, theirs = tmp_path / ".verdicts.csv.1.tmp", tmp_path / ".evaluation.json.1.tmp"
    for path in (ours, theirs):
        path.touch()
    VerdictFile(RunDirectory(tmp_path)).update(lambda rows: rows)
    assert (ours.exists(), theirs.exists()) == (False, True)
