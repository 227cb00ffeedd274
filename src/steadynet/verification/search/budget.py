"""How much a search may spend."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """What a search may spend.

    Attributes:
        timeout: seconds per property.
        attack_steps: steps of the attack.
        restarts: restarts of the attack.
        batch: subproblems per batch.
        memory: bytes per backward pass.
        now: the clock that counts the seconds.
        condense: whether ReLUs are split on condensed networks.
        programs: whether linear programs bound the subproblems of small networks.
        hints: whether the search notes hints for a proof.
    """

    timeout: float
    attack_steps: int
    restarts: int
    batch: int
    memory: int
    now: Callable[[], float] = time.perf_counter
    condense: bool = True
    programs: bool = True
    hints: bool = False
