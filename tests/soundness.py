"""Random small networks decided by the search and by MILP: no contradiction, every verdict checked by force.

The long form: ``python tests/soundness.py --networks 2000`` (``make soundness``).
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from steadynet.attack import descend
from steadynet.problems import Problems, Result, Verdict, is_counterexample
from steadynet.verifiers.base import Verifier
from steadynet.verifiers.branch_and_bound import BranchAndBound
from steadynet.verifiers.milp import Milp

torch.set_num_threads(1)
TIE = "zero to within rounding"  # the one reason for which a small property may stay undecided


@dataclass
class Case:
    """A network, images with their labels, and a radius; ``refutable`` where a counterexample was planted."""

    kind: str
    seed: int
    network: nn.Module
    images: Tensor
    labels: Tensor
    radius: float
    refutable: bool = False

    def problems(self) -> Problems:
        return Problems.around(self.network, self.images, self.labels, self.radius)


class Block(nn.Module):
    """x + f(x), or x and f(x) side by side."""

    def __init__(self, inner: nn.Module, join: str) -> None:
        super().__init__()
        self.inner, self.join = inner, join

    def forward(self, images: Tensor) -> Tensor:
        inner = self.inner(images)
        return inner + images if self.join == "sum" else torch.cat([images, inner], 1)


class Needle(nn.Module):
    """Small random scores, and for class 1 a bump of height 2 within ``width`` of ``place``: flat everywhere else."""

    def __init__(self, features: int, place: Tensor, width: float) -> None:
        super().__init__()
        self.scores = nn.Sequential(nn.Linear(features, 5), nn.ReLU(), nn.Linear(5, 3))
        self.scores[2].weight.data.mul_(0.1)
        self.scores[2].bias.data = torch.tensor([1.5, 0.0, 0.0])
        self.away = nn.Linear(features, 2 * features)
        self.away.weight.data = torch.cat([torch.eye(features), -torch.eye(features)])
        self.away.bias.data = torch.cat([-place, place])
        self.bump = nn.Linear(2 * features, 1)
        self.bump.weight.data.fill_(-1 / width)
        self.bump.bias.data.fill_(1.0)
        self.spread = nn.Linear(1, 3, bias=False)
        self.spread.weight.data = torch.tensor([[0.0], [4.0], [0.0]])

    def forward(self, images: Tensor) -> Tensor:
        return self.scores(images) + self.spread(torch.relu(self.bump(torch.relu(self.away(images)))))


def number(low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, ()))


def activation() -> nn.Module:
    return nn.LeakyReLU(float(torch.rand(()) * 0.5)) if number(0, 5) == 0 else nn.ReLU()


def dense(features: int, classes: int) -> nn.Sequential:
    widths = [features, *(number(2, 8) for _ in range(number(1, 3)))]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), activation()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


def convolutional(classes: int) -> nn.Sequential:
    channels, stride = number(1, 2), number(1, 2)
    padding = 1 if stride == 2 else number(0, 1)
    layers = [
        nn.Conv2d(1, channels, number(2, 3), stride=stride, padding=padding, bias=number(0, 1) > 0),
        activation(),
    ]
    extra = number(0, 5)
    if extra == 0:
        layers.append(nn.MaxPool2d(2, 1, number(0, 1)))
    elif extra == 1:
        layers.append(nn.AvgPool2d(2, 1))
    elif extra == 2:
        layers += [nn.Conv2d(channels, 2, 2, padding=1, dilation=number(1, 2)), activation()]
    features = nn.Sequential(*layers)(torch.zeros(1, 1, 4, 4))[0].numel()
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(features, number(2, 5)), nn.ReLU(), nn.LazyLinear(classes))


def residual(classes: int) -> nn.Sequential:
    inner = nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), nn.BatchNorm2d(2))
    inner[1].running_mean.normal_()
    inner[1].running_var.uniform_(0.3, 2)
    block = Block(inner, "sum" if number(0, 1) else "concatenation")
    first = nn.Conv2d(1, 2, 2, stride=2)
    return nn.Sequential(first, nn.ReLU(), block, activation(), nn.Flatten(), nn.LazyLinear(classes))


def maxima(classes: int) -> nn.Sequential:
    """Maxima on top of ReLUs, of a convolution, or of the image: then there is no ReLU at all."""
    before: list[nn.Module] = [[], [nn.Conv2d(1, 2, 2)], [nn.Conv2d(1, 2, 2), nn.ReLU()]][number(0, 2)]
    pool = nn.MaxPool2d(number(2, 3), number(1, 2), number(0, 1), ceil_mode=number(0, 1) > 0)
    head = [nn.LazyLinear(number(2, 4)), nn.ReLU()] if number(0, 1) else []
    return nn.Sequential(*before, pool, nn.Flatten(), *head, nn.LazyLinear(classes))


def strengthened(network: nn.Module, factor: float) -> None:
    for module in network.modules():
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            module.weight.data.mul_(factor)


def linears(network: nn.Module) -> list[nn.Linear]:
    return [module for module in network.modules() if isinstance(module, nn.Linear)]


def zero_weights(network: nn.Sequential) -> None:
    layer = linears(network)[number(0, len(linears(network)) - 1)]
    layer.weight.data *= torch.rand_like(layer.weight) < float(torch.rand(()))
    if layer.bias is not None:
        layer.bias.data *= number(0, 1)


def duplicated(network: nn.Sequential) -> None:
    for layer in linears(network)[:-1]:
        half = len(layer.weight) // 2
        layer.weight.data[half : 2 * half], layer.bias.data[half : 2 * half] = layer.weight[:half], layer.bias[:half]


def dead(network: nn.Sequential) -> None:
    layer = linears(network)[0]
    layer.bias.data[torch.rand_like(layer.bias) < 0.7] = -50.0


def on_zero(network: nn.Sequential) -> None:
    """Integer weights and no biases, with images and radii on a grid: bounds and margins are exactly 0 often."""
    for layer in linears(network):
        layer.weight.data = torch.randint(-1, 2, layer.weight.shape).float()
        layer.bias.data.zero_()


def thin_margin(network: nn.Sequential) -> None:
    """All classes compute the same, give or take 1e-7 or nothing."""
    last = linears(network)[-1]
    last.weight.data[:] = last.weight[0].clone()
    last.bias.data[:] = last.bias[0] + torch.randint(-2, 3, last.bias.shape) * (1e-7 if number(0, 1) else 0.0)


def stable(network: nn.Sequential) -> None:
    for layer in linears(network)[:-1]:
        layer.bias.data += 30.0


def cancelling(network: nn.Sequential) -> None:
    """Large biases that the next layer's cancel: float32 loses digits."""
    first, second = linears(network)[:2]
    large = 10.0 ** number(2, 4)
    first.bias.data += large
    second.bias.data -= large * second.weight.data.sum(1)


