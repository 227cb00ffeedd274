"""Which device is used, and that verification computes in float32 whatever its caller has chosen."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from random_networks import make
from steadynet import verify
from steadynet.bounds.backward import RelaxedNetwork
from steadynet.devices import full_precision, pick_device, plain_convolutions
from steadynet.errors import UserError
from steadynet.verification.properties import Properties, Verdict
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound
from steadynet.verification.verifiers.milp import Milp
from verified import SELECTION, found, refused, said

CPU = torch.device("cpu")
VERIFIERS = [BranchAndBound(timeout=20.0), Milp(timeout=20.0)]


def switches():
    """What PyTorch says of its precision; a switch that cannot be read is said so."""
    backends = torch.backends
    readers = [
        torch.get_float32_matmul_precision,
        lambda: backends.cudnn.allow_tf32,
        lambda: backends.cudnn.enabled,
        lambda: torch.is_autocast_enabled("cpu"),
        lambda: torch.is_autocast_enabled("cuda"),
    ]
    places = (backends.cuda.matmul, backends.cudnn.conv, backends.mkldnn.matmul, backends.mkldnn.conv)
    readers += [lambda place=place: place.fp32_precision for place in places if hasattr(place, "fp32_precision")]

    def read(reader):
        try:
            return reader()
        except RuntimeError:
            return "contradictory"

    return [read(reader) for reader in readers]


@pytest.fixture
def careless():
    """A caller who wants speed, not precision, by the old switches."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


# Precision


@pytest.mark.parametrize("verifier", VERIFIERS, ids=lambda verifier: verifier.name)
def test_bounds_are_the_same_under_autocast(verifier):
    case = make(0)
    expected = verifier(case.properties())
    with torch.autocast("cpu", torch.bfloat16):
        results = verifier(case.properties())
        assert torch.is_autocast_enabled("cpu")
    assert [result.verdict for result in results] == [result.verdict for result in expected]
    assert [result.margin for result in results] == [result.margin for result in expected]
    assert {result.verdict for result in expected} == {Verdict.UNSAT, Verdict.SAT}


def test_a_counterexample_replays_in_full_precision_under_autocast():
    network = nn.Sequential(nn.Linear(1, 2))
    network[0].weight.data.zero_()
    network[0].bias.data = torch.tensor([1.0, 1.001])  # one number in bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert int(network(torch.tensor([[0.5]])).argmax(1)) == 0
        (result,) = verify(network, torch.tensor([[0.5]]), torch.tensor([0]), 0.1)
    assert result.verdict is Verdict.SAT


@pytest.mark.parametrize("verifier", VERIFIERS, ids=lambda verifier: verifier.name)
def test_tf32_and_cudnn_are_off_inside_and_as_before_afterwards(verifier, careless, monkeypatch):
    inside, lower = [], RelaxedNetwork.lower

    def spied(*arguments, **options):
        inside.append(switches())
        return lower(*arguments, **options)

    monkeypatch.setattr(RelaxedNetwork, "lower", spied)
    before = switches()
    verifier(make(0).properties())
    assert switches() == before
    assert before[:3] == ["medium", True, True]
    assert inside
    for seen in inside:
        assert seen[:5] == ["highest", False, False, False, False]
        assert set(seen[5:]) <= {"ieee"}


@pytest.mark.parametrize("verifier", VERIFIERS, ids=lambda verifier: verifier.name)
def test_the_switches_are_as_before_after_an_error(verifier, careless):
    def broken(index, result):
        raise KeyboardInterrupt

    before = switches()
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(KeyboardInterrupt):
        verifier.verify(make(0).properties(), broken)
    assert switches() == before


@pytest.mark.skipif(not hasattr(torch.backends.mkldnn, "conv"), reason="this PyTorch has the old switches only")
def test_the_new_switches_are_off_inside_and_as_before_afterwards():
    places = (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.mkldnn.conv)
    default = [place.fp32_precision for place in places]
    try:
        for place in places:
            place.fp32_precision = "tf32"
        before = switches()
        with full_precision(CPU), plain_convolutions():
            assert switches()[:5] == ["highest", False, False, False, False]
            assert {place.fp32_precision for place in places} == {"ieee"}
        assert switches() == before
        assert {place.fp32_precision for place in places} == {"tf32"}
    finally:
        for place, value in zip(places, default, strict=True):
            place.fp32_precision = value


def test_a_device_that_multiplies_coarsely_is_refused(monkeypatch):
    exact = torch.conv2d
    monkeypatch.setattr(torch, "conv2d", lambda one, other: exact(one.bfloat16(), other.bfloat16()).float())
    with pytest.raises(UserError, match="less precisely than float32"), full_precision(CPU):
        pass


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_is_refused(kind):
    case = make(0)
    with pytest.raises(UserError, match="float32 or float64"):
        Properties.around(case.network.to(kind), case.images.to(kind), case.labels, case.radius)


# The flag


def test_auto_is_the_first_device_there_is(monkeypatch):
    assert pick_device("auto", ("cuda", "cpu")) == CPU
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert pick_device("auto", ("cuda", "cpu")).type == "cuda"
    assert pick_device("cpu").type == "cpu"


@pytest.mark.parametrize("command", ["verify", "evaluate"])
def test_a_device_that_is_not_there_is_one_line(command, trained, capsys):
    line = refused(capsys, command, trained, "--device", "cuda")
    assert line == "steadynet: error: device cuda is not available on this machine"
    assert "'mps'" in refused(capsys, command, trained, "--device", "mps")


def test_auto_verifies_on_this_machine(run, whole, capsys):
    said(capsys, "verify", run, *SELECTION, "--device", "auto")
    assert found(run) == found(whole)


def test_a_property_of_a_file_is_decided_on_the_cpu(tmp_path, capsys):
    line = refused(capsys, "verify", tmp_path / "p.vnnlib", "--network", "N=n.onnx", "--device", "auto")
    assert "works only for runs" in line
