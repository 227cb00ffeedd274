"""Whether a network is the one that was checked last: layers of PyTorch in a row, equal in every setting and weight.

The checks of a translation run the network many times. A user who verifies image by image would pay for them each
time. They are left out where they cannot say anything new: the network consists of layers whose code is PyTorch's own,
nothing is hooked into them, and all that they compute with is bit for bit what it was, PyTorch's functions and its
precision included. Everything else, such as a network with a forward of its own, is checked each time: its code may
depend on anything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from steadynet.graph.purity import same_bits
from steadynet.graph.tables import CLIPPING_MODULES, MODULES, RESHAPING_MODULES
from steadynet.graph.trace import is_patched
from steadynet.networks.normalise import Normalise

LARGEST = 1 << 26  # bytes of weights that are kept to compare with
_PLAIN = frozenset([nn.Sequential, Normalise, *MODULES, *CLIPPING_MODULES, *RESHAPING_MODULES])
_SETTINGS = (bool, int, float, str, tuple, torch.Size, type(None))  # what ``repr`` shows completely


@dataclass(frozen=True)
class _Known:
    """What a network computes with.

    Attributes:
        layers: name, code and settings of every layer, and the shape of an input.
        weights: its parameters and buffers, in their order.
        functions: what the layers call, and the precision that this is computed in.
    """

    layers: tuple[object, ...]
    weights: tuple[Tensor, ...]
    functions: tuple[object, ...]


_last: list[_Known] = []


def was_checked(network: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether the last network that was checked computes exactly the same for inputs of this shape."""
    known = _known(network, shape) if _last else None
    if known is None or (known.layers, known.functions) != (_last[0].layers, _last[0].functions):
        return False
    pairs = zip(known.weights, _last[0].weights, strict=True)
    return all(one.device == other.device and same_bits(one, other) for one, other in pairs)


def note_checked(network: nn.Module, shape: tuple[int, ...]) -> None:
    """Remember that a network passed all checks, in place of the one before."""
    _last.clear()
    known = _known(network, shape)
    if known is not None and sum(weight.nbytes for weight in known.weights) <= LARGEST:
        _last.append(replace(known, weights=tuple(weight.detach().clone() for weight in known.weights)))


def _known(network: nn.Module, shape: tuple[int, ...]) -> _Known | None:
    """What a network computes with; None if it has code that is not a layer's own."""
    layers: list[object] = [shape]
    weights: list[Tensor] = []
    for name, module in network.named_modules(remove_duplicate=False):
        kind, settings = type(module), vars(module)
        if kind not in _PLAIN or is_patched(module):
            return None
        tensors = {**module._parameters, **module._buffers}
        weights += [tensor for tensor in tensors.values() if tensor is not None]
        present = [(key, tensor is not None) for key, tensor in tensors.items()]
        own = {key: value for key, value in settings.items() if not key.startswith("_") and key != "training"}
        if not all(isinstance(value, _SETTINGS) for value in own.values()):
            return None
        layers.append((name, kind, kind.forward, kind.__call__, present, repr(own)))
    if any(type(weight) not in (Tensor, nn.Parameter) for weight in weights):
        return None
    layers += [(weight.shape, weight.dtype, weight.stride()) for weight in weights]
    return _Known(tuple(layers), tuple(weights), _functions())


def _functions() -> tuple[object, ...]:
    """PyTorch's functions for layers, and what decides the precision that they compute in."""
    precision = torch.get_float32_matmul_precision(), torch.get_default_dtype()
    autocast = tuple((kind, torch.is_autocast_enabled(kind)) for kind in ("cpu", "cuda"))
    return dict(vars(F)), precision, autocast