def scaled(network: nn.Sequential) -> None:
    factor = 10.0 ** number(-4, 4)
    for layer in linears(network):
        layer.bias.data.mul_(factor)
    linears(network)[0].weight.data.mul_(factor)


DEGENERATE: dict[str, Callable[[nn.Sequential], None]] = {
    "zero weights": zero_weights,
    "duplicated": duplicated,
    "dead": dead,
    "on zero": on_zero,
    "thin margin": thin_margin,
    "stable": stable,
    "cancelling": cancelling,
    "scaled": scaled,
}
ON_IMAGES = {"convolutional": convolutional, "residual": residual, "max pool": maxima}
KINDS = ["dense", *ON_IMAGES, "no relu", "needle", *DEGENERATE]


def needle(seed: int) -> Case:
    features = number(2, 4)
    images, radius = torch.rand(2, features) * 0.4 + 0.3, 0.05 + 0.2 * float(torch.rand(()))
    place = images.mean(0)
    images = torch.stack([place + (torch.rand(features) * 2 - 1) * radius * 0.9, place - radius * 0.8])
    network = Needle(features, place, 10.0 ** -number(2, 4))
    return Case("needle", seed, network, images, torch.zeros(2, dtype=torch.long), radius, refutable=True)


def make(seed: int) -> Case:
    """The case of a seed; the kinds take turns."""
    torch.manual_seed(seed)
    kind, classes = KINDS[seed % len(KINDS)], number(2, 4)
    if kind == "needle":
        return needle(seed)
    features = number(1, 5)
    shape: tuple[int, ...] = (1, 4, 4) if kind in ON_IMAGES else (features,)
    if kind in ON_IMAGES:
        network = ON_IMAGES[kind](classes)
    elif kind == "no relu":
        network = nn.Sequential(nn.Linear(features, 3), nn.Linear(3, classes))
    else:
        network = dense(features, classes)
    network(torch.zeros(2, *shape))
    network.eval()
    strengthened(network, 1 + 2 * float(torch.rand(())))
    DEGENERATE.get(kind, lambda network: None)(network)
    images, radius = torch.rand(3, *shape), 10.0 ** float(torch.rand(()) * 4 - 4)
    if kind == "on zero":
        images, radius = torch.randint(0, 5, images.shape) / 4, number(0, 4) / 8
    labels = network(images).argmax(1)
    if number(0, 9) == 0:
        labels = torch.randint(0, classes, labels.shape)
    elif kind != "on zero" and number(0, 1):
        radius = near_the_edge(network, images, labels, radius)
    return Case(kind, seed, network, images, labels, radius)


