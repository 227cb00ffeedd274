"""Tools of the competition as verifiers: one that hangs, one that lies, one that crashes."""

from __future__ import annotations

import os
import time

import pytest
import torch
from test_verifiers_contract import threshold

from steadynet import Verdict, verify
from steadynet.errors import UserError
from steadynet.verification.processes import MARK
from steadynet.verification.verifiers import make_verifier
from steadynet.verification.verifiers.external import parse_counterexample
from tools import write_tool

ROBUST, REFUTABLE = (torch.tensor([[0.9]]), torch.tensor([0])), (torch.tensor([[0.55]]), torch.tensor([0]))


def decide_one(folder, script, images=ROBUST, prepare=None, timeout=20.0, **settings):
    tool = write_tool(folder / "tool", script, prepare)
    (result,) = verify(threshold(), *images, 0.1, "competition", tool=str(tool), timeout=timeout, **settings)
    return result


@pytest.mark.parametrize(
    ("words", "verdict"),
    [
        ("unsat", "unsat"),
        ("holds", "unsat"),
        ("UNSAT\r\n", "unsat"),
        ("unknown", "unknown"),
        ("timeout", "timeout"),
        ("error", "error"),
        ("perhaps", "error"),
        ("", "error"),
    ],
)
def test_its_words(tmp_path, words, verdict):
    result = decide_one(tmp_path, f"printf '%s' '{words}' > \"$5\"")
    assert result.verdict.value == verdict
    assert ("no verdict" in result.reason) == (verdict == "error")
    assert result.decided_by == "tool"


@pytest.mark.parametrize("word", ["sat", "violated"])
@pytest.mark.parametrize("point", ["((X_0 0.47) (Y_0 0) (Y_1 0.03))", "(\n(X_0  4.7e-1)\n(Y_0 0)\n(Y_1 0.03)\n)\n"])
def test_a_counterexample_is_replayed(tmp_path, word, point):
    result = decide_one(tmp_path, f"printf '%s\\n%s' '{word}' '{point}' > \"$5\"", REFUTABLE)
    assert result.verdict is Verdict.SAT
    assert result.counterexample.tolist() == [pytest.approx(0.47)]


@pytest.mark.parametrize(
    ("point", "complaint"),
    [
        ("", "gave no counterexample"),
        ("((Y_0 0.1))", "gave no counterexample"),
        ("((X_1 0.47))", "gave no counterexample"),
        ("((X_0 many))", "gave no counterexample"),
        ("((X_0 nan))", "does not replay"),
        ("((X_0 0.47) (X_1 0.47))", "does not replay"),
        ("((X_0 0.6))", "does not replay"),
    ],
)
def test_one_that_lies_of_a_counterexample(tmp_path, point, complaint):
    result = decide_one(tmp_path, f"printf 'sat\\n%s' '{point}' > \"$5\"", REFUTABLE)
    assert (result.verdict, result.counterexample) == (Verdict.ERROR, None)
    assert result.reason.startswith("tool said sat, but gave")
    assert complaint in result.reason


def test_its_arguments(tmp_path):
    """The contract's arguments, in order, files that are there, and its own folder to work in."""
    script = f'''test -f "$3" && test -f "$4" && echo "$1 $2 $6 $(basename "$PWD") $#" > {tmp_path}/arguments
    echo unsat > "$5"'''
    assert decide_one(tmp_path, script, timeout=7.5, category="mnist fc").verdict is Verdict.UNSAT
    assert (tmp_path / "arguments").read_text() == "v1 mnist fc 7.5 tool 6\n"


def test_one_that_crashes(tmp_path):
    result = decide_one(tmp_path, 'echo unsat > "$5"; echo first >&2; echo "Killed: out of memory" >&2; exit 3')
    assert result.verdict is Verdict.ERROR
    assert result.reason == "run_instance.sh ended with 3: Killed: out of memory"
    assert decide_one(tmp_path, "kill -9 $$").reason == "run_instance.sh ended with -9: no error message"
    assert decide_one(tmp_path, "true").reason == "run_instance.sh wrote no result"


