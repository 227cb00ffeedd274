"""What counting every rounding takes off the margins of CROWN, by the arithmetic that a proof speaks of.

python benchmarks/rounding_cost.py network.onnx images.npz --eps 0.1 0.2
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import Tensor

from steadynet.bounds.backward import BoundedNetwork
from steadynet.bounds.crown import propagate
from steadynet.bounds.linear_functions import LinearFunctions
from steadynet.bounds.precision import in_float64
from steadynet.bounds.queries import BoundQuery
from steadynet.graph.graph import Graph
from steadynet.graph.operations import Interval
from steadynet.graph.rounding import Arithmetic, Execution
from steadynet.graph.translate import graph_of
from steadynet.interchange.onnx.reader import read_onnx
from steadynet.verification.properties import Properties


def margins(network: BoundedNetwork, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Lower bounds of every margin, as computed and as proved."""
    classes = 1 + int(labels.max())
    others = torch.arange(classes)[None] != labels[:, None]
    owner, other = others.nonzero(as_tuple=True)
    identity = torch.eye(classes, dtype=network.box.lower.dtype)
    query = BoundQuery(network.output, LinearFunctions(identity[labels[owner]] - identity[other]), owner)
    found = network.relaxed().lower(query)
    return found.value.double(), found.proved


def measure(graph: Graph, box: Interval, labels: Tensor, dtype: torch.dtype) -> None:
    """Print one line per arithmetic and precision of the pass."""
    plain = margins(propagate(graph, box)[0], labels)[0]
    print(f"  margins without rounding: {plain.mean():.3f} on average")
    for arithmetic in Arithmetic:
        started = time.process_time()
        network = propagate(graph, box, execution=Execution(arithmetic, dtype))[0]
        for name, bounded in (("its own precision", network), ("float64", in_float64(network))):
            cost = plain - margins(bounded, labels)[1]
            print(f"  {arithmetic:8} pass in {name:19} takes off {cost.mean():.5f}, at most {cost.max():.5f}")
        print(f"  {arithmetic:8} {time.process_time() - started:.2f} CPU s")


def main() -> None:
    """Measure a network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", help="an ONNX file with one score per class")
    parser.add_argument("images", help="an .npz file with arrays X and y; y must contain every class")
    parser.add_argument("--eps", type=float, nargs="+", default=[0.1, 0.2])
    given = parser.parse_args()
    torch.set_num_threads(1)
    arrays = np.load(given.images)
    images, labels = torch.tensor(arrays["X"], dtype=torch.float32), torch.tensor(arrays["y"]).long()
    network = read_onnx(given.network)
    graph = graph_of(network, tuple(images.shape[1:]))
    with torch.no_grad():
        for eps in given.eps:
            region = Properties.around(network, images, labels, eps).region
            print(f"eps {eps:g}, {len(images)} images")
            measure(graph, Interval(region.lower, region.upper), labels, images.dtype)


if __name__ == "__main__":
    main()
