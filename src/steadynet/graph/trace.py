"""The calls a PyTorch network makes, found by ``torch.fx`` and run once on an example."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn

from steadynet.errors import UserError
from steadynet.networks.evaluation_mode import evaluation_mode


class UnsupportedNetworkError(UserError):
    """The network does something that no bound is known for."""


class _Proxy(torch.fx.Proxy):
    """A stand-in for a tensor that knows ``x += y`` from ``x = x + y``; torch.fx itself does not."""


def _in_place(function: Any) -> Any:
    return lambda self, other: self.tracer.create_proxy("call_function", function, (self, other), {})


for _name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "iand", "ior", "ixor"):
    setattr(_Proxy, f"__{_name}__", _in_place(getattr(operator, _name)))


class _Tracer(torch.fx.Tracer):
    def proxy(self, node: torch.fx.Node) -> torch.fx.Proxy:
        return _Proxy(node, self)


class Trace(torch.fx.Interpreter):
    """The calls of a network in evaluation mode, the result of each, and which earlier results it changed in place.

    Good for one use only: a forward can depend on any attribute of its module, and attributes change.
    """

    def __init__(self, network: nn.Module, shape: tuple[int, ...]) -> None:
        if is_patched(network):
            raise UnsupportedNetworkError(f"no bounds for a {type(network).__name__} with hooks or a replaced forward")
        self.values: dict[torch.fx.Node, Any] = {}
        self.changed: dict[torch.fx.Node, list[torch.fx.Node]] = {}
        self._versions: dict[torch.fx.Node, int] = {}
        attributes = set(vars(network))
        try:
            with torch.inference_mode(False), torch.no_grad(), evaluation_mode(network):
                super().__init__(network, graph=_Tracer().trace(network))
                self.run(example_inputs(network, 2, shape))
        except Exception as error:  # whatever a forward raises when it meets a stand-in for its input
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise UnsupportedNetworkError(
                f"{type(network).__name__} cannot be traced for inputs of shape {shape} "
                f"(its forward branches on data, or is no PyTorch): {reason}"
            ) from error
        finally:
            for name in set(vars(network)) - attributes:  # torch.fx leaves tensors made in the forward there
                delattr(network, name)

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one call; keep its result, and note which earlier results it changed."""
        result = super().run_node(n)
        self.changed[n] = [node for node, version in self._versions.items() if self.values[node]._version != version]
        self.values[n] = result
        for node in (n, *self.changed[n]):
            if isinstance(self.values[node], Tensor):
                self._versions[node] = self.values[node]._version
        return result


def is_patched(module: nn.Module) -> bool:
    """Whether calling the module does more than its class says (weight_norm and pruning work by hooks)."""
    return bool(module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module))


def example_inputs(network: nn.Module, batch: int, shape: tuple[int, ...]) -> Tensor:
    """Inputs between −1 and 2, random but always the same."""
    generator = torch.Generator("cpu").manual_seed(0)
    return (torch.rand(batch, *shape, generator=generator, device="cpu") * 3 - 1).to(some_weight(network))


def some_weight(network: nn.Module) -> Tensor:
    """A tensor of the type and on the device that the network computes with."""
    tensors = itertools.chain(network.parameters(), network.buffers())
    return next((tensor for tensor in tensors if tensor.is_floating_point()), torch.zeros((), device="cpu"))
