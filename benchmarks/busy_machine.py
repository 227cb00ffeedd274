"""One NBC step on a machine where another process computes, with threads that spin and with threads that sleep.

    python benchmarks/busy_machine.py [--model M1] [--threads 2] [--rounds 10] [--busy 1]

OpenMP's threads spin while they wait for each other, unless OMP_WAIT_POLICY is "passive". The command line lets them
spin for a short while only, if the user has not chosen. Here three processes take training steps in turn, one with each
policy: first by themselves, then beside processes that do nothing but compute. The first two columns say what sleep
costs if the machine is idle otherwise, the last two what it saves on a busy one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys

from steadynet.training.idle_threads import SHORT_SPIN
from stepper import Stepper, in_turn

STEPS = 5  # per turn
POLICIES: dict[str, dict[str, str]] = {
    "spinning": {},  # GCC's library: for some milliseconds
    "ours": SHORT_SPIN,
    "sleeping": {"OMP_WAIT_POLICY": "passive"},
}
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"  # ends with the process that started it


def measure(steppers: dict[str, Stepper], rounds: int) -> dict[str, list[float]]:
    """The seconds of all steps of each process, taken in turn."""
    return {name: [step.seconds for step in steps] for name, steps in in_turn(steppers, rounds, STEPS).items()}


def main() -> None:
    """Print one line per policy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="M1")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--busy", type=int, default=1, help="how many processes compute beside the training")
    arguments = parser.parse_args()
    load = f", load of the machine at the start: {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"one NBC step of {arguments.model}, batch 128, {arguments.threads} threads{load}")
    steppers = {
        name: Stepper("fast", arguments.model, threads=arguments.threads, environment=policy)
        for name, policy in POLICIES.items()
    }
    others: list[subprocess.Popen[bytes]] = []
    try:
        measure(steppers, 1)  # warms up
        alone = measure(steppers, arguments.rounds)
        others = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(arguments.busy)]
        beside = measure(steppers, max(arguments.rounds // 5, 1))  # steps of seconds
    finally:
        for other in others:
            other.kill()
        for stepper in steppers.values():
            stepper.end()
    print(f"{'threads are':12} {'alone, median ms':>17} {'fastest ms':>11} {'busy, median ms':>16} {'slowest ms':>11}")
    for name in POLICIES:
        shown = (statistics.median(alone[name]), min(alone[name]), statistics.median(beside[name]), max(beside[name]))
        print("{:12} {:17.1f} {:11.1f} {:16.1f} {:11.1f}".format(name, *(1e3 * value for value in shown)), flush=True)
    cost = statistics.median(alone["ours"]) / statistics.median(alone["spinning"]) - 1
    gain = statistics.median(beside["spinning"]) / statistics.median(beside["ours"])
    print(f"ours costs {100 * cost:+.1f} % alone, and is {gain:.1f} times as fast on a busy machine (medians)")


if __name__ == "__main__":
    main()
