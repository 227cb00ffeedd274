"""STAPS (Mao et al., 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from steadynet.attacks.region import InputRegion
from steadynet.errors import UserError
from steadynet.objectives.base import Batch
from steadynet.objectives.certified import AttackingCertifiedObjective, by_setting
from steadynet.objectives.taps import TAPS
from steadynet.plugins import setting


@dataclass(frozen=True, kw_only=True)
class STAPS(TAPS, AttackingCertifiedObjective):
    """TAPS on SABR's small box of radius τ = λ · ε around the point that PGD finds. λ = 1 is TAPS."""

    name = "staps"
    summary = "taps on sabr's small box"

    box: float = setting(0.4, "λ, the radius of the small box as a share of ε")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.box <= 1:
            raise UserError(f"box = {self.box}: λ lies between 0 and 1")

    @classmethod
    def published(cls, data: str, eps: float) -> dict[str, Any]:
        """Return the settings of TAPS with SABR's λ."""
        return super().published(data, eps) | {"box": by_setting(data, eps, (0.4, 0.6, 0.1, 0.7))}

    def box_of(self, batch: Batch) -> InputRegion:
        """Return the small box around the point that PGD finds."""
        return self.small_box(batch, batch.radius, self.box)
