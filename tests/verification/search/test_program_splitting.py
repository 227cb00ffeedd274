"""Subproblems bounded by linear programs: duality, known formulas, verdicts of others, no proof without a pass."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import soundness
from steadynet.bounds.condensed import condense
from steadynet.bounds.condensed_bounds import Columns, SplitColumns
from steadynet.bounds.whole_pass import whole_query
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import Arithmetic
from steadynet.verification.properties import Properties, Verdict
from steadynet.verification.search import pipeline, program_splitting
from steadynet.verification.search.budget import Budget
from steadynet.verification.search.property_batch import PropertyBatch
from steadynet.verification.search.relaxed_program import Relaxed, RelaxedProgram
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound
from steadynet.verification.verifiers.milp import Milp

BUDGET = Budget(60.0, 0, 0, 256, 2**29)


@pytest.fixture(autouse=True)
def straight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go straight to linear programs, and to nothing else."""
    monkeypatch.setattr(pipeline, "FIRST_LOOK", 0)
    monkeypatch.setattr(pipeline, "STAGES", (pipeline.split_by_programs,))
    monkeypatch.setattr(program_splitting, "FIRST", 0)


def programs_only(**settings: object) -> BranchAndBound:
    return BranchAndBound(timeout=60.0, attack_steps=0, restarts=0, **settings)


