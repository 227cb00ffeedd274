"""A batch of properties on its way through the search: what is asked, and what is known so far."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.condensed import CondensedNetwork
from steadynet.bounds.crown import propagate
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.queries import BoundQuery
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Convolution, Dense, Interval, Operation
from steadynet.graph.opposites import without_opposites
from steadynet.graph.rounding import Arithmetic, Execution
from steadynet.graph.translate import graph_of
from steadynet.verification.properties import OutputConstraints, Properties
from steadynet.verification.search.budget import Budget
from steadynet.verification.search.carry_over import CarryOver, box_of, joined_bounds
from steadynet.verification.search.decisions import Decisions

MERGE_OPPOSITES = True  # whether ReLUs of opposite numbers are merged


@dataclass(frozen=True)
class PropertyBatch:
    """What is asked: is every margin of every property positive on its whole box?

    Attributes:
        properties: the properties.
        graph: their network.
        margins: (properties, margins, outputs), the rows y_label − y_j as coefficients of the output.
        budget: what the search may spend.
        execution: the execution of the network that a proof shall hold for.
        carried: per property, what searches in other boxes around the same image left; empty if there were none.
        constraints: where the graph computes the constraints of VNN-LIB properties.
    """

    properties: Properties
    graph: Graph
    margins: Tensor
    budget: Budget
    execution: Execution
    carried: Sequence[CarryOver] = ()
    constraints: OutputConstraints | None = None

    @classmethod
    def of(
        cls,
        properties: Properties,
        budget: Budget,
        arithmetic: Arithmetic,
        carried: Sequence[CarryOver] = (),
        check: bool = True,
    ) -> PropertyBatch:
        """The batch of these properties; ``check`` as in :func:`graph_of`."""
        graph = _row_by_row(graph_of(properties.network, tuple(properties.images.shape[1:]), check=check))
        constraints = properties.constraints
        if MERGE_OPPOSITES and not budget.hints:  # hints for a proof speak of the ReLUs of the network itself
            graph, place = without_opposites(graph)
            constraints = constraints and replace(constraints, position=place[constraints.position])
        execution, last = Execution(arithmetic, properties.images.dtype), graph.nodes[-1].operation
        margins = robustness_margins(properties, len(last.weight) if isinstance(last, Dense) else None)
        return cls(properties, graph, margins, budget, execution, carried, constraints)

    def of_properties(self, kept: Sequence[int]) -> PropertyBatch:
        """The batch of some of the properties, in this order."""
        rows = torch.tensor(kept, dtype=torch.long, device=self.margins.device)
        carried = [self.carried[index] for index in kept] if self.carried else ()
        return replace(self, properties=self.properties[rows], margins=self.margins[rows], carried=carried)

    def bounded(
        self,
        box: Interval,
        out_of_time: Callable[[], bool] = lambda: False,
        known: Mapping[int, Interval] | None = None,
    ) -> tuple[BoundedNetwork, list[Interval]]:
        """The network over some boxes, with bounds of every ReLU input in which every rounding is counted."""
        memory, execution = self.budget.memory, self.execution
        return propagate(self.graph, box, memory, out_of_time, known=known, execution=execution, until_stable=True)

    def known_bounds(self, box: Interval) -> dict[int, Interval] | None:
        """Bounds of inner neurons that searches in larger boxes left; None if they left none."""
        return joined_bounds([carried.known_in(box_of(box, row)) for row, carried in enumerate(self.carried)])

    @property
    def is_piecewise_linear(self) -> bool:
        """Whether the network has no sigmoid or tanh, so that it is linear where the signs of its ReLUs are fixed."""
        return not self.graph.s_shaped

    def query(self, owner: Tensor, margin: Tensor) -> BoundQuery:
        """The query for some margins: margin[k] of property owner[k]."""
        return BoundQuery(self.graph.output, LinearFunctions(self.margins[owner, margin]), owner)


def _row_by_row(graph: Graph) -> Graph:
    """The same graph, with weights that lie in memory row by row: their layout would go on to all bounds.

    It has copies of weights with channels last, so it is of use while the network does not change.
    """

    def arranged(operation: Operation) -> Operation:
        if not isinstance(operation, Convolution) or operation.weight.is_contiguous():
            return operation
        return replace(operation, weight=operation.weight.contiguous())

    return Graph(tuple(replace(node, operation=arranged(node.operation)) for node in graph.nodes))


def _classes(properties: Properties) -> int:
    with torch.no_grad():
        return int(properties.network(properties.images[:1]).shape[1])


def robustness_margins(properties: Properties, classes: int | None = None) -> Tensor:
    """The rows y_label − y_j of every property, (properties, classes − 1, classes)."""
    classes = _classes(properties) if classes is None else classes
    identity = torch.eye(classes, dtype=properties.images.dtype, device=properties.images.device)
    others = torch.stack([torch.cat([identity[:label], identity[label + 1 :]]) for label in properties.labels.tolist()])
    return identity[properties.labels][:, None] - others


@dataclass(frozen=True)
class SearchState:
    """What is known: each stage of the pipeline takes a state and returns a better one.

    Attributes:
        batch: what is asked.
        network: the network with bounds of every ReLU input on each property's box.
        lower: (properties, margins), the best lower bounds known, in float64; a positive one is proved.
        slopes: per (property, margin), the optimised slopes of the whole box, as a start for subproblems.
        condensed: the properties that are searched on condensed networks only; other stages leave them out.
        networks: the condensed networks of some of these, over the bounds of ``network``.
    """

    batch: PropertyBatch
    network: BoundedNetwork
    lower: Tensor
    slopes: Mapping[tuple[int, int], dict[int, Tensor]] = field(default_factory=dict)
    condensed: frozenset[int] = frozenset()
    networks: Mapping[int, CondensedNetwork] = field(default_factory=dict)

    def open_margins(self, decisions: Decisions) -> tuple[Tensor, Tensor]:
        """(property, margin) of every margin that is not proved yet, of the properties that are still open."""
        return self._margins_of(decisions.open)

    def margins_of_whole(self, decisions: Decisions) -> tuple[Tensor, Tensor]:
        """The same, of the properties that are searched on the whole network."""
        return self._margins_of(decisions.open - self.condensed)

    def _margins_of(self, properties: Set[int]) -> tuple[Tensor, Tensor]:
        owner, margin = (self.lower <= 0).nonzero(as_tuple=True)
        keep = torch.tensor([index in properties for index in owner.tolist()], dtype=torch.bool, device=owner.device)
        return owner[keep], margin[keep]

    def unstable_relus(self, index: int) -> int:
        """How many ReLUs of a property may have either sign."""
        return sum(int(layer.of(slice(index, index + 1)).unstable().sum()) for layer in self.network.relus())
