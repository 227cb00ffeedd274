"""VNN-LIB properties: results known by hand, against a grid and against MILP, and the competition's own files."""

from __future__ import annotations

import csv
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import steadynet.verification.vnncomp
from helpers import quick
from places import SHARED
from steadynet.cli import main
from steadynet.errors import UserError
from steadynet.graph.graph_network import GraphNetwork
from steadynet.graph.translate import graph_of
from steadynet.interchange.onnx.reader import read_onnx
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.interchange.vnnlib.files import write_vnnlib
from steadynet.interchange.vnnlib.property import Disjunct, VnnlibProperty
from steadynet.verification.instances import COLUMNS, InstanceRow, ResultTable
from steadynet.verification.properties import Guarantee, Verdict
from steadynet.verification.property_network import as_robustness
from steadynet.verification.verifiers import make_verifier
from steadynet.verification.vnncomp import Instance, InstanceResult, decide

VNNCOMP = SHARED / "vnncomp"

DECLARED = "(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)\n"
UNIT_BOX = "".join(f"(assert (>= X_{axis} 0)) (assert (<= X_{axis} 1))\n" for axis in range(2))


def sum_and_ridge() -> nn.Module:
    """y = (x₀ + x₁, relu(x₀ − x₁) + relu(x₁ − x₀)): on the unit box y₀ in [0, 2], y₁ = |x₀ − x₁| ≤ min(y₀, 2 − y₀)."""
    network = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 2))
    network[0].weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, -1.0], [-1.0, 1.0]])
    network[2].weight.data = torch.tensor([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]])
    for layer in (network[0], network[2]):
        layer.bias.data.zero_()
    return network


@pytest.fixture(scope="module")
def network_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "network.onnx"
    export_onnx(sum_and_ridge(), (2,), path)
    return path


def decide_text(network_file: Path, folder: Path, text: str, **settings: object) -> InstanceResult:
    property_file = folder / "property.vnnlib"
    property_file.write_text(DECLARED + text)
    return decide(Instance(network_file, property_file, 20), **settings)


@pytest.mark.parametrize("verifier", ["branch_and_bound", "milp"])
@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (UNIT_BOX + "(assert (>= Y_0 2.01))", "unsat"),
        (UNIT_BOX + "(assert (>= Y_0 1.99))", "sat"),
        (UNIT_BOX + "(assert (>= (+ Y_0 Y_1) 2.01))", "unsat"),  # max(2x₀, 2x₁) ≤ 2
        (UNIT_BOX + "(assert (>= Y_0 1.5)) (assert (>= Y_1 0.6))", "unsat"),  # |x₀ − x₁| ≤ 2 − y₀
        (UNIT_BOX + "(assert (>= Y_0 1.5)) (assert (>= Y_1 0.4))", "sat"),
        (UNIT_BOX + "(assert (>= Y_1 0.3)) (assert (<= Y_1 0.2))", "unsat"),
        (UNIT_BOX + "(assert (or (and (>= Y_0 1.5) (>= Y_1 0.6)) (and (<= Y_0 0.5) (>= Y_1 0.6))))", "unsat"),
        (UNIT_BOX + "(assert (or (and (>= Y_0 1.5) (>= Y_1 0.6)) (and (<= Y_0 0.5) (>= Y_1 0.4))))", "sat"),
        (UNIT_BOX + "(assert (<= Y_0 1.2)) (assert (>= Y_0 0.8)) (assert (>= (* 2 Y_1) 1.9))", "sat"),
        (UNIT_BOX + "(assert (<= X_0 0.2)) (assert (<= X_1 0.2)) (assert (>= Y_1 0.21))", "unsat"),
    ],
)
def test_conjunctions_and_disjunctions_by_hand(network_file, tmp_path, text, verdict, verifier):
    result = decide_text(network_file, tmp_path, text, verifier=verifier)
    assert result.verdict.value == verdict, result
    assert (result.inputs is not None) == (verdict == "sat")


