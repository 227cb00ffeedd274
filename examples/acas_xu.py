"""Decide a property of ACAS Xu, the collision avoidance networks that every verifier is tried on.

    python examples/acas_xu.py ACASXU_run2a_1_1_batch_2000.onnx prop_1.vnnlib

The networks and properties are part of the benchmarks of VNN-COMP, in the folder acasxu_2023. Files that end in .gz
need not be unpacked. ``steadynet vnncomp`` does the same on the command line, also for lists of properties.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from steadynet import UserError, Verdict
from steadynet.verification.guarantees import describe_guarantee
from steadynet.verification.vnncomp import Instance, decide

INPUTS = ("distance", "angle to the intruder", "heading of the intruder", "own speed", "speed of the intruder")
OUTPUTS = ("clear of conflict", "weak left", "weak right", "strong left", "strong right")


def main(words: list[str] | None = None) -> None:
    """Decide one property and print the verdict, with the counterexample if there is one."""
    parser = argparse.ArgumentParser(description="Decide a property of an ACAS Xu network.")
    parser.add_argument("network", type=Path, help="the .onnx file of the network")
    parser.add_argument("property", type=Path, help="the .vnnlib file of the property")
    parser.add_argument("--timeout", type=float, default=60.0, help="seconds (default: 60)")
    given = parser.parse_args(words)
    for file in (given.network, given.property):
        if not file.is_file():
            sys.exit(f"acas_xu.py: there is no file {file}: it is in the folder acasxu_2023 of VNN-COMP's benchmarks")

    try:
        result = decide(Instance(given.network, given.property, given.timeout))
    except UserError as error:
        sys.exit(f"acas_xu.py: {error}")
    notes = ", ".join(filter(None, (str(result.decided_by), result.reason, describe_guarantee(result))))
    print(f"{result.verdict.value} in {result.seconds:.1f} s" + (f" ({notes})" if notes else ""))
    if result.verdict is Verdict.SAT:
        print("A counterexample, in the network's scaled units:")
        for names, values in ((INPUTS, result.inputs), (OUTPUTS, result.outputs)):
            for name, value in zip(names, values, strict=False):
                print(f"  {name:24} {value:9.5f}")


if __name__ == "__main__":
    main()