def near_the_boundary(seed: int, margin: float, width: int = 10) -> Properties:
    """A network whose smallest margin over a grid of the box is ``margin``."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
    axis = torch.linspace(0, 1, 201)
    with torch.no_grad():
        scores = network(torch.cartesian_prod(axis, axis))
        network[4].bias[0] -= (scores[:, 0] - scores[:, 1]).min() - margin
    return Properties.around(network, torch.full((1, 2), 0.5), torch.tensor([0]), 0.5)


Formula = list[list[tuple[int, bool]]]


def random_formula(seed: int, variables: int, clauses: int) -> Formula:
    generator = np.random.default_rng(seed)
    return [
        [(int(name), bool(generator.integers(2))) for name in generator.choice(variables, 3, replace=False)]
        for _ in range(clauses)
    ]


def satisfiable(formula: Formula, variables: int) -> bool:
    """Try every assignment."""
    return any(
        all(any(values[name] == wanted for name, wanted in clause) for clause in formula)
        for values in itertools.product((False, True), repeat=variables)
    )


def of_formula(formula: Formula, variables: int) -> Properties:
    """A property that holds if and only if the formula cannot be satisfied.

    The first score is what is violated: one ReLU per clause, and min(x, 1 − x) = x − relu(2x − 1) per variable. It is
    zero at a satisfying assignment. If there is none, it is at least 1 everywhere: rounding a point moves it by its
    second part d in all, and violates a clause, which the point itself violates by 1 − d or more.
    """
    weight, bias, out = torch.zeros(0, variables), [], []
    for clause in formula:  # relu(1 − Σ literals)
        row = torch.zeros(1, variables)
        for name, wanted in clause:
            row[0, name] = -1.0 if wanted else 1.0
        weight = torch.cat([weight, row])
        bias.append(1.0 - sum(not wanted for _, wanted in clause))
        out.append(1.0)
    for factor, shift, sign in ((1.0, 0.0, 1.0), (2.0, -1.0, -1.0)):
        weight = torch.cat([weight, factor * torch.eye(variables)])
        bias += [shift] * variables
        out += [sign] * variables
    network = nn.Sequential(nn.Linear(variables, len(bias)), nn.ReLU(), nn.Linear(len(bias), 2))
    for parameter, value in zip(
        network.parameters(),
        (
            weight,
            torch.tensor(bias),
            torch.stack([torch.tensor(out), torch.zeros(len(out))]),
            torch.tensor([0.0, 0.5]),
        ),
        strict=True,
    ):
        parameter.data = value
    return Properties.around(network, torch.full((1, variables), 0.5), torch.tensor([0]), 0.5)


@pytest.mark.parametrize("seed", range(8))
def test_formulas_against_every_assignment(seed):
    variables = 8
    formula = random_formula(seed, variables, 40 if seed % 2 else 30)
    (result,) = programs_only()(of_formula(formula, variables))
    assert result.verdict is (Verdict.SAT if satisfiable(formula, variables) else Verdict.UNSAT)


def test_both_kinds_of_formulas_are_among_those():
    found = {satisfiable(random_formula(seed, 8, 40 if seed % 2 else 30), 8) for seed in range(8)}
    assert found == {True, False}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("margin", [-0.001, 0.02])
def test_programs_and_mixed_integer_programs_agree(seed, margin):
    properties = near_the_boundary(seed, margin)
    expected = Milp(timeout=60.0)(properties)[0].verdict
    assert programs_only()(properties)[0].verdict is expected


def test_random_networks_of_every_kind(monkeypatch):
    monkeypatch.undo()
    monkeypatch.setattr(pipeline, "FIRST_LOOK", 0)
    monkeypatch.setattr(program_splitting, "FIRST", 0)
    for seed in range(25):
        case = soundness.make(seed)
        _, complaints = soundness.check(case, soundness.verifiers(), in_time=False)
        assert not complaints, (seed, case.kind, complaints)


def test_a_program_that_claims_too_much_proves_nothing(monkeypatch):
    minimise = RelaxedProgram.minimise

    def optimistic(self: RelaxedProgram, seconds: float) -> Relaxed | None:
        found = minimise(self, seconds)
        return None if found is None else found._replace(lower=found.lower + 100.0)

    monkeypatch.setattr(RelaxedProgram, "minimise", optimistic)
    for seed in range(3):
        (result,) = programs_only()(near_the_boundary(seed, -0.02, width=6))
        assert result.verdict is Verdict.SAT
        (result,) = programs_only()(near_the_boundary(seed, 0.02, width=6))
        assert result.verdict is Verdict.UNSAT


def bounds_of(properties: Properties, held: dict[int, int]) -> tuple[Relaxed, Tensor, Tensor]:
    """What the program finds, and the value and the proved bound of a pass with its duals."""
    batch = PropertyBatch.of(properties, BUDGET, Arithmetic.FLOAT32)
    region = properties.region
    batch = PropertyBatch(
        properties,
        batch.graph.converted(lambda tensor: tensor.detach().double()),
        batch.margins.double(),
        BUDGET,
        batch.execution,
    )
    with torch.no_grad():
        whole, _ = batch.bounded(Interval(region.lower.double(), region.upper.double()))
    network = condense(whole, batch.margins[0], 2**29)
    program = RelaxedProgram(network, 0)
    program.hold({})
    program.minimise(10.0)
    program.hold(held)
    found = program.minimise(10.0)
    assert found is not None
    rows = len(found.duals)
    neuron = torch.tensor(list(held)).repeat(rows)
    column = torch.arange(rows).repeat_interleave(len(held))
    sign = torch.tensor(list(held.values())).repeat(rows)
    beta = torch.tensor(np.stack([entry.multipliers for entry in found.duals], 1))[neuron, column]
    slopes = torch.tensor(np.stack([entry.slopes for entry in found.duals], 1))
    columns = Columns.of(
        network, torch.zeros(rows, dtype=torch.long), slopes, SplitColumns(neuron, column, sign.double(), beta)
    )
    split, query = whole_query(network.layers, columns, whole.relaxed(), batch.margins[0])
    with torch.no_grad():
        bound = split.lower(query)
    return found, bound.value, bound.proved


@pytest.mark.parametrize("seed", range(6))
def test_a_pass_with_the_duals_reaches_the_bound_of_the_program(seed):
    found, value, proved = bounds_of(near_the_boundary(seed, -0.5, width=16), {0: 1, 2: -1, 3: 1})
    if found.lower < np.inf:
        assert value.max().item() == pytest.approx(found.lower, abs=1e-6 * (1 + abs(found.lower)))
        assert proved.max() <= value.max()
    else:
        assert proved.max() > 0  # the ray of an empty subproblem lifts the bound above zero


def test_an_empty_subproblem_is_proved_by_its_ray():
    network = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2))  # relu(x − 0.6), relu(0.4 − x)
    values = ([[1.0], [-1.0]], [-0.6, 0.4], [[-1.0, -1.0], [0.0, 0.0]], [0.05, 0.0])
    for parameter, entry in zip(network.parameters(), values, strict=True):
        parameter.data = torch.tensor(entry)
    properties = Properties.around(network, torch.tensor([[0.5]]), torch.tensor([0]), 0.5)
    found, _, proved = bounds_of(properties, {0: 1, 1: 1})  # x ≥ 0.6 and x ≤ 0.4
    assert found.lower == np.inf
    assert proved.max() > 0


def test_the_switch(monkeypatch):
    def searched(*_: object) -> None:
        raise AssertionError("programs are switched off")

    monkeypatch.undo()
    monkeypatch.setattr(pipeline, "FIRST_LOOK", 0)
    monkeypatch.setattr(program_splitting, "RelaxedProgram", searched)
    assert programs_only(programs=False)(near_the_boundary(0, 0.02))[0].verdict is Verdict.UNSAT
