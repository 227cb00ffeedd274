"""Published networks: what is kept of a network so that its verdicts mean something without its weights."""

from __future__ import annotations

from dataclasses import dataclass

from steadynet.files import read_record
from steadynet.runs.directory import RunDirectory
from steadynet.runs.trained import load_trained
from steadynet.verification.verdict_key import network_hash


@dataclass(frozen=True)
class PublishedNetwork:
    """The file ``published.json`` of a published run."""

    network: str  # the hash that the keys of its verdicts are made of
    soundness: int  # the version of the verifier's soundness that its verdicts have
    steadynet: str = ""
    torch: str = ""
    hardware: str = ""  # where it was trained


def read_published(run: RunDirectory) -> PublishedNetwork | None:
    """Read what is known of a published network; None if the run was not published.

    Raises:
        UserError: The file is damaged.
    """
    return read_record(run.published, PublishedNetwork) if run.published.is_file() else None


def is_without_weights(run: RunDirectory) -> bool:
    """Return whether a run was published without its weights."""
    return run.published.is_file() and not run.weights.is_file()


def hash_of_run(run: RunDirectory) -> str | None:
    """Return the hash of a run's network: of its weights or, without them, the published one; None if it has none."""
    if run.weights.is_file():
        trained = load_trained(run.path)
        return network_hash(trained.network, trained.config.input.image_shape)
    record = read_published(run)
    return record.network if record else None
