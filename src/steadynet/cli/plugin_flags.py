"""The settings of several plug-ins as flags: one flag per setting, divided among the plug-ins that the user chose."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from steadynet.cli.parsing import Parser, add_settings, flag_of, given_settings, typed_values
from steadynet.errors import UserError
from steadynet.plugins import Setting, describe_value, settings_of, split_reference

VERIFIER = "verifier"  # the owner of the verifiers' flags


def merged_settings(plugins: Mapping[str, type]) -> list[Setting]:
    """Return every setting of the plug-ins once.

    The help of a setting names the plug-ins that have it, unless all do. Where their defaults differ, it lists each.

    >>> @dataclasses.dataclass
    ... class Short:
    ...     steps: int = dataclasses.field(default=5, metadata={"help": "steps of the attack"})
    >>> @dataclasses.dataclass
    ... class Long:
    ...     steps: int = dataclasses.field(default=50, metadata={"help": "steps of the attack"})
    >>> @dataclasses.dataclass
    ... class Other:
    ...     pass
    >>> [entry.help for entry in merged_settings({"short": Short, "long": Long, "other": Other})]
    ['long, short: steps of the attack (default: 50 for long; 5 for short)']
    """
    owners: dict[str, dict[str, Setting]] = {}
    for name, plugin in sorted(plugins.items()):
        for entry in settings_of(plugin):
            owners.setdefault(entry.name, {})[name] = entry
    return [_merged(same, len(same) == len(plugins)) for same in owners.values()]


def _merged(owners: Mapping[str, Setting], is_everywhere: bool) -> Setting:
    """Return one setting from those of the same name, by the plug-in that has it."""
    entry = next(iter(owners.values()))
    text = entry.help if is_everywhere else f"{', '.join(owners)}: {entry.help}"
    by_default: dict[str, list[str]] = {}
    for name, own in owners.items():
        by_default.setdefault(describe_value(own.default), []).append(name)
    if len(by_default) == 1:
        return dataclasses.replace(entry, help=text)
    listed = "; ".join(f"{value} for {', '.join(names)}" for value, names in by_default.items())
    return dataclasses.replace(entry, help=f"{text} (default: {listed})", default=None)


def settings_for(arguments: argparse.Namespace, owner: str, plugins: Mapping[str, type]) -> dict[str, dict[str, Any]]:
    """Divide the settings that the user gave among the chosen plug-ins.

    Args:
        arguments: The parsed command line.
        owner: The owner of the flags, as in :func:`~steadynet.cli.parsing.add_settings`.
        plugins: The chosen plug-ins by name.

    Returns:
        For each plug-in, those of the given settings that it has.

    Raises:
        UserError: None of the plug-ins has one of the settings.
    """
    given = given_settings(arguments, owner)
    known = {name: [entry.name for entry in settings_of(plugin)] for name, plugin in plugins.items()}
    usable = list(dict.fromkeys(key for keys in known.values() for key in keys))
    for key in given:
        if key not in usable:
            flags = ", ".join(map(flag_of, usable))
            raise UserError(f"{flag_of(key)} is not a setting of {' or '.join(known)}: there are {flags}")
    return {name: {key: given[key] for key in keys if key in given} for name, keys in known.items()}


def given_verifiers(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the settings that the user gave for each of the chosen verifiers, by the verifier's name.

    Raises:
        UserError: A verifier is unknown, or none of them has one of the settings.
    """
    from steadynet.verification import verifiers

    return settings_for(arguments, VERIFIER, {name: verifiers.named(name) for name in names})


def given_verifier(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the settings that the user gave for the verifier chosen with ``--verifier``."""
    return given_verifiers(arguments, [arguments.verifier])[arguments.verifier]


def add_verifier(parser: Parser) -> None:
    """Add the flag that chooses a verifier."""
    parser.add_argument(
        "--verifier",
        default="branch_and_bound",
        metavar="NAME",
        help="the verifier to use, or file.py:Class; steadynet list verifiers shows all (default: branch_and_bound)",
    )


def add_verifier_settings(parser: Parser, without: tuple[str, ...] = ()) -> None:
    """Add one flag per setting of any verifier, but for those that the command declares itself.

    A verifier in the user's own file has flags, too, if the user chose it.
    """
    from steadynet.verification import verifiers

    typed = [name for flag in ("--verifier", "--verifiers") for name in typed_values(parser.words, flag)]
    own = {name: verifiers.named(name) for name in typed if split_reference(name)}
    settings = [entry for entry in merged_settings(verifiers.available() | own) if entry.name not in without]
    add_settings(parser, VERIFIER, "settings of the verifiers", settings)
