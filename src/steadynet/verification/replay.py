"""Counterexamples are replayed before a verdict says that there is one."""

from __future__ import annotations

from dataclasses import replace

from steadynet.devices import full_precision
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.verification.properties import Guarantee, Properties, Result, Verdict, is_counterexample


def replay_counterexample(properties: Properties, index: int, result: Result) -> Result:
    """Return the result with its guarantee; a ``sat`` whose counterexample does not replay becomes an ``error``.

    Every ``sat``, whichever verifier it comes from, passes through this check.
    """
    if result.verdict is not Verdict.SAT:
        return result.stated()
    with evaluation_mode(properties.network), full_precision(properties.images.device):
        if result.counterexample is not None and is_counterexample(properties, index, result.counterexample):
            return replace(result.stated(), guarantee=Guarantee.REPLAYED)
    return replace(
        result, verdict=Verdict.ERROR, counterexample=None, reason="the counterexample given does not replay"
    ).stated()
