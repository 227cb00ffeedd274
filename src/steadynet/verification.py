"""Verification from Python: a model, images and a radius in, results out."""

from __future__ import annotations

from torch import Tensor, nn

from steadynet import verifiers
from steadynet.errors import UserError
from steadynet.plugins import choose, make
from steadynet.problems import Problems, Result


def verify(
    model: nn.Module, images: Tensor, labels: Tensor, eps: float, verifier: str = "branch_and_bound", **settings: object
) -> list[Result]:
    """Does each image (batch, *shape), in [0, 1], keep its label everywhere within ``eps``? One result an image.

    >>> import torch
    >>> model = nn.Sequential(nn.Linear(1, 2))
    >>> _ = model[0].weight.data.copy_(torch.tensor([[1.0], [0.0]]))
    >>> _ = model[0].bias.data.copy_(torch.tensor([0.0, 0.2]))
    >>> [result.verdict.value for result in verify(model, torch.tensor([[0.5], [0.1]]), torch.tensor([0, 0]), 0.2)]
    ['unsat', 'sat']
    """
    if len(images) != len(labels) or not len(images):
        raise UserError(f"{len(images)} images and {len(labels)} labels: verify needs one label an image")
    if float(images.min()) < 0 or float(images.max()) > 1:
        raise UserError(f"pixels lie in [{float(images.min()):g}, {float(images.max()):g}]; they must lie in [0, 1]")
    if not eps > 0:
        raise UserError(f"eps = {eps} must be larger than 0")
    plugin = choose("verifier", verifier, verifiers.available())
    return make(plugin, settings)(Problems.around(model, images, labels, eps))