@pytest.mark.parametrize("clock", ["wall", "cpu"])
def test_the_clock_counts_the_whole_instance(network_file, tmp_path, monkeypatch, clock):
    """Reading a file waits for half a second, which takes no time of the processor."""
    read = steadynet.verification.vnncomp.read_vnnlib
    monkeypatch.setattr(steadynet.verification.vnncomp, "read_vnnlib", lambda path: (time.sleep(0.5), read(path))[1])
    found = decide_text(network_file, tmp_path, UNIT_BOX + "(assert (>= Y_0 3))", clock=clock)
    assert found.verdict is Verdict.UNSAT
    assert (found.seconds >= 0.5) == (clock == "wall")


def test_several_boxes_each_with_its_own_constraints(network_file, tmp_path):
    def boxes(second: float) -> str:
        corners = "(and (>= X_0 {0}) (<= X_0 {1}) (>= X_1 {0}) (<= X_1 {1}) (>= Y_0 {2}))"
        return f"(assert (or {corners.format(0, 0.5, 1.01)} {corners.format(0.5, 1, second)}))"

    assert decide_text(network_file, tmp_path, boxes(2.01)).verdict is Verdict.UNSAT
    found = decide_text(network_file, tmp_path, boxes(1.9))
    assert found.verdict is Verdict.SAT
    assert found.inputs is not None
    assert found.inputs.min() >= 0.5
    assert found.inputs.sum() >= 1.9


def test_edges_of_the_language(network_file, tmp_path):
    only_corner = UNIT_BOX + "(assert (>= Y_0 2))"  # (1, 1), where the two sides are equal
    equal = decide_text(network_file, tmp_path, only_corner)
    assert equal.verdict is Verdict.SAT
    assert equal.inputs is not None
    assert equal.inputs.tolist() == [1, 1]
    assert decide_text(network_file, tmp_path, UNIT_BOX).verdict is Verdict.SAT  # any input will do
    empty = UNIT_BOX + "(assert (>= X_0 2)) (assert (<= Y_0 0))"
    assert decide_text(network_file, tmp_path, empty).verdict is Verdict.UNSAT
    point = "".join(f"(assert (>= X_{axis} 0.1)) (assert (<= X_{axis} 0.1))\n" for axis in range(2))
    found = decide_text(network_file, tmp_path, point + "(assert (<= Y_0 0.3))")  # 0.1 is no float32
    assert found.verdict is Verdict.SAT
    assert found.inputs is not None
    assert found.inputs.tolist() == [0.1, 0.1]


def test_a_counterexample_that_onnx_runtime_does_not_confirm_is_no_sat(network_file, tmp_path, monkeypatch):
    zeros = np.array([0.0, 0.0])
    monkeypatch.setattr(steadynet.verification.vnncomp, "flat_runtime_functions", lambda path: [lambda inputs: zeros])
    result = decide_text(network_file, tmp_path, UNIT_BOX + "(assert (>= Y_0 1.9))")
    assert result.verdict is Verdict.UNKNOWN
    assert "ONNX Runtime" in result.reason
    assert result.text() == "unknown\n"


