"""How much a search may spend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Budget:
    """Seconds a property, the attack's steps and restarts, subproblems a batch, bytes a backward pass."""

    timeout: float
    attack_steps: int
    restarts: int
    batch: int
    memory: int
