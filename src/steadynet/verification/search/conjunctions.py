"""The margins of a batch of properties, each as the largest of some linear functions: one per conjunct.

A VNN-LIB property with the disjunct c₁ ≤ 0 ∧ c₂ ≤ 0 has the margin max(c₁, c₂). The disjunct cannot be satisfied on a
box if c₁ > 0 on the whole box, or c₂ > 0 on the whole box. So each conjunct is bounded by itself, and the best counts.
This is cheaper than bounding the maximum, which the network computes by ReLUs, and often tighter.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from steadynet.graph.graph import Graph
from steadynet.verification.search.property_batch import PropertyBatch

SINGLE_CONJUNCTS = True  # whether conjuncts are bounded by themselves, instead of their maximum


@dataclass(frozen=True)
class Conjunctions:
    """Margin m of property p is the largest of functions[p, m, k] · output of the graph, over the k that are used.

    Attributes:
        graph: the network, up to the value that the conjuncts are functions of.
        functions: (properties, margins, conjuncts, outputs), the coefficients.
        used: (margins, conjuncts), which of them there are.
    """

    graph: Graph
    functions: Tensor
    used: Tensor

    @classmethod
    def of(cls, batch: PropertyBatch) -> Conjunctions:
        """The conjuncts of a batch; a robustness property has one per margin, the margin itself."""
        constraints, margins = batch.constraints, batch.margins
        if constraints is None or not SINGLE_CONJUNCTS:
            used = torch.ones(margins.shape[1], 1, dtype=torch.bool, device=margins.device)
            return cls(batch.graph, margins[:, :, None], used)
        disjuncts, width = len(constraints.counts), constraints.width
        identity = torch.eye(disjuncts * width, dtype=margins.dtype, device=margins.device)
        functions = identity.view(1, disjuncts, width, -1).expand(len(margins), -1, -1, -1)
        counts = torch.tensor(constraints.counts, device=margins.device)
        used = torch.arange(width, device=margins.device) < counts[:, None]
        return cls(Graph(batch.graph.nodes[: constraints.position]), functions, used)