def near_the_edge(network: nn.Module, images: Tensor, labels: Tensor, radius: float) -> float:
    """A radius close to where a short attack begins to succeed: properties that are hard to decide."""
    low, high = 0.0, 1.0
    for _ in range(7):
        middle = (low + high) / 2
        problems = Problems.around(network, images[:1], labels[:1], middle)
        ends = attacked(problems, 0, images[:1].repeat(4, *[1] * (images.dim() - 1)), steps=8)
        low, high = (low, middle) if bool((network(ends).argmax(1) != labels[0]).any()) else (middle, high)
    return high * (0.85 + 0.25 * float(torch.rand(()))) if high < 1 else radius


def points_of(problems: Problems, index: int) -> Tensor:
    """Points of a box: corners, random ones, mixtures, and the ends of strong descents on every margin."""
    region = problems.region[index : index + 1]
    lower, upper = region.lower.flatten(), region.upper.flatten()
    size = len(lower)
    bits = torch.tensor(list(itertools.product([0, 1], repeat=size))) if size <= 8 else torch.rand(400, size).round()
    inner = torch.rand(1500, size)
    mixed = torch.where(torch.rand(500, size) < 0.5, torch.rand(500, size), torch.rand(500, size).round())
    weights = torch.cat([bits.float(), inner, mixed])
    points = torch.where(weights == 1, upper, torch.where(weights == 0, lower, lower + weights * (upper - lower)))
    points = torch.minimum(torch.maximum(points, lower), upper).view(-1, *region.lower.shape[1:])
    return torch.cat([points, attacked(problems, index, points[torch.randperm(len(points))[:40]])])


def attacked(problems: Problems, index: int, start: Tensor, steps: int = 40) -> Tensor:
    """The ends of descents on every margin of one property."""
    network, label = problems.network, int(problems.labels[index])
    region = problems.region[torch.full((len(start),), index)]
    width, found = float((region.upper - region.lower).max()), []
    with torch.no_grad():
        rows = torch.eye(network(start[:1]).shape[1])
    for other in range(len(rows)):
        if other != label:
            row = rows[label] - rows[other]
            found.append(
                descend(
                    lambda tried, row=row: network(tried) @ row,
                    region,
                    start.clone(),
                    steps=steps,
                    step_size=width / 4,
                    shrink=True,
                )
            )
    return torch.cat(found)


def complaints(case: Case, results: dict[str, list[Result]]) -> list[str]:
    """Everything that is wrong with the verdicts on a case."""
    problems, wrong = case.problems(), []
    for index in range(len(problems)):
        mine = {name: of_all[index] for name, of_all in results.items()}
        verdicts = {result.verdict for result in mine.values()}
        if {Verdict.SAT, Verdict.UNSAT} <= verdicts:
            wrong.append(f"image {index}: {mine} contradict each other")
        if Verdict.UNSAT in verdicts and (case.refutable or sampled(problems, index)):
            wrong.append(f"image {index}: unsat, but there is a counterexample: {mine}")
        for name, result in mine.items():
            wrong += [f"image {index}: {name}: {what}" for what in _of_one(problems, index, result)]
    return wrong


def sampled(problems: Problems, index: int) -> bool:
    """Whether sampling finds a counterexample."""
    points = points_of(problems, index)
    with torch.no_grad():
        candidates = points[problems.network(points).argmax(1) != problems.labels[index]]
    return any(is_counterexample(problems, index, point) for point in candidates)


def _of_one(problems: Problems, index: int, result: Result) -> list[str]:
    if result.verdict == Verdict.SAT:
        point = result.counterexample
        replays = point is not None and is_counterexample(problems, index, point)
        return [] if replays else ["a counterexample that does not replay"]
    decided = result.verdict == Verdict.UNSAT or TIE in result.reason
    return [] if decided else [f"{result.verdict.value}: {result.reason}"]


def check(case: Case, verifiers: dict[str, Verifier]) -> tuple[dict[str, list[Result]], list[str]]:
    """Results and complaints."""
    results = {name: verifier(case.problems()) for name, verifier in verifiers.items()}
    return results, complaints(case, results)


def verifiers(timeout: float = 20.0) -> dict[str, Verifier]:
    """The two that must never contradict each other; the search with so few attacks that it has to search."""
    return {
        "branch_and_bound": BranchAndBound(timeout=timeout, restarts=1, attack_steps=5, batch=64),
        "milp": Milp(timeout=timeout),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kinds", action="store_true", help="count verdicts by kind of network, too")
    options = parser.parse_args()
    start, counts, failures = time.perf_counter(), Counter(), 0
    for seed in range(options.first, options.first + options.networks):
        case = make(seed)
        results, wrong = check(case, verifiers())
        counts.update((name, result.verdict.value) for name, of_all in results.items() for result in of_all)
        if options.kinds:
            counts.update((name, case.kind, result.verdict.value) for name, rest in results.items() for result in rest)
        failures += bool(wrong)
        for line in wrong:
            print(f"seed {seed} ({case.kind}): {line}", flush=True)
    for key, count in sorted(counts.items(), key=str):
        print(" ".join(key), count)
    print(f"{options.networks} networks in {time.perf_counter() - start:.0f} s, {failures} with complaints")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
