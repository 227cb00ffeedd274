"""The user's own α,β-CROWN: a recording of its output, and scripts in its place that fail.

``data/alpha_beta_crown.txt`` is what α,β-CROWN's release of December 2025 printed for the four properties of
``recorded()`` on a CPU, with the flags that the verifier uses except ``--timeout``: the last property had one second,
the others ten. Its list of settings and of bound operators is left out, and paths and the host are replaced. Beside it
is the file that it wrote as its counterexample to the second property. Where ABCROWN_HOME is set,
``test_verifiers_contract.py`` runs the tool itself.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
import torch
from test_verifiers_contract import threshold

from helpers import dense
from steadynet import Verdict
from steadynet.attacks.region import InputRegion
from steadynet.errors import UserError
from steadynet.verification.properties import Properties
from steadynet.verification.verifiers import make_verifier
from steadynet.verification.verifiers.alpha_beta_crown import read_result
from steadynet.verification.verifiers.external import parse_counterexample

DATA = Path(__file__).parent / "data"


def recorded() -> Properties:
    """The four properties of the record: radius and image."""
    network = dense(5, 30, 30, 3, seed=1)
    images = torch.rand(6, 5, generator=torch.Generator().manual_seed(0))
    rows, radii = [0, 1, 4, 4], torch.tensor([[0.02], [0.25], [0.35], [0.5]])
    chosen = images[rows]
    region = InputRegion((chosen - radii).clamp_min(0), (chosen + radii).clamp_max(1))
    return Properties(network, chosen, network(chosen).argmax(1), region)


def stand_in(folder, script):
    """A home of α,β-CROWN with this script, which finds its flags in ``flags`` and its properties in ``names``."""
    path = folder / "home" / "complete_verifier" / "abcrown.py"
    path.parent.mkdir(parents=True)
    start = """
import sys, time
from pathlib import Path
words = sys.argv[1:]
flags = {words[i][2:]: words[i + 1] for i in range(len(words) - 1) if words[i].startswith("--")}
root = Path(flags["root_path"])
names = [line.split(",")[1] for line in (root / flags["csv_name"]).read_text().splitlines()]
assert all((root / name).is_file() for name in names) and Path(flags["config"]).is_file()
def begin(place): print(f" {'%' * 35} idx: {place}, vnnlib ID: {place} {'%' * 35}")
def end(words, seconds=0.1): print(f"Result: {words} in {seconds:.4f} seconds")
def refute(value): Path(flags["cex_path"]).write_text(f"((X_0  {value})\\n(Y_0  0.1)\\n(Y_1  0.2))")
"""
    path.write_text(start + script)
    return {"abcrown_home": str(folder / "home"), "abcrown_python": sys.executable}


def decide_all(images, settings, timeout=0.5, labels=(0, 0, 0, 0)):
    properties = Properties.around(threshold(), torch.tensor(images), torch.tensor(labels[: len(images)]), 0.1)
    return make_verifier("alpha_beta_crown", {"timeout": timeout, **settings})(properties)


def test_what_the_real_tool_printed(tmp_path):
    home = stand_in(
        tmp_path,
        f"""
for line in Path({str(DATA / "alpha_beta_crown.txt")!r}).read_text().splitlines():
    if line.startswith("Saving counterexample"):
        Path(flags["cex_path"]).write_text(Path({str(DATA / "alpha_beta_crown_counterexample.txt")!r}).read_text())
    print(line)
    if line.startswith("Result: unsafe"):
        time.sleep(0.3)  # the next property took its time
""",
    )
    properties = recorded()
    results = make_verifier("alpha_beta_crown", {"timeout": 10.0, **home})(properties)
    assert [result.verdict.value for result in results] == ["unsat", "sat", "unsat", "unknown"]
    assert [result.seconds for result in results] == [0.1080, 3.1077, 3.1428, 2.7026]
    point = results[1].counterexample
    assert properties.network(point[None]).argmax(1) != properties.labels[1]
    assert properties.region[1:2].contains(point[None])
    assert results[3].reason == "α,β-CROWN gave up"
    assert read_result("unknown", 2.7026, timeout=1.0).verdict is Verdict.TIMEOUT  # the second it really had


def test_our_own_verifier_says_the_same():
    results = make_verifier("milp", {"timeout": 60.0})(recorded())
    assert [result.verdict.value for result in results] == ["unsat", "sat", "unsat", "unsat"]


def test_the_flags_it_is_given(tmp_path):
    home = stand_in(
        tmp_path,
        f"""
Path({str(tmp_path / "flags")!r}).write_text(repr(sorted(flags.items())) + (root / flags["csv_name"]).read_text())
begin(0); end("safe")
""",
    )
    own = tmp_path / "own.yaml"
    own.write_text("attack: {}\n")
    (result,) = decide_all([[0.9]], home | {"abcrown_config": str(own), "abcrown_device": "cuda"}, timeout=2.5)
    assert result.verdict is Verdict.UNSAT
    text = (tmp_path / "flags").read_text()
    assert f"('config', '{own}')" in text
    assert "('device', 'cuda')" in text
    assert text.endswith("network.onnx,0.vnnlib,2.5\n")


def test_a_crash_and_a_hang_cost_one_property_each(tmp_path):
    home = stand_in(
        tmp_path,
        """
