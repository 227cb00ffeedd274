"""Pruning by learned scores (hydra; Sehwag et al., 2020): which weights stay is trained under the run's own loss."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steadynet.errors import UserError
from steadynet.networks.grafting import weight_matrices
from steadynet.plugins import setting
from steadynet.runs.directory import RunDirectory
from steadynet.runs.trained import TrainedNetwork
from steadynet.training.distributed.process_group import join_process_group
from steadynet.training.fine_tuning import fine_tuning_settings
from steadynet.training.interruption import InterruptedByUserError
from steadynet.training.loop import run_phases
from steadynet.training.observer import Observer, SilentObserver
from steadynet.training.state import assemble


@dataclass(frozen=True)
class HydraSettings:
    """How weights are pruned by learned scores."""

    keep: float = setting(0.1, "the share of each layer's weights that stays")
    score_epochs: int = setting(20, "epochs in which scores are learned and weights do not change")
    score_lr: float = setting(1e-3, "the learning rate of the scores")
    epochs: int = setting(20, "epochs of fine-tuning the weights that stay")
    lr: float | None = setting(None, "the learning rate in fine-tuning (default: that of the run)")

    def __post_init__(self) -> None:
        for name, good, wanted in (
            ("keep", 0 < self.keep <= 1, "must be larger than 0 and at most 1"),
            ("score_epochs", self.score_epochs >= 1, "must be 1 or more"),
            ("score_lr", 0 < self.score_lr <= 1e30, "must be larger than 0"),
            ("epochs", self.epochs >= 1, "must be 1 or more"),
            ("lr", self.lr is None or 0 < self.lr <= 1e30, "must be larger than 0"),
        ):
            if not good:
                raise UserError(f"{name} = {getattr(self, name)} {wanted}")


def initial_scores(weight: Tensor) -> Tensor:
    """Return the scores before training, √(6/fan-in) · w / max|w|: the largest weights have the largest scores.

    >>> initial_scores(torch.tensor([[2.0, -1.0, 0.0, 1.0, 0.0, 0.0]]))
    tensor([[ 1.0000, -0.5000,  0.0000,  0.5000,  0.0000,  0.0000]])
    """
    return math.sqrt(6 / weight[0].numel()) * weight / weight.abs().max().clamp_min(torch.finfo(weight.dtype).tiny)


def top_mask(scores: Tensor, keep: float) -> Tensor:
    """Return which entries are among the share ``keep`` of the largest absolute scores; at least one is.

    >>> top_mask(torch.tensor([0.1, -3.0, 2.0, 0.0]), 0.5)
    tensor([False,  True,  True, False])
    """
    count = max(1, round(keep * scores.numel()))
    mask = torch.zeros(scores.numel(), dtype=torch.bool, device=scores.device)
    mask[scores.abs().flatten().topk(count).indices] = True
    return mask.view(scores.shape)


class ScoreOptimiser(torch.optim.Adam):
    """Adam for the scores of weights that themselves stay as they are.

    The network computes with w · [|s| is among the largest scores of its layer]. A step takes the gradient of the
    network's weights and passes it straight through the mask to the scores: ∂L/∂s = ∂L/∂(w · mask) · w · sign(s).

    Args:
        weights: The weights of each layer. They are masked in place, from the beginning.
        keep: The share of each layer's weights that is not masked.
        lr: The learning rate of the scores.

    >>> weight = nn.Parameter(torch.tensor([[2.0, 1.0]]))
    >>> optimiser = ScoreOptimiser([weight], keep=0.5, lr=10.0)
    >>> weight.tolist()
    [[2.0, 0.0]]
    >>> (-3 * weight[0, 1]).backward()  # the second weight would lower the loss
    >>> optimiser.step()
    >>> weight.tolist()
    [[0.0, 1.0]]
    """

    def __init__(self, weights: Sequence[nn.Parameter], keep: float, lr: float) -> None:
        self.weights, self.keep = weights, keep
        self.unmasked = [weight.detach().clone() for weight in weights]
        self.scores = [nn.Parameter(initial_scores(weight)) for weight in self.unmasked]
        super().__init__(self.scores, lr)
        self._mask_weights()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove the gradients of the scores and of the weights."""
        super().zero_grad(set_to_none)
        for weight in self.weights:
            weight.grad = None

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """Move the scores, and mask the weights anew."""
        for weight, unmasked, score in zip(self.weights, self.unmasked, self.scores, strict=True):
            if weight.grad is not None:
                score.grad = weight.grad * unmasked * score.detach().sign()
        result = super().step(closure)
        self._mask_weights()
        return result

    def _mask_weights(self) -> None:
        with torch.no_grad():
            for weight, unmasked, score in zip(self.weights, self.unmasked, self.scores, strict=True):
                weight.copy_(unmasked * top_mask(score, self.keep))


def learn_mask(trained: TrainedNetwork, settings: HydraSettings, observer: Observer | None = None) -> int:
    """Set the weights to zero that matter least for the loss of the run, in place.

    Only scores are trained, with the run's last method at full ε. Biases do not change. The training runs in a
    temporary run directory, so it cannot be resumed.

    Args:
        trained: The network.
        settings: How to prune.
        observer: Who follows the training.

    Returns:
        How many weights were set to zero that were not zero before.

    Raises:
        InterruptedByUserError: The user pressed Ctrl-C. Nothing was written.
    """
    tuning = fine_tuning_settings(
        trained.config,
        epochs=settings.score_epochs,
        lr=settings.score_lr,
        sources=trained.run.method_sources,
        schedule="constant",
    )
    network = trained.network
    weights = weight_matrices(network)
    before = sum(int((weight != 0).sum()) for weight in weights)
    chosen = {id(weight) for weight in weights}
    others = [value for value in network.parameters() if value.requires_grad and id(value) not in chosen]
    with tempfile.TemporaryDirectory() as folder, join_process_group(tuning.device) as group:
        torch.manual_seed(tuning.seed)
        state = assemble(tuning, RunDirectory(Path(folder)), network, trained.data(), group)
        for parameter in others:
            parameter.requires_grad_(False)
        state.optimiser = ScoreOptimiser(weight_matrices(network), settings.keep, settings.score_lr)
        try:
            run_phases(state, observer or SilentObserver())
        except InterruptedByUserError as stop:
            message = "stopped while scores were learned, and nothing is written: run the command again to start anew"
            raise InterruptedByUserError(message) from stop
        for parameter in others:
            parameter.requires_grad_(True)
    network.to("cpu").eval()
    return before - sum(int((weight != 0).sum()) for weight in weights)
