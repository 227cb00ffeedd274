"""The verification of a trained network into its run directory. A stored verdict is not computed again."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from steadynet.attacks.pgd import find_counterexamples
from steadynet.data import Images
from steadynet.devices import full_precision
from steadynet.errors import UserError
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.runs.trained import TrainedNetwork
from steadynet.verification.guarantees import count_guarantees
from steadynet.verification.proofs.folder import ProofFolder, robustness_file
from steadynet.verification.proofs.recording import recording
from steadynet.verification.properties import Properties, Result, Verdict, is_counterexample
from steadynet.verification.replay import replay_counterexample
from steadynet.verification.summary import RadiusSummary, VerificationSummary, summarise
from steadynet.verification.verdict_key import property_keys
from steadynet.verification.verdicts import Row, VerdictFile, load_counterexample, read_rows
from steadynet.verification.verifiers import Verifier

ATTACKED_AT_ONCE = 512  # images
CPU = torch.device("cpu")


@dataclass
class RunVerification:
    """The verification of a run's network on some test images at some radii.

    A property is a radius and a position in ``index``. :attr:`rows` holds the verdicts by (radius, position).

    Args:
        trained: The network and its run directory, where ``verdicts.csv`` and the counterexamples are written.
        test: The test images.
        index: The indices of the images to verify, in ``test``.
        radii: The radii ε.
        verifier: The verifier that decides.
        data: The name of the data set, which is stored with each verdict.
        device: Where the verifier computes. A counterexample that it finds there must replay on the CPU, too.
        proofs: Where to write a proof of each proved property. Stored verdicts without one are then decided anew.

    Example:
        >>> from pathlib import Path
        >>> from tempfile import mkdtemp
        >>> from steadynet.runs.directory import RunDirectory
        >>> from steadynet.verification.verifiers import make_verifier
        >>> network = torch.nn.Sequential(torch.nn.Linear(1, 2, bias=False))
        >>> _ = network[0].weight.data.copy_(torch.tensor([[1.0], [-1.0]]))
        >>> trained = TrainedNetwork(network, {}, RunDirectory(Path(mkdtemp())))
        >>> test = Images(torch.tensor([[0.5], [0.05]]), torch.tensor([0, 0]))
        >>> verifier = make_verifier("branch_and_bound", {"timeout": 5.0})
        >>> verification = RunVerification(trained, test, torch.tensor([0, 1]), [0.01], verifier, "by hand")
        >>> verification.decide()
        >>> verification.counts()
        'unsat 2  sat 0  timeout 0'
    """

    trained: TrainedNetwork
    test: Images
    index: Tensor
    radii: Sequence[float]
    verifier: Verifier
    data: str
    device: torch.device = CPU
    proofs: ProofFolder | None = None
    rows: dict[tuple[float, int], Row] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.run, self.network = self.trained.run, self.trained.network
        if self.device.type != "cpu":
            self.network = copy.deepcopy(self.network).to(self.device)
        self.pixels, self.labels = self.test.pixels(self.index), self.test.labels[self.index]
        self.keys = property_keys(self.trained.network, self.pixels, self.labels, self.radii, self.verifier)
        self.settings = self.verifier.settings_line()
        if self.proofs is not None:
            self.verifier = recording(self.verifier)
            self.proofs.export(self.trained.network, tuple(self.pixels.shape[1:]))

    def __len__(self) -> int:
        return len(self.index) * len(self.radii)

    def counts(self) -> str:
        """Return how many properties have each verdict so far, as text."""
        found = Counter(row.verdict for row in self.rows.values())
        always_shown = (Verdict.UNSAT, Verdict.SAT, Verdict.TIMEOUT)
        return "  ".join(
            f"{verdict.value} {found[verdict]}" for verdict in Verdict if verdict in always_shown or found[verdict]
        )

    def decide(self, fresh: bool = False, on_row: Callable[[Row], None] = lambda row: None) -> None:
        """Decide the properties that are not decided yet. Each is stored as soon as it is decided.

        Args:
            fresh: Decide all properties anew, also those with a stored verdict.
            on_row: Called with the row of every property, first with those decided earlier.

        Raises:
            UserError: ``verdicts.csv`` is damaged or cannot be written.
        """
        file = self._load_stored(fresh)
        for row in self.rows.values():
            on_row(row)
        for eps in self.radii:
            undecided = [position for position in range(len(self.index)) if (eps, position) not in self.rows]
            if undecided:
                self._decide(eps, torch.tensor(undecided), file, on_row)

    def summary(self, pgd_steps: int) -> VerificationSummary:
        """Summarise the verdicts, and attack the same images with PGD to compare.

        Args:
            pgd_steps: Steps of the attack.

        Returns:
            The figures per radius. All properties must have been decided.
        """
        radii = []
        for eps in self.radii:
            rows = [self.rows[eps, position] for position in range(len(self.index))]
            radii.append(RadiusSummary(eps, summarise(rows), pgd_steps, self.attack(eps, pgd_steps)))
        return VerificationSummary(
            run=str(self.run.path),
            data=self.data,
            verifier=self.verifier.name,
            timeout=self.verifier.timeout,
            settings=self.settings,
            verdicts_file=str(self.run.verdicts),
            radii=tuple(radii),
            reasons=dict(Counter(row.reason for row in self.rows.values() if row.reason)),
            guarantees=count_guarantees(self.rows.values()),
        )

    def attack(self, eps: float, steps: int) -> int:
        """Attack all images with PGD, and return how many keep their label.

        If a counterexample is found for an image that was proved robust, a warning asks to report the defect.
        """
        properties, kept = self._properties(eps), 0
        for positions in torch.arange(len(properties)).split(ATTACKED_AT_ONCE):
            part = self._on_device(properties[positions])
            with full_precision(self.device):
                found, points = find_counterexamples(part.network, part.images, part.labels, part.region, steps=steps)
            for row in found.nonzero().flatten().tolist():
                self._warn_if_proved(eps, int(positions[row]), properties, points[row])
            kept += int((~found).sum())
        return kept

    def _load_stored(self, fresh: bool) -> VerdictFile:
        """Load the stored verdicts that can be used again, and drop those that will be decided anew.

        Rows of other properties, verifiers or settings stay in the file, and so do rows that another process adds.
        """
        places = {(key, eps, int(self.index[position])): (eps, position) for (eps, position), key in self.keys.items()}
        dropped = set()
        for row in read_rows(self.run):
            wanted = places.get((row.key, row.eps, row.index))
            if wanted is None:
                continue
            usable = not fresh and row.counts_for(self.verifier.timeout) and self._replays(row, *wanted)
            if usable and self._is_settled(row, *wanted):
                self.rows[wanted] = row
            else:
                dropped.add(row)
        file = VerdictFile(self.run)
        file.update(lambda rows: [row for row in rows if row not in dropped])
        return file

    def _is_settled(self, row: Row, eps: float, position: int) -> bool:
        """Return whether a stored verdict has the proof that it needs, if any. A proof of something else is removed."""
        if self.proofs is None:
            return True
        content = robustness_file(self._properties(eps), position, self.classes())
        self.proofs.settle(_name(row), content, row.verdict)
        return row.verdict is not Verdict.UNSAT or self.proofs.has(_name(row), content)

    def _replays(self, row: Row, eps: float, position: int) -> bool:
        """Return whether the stored counterexample of a row replays; True for a row without one."""
        if row.verdict is not Verdict.SAT:
            return True
        try:
            point = load_counterexample(self.run, row)
        except UserError:
            return False
        return point.shape == self.pixels.shape[1:] and self._refutes(self._properties(eps), position, point)

    def _properties(self, eps: float) -> Properties:
        return Properties.around(self.trained.network, self.pixels, self.labels, eps)

    def _on_device(self, properties: Properties) -> Properties:
        return properties if self.device.type == "cpu" else properties.moved(self.network, self.device)

    def _refutes(self, properties: Properties, position: int, point: Tensor) -> bool:
        with evaluation_mode(self.trained.network), full_precision(CPU):
            return is_counterexample(properties, position, point.cpu())

    def _decide(self, eps: float, positions: Tensor, file: VerdictFile, on_row: Callable[[Row], None]) -> None:
        properties = self._properties(eps)[positions]
        found: list[tuple[int, Result]] = []  # proofs are written afterwards, so that no property waits for one

        def record(number: int, result: Result) -> None:
            position = int(positions[number])
            if self.proofs is not None:
                found.append((number, result))
            checked = replay_counterexample(properties, number, _on_cpu(result))
            row = self._row(eps, position, checked)
            file.add(row, checked.counterexample)
            self.rows[eps, position] = row
            on_row(row)

        self.verifier.verify(self._on_device(properties), record)
        for number, result in found:
            assert self.proofs is not None
            row = self.rows[eps, int(positions[number])]
            self.proofs.write_robustness(_name(row), properties, number, self.classes(), result)

    def classes(self) -> int:
        """Return how many classes the network has."""
        with torch.no_grad(), evaluation_mode(self.trained.network):
            return int(self.trained.network(self.pixels[:1]).shape[1])

    def _row(self, eps: float, position: int, result: Result) -> Row:
        index, label = int(self.index[position]), int(self.labels[position])
        key, stored = self.keys[eps, position], ""
        if result.counterexample is not None:
            stored = self.run.counterexample(index, eps, key).relative_to(self.run.path).as_posix()
        return Row(
            eps=eps,
            index=index,
            label=label,
            verdict=result.verdict,
            seconds=round(result.seconds, 6),
            margin=result.margin,
            stable_share=result.stable_share,
            stable_method=result.stable_method or "",
            subproblems=result.subproblems,
            decided_by=result.decided_by,
            reason=result.reason,
            counterexample=stored,
            verifier=self.verifier.name,
            timeout=self.verifier.timeout,
            settings=self.settings,
            data=self.data,
            arithmetic=result.arithmetic,
            guarantee=result.guarantee,
            key=key,
        )

    def _warn_if_proved(self, eps: float, position: int, properties: Properties, point: Tensor) -> None:
        row = self.rows.get((eps, position))
        if row and row.verdict is Verdict.UNSAT and self._refutes(properties, position, point):
            warnings.warn(
                f"{row.verifier} proved test image {row.index} at ε {eps:g}, but an attack refutes it: "
                "a defect of the verifier, please report it",
                stacklevel=2,
            )


def _name(row: Row) -> str:
    """Return the name of a property's proof."""
    return f"prop_{row.index}_eps_{row.eps!r}"


def _on_cpu(result: Result) -> Result:
    point = result.counterexample
    return result if point is None else replace(result, counterexample=point.cpu())
