"""Find the calls that a PyTorch network makes: ``torch.fx`` traces it, and the calls run once on example inputs."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.fx
from torch import Tensor, nn

from steadynet.errors import UserError
from steadynet.graph.recorded_calls import RecordedCalls
from steadynet.networks.evaluation_mode import evaluation_mode

LEAVE_OUT = ": if it is the last layer, leave it out, since it does not change which class wins"  # said of softmax


class UnsupportedNetworkError(UserError):
    """The network does something for which no bounds are known, or cannot be traced."""


class _Proxy(torch.fx.Proxy):
    """A stand-in for a tensor that tells ``x += y`` from ``x = x + y``, which ``torch.fx`` itself does not."""


def _in_place(function: Any) -> Any:
    return lambda self, other: self.tracer.create_proxy("call_function", function, (self, other), {})


for _name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "iand", "ior", "ixor"):
    setattr(_Proxy, f"__{_name}__", _in_place(getattr(operator, _name)))


class _Tracer(torch.fx.Tracer):
    def proxy(self, node: torch.fx.Node) -> torch.fx.Proxy:
        return _Proxy(node, self)


class Trace(torch.fx.Interpreter):
    """The calls that a network makes in evaluation mode, with their results on example inputs.

    A trace must not be kept: a forward can depend on any attribute of its module, and attributes change.

    Args:
        network: The network.
        shape: The shape of one input, without the batch.

    Attributes:
        changed: For each call, the earlier calls whose results it changed in place.

    Raises:
        UnsupportedNetworkError: The network cannot be traced.
    """

    def __init__(self, network: nn.Module, shape: tuple[int, ...]) -> None:
        if is_patched(network):
            raise UnsupportedNetworkError(f"no bounds for a {type(network).__name__} with hooks or a replaced forward")
        self.network = network
        self.changed: dict[torch.fx.Node, list[torch.fx.Node]] = {}
        self._versions: dict[torch.fx.Node, int] = {}
        self._copies: dict[torch.fx.Node, Tensor] | None = None
        self._notes_changes = True
        self._made: dict[
            str, Any
        ] = {}  # tensors made in the forward, which torch.fx keeps as attributes of the network
        attributes = set(vars(network))
        try:
            with torch.inference_mode(False), torch.no_grad(), evaluation_mode(network):
                super().__init__(network, garbage_collect_values=False, graph=_Tracer().trace(network))
                self.run(example_inputs(network, 2, shape))
        except Exception as error:  # a forward that meets a stand-in for its input may fail in any way
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise UnsupportedNetworkError(
                f"{type(network).__name__} cannot be traced for inputs of shape {shape} "
                f"(its forward branches on data, or uses something other than PyTorch): {reason}"
            ) from error
        finally:
            for name in set(vars(network)) - attributes:
                self._made[name] = vars(network).pop(name)

    @property
    def last_call(self) -> torch.fx.Node:
        """The call that returns the network's output."""
        return list(self.graph.nodes)[-1]

    @property
    def values(self) -> dict[torch.fx.Node, Any]:
        """The result of each call."""
        return self.env

    def run_node(self, n: torch.fx.Node) -> Any:
        """Run one call, and note which earlier results it changed.

        PyTorch counts the changes of each tensor in ``_version``, for which there is no public name.
        """
        result = super().run_node(n)
        if not self._notes_changes:
            return result
        self.changed[n] = [node for node, version in self._versions.items() if self.values[node]._version != version]
        for node in self.changed[n]:
            self._versions[node] = self.values[node]._version
        if isinstance(result, Tensor):
            self._versions[n] = result._version
            if self._copies is not None:
                self._copies[n] = result.clone()
        return result

    def results_on(self, images: Tensor) -> dict[torch.fx.Node, Tensor]:
        """Run the calls on other images; return a copy of each result that is a tensor, as it was when it was computed.

        The results on the example inputs are kept.
        """
        with self._other_run(), torch.no_grad():
            copies: dict[torch.fx.Node, Tensor] = {}
            self._copies = copies
            self.run(images.clone())
            return copies

    def record_on(self, images: Tensor) -> RecordedCalls:
        """Run the calls on other images, and record the functions of PyTorch that this calls."""
        with self._other_run(), RecordedCalls(images) as record:
            self._notes_changes = False  # which would be calls, too
            self.run(images)
        return record

    @contextmanager
    def _other_run(self) -> Iterator[None]:
        """Keep the results on the example inputs during a run on other images."""
        kept = self.env, self.changed, self._versions
        self.changed, self._versions = {}, {}
        try:
            vars(self.network).update(self._made)
            with torch.inference_mode(False), evaluation_mode(self.network):
                yield
        finally:
            for name in self._made:
                vars(self.network).pop(name)
            self.env, self.changed, self._versions = kept
            self._copies, self._notes_changes = None, True


def is_patched(module: nn.Module) -> bool:
    """Whether calling the module does more than its class says. Weight norm and pruning, for example, use hooks."""
    # PyTorch has no public way to ask a module for its hooks, nor for those of all modules
    hooks = module._forward_hooks or module._forward_pre_hooks
    shared = torch.nn.modules.module._global_forward_hooks or torch.nn.modules.module._global_forward_pre_hooks
    return bool(hooks or shared or "forward" in vars(module))


def example_inputs(network: nn.Module, batch: int, shape: tuple[int, ...]) -> Tensor:
    """Return random inputs between −1 and 2, the same at every call."""
    generator = torch.Generator("cpu").manual_seed(0)
    return (torch.rand(batch, *shape, generator=generator, device="cpu") * 3 - 1).to(some_weight(network))


def some_weight(network: nn.Module) -> Tensor:
    """Return a tensor of the type and on the device that the network computes with."""
    tensors = itertools.chain(network.parameters(), network.buffers())
    return next((tensor for tensor in tensors if tensor.is_floating_point()), torch.zeros((), device="cpu"))
