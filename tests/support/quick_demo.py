"""A demo that takes a moment, and one that is killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from few_digits import load_few
from runs import command_line
from steadynet.cli import demo
from steadynet.data.digits import Digits


def make_quick(patch: pytest.MonkeyPatch) -> None:
    """Fewer images and shorter proofs."""
    patch.setattr(demo, "PER_CLASS", 1)
    patch.setattr(demo, "PGD_STEPS", 2)
    patch.setattr(demo, "TIMEOUT", 0.2)
    patch.setitem(demo.TRAINING, "train_images", 300)
    patch.setattr(Digits, "load", load_few)


def killed_before_the_last_verification(arguments: list[str], output: Path) -> None:
    """A quick demo, in a process of its own, that is killed when it starts to verify its second network."""
    verify = demo._verify

    def killed(trained):
        if trained.run.path.name == "nbc":
            os.kill(os.getpid(), signal.SIGKILL)
        return verify(trained)

    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        patch.setattr(demo, "_verify", killed)
        command_line(arguments, output)
