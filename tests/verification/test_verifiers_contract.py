"""The contract of every verifier. Verifiers are found by discovery, so a new one is tested without a change here."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest
import torch
from torch import nn

from helpers import Written, convolutional, dense, residual, some_images
from steadynet import Verdict, verify
from steadynet.errors import UserError
from steadynet.graph.rounding import Arithmetic
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.plugins import settings_of
from steadynet.verification.properties import Guarantee, Properties, Result, is_counterexample
from steadynet.verification.replay import replay_counterexample
from steadynet.verification.verifiers import available, make_verifier

NAMES = sorted(available())
every = pytest.mark.parametrize("name", NAMES, indirect=True)
TO_START = {"marabou": 3.0, "alpha_beta_crown": 60.0}  # seconds that its process takes before the first property


@pytest.fixture
def name(request, monkeypatch):
    """The name of a verifier that can run here; the test is skipped if its program is not installed."""
    if request.param == "competition":
        monkeypatch.setenv("COMPETITION_TOOL", str(request.getfixturevalue("honest_tool")))
    if request.param == "marabou":
        pytest.importorskip("maraboupy.MarabouCore")
    if request.param == "alpha_beta_crown" and not os.environ.get("ABCROWN_HOME"):
        pytest.skip("ABCROWN_HOME is not set")
    return request.param


def threshold(limit: float = 0.5) -> nn.Sequential:
    """Label 0 where the only pixel is above ``limit``, else label 1: its verdicts are known by hand."""
    network = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2))
    with torch.no_grad():
        network[0].weight.copy_(torch.tensor([[1.0], [-1.0]]))
        network[0].bias.copy_(torch.tensor([-limit, limit]))
        network[2].weight.copy_(torch.eye(2))
        network[2].bias.zero_()
    return network


def mirrored() -> nn.Sequential:
    """The margin is 0.1 + ReLU(x − ½) − ReLU(x − ½) = 0.1, so label 0 everywhere; but CROWN alone does not prove it."""
    network = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2))
    with torch.no_grad():
        network[0].weight.fill_(1.0)
        network[0].bias.fill_(-0.5)
        network[2].weight.copy_(torch.eye(2))
        network[2].bias.copy_(torch.tensor([0.1, 0.0]))
    return network


def verdicts(results: list[Result]) -> list[str]:
    return [result.verdict.value for result in results]


def test_they_are_found():
    assert "branch_and_bound" in NAMES


@every
def test_settings_are_explained(name):
    assert available()[name].summary
    assert all(entry.help for entry in settings_of(available()[name]))
    assert "timeout" in {entry.name for entry in settings_of(available()[name])}


@every
@pytest.mark.parametrize("timeout", [0.0, -1.0, float("nan")])
def test_a_senseless_time_out_is_refused(name, timeout):
    with pytest.raises(UserError, match=r"timeout = .* must be larger than 0"):
        make_verifier(name, {"timeout": timeout})


@every
def test_results_known_by_hand_come_in_order(name):
    images = torch.tensor([[0.9], [0.55], [0.1], [0.45], [0.7], [0.3]])
    results = verify(threshold(), images, torch.tensor([0, 0, 1, 1, 1, 0]), 0.1, name, timeout=20)
    assert verdicts(results) == ["unsat", "sat", "unsat", "sat", "sat", "sat"]
    for index in (1, 3):
        found = results[index].counterexample
        assert found is not None
        assert (found - images[index]).abs().max() <= 0.1 + 1e-6
        assert (found > 0.5) == (index == 3)
    proofs = {results[index].guarantee for index in (0, 2)}
    assert proofs <= ({Guarantee.CHECKED} if name in ("branch_and_bound", "milp") else {Guarantee.TOOL})
    assert all(results[index].arithmetic in Arithmetic for index in (0, 2))
    assert {(results[index].guarantee, results[index].arithmetic) for index in (1, 3, 4, 5)} == {
        (Guarantee.REPLAYED, None)
    }
    for index in (4, 5):  # misclassified: the image itself is the counterexample
        assert torch.equal(results[index].counterexample, images[index])
    assert all(result.counterexample is None for result in results if result.verdict is Verdict.UNSAT)


def test_a_proof_says_what_it_rests_on():
    images, labels = torch.tensor([[0.9]]), torch.tensor([0])
    for arithmetic in Arithmetic:
        (result,) = verify(threshold(), images, labels, 0.1, arithmetic=arithmetic.value)
        assert (result.arithmetic, result.guarantee) == (arithmetic, Guarantee.CHECKED)
    (ours,) = verify(mirrored(), images, labels, 0.9)
    (programs,) = verify(mirrored(), images, labels, 0.9, "milp")
    assert (ours.verdict, ours.guarantee) == (Verdict.UNSAT, Guarantee.CHECKED)
    assert (programs.verdict, programs.guarantee, programs.decided_by) == (Verdict.UNSAT, Guarantee.SOLVER, "milp")


@every
def test_a_margin_that_is_proved_is_true(name):
    """At 0.9 ± 0.1 the smallest margin is 0.3: a proof may claim that much and no more."""
    (result,) = verify(threshold(), torch.tensor([[0.9]]), torch.tensor([0]), 0.1, name, timeout=20)
    assert result.margin is None or result.margin <= 0.3 + 1e-5


@every
@pytest.mark.parametrize("build", [lambda: dense(4, 8, 8, 3), convolutional, residual])
def test_agrees_with_many_points_of_the_region(name, build):
    """Nothing that is proved has a counterexample among many points, and every counterexample replays."""
    network = build().eval()
    shape = (4,) if isinstance(network[0] if isinstance(network, nn.Sequential) else None, nn.Linear) else (1, 6, 6)
    images = some_images(4, shape)
    with torch.no_grad():
        labels = network(images).argmax(1)
    for eps in (0.01, 0.3):
        properties = Properties.around(network, images, labels, eps)
        for index, result in enumerate(verify(network, images, labels, eps, name, timeout=20)):
            assert result.verdict in (Verdict.UNSAT, Verdict.SAT)
            if result.verdict is Verdict.SAT:
                assert is_counterexample(properties, index, result.counterexample)
            else:
                region = properties.region[index : index + 1]
                points = torch.lerp(region.lower, region.upper, torch.rand(3000, *shape))
                with torch.no_grad():
                    assert (network(points).argmax(1) == labels[index]).all()


@every
def test_the_network_is_left_as_it_was(name):
    network = residual().train()
    network.head.weight.requires_grad_(False)
    before = {key: value.clone() for key, value in network.state_dict().items()}
    verify(network, some_images(2), torch.tensor([0, 1]), 0.01, name, timeout=20)
    assert all(torch.equal(value, before[key]) for key, value in network.state_dict().items())
    assert all(module.training for module in network.modules())
    assert [key for key, value in network.named_parameters() if not value.requires_grad] == ["head.weight"]


@every
def test_dropout_and_batch_norm_are_verified_as_they_are_used(name):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Dropout(0.9), *threshold()).train()
    assert verdicts(verify(network, torch.tensor([[0.9]]), torch.tensor([0]), 0.1, name, timeout=20)) == ["unsat"]


@every
def test_a_time_out_is_hard(name):
    """Wide random layers at a radius that leaves everything unstable: nobody decides these in half a second."""
    network = dense(60, 300, 300, 300, 5, seed=3)
    images = torch.rand(2, 60, generator=torch.Generator().manual_seed(5)) * 0.5 + 0.25
    with torch.no_grad():
        network[-1].bias.copy_(-network(images[:1])[0])
        network[-1].bias[0] += 0.35
        labels = network(images).argmax(1)
    started = time.perf_counter()
    results = verify(network, images, labels, 0.05, name, timeout=0.5)
    assert time.perf_counter() - started < 2 * (0.5 + 1) + TO_START.get(name, 0.0)
    assert Verdict.TIMEOUT in [result.verdict for result in results]
    for result in results:
        assert result.seconds < 0.5 + 1
        if result.verdict is Verdict.TIMEOUT:
            assert result.seconds >= 0.5


@every
def test_a_network_that_breaks_is_an_error_with_its_reason(name):
    def breaks(self, images):
        raise ZeroDivisionError("boom")

    network = Written(breaks, first=nn.Linear(1, 2))
    images, labels = torch.tensor([[0.9], [0.1]]), torch.tensor([0, 1])
    results = available()[name](timeout=5)(Properties.around(network, images, labels, 0.1))
    assert verdicts(results) == ["error", "error"]
    assert all("boom" in result.reason for result in results)
    with pytest.raises(UserError, match="boom"):
        verify(network, images, labels, 0.1, name, timeout=5)


@every
def test_one_property_that_breaks_leaves_the_others(name, monkeypatch):
    """The check of a counterexample breaks for one image only."""
    import sys

    def check(properties, index, point):
        if float(properties.images[index]) == pytest.approx(0.55):
            raise ZeroDivisionError("boom")
        return is_counterexample(properties, index, point)

    for module in list(sys.modules.values()):
        if module and getattr(module, "__name__", "").startswith("steadynet.") and hasattr(module, "is_counterexample"):
            monkeypatch.setattr(module, "is_counterexample", check)
    results = available()[name](timeout=5)(
        Properties.around(threshold(), torch.tensor([[0.9], [0.55], [0.45], [0.1]]), torch.tensor([0, 0, 1, 1]), 0.1)
    )
    assert verdicts(results) == ["unsat", "error", "sat", "unsat"]
    assert "boom" in results[1].reason


@every
def test_an_unknown_operation_is_an_error_that_names_it(name):
    network = Written(lambda self, images: self.first(images).sin(), first=nn.Linear(1, 2))
    image = torch.tensor([[0.9]])
    label = network(image).argmax(1)
    (result,) = available()[name](timeout=5)(Properties.around(network, image, label, 0.1))
    assert result.verdict is Verdict.ERROR
    assert "sin" in result.reason
    with pytest.raises(UserError, match="sin"):
        verify(network, image, label, 0.1, name, timeout=5)


def test_the_times_of_the_properties_add_up_to_the_wall_time():
    network = convolutional(seed=4).eval()
    images = some_images(40)
    with torch.no_grad():
        labels = network(images).argmax(1)
    properties = Properties.around(network, images, labels, 0.15)
    verifier = make_verifier("branch_and_bound", {"timeout": 20.0, "group": 16})
    verifier(properties[:2])  # what is done once a process
    started = time.perf_counter()
    results = verifier(properties)
    wall = time.perf_counter() - started
    assert sum(result.seconds for result in results) == pytest.approx(wall, rel=0.05)


def test_a_sat_without_a_counterexample_that_replays_is_an_error():
    properties = Properties.around(threshold(), torch.tensor([[0.9], [0.55]]), torch.tensor([0, 0]), 0.1)
    with evaluation_mode(properties.network):
        right = Result(Verdict.SAT, 1.0, torch.tensor([0.47]))
        assert replay_counterexample(properties, 1, right) == replace(right, guarantee=Guarantee.REPLAYED)
        outside, robust = Result(Verdict.SAT, 1.0, torch.tensor([0.4])), Result(Verdict.SAT, 1.0, torch.tensor([0.85]))
        for index, result in ((1, outside), (0, robust), (0, Result(Verdict.SAT, 1.0))):
            found = replay_counterexample(properties, index, result)
            assert (found.verdict, found.counterexample) == (Verdict.ERROR, None)
            assert found.reason == "the counterexample given does not replay"


@pytest.mark.parametrize(
    ("images", "labels", "eps", "complaint"),
    [
        (torch.rand(2, 1), torch.tensor([0]), 0.1, "one label per image"),
        (torch.rand(0, 1), torch.zeros(0).long(), 0.1, "one label per image"),
        (torch.tensor([[1.5]]), torch.tensor([0]), 0.1, r"must lie in \[0, 1\]"),
        (torch.tensor([[float("nan")]]), torch.tensor([0]), 0.1, r"must lie in \[0, 1\]"),
        (torch.rand(1, 1), torch.tensor([0]), 0.0, "larger than 0"),
    ],
)
def test_bad_input_to_verify(images, labels, eps, complaint):
    with pytest.raises(UserError, match=complaint):
        verify(threshold(), images, labels, eps)


def test_a_misspelt_verifier_or_setting_names_the_nearest():
    one = torch.tensor([[0.9]]), torch.tensor([0]), 0.1
    with pytest.raises(UserError, match="did you mean 'branch_and_bound'"):
        verify(threshold(), *one, verifier="branch_and_bond")
    with pytest.raises(UserError, match="did you mean 'timeout'"):
        verify(threshold(), *one, time_out=3)
