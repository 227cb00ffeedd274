"""Local robustness as a property file says it."""

from __future__ import annotations

import numpy as np
from torch import Tensor

from steadynet.interchange.specification import Case, Specification


def robustness_specification(lower: Tensor, upper: Tensor, label: int, classes: int) -> Specification:
    """Violated where an input of the box [lower, upper] gives another class at least the label's score.

    The corners, of any shape, are kept exactly: every float32 is a float64.

    >>> import torch
    >>> found = robustness_specification(torch.zeros(1, 2, 2), torch.ones(1, 2, 2), label=1, classes=3)
    >>> found.inputs, [case.matrix.tolist() for case in found.cases]
    (4, [[[-1.0, 1.0, 0.0]], [[0.0, 1.0, -1.0]]])
    """
    low, high = (corner.detach().cpu().double().flatten().numpy() for corner in (lower, upper))
    eye = np.eye(classes)
    cases = [
        Case(low, high, (eye[label] - eye[other])[None], np.zeros(1)) for other in range(classes) if other != label
    ]
    return Specification(len(low), classes, tuple(cases))
