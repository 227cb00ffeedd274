"""Settings as users give them, in a file or as flags, before they are checked and completed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steadynet import objectives
from steadynet.errors import UserError
from steadynet.files import read_toml
from steadynet.training.notation import parse_phases

Table = Mapping[str, Any]  # settings by name


@dataclass(frozen=True)
class GivenSettings:
    """What a user says about a training; :func:`~steadynet.training.settings.resolve` makes it complete.

    Attributes:
        values: Settings by name. A setting of a method holds for every part of the method that has it.
        methods: Settings of single parts of the method: ``{"nbc": {"beta": 2.0}}``, in a file ``[methods.nbc]``.
    """

    values: Table = field(default_factory=dict)
    methods: Mapping[str, Table] = field(default_factory=dict)

    @classmethod
    def parse(cls, content: Table) -> GivenSettings:
        """Read the content of a settings file, or of a run's ``config.toml``.

        Raises:
            UserError: ``methods`` is not a table of tables.
        """
        # A run's own configuration also holds what its data decided. A new training decides that again.
        values = {name: value for name, value in content.items() if name not in ("methods", "input")}
        methods = content.get("methods", {})
        if not isinstance(methods, Mapping) or not all(isinstance(table, Mapping) for table in methods.values()):
            raise UserError("methods holds a table for each method: [methods.nbc]")
        return cls(values, methods)

    def overridden_by(self, other: GivenSettings) -> GivenSettings:
        """Return these settings with those of ``other`` on top: flags override a file.

        >>> file = GivenSettings.parse({"phases": "rs:9", "seed": 1, "methods": {"rs": {"steps": 5}}})
        >>> file.overridden_by(GivenSettings({"method": "rs", "steps": 7}))
        GivenSettings(values={'seed': 1, 'method': 'rs', 'steps': 7}, methods={'rs': {}})
        """
        flags = other.values
        # One of them replaces the other: phases say each method and its epochs.
        replaced = {"phases"} if "method" in flags else {"method", "epochs"} if "phases" in flags else set()
        values = {name: value for name, value in self.values.items() if name not in replaced} | dict(flags)
        kept = {
            part: {name: value for name, value in table.items() if name not in flags}
            for part, table in self.methods.items()
            if not replaced or part in _parts_of(flags)
        }
        return GivenSettings(
            values, kept | {part: {**kept.get(part, {}), **own} for part, own in other.methods.items()}
        )


def _parts_of(flags: Table) -> set[str]:
    """The parts of the methods that flags name by ``method`` or ``phases``."""
    methods = [flags["method"]] if "method" in flags else [phase.method for phase in parse_phases(flags["phases"])]
    return {part for method in methods for part in objectives.parts_of(method)}


def read_settings(path: Path) -> GivenSettings:
    """Read a settings file, such as ``train --config`` takes.

    Raises:
        UserError: The file cannot be read, is not TOML, or its ``methods`` are not tables.
    """
    return GivenSettings.parse(read_toml(path))
