"""The instances of VNN-COMP: a network, a property file and a time-out in, a verdict and its evidence out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from steadynet.attacks.pgd import descend
from steadynet.errors import UserError
from steadynet.graph.rounding import Arithmetic
from steadynet.graph.trace import some_weight
from steadynet.interchange.onnx.reader import read_onnx
from steadynet.interchange.onnx.runtime import flat_runtime_functions
from steadynet.interchange.vnnlib.files import read_vnnlib
from steadynet.interchange.vnnlib.property import DeclaredTensor, Vector
from steadynet.interchange.vnnlib.version2 import format_number
from steadynet.verification.proofs.recording import recording
from steadynet.verification.properties import DecidedBy, Guarantee, Reason, Result, Verdict
from steadynet.verification.property_network import BoxProperties, as_robustness, check_numbers, rounded
from steadynet.verification.search.hints import ProofHints
from steadynet.verification.verifiers import make_verifier
from steadynet.verification.verifiers.branch_and_bound import CLOCKS

Hints = dict[bytes, ProofHints]  # per box: its lower and its upper corner as the bytes of float64 numbers

BOXES_AT_ONCE = 64  # boxes of one property that are decided together
DESCENT_STEPS = 20  # towards a clearer counterexample


@dataclass(frozen=True)
class Instance:
    """An instance of VNN-COMP.

    Args:
        network: The network's ONNX file.
        property_file: The VNN-LIB file of the property.
        timeout: Seconds for the whole instance, with reading the files.
    """

    network: Path
    property_file: Path
    timeout: float


@dataclass(frozen=True)
class InstanceResult:
    """The verdict on an instance.

    A ``sat`` has an input of the box, and its outputs as ONNX Runtime computes them. For a property in VNN-LIB 2.0, it
    also has the names, types and shapes that the property gives them.
    """

    verdict: Verdict
    seconds: float = 0.0
    inputs: Vector | None = None
    outputs: Vector | None = None
    decided_by: str = ""
    reason: str = ""
    arithmetic: Arithmetic | None = None  # which arithmetic a proof speaks of
    guarantee: Guarantee | None = None  # what a proof or a counterexample rests on
    declared: tuple[DeclaredTensor, DeclaredTensor] | None = None  # the input and the output, by VNN-LIB 2.0
    hints: Hints | None = field(default=None, compare=False)  # for a proof, if one was asked for

    def text(self) -> str:
        """Return the content of the competition's result file: the verdict and, for ``sat``, the counterexample.

        The counterexample has the form of the property's version of VNN-LIB.

        >>> print(InstanceResult(Verdict.SAT, inputs=np.array([0.5]), outputs=np.array([1.0, 2.0])).text(), end="")
        sat
        ((X_0 0.5)
        (Y_0 1.0)
        (Y_1 2.0))
        >>> declared = DeclaredTensor("X", "float32", (1,)), DeclaredTensor("Y", "float32", (1, 2))
        >>> found = InstanceResult(Verdict.SAT, inputs=np.array([0.5]), outputs=np.array([1.0, 2.0]), declared=declared)
        >>> print(found.text(), end="")
        sat
        X float32 [1]
        0.5
        Y float32 [1,2]
        1.0
        2.0
        """
        lines = [self.verdict.value]
        if self.inputs is None or self.outputs is None:
            pass
        elif self.declared is not None:
            for tensor, values in zip(self.declared, (self.inputs, self.outputs), strict=True):
                lines += [str(tensor), *map(format_number, values.tolist())]
        else:
            cells = [f"(X_{index} {value!r})" for index, value in enumerate(self.inputs.tolist())]
            cells += [f"(Y_{index} {value!r})" for index, value in enumerate(self.outputs.tolist())]
            lines.append("(" + "\n".join(cells) + ")")
        return "\n".join(lines) + "\n"


def decide(instance: Instance, verifier: str = "branch_and_bound", **settings: object) -> InstanceResult:
    """Decide one instance of VNN-COMP.

    Args:
        instance: The files and the time-out.
        verifier: The name of a verifier (``steadynet list verifiers`` shows them), or ``file.py:Class``.
        **settings: Settings of that verifier. Its time-out comes from the instance.

    Returns:
        The verdict. A ``sat`` has a counterexample that ONNX Runtime confirms.

    Raises:
        UserError: A file cannot be read, or the network and the property do not fit together.

    Example:
        >>> from tempfile import mkdtemp
        >>> from steadynet.interchange.onnx.writer import export_onnx
        >>> double = torch.nn.Sequential(torch.nn.Linear(1, 1, bias=False))
        >>> _ = double[0].weight.data.fill_(2.0)
        >>> network, property_file = Path(mkdtemp()) / "double.onnx", Path(mkdtemp()) / "below-3.vnnlib"
        >>> export_onnx(double, (1,), network)
        >>> _ = property_file.write_text(
        ...     "(declare-const X_0 Real) (declare-const Y_0 Real)"
        ...     "(assert (>= X_0 0)) (assert (<= X_0 1)) (assert (>= Y_0 3))"
        ... )
        >>> decide(Instance(network, property_file, timeout=10)).verdict.value
        'unsat'
    """
    return decide_with_hints(instance, verifier, settings, proofs=False)


def decide_with_hints(
    instance: Instance, verifier: str, settings: dict[str, object], *, proofs: bool = True
) -> InstanceResult:
    """Decide one instance as :func:`decide` does. An ``unsat`` carries hints for a proof, if ``proofs`` asks for it."""
    now = CLOCKS[str(settings.get("clock", "wall"))]
    started = now()
    decider = _InstanceDecider(instance, lambda: started + instance.timeout - now(), verifier, settings, proofs)
    result = decider.decide()
    hints = decider.hints if proofs and result.verdict is Verdict.UNSAT else None
    return replace(result, seconds=now() - started, hints=hints)


def combine(boxes: Sequence[Result]) -> InstanceResult:
    """Combine the results of all boxes of an instance, none of which is a counterexample or timed out.

    Args:
        boxes: One result per box. A property without any input has none.

    Returns:
        ``unsat`` if every box is proved, with the weakest guarantee among them; otherwise ``error`` or ``unknown``.
    """
    for verdict in (Verdict.ERROR, Verdict.UNKNOWN):  # an error is tried again, an unknown is not
        for box in boxes:
            if box.verdict is verdict:
                return InstanceResult(verdict, decided_by=box.decided_by, reason=box.reason)
    proofs = [box.stated() for box in boxes]
    arithmetics, guarantees = {proof.arithmetic for proof in proofs}, {proof.guarantee for proof in proofs}
    weakest = [kind for kind in (Guarantee.TOOL, Guarantee.SOLVER) if kind in guarantees]
    return InstanceResult(
        Verdict.UNSAT,
        decided_by=proofs[-1].decided_by if proofs else DecidedBy.NO_INPUT,
        arithmetic=Arithmetic.EXACT if Arithmetic.EXACT in arithmetics else Arithmetic.FLOAT32,
        guarantee=weakest[0] if weakest else Guarantee.CHECKED,
    )


class _InstanceDecider:
    """Decides one instance while ``seconds_left`` says that there is time."""

    def __init__(
        self,
        instance: Instance,
        seconds_left: Callable[[], float],
        verifier: str,
        settings: dict[str, object],
        proofs: bool,
    ) -> None:
        self.seconds_left, self.verifier, self.settings, self.proofs = seconds_left, verifier, settings, proofs
        self.hints: Hints = {}
        self.property = read_vnnlib(instance.property_file)
        self.network = read_onnx(instance.network, self.property.sample_inputs())
        self.dtype = some_weight(self.network).dtype
        self.runtimes = flat_runtime_functions(instance.network)
        self.boxes: list[Result] = []  # of the boxes that are proved, or where more time would not help
        self.again: list[BoxProperties] = []  # boxes whose counterexample does not replay: there may be a clearer one
        self._check_sizes(instance)
        check_numbers(self.property, self.dtype)

    def decide(self) -> InstanceResult:
        """Give each box its share of the time, then share what is left among the boxes that timed out."""
        for disjunct in self.property.disjuncts:
            if not len(disjunct.bound) and not disjunct.is_empty:
                middle = self._inside((disjunct.lower + disjunct.upper) / 2, disjunct.lower, disjunct.upper)
                return self._confirmed(middle, DecidedBy.NO_OUTPUT_CONSTRAINT) or InstanceResult(Verdict.ERROR)
        waiting = [
            properties[start : start + BOXES_AT_ONCE]
            for properties in as_robustness(self.network, self.property)
            for start in range(0, len(properties), BOXES_AT_ONCE)
        ]
        while waiting and self.seconds_left() > 0:
            outcome = self._decide_once(waiting)
            if isinstance(outcome, InstanceResult):
                return outcome
            waiting, self.again = outcome + self.again, []
        if waiting:
            return InstanceResult(Verdict.TIMEOUT)
        return combine(self.boxes)

    def _decide_once(self, waiting: list[BoxProperties]) -> list[BoxProperties] | InstanceResult:
        """Give each box an equal share of the time left. Return the boxes that timed out, or a counterexample."""
        count = sum(map(len, waiting))
        timed_out: list[BoxProperties] = []
        for position, group in enumerate(waiting):
            if self.seconds_left() <= 0:
                return timed_out + waiting[position:]
            verifier = make_verifier(self.verifier, self.settings | {"timeout": self.seconds_left() / count})
            count -= len(group)
            results = (recording(verifier) if self.proofs else verifier)(group.properties)
            for index, result in enumerate(results):
                counterexample = self._take(group, index, result)
                if counterexample is not None:
                    return counterexample
            late = [index for index, result in enumerate(results) if result.verdict is Verdict.TIMEOUT]
            if late:
                timed_out.append(group[late])
        return timed_out

    def _take(self, group: BoxProperties, index: int, result: Result) -> InstanceResult | None:
        """Note the result of one box. Return a result of the instance if it is a confirmed counterexample."""
        if result.verdict is Verdict.SAT:
            confirmed = self._replayed(group, index, result)
            if confirmed is not None:
                return confirmed
            reason = "the counterexample found does not replay on ONNX Runtime"
            if group.tightened:
                self.boxes.append(replace(result, verdict=Verdict.UNKNOWN, reason=reason))
        elif group.tightened and result.verdict is Verdict.UNSAT:
            self.boxes.append(replace(result, verdict=Verdict.UNKNOWN, reason=Reason.ZERO_MARGIN))
        elif result.verdict is not Verdict.TIMEOUT:
            self.boxes.append(result)
            if isinstance(result.hints, ProofHints):
                region = group.properties.region[index : index + 1]
                self.hints[_bytes(region.lower) + _bytes(region.upper)] = result.hints
        return None

    def _replayed(self, group: BoxProperties, index: int, result: Result) -> InstanceResult | None:
        """Replay a counterexample on ONNX Runtime; if that fails, replay a clearer one near it, or ask for another."""
        assert result.counterexample is not None
        lower, upper = group.boxes[index]
        for point in (result.counterexample, self._clearer(group, index, result.counterexample)):
            inside = self._inside(_flat(point), lower, upper)
            confirmed = self._confirmed(inside, result.decided_by)
            if confirmed is not None:
                return confirmed
        if not group.tightened:
            points = [inside, *self.property.sample_inputs()]
            largest = np.max([np.abs(self.runtimes[0](point)) for point in points], axis=0)
            self.again.append(group.for_clear_counterexamples(self.network, index, largest))
        return None

    def _inside(self, point: Vector, lower: Vector, upper: Vector) -> Vector:
        """Return the nearest input of a box, in the network's precision wherever that has a number within the bounds.

        Elsewhere it is a number within the bounds, and the network is run on the nearest one of its own precision.
        """
        least, most = (
            rounded(bound, self.dtype, down=down).double().numpy() for bound, down in ((lower, False), (upper, True))
        )
        nearest = torch.from_numpy(point).to(self.dtype).double().numpy()
        return np.where(least <= most, np.clip(nearest, least, most), np.clip(point, lower, upper))

    def _clearer(self, group: BoxProperties, index: int, point: Tensor) -> Tensor:
        """Descend from a counterexample to a point that violates the property more clearly."""
        properties = group.properties[index : index + 1]
        with torch.no_grad():
            disjunct = int(properties.network(point[None])[0, :-1].argmax())
        width = float((properties.region.upper - properties.region.lower).max())
        return descend(
            lambda tried: -properties.network(tried)[:, disjunct],
            properties.region, point[None], steps=DESCENT_STEPS, step_size=width / 40, shrink=True,
        )[0]  # fmt: skip

    def _confirmed(self, inputs: Vector, decided_by: str) -> InstanceResult | None:
        """Return a ``sat`` if what ONNX Runtime computes, optimised and not, violates the property."""
        found = [run(inputs) for run in self.runtimes]
        for outputs in found:
            if not any(disjunct.satisfied_by(inputs, outputs) for disjunct in self.property.disjuncts):
                return None
        return InstanceResult(
            Verdict.SAT, inputs=inputs, outputs=found[0], decided_by=decided_by, guarantee=Guarantee.REPLAYED,
            declared=self.property.declared,
        )  # fmt: skip

    def _check_sizes(self, instance: Instance) -> None:
        inputs = torch.Size(self.network.input_shape).numel()
        with torch.no_grad():
            outputs = self.network(torch.zeros(1, *self.network.input_shape, dtype=self.dtype)).shape[1]
        wanted = self.property
        if (wanted.input_size, wanted.output_size) != (inputs, outputs):
            raise UserError(
                f"{instance.property_file} speaks of {wanted.input_size} inputs and {wanted.output_size} outputs, "
                f"but {instance.network} has {inputs} and {outputs}"
            )
        if wanted.declared and wanted.declared[0].number_type == "float32" and self.dtype != torch.float32:
            raise UserError(
                f"{instance.property_file} declares float32 inputs, but {instance.network} computes in "
                f"{str(self.dtype).removeprefix('torch.')}"
            )


def _bytes(corner: Tensor) -> bytes:
    return (_flat(corner) + 0.0).tobytes()


def _flat(point: Tensor) -> Vector:
    return point.detach().cpu().double().flatten().numpy()
