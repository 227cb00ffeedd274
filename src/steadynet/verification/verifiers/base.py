"""What a verifier is: properties in, results out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from steadynet.errors import UserError
from steadynet.plugins import setting, settings_of
from steadynet.verification.properties import Properties, Result

MAY_BE_ZERO = ("restarts", "attack_steps")  # no attack


@dataclass(frozen=True, kw_only=True)
class Verifier(ABC):
    """A way to decide properties. A subclass is one file: ``name``, ``summary``, settings as fields, and ``verify``."""

    name: ClassVar[str]
    summary: ClassVar[str]

    timeout: float = setting(60.0, "seconds a property may take")

    def __post_init__(self) -> None:
        if not self.timeout > 0:
            raise UserError(f"timeout = {self.timeout:g} must be larger than 0")
        for entry in settings_of(type(self)):
            value, least = getattr(self, entry.name), 0 if entry.name in MAY_BE_ZERO else 1
            if isinstance(value, int) and not isinstance(value, bool) and value < least:
                raise UserError(f"{entry.name} = {value} must be {least} or more")

    @abstractmethod
    def verify(self, properties: Properties, on_result: Callable[[int, Result], None]) -> None:
        """Decide every problem, telling ``on_result`` of each as soon as it is decided."""

    def __call__(self, properties: Properties) -> list[Result]:
        """All results, in order."""
        found: dict[int, Result] = {}
        self.verify(properties, found.__setitem__)
        return [found[index] for index in range(len(properties))]
