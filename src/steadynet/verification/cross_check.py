"""The same properties through several verifiers. If two verifiers contradict each other, the evidence is stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steadynet.data import Images
from steadynet.errors import UserError
from steadynet.files import write_json
from steadynet.graph.rounding import Arithmetic
from steadynet.interchange.onnx.files import load_model
from steadynet.interchange.onnx.runtime import runtime_function
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.interchange.vnnlib.robustness import write_robustness
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.runs.tensors import save_tensors
from steadynet.runs.trained import TrainedNetwork
from steadynet.verification.properties import Guarantee, Properties, Result, Verdict
from steadynet.verification.replay import replay_counterexample
from steadynet.verification.summary import VerdictCounts
from steadynet.verification.verifiers import Verifier

Settings = dict[str, dict[str, str]]  # by verifier and by setting


@dataclass(frozen=True)
class Contradiction:
    """A property that some verifiers proved, and others refuted with a counterexample that replays."""

    eps: float
    position: int  # among the images that are verified
    refuted_by: list[str]
    proved_by: list[str]


@dataclass(frozen=True)
class VerifierResult:
    """The result of one verifier on one property, as the summary holds it."""

    verdict: Verdict
    seconds: float
    decided_by: str
    reason: str
    arithmetic: Arithmetic | None
    guarantee: Guarantee | None

    @classmethod
    def of(cls, result: Result) -> VerifierResult:
        """Return what the summary holds of a result."""
        return cls(
            result.verdict,
            round(result.seconds, 6),
            result.decided_by,
            result.reason,
            result.arithmetic,
            result.guarantee,
        )


@dataclass(frozen=True)
class PropertyResults:
    """One property, the test image ``index`` at radius ``eps``, with one result per verifier."""

    eps: float
    index: int
    label: int
    results: dict[str, VerifierResult]


@dataclass(frozen=True)
class Evidence(PropertyResults):
    """A contradiction, with all that is needed to find out which verifier is wrong."""

    refuted_by: list[str]
    proved_by: list[str]
    wrong: list[str]  # the verifiers whose proof is refuted, whatever the rounding
    scores_of_the_counterexample: dict[str, list[float]]  # by PyTorch and by ONNX Runtime
    settings: Settings
    evidence: str  # the folder with the network, the property and the counterexample


@dataclass(frozen=True)
class VerifierTotal(VerdictCounts):
    """How many properties have each verdict by one verifier, and the seconds that all of them took."""

    seconds: float


@dataclass(frozen=True)
class CrossCheckSummary:
    """All results of a cross-check. ``contradictions`` is empty if the verifiers agree."""

    run: str
    data: str
    verifiers: Settings
    properties: list[PropertyResults]
    totals: dict[str, VerifierTotal]
    contradictions: list[Evidence]

    def to_json(self) -> dict[str, Any]:
        """Return the summary as ``steadynet cross-check --json`` prints it."""
        return asdict(self)


@dataclass
class CrossCheck:
    """Some test images at some radii, decided by several verifiers.

    A property is a radius and a position in ``index``. :attr:`results` holds the results by (verifier, radius,
    position).

    Args:
        trained: The network, and the run directory for the evidence of contradictions.
        test: The test images.
        index: The indices of the images to verify, in ``test``.
        radii: The radii ε.
        verifiers: Two or more verifiers.
        data: The name of the data set.

    Raises:
        UserError: There are fewer than two different verifiers.

    Example:
        >>> from steadynet.runs.directory import RunDirectory
        >>> from steadynet.verification.verifiers import make_verifier
        >>> network = torch.nn.Sequential(torch.nn.Linear(1, 2, bias=False))
        >>> _ = network[0].weight.data.copy_(torch.tensor([[1.0], [-1.0]]))
        >>> trained = TrainedNetwork(network, {}, RunDirectory(Path("run")))
        >>> test = Images(torch.tensor([[0.5]]), torch.tensor([0]))
        >>> verifiers = [make_verifier(name, {"timeout": 5.0}) for name in ("branch_and_bound", "milp")]
        >>> check = CrossCheck(trained, test, torch.tensor([0]), [0.01], verifiers, "by hand")
        >>> check.decide()
        >>> [result.verdict.value for result in check.results.values()], check.contradictions()
        (['unsat', 'unsat'], [])
    """

    trained: TrainedNetwork
    test: Images
    index: Tensor
    radii: Sequence[float]
    verifiers: Sequence[Verifier]
    data: str
    results: dict[tuple[str, float, int], Result] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.pixels, self.labels = self.test.pixels(self.index), self.test.labels[self.index]
        self.names = [verifier.name for verifier in self.verifiers]
        if len(set(self.names)) < 2:
            raise UserError(f"a cross-check needs two verifiers, not {' and '.join(self.names) or 'none'}")
        if len(set(self.names)) < len(self.names):
            raise UserError(f"two verifiers have the same name ({', '.join(self.names)}): give each a name of its own")

    def __len__(self) -> int:
        return len(self.verifiers) * len(self.radii) * len(self.index)

    def decide(self, on_result: Callable[[str], None] = lambda verifier: None) -> None:
        """Decide every property with every verifier, one verifier after the other.

        Args:
            on_result: Called after each result with the name of its verifier.
        """
        for verifier in self.verifiers:
            for eps in self.radii:
                torch.manual_seed(0)
                self._decide(verifier, eps, on_result)

    def _decide(self, verifier: Verifier, eps: float, on_result: Callable[[str], None]) -> None:
        properties = self._properties(eps)

        def record(position: int, result: Result) -> None:
            self.results[verifier.name, eps, position] = replay_counterexample(properties, position, result)
            on_result(verifier.name)

        verifier.verify(properties, record)

    def contradictions(self) -> list[Contradiction]:
        """Return the properties that are ``sat`` by one verifier and ``unsat`` by another."""
        found = []
        for eps, position in self._positions():
            refuted_by = self._verifiers_with(Verdict.SAT, eps, position)
            proved_by = self._verifiers_with(Verdict.UNSAT, eps, position)
            if refuted_by and proved_by:
                found.append(Contradiction(eps, position, refuted_by, proved_by))
        return found

    def store_evidence(self, found: Contradiction) -> Evidence:
        """Write the evidence of a contradiction into the run directory: files, results and the counterexample.

        PyTorch and ONNX Runtime both compute the scores of the counterexample. If both give it another label, the
        proofs are wrong.
        """
        eps, position = found.eps, found.position
        property_results = self._property_results(eps, position)
        folder = self.trained.run.cross_check(property_results.index, eps)
        point = self.results[found.refuted_by[0], eps, position].counterexample
        assert point is not None  # ``replay_counterexample`` accepts no ``sat`` without one
        save_tensors(
            folder / "counterexample.safetensors", {"input": point}, {"eps": eps, "index": property_results.index}
        )
        scores = self._replay(point, folder)
        region, label = self._properties(eps).region, property_results.label
        classes = len(scores["PyTorch"])
        write_robustness(folder / "property.vnnlib", region.lower[position], region.upper[position], label, classes)
        replays = all(int(np.argmax(values)) != label for values in scores.values())
        evidence = Evidence(
            **vars(property_results),
            refuted_by=found.refuted_by,
            proved_by=found.proved_by,
            wrong=found.proved_by if replays else [],
            scores_of_the_counterexample=scores,
            settings=self._settings(),
            evidence=str(folder),
        )
        write_json(folder / "evidence.json", asdict(evidence))
        return evidence

    def summary(self) -> CrossCheckSummary:
        """Return all results, and store the evidence of each contradiction. All properties must be decided."""
        return CrossCheckSummary(
            run=str(self.trained.run.path),
            data=self.data,
            verifiers=self._settings(),
            properties=[self._property_results(eps, position) for eps, position in self._positions()],
            totals={name: self._total(name) for name in self.names},
            contradictions=[self.store_evidence(found) for found in self.contradictions()],
        )

    def _positions(self) -> Iterator[tuple[float, int]]:
        return ((eps, position) for eps in self.radii for position in range(len(self.index)))

    def _properties(self, eps: float) -> Properties:
        return Properties.around(self.trained.network, self.pixels, self.labels, eps)

    def _settings(self) -> Settings:
        return {verifier.name: verifier.described_settings() for verifier in self.verifiers}

    def _verifiers_with(self, verdict: Verdict, eps: float, position: int) -> list[str]:
        return [name for name in self.names if self.results[name, eps, position].verdict is verdict]

    def _property_results(self, eps: float, position: int) -> PropertyResults:
        results = {name: self.results[name, eps, position] for name in self.names}
        return PropertyResults(
            eps=eps,
            index=int(self.index[position]),
            label=int(self.labels[position]),
            results={name: VerifierResult.of(result) for name, result in results.items()},
        )

    def _total(self, name: str) -> VerifierTotal:
        results = [self.results[name, eps, position] for eps, position in self._positions()]
        counts = VerdictCounts.of(result.verdict for result in results)
        return VerifierTotal(**vars(counts), seconds=sum(result.seconds for result in results))

    def _replay(self, point: Tensor, folder: Path) -> dict[str, list[float]]:
        """Return the scores of a point by PyTorch and, if the network can be exported, by ONNX Runtime."""
        network = self.trained.network
        with torch.no_grad(), evaluation_mode(network):
            scores = {"PyTorch": network(point[None])[0].tolist()}
        model = folder / "model.onnx"
        try:
            export_onnx(network, tuple(point.shape), model)
        except UserError:  # then no external verifier could read the network either
            return scores
        return scores | {"ONNX Runtime": runtime_function(load_model(model))(point[None].numpy())[0].tolist()}
