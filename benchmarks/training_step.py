"""How much time of the processor one training step takes.

    python benchmarks/training_step.py [--threads 1] [--batch 128] [--repeats 15] [--certified] [MODEL …]

NBC with the search of the paper (ten steps) and with the search fast (three steps, which are as strong, see
inner_search.py) against the plainest form of the paper's step. With --certified, the certified methods against a
natural step and the attack that sabr and mtl-ibp contain. A step is the loss, its gradient and Adam's update. All forms
are timed in turn, in CPU seconds, and the fastest NBC steps count, so their ratio hardly depends on what the machine
does beside it. Each form of an NBC step has a process of its own: ours runs channels last and keeps freed memory, as
the training loop does.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch
from torch import nn

from plain_nbc import plain_nbc_loss
from steadynet.graph.training_graph import LiveGraph
from steadynet.memory import keep_freed_memory
from steadynet.networks import ARCHITECTURES
from steadynet.networks.preactivations import activations
from steadynet.objectives import Batch, Objective, build
from steadynet.objectives.certified import AttackingCertifiedObjective
from steadynet.objectives.consistency import layer_weights
from stepper import Stepper, in_turn

EPS = {"M": 0.3, "C": 8 / 255}
FORMS = ("plain", "paper", "fast")  # the plainest form, and ours with either search
CERTIFIED = ("ibp", "crown-ibp", "sabr", "mtl-ibp")
TURN = 3  # steps that a form takes before it is the turn of the next
HALF = 0.5  # of ε: a step while it rises has the clean loss, the regulariser and, in crown-ibp, CROWN's margins, too


def step_of(form: str, model: str, batch: int) -> Callable[[], None]:
    """A function that takes one training step."""
    torch.manual_seed(0)
    network: nn.Module = ARCHITECTURES[model].build()
    images = torch.rand(batch, *ARCHITECTURES[model].image_shape)
    labels = torch.randint(0, 10, (batch,))
    eps = EPS[model[0]]
    if form in FORMS[1:]:
        network = copy.deepcopy(network).to(memory_format=torch.channels_last)
        objective = build("nbc", {"nbc": {"search": form}})
        keep_freed_memory()
        compute = lambda: objective(network, images, labels, eps)  # noqa: E731
    else:
        sizes = [layer[0].numel() for layer in activations(network, images[:1]).preactivations]
        gammas = layer_weights(sizes, "rank-power")

        def compute() -> torch.Tensor:
            start = (images + eps * (2 * torch.rand_like(images) - 1)).clamp(0, 1)
            return plain_nbc_loss(network, images, labels, start, eps=eps, gammas=gammas)

    optimiser = torch.optim.Adam(network.parameters(), 1e-4)

    def step() -> None:
        optimiser.zero_grad()
        compute().backward()
        optimiser.step()

    return step


def certified_step(method: str, model: str, batch: int, share: float) -> Callable[[], None]:
    """A function that takes one step of a method at a share of its radius, its graph kept as in the training loop."""
    torch.manual_seed(0)
    network = ARCHITECTURES[model].build().to(memory_format=torch.channels_last)
    images, labels = torch.rand(batch, *ARCHITECTURES[model].image_shape), torch.randint(0, 10, (batch,))
    objective, live = build(method), LiveGraph(network)
    optimiser = torch.optim.Adam(network.parameters(), 1e-4)

    def step() -> None:
        optimiser.zero_grad()
        terms = objective.terms(Batch(network, images, labels, share * EPS[model[0]], share, live))
        torch.stack(list(terms.values())).sum().backward()
        optimiser.step()

    def attack() -> None:
        _attack(objective, Batch(network, images, labels, EPS[model[0]]))

    return step if share else attack


def _attack(objective: Objective, batch: Batch) -> None:
    assert isinstance(objective, AttackingCertifiedObjective)
    objective.attacked(batch, batch.region(True))


def compare_certified(model: str, batch: int, repeats: int) -> None:
    """Print how many natural steps a step of each certified method takes, and how many beyond its attack."""
    steps = {"natural": certified_step("natural", model, batch, 1.0), "attack": certified_step("sabr", model, batch, 0)}
    steps |= {name: certified_step(name, model, batch, 1.0) for name in CERTIFIED}
    steps |= {f"{name}, rising": certified_step(name, model, batch, HALF) for name in CERTIFIED}
    median = medians(steps, repeats)
    for name, seconds in median.items():
        attack = median["attack"] if name.startswith(("sabr", "mtl-ibp")) else 0.0
        beyond = f"{(seconds - attack) / median['natural']:14.2f}" if attack else ""
        print(f"{model:6} {name:18} {1e3 * seconds:9.1f} {seconds / median['natural']:15.2f} {beyond}", flush=True)


def medians(steps: dict[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Median CPU seconds of each step, taken in turn."""
    times: dict[str, list[float]] = {form: [] for form in steps}
    for repeat in range(repeats + 2):
        for form, step in steps.items():
            started = time.process_time()
            step()
            if repeat >= 2:  # the first two warm up
                times[form].append(time.process_time() - started)
    return {form: statistics.median(seconds) for form, seconds in times.items()}


def show(model: str, batch: int, threads: int, repeats: int) -> None:
    """Print the CPU time and the memory of a step in each form."""
    steppers = {form: Stepper(form, model, batch=batch, threads=threads) for form in FORMS}
    in_turn(steppers, 1, 2)  # warms up
    taken = in_turn(steppers, -(-repeats // TURN), TURN)
    plain, paper, fast = (1e3 * min(step.cpu_seconds for step in taken[form]) for form in FORMS)
    memory = " ".join(f"{steppers[form].peak_memory():9.0f}" for form in FORMS)
    for stepper in steppers.values():
        stepper.end()
    print(
        f"{model:6} {plain:9.1f} {paper:9.1f} {plain / paper:6.2f} {fast:9.1f} {plain / fast:6.2f} {memory}", flush=True
    )


def main() -> None:
    """Print one line a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--certified", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.certified:
        print(f"batch {arguments.batch}, {arguments.threads} thread(s), median of {arguments.repeats} steps")
        print(f"{'model':6} {'step':18} {'ms':>9} {'natural steps':>15} {'beyond attack':>14}")
        for model in arguments.models or ["M1"]:
            compare_certified(model, arguments.batch, arguments.repeats)
        return
    print(f"batch {arguments.batch}, {arguments.threads} thread(s), the fastest of {arguments.repeats} steps")
    print(f"{'model':6} {'plain ms':>9} {'paper ms':>9} {'ratio':>6} {'fast ms':>9} {'ratio':>6}", end=" ")
    print(" ".join(f"{f'{form} MiB':>9}" for form in FORMS))
    for model in arguments.models or list(ARCHITECTURES):
        repeats = arguments.repeats if model in ("M1", "M2", "C1", "C2") else max(arguments.repeats // 5, 2)
        show(model, arguments.batch, arguments.threads, repeats)


if __name__ == "__main__":
    main()
