"""Networks that are no functions are refused in one line before anything is proved: noise, state, changed images."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from helpers import Written
from steadynet import Verdict, verify
from steadynet.attacks.region import InputRegion
from steadynet.bounds import UnsupportedNetworkError, crown_bounds, interval_bounds
from steadynet.errors import UserError
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.verification.properties import Properties
from steadynet.verification.verifiers import available, make_verifier

IMAGES = torch.tensor([[0.5, 0.6], [0.4, 0.3], [0.9, 0.1], [0.2, 0.8]])
LABELS = torch.tensor([0, 0, 0, 0])


def network(forward: Callable[[nn.Module, Tensor], Tensor]) -> nn.Module:
    """Two classes; the second has a score of −1000, beside which a comparison by the largest score sees nothing."""
    first = nn.Linear(2, 2)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[1.0, 1.0], [1.0, -1.0]]))
        first.bias.copy_(torch.tensor([0.0, -1000.0]))
    return Written(forward, first=first)


def in_place(net: nn.Module, images: Tensor) -> Tensor:
    images -= 0.1
    return net.first(images)


def clamped_in_place(net: nn.Module, images: Tensor) -> Tensor:
    return net.first(images.clamp_(0, 1))  # changes nothing as long as pixels lie in [0, 1]


def noisy(net: nn.Module, images: Tensor) -> Tensor:
    return net.first(images) + 0.3 * torch.rand(2)


def noisy_by_shape(net: nn.Module, images: Tensor) -> Tensor:
    return net.first(images) + 1e-7 * torch.randn(images.shape)


def counting(net: nn.Module, images: Tensor) -> Tensor:
    net.calls = getattr(net, "calls", 0) + 1
    return net.first(images) if net.calls < 1000 else -net.first(images)


def counting_in_a_buffer(net: nn.Module, images: Tensor) -> Tensor:
    net.first.bias.data += 1e-3
    return net.first(images)


def alternating() -> Callable[[nn.Module, Tensor], Tensor]:
    calls = [0]

    def forward(net: nn.Module, images: Tensor) -> Tensor:
        calls[0] += 1
        return net.first(images) + 1e-3 * (calls[0] % 2)

    return forward


def mixed(net: nn.Module, images: Tensor) -> Tensor:
    return net.first(images) + 1e-3 * images[:, :1].detach().mean(0)


REFUSED = {
    "in place": (in_place, "changes the images"),
    "noise": (noisy, "when it is run again on the same images"),
    "a counter": (counting, "changes its own 'calls'"),
    "weights that move": (counting_in_a_buffer, "when it is run again|changes its own 'first.bias'"),
    "a counter elsewhere": (alternating(), "when it is run again on the same images"),
    "a batch that is mixed": (mixed, "when the other images of its batch change"),
    "noise of the batch's shape": (noisy_by_shape, "when it is run again on the same images"),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("verifier", ["branch_and_bound", "milp"])
def test_verify_refuses_what_is_no_function(name, verifier):
    forward, message = REFUSED[name]
    images = IMAGES.clone()
    with pytest.raises(UserError, match=message) as caught:
        verify(network(forward), images, LABELS, 0.01, verifier, timeout=5)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("verifier", sorted(available()))
def test_no_verifier_gets_such_properties(verifier):
    """Properties of such a network cannot be made, so no verifier, of this package or another, can decide them."""
    with pytest.raises(UserError, match="changes the images"):
        Properties(network(in_place), IMAGES.clone(), LABELS, InputRegion.around(IMAGES, 0.01))


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("method", [crown_bounds, interval_bounds])
def test_bounds_refuse_what_is_no_function(name, method):
    with pytest.raises(UnsupportedNetworkError):
        method(network(REFUSED[name][0]), InputRegion.around(IMAGES, 0.01))


def test_export_refuses_what_is_no_function(tmp_path):
    for forward, message in (REFUSED["in place"], REFUSED["noise"]):
        with pytest.raises(UserError, match=message):
            export_onnx(network(forward), (2,), tmp_path / "model.onnx")


def test_a_change_in_place_is_seen_where_the_images_do_not_show_it():
    properties = Properties.around(network(clamped_in_place), IMAGES[:1].clone(), LABELS[:1], 0.01)
    (result,) = make_verifier("branch_and_bound", {"timeout": 5.0})(properties)
    assert result.verdict.value == "error"
    assert "changes the images" in result.reason
    with pytest.raises(UserError, match="changes the images"):
        verify(network(clamped_in_place), IMAGES[:1].clone(), LABELS[:1], 0.01, timeout=5)


@pytest.mark.parametrize("label", [-1, 2, 7])
@pytest.mark.parametrize("verifier", ["branch_and_bound", "milp"])
def test_labels_outside_the_classes_are_refused(label, verifier):
    with pytest.raises(UserError, match=f"label {label}, but the network has 2 classes: 0 to 1"):
        verify(nn.Linear(2, 2), IMAGES, torch.tensor([0, 1, label, 0]), 0.01, verifier)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_refused(value):
    layers = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    layers[0].bias.data.fill_(3.0)
    layers[2].weight.data[0, 0] = value
    with pytest.raises(UnsupportedNetworkError, match=r"NaN or infinite \(layer '2'\)"):
        crown_bounds(layers, InputRegion.around(IMAGES, 0.01))
    for verifier in ("branch_and_bound", "milp"):
        with pytest.raises(UserError, match="scores that are NaN or infinite"):
            verify(layers, IMAGES, LABELS, 0.01, verifier, timeout=5)


def test_a_network_of_another_shape_or_precision_is_refused():
    with pytest.raises(UserError, match=r"does not take a batch of 3 inputs of shape \(2,\)"):
        verify(nn.Linear(3, 2), IMAGES, LABELS, 0.01)
    with pytest.raises(UserError, match="computes in float64, but the images are float32"):
        Properties.around(nn.Linear(2, 2).double(), IMAGES, LABELS, 0.01)
    found = verify(nn.Sequential(nn.Linear(2, 2)).double(), IMAGES, LABELS, 0.01)  # which converts the images
    assert all(result.counterexample.dtype == torch.float64 for result in found if result.verdict is Verdict.SAT)
    with pytest.raises(UserError, match="scores of shape"):
        verify(nn.Sequential(nn.Linear(2, 4), nn.Unflatten(1, (2, 2))), IMAGES, LABELS, 0.01)


def test_ordinary_networks_pass():
    layers = nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True), nn.Dropout(), nn.Linear(4, 2))
    results = verify(layers.train(), IMAGES, LABELS, 0.01, timeout=5)
    assert {result.verdict.value for result in results} <= {"sat", "unsat"}
    assert layers.training
