"""Run a network in evaluation mode, and tell whether the mode makes a difference."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)
DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)


@contextmanager
def evaluation_mode(network: nn.Module) -> Iterator[None]:
    """Put a network in evaluation mode; at the end, every module has the mode that it had before.

    >>> network = nn.Sequential(nn.Dropout())
    >>> with evaluation_mode(network):
    ...     print(network[0].training)
    False
    >>> network[0].training
    True
    """
    modes = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def depends_on_mode(network: nn.Module) -> bool:
    """Whether a network computes something else in training than in evaluation, as batch norm and dropout do.

    >>> depends_on_mode(nn.Linear(2, 2)), depends_on_mode(nn.Sequential(nn.Linear(2, 2), nn.Dropout()))
    (False, True)
    """
    return any(isinstance(module, BATCH_NORMS + INSTANCE_NORMS + DROPOUTS) for module in network.modules())
