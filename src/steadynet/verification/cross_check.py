"""The same properties through several verifiers: where two contradict each other, the evidence is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steadynet.data import Images
from steadynet.errors import UserError
from steadynet.files import write_json
from steadynet.interchange.onnx.files import load_model
from steadynet.interchange.onnx.runtime import runtime_function
from steadynet.interchange.onnx.writer import export_onnx
from steadynet.interchange.vnnlib.robustness import write_robustness
from steadynet.networks.evaluation_mode import evaluation_mode
from steadynet.runs.tensors import save_tensors
from steadynet.runs.trained import TrainedNetwork
from steadynet.verification.properties import Properties, Result, Verdict
from steadynet.verification.verifiers import Verifier
from steadynet.verification.verify import replay_counterexample


@dataclass(frozen=True)
class Contradiction:
    """A property that some refuted, by a counterexample that replays, and others proved."""

    eps: float
    place: int  # among the images asked
    refuted_by: list[str]
    proved_by: list[str]


@dataclass
class CrossCheck:
    """Some test images at some radii, asked of every verifier; ``results`` by verifier, radius and place.

    ``index`` names the images by their place in ``test``, the test set of the data called ``data``.
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
        names = [verifier.name for verifier in self.verifiers]
        if len(set(names)) < 2:
            raise UserError(f"a cross-check needs two verifiers, not {' and '.join(names) or 'none'}")

    def __len__(self) -> int:
        return len(self.verifiers) * len(self.radii) * len(self.index)

    def pairs(self) -> Iterator[tuple[float, int]]:
        """Radius and place of each property."""
        return ((eps, place) for eps in self.radii for place in range(len(self.index)))

    def decide(self, on_result: Callable[[str], None] = lambda verifier: None) -> None:
        """Ask one verifier after the other; ``on_result`` hears whose result has come."""
        for verifier in self.verifiers:
            for eps in self.radii:
                torch.manual_seed(0)
                self._ask(verifier, eps, self._problems(eps), on_result)

    def _ask(self, verifier: Verifier, eps: float, properties: Properties, on_result: Callable[[str], None]) -> None:
        def record(place: int, result: Result) -> None:
            self.results[verifier.name, eps, place] = replay_counterexample(properties, place, result)
            on_result(verifier.name)

        verifier.verify(properties, record)

    def contradictions(self) -> list[Contradiction]:
        """Where ``sat`` stands against ``unsat``; time-outs, errors and what is unknown contradict nobody."""
        found = []
        for eps, place in self.pairs():
            said = {verdict: self._who_said(verdict, eps, place) for verdict in (Verdict.SAT, Verdict.UNSAT)}
            if all(said.values()):
                found.append(Contradiction(eps, place, said[Verdict.SAT], said[Verdict.UNSAT]))
        return found

    def keep_evidence(self, found: Contradiction) -> dict[str, Any]:
        """Write what shows a contradiction into the run directory: the files, all results and the counterexample.

        The counterexample is run again by PyTorch and by ONNX Runtime: if both give it another label, the proofs are
        wrong.
        """
        eps, place = found.eps, found.place
        index, label = int(self.index[place]), int(self.labels[place])
        folder = self.trained.run.cross_check(index, eps)
        point = self.results[found.refuted_by[0], eps, place].counterexample
        assert point is not None  # ``replay_counterexample`` accepts no ``sat`` without one
        save_tensors(folder / "counterexample.safetensors", {"input": point}, {"eps": eps, "index": index})
        scores = self._replay(point, folder)
        region = self._problems(eps).region
        write_robustness(
            folder / "property.vnnlib", region.lower[place], region.upper[place], label, len(scores["PyTorch"])
        )
        replays = all(int(np.argmax(values)) != label for values in scores.values())
        evidence = {
            **self._described(eps, place),
            "refuted_by": found.refuted_by,
            "proved_by": found.proved_by,
            "wrong": found.proved_by if replays else [],
            "scores_of_the_counterexample": scores,
            "settings": {verifier.name: verifier.described_settings() for verifier in self.verifiers},
            "evidence": str(folder),
        }
        write_json(folder / "evidence.json", evidence)
        return evidence

    def summary(self) -> dict[str, Any]:
        """Every verdict and time, totals a verifier, and the contradictions, whose evidence is written."""
        return {
            "run": str(self.trained.run.path),
            "data": self.data,
            "verifiers": {verifier.name: verifier.described_settings() for verifier in self.verifiers},
            "properties": [self._described(eps, place) for eps, place in self.pairs()],
            "totals": {verifier.name: self._total(verifier.name) for verifier in self.verifiers},
            "contradictions": [self.keep_evidence(found) for found in self.contradictions()],
        }

    def _problems(self, eps: float) -> Properties:
        return Properties.around(self.trained.network, self.pixels, self.labels, eps)

    def _who_said(self, verdict: Verdict, eps: float, place: int) -> list[str]:
        names = [verifier.name for verifier in self.verifiers]
        return [name for name in names if self.results[name, eps, place].verdict is verdict]

    def _described(self, eps: float, place: int) -> dict[str, Any]:
        results = {verifier.name: self.results[verifier.name, eps, place] for verifier in self.verifiers}
        return {
            "eps": eps,
            "index": int(self.index[place]),
            "label": int(self.labels[place]),
            "results": {
                name: {
                    "verdict": result.verdict.value,
                    "seconds": round(result.seconds, 6),
                    "decided_by": result.decided_by,
                    "reason": result.reason,
                }
                for name, result in results.items()
            },
        }

    def _total(self, name: str) -> dict[str, Any]:
        mine = [self.results[name, eps, place] for eps, place in self.pairs()]
        counts = {verdict.value: sum(result.verdict is verdict for result in mine) for verdict in Verdict}
        return {**counts, "seconds": sum(result.seconds for result in mine)}

    def _replay(self, point: Tensor, folder: Path) -> dict[str, list[float]]:
        network = self.trained.network
        with torch.no_grad(), evaluation_mode(network):
            scores = {"PyTorch": network(point[None])[0].tolist()}
        try:
            export_onnx(network, tuple(point.shape), folder / "model.onnx")
        except UserError:  # then no other tool was asked by files, either
            return scores
        return scores | {
            "ONNX Runtime": runtime_function(load_model(folder / "model.onnx"))(point[None].numpy())[0].tolist()
        }
