"""Forwards that are no functions of their images in ways that a few runs do not show: all are refused in one line."""

from __future__ import annotations

import itertools
import random
import re
import sys
import time
import types
from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from helpers import Written
from steadynet import verify
from steadynet.errors import UserError
from steadynet.graph.state import clocks_read
from steadynet.graph.translate import graph_of
from steadynet.verification.properties import Properties
from steadynet.verification.search import property_batch
from steadynet.verification.verifiers import make_verifier

IMAGES, LABELS = torch.full((2, 4), 0.5), torch.tensor([0, 0])
Forward = Callable[[nn.Module, Tensor], Tensor]
calls = 0


def network(forward: Forward) -> nn.Module:
    """Label 0 everywhere, if its layers are all that it computes."""
    layers = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    with torch.no_grad():
        layers[2].bias.copy_(torch.tensor([50.0, 0.0, 0.0]))
    return Written(forward, layers=layers)


def rare(images: Tensor) -> Tensor:
    """Where images lie in a small part of the box around 0.5."""
    return ((images > 0.5) & (images < 0.55)).all(1, keepdim=True)


def looks_at_values(net: nn.Module, images: Tensor) -> Tensor:
    scores = net.layers(images)
    return -scores if isinstance(images, Tensor) and bool(rare(images).any()) else scores


def looks_by_numpy(net: nn.Module, images: Tensor) -> Tensor:
    scores = net.layers(images)
    return -scores if torch.is_tensor(images) and images.numpy(force=True).min() > 0.5 else scores


def looks_at_a_copy(net: nn.Module, images: Tensor) -> Tensor:
    scores, copy = net.layers(images), torch.zeros(1)
    if isinstance(images, Tensor):
        copy[0] = images.min()
    return -scores if copy.item() > 0.5 else scores


def differs_from_its_trace(net: nn.Module, images: Tensor) -> Tensor:
    scores = net.layers(images)
    return torch.where(rare(images), -scores, scores) if isinstance(images, Tensor) else scores


def changes_rare_rows(net: nn.Module, images: Tensor) -> Tensor:
    scores = net.layers(images)
    if isinstance(images, Tensor):
        scores[rare(images)[:, 0]] = -1.0
    return scores


def depends_on_gradients(net: nn.Module, images: Tensor) -> Tensor:
    return -net.layers(images) if torch.is_grad_enabled() else net.layers(images)


def depends_on_the_batch(net: nn.Module, images: Tensor) -> Tensor:
    return net.layers(images) * (-1 if isinstance(images, Tensor) and len(images) > 20 else 1)


def reads_a_clock(net: nn.Module, images: Tensor) -> Tensor:
    return -net.layers(images) if time.time() < 0 else net.layers(images)


def draws_from_python(net: nn.Module, images: Tensor) -> Tensor:
    return -net.layers(images) if random.random() < 1e-9 else net.layers(images)


def draws_from_numpy(net: nn.Module, images: Tensor) -> Tensor:
    return -net.layers(images) if np.random.rand() < 1e-9 else net.layers(images)


def draws_from_torch(net: nn.Module, images: Tensor) -> Tensor:
    return -net.layers(images) if torch.rand(()) < 1e-9 else net.layers(images)


def counts_in_a_variable(net: nn.Module, images: Tensor) -> Tensor:
    global calls  # noqa: PLW0603  (what the test is about)
    calls += 1
    return -net.layers(images) if calls > 1000 else net.layers(images)


def counts_in_its_class(net: nn.Module, images: Tensor) -> Tensor:
    type(net).calls = getattr(type(net), "calls", 0) + 1
    return -net.layers(images) if type(net).calls > 1000 else net.layers(images)


def counts_by(counter: object, count: Callable[[object], float]) -> Forward:
    def forward(net: nn.Module, images: Tensor) -> Tensor:
        return -net.layers(images) if count(counter) > 1000 else net.layers(images)

    return forward


def append(found: list[int]) -> int:
    found.append(1)
    return len(found)


