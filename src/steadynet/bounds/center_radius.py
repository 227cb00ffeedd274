"""Interval bound propagation as centres and radii, for training: the same bounds as ``Graph.intervals``, faster.

An affine layer maps the centre by its weights and the radius by their absolute values; only at a ReLU do the ends
matter. Keeping centre and radius saves the way to ends and back, in values and in gradients.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from steadynet.graph.graph import Graph
from steadynet.graph.operations import Affine, Interval, Operation, ReLU, Sum
from steadynet.graph.pooling import AveragePool
from steadynet.graph.rearrangements import Concat, Pad, Permute, Reshape
from steadynet.networks.input_gradient import like_layout

_LINEAR_AND_MONOTONE = (Reshape, Permute, Pad, Concat, Sum, AveragePool)


class Ball(NamedTuple):
    """Element-wise bounds of one tensor: |value − centre| ≤ radius."""

    centre: Tensor
    radius: Tensor

    @classmethod
    def of(cls, interval: Interval) -> Ball:
        """The ball between two ends."""
        lower, upper = interval
        return cls(torch.lerp(lower, upper, 0.5), (upper - lower) / 2)

    @property
    def interval(self) -> Interval:
        """Its ends."""
        return Interval(self.centre - self.radius, self.centre + self.radius)


def propagate_balls(graph: Graph, box: Interval, shrink: float = 1.0) -> list[Ball]:
    """A ball around every value of the graph over a box, differentiable (once) in the weights.

    With ``shrink`` below 1, radii are multiplied by it after each ReLU. That is a loss of SABR's, not a bound.

    >>> from torch import nn, tensor
    >>> from steadynet.bounds import graph_of
    >>> graph = graph_of(nn.ReLU(), (2,))
    >>> propagate_balls(graph, Interval(tensor([[-1.0, 1.0]]), tensor([[3.0, 2.0]])))[-1].interval
    Interval(lower=tensor([[0., 1.]]), upper=tensor([[3., 2.]]))
    """
    balls = [Ball.of(box)]
    for node in graph.nodes:
        ball = _through(node.operation, [balls[position] for position in node.inputs])
        shrinks = shrink != 1 and isinstance(node.operation, ReLU)
        balls.append(Ball(ball.centre, shrink * ball.radius) if shrinks else ball)
    return balls


def _through(operation: Operation, inputs: list[Ball]) -> Ball:
    if isinstance(operation, Affine):
        return Ball(operation.apply(inputs[0].centre), operation.spread(inputs[0].radius))
    if isinstance(operation, _LINEAR_AND_MONOTONE):
        return Ball(
            operation.apply(*(ball.centre for ball in inputs)), operation.apply(*(ball.radius for ball in inputs))
        )
    if isinstance(operation, ReLU) and operation.slope == 0:
        return Ball(*_RectifiedBall.apply(*inputs[0]))  # type: ignore[no-untyped-call]
    return Ball.of(operation.interval(*(ball.interval for ball in inputs)))


class _RectifiedBall(torch.autograd.Function):
    """The ball between the rectified ends of a ball, in few passes over memory and one layout."""

    @staticmethod
    def forward(ctx: Any, centre: Tensor, radius: Tensor) -> tuple[Tensor, Tensor]:
        upper, lower = (centre + radius).relu_(), (centre - radius).relu_()
        ctx.save_for_backward(lower, upper)
        middle = torch.lerp(lower, upper, 0.5)
        return middle, upper - middle

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_centre: Tensor, of_radius: Tensor) -> tuple[Tensor, Tensor]:
        lower, upper = ctx.saved_tensors
        of_centre, of_radius = like_layout(of_centre, lower), like_layout(of_radius, lower)
        half = torch.lerp(of_centre, of_radius, 0.5)
        of_upper = torch.ops.aten.threshold_backward(half, upper, 0)
        of_lower = torch.ops.aten.threshold_backward(of_centre - half, lower, 0)
        return of_upper + of_lower, of_upper.sub_(of_lower)
