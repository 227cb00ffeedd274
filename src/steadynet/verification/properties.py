"""The properties that verifiers decide, and the results that they return."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass, field, replace
from enum import Enum

import torch
from torch import Tensor, nn

from steadynet.attacks.region import InputRegion
from steadynet.errors import UserError
from steadynet.graph.purity import check_function
from steadynet.graph.rounding import Arithmetic
from steadynet.networks.evaluation_mode import evaluation_mode


class Verdict(str, Enum):
    """The outcome for one property. Each word has exactly one meaning.

    >>> Verdict("unsat") is Verdict.UNSAT
    True
    """

    UNSAT = "unsat"  # proved: the network gives every input of the region the right label
    SAT = "sat"  # refuted: there is a counterexample, and it replays
    TIMEOUT = "timeout"  # not decided within the time-out
    UNKNOWN = "unknown"  # the verifier gave up before its time was over
    ERROR = "error"  # something failed; the result's reason says what


class DecidedBy(str, Enum):
    """The method that decided a property, as ``decided_by`` of a result and of ``verdicts.csv`` names it.

    A verifier that runs another program writes the name of that program instead.
    """

    MISCLASSIFIED = "misclassified"  # the image itself has the wrong label
    CROWN = "crown"
    ATTACK = "attack"
    OPTIMISED_SLOPES = "optimised slopes"
    INPUT_SPLITTING = "halved boxes"
    RELU_SPLITTING = "branch and bound"
    EARLIER_PROOF = "earlier proof"  # the parts of another network's proof, all of them bounded again on this one
    LINEAR_PROGRAM = "linear program"
    MILP_ATTACK = "mixed-integer program"  # branch_and_bound's search for a counterexample by a MILP solver
    MILP = "milp"  # the verifier of that name
    TIMEOUT = "time-out"
    NO_INPUT = "no input"  # every box of a VNN-LIB property is empty
    NO_OUTPUT_CONSTRAINT = "no constraint on outputs"  # any input refutes such a VNN-LIB property

    __str__ = str.__str__


class Guarantee(str, Enum):
    """What a verdict rests on."""

    CHECKED = "checked"  # unsat: proved by our own search, with every rounding counted
    SOLVER = "solver"  # unsat: rests on the word of the MILP solver HiGHS, which computes with tolerances
    TOOL = "tool"  # unsat: the word of another program, or of a plug-in
    REPLAYED = "replayed"  # sat: the network, run on the counterexample, gives it another label

    __str__ = str.__str__


class Reason(str, Enum):
    """Why a verifier gave up, in the same words whichever verifier it was."""

    ZERO_MARGIN = "the smallest margin is zero to within rounding"
    OVERFLOW = "the network may overflow in the region"

    __str__ = str.__str__


@dataclass(frozen=True)
class OutputConstraints:
    """Where a network computes the constraints of a VNN-LIB property, before it takes their maxima.

    Margin i of the property is the largest of ``counts[i]`` numbers: entries i · width, i · width + 1, … of the value
    at ``position`` in the network's graph. So the margin is positive wherever one of them is.

    Args:
        position: The position of the value in the graph.
        counts: How many constraints each disjunct has.
        width: How many entries each disjunct has; those after its constraints repeat the last one.
    """

    position: int
    counts: tuple[int, ...]
    width: int


@dataclass(frozen=True)
class Properties:
    """Robustness properties of one network: each image must keep its label everywhere in its region.

    Args:
        network: The network, which maps images (properties, *shape) to scores (properties, classes).
        images: One image per property, in float32 or float64.
        labels: The label that each image must keep.
        region: The inputs that each property speaks of, one box per property.
        origin: The same properties on the device where they were made, if they were moved. A counterexample must
            be one there, too.
        checked: Whether the network and the labels were checked already. Parts of properties are not checked again.
        constraints: Where the network computes output constraints, if it was made from a VNN-LIB property.

    Raises:
        UserError: The images have another precision than the network, or a lower one than float32; the network does not
            take such images, has noise or state, or changes its images; or it has no such label.

    Example:
        >>> network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
        >>> properties = Properties.around(network, torch.rand(5, 1, 2, 2), torch.tensor([0, 1, 2, 0, 1]), eps=0.1)
        >>> len(properties), len(properties[:2])
        (5, 2)
    """

    network: nn.Module
    images: Tensor
    labels: Tensor
    region: InputRegion
    origin: Properties | None = None
    checked: bool = field(default=False, repr=False)
    constraints: OutputConstraints | None = None

    def __post_init__(self) -> None:
        if self.images.is_floating_point() and torch.finfo(self.images.dtype).bits < 32:
            raise UserError(f"images of {self.images.dtype}: bounds hold for networks in float32 or float64 only")
        if len(self.labels) and not self.checked:
            _check_network(self.network, self.images, self.labels)

    @classmethod
    def around(cls, network: nn.Module, images: Tensor, labels: Tensor, eps: float) -> Properties:
        """Return local robustness properties: the region is the ε-box around each image, clipped to [0, 1]."""
        return cls(network, images, labels, InputRegion.around(images, eps))

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return (
            f"Properties({len(self)} of {type(self.network).__name__}, images of shape {tuple(self.images.shape[1:])})"
        )

    def __getitem__(self, rows: Tensor | slice) -> Properties:
        origin = None if self.origin is None else self.origin[rows.to("cpu") if isinstance(rows, Tensor) else rows]
        images, labels, region = self.images[rows], self.labels[rows], self.region[rows]
        return Properties(self.network, images, labels, region, origin, checked=True, constraints=self.constraints)

    def moved(self, network: nn.Module, device: torch.device) -> Properties:
        """Return the same properties for a copy of the network on another device."""
        images, labels, *corners = (
            tensor.to(device) for tensor in (self.images, self.labels, self.region.lower, self.region.upper)
        )
        region = InputRegion(*corners)
        return Properties(network, images, labels, region, self, checked=True, constraints=self.constraints)

    def with_gradients(self) -> Properties:
        """Return the same properties, of copies where ``torch.inference_mode`` made tensors: attacks need gradients.

        Call it outside that mode.
        """
        weights = itertools.chain(self.network.parameters(), self.network.buffers())
        network = copy.deepcopy(self.network) if any(weight.is_inference() for weight in weights) else self.network
        tensors = self.images, self.labels, self.region.lower, self.region.upper
        if network is self.network and not any(tensor.is_inference() for tensor in tensors):
            return self
        images, labels, *corners = (tensor.clone() if tensor.is_inference() else tensor for tensor in tensors)
        region = InputRegion(*corners)
        return replace(self, network=network, images=images, labels=labels, region=region, checked=True)


def _check_network(network: nn.Module, images: Tensor, labels: Tensor) -> None:
    """Check that the network is a function of such images, and that it has these labels among its classes."""
    if isinstance(network, torch.jit.ScriptModule):
        raise UserError("the network is compiled to TorchScript: give the PyTorch module that it was made from")
    weights = (value for value in (*network.parameters(), *network.buffers()) if value.is_floating_point())
    precision = next((weight.dtype for weight in weights), images.dtype)
    if precision != images.dtype:
        raise UserError(
            f"the network computes in {_name(precision)}, but the images are {_name(images.dtype)}: convert one of them"
        )
    try:
        scores = check_function(network, images)
    except UserError:
        raise
    except Exception:  # a forward that breaks in a way of its own is an error of every property, with its reason
        return
    if scores.dim() != 2:
        raise UserError(f"the network gives an image scores of shape {tuple(scores.shape[1:])}, not one per class")
    if not bool(scores.isfinite().all()):
        raise UserError(
            "the first image has scores that are NaN or infinite: some of the weights are, or the network overflows"
        )
    if scores.shape[1] == 1:
        raise UserError(
            "the network gives an image a single score: give it one score per class (for a yes/no logit z, 0 and z)"
        )
    classes, least, most = scores.shape[1], int(labels.min()), int(labels.max())
    if not 0 <= least <= most < classes:
        wrong = least if least < 0 else most
        raise UserError(f"there is a label {wrong}, but the network has {classes} classes: 0 to {classes - 1}")


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@dataclass(frozen=True)
class Result:
    """The verdict on one property, with its evidence.

    Args:
        verdict: The outcome.
        seconds: The time that this property took, with its share of the work done for several properties at once.
        counterexample: An input of the region that the network gives another label; for ``sat`` only.
        margin: A proved lower bound of the smallest difference between the label's score and another score.
        stable_share: The share of the network's ReLUs that are proved stable in the region.
        stable_method: The bounds behind ``stable_share``, for example ``"crown"``.
        subproblems: How many subproblems the search bounded.
        decided_by: The method that decided the property: a :class:`DecidedBy`, or the name of another program.
        reason: Why there is no verdict, in one line for the user.
        arithmetic: Which arithmetic a proof speaks of; for ``unsat`` only.
        guarantee: What a proof or a counterexample rests on; for ``unsat`` and ``sat`` only.
        hints: What the search leaves for a proof that others can check, if it was asked to.

    Example:
        >>> result = Result(Verdict.UNSAT, seconds=0.2, margin=1.5, decided_by=DecidedBy.CROWN)
        >>> result
        Result(unsat in 0.2 s, crown)
        >>> result.verdict.value, str(result.decided_by), str(result.stated().guarantee)
        ('unsat', 'crown', 'tool')
    """

    verdict: Verdict
    seconds: float
    counterexample: Tensor | None = None
    margin: float | None = None
    stable_share: float | None = None
    stable_method: str | None = None
    subproblems: int = 0
    decided_by: str = ""
    reason: str = ""
    arithmetic: Arithmetic | None = None
    guarantee: Guarantee | None = None
    hints: object = field(default=None, compare=False)

    def __repr__(self) -> str:
        notes = "".join(f", {text}" for text in (self.decided_by, self.reason) if text)
        return f"Result({self.verdict.value} in {self.seconds:.2g} s{notes})"

    def stated(self) -> Result:
        """Return the result with a guarantee. A proof that states none is another program's word on exact arithmetic.

        A ``sat`` gets its guarantee where its counterexample is replayed.
        """
        if self.verdict is Verdict.UNSAT:
            arithmetic, guarantee = self.arithmetic or Arithmetic.EXACT, self.guarantee or Guarantee.TOOL
            return replace(self, arithmetic=arithmetic, guarantee=guarantee)
        kept = self.guarantee if self.verdict is Verdict.SAT else None
        return replace(self, arithmetic=None, guarantee=kept)


def is_counterexample(properties: Properties, index: int, point: Tensor) -> bool:
    """Return whether a point refutes the property ``index``.

    It must lie in the region exactly, and the network, run on this point alone, must give it another label. Properties
    that were moved to another device are checked where they came from, too.
    """
    origin = properties.origin
    if origin is not None:
        with evaluation_mode(origin.network):
            if not is_counterexample(origin, index, point.to(origin.images.device)):
                return False
    single = point[None]
    if not bool(properties.region[index : index + 1].contains(single)):
        return False
    with torch.no_grad():
        return int(properties.network(single).argmax(1)) != int(properties.labels[index])
