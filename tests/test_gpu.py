"""Verification and training where tensors are not on the CPU, on a GPU that is pretended (see ``pretend_gpu``)."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import helpers
from pretend_gpu import DEVICE, PretendGPU, PretendTensor
from random_networks import make
from steadynet import NBC, data, load_trained, networks, verify
from steadynet.graph.training_graph import LiveGraph
from steadynet.objectives import Batch
from steadynet.runs.directory import RunDirectory
from steadynet.runs.evaluation import evaluate
from steadynet.training.settings import resolve
from steadynet.verification.properties import Properties, Verdict, is_counterexample
from steadynet.verification.run import RunVerification
from steadynet.verification.search import input_splitting as boxes
from steadynet.verification.search import milp_attack
from steadynet.verification.verdicts import load_counterexample
from steadynet.verification.verifiers import make_verifier
from verified import RADII, rows_of

# who decides some property of a random network -> its seed
STAGES = {"misclassified": 10, "crown": 2, "attack": 60, "branch and bound": 63}
STAGES |= {"linear program": 52, "mixed-integer program": 19}
OTHERS = {"no relu": 4, "cancelling": 12, "convolutional": 15, "max pool": 17, "max pool, too": 45}


def there(properties):
    """The same properties, all of them on the pretended GPU."""
    return properties.moved(copy.deepcopy(properties.network).to(DEVICE), DEVICE)


def decided(verifier, properties):
    torch.manual_seed(1)
    return [(result.verdict, result.decided_by) for result in make_verifier(verifier, {"timeout": 20.0})(properties)]


# The pretended GPU


@pytest.mark.parametrize(
    "mixed",
    [
        lambda gpu, cpu: gpu + cpu,
        lambda gpu, cpu: cpu @ gpu,
        lambda gpu, cpu: torch.cat([gpu, cpu]),
        lambda gpu, cpu: cpu[gpu.argmax(1)],
        lambda gpu, cpu: gpu.gather(1, cpu.long()),
        lambda gpu, cpu: gpu.matmul(cpu.mean(0)),
        lambda gpu, cpu: torch.rand(2, generator=torch.Generator(), device=gpu.device),
        lambda gpu, cpu: gpu.numpy(),
    ],
)
def test_what_a_gpu_refuses_is_refused(mixed):
    with PretendGPU():
        gpu, cpu = torch.rand(3, 3).to(DEVICE), torch.rand(3, 3)
        with pytest.raises(RuntimeError):
            mixed(gpu, cpu)


def test_what_a_gpu_allows_gives_the_same_numbers():
    torch.manual_seed(0)
    real = torch.rand(3, 4)
    with PretendGPU():
        gpu = real.to(DEVICE)
        assert isinstance(gpu, PretendTensor)
        assert (gpu * torch.tensor(2.0)).tolist() == (real * 2).tolist()
        assert gpu[torch.tensor([2, 0])].cpu().equal(real[[2, 0]])
        assert gpu[[2, 0]].tolist() == real[[2, 0]].tolist()
        assert gpu[:, [3, 1]].tolist() == real[:, [3, 1]].tolist()
        assert torch.tensor([1.0, 2.0], device=DEVICE).tolist() == [1.0, 2.0]
        gpu.view(-1)[0] = 5.0
        assert gpu.tolist()[0][0] == 5.0
        weight = gpu.clone().requires_grad_()
        (gradient,) = torch.autograd.grad((weight**2).sum(), weight)
        assert gradient.cpu().equal(2 * gpu.cpu())


# Verdicts


@pytest.mark.parametrize("kind", [*STAGES, *OTHERS])
def test_the_verdicts_are_those_of_the_cpu(kind, monkeypatch):
    monkeypatch.setattr(milp_attack, "LEAST_SECONDS", 10.0)  # so that who decides depends on no clock
    properties = make((STAGES | OTHERS)[kind]).properties()
    for verifier in ("branch_and_bound", "milp"):
        expected = decided(verifier, properties)
        assert verifier == "milp" or kind in OTHERS or kind in {by for _, by in expected}
        with PretendGPU() as gpu:
            assert decided(verifier, there(properties)) == expected
            assert gpu.calls > 20


def test_boxes_are_halved_as_on_the_cpu(monkeypatch):
    monkeypatch.setattr(boxes, "LEAST_UNSTABLE", 1)
    properties = make(14 * 7).properties()
    expected = decided("branch_and_bound", properties)
    assert "halved boxes" in {by for _, by in expected}
    with PretendGPU():
        assert decided("branch_and_bound", there(properties)) == expected


@pytest.mark.parametrize(("verifier", "seed"), [("branch_and_bound", 52), ("milp", 60)])
def test_a_default_device_changes_nothing(verifier, seed):
    properties = make(seed).properties()
    expected = decided(verifier, properties)
    with PretendGPU(), DEVICE:
        assert decided(verifier, there(properties)) == expected


def test_verify_takes_a_network_and_images_that_live_there():
    case = make(0)
    expected = [result.verdict for result in verify(case.network, case.images, case.labels, case.radius)]
    assert set(expected) == {Verdict.UNSAT, Verdict.SAT}
    with PretendGPU():
        network = copy.deepcopy(case.network).to(DEVICE)
        found = verify(network, case.images.to(DEVICE), case.labels.to(DEVICE), case.radius)
        assert [result.verdict for result in found] == expected
        for result in found:
            assert (result.counterexample is None) == (result.verdict is Verdict.UNSAT)
            assert result.counterexample is None or result.counterexample.device == DEVICE


def test_a_counterexample_must_be_one_on_the_cpu_too():
    """Another network stands for what rounding may do: what only the device gives another label is no ``sat``."""
    right, wrong = nn.Sequential(nn.Linear(1, 2), nn.ReLU()), nn.Sequential(nn.Linear(1, 2), nn.ReLU())
    for network, biases in ((right, (1.0, 0.0)), (wrong, (0.0, 1.0))):
        network[0].weight.data.zero_()
        network[0].bias.data = torch.tensor(biases)
    properties = Properties.around(right, torch.tensor([[0.5]]), torch.tensor([0]), 0.1)
    with PretendGPU():
        moved = properties.moved(copy.deepcopy(wrong).to(DEVICE), DEVICE)
        assert not is_counterexample(moved, 0, moved.images[0])
        for verifier in ("branch_and_bound", "milp"):
            assert [verdict for verdict, _ in decided(verifier, moved)] == [Verdict.UNKNOWN]


# A run


def asked_there(run):
    trained = load_trained(run)
    test = trained.data().test
    verifier = make_verifier("branch_and_bound", {"timeout": 20.0})
    radii, index = [float(radius) for radius in RADII], test.first_of_each_class(3, 4)
    return RunVerification(trained, test, index, radii, verifier, trained.config.data, DEVICE)


def test_a_run_is_verified_there_and_its_counterexamples_replay_here(run, whole):
    with PretendGPU():
        asked = asked_there(run)
        asked.decide()
        radii = asked.summary(pgd_steps=5).radii
    mine, expected = ({row.key: row for row in rows_of(path)} for path in (run, whole))
    assert {key: row.verdict for key, row in mine.items()} == {key: row.verdict for key, row in expected.items()}
    assert all(radius.verdicts.unsat <= radius.pgd_kept for radius in radii)
    network = load_trained(run).network
    for row in mine.values():
        if row.verdict is Verdict.SAT:
            point = load_counterexample(RunDirectory(run), row)
            assert network(point[None]).argmax(1).item() != row.label


def test_what_was_decided_here_is_not_decided_again_there(verified):
    before = (verified / "verdicts.csv").read_bytes()
    with PretendGPU() as gpu:
        asked = asked_there(verified)
        calls = gpu.calls
        asked.decide()
        assert len(asked.rows) == len(asked)
        assert gpu.calls == calls
    assert (verified / "verdicts.csv").read_bytes() == before


def test_evaluation_is_the_same_there():
    torch.manual_seed(0)
    images = data.load("digits").test.subset(torch.arange(20))
    network = networks.build("M1", (1, 28, 28), 10).eval()
    torch.manual_seed(1)
    expected = evaluate(network, images, [0.05], pgd_steps=2)
    with PretendGPU():
        torch.manual_seed(1)
        assert evaluate(network.to(DEVICE), images, [0.05], pgd_steps=2) == expected


# Training


def test_a_step_of_nbc_is_the_same_there():
    torch.manual_seed(0)
    network = networks.build("M1", (1, 28, 28), 10)
    images, labels = torch.rand(4, 1, 28, 28), torch.tensor([0, 1, 2, 3])

    def step(network, images, labels):
        torch.manual_seed(1)
        optimiser = torch.optim.Adam(network.parameters(), 1e-3)
        loss = nn.functional.cross_entropy(network(images), labels) + NBC(eps=0.1, steps=2)(network, images)
        loss.backward()
        optimiser.step()
        return float(loss.detach()), [parameter.detach().cpu() for parameter in network.parameters()]

    with PretendGPU():
        found = step(copy.deepcopy(network).to(DEVICE), images.to(DEVICE), labels.to(DEVICE))
    expected = step(network, images, labels)
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    for one, other in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["natural", "madry", "trades+nbc", "rs", "ibp", "crown-ibp", "sabr", "mtl-ibp"])
def test_the_loss_of_every_method_is_the_same_there(method):
    objective = resolve({"data": "mnist", "method": method, "eps": 0.1}).objective(method)
    network, images, labels = helpers.convolutional(), helpers.some_images(), helpers.some_labels()

    def terms(network, images, labels):
        torch.manual_seed(1)
        found = objective.terms(Batch(network, images, labels, 0.1, 1.0, LiveGraph(network)))
        sum(found.values()).backward()
        return {name: float(value.detach()) for name, value in found.items()}

    with PretendGPU():
        found = terms(copy.deepcopy(network).to(DEVICE), images.to(DEVICE), labels.to(DEVICE))
    assert found == pytest.approx(terms(network, images, labels), rel=1e-4)
