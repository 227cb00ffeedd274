"""The stored result of a self-test: ``steadynet self-test --record FILE`` writes it, ``steadynet report`` shows it."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from steadynet import __version__
from steadynet.files import read_record, write_record
from steadynet.plugins import settings_of
from steadynet.verification.self_test.known import Outcome
from steadynet.verification.self_test.run import FamilyCount, Judgement, SelfTest, SelfTestResult
from steadynet.verification.stored_verifier import as_typed, settings_as_flags
from steadynet.verification.verifiers import Verifier

SHORT = ("monotone", "rounding", "readers")  # families that take a few seconds
SHORT_TIMEOUT = 5.0  # seconds for each property


@dataclass(frozen=True)
class FamilyRecord:
    """How many properties of one family have each outcome."""

    family: str
    tried: int
    right: int
    undecided: int
    not_supported: int
    wrong: int


@dataclass(frozen=True)
class SelfTestRecord:
    """The result of a self-test, and what is needed to repeat it.

    Attributes:
        steadynet: The version that ran it.
        verifier: The name of the verifier.
        settings: Its settings, as ``verdicts.csv`` writes them.
        timeout: The time for each property in seconds.
        networks: How many networks there were of each kind.
        seed: The seed of the first network of each kind.
        families: The outcomes of each family.
        wrong: The wrong verdicts, each in one line.
        command: The command that repeats it.
    """

    steadynet: str
    verifier: str
    settings: str
    timeout: float
    networks: int
    seed: int
    families: tuple[FamilyRecord, ...]
    wrong: tuple[str, ...]
    command: str

    def total(self) -> FamilyRecord:
        """Add the families up."""
        counts = (
            (entry.tried, entry.right, entry.undecided, entry.not_supported, entry.wrong) for entry in self.families
        )
        return FamilyRecord("all", *map(sum, zip(*counts, strict=True)))

    def is_about(self, verifier: Verifier) -> bool:
        """Return whether it tested this verifier, in this version and with these settings."""
        tested = (self.steadynet, self.verifier, self.settings)
        return tested == (__version__, verifier.name, verifier.settings_line())


def record_of(test: SelfTest, result: SelfTestResult, verifier: Verifier) -> SelfTestRecord:
    """Make the record of a finished self-test of a verifier."""
    return SelfTestRecord(
        steadynet=__version__,
        verifier=verifier.name,
        settings=verifier.settings_line(),
        timeout=verifier.timeout,
        networks=test.networks,
        seed=test.seed,
        families=tuple(map(_family, result.families())),
        wrong=tuple(judgement.describe() for judgement in result.wrong()),
        command=_command(test, verifier),
    )


def short_self_test(
    verifier: Verifier, on_network: Callable[[list[Judgement]], None] = lambda _: None
) -> SelfTestRecord:
    """Test a verifier, with its own settings but a short time-out, on the families that take a few seconds."""
    verifier = replace(verifier, timeout=SHORT_TIMEOUT)
    settings = {entry.name: getattr(verifier, entry.name) for entry in settings_of(type(verifier))}
    test = SelfTest(verifier.name, settings, families=SHORT)
    return record_of(test, test.run(on_network), verifier)


def write_self_test(path: Path, record: SelfTestRecord) -> None:
    """Write the record of a self-test as JSON."""
    write_record(path, record)


def read_self_test(path: Path) -> SelfTestRecord:
    """Read the record of a self-test.

    Raises:
        UserError: The file cannot be read, or holds something else.
    """
    return read_record(path, SelfTestRecord)


def _family(count: FamilyCount) -> FamilyRecord:
    outcomes = {outcome: count.of(outcome) for outcome in Outcome}
    return FamilyRecord(
        count.family,
        count.tried,
        outcomes[Outcome.RIGHT],
        outcomes[Outcome.UNDECIDED],
        outcomes[Outcome.NOT_SUPPORTED],
        outcomes[Outcome.WRONG],
    )


def _command(test: SelfTest, verifier: Verifier) -> str:
    words = ["steadynet", "self-test", "--verifier", test.verifier, "--families", *test.families]
    words += ["--networks", str(test.networks), "--seed", str(test.seed), "--timeout", as_typed(verifier.timeout)]
    return shlex.join([*words, *settings_as_flags(verifier)])
