"""The competition's instances: a network, a property and a time-out in; a verdict and its evidence out."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steadynet.attacks.pgd import descend
from steadynet.errors import UserError
from steadynet.interchange.onnx.reader import read_onnx
from steadynet.interchange.onnx.runtime import flat_runtime_function
from steadynet.interchange.vnnlib.files import read_vnnlib
from steadynet.interchange.vnnlib.property import Vector
from steadynet.verification.properties import Result, Verdict
from steadynet.verification.property_network import Questions, pose
from steadynet.verification.verify import make_verifier

AT_ONCE = 64  # boxes of one property that are decided together
POLISHING_STEPS = 20


@dataclass(frozen=True)
class Instance:
    """What the competition asks: files, and the seconds that all of it may take."""

    network: Path
    question: Path
    timeout: float


@dataclass(frozen=True)
class Answer:
    """A verdict; for ``sat`` an input of the property's box, and what ONNX Runtime computes from it."""

    verdict: Verdict
    seconds: float = 0.0
    inputs: Vector | None = None
    outputs: Vector | None = None
    decided_by: str = ""
    reason: str = ""

    def text(self) -> str:
        """The competition's form: the verdict, and for ``sat`` the counterexample.

        >>> print(Answer(Verdict.SAT, inputs=np.array([0.5]), outputs=np.array([1.0, 2.0])).text(), end="")
        sat
        ((X_0 0.5)
        (Y_0 1.0)
        (Y_1 2.0))
        """
        lines = [self.verdict.value]
        if self.inputs is not None and self.outputs is not None:
            cells = [f"(X_{index} {value!r})" for index, value in enumerate(self.inputs.tolist())]
            cells += [f"(Y_{index} {value!r})" for index, value in enumerate(self.outputs.tolist())]
            lines.append("(" + "\n".join(cells) + ")")
        return "\n".join(lines) + "\n"


def decide(instance: Instance, verifier: str = "branch_and_bound", **settings: object) -> Answer:
    """Decide one instance, reading included in its time; what cannot be read is a ``UserError``."""
    begun = time.perf_counter()
    answer = _Attempt(instance, begun + instance.timeout, verifier, settings).decide()
    return replace(answer, seconds=time.perf_counter() - begun)


class _Attempt:
    """One instance on its way to an answer, which must come before ``end``."""

    def __init__(self, instance: Instance, end: float, verifier: str, settings: dict[str, object]) -> None:
        self.end, self.verifier, self.settings = end, verifier, settings
        self.network, self.reference = read_onnx(instance.network), flat_runtime_function(instance.network)
        self.specification = read_vnnlib(instance.question)
        self.doubts: list[Result] = []
        self.decided_by = "no input"
        _check_sizes(self, instance)

    def left(self) -> float:
        """Seconds left."""
        return self.end - time.perf_counter()

    def decide(self) -> Answer:
        """Each box its share of the time; then what is undecided again, with the time that is left."""
        for case in self.specification.disjuncts:
            if not len(case.bound) and bool(np.all(case.lower <= case.upper)):
                return self._refuted((case.lower + case.upper) / 2, "no constraint on outputs") or Answer(Verdict.ERROR)
        waiting = [
            questions[start : start + AT_ONCE]
            for questions in pose(self.network, self.specification)
            for start in range(0, len(questions), AT_ONCE)
        ]
        while waiting and self.left() > 0:
            found = self._pass(waiting)
            if isinstance(found, Answer):
                return found
            waiting = found
        if waiting:
            return Answer(Verdict.TIMEOUT)
        if self.doubts:
            return Answer(self.doubts[0].verdict, decided_by=self.doubts[0].decided_by, reason=self.doubts[0].reason)
        return Answer(Verdict.UNSAT, decided_by=self.decided_by)

    def _pass(self, waiting: list[Questions]) -> list[Questions] | Answer:
        """What is still undecided after each box had an equal share of the time left, or a counterexample."""
        count = sum(map(len, waiting))
        undecided: list[Questions] = []
        for place, questions in enumerate(waiting):
            if self.left() <= 0:
                return undecided + waiting[place:]
            verifier = make_verifier(self.verifier, self.settings | {"timeout": self.left() / count})
            count -= len(questions)
            results = verifier(questions.properties)
            for index, result in enumerate(results):
                if result.verdict is Verdict.SAT:
                    answer = self._replayed(questions, index, result)
                    if answer is not None:
                        return answer
                    reason = "the counterexample found does not replay on ONNX Runtime"
                    self.doubts.append(replace(result, verdict=Verdict.UNKNOWN, reason=reason))
                elif result.verdict is Verdict.UNSAT:
                    self.decided_by = result.decided_by
                elif result.verdict is not Verdict.TIMEOUT:
                    self.doubts.append(result)
            late = [index for index, result in enumerate(results) if result.verdict is Verdict.TIMEOUT]
            if late:
                undecided.append(questions[late])
        return undecided

    def _replayed(self, questions: Questions, index: int, result: Result) -> Answer | None:
        """The counterexample as ONNX Runtime sees it; one that it does not accept, once more after a descent."""
        assert result.counterexample is not None
        points = [result.counterexample, self._deeper(questions, index, result.counterexample)]
        lower, upper = questions.boxes[index]
        answers = (self._refuted(np.clip(_flat(point), lower, upper), result.decided_by) for point in points)
        return next((answer for answer in answers if answer), None)

    def _deeper(self, questions: Questions, index: int, point: Tensor) -> Tensor:
        """A point near a counterexample that violates the property more clearly."""
        properties = questions.properties[index : index + 1]
        with torch.no_grad():
            case = int(properties.network(point[None])[0, :-1].argmax())
        width = float((properties.region.upper - properties.region.lower).max())
        return descend(
            lambda tried: -properties.network(tried)[:, case],
            properties.region, point[None], steps=POLISHING_STEPS, step_size=width / 40, shrink=True,
        )[0]  # fmt: skip

    def _refuted(self, inputs: Vector, by: str) -> Answer | None:
        outputs = self.reference(inputs)
        if not any(case.satisfied_by(inputs, outputs) for case in self.specification.disjuncts):
            return None
        return Answer(Verdict.SAT, inputs=inputs, outputs=outputs, decided_by=by)


def _flat(point: Tensor) -> Vector:
    return point.detach().cpu().double().flatten().numpy()


def _check_sizes(attempt: _Attempt, instance: Instance) -> None:
    inputs = torch.Size(attempt.network.input_shape).numel()
    with torch.no_grad():
        outputs = attempt.network(torch.zeros(1, *attempt.network.input_shape)).shape[1]
    asked = attempt.specification
    if (asked.input_size, asked.output_size) != (inputs, outputs):
        raise UserError(
            f"{instance.question} speaks of {asked.input_size} inputs and {asked.output_size} outputs, "
            f"but {instance.network} has {inputs} and {outputs}"
        )