for place, name in enumerate(names):
    begin(place)
    if name == "1.vnnlib":
        raise RuntimeError("out of memory")
    if name == "2.vnnlib":
        time.sleep(100)
    end("safe-incomplete")
""",
    )
    started = time.perf_counter()
    results = decide_all([[0.9], [0.85], [0.8], [0.95]], home)
    assert [result.verdict.value for result in results] == ["unsat", "error", "timeout", "unsat"]
    assert results[1].reason == "α,β-CROWN crashed: RuntimeError: out of memory"
    assert 0.5 <= results[2].seconds < 1.5
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("raise ImportError('no module named auto_LiRPA')", "ImportError: no module named auto_LiRPA"),
        ("", "no error message"),
        ("end('safe'); end('safe')", "no error message"),  # of which property?
    ],
)
def test_one_that_does_not_begin_is_not_started_again_and_again(tmp_path, script, complaint):
    home = stand_in(tmp_path, f"open({str(tmp_path / 'count')!r}, 'a').write('x')\n{script}")
    results = decide_all([[0.9], [0.85]], home)
    assert [result.verdict.value for result in results] == ["error", "error"]
    assert results[0].reason == f"α,β-CROWN crashed: {complaint}"
    assert (tmp_path / "count").read_text() == "x"


def test_a_property_whose_counterexample_was_overwritten_is_decided_again(tmp_path):
    home = stand_in(
        tmp_path,
        """
for place, name in enumerate(names):
    refute({"0.vnnlib": 0.47, "1.vnnlib": 0.53}[name])
for place in range(len(names)):
    begin(place); end("unsafe-pgd")
""",
    )
    results = decide_all([[0.55], [0.45]], home, labels=(0, 1))
    assert [result.verdict.value for result in results] == ["sat", "sat"]
    assert [float(result.counterexample) for result in results] == pytest.approx([0.47, 0.53])


def test_one_that_lies(tmp_path):
    home = stand_in(tmp_path, "for place, name in enumerate(names): begin(place); refute(0.55); end('unsafe-bab')\n")
    for result in decide_all([[0.55], [0.9]], home):
        assert (result.verdict, result.counterexample) == (Verdict.ERROR, None)
        assert result.reason.startswith("alpha_beta_crown said sat, but gave")


def test_strange_words_are_an_error():
    assert read_result("verified?", 1.0, 10.0).verdict is Verdict.ERROR
    assert read_result("safe (timed out)", 10.5, 10.0).verdict is Verdict.TIMEOUT
    assert parse_counterexample((DATA / "alpha_beta_crown_counterexample.txt").read_text()).shape == (5,)


@pytest.mark.parametrize(
    ("text", "refused"),
    [
        ("bab:\n  clip_n_verify:\n    clip_interm_domain:\n      clip_in_alpha_crown: True\n", True),
        ("bab: {clip_n_verify: {clip_interm_domain: {clip_in_alpha_crown: true}}}\n", True),
        (
            "solver:\n  optimize_disjuncts_separately: true\nbab: {clip_interm_domain: {clip_in_alpha_crown: on}}\n",
            False,
        ),
        ("clip_in_alpha_crown: true  # optimize_disjuncts_separately: true\n", True),
        ("# clip_in_alpha_crown: true\nclip_in_alpha_crown: false\n", False),
    ],
)
def test_settings_with_which_it_proves_what_is_false_are_refused(tmp_path, text, refused):
    # with them, the release of December 2025 called 11 of 120 properties of a small MNIST network safe that are not
    config = tmp_path / "own.yaml"
    config.write_text(text)
    settings = stand_in(tmp_path, "") | {"abcrown_config": str(config)}
    if refused:
        with pytest.raises(UserError, match="proves what is false"):
            make_verifier("alpha_beta_crown", settings)
    else:
        make_verifier("alpha_beta_crown", settings)


def test_the_settings_of_the_benchmark_are_not_among_them(tmp_path):
    config = Path(__file__).parents[2] / "benchmarks" / "alpha_beta_crown_vnncomp2025.yaml"
    make_verifier("alpha_beta_crown", stand_in(tmp_path, "") | {"abcrown_config": str(config)})


def test_mistakes_of_the_user(tmp_path, monkeypatch):
    monkeypatch.delenv("ABCROWN_HOME", raising=False)
    home = stand_in(tmp_path, "")
    for settings, complaint in (
        ({}, "ABCROWN_HOME=FOLDER"),
        ({"abcrown_home": str(tmp_path)}, r"has no complete_verifier/abcrown\.py"),
        (home | {"abcrown_python": "no-such-python"}, "--abcrown-python names its Python"),
        (home | {"abcrown_config": str(tmp_path / "none.yaml")}, r"there is no .*none\.yaml"),
    ):
        with pytest.raises(UserError, match=complaint):
            make_verifier("alpha_beta_crown", settings)
    monkeypatch.setenv("ABCROWN_HOME", home["abcrown_home"])
    assert make_verifier("alpha_beta_crown", {}).abcrown_home == home["abcrown_home"]
