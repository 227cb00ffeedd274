"""The linear programs of sparsification: the sparsest weights of a dense layer that do the same on some images."""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

SLACK = 1e-4  # how far below zero an inactive neuron stays, if it was there, as a share of its largest value
ZERO = 1e-9  # what the solver leaves of a weight that is zero


@dataclass(frozen=True)
class LinearConstraints:
    """lower ≤ rows · v ≤ upper for the unknowns v."""

    rows: Array
    lower: Array
    upper: Array


def sparsest(constraints: LinearConstraints, seconds: float) -> Array | None:
    """Return the v with the smallest ‖v‖₁ that meets the constraints.

    Args:
        constraints: The constraints.
        seconds: How long the solver may take.

    Returns:
        The v; None if there is none or the time is over.

    >>> sparsest(LinearConstraints(np.array([[1.0, 2.0]]), np.array([4.0]), np.array([9.0])), 10.0).tolist()
    [0.0, 2.0]
    """
    # Rows of very different sizes are out of reach of HiGHS' absolute tolerances: each is scaled to size 1.
    size = np.abs(constraints.rows).max(axis=1, initial=0.0)
    scale = np.where(size > 0, size, 1.0)
    entries = constraints.rows / scale[:, None]
    program = highspy.HighsLp()
    unknowns = 2 * entries.shape[1]  # v = p − q with p, q ≥ 0, so that ‖v‖₁ = Σ p + q at the minimum
    program.num_col_, program.num_row_ = unknowns, len(entries)
    program.col_cost_ = np.ones(unknowns)
    program.col_lower_, program.col_upper_ = np.zeros(unknowns), np.full(unknowns, np.inf)
    program.row_lower_, program.row_upper_ = constraints.lower / scale, constraints.upper / scale
    both = np.hstack([entries, -entries])
    row, column = both.nonzero()
    program.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    program.a_matrix_.start_ = np.searchsorted(row, np.arange(len(entries) + 1))
    program.a_matrix_.index_, program.a_matrix_.value_ = column, both[row, column]
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("threads", 1)
    solver.setOptionValue("time_limit", seconds)
    solver.passModel(program)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        return None
    positive, negative = np.split(np.array(solver.getSolution().col_value), 2)
    found = positive - negative
    return np.where(np.abs(found) > ZERO, found, 0.0)


def same_state(inputs: Array, values: Array, delta: float) -> LinearConstraints:
    """Return the constraints on the weights of one neuron: it keeps its state, and its value up to a share ``delta``.

    Args:
        inputs: The inputs of the neuron, (images, inputs).
        values: The value that it had on each image, before its ReLU, (images,).
        delta: δ. An active neuron stays within (1 ± δ) of its value; an inactive one stays inactive.
    """
    active = values > 0
    below = np.minimum(-values, SLACK * np.abs(values).max())  # so that rounding does not make it active
    lower = np.where(active, (1 - delta) * values, -np.inf)
    return LinearConstraints(inputs, lower, np.where(active, (1 + delta) * values, -below))


def same_leads(inputs: Array, scores: Array, labels: npt.NDArray[np.int64], margin: float) -> LinearConstraints:
    """Return the constraints on all weights of the last layer: on each image, the label keeps a share of its lead.

    Args:
        inputs: The inputs of the layer, (images, inputs).
        scores: The score that each class had on each image, (images, classes).
        labels: The label of each image, which must have had the largest score.
        margin: The share of its lead over each other class that the label keeps.

    Returns:
        Constraints on the weights of all classes, one class after the other.
    """
    width, classes = inputs.shape[1], scores.shape[1]
    image, other = np.nonzero(np.arange(classes)[None] != labels[:, None])
    label = labels[image]
    rows = np.zeros((len(image), classes, width))
    rows[np.arange(len(image)), label] = inputs[image]
    rows[np.arange(len(image)), other] = -inputs[image]
    leads = scores[image, label] - scores[image, other]
    return LinearConstraints(rows.reshape(len(image), -1), margin * leads, np.full(len(image), np.inf))
