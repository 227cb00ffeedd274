"""Linearity grafting (Chen et al., 2022): some ReLUs become lines, y = m·(a·x + b) + (1 − m)·ReLU(x)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from steadynet.networks.evaluation_mode import evaluation_mode

GRAFTED = "+grafted"  # the end of the name of a model with grafted ReLUs, as in M1+grafted


class GraftedReLU(nn.Module):
    """A layer of ReLUs of which some are replaced by a learned line a·x + b.

    It computes ``x * factor + shift + relu(x * keep)``. A grafted neuron has ``keep`` = 0, so its ReLU has the input 0
    and is stable. A neuron that is not grafted has ``factor`` = ``shift`` = 0 and ``keep`` = 1, and a training leaves
    it so. A new layer has no grafted neurons.

    Args:
        shape: The shape of the layer's input, without the batch.

    Attributes:
        factor: a, the slope of each grafted neuron.
        shift: b.
        keep: 1 − m: 0 for each grafted neuron, 1 for all others.

    >>> layer = GraftedReLU((3,))
    >>> layer.graft(torch.tensor([True, False, False]), slope=0.5)
    >>> layer(torch.tensor([[-4.0, -4.0, 4.0]])).tolist()
    [[-2.0, 0.0, 4.0]]
    """

    keep: Tensor

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.factor, self.shift = nn.Parameter(torch.zeros(shape)), nn.Parameter(torch.zeros(shape))
        self.register_buffer("keep", torch.ones(shape))
        self._freeze_others()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a copy. Copies of parameters have no hooks, so the hooks are registered anew."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._freeze_others()

    def _freeze_others(self) -> None:
        """Give no gradient to the lines of neurons that are not grafted, so that these lines stay zero."""
        for parameter in (self.factor, self.shift):
            parameter.register_hook(lambda gradient: gradient * (1 - self.keep))

    def graft(self, mask: Tensor, slope: float) -> None:
        """Replace the chosen ReLUs by the line slope · x.

        Args:
            mask: Which neurons to graft, in the shape of the layer's input without the batch.
            slope: a at the start; b is 0.
        """
        with torch.no_grad():
            self.keep.copy_(~mask)
            self.factor.copy_(slope * mask)
            self.shift.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """Compute the lines of the grafted neurons and the ReLUs of the others."""
        return x * self.factor + self.shift + torch.relu(x * self.keep)


def with_grafted_relus(network: nn.Module, image_shape: tuple[int, ...]) -> nn.Module:
    """Replace the ReLU modules of a network by :class:`GraftedReLU` without grafted neurons, in place.

    The network computes the same as before. A ReLU that is a function call, or a module that is called more than once,
    stays as it is.

    Args:
        network: The network.
        image_shape: The shape of one image.

    Returns:
        The network.

    >>> with_grafted_relus(nn.Sequential(nn.Linear(2, 3), nn.ReLU()), (2,))[1].keep
    tensor([1., 1., 1.])
    """
    shapes: dict[nn.Module, list[tuple[int, ...]]] = {}

    def record(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        shapes.setdefault(module, []).append(tuple(inputs[0].shape[1:]))

    reference = next(network.parameters(), torch.zeros(()))
    relus = [module for module in network.modules() if type(module) is nn.ReLU]
    hooks = [relu.register_forward_pre_hook(record) for relu in relus]
    try:
        with torch.no_grad(), evaluation_mode(network):
            network(torch.zeros(2, *image_shape, device=reference.device, dtype=reference.dtype))
    finally:
        for hook in hooks:
            hook.remove()
    layers = {relu: GraftedReLU(found[0]).to(reference) for relu, found in shapes.items() if len(found) == 1}
    for name, module in list(network.named_modules(remove_duplicate=False)):
        if module in layers:
            parent, _, child = name.rpartition(".")
            setattr(network.get_submodule(parent), child, layers[module])
    return network


def grafted_layers(network: nn.Module) -> dict[str, GraftedReLU]:
    """Return the layers of a network whose ReLUs are or can be grafted, by their names."""
    return {name: module for name, module in network.named_modules() if isinstance(module, GraftedReLU)}


def weight_matrices(network: nn.Module) -> list[nn.Parameter]:
    """Return the weights of a network without its biases and without the lines of grafted ReLUs.

    >>> [tuple(weight.shape) for weight in weight_matrices(nn.Sequential(nn.Linear(2, 3), GraftedReLU((3, 1))))]
    [(3, 2)]
    """
    lines = {id(parameter) for layer in grafted_layers(network).values() for parameter in layer.parameters()}
    return [parameter for parameter in network.parameters() if parameter.dim() > 1 and id(parameter) not in lines]
