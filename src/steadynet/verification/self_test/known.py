"""What a self-test knows: instances with the truth of each of their properties, and how a verdict is judged by it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from zlib import crc32

import torch

from steadynet.graph.rounding import Arithmetic
from steadynet.verification.properties import Verdict


class Truth(str, Enum):
    """What is known about a property by construction."""

    HOLDS = "holds"  # in exact arithmetic, with a margin clearly above what float32 may round away
    VIOLATED = "violated"  # in exact arithmetic; a float32 input is known that replays as a counterexample
    VIOLATED_EXACTLY = "violated in exact arithmetic"  # no float32 input is known that replays
    VIOLATED_BY_ROUNDING = "violated by rounding"  # it holds in exact arithmetic, but not in float32 in some order

    __str__ = str.__str__


class Outcome(str, Enum):
    """How a verdict compares with the truth."""

    RIGHT = "right"
    UNDECIDED = "undecided"  # timeout or unknown: nothing is claimed
    NOT_SUPPORTED = "not supported"  # error: the verifier refused the network, or failed on it
    WRONG = "wrong"

    __str__ = str.__str__


@dataclass(frozen=True)
class Answer:
    """What a verifier says of one property.

    Attributes:
        verdict: The verdict as the verifier gave it, before any check by others.
        seconds: The time that it took.
        replays: Whether the counterexample of a ``sat`` lies in the region and violates the property.
        arithmetic: Which arithmetic an ``unsat`` speaks of. A verifier that does not say so means exact arithmetic.
        decided_by: The method that decided.
        reason: Why there is no verdict.
    """

    verdict: Verdict
    seconds: float
    replays: bool = False
    arithmetic: Arithmetic | None = None
    decided_by: str = ""
    reason: str = ""


def judge(answer: Answer, truth: Truth) -> Outcome:
    """Compare an answer with the truth.

    A ``sat`` is right if its counterexample replays. An ``unsat`` is right if the property holds in the arithmetic
    that the proof speaks of. What it rests on, our own bounds or a solver's word, makes no difference.

    Args:
        answer: What the verifier says.
        truth: What is known by construction.

    Returns:
        Right, undecided, not supported or wrong.

    >>> judge(Answer(Verdict.UNSAT, 0.1, arithmetic=Arithmetic.FLOAT32), Truth.VIOLATED_BY_ROUNDING).value
    'wrong'
    >>> judge(Answer(Verdict.UNSAT, 0.1, arithmetic=Arithmetic.EXACT), Truth.VIOLATED_BY_ROUNDING).value
    'right'
    >>> judge(Answer(Verdict.SAT, 0.1, replays=False), Truth.VIOLATED).value
    'wrong'
    """
    if answer.verdict is Verdict.SAT:
        return Outcome.RIGHT if answer.replays and truth is not Truth.HOLDS else Outcome.WRONG
    if answer.verdict is Verdict.UNSAT:
        exact_only = truth is Truth.VIOLATED_BY_ROUNDING and answer.arithmetic is not Arithmetic.FLOAT32
        return Outcome.RIGHT if truth is Truth.HOLDS or exact_only else Outcome.WRONG
    return Outcome.NOT_SUPPORTED if answer.verdict is Verdict.ERROR else Outcome.UNDECIDED


class KnownInstance(ABC):
    """One network with one or more properties, and the truth of each.

    Attributes:
        truths: One truth per property.
    """

    truths: tuple[Truth, ...]

    @abstractmethod
    def decide(self, verifier: str, settings: Mapping[str, object]) -> list[Answer]:
        """Let a verifier decide the properties.

        Args:
            verifier: The name of the verifier.
            settings: Its settings.

        Returns:
            One answer per property.
        """

    @abstractmethod
    def save(self, index: int, folder: Path) -> None:
        """Write one property as ``network.onnx`` and ``property.vnnlib`` into a folder that exists."""


class ConstructionError(Exception):
    """The random numbers of a seed give no instance whose truth is certain. The next numbers are tried."""


@dataclass(frozen=True)
class Family:
    """A family of instances.

    Args:
        name: The name, in one word.
        kinds: The function that makes an instance of each kind, from PyTorch's global random numbers. It raises
            ``ConstructionError`` if the truth of what it made is not certain.
        share: How many instances of each kind there are for each one that the user asks for. Families whose instances
            take long to make have a smaller share.
    """

    name: str
    kinds: Mapping[str, Callable[[], KnownInstance]]
    share: float = 1.0

    def count(self, networks: int) -> int:
        """Return how many instances of each kind there are if the user asks for ``networks``; at least one."""
        return max(1, round(networks * self.share))

    def make(self, kind: str, seed: int) -> KnownInstance:
        """Make the instance of a kind and a seed, always the same one. The global random numbers stay untouched."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1_000_003 * seed + crc32(kind.encode()) % 1_000_003)
            for _ in range(ATTEMPTS):
                try:
                    return self.kinds[kind]()
                except ConstructionError:
                    continue
        raise RuntimeError(f"no instance of the kind '{kind}' can be made from seed {seed}")


ATTEMPTS = 100