REFUSED = {
    "values": (looks_at_values, r"looks at the values of its images in Python, by torch.Tensor.__bool__"),
    "numpy": (looks_by_numpy, "looks at the values of its images in Python, by torch.Tensor.numpy"),
    "a copy": (looks_at_a_copy, "looks at the values of its images in Python, by torch.Tensor.item"),
    "the trace": (differs_from_its_trace, "does something else when it is run on 33 images than when it is traced"),
    "rare rows": (changes_rare_rows, "does something else when it is run on 33 images than when it is traced"),
    "gradients": (depends_on_gradients, "does something else when it is run with gradients than when it is traced"),
    "the batch": (depends_on_the_batch, "does something else when it is run on 33 images than when it is traced"),
    "a clock": (reads_a_clock, "reads the clock when it is run, by time.time"),
    "Python's numbers": (draws_from_python, "draws random numbers"),
    "NumPy's numbers": (draws_from_numpy, "draws random numbers"),
    "PyTorch's numbers": (draws_from_torch, "draws random numbers"),
    "a variable": (counts_in_a_variable, "changes its own '.*calls'"),
    "its class": (counts_in_its_class, "changes its own 'Written.calls'"),
    "a list": (counts_by([], append), "changes its own '.*counter'"),
    "a tensor": (counts_by(torch.zeros(1), lambda count: count.add_(1).item()), "changes its own '.*counter'"),
    "an iterator": (counts_by(itertools.count(), next), "changes its own '.*counter'"),
    "a generator": (
        counts_by(np.random.default_rng(0), lambda generator: generator.random()),
        "changes its own '.*counter'",
    ),
}


def reason(net: nn.Module, verifier: str = "branch_and_bound") -> str:
    """Why a network is refused: what is raised, or what every result says."""
    try:
        results = verify(net, IMAGES, LABELS, 0.1, verifier, timeout=5)
    except Exception as error:
        return str(error)
    assert {result.verdict.value for result in results} == {"error"}
    return results[0].reason


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("verifier", ["branch_and_bound", "milp"])
def test_such_forwards_are_refused(name, verifier):
    forward, message = REFUSED[name]
    found = reason(network(forward), verifier)
    assert re.search(message, found), found
    assert "\n" not in found


def test_a_call_that_is_more_than_its_forward_is_refused():
    class Extended(nn.Sequential):
        def __call__(self, images: Tensor) -> Tensor:
            scores = super().__call__(images)
            return torch.where(rare(images), -scores, scores)

    net = Extended(nn.Linear(4, 3))
    net[0].bias.data.copy_(torch.tensor([50.0, 0.0, 0.0]))
    assert "does something else when it is run" in reason(net)


def test_hooks_of_all_modules_are_refused():
    def hook(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor | None:
        return torch.where(output > 1e6, -output, output) if isinstance(module, nn.Linear) else None

    removed = torch.nn.modules.module.register_module_forward_hook(hook)
    try:
        assert "with hooks" in reason(network(lambda net, images: net.layers(images)))
    finally:
        removed.remove()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
def test_a_compiled_network_is_refused():
    assert "TorchScript" in reason(torch.jit.script(nn.Sequential(nn.Linear(4, 3))))


def test_what_is_built_at_the_first_run_is_no_state():
    def forward(net: nn.Module, images: Tensor) -> Tensor:
        if net.shift is None:
            net.shift = torch.ones(3)
        return net.layers(images)

    net = network(forward)
    net.shift = None
    assert {result.verdict.value for result in verify(net, IMAGES, LABELS, 0.1, timeout=5)} == {"unsat"}


def test_what_says_nothing_of_values_may_be_asked():
    def forward(net: nn.Module, images: Tensor) -> Tensor:
        if isinstance(images, Tensor) and (images.dim() != 2 or images.shape[1] != 4 or images.dtype == torch.int8):
            raise ValueError
        return net.layers(images.view(images.size(0), -1) if images.is_floating_point is not None else images)

    assert {result.verdict.value for result in verify(network(forward), IMAGES, LABELS, 0.1, timeout=5)} == {"unsat"}


def test_a_profiler_goes_on_through_the_check():
    seen = []
    sys.setprofile(lambda frame, event, argument: seen.append(event))
    try:
        with clocks_read():
            pass
        seen.clear()
        len("called after the check")
    finally:
        sys.setprofile(None)
    assert "c_call" in seen


def test_one_check_of_the_network_is_enough_for_all_groups_but_never_left_out(monkeypatch):
    """A group whose images refute everything translates nothing, so the next one has to check."""
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).eval()
    images = torch.rand(4, 3)
    labels = layers(images).argmax(1)
    labels[0] = 1 - labels[0]
    checks = list[bool]()

    def counted(network, shape, *, check=True):
        checks.append(check)
        return graph_of(network, shape, check=check)

    monkeypatch.setattr(property_batch, "graph_of", counted)
    results = make_verifier("branch_and_bound", {"timeout": 20.0, "group": 1})(
        Properties.around(layers, images, labels, 1e-4)
    )
    assert [result.verdict.value for result in results] == ["sat", "unsat", "unsat", "unsat"]
    assert checks == [True, False, False]


