"""The self-test: a verifier decides properties whose truth is known, and each of its verdicts is judged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from steadynet.errors import UserError, one_line
from steadynet.files import write_text
from steadynet.plugins import choose
from steadynet.verification.properties import Verdict
from steadynet.verification.self_test.families import FAMILIES
from steadynet.verification.self_test.known import Answer, Family, KnownInstance, Outcome, Truth, judge


@dataclass(frozen=True)
class Judgement:
    """A verdict on one property, beside the truth.

    Attributes:
        family: The name of the family.
        kind: The kind of network.
        seed: The seed of the network; ``--seed`` with it and ``--networks 1`` make it again.
        index: The position of the property among those of its network.
        truth: What is known by construction.
        answer: What the verifier says.
        outcome: How the two compare.
    """

    family: str
    kind: str
    seed: int
    index: int
    truth: Truth
    answer: Answer
    outcome: Outcome

    def describe(self) -> str:
        """Return the judgement in one line."""
        answer = self.answer
        says = f"{answer.verdict.value}{f' ({answer.decided_by})' if answer.decided_by else ''}"
        if answer.verdict is Verdict.SAT and not answer.replays:
            says += " with a counterexample that does not replay"
        if answer.verdict is Verdict.UNSAT and answer.arithmetic is not None:
            says += f" for {answer.arithmetic} arithmetic"
        return f"{self.family}, {self.kind}, seed {self.seed}, property {self.index}: {self.truth}, but it says {says}"


@dataclass(frozen=True)
class FamilyCount:
    """How many properties of one family, or of all, have each outcome."""

    family: str
    outcomes: Mapping[Outcome, int]

    @property
    def tried(self) -> int:
        """How many properties there were."""
        return sum(self.outcomes.values())

    @property
    def decided(self) -> int:
        """How many properties the verifier proved or refuted, rightly or wrongly."""
        return self.of(Outcome.RIGHT) + self.of(Outcome.WRONG)

    def of(self, outcome: Outcome) -> int:
        """Return how many properties have this outcome."""
        return self.outcomes.get(outcome, 0)


@dataclass(frozen=True)
class SelfTestResult:
    """All judgements of a self-test."""

    judgements: Sequence[Judgement]

    def families(self) -> list[FamilyCount]:
        """Count the outcomes of each family."""
        found: dict[str, Counter[Outcome]] = {}
        for judgement in self.judgements:
            found.setdefault(judgement.family, Counter())[judgement.outcome] += 1
        return [FamilyCount(family, counts) for family, counts in found.items()]

    def total(self) -> FamilyCount:
        """Count the outcomes of all families together."""
        return FamilyCount("all", Counter(judgement.outcome for judgement in self.judgements))

    def wrong(self) -> list[Judgement]:
        """Return the wrong verdicts."""
        return [judgement for judgement in self.judgements if judgement.outcome is Outcome.WRONG]

    def reasons(self) -> list[tuple[Outcome, str, int]]:
        """Count why properties are undecided or not supported, the most frequent reasons first."""
        found = Counter(
            (judgement.outcome, judgement.answer.reason or judgement.answer.verdict.value)
            for judgement in self.judgements
            if judgement.outcome in (Outcome.UNDECIDED, Outcome.NOT_SUPPORTED)
        )
        return [(outcome, reason, count) for (outcome, reason), count in found.most_common()]


@dataclass(frozen=True)
class SelfTest:
    """Properties whose truth is known by construction, for one verifier.

    Args:
        verifier: The name of the verifier.
        settings: Its settings.
        networks: How many networks there are of each kind.
        seed: The seed of the first network of each kind; the next one has the next seed.
        families: The names of the families; all by default.

    Raises:
        UserError: A family is unknown.

    Example:
        >>> result = SelfTest("branch_and_bound", {"timeout": 10}, networks=1, families=["monotone"]).run()
        >>> result.total().tried > 50, result.wrong()
        (True, [])
    """

    verifier: str
    settings: Mapping[str, object]
    networks: int = 1
    seed: int = 0
    families: Sequence[str] = tuple(FAMILIES)

    def __post_init__(self) -> None:
        for name in self.families:
            choose("family", name, FAMILIES)

    def __len__(self) -> int:
        return sum(1 for _ in self._planned())

    def run(
        self, on_network: Callable[[list[Judgement]], None] = lambda _: None, evidence: Path | None = None
    ) -> SelfTestResult:
        """Decide all properties, network by network.

        Args:
            on_network: Called with the judgements of each network.
            evidence: A folder. Each wrong verdict gets a folder in it, with ``network.onnx``, ``property.vnnlib`` and
                ``verdict.txt``.

        Returns:
            All judgements.
        """
        judgements: list[Judgement] = []
        for family, kind, seed in self._planned():
            instance = family.make(kind, seed)
            found = [
                Judgement(family.name, kind, seed, index, truth, answer, judge(answer, truth))
                for index, (truth, answer) in enumerate(
                    zip(instance.truths, self._answers(instance, seed), strict=True)
                )
            ]
            if evidence is not None:
                _save_wrong(instance, found, evidence)
            on_network(found)
            judgements += found
        return SelfTestResult(judgements)

    def _planned(self) -> Iterator[tuple[Family, str, int]]:
        for name in self.families:
            family = FAMILIES[name]
            for number in range(family.count(self.networks)):
                for kind in family.kinds:
                    yield family, kind, self.seed + number

    def _answers(self, instance: KnownInstance, seed: int) -> list[Answer]:
        """Return one answer per property. A verifier that refuses the network, or breaks, has given no verdict."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            try:
                return instance.decide(self.verifier, self.settings)
            except Exception as error:  # the other networks must still be decided
                text = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {one_line(error)}"
                return [Answer(Verdict.ERROR, 0.0, reason=text)] * len(instance.truths)


def _save_wrong(instance: KnownInstance, judgements: Sequence[Judgement], folder: Path) -> None:
    for judgement in judgements:
        if judgement.outcome is Outcome.WRONG:
            words = "".join(letter if letter.isalnum() else " " for letter in judgement.kind).split()
            name = "-".join([judgement.family, *words, str(judgement.seed), str(judgement.index)])
            (folder / name).mkdir(parents=True, exist_ok=True)
            write_text(folder / name / "verdict.txt", judgement.describe() + "\n")
            try:
                instance.save(judgement.index, folder / name)
            except UserError as error:  # ONNX cannot hold this network; its seed makes it again
                write_text(folder / name / "not-written.txt", f"{error}\n")
