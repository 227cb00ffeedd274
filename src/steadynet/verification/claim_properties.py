"""Claims about outputs, decided in boxes around images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.claims import AnyClaim, Claim, Monotone, Vector
from steadynet.devices import full_precision
from steadynet.graph.graph_network import GraphNetwork
from steadynet.graph.translate import graph_of
from steadynet.interchange.vnnlib.property import Disjunct, VnnlibProperty
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.verification.monotone_properties import decide_monotone
from steadynet.verification.properties import Guarantee, Result, Verdict
from steadynet.verification.property_network import as_robustness
from steadynet.verification.verifiers import Verifier
from steadynet.verification.verifiers.base import OnResult
from steadynet.verification.vnncomp import combine


def decide_claim(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    region: InputRegion,
    claim: AnyClaim,
    verifier: Verifier,
    on_result: OnResult,
) -> list[Result]:
    """Decide whether a claim holds in the box of each image.

    ``on_result`` is called once per image, with its index and its result.

    Returns:
        One result per image. A counterexample is replayed: the network's outputs there violate the claim.
    """
    shape = tuple(images.shape[1:])
    with evaluation_mode(network), torch.no_grad(), full_precision(images.device):
        graph = GraphNetwork(graph_of(network, shape), shape)
        outputs = network(images).double().flatten(1).cpu().numpy()
    found = []
    for index, label in enumerate(labels.tolist()):
        box = region[index : index + 1]
        if isinstance(claim, Monotone):
            result = decide_monotone(network, graph.graph, outputs.shape[1], box, claim, verifier)
        else:
            result = _decide_outputs(network, graph, outputs[index], label, box, claim, verifier)
        found.append(result)
        on_result(index, result)
    return found


def _decide_outputs(
    network: nn.Module,
    graph: GraphNetwork,
    outputs: Vector,
    label: int,
    box: InputRegion,
    claim: Claim,
    verifier: Verifier,
) -> Result:
    """Decide a claim about the outputs at one point, in one box; ``outputs`` are those at the image."""
    lower, upper = (corner.double().flatten().cpu().numpy() for corner in (box.lower, box.upper))
    violated = [Disjunct(lower, upper, *pair) for pair in claim.violations(outputs, label)]
    asked = VnnlibProperty(len(lower), len(outputs), tuple(violated))
    results = [result for boxes in as_robustness(graph, asked) for result in verifier(boxes.properties)]
    return _combined([_replayed(network, result, violated) for result in results])


def _replayed(network: nn.Module, result: Result, violated: Sequence[Disjunct]) -> Result:
    """Return a result whose counterexample violates the claim; otherwise there is no verdict."""
    if result.verdict is not Verdict.SAT or result.counterexample is None:
        return result.stated()
    with evaluation_mode(network), torch.no_grad(), full_precision(result.counterexample.device):
        outputs = network(result.counterexample[None])[0].double().flatten().cpu().numpy()
    point = result.counterexample.double().flatten().cpu().numpy()
    if any(disjunct.satisfied_by(point, np.asarray(outputs)) for disjunct in violated):
        return replace(result.stated(), guarantee=Guarantee.REPLAYED)
    reason = "the counterexample found does not replay"
    return replace(result, verdict=Verdict.UNKNOWN, counterexample=None, reason=reason).stated()


def _combined(results: Sequence[Result]) -> Result:
    """Return one result for all ways to violate a claim: a counterexample, or a proof of each."""
    seconds = sum(result.seconds for result in results)
    for verdict in (Verdict.SAT, Verdict.TIMEOUT):
        for result in results:
            if result.verdict is verdict:
                return replace(result, seconds=seconds)
    whole = combine(results)
    return replace(
        results[0],
        verdict=whole.verdict,
        seconds=seconds,
        decided_by=whole.decided_by,
        reason=whole.reason,
        arithmetic=whole.arithmetic if whole.verdict is Verdict.UNSAT else None,
        guarantee=whole.guarantee if whole.verdict is Verdict.UNSAT else None,
    )
