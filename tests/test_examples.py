"""The notebooks and scripts of ``examples/`` run, and show what they say that they show."""

from __future__ import annotations

import ast
import importlib.util
import json
import sys

import pytest
import torch
from torch import nn

from few_digits import load_few
from places import ROOT
from steadynet import Verdict
from steadynet.data.digits import Digits
from steadynet.interchange.onnx.writer import export_onnx

EXAMPLES = ROOT / "examples"
NOTEBOOKS = sorted(path.name for path in EXAMPLES.glob("*.ipynb"))


def cells(name, kind):
    book = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))
    return ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == kind]


def show(value):
    """Return what Jupyter shows of a value: a picture, a table or text, and never pages of numbers."""
    for method in ("_repr_png_", "_repr_html_"):
        if hasattr(value, method) and getattr(value, method)():
            return getattr(value, method)()
    assert len(repr(value)) < 500
    return repr(value)


def run_notebook(name):
    """Run the cells in order, and show the value of each cell's last expression as Jupyter would."""
    session = {"__name__": "__main__"}
    for code in cells(name, "code"):
        tree = ast.parse(code)
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, name, "exec", dont_inherit=True), session)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), name, "eval", dont_inherit=True), session)
            session["shown"] = [*session.get("shown", []), show(value)]
    return session


def script(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def verdicts(results):
    return [result.verdict for result in results]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_store_no_outputs_and_explain_themselves(name):
    book = json.loads((EXAMPLES / name).read_text(encoding="utf-8"))
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    assert book["nbformat"] == 4
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
    assert len(cells(name, "markdown")) >= len(code)


def test_nbc_makes_more_provable(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    results = run_notebook("nbc_in_your_own_loop.ipynb")["results"]
    proved = {name: verdicts(found).count(Verdict.UNSAT) for name, found in results.items()}
    assert proved["with NBC"] > proved["without NBC"]
    assert "of the ReLUs stable" in capsys.readouterr().out


def test_a_network_from_a_file_is_verified(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = run_notebook("verify_a_network_you_have.ipynb")
    found = verdicts(session["results"])
    assert {Verdict.UNSAT, Verdict.SAT} <= set(found)
    for verdict, radius in zip(found, session["radii"], strict=False):  # the radii must agree with the verdicts at 0.05
        assert verdict is not Verdict.UNSAT or radius.refuted is None or radius.refuted > 0.05
        assert verdict is not Verdict.SAT or radius.proved < 0.05
    assert any(isinstance(shown, bytes) and shown.startswith(b"\x89PNG") for shown in session["shown"])  # the plot
    assert any("<img" in shown for shown in session["shown"] if isinstance(shown, str))  # the table of results
    assert not list(tmp_path.iterdir())


def test_a_result_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    session = run_notebook("read_a_result.ipynb")
    assert verdicts(session["results"]) == [Verdict.UNSAT, Verdict.SAT, Verdict.SAT]
    assert session["inside"]
    assert session["label"] != 0
    assert session["table"]["verdict"].tolist() == ["unsat", "sat", "sat"]
    assert Verdict.TIMEOUT in verdicts(session["hurried"])


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_scripts_train_and_verify(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Digits, "load", load_few)
    small = ["--data", "digits", "--epochs", "1", "--train-images", "128", "--per-class", "1", "--timeout", "0.5"]
    script(name).main([*small, "--out", str(tmp_path / "run")])
    assert "of 10 proved" in capsys.readouterr().out
    assert (tmp_path / "run" / "weights.safetensors").is_file()


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_a_mistake_is_one_line(name):
    with pytest.raises(SystemExit, match=rf"^{name}\.py: .*data set 'mnits'"):
        script(name).main(["--data", "mnits"])


@pytest.fixture
def collision_avoidance(tmp_path):
    """A network of ACAS Xu's size of input and output that computes ReLU(x), and inputs in [0, 1]."""
    network = nn.Sequential(nn.Linear(5, 5), nn.ReLU(), nn.Linear(5, 5))
    for layer in (network[0], network[2]):
        layer.weight.data, layer.bias.data = torch.eye(5), torch.zeros(5)
    export_onnx(network, (5,), tmp_path / "net.onnx")
    declared = "".join(f"(declare-const {name}_{index} Real)\n" for name in "XY" for index in range(5))
    return tmp_path / "net.onnx", declared + "".join(
        f"(assert (>= X_{index} 0.0))\n(assert (<= X_{index} 1.0))\n" for index in range(5)
    )


@pytest.mark.parametrize(("limit", "verdict"), [(1.5, "unsat"), (0.5, "sat")])
def test_acas_xu_decides(limit, verdict, collision_avoidance, tmp_path, capsys):
    network, box = collision_avoidance
    file = tmp_path / "property.vnnlib"
    file.write_text(f"{box}(assert (>= Y_0 {limit}))\n")
    script("acas_xu").main([str(network), str(file), "--timeout", "10"])
    shown = capsys.readouterr().out
    assert shown.startswith(f"{verdict} in ")
    assert ("own speed" in shown) == (verdict == "sat")


def test_acas_xu_says_where_its_files_are(tmp_path):
    with pytest.raises(SystemExit, match=r"^acas_xu\.py: there is no file .*none\.onnx: it is in the folder acasxu"):
        script("acas_xu").main([str(tmp_path / "none.onnx"), str(tmp_path / "none.vnnlib")])


def test_the_readme_lists_every_example():
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    files = [path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")]
    assert len(files) == 6
    assert all(f"({name})" in text for name in files)
    assert "IPython" not in sys.modules
