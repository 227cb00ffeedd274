"""Backward passes that end at the second convolution of a network as if they went on: the first layers as one function.

With z₁ the inputs of the first ReLUs r and z₂ = W₂·r(z₁) + b₂, write r(z₁) = s·z₁ + p with s the slope of the upper
line. Then p is zero where a ReLU is stable, and elsewhere

    (α − s)·z₁ ≤ p ≤ t,

with α the slope of the lower line and t the shift of the upper one. What is left of z₂ is linear in the input, and one
matrix G for all passes says how: z₂ = c + G·d + W₂·p. A pass that arrives with coefficients A needs A·G and, for the
few unstable ReLUs alone, B = A·W₂: where B is negative, B·p ≥ B·t, and where it is positive, B·p ≥ B·(α − s)·z₁, with
z₁ = c₁ + W₁·d. These are the bounds of a pass that goes on to the input, with far fewer products, but for a little
more of counted rounding.

Everything that rounds is counted: in the rest of z₁ and of z₂ (:mod:`steadynet.bounds.symbolic`), which is multiplied
by |A|, and in what :func:`exact_end` adds to it for the sums of a pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.row_blocks import Blocks, CompressedRows
from steadynet.bounds.sparse_layers import MapNeurons, SparseConvolution, coefficients_of_input
from steadynet.bounds.symbolic import SymbolicPass, SymbolicValue
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Convolution, ReLU
from steadynet.graph.rounding import LONG_SUM, LONGEST_SUM, gamma, underflow_unit

SECOND = 3  # the position of the second convolution's value: behind a convolution and its ReLU
_SLACK = 1.25  # times each error: covers the rounding of the errors themselves, and products of two of them


@dataclass(frozen=True)
class Opened:
    """The unstable ReLUs of the first layer, each as s·z₁ + p.

    Attributes:
        behind: W₂ between them and the neurons of z₂, (unstable, neurons).
        height: t, (unstable, 1), at least p.
        turn: α − s, (unstable, 1).
        centre: c₁, (unstable, 1).
        radius: (unstable, 1), at least |z₁ − c₁ − W₁·d|.
        before: W₁ between the input and them, (inputs, unstable).
    """

    behind: Blocks | CompressedRows
    height: Tensor
    turn: Tensor
    centre: Tensor
    radius: Tensor
    before: Blocks | CompressedRows


@dataclass(frozen=True)
class ExactEnd:
    """Neurons z₂ = centre + G·d + W₂·p + rest with |d| ≤ half and |rest| ≤ room, on the box of one property.

    Attributes:
        matrix: G, (inputs, neurons).
        half: (inputs, 1).
        centre: (neurons, 1).
        room: (neurons, 1), with what rounding may add.
        lost: (1,), what underflow may take from a bound.
        opened: the unstable ReLUs; None if there are none.
    """

    is_exact: ClassVar[bool] = True

    matrix: CompressedRows
    half: Tensor
    centre: Tensor
    room: Tensor
    lost: Tensor
    opened: Opened | None

    def lower(self, functions: LinearFunctions, owner: Tensor | None) -> Tensor:
        """Lower bounds of functions of the neurons, (n,) in float64, with every rounding counted."""
        columns = functions.coefficients.t().contiguous()
        own = (columns * self.centre - columns.abs() * self.room).sum(0, dtype=torch.float64)
        on_input = self.matrix @ columns
        if self.opened is not None:
            behind = self.opened.behind @ columns
            negative = behind.clamp_max(0)
            positive = (behind - negative) * self.opened.turn
            terms = negative * self.opened.height + positive * self.opened.centre
            own += (terms - positive.abs() * self.opened.radius).sum(0, dtype=torch.float64)
            on_input += self.opened.before @ positive
        return own - (on_input.abs_() * self.half).sum(0, dtype=torch.float64) - self.lost


def exact_end(graph: Graph, symbolic: SymbolicPass, neurons: MapNeurons) -> ExactEnd | None:
    """The end of passes at some neurons of the second convolution, on the box of one property.

    Args:
        graph: the network, a chain that begins with a convolution, its ReLU and another convolution.
        symbolic: the symbolic intervals of these layers.
        neurons: the neurons.

    Returns:
        The end; None if the symbolic intervals do not reach that far.
    """
    first, relu, second = (graph.producer(position).operation for position in range(1, SECOND + 1))
    if not (isinstance(first, Convolution) and isinstance(relu, ReLU) and isinstance(second, Convolution)):
        return None
    value = symbolic.without_triangles(SECOND, second)
    if value is None or value.coefficients is None:
        return None
    lines, input_of_relu = symbolic.lines[SECOND - 1], symbolic.values[SECOND - 2]
    turn, height = lines.lower_slope - lines.upper_slope, lines.upper_shift
    unstable = ~(height <= 0)
    height, turn = (torch.where(unstable, size, 0.0) for size in (height, turn))
    room, lost = _rounding(first, second, value, input_of_relu, height, turn, symbolic.half)
    image = tuple(symbolic.half.shape[1:])
    known = value.coefficients.flatten(4).permute(1, 2, 3, 0, 4)[0].flatten(0, 1)  # (places, channels, window)
    known = known[torch.from_numpy(neurons.places), torch.from_numpy(neurons.channels)]
    opened = MapNeurons.where(unstable[0])

    def of(size: Tensor, chosen: MapNeurons) -> Tensor:
        return size[0].flatten()[chosen.elements, None]

    return ExactEnd(
        CompressedRows(coefficients_of_input(known, value.patch, neurons, image)),
        symbolic.half[0].flatten(1).t().reshape(-1, 1),
        of(value.centre, neurons),
        of(room, neurons),
        lost,
        None
        if not len(opened)
        else Opened(
            SparseConvolution(second, opened, neurons, is_first=False).transposed,
            of(height, opened),
            of(turn, opened),
            of(input_of_relu.centre, opened),
            of(input_of_relu.radius, opened),
            SparseConvolution(first, MapNeurons.all_of(image), opened, is_first=True).transposed,
        ),
    )


def _rounding(
    first: Convolution,
    second: Convolution,
    value: SymbolicValue,
    input_of_relu: SymbolicValue,
    height: Tensor,
    turn: Tensor,
    half: Tensor,
) -> tuple[Tensor, Tensor]:
    """What the rest of each neuron and the rounding of a pass cost per unit of |A|, and what underflow may take.

    The sums of a pass are A·G, B = A·W₂ and B·W₁; each is off by at most γ of its length times the sum of its terms'
    sizes. In B, sizes are at most |A|·|W₂|, so all of them are multiples of |A|.
    """
    dtype, patch = value.centre.dtype, value.patch
    overlap = [-(-size // stride) for size, stride in zip(patch.size, patch.stride, strict=True)]
    lengths = [
        value.centre.shape[1] * overlap[0] * overlap[1],
        *(layer.weight[:, 0].numel() for layer in (second, first)),
    ]
    of_matrix, of_behind, of_before = (_SLACK * gamma(length + 8, dtype) + 2 * LONG_SUM for length in lengths)
    of_centre = _SLACK * gamma(16, dtype) + 2 * LONG_SUM
    steepest, largest = turn.abs(), input_of_relu.largest
    behind = second.spread(height + steepest * largest)
    before = second.spread(steepest * input_of_relu.spread)
    rounded = of_matrix * value.spread + of_centre * value.largest + of_behind * behind + of_before * before
    underflow = 16 * (sum(lengths) + 16) * underflow_unit(dtype)
    total = 1 + half.flatten(1).sum(1) + (height + largest).flatten(1).sum(1)
    seen = 1 + second.spread(torch.ones_like(height))
    room = (value.radius + rounded) * (1 + _SLACK * max(of_matrix, of_behind)) + underflow * seen * total.view(
        -1, 1, 1, 1
    )
    numbers = value.centre[0].numel() + height[0].numel() + half[0].numel()
    sizes = (value.largest + behind).flatten(1).sum(1, dtype=torch.float64)
    lost = underflow * (sizes + numbers * total.double())
    if max(value.centre[0].numel(), height[0].numel(), half[0].numel()) > LONGEST_SUM:
        lost = torch.full_like(lost, torch.inf)
    return room, lost