@pytest.mark.parametrize("patched", ["one layer", "all layers"])
def test_code_that_was_changed_since_the_last_verification_is_checked_again(monkeypatch, patched):
    """The well-known patch that makes convolutions wrap around, below the forward of a layer."""

    def wrapped(self, images, weight, bias):
        return F.conv2d(F.pad(images, (1, 1, 1, 1), mode="circular"), weight, bias, self.stride)

    torch.manual_seed(3)
    network = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()
    image = torch.rand(1, 1, 6, 6)
    (result,) = verify(network, image, network(image).argmax(1), eps=1e-4)
    assert result.verdict.value == "unsat"
    if patched == "one layer":
        network[0]._conv_forward = types.MethodType(wrapped, network[0])
    else:
        monkeypatch.setattr(nn.Conv2d, "_conv_forward", wrapped)
    with pytest.raises(UserError, match="was read wrongly"):
        verify(network, image, network(image).argmax(1), eps=0.03)


@pytest.mark.parametrize("made", ["weights", "images", "call"])
def test_tensors_of_inference_mode_are_no_obstacle(made):
    """Attacks need gradients, which PyTorch does not compute for tensors that were made in this mode."""
    torch.manual_seed(0)
    with torch.inference_mode(made == "weights"):
        network = nn.Sequential(nn.Linear(3, 2), nn.ReLU(), nn.Linear(2, 2)).eval().requires_grad_(False)
        network[0].weight.copy_(torch.tensor([[1.0], [-1.0]]).expand(2, 3))  # is the sum of the pixels above 1.5?
        network[0].bias.copy_(torch.tensor([-1.5, 1.5]))
        network[2].weight.copy_(torch.eye(2))
        network[2].bias.zero_()
    with torch.inference_mode(made == "images"):
        images = torch.rand(6, 3)
    with torch.inference_mode(made == "call"):
        labels = network(images).argmax(1)
        near, far = (verify(network, images, labels, eps) for eps in (1e-4, 1.0))
    assert {result.verdict.value for result in near} == {"unsat"}
    assert {result.verdict.value for result in far} == {"sat"}


@pytest.mark.parametrize("images_too", [False, True])
def test_the_layout_of_weights_and_images_in_memory_does_not_matter(images_too):
    """Channels last, which is faster on some machines: the same verdicts."""
    for seed in range(2, 6):
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Conv2d(2, 5, 1), nn.ReLU(), nn.Conv2d(5, 2, (1, 2)), nn.ReLU(), nn.Conv2d(2, 2, (1, 3)), nn.ReLU(),
            nn.Flatten(), nn.Linear(90, 3),
        ).eval()  # fmt: skip
        images = torch.rand(1, 2, 9, 8)
        labels = network(images).argmax(1)
        usual = verify(network, images, labels, eps=0.03)
        network.to(memory_format=torch.channels_last)
        images = images.contiguous(memory_format=torch.channels_last) if images_too else images
        found = verify(network, images, labels, eps=0.03)
        assert [result.verdict for result in found] == [result.verdict for result in usual]
