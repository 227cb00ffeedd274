"""One step of gradient descent, and the checks that a training does not go on with numbers that are not finite."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from steadynet.errors import NotFiniteError
from steadynet.training.notation import Phase
from steadynet.training.state import TrainingState
from steadynet.training.weight_perturbation import perturbed_weights


def differentiate(
    state: TrainingState, phase: Phase, terms: Callable[[], dict[str, Tensor]], weight: float, perturbation: float
) -> None:
    """Compute the gradient of the loss of the whole batch.

    Args:
        state: The training.
        phase: The current phase, for error messages.
        terms: Computes the loss terms of this process's slice of the batch.
        weight: The weight of the slice in the batch.
        perturbation: How far weights are moved against the loss while the gradient is taken; 0 for not at all.
    """

    def loss() -> Tensor:
        return torch.stack(list(terms().values())).sum() * weight

    with perturbed_weights(state.network, loss, perturbation, state.group.sum_gradients):
        found = terms()
        weighted = torch.stack(list(found.values())) * weight
        values = dict(zip(found, state.group.sum(weighted).tolist(), strict=True))
        if not math.isfinite(sum(values.values())):
            shown = ", ".join(f"{name} = {value:g}" for name, value in values.items())
            raise _not_finite(f"loss is not finite ({shown}) at batch {state.position.batch + 1}", state, phase)
        state.optimiser.zero_grad()
        weighted.sum().backward()
    state.group.sum_gradients(list(state.network.parameters()))
    for name, value in values.items():
        state.position.sums[name] = state.position.sums.get(name, 0.0) + value


def descend(state: TrainingState) -> None:
    """Take one step of the optimiser."""
    state.position.lr = state.optimiser.param_groups[0]["lr"]
    if state.settings.gradient_clip:
        nn.utils.clip_grad_norm_(state.network.parameters(), state.settings.gradient_clip)
    state.optimiser.step()
    if state.schedule:
        state.schedule.step()


def check_weights(state: TrainingState, phase: Phase) -> None:
    """Raise a ``NotFiniteError`` if a weight is not finite, so that it never replaces a good checkpoint."""
    for name, weights in state.network.named_parameters():
        if not torch.isfinite(weights).all():
            raise _not_finite(f"weights {name} are not finite after batch {state.position.batch}", state, phase)


def _not_finite(what: str, state: TrainingState, phase: Phase) -> NotFiniteError:
    """Return the error for a loss or weights that are not finite."""
    good = state.run.checkpoint
    last = f"the last good checkpoint is {good}" if good.is_file() else "there is no checkpoint yet"
    return NotFiniteError(
        f"the {what} of epoch {state.position.epoch + 1}, phase {phase.method}; {last}. A smaller --lr usually helps"
    )
