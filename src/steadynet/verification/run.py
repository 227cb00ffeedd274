"""The network of a run verified, property by property, into its run directory; what is decided is not decided again."""

from __future__ import annotations

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from steadynet.attacks.pgd import find_counterexamples
from steadynet.data import Images
from steadynet.devices import full_precision
from steadynet.errors import UserError
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.runs.trained import TrainedNetwork
from steadynet.verification.properties import Properties, Result, Verdict, is_counterexample
from steadynet.verification.verdicts import (
    Row,
    VerdictFile,
    fingerprints,
    load_counterexample,
    read_rows,
    save_counterexample,
)
from steadynet.verification.verifiers import Verifier
from steadynet.verification.verify import replay_counterexample

ATTACKED_AT_ONCE = 512  # images
CPU = torch.device("cpu")


@dataclass
class RunVerification:
    """Some test images at some radii, asked of a run's network: ``rows`` holds what is decided, by radius and image.

    ``index`` names the images by their place in ``test``, the test set of the data called ``data``. The verifier works
    on ``device``; what it finds there counts as a counterexample only if it replays on the CPU, too.
    """

    trained: TrainedNetwork
    test: Images
    index: Tensor
    radii: Sequence[float]
    verifier: Verifier
    data: str
    device: torch.device = CPU
    rows: dict[tuple[float, int], Row] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.run, self.network = self.trained.run, self.trained.network
        if self.device.type != "cpu":
            self.network = copy.deepcopy(self.network).to(self.device)
        self.pixels, self.labels = self.test.pixels(self.index), self.test.labels[self.index]
        self.tasks = fingerprints(self.trained.network, self.pixels)
        self.settings = self.verifier.settings_line()

    def __len__(self) -> int:
        return len(self.index) * len(self.radii)

    def counts(self) -> str:
        """How many properties have each verdict so far, in words."""
        found = Counter(row.verdict for row in self.rows.values())
        usual = (Verdict.UNSAT, Verdict.SAT, Verdict.TIMEOUT)
        return "  ".join(
            f"{verdict.value} {found[verdict]}" for verdict in Verdict if verdict in usual or found[verdict]
        )

    def decide(self, fresh: bool = False, on_row: Callable[[Row], None] = lambda row: None) -> None:
        """Decide what is not decided yet, each property into ``verdicts.csv`` as soon as it is; ``fresh``: all anew.

        ``on_row`` hears of every property, those decided earlier first.
        """
        file = self._take_up(fresh)
        for row in self.rows.values():
            on_row(row)
        for eps in self.radii:
            left = [place for place in range(len(self.index)) if (eps, place) not in self.rows]
            if left:
                self._decide(eps, torch.tensor(left), file, on_row)

    def summary(self, pgd_steps: int) -> dict[str, Any]:
        """The paper's figures a radius, with accuracy under PGD on the same images, and how all was measured."""
        radii = []
        for eps in self.radii:
            rows = [self.rows[eps, place] for place in range(len(self.index))]
            attacked = {"pgd_steps": pgd_steps, "pgd_kept": self.attack(eps, pgd_steps)}
            radii.append({"eps": eps} | summarise(rows) | attacked)
        return {
            "run": str(self.run.path),
            "data": self.data,
            "verifier": self.verifier.name,
            "timeout": self.verifier.timeout,
            "settings": self.settings,
            "verdicts": str(self.run.verdicts),
            "radii": radii,
            "reasons": dict(Counter(row.reason for row in self.rows.values() if row.reason)),
        }

    def _take_up(self, fresh: bool) -> VerdictFile:
        """The run's verdicts: rows that count are taken up, others' rows stay, those to be decided anew go."""
        asked = {
            (task, eps, int(self.index[place]), self.verifier.name, self.settings): (eps, place)
            for eps in self.radii
            for place, task in enumerate(self.tasks)
        }
        kept = []
        for row in read_rows(self.run):
            where = asked.get(row.key)
            if where is None:
                kept.append(row)
            elif not fresh and row.counts_for(self.verifier.timeout) and self._replays(row, *where):
                kept.append(row)
                self.rows[where] = row
        return VerdictFile(self.run, kept)

    def _replays(self, row: Row, eps: float, place: int) -> bool:
        """Whether a stored counterexample is one; a proof has none to show."""
        if row.verdict is not Verdict.SAT:
            return True
        try:
            point = load_counterexample(self.run, row)
        except UserError:
            return False
        return point.shape == self.pixels.shape[1:] and self._refutes(self._problems(eps), place, point)

    def _problems(self, eps: float) -> Properties:
        return Properties.around(self.trained.network, self.pixels, self.labels, eps)

    def _on_device(self, properties: Properties) -> Properties:
        return properties if self.device.type == "cpu" else properties.moved(self.network, self.device)

    def _refutes(self, properties: Properties, place: int, point: Tensor) -> bool:
        with evaluation_mode(self.trained.network), full_precision(CPU):
            return is_counterexample(properties, place, point.cpu())

    def _decide(self, eps: float, places: Tensor, file: VerdictFile, on_row: Callable[[Row], None]) -> None:
        properties = self._problems(eps)[places]

        def record(position: int, result: Result) -> None:
            place = int(places[position])
            row = self._row(eps, place, replay_counterexample(properties, position, _on_cpu(result)))
            file.add(row)
            self.rows[eps, place] = row
            on_row(row)

        self.verifier.verify(self._on_device(properties), record)

    def _row(self, eps: float, place: int, result: Result) -> Row:
        index, label, task = int(self.index[place]), int(self.labels[place]), self.tasks[place]
        stored = ""
        if result.counterexample is not None:
            stored = save_counterexample(self.run, eps, index, label, task, result.counterexample)
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
            task=task,
        )

    def attack(self, eps: float, steps: int) -> int:
        """How many of the images keep their label under PGD; one that was proved and does not is warned of."""
        properties, kept = self._problems(eps), 0
        for places in torch.arange(len(properties)).split(ATTACKED_AT_ONCE):
            part = self._on_device(properties[places])
            with full_precision(self.device):
                found, points = find_counterexamples(part.network, part.images, part.labels, part.region, steps=steps)
            for row in found.nonzero().flatten().tolist():
                self._compare(eps, int(places[row]), properties, points[row])
            kept += int((~found).sum())
        return kept

    def _compare(self, eps: float, place: int, properties: Properties, point: Tensor) -> None:
        row = self.rows.get((eps, place))
        if row and row.verdict is Verdict.UNSAT and self._refutes(properties, place, point):
            warnings.warn(
                f"{row.verifier} proved test image {row.index} at ε {eps:g}, but an attack refutes it: "
                "a defect of the verifier, please report it",
                stacklevel=2,
            )


def _on_cpu(result: Result) -> Result:
    point = result.counterexample
    return result if point is None else replace(result, counterexample=point.cpu())


def summarise(rows: Sequence[Row]) -> dict[str, Any]:
    """The paper's figures of some properties at one radius: counts, and means in seconds; None where there is none.

    Time is the mean over all, Time_U+T over those proved and those out of time.
    """
    counts = {verdict.value: sum(row.verdict is verdict for row in rows) for verdict in Verdict}
    stable = [row.stable_share for row in rows if row.stable_share is not None]
    return {
        "properties": len(rows),
        **counts,
        "unsat_share": _mean([row.verdict is Verdict.UNSAT for row in rows]),
        "stable_share": _mean(stable),
        "stable_properties": len(stable),
        "stable_method": "+".join(sorted({row.stable_method for row in rows if row.stable_method})) or None,
        "time": _mean([row.seconds for row in rows]),
        "time_unsat_timeout": _mean([row.seconds for row in rows if row.verdict in (Verdict.UNSAT, Verdict.TIMEOUT)]),
    }


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
