"""A condensed network after the bounds of its neurons got tighter: ReLUs that are stable now are substituted away, too.

This happens in the small matrices, which takes a fraction of the time of new backward passes over the whole network.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.condensed import CondensedLayer, CondensedNetwork, Matrix
from steadynet.bounds.relaxation import Relaxation
from steadynet.graph.operations import Interval, ReLU


def condensed_further(network: CondensedNetwork, whole: BoundedNetwork) -> CondensedNetwork:
    """The condensed network of the same property, whose bounds are now those of ``whole``, which are no wider."""
    substitution = _Substitution(network.inputs)
    layers: list[CondensedLayer] = []
    kept: list[Tensor] = []
    bounds, lines = [], []
    for layer in network.layers:
        matrix, constant = substitution.apply(layer.matrix, layer.constant)
        known = Interval(*(side.flatten()[layer.elements] for side in whole.bounds[layer.position]))
        operation = whole.graph.producer(layer.position).operation
        assert isinstance(operation, ReLU)
        unstable = known.unstable()
        slope = torch.where(known.lower >= 0, 1.0, operation.slope).to(constant)
        left = substitution.add(matrix, constant, unstable, slope)
        kept.append(unstable)
        if bool(unstable.any()):
            first = sum(len(before.elements) for before in layers)
            rows = slice(first, first + int(unstable.sum()))
            elements = layer.elements[unstable]
            layers.append(CondensedLayer(layer.position, layer.shape, elements, left, constant[unstable], rows))
            bounds.append(Interval(*(side[unstable, None] for side in known)))
            lines.append(Relaxation.crown(bounds[-1], operation.slope))
    functions, constants = substitution.apply(Matrix(network.margins.t(), network.margins), network.constants)
    none = network.margins.new_zeros(0, 1)
    chosen = torch.cat(kept) if kept else torch.zeros(0, dtype=torch.bool, device=none.device)
    return replace(
        network,
        whole=whole,
        layers=tuple(layers),
        margins=functions.dense().t().contiguous(),
        constants=constants,
        bounds=Interval(
            torch.cat([none, *(known.lower for known in bounds)]), torch.cat([none, *(known.upper for known in bounds)])
        ),
        lines=_joined(lines, none),
        floor=network.floor[chosen],
    )


def _joined(lines: list[Relaxation], none: Tensor) -> Relaxation:
    return Relaxation(
        torch.cat([none, *(line.lower_slope for line in lines)]),
        torch.cat([none, *(line.upper_slope for line in lines)]),
        torch.cat([none, *(line.upper_shift for line in lines)]),
    )


@dataclass
class _Substitution:
    """What the neurons so far are: those that are kept, and the others as functions of the input and of kept ones.

    Attributes:
        inputs: how many inputs the network has.
        kept: per neuron, whether it stays.
        rows: the outputs of the others, (neurons, inputs + kept neurons before them), one entry per layer.
    """

    inputs: int

    def __post_init__(self) -> None:
        self.kept: list[Tensor] = []
        self.rows: list[tuple[Tensor, Tensor]] = []

    def add(self, matrix: Matrix, constant: Tensor, kept: Tensor, slope: Tensor) -> Matrix:
        """Note the neurons of one more layer, whose inputs are these functions.

        Args:
            matrix: (neurons, inputs + kept neurons before).
            constant: (neurons,), what is added to it.
            kept: (neurons,), which of them stay.
            slope: (neurons,), the slope of a ReLU that does not.

        Returns:
            The rows of those that stay.
        """
        self.kept.append(kept)
        if bool(kept.all()):
            self.rows.append((constant.new_zeros(0, matrix.matrix.shape[1]), constant[:0]))
            return matrix
        dense = matrix.dense()
        self.rows.append((dense[~kept] * slope[~kept, None], constant[~kept] * slope[~kept]))
        return Matrix.of(dense[kept])

    def apply(self, matrix: Matrix, constant: Tensor) -> tuple[Matrix, Tensor]:
        """Functions of the input and of all neurons as functions of the input and of the kept ones."""
        if all(bool(kept.all()) for kept in self.kept):
            return matrix, constant
        dense, start = matrix.dense(), self.inputs
        parts, carried = [dense[:, :start].clone()], constant.clone()
        for kept, (rows, constants) in zip(self.kept, self.rows, strict=True):
            here = dense[:, start : start + len(kept)]
            start += len(kept)
            others = here[:, ~kept]
            if others.shape[1]:
                done, taken = others @ rows, 0  # (functions, inputs + kept neurons before)
                for part in parts:
                    part.add_(done[:, taken : taken + part.shape[1]])
                    taken += part.shape[1]
                carried += others @ constants
            parts.append(here[:, kept])
        return Matrix.of(torch.cat(parts, 1)), carried
