"""What a search leaves behind for a proof: the leaves that it proved, with their splits, slopes and multipliers.

These are hints. Whoever writes a proof bounds every leaf again, and repairs what a hint does not prove.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.condensed import ChosenNeurons
from steadynet.graph.graph import Graph
from steadynet.verification.search.subproblem import Split

ALMOST = 0.01  # of the width of a ReLU input's bounds: so near to zero it counts as unstable for a proof


@dataclass(frozen=True)
class LeafHint:
    """One proved subproblem.

    Attributes:
        splits: the ReLUs that are held on one side, by their positions in the graph, with their multipliers.
        slopes: per ReLU position, (elements, slopes) of some neurons; ``elements`` is None for the whole layer.
    """

    splits: tuple[Split, ...]
    slopes: Mapping[int, tuple[Tensor | None, Tensor]]


@dataclass(frozen=True)
class Cut:
    """One box that was halved: its corners, the input that was cut across, and where."""

    lower: Tensor
    upper: Tensor
    axis: int
    middle: float


@dataclass
class RefinedLayer:
    """The slopes behind refined bounds of a layer.

    Attributes:
        layer: which neurons have such bounds.
        before: the neurons before them, which the slopes are those of.
        notes: (bounds, slopes) as ``refined_by_condensed`` notes them.
    """

    layer: ChosenNeurons
    before: tuple[ChosenNeurons, ...]
    notes: list[tuple[Tensor, Tensor]] = field(default_factory=list)


@dataclass
class ProofHints:
    """What is known of the proof of one property.

    Attributes:
        relus: the positions of the ReLUs in the graph that the splits speak of.
        leaves: per margin, its proved subproblems.
        cuts: the boxes that were halved, in their order.
        rounds: per margin, how often its search began; from the second time on, with refined inner bounds.
        refined: per position of a ReLU layer whose inner bounds were refined, the slopes behind them.
        margin: the smallest margin, if CROWN proves the property at once.
        unstable: per ReLU layer, the neurons that are unstable there, or almost.
    """

    relus: tuple[int, ...] = ()
    leaves: dict[int, list[LeafHint]] = field(default_factory=dict)
    cuts: list[Cut] = field(default_factory=list)
    rounds: dict[int, int] = field(default_factory=dict)
    refined: dict[int, RefinedLayer] = field(default_factory=dict)
    margin: float | None = None
    unstable: list[Tensor] = field(default_factory=list)

    def proved_at_once(self, network: BoundedNetwork, row: int, margin: float) -> None:
        """Note that CROWN proves the property: the ReLUs that are unstable, or almost, and the smallest margin."""
        self.margin = margin
        for relu in network.graph.relus:
            lower, upper = (side[row].flatten() for side in network.bounds[relu])
            room = ALMOST * (upper - lower) + 1e-4
            self.unstable.append(((lower < room) & (upper > -room)).nonzero().flatten())

    def begin(self, graph: Graph, margin: int) -> None:
        """Forget the leaves of a margin: its search begins anew."""
        self.relus = tuple(graph.relus)
        self.leaves[margin] = []
        self.go_on(margin)

    def go_on(self, margin: int) -> None:
        """Another search goes on with what the last one left of a margin."""
        self.rounds[margin] = self.rounds.get(margin, 0) + 1

    def leaf(self, margin: int, splits: Sequence[Split], slopes: Mapping[int, Tensor]) -> None:
        """Note a proved subproblem of the whole network."""
        known = {position: (None, values.flatten()) for position, values in slopes.items()}
        self.leaves.setdefault(margin, []).append(LeafHint(tuple(splits), known))

    def condensed_leaf(
        self, margin: int, layers: Sequence[ChosenNeurons], splits: Sequence[tuple[int, int, float]], slopes: Tensor
    ) -> None:
        """Note a proved subproblem of a condensed network: (neuron, sign, multiplier), and a slope per neuron."""
        known = {layer.position: (layer.elements, slopes[layer.rows]) for layer in layers}
        held = [
            Split(layer.position, int(layer.elements[neuron - layer.rows.start]), sign, beta)
            for neuron, sign, beta in splits
            for layer in layers
            if layer.rows.start <= neuron < layer.rows.stop
        ]
        self.leaves.setdefault(margin, []).append(LeafHint(tuple(held), known))

    def refinement(self, layers: Sequence[ChosenNeurons], number: int, bounds: Tensor, slopes: Tensor) -> None:
        """Note the slopes behind refined bounds of a layer; those of an earlier refinement of it are forgotten."""
        position, before = layers[number].position, tuple(layers[:number])
        known = self.refined.get(position)
        if known is None or known.layer is not layers[number]:
            known = self.refined[position] = RefinedLayer(layers[number], before)
        known.notes.append((bounds, slopes.half()))

    def cut(self, lower: Tensor, upper: Tensor, axis: Tensor, middle: Tensor) -> None:
        """Note boxes that are halved: corners (n, inputs), inputs (n,), places (n,)."""
        for row, (across, where) in enumerate(zip(axis.tolist(), middle.tolist(), strict=True)):
            self.cuts.append(Cut(lower[row], upper[row], across, where))
