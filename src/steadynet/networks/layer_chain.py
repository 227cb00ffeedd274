"""The gradient of a plain chain of layers with respect to its input, without autograd.

An attack on a small network takes many short operations, and recording each of them for autograd costs as much as a
fifth of a training step. The paper's networks are plain chains, whose gradient is one line per kind of layer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steadynet.networks.input_gradient import CHANNELS_LAST, convolution_data_gradient, relu_backward
from steadynet.networks.normalise import Normalise

AtReLU = Callable[[int, Tensor], None]


class Pass(NamedTuple):
    """A forward pass: the logits, the input of each ReLU in order, and the tensor that enters each layer."""

    logits: Tensor
    preactivations: list[Tensor]
    inputs: list[Tensor]


class LayerChain:
    """A network that is a chain of convolutions, dense layers, ReLUs, ``Flatten`` and ``Normalise``, on a CPU.

    Parameters get no gradient. Weights are taken when the chain is made: make a new one after each training step.

    >>> network = nn.Sequential(nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 1, bias=False))
    >>> _ = network[0].weight.data.copy_(torch.tensor([[1.0, 2.0], [-3.0, -1.0]]))
    >>> _ = network[2].weight.data.copy_(torch.tensor([[5.0, 7.0]]))
    >>> chain = LayerChain.of(network, points := torch.ones(1, 2))
    >>> chain.input_gradient(chain.forward(points), torch.ones(1, 1))  # the second ReLU is off: 5 · (1, 2)
    tensor([[ 5., 10.]])
    """

    def __init__(self, layers: list[nn.Module]) -> None:
        self._layers = layers
        self._weights = [
            layer.weight.detach().contiguous(memory_format=CHANNELS_LAST) if isinstance(layer, nn.Conv2d) else None
            for layer in layers
        ]

    @classmethod
    def of(cls, network: nn.Module, points: Tensor) -> LayerChain | None:
        """Return the chain of a network, or None if it is no such chain, or if the points are not on a CPU."""
        if points.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return None
        layers = list(_flat(network))
        return cls(layers) if all(_is_known(layer) for layer in layers) else None

    @torch.no_grad()
    def forward(self, points: Tensor) -> Pass:
        """Run the network on points, (batch, *image)."""
        value, preactivations, inputs = points.detach(), [], []
        for layer, weight in zip(self._layers, self._weights, strict=True):
            inputs.append(value)
            if isinstance(layer, nn.Conv2d) and weight is not None:
                value = F.conv2d(value, weight, layer.bias, layer.stride, layer.padding)
            elif isinstance(layer, nn.ReLU):
                preactivations.append(value)
                value = torch.relu(value)
            else:
                value = layer(value)
        return Pass(value, preactivations, [*inputs, value])

    @torch.no_grad()
    def input_gradient(self, passed: Pass, gradient: Tensor, at_relu: AtReLU = lambda number, gradient: None) -> Tensor:
        """Go back through the chain.

        Args:
            passed: What :meth:`forward` returned.
            gradient: The gradient of an objective with respect to the logits.
            at_relu: Called with the number of each ReLU and the gradient of its input, to which it may add in place
                what the objective takes from that input itself.

        Returns:
            The gradient with respect to the points.
        """
        relu = len(passed.preactivations)
        for place in range(len(self._layers) - 1, -1, -1):
            layer, weight, entered = self._layers[place], self._weights[place], passed.inputs[place]
            if isinstance(layer, nn.Conv2d) and weight is not None:
                padding = cast(tuple[int, int], layer.padding)
                gradient = convolution_data_gradient(gradient, entered, weight, layer.stride[0], padding)
            elif isinstance(layer, nn.Linear):
                gradient = gradient @ layer.weight
            elif isinstance(layer, nn.ReLU):
                relu -= 1
                gradient = relu_backward(gradient, passed.inputs[place + 1])
                at_relu(relu, gradient)
            elif isinstance(layer, Normalise):
                gradient = gradient / layer.std
            else:
                gradient = gradient.reshape(entered.shape)
        return gradient


def _flat(network: nn.Module) -> Iterator[nn.Module]:
    """The layers of a network in order, without the ``Sequential`` ones around them."""
    if type(network) is nn.Sequential and not _is_changed(network):
        for layer in network:
            yield from _flat(layer)
    else:
        yield network


def _is_known(layer: nn.Module) -> bool:
    if type(layer) is nn.Conv2d:
        plain = layer.groups == 1 and layer.dilation == (1, 1) and layer.padding_mode == "zeros"
        known = plain and layer.stride[0] == layer.stride[1] and not isinstance(layer.padding, str)
    elif type(layer) is nn.Flatten:
        known = (layer.start_dim, layer.end_dim) == (1, -1)
    else:
        known = type(layer) in (nn.Linear, nn.ReLU, Normalise)
    return known and not _is_changed(layer)


def _is_changed(layer: nn.Module) -> bool:
    """Whether a layer does not compute what its class does: it has hooks, or a forward of its own."""
    hooks = layer._forward_hooks or layer._forward_pre_hooks or layer._backward_hooks or layer._backward_pre_hooks
    return bool(hooks) or "forward" in vars(layer)
