"""How much a search may spend."""

from __future__ import annotations

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
    """

    timeout: float
    attack_steps: int
    restarts: int
    batch: int
    memory: int
