"""Our form of Algorithm 2 against the plainest one, on the paper's networks."""

import sys

import pytest
import torch

from places import ROOT
from steadynet.attacks.region import InputRegion
from steadynet.networks import ARCHITECTURES
from steadynet.networks.preactivations import activations
from steadynet.objectives import build
from steadynet.objectives.consistency import layer_weights

sys.path.insert(0, str(ROOT / "benchmarks"))
from plain_nbc import plain_nbc_loss


@pytest.mark.parametrize("model", ["M1", "M2", "M3", "C1", "C2", "C3"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_loss_and_gradient_are_those_of_the_plain_form(model, layout):
    torch.manual_seed(0)
    network = ARCHITECTURES[model].build().to(memory_format=layout)
    images, labels, eps = torch.rand(4, *ARCHITECTURES[model].image_shape), torch.tensor([3, 1, 4, 1]), 0.1
    sizes = [layer[0].numel() for layer in activations(network, images).preactivations]

    torch.manual_seed(1)
    ours = build("nbc", {"nbc": {"steps": 3, "beta": 2.0, "step_size": eps / 10}})(network, images, labels, eps)
    found = torch.autograd.grad(ours, list(network.parameters()))

    torch.manual_seed(1)
    start = InputRegion.around(images, eps).sample()
    gammas = layer_weights(sizes, "rank-power")
    plain = plain_nbc_loss(network, images, labels, start, eps=eps, gammas=gammas, beta=2.0, steps=3)
    expected = torch.autograd.grad(plain, list(network.parameters()))

    torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-5)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-2, atol=1e-4)