def test_one_that_hangs_is_killed_with_all_it_started(tmp_path):
    """A child in the background, one in a session of its own, and a script that ignores the request to end."""
    script = f"""trap '' TERM; echo ${MARK} > {tmp_path}/mark
    sleep 300 & echo $! >> {tmp_path}/pids
    setsid sleep 300 & echo $! >> {tmp_path}/pids
    while true; do sleep 0.1; done"""
    started = time.perf_counter()
    result = decide_one(tmp_path, script, timeout=0.5)
    assert result.verdict is Verdict.TIMEOUT
    assert 0.5 <= result.seconds < 1.5
    assert time.perf_counter() - started < 3
    pids = [int(line) for line in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    while any(_runs(pid) for pid in pids):  # a killed process may take a moment to go
        assert time.perf_counter() - started < 5
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"  # killed, and waits for its parent
    except OSError:
        return False


def test_a_child_that_it_leaves_behind_does_not_hold_us_up(tmp_path):
    started = time.perf_counter()
    assert decide_one(tmp_path, 'sleep 300 & echo unsat > "$5"').verdict is Verdict.UNSAT
    assert time.perf_counter() - started < 5


def test_one_that_talks_without_end(tmp_path):
    result = decide_one(tmp_path, 'yes | head -c 30000000; yes no | head -c 30000000 >&2; echo unsat > "$5"')
    assert result.verdict is Verdict.UNSAT
    assert decide_one(tmp_path, "cat /dev/zero", timeout=0.3).verdict is Verdict.TIMEOUT


def test_garbage_in_its_result(tmp_path):
    assert decide_one(tmp_path, 'head -c 5000 /dev/urandom > "$5"').verdict is Verdict.ERROR
    result = decide_one(tmp_path, 'echo sat > "$5"; truncate -s 100M "$5"')
    assert (result.verdict, result.reason) == (Verdict.ERROR, "its result is larger than 64 MiB")
    assert decide_one(tmp_path, 'mkdir "$5"').verdict is Verdict.ERROR


def test_it_prepares_first(tmp_path):
    prepare = f'echo "$1 $2 $#" > {tmp_path}/prepared'
    run = f'test -f {tmp_path}/prepared && echo unsat > "$5"'
    assert decide_one(tmp_path, run, prepare=prepare, category="cifar").verdict is Verdict.UNSAT
    assert (tmp_path / "prepared").read_text() == "v1 cifar 4\n"
    result = decide_one(tmp_path, run, prepare="echo not my benchmark >&2; exit 1")
    assert (result.verdict, result.reason) == (Verdict.ERROR, "prepare_instance.sh ended with 1: not my benchmark")


def test_its_killall_kills_nobody(tmp_path):
    """Many of the competition's scripts begin with killing every Python of the machine."""
    script = f'killall -q python3; pkill -f python; echo "$(command -v killall)" > {tmp_path}/which; echo unsat > "$5"'
    assert decide_one(tmp_path, script).verdict is Verdict.UNSAT
    assert (tmp_path / "which").read_text().strip().endswith("protected/killall")


def test_the_others_go_on_and_each_has_its_own_files(tmp_path):
    script = """case "$(basename "$4")" in 0.vnnlib) exit 1;; 1.vnnlib) sleep 60;; *) echo unsat > "$5";; esac"""
    tool = write_tool(tmp_path / "tool", script)
    images = torch.tensor([[0.9], [0.85], [0.8], [0.95]])
    results = verify(threshold(), images, torch.zeros(4).long(), 0.1, "competition", tool=str(tool), timeout=0.5)
    assert [result.verdict.value for result in results] == ["error", "timeout", "unsat", "unsat"]


def test_the_tool_is_found_in_its_folder_or_by_the_environment(tmp_path, monkeypatch):
    scripts = write_tool(tmp_path / "nnenum" / "vnncomp_scripts", 'echo unsat > "$5"')
    monkeypatch.setenv("COMPETITION_TOOL", str(tmp_path / "nnenum"))
    assert make_verifier("competition", {}).tool == str(scripts)
    (result,) = verify(threshold(), *ROBUST, 0.1, "competition")
    assert result.decided_by == "nnenum"
    monkeypatch.delenv("COMPETITION_TOOL")
    with pytest.raises(UserError, match="COMPETITION_TOOL=FOLDER"):
        make_verifier("competition", {})
    with pytest.raises(UserError, match=r"has no run_instance\.sh"):
        make_verifier("competition", {"tool": str(tmp_path)})


def test_no_file_is_left_behind(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    os.mkdir(tmp_path / "temporary")
    decide_one(tmp_path, 'echo unsat > "$5"')
    assert list((tmp_path / "temporary").iterdir()) == []


def test_values_of_a_counterexample():
    assert parse_counterexample("(" + " ".join(f"(X_{place} {place}.5)" for place in range(12)) + ")").tolist() == [
        place + 0.5 for place in range(12)
    ]
    assert parse_counterexample("((X_0 1) (X_2 3))") is None
    assert parse_counterexample("") is None
