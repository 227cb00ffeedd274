"""Numbers of a property that float32 does not hold: no proof in exact arithmetic may rest on their rounding."""

from __future__ import annotations

import numpy as np
import torch

from steadynet.graph.graph import Graph, Node
from steadynet.graph.graph_network import GraphNetwork
from steadynet.graph.operations import Scale
from steadynet.interchange.vnnlib.property import Disjunct, VnnlibProperty
from steadynet.verification.properties import Verdict
from steadynet.verification.property_network import as_robustness
from steadynet.verification.verifiers.branch_and_bound import BranchAndBound


def test_a_bound_between_two_numbers_of_float32_is_not_proved_by_its_rounding():
    # y = x on the point x = 0.1 rounded down, and the property says y ≤ 0.1 never holds: it does, exactly.
    identity = GraphNetwork(Graph((Node("y", Scale(torch.tensor(1.0), torch.tensor(0.0)), (0,)),)), (1,))
    just_below = float(np.nextafter(np.float32(0.1), np.float32(0)))
    bound = just_below + 1e-12  # rounds to just_below, so that y − bound becomes 0 instead of −1e-12
    disjunct = Disjunct(np.array([just_below]), np.array([just_below]), np.array([[1.0]]), np.array([bound]))
    (group,) = as_robustness(identity, VnnlibProperty(1, 1, [disjunct]))
    for arithmetic in ("exact", "float32"):
        (result,) = BranchAndBound(arithmetic=arithmetic, timeout=10)(group.properties)
        assert result.verdict is not Verdict.UNSAT