@st.composite
def networks_with_property(draw):
    """A random small network and a random property: disjuncts of one to four constraints, on one or two boxes."""
    seed = draw(st.integers(0, 10**6))
    random = np.random.default_rng(seed)
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(2, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    middle = network(torch.full((1, 2), 0.5)).detach().numpy()[0].astype(float)
    disjuncts = []
    for _ in range(draw(st.integers(1, 4))):
        lower = random.uniform(0, 0.5, 2).round(2) if draw(st.booleans()) else np.zeros(2)
        matrix = random.normal(size=(draw(st.integers(1, 4)), 3)).round(2)
        bound = matrix @ middle + random.normal(scale=0.2, size=len(matrix)) - 0.15
        disjuncts.append(Disjunct(lower, lower + 0.5, matrix, bound))
    return network, VnnlibProperty(2, 3, tuple(disjuncts))


@quick
@given(networks_with_property())
def test_random_properties_agree_with_a_grid_and_with_milp(example):
    network, vnnlib_property = example
    graph = GraphNetwork(graph_of(network, (2,)), (2,))
    steps = np.linspace(0, 1, 41)
    violated = False
    for disjunct in vnnlib_property.disjuncts:
        points = np.stack(np.meshgrid(*(disjunct.lower[axis] + steps * 0.5 for axis in (0, 1))), -1).reshape(-1, 2)
        with torch.no_grad():
            outputs = graph(torch.tensor(points, dtype=torch.float32)).double().numpy()
        violated |= bool((outputs @ disjunct.matrix.T <= disjunct.bound).all(1).any())
    verdicts = {}
    for name in ("branch_and_bound", "milp"):
        results = [
            result
            for each in as_robustness(graph, vnnlib_property)
            for result in make_verifier(name, {})(each.properties)
        ]
        verdicts[name] = {result.verdict for result in results}
        decided = {Verdict.SAT, Verdict.UNSAT}
        assert verdicts[name] <= decided or "zero to within rounding" in "".join(result.reason for result in results)
        if violated:
            assert Verdict.SAT in verdicts[name]
    assert (Verdict.SAT in verdicts["milp"]) == (Verdict.SAT in verdicts["branch_and_bound"])


def test_the_longer_network_scores_each_disjunct_by_its_worst_constraint():
    torch.manual_seed(0)
    network = GraphNetwork(graph_of(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 3)), (2,)), (2,))
    random = np.random.default_rng(0)
    disjuncts = tuple(
        Disjunct(np.zeros(2), np.ones(2), random.normal(size=(count, 3)), random.normal(size=count))
        for count in (1, 5, 2)
    )
    (boxes,) = as_robustness(network, VnnlibProperty(2, 3, disjuncts))
    points = torch.rand(50, 2)
    scores, outputs = boxes.properties.network(points), network(points).double().numpy()
    for index, disjunct in enumerate(disjuncts):
        expected = -(outputs @ disjunct.matrix.T - disjunct.bound).max(1)
        assert np.allclose(scores[:, index].numpy(), expected, atol=1e-6)
    assert bool((scores[:, 3] == 0).all())


def test_the_standards_own_command_form(network_file, tmp_path, capsys):
    query = tmp_path / "query.vnnlib"
    box = np.zeros(2), np.ones(2)
    for value, verdict in ((2.1, "unsat"), (1.9, "sat")):
        disjunct = Disjunct(*box, np.array([[-1.0, 0.0]]), np.array([-value]))  # Y_0 ≥ value
        write_vnnlib(query, VnnlibProperty(2, 2, (disjunct,)), version="2.0", input_shape=(1, 2), output_shape=(1, 2))
        assert main(["verify", str(query), "--network", f"N={network_file}", "--timeout", "20"]) == 0
        assert capsys.readouterr().out.startswith(f"{verdict}\n")
    assert main(["verify", str(query)]) == 2
    assert "--network NAME=FILE.onnx" in capsys.readouterr().err


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_a_list_of_instances_resumes_and_one_bad_file_does_not_stop_it(network_file, tmp_path, capsys):
    (tmp_path / "good.vnnlib").write_text(DECLARED + UNIT_BOX + "(assert (>= Y_0 1.9))")
    (tmp_path / "bad.vnnlib").write_text("(assert")
    (tmp_path / "net.onnx").write_bytes(network_file.read_bytes())
    listed = tmp_path / "instances.csv"
    listed.write_text("net.onnx,good.vnnlib,20\nnet.onnx,bad.vnnlib,20\nmissing.onnx,good.vnnlib,20\n")
    out = tmp_path / "results.csv"
    command = ["vnncomp", "--instances", str(listed), "--out", str(out)]
    assert main(command) == 0
    rows = rows_of(out)
    assert [row["verdict"] for row in rows] == ["sat", "error", "error"]
    stored = (tmp_path / rows[0]["counterexample"]).read_text()
    assert stored.startswith("sat\n((X_0 ")
    assert "never closed" in rows[1]["reason"]
    out.write_text("\n".join([*out.read_text().split("\n")[:2], ""]).replace(rows[0]["seconds"], "12.345"))
    assert main(command) == 0
    assert rows_of(out)[0]["seconds"] == "12.345"  # not decided again
    assert "1 sat" in capsys.readouterr().out


