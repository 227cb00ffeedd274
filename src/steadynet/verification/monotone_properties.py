"""A network that is monotone in a feature: two copies of it, on inputs that differ in this feature only.

The longer network reads an input x of n numbers and one more number t ≥ 0. Its first layers compute x and x', which is
x with t added to the feature, at most to the upper limit of the box. Then come the two copies, and their difference. So
every pair in the box is a pair (x, t), and every pair (x, t) is a pair in the box.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.claims import Monotone
from steadynet.devices import full_precision
from steadynet.errors import UserError
from steadynet.graph.graph import Graph, Node
from steadynet.graph.graph_network import GraphNetwork
from steadynet.graph.operations import Dense, Operation, ReLU, Sum
from steadynet.graph.rearrangements import Reshape
from steadynet.interchange.vnnlib.property import Disjunct, VnnlibProperty
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.verification.properties import Guarantee, Result, Verdict
from steadynet.verification.property_network import as_robustness
from steadynet.verification.verifiers import Verifier


def decide_monotone(
    network: nn.Module, graph: Graph, outputs: int, box: InputRegion, claim: Monotone, verifier: Verifier
) -> Result:
    """Decide whether an output is monotone in a feature inside one box.

    Args:
        network: The network.
        graph: Its graph.
        outputs: How many outputs it has.
        box: The box, (1, *image).
        claim: The claim.
        verifier: Decides it.

    Returns:
        The result. A counterexample is a pair (2, *image), and was replayed: the network's outputs there violate the
        claim.

    Raises:
        UserError: There is no such feature, or no such output.
    """
    shape = tuple(box.lower.shape[1:])
    feature = _place(claim.feature, shape)
    if not 0 <= claim.output < outputs:
        raise UserError(f"there is no output {claim.output}: the network has {outputs}, 0 to {outputs - 1}")
    lower, upper = box.lower.flatten(), box.upper.flatten()
    longer = _with_two_copies(graph, shape, feature, upper, claim, outputs)
    low, high = (side.double().cpu().numpy() for side in (lower, upper))
    width = high[feature] - low[feature]
    violated = Disjunct(np.append(low, 0.0), np.append(high, width), np.array([[1.0]]), np.array([-claim.tolerance]))
    asked = VnnlibProperty(len(lower) + 1, 1, (violated,))
    network_of_pairs = GraphNetwork(longer, (len(lower) + 1,))
    (found,) = [result for part in as_robustness(network_of_pairs, asked) for result in verifier(part.properties)]
    return _replayed(network, found, box, feature, claim)


def _place(feature: int | tuple[int, ...], shape: tuple[int, ...]) -> int:
    """Return the number of a feature in the flat input."""
    place = (feature,) if isinstance(feature, int) else tuple(feature)
    sizes = (math.prod(shape),) if isinstance(feature, int) else shape
    if len(place) != len(sizes) or not all(0 <= at < size for at, size in zip(place, sizes, strict=True)):
        raise UserError(f"there is no feature {feature} in inputs of shape {shape}")
    return int(np.ravel_multi_index(place, sizes))


def _with_two_copies(
    graph: Graph, shape: tuple[int, ...], feature: int, upper: Tensor, claim: Monotone, outputs: int
) -> Graph:
    """Return the graph that computes by how much the output rises from x to x' (falls, if it shall decrease)."""
    count, nodes = len(upper), list[Node]()

    def add(name: str, operation: Operation, *inputs: int) -> int:
        nodes.append(Node(f"monotone.{name}", operation, inputs))
        return len(nodes)

    def copy(source: int, name: str) -> int:
        offset = len(nodes)
        for node in graph.nodes:
            moved = tuple(source if position == 0 else position + offset for position in node.inputs)
            nodes.append(replace(node, name=f"{name}.{node.name}", inputs=moved))
        return len(nodes) if graph.nodes else source

    select = torch.eye(count, count + 1).to(upper)
    grown = select.clone()
    grown[feature, count] = 1.0
    over = grown[[feature]]  # x_i + t, less the upper limit: min(a, u) = a − relu(a − u)
    back = torch.zeros(count, 1).to(upper)
    back[feature] = -1.0
    first = add("first", Reshape(shape), add("x", Dense(select, None), 0))
    excess = add("excess", ReLU(), add("over", Dense(over, -upper[[feature]]), 0))
    limited = add("limited", Sum(), add("grown", Dense(grown, None), 0), add("back", Dense(back, None), excess))
    second = add("second", Reshape(shape), limited)
    row = torch.zeros(1, outputs).to(upper)
    row[0, claim.output] = -1.0 if claim.decreasing else 1.0
    flat = [add("outputs", Reshape((outputs,)), copy(source, name)) for source, name in ((first, "x"), (second, "x'"))]
    add("rise", Sum(), add("above", Dense(row, None), flat[1]), add("below", Dense(-row, None), flat[0]))
    return Graph(tuple(nodes))


def _replayed(network: nn.Module, result: Result, box: InputRegion, feature: int, claim: Monotone) -> Result:
    """Return a result whose counterexample is a pair of inputs that violates the claim; else there is no verdict."""
    if result.verdict is not Verdict.SAT or result.counterexample is None:
        return result.stated()
    point = result.counterexample.flatten()
    pair = point[:-1].to(box.lower).repeat(2, 1)
    grown = (point[feature].double() + point[-1].double()).to(box.lower)
    pair[1, feature] = torch.minimum(torch.maximum(grown, pair[0, feature]), box.upper.flatten()[feature])
    pair = pair.view(2, *box.lower.shape[1:])
    if violates(network, claim, box, pair):
        return replace(result.stated(), counterexample=pair, guarantee=Guarantee.REPLAYED)
    reason = "the counterexample found does not replay"
    return replace(result, verdict=Verdict.UNKNOWN, counterexample=None, reason=reason).stated()


def violates(network: nn.Module, claim: Monotone, box: InputRegion, pair: Tensor) -> bool:
    """Return whether a pair (2, *image) lies in the box (1, *image), differs as it should, and violates the claim."""
    feature = _place(claim.feature, tuple(pair.shape[1:]))
    change = (pair[1] - pair[0]).flatten()
    inside = bool(box.contains(pair[:1])) and bool(box.contains(pair[1:]))
    if not inside or int(change.count_nonzero()) != int(change[feature] != 0) or change[feature] < 0:
        return False
    with evaluation_mode(network), torch.no_grad(), full_precision(pair.device):
        below, above = (float(network(one[None]).double().flatten()[claim.output]) for one in pair)
    return (below - above if claim.decreasing else above - below) <= -claim.tolerance
