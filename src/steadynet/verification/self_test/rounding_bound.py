"""A bound on the rounding errors of small networks, from first principles and independent of the verifiers' bounds."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from steadynet.graph.rounding import gamma
from steadynet.graph.s_shaped import LIBRARY_ROUNDINGS


def rounding_bound(network: nn.Module, largest: Tensor, dtype: torch.dtype = torch.float32) -> float:
    """Return a bound on the rounding errors of a network's margins, with sums in any order.

    Each number is at most what the network computes with the absolute values of all weights, biases and inputs. Each of
    its roundings has a relative error of at most u, so n roundings in a row, summed in any order, give γ_n of that. A
    sigmoid or tanh is nowhere steeper than 1, and so passes on an error at most as it is, and adds some roundings of 1.

    Args:
        network: A network in evaluation mode, whose layers grow with their inputs when all weights are positive.
        largest: The largest absolute value of each input, (points, *shape).
        dtype: The precision in which the network runs.

    >>> layer = nn.Linear(2, 2, bias=False)
    >>> _ = layer.weight.data.fill_(-1.0)
    >>> rounding_bound(layer, torch.ones(1, 2)) == 2 * 2 * gamma(4, torch.float32)
    True
    """
    size = copy.deepcopy(network).double()
    terms = 0
    for parent in list(size.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, (nn.Sigmoid, nn.Tanh)):
                setattr(parent, name, _OneMore())
                terms += LIBRARY_ROUNDINGS
    for module in size.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            terms += module.weight[0].numel() + 2
        elif isinstance(module, nn.BatchNorm2d):
            terms += 6
            assert module.running_mean is not None
            module.running_mean.data.copy_(-module.running_mean.abs())
        elif isinstance(module, nn.AvgPool2d):
            terms += 8
        else:
            terms += 1
        for parameter in module.parameters(recurse=False):
            parameter.data.abs_()
    with torch.no_grad():
        return gamma(terms, dtype) * 2 * float(size(largest.double()).max())


class _OneMore(nn.Module):
    """What stands for a sigmoid or tanh in a bound on its errors: x + 1."""

    def forward(self, inputs: Tensor) -> Tensor:
        """Add 1."""
        return inputs + 1


def clearly_violated(network: nn.Module, point: Tensor, label: int) -> bool:
    """Return whether a point (*shape) has another label in exact arithmetic, whatever float64 may have rounded away."""
    with torch.no_grad():
        scores = copy.deepcopy(network).double()(point[None].double())[0]
    others = torch.cat([scores[:label], scores[label + 1 :]])
    return float(others.max() - scores[label]) > rounding_bound(network, point[None].abs(), torch.float64)
