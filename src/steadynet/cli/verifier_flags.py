"""The verifiers' settings as flags."""

from __future__ import annotations

import dataclasses

from steadynet.cli.parsing import Parser, add_flags


def add_verifier_flags(parser: Parser, without: tuple[str, ...] = ()) -> None:
    """One flag a setting of any verifier; its help names the verifiers that have it, unless all do."""
    from steadynet.plugins import Setting, settings_of
    from steadynet.verification import verifiers

    seen: dict[str, tuple[Setting, list[str]]] = {}
    known = verifiers.available()
    for name, plugin in sorted(known.items()):
        for entry in settings_of(plugin):
            seen.setdefault(entry.name, (entry, []))[1].append(name)
    add_flags(
        parser.add_argument_group("the verifiers' own settings"),
        [
            entry if len(names) == len(known) else dataclasses.replace(entry, help=f"{', '.join(names)}: {entry.help}")
            for entry, names in seen.values()
            if entry.name not in without
        ],
    )