def test_a_row_of_the_table_is_read_back_as_it_was():
    row = InstanceRow("a,b.onnx", "c.vnnlib", 0.5, Verdict.SAT, 1.25, "attack", 'said "no"', "results/1.txt",
                      "milp", None, Guarantee.REPLAYED, "k")  # fmt: skip
    assert InstanceRow.from_line(row.to_line()) == row


@pytest.mark.parametrize(
    ("text", "complaint"), [("image,label\n", "holds something else"), (None, "line 2 is no result")]
)
def test_a_table_of_something_else_is_left_alone(tmp_path, text, complaint):
    path = tmp_path / "results.csv"
    path.write_text(text or ",".join(COLUMNS) + "\nnet.onnx,good.vnnlib,20,proved,1.0,,,,milp,,,k\n")
    before = path.read_text()
    with pytest.raises(UserError, match=complaint):
        ResultTable(path)
    assert path.read_text() == before


def test_what_a_newcomer_gets_wrong_is_one_line(network_file, tmp_path, capsys):
    other = tmp_path / "other.vnnlib"
    write_vnnlib(other, VnnlibProperty(1, 1, (Disjunct(np.zeros(1), np.ones(1), np.ones((1, 1)), np.zeros(1)),)))
    for arguments, words in (
        ([str(network_file)], "give a network and a property"),
        ([str(network_file), str(other)], "1 inputs and 1 outputs"),
        ([str(network_file), str(tmp_path / "none.vnnlib")], "No such file"),
        ([str(network_file), str(other), "--timeout", "0"], "not a time in seconds above 0"),
        (["--instances", str(other)], "not 'network,property,seconds'"),
        ([str(network_file), str(other), "--verifier", "mlip"], "milp"),
    ):
        assert main(["vnncomp", *arguments]) == 2
        error = capsys.readouterr().err
        assert words in error, error
        assert error.count("\n") == 1


@pytest.mark.skipif(not VNNCOMP.is_dir(), reason="needs ../shared/vnncomp")
def test_the_competitions_instances_have_the_verdicts_its_tools_agreed_on():
    refuted = ("prop_7_0.03", "prop_0_0.05", "index1189", "index1783")
    rows = list(csv.reader((VNNCOMP / "instances.csv").read_text().splitlines()))
    assert len(rows) == 12
    for network, property_file, timeout in rows:
        result = decide(Instance(VNNCOMP / network, VNNCOMP / property_file, float(timeout)))
        expected = "sat" if any(name in property_file for name in refuted) else "unsat"
        assert result.verdict.value == expected, property_file


@pytest.mark.skipif(not VNNCOMP.is_dir(), reason="needs ../shared/vnncomp")
def test_a_result_file_is_in_the_competitions_form(tmp_path):
    network = VNNCOMP / "onnx" / "mnist-net_256x2.onnx"
    out = tmp_path / "result.txt"
    property_file = str(VNNCOMP / "vnnlib" / "mnistfc_prop_7_0.03.vnnlib")
    assert main(["vnncomp", str(network), property_file, "--out", str(out)]) == 0
    verdict, *cells = out.read_text().split("\n")
    assert verdict == "sat"
    values = dict(cell.strip("() ").split() for cell in cells if cell)
    assert len(values) == 794
    inputs = torch.tensor([float(values[f"X_{index}"]) for index in range(784)]).view(1, 784, 1)
    outputs = read_onnx(network)(inputs)[0]
    assert torch.allclose(outputs, torch.tensor([float(values[f"Y_{index}"]) for index in range(10)]), atol=1e-5)
