"""Networks that are exported and read back have the same outputs and the same verdicts as in PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from helpers import CLASSES, IMAGE, Written, residual, shaken, some_images
from onnx_files import keras, runtime, weights
from steadynet import Verdict, networks, verify
from steadynet.interchange.onnx.reader import read_onnx
from steadynet.interchange.onnx.writer import export_onnx

PROOFS = {"M3": 0, "C3": 1}  # of one property each; seconds per proof. M3 is C3 for grey images.


def written_and_read(network: nn.Module, shape: tuple[int, ...], path: Path) -> nn.Module:
    """The network read back, after it has shown the same outputs as PyTorch and as the file."""
    export_onnx(network, shape, path)
    read, images = read_onnx(path), some_images(3, shape)
    assert read.input_shape == shape
    with torch.no_grad():
        expected = network(images)
        torch.testing.assert_close(read(images), expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(runtime(path, images.numpy()), expected.numpy(), rtol=1e-4, atol=1e-5)
    return read


def verdicts(network: nn.Module, images: Tensor, labels: Tensor, eps: float) -> list[Verdict]:
    return [result.verdict for result in verify(network, images, labels, eps, timeout=20)]


def with_one_wrong(network: nn.Module, images: Tensor) -> Tensor:
    """The network's own labels, except for the last image: with its wrong label it is its own counterexample."""
    with torch.no_grad():
        scores = network(images)
    labels = scores.argmax(1)
    labels[-1] = scores[-1].argmin()
    return labels


@pytest.mark.parametrize("name", ["M1", "M2", "M3", "C1", "C2", "C3"])
def test_the_networks_of_the_paper(name, tmp_path):
    torch.manual_seed(0)
    architecture = networks.ARCHITECTURES[name]
    shape, mean = architecture.image_shape, [0.3] * architecture.image_shape[0]
    network = nn.Sequential(networks.Normalise(mean, mean), architecture.build()).eval()
    read = written_and_read(network, shape, tmp_path / "model.onnx")
    images = some_images(2, shape)
    labels = with_one_wrong(network, images)
    for decided in (read, network)[: PROOFS.get(name, 2)]:
        assert verdicts(decided, images, labels, 1e-5) == [Verdict.UNSAT, Verdict.SAT]


RADII = (0.001, 0.01, 0.05, 0.2, 0.6)


def verdicts_at_many_radii(network: nn.Module, images: Tensor, labels: Tensor) -> list[list[Verdict]]:
    return [verdicts(network, images, labels, eps) for eps in RADII]


def both_verdicts(found: list[list[Verdict]]) -> bool:
    """Whether images that have the network's own label are proved at one radius and refuted at another."""
    return {verdict for verdicts in found for verdict in verdicts[:-1]} == {Verdict.UNSAT, Verdict.SAT}


class Blocks(nn.Module):
    """Residual blocks with batch norm, a strided shortcut, and an average at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU())
        self.inner = nn.Sequential(
            nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.ReLU(),
            nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4),
        )  # fmt: skip
        self.shortcut = nn.Sequential(nn.Conv2d(3, 4, 1, stride=2), nn.BatchNorm2d(4))
        self.last = nn.Sequential(nn.AvgPool2d(3), nn.Flatten(), nn.Linear(4, CLASSES))

    def forward(self, images: Tensor) -> Tensor:
        start = self.first(images)
        return self.last(torch.relu(self.inner(start) + self.shortcut(start)))


@pytest.mark.parametrize("name", ["one block", "strided"])
def test_a_residual_network_with_batch_norm(name, tmp_path):
    torch.manual_seed(3)  # with others, all that is left may be dead
    network = (residual() if name == "one block" else shaken(Blocks())).eval()
    last = [module for module in network.modules() if isinstance(module, nn.Linear)][-1]
    last.bias.data -= network(some_images(20)).mean(0).detach()  # no class wins everywhere
    read = written_and_read(network, IMAGE, tmp_path / "model.onnx")
    images = some_images(4)
    labels = with_one_wrong(network, images)
    ours = verdicts_at_many_radii(network, images, labels)
    assert both_verdicts(ours)
    assert verdicts_at_many_radii(read, images, labels) == ours


def channels_last() -> nn.Module:
    """The network of ``keras`` in PyTorch, with layers."""
    convolution, linear = nn.Conv2d(1, 3, 3, stride=2), nn.Linear(27, 4)
    convolution.weight.data, convolution.bias.data = torch.tensor(weights(3, 1, 3, 3)), torch.tensor(weights(3))
    linear.weight.data, linear.bias.data = torch.tensor(weights(27, 4)).t().contiguous(), torch.tensor(weights(4))
    return Written(
        lambda net, x: net.linear(
            torch.relu(net.convolution(net.padded(x.permute(0, 3, 1, 2)))).permute(0, 2, 3, 1).flatten(1)
        ),
        padded=nn.ZeroPad2d((0, 1, 0, 1)),
        convolution=convolution,
        linear=linear,
    ).eval()


def test_channels_last_as_keras_writes_it(tmp_path):
    twin, shape = channels_last(), (6, 6, 1)
    read, images = read_onnx(keras(tmp_path / "keras.onnx")), some_images(4, shape)
    with torch.no_grad():
        torch.testing.assert_close(read(images), twin(images), rtol=1e-4, atol=1e-5)
    labels = with_one_wrong(twin, images)
    ours = verdicts_at_many_radii(twin, images, labels)
    assert both_verdicts(ours)
    again = [written_and_read(network, shape, tmp_path / "again.onnx") for network in (twin, read)]
    assert [verdicts_at_many_radii(network, images, labels) for network in (read, *again)] == [ours] * 3
