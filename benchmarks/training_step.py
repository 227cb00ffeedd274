"""How long one NBC training step takes, against the plainest form of the same step. Run it alone on the machine.

    python benchmarks/training_step.py [--threads 1] [--batch 128] [--repeats 15] [MODEL …]

Both forms are timed in turn in one process, so their ratio stands whatever the machine. A step is the loss of
Algorithm 2 (k = 10), its gradient and Adam's update; ours runs channels last, as the training loop does.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from plain_nbc import plain_nbc_loss
from steadynet.consistency import layer_weights
from steadynet.networks import ARCHITECTURES
from steadynet.objectives import build
from steadynet.preactivations import activations

EPS = {"M": 0.3, "C": 8 / 255}


def step_of(form: str, model: str, batch: int) -> Callable[[], None]:
    """A function that takes one training step."""
    torch.manual_seed(0)
    network: nn.Module = ARCHITECTURES[model].build()
    images = torch.rand(batch, *ARCHITECTURES[model].image_shape)
    labels = torch.randint(0, 10, (batch,))
    eps = EPS[model[0]]
    if form == "ours":
        network = copy.deepcopy(network).to(memory_format=torch.channels_last)
        objective = build("nbc")
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


def compare(model: str, batch: int, repeats: int) -> tuple[float, float]:
    """Median seconds of a step, plain and ours, taken in turn."""
    steps = {form: step_of(form, model, batch) for form in ("plain", "ours")}
    times: dict[str, list[float]] = {form: [] for form in steps}
    for repeat in range(repeats + 2):
        for form, step in steps.items():
            started = time.perf_counter()
            step()
            if repeat >= 2:  # the first two warm up
                times[form].append(time.perf_counter() - started)
    return statistics.median(times["plain"]), statistics.median(times["ours"])


def peak_memory(form: str, model: str, batch: int, threads: int) -> float:
    """MiB that three steps in a fresh process need at their peak, beyond what was there before (Linux only)."""
    code = (
        "import re, torch; from pathlib import Path; from training_step import step_of; "
        f"torch.set_num_threads({threads}); step = step_of({form!r}, {model!r}, {batch}); "
        "status = lambda name: int(re.search(name + r':\\s+(\\d+)', Path('/proc/self/status').read_text())[1]); "
        "Path('/proc/self/clear_refs').write_text('5'); before = status('VmRSS'); "
        "[step() for _ in range(3)]; print((status('VmHWM') - before) / 1024)"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    """Print one line a model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=["M1", "M2", "M3", "C1", "C3"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=15)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"batch {arguments.batch}, k = 10, {arguments.threads} thread(s), median of {arguments.repeats} steps")
    print(f"{'model':6} {'plain ms':>9} {'ours ms':>9} {'ratio':>6} {'plain MiB':>10} {'ours MiB':>9}")
    for model in arguments.models:
        repeats = arguments.repeats if model in ("M1", "M2", "C1", "C2") else max(arguments.repeats // 5, 2)
        plain, ours = compare(model, arguments.batch, repeats)
        memory = [peak_memory(form, model, arguments.batch, arguments.threads) for form in ("plain", "ours")]
        print(
            f"{model:6} {1e3 * plain:9.1f} {1e3 * ours:9.1f} {plain / ours:6.2f} {memory[0]:10.0f} {memory[1]:9.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
