"""steadynet's own verifier: complete, on batches of properties, the cheapest stages first."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch

from steadynet.devices import full_precision
from steadynet.graph.rounding import Arithmetic
from steadynet.graph.translate import graph_of
from steadynet.memory import keep_freed_memory
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.plugins import setting
from steadynet.verification.properties import Guarantee, Properties, Result, Verdict
from steadynet.verification.search.budget import Budget
from steadynet.verification.search.carry_over import CarryOver
from steadynet.verification.search.pipeline import decide
from steadynet.verification.verifiers.base import Verifier

CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
NEURONS_AT_ONCE = 1_200_000  # ReLUs, sigmoids and tanhs of all the properties of a group together


@dataclass(frozen=True, kw_only=True)
class BranchAndBound(Verifier):
    """Attack, bounds, then a search over ReLU signs whose batches hold subproblems of many properties."""

    name = "branch_and_bound"
    summary = "intervals, CROWN, attack, optimised slopes, then branch and bound; complete"

    restarts: int = setting(3, "restarts of the attack")
    attack_steps: int = setting(40, "steps of the attack")
    batch: int = setting(256, "subproblems bounded at once")
    group: int | None = setting(None, "properties bounded together (default: chosen by the network's size)")
    memory: int = setting(512, "MiB that a backward pass may take")
    condense: bool = setting(True, "split ReLUs on a smaller network, in which stable ReLUs are substituted away")
    programs: bool = setting(True, "bound the subproblems of small networks by linear programs")
    arithmetic: Literal["float32", "exact"] = setting(
        "float32", "what a proof holds for: the network run in float32 with sums in any order, or exact arithmetic"
    )

    clock: Literal["wall", "cpu"] = setting(
        "wall", "how seconds are counted: as time passes, or as time of the processor, summed over its threads"
    )

    earlier: Callable[[Properties], Sequence[CarryOver]] | None = None  # no setting: starts from earlier proofs
    hints: bool = False  # no setting: whether results carry hints for a proof, which changes no verdict

    def verify(
        self,
        properties: Properties,
        on_result: Callable[[int, Result], None],
        carried: Sequence[CarryOver] = (),
    ) -> None:
        """Decide the properties group by group; a group that crashes is tried again one property at a time.

        Args:
            properties: The properties.
            on_result: Called once per property, as soon as it is decided.
            carried: One record per property. What searches in other boxes around the same image left there is used
                here, and what this search learns is left there. They must be of the same network, labels and settings.
        """
        with torch.inference_mode(False):
            self._verify(properties.with_gradients(), on_result, carried)

    def _verify(
        self, properties: Properties, on_result: Callable[[int, Result], None], carried: Sequence[CarryOver]
    ) -> None:
        if self.earlier is not None and not carried:
            carried = self.earlier(properties)
        memory, now = self.memory * 2**20, CLOCKS[self.clock]
        budget = Budget(
            self.timeout, self.attack_steps, self.restarts, self.batch, memory, now, self.condense, self.programs,
            hints=self.hints,
        )  # fmt: skip
        if properties.images.device.type == "cpu":
            keep_freed_memory()
        parameters = [parameter.requires_grad for parameter in properties.network.parameters()]
        try:
            properties.network.requires_grad_(False)
            with evaluation_mode(properties.network), full_precision(properties.images.device):
                group, checked = self.group or _group_size(properties), False
                for start in range(0, len(properties), group):
                    rows = slice(start, start + group)
                    translated = self._group(properties[rows], start, budget, on_result, carried[rows], not checked)
                    checked = checked or translated
        finally:
            for parameter, wanted in zip(properties.network.parameters(), parameters, strict=True):
                parameter.requires_grad_(wanted)

    def _group(
        self,
        properties: Properties,
        offset: int,
        budget: Budget,
        on_result: Callable[[int, Result], None],
        carried: Sequence[CarryOver] = (),
        check: bool = True,
    ) -> bool:
        """Decide a group. Whether the network was translated, and checked if it shall be."""
        reported: set[int] = set()

        def report(index: int, result: Result) -> None:
            reported.add(index)
            if result.verdict is Verdict.UNSAT:
                result = replace(result, arithmetic=Arithmetic(self.arithmetic), guarantee=Guarantee.CHECKED)
            on_result(offset + index, result)

        try:
            return decide(properties, budget, Arithmetic(self.arithmetic), report, carried, check)
        except Exception as error:  # whatever broke, the other properties go on, and this one says what it was
            left = [index for index in range(len(properties)) if index not in reported]
            if len(properties) == 1:
                on_result(offset, Result(Verdict.ERROR, 0.0, reason=f"{type(error).__name__}: {error}"))
                return False
            for index in left:
                self._group(properties[index : index + 1], offset + index, budget, on_result)
            return False


def _group_size(properties: Properties) -> int:
    """As many properties as are bounded in seconds, not minutes, so that first results come soon."""
    if len(properties) == 1:
        return 1
    try:
        graph = graph_of(properties.network, tuple(properties.images.shape[1:]), check=False)
        with torch.no_grad():
            values = graph.values(properties.images[:1])
        neurons = sum(values[position].numel() for position in graph.activations)
    except Exception:  # a network that breaks is every property's error, not the verifier's
        return 256
    return max(1, min(256, NEURONS_AT_ONCE // max(neurons, 1)))
