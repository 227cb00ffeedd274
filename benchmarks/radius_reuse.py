"""What a search for radii gains from what it learned at other radii: CPU seconds and proved radii, with and without.

python benchmarks/radius_reuse.py NET.onnx IMAGES.npz --images 10
"""

from __future__ import annotations

import argparse
import statistics
import time

import numpy as np
import torch

from steadynet.verification.given import given_network, in_precision_of
from steadynet.verification.properties import Result, Verdict
from steadynet.verification.radius import RadiusSearch
from steadynet.verification.verifiers import make_verifier


class CountingSearch(RadiusSearch):
    """A search that counts the radii that it proved, and their seconds."""

    proofs, proving = 0, 0.0

    def _record(self, index: int, radius: float, result: Result) -> None:
        super()._record(index, radius, result)
        if result.verdict is Verdict.UNSAT:
            self.proofs, self.proving = self.proofs + 1, self.proving + result.seconds


def main() -> None:
    """Search for the radii of the same images twice, and print one line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("network")
    parser.add_argument("images", help="an .npz file with X and y")
    parser.add_argument("--images", dest="count", type=int, default=10)
    parser.add_argument("--timeout", type=float, default=2.0, help="CPU seconds for one radius of one image")
    parser.add_argument("--tolerance", type=float, default=0.002)
    arguments = parser.parse_args()
    with np.load(arguments.images) as file:
        pixels = torch.from_numpy(file["X"][: arguments.count]).float()
        labels = torch.from_numpy(file["y"][: arguments.count]).long()
    network = given_network(arguments.network, tuple(pixels.shape[1:]))
    for reuse in (False, True):
        torch.manual_seed(0)
        verifier = make_verifier("branch_and_bound", {"timeout": arguments.timeout, "clock": "cpu"})
        search = CountingSearch(
            network, in_precision_of(network, pixels), labels, verifier, 0.5, arguments.tolerance, reuse=reuse
        )
        started = time.process_time()
        search.run()
        seconds = time.process_time() - started
        proved = statistics.mean(found.proved for found in search.found)
        print(
            f"{'with' if reuse else 'without'} reuse: {seconds:.1f} CPU seconds, {search.proving:.1f} of them for "
            f"{search.proofs} proofs; mean proved radius {proved:.5f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
