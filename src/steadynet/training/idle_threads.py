"""How the threads of PyTorch wait for each other on a CPU. This module does not import PyTorch: it must come first."""

from __future__ import annotations

import os

# Any of these says how the threads of OpenMP wait for each other: in the standard, in GCC's and in LLVM's library.
WAIT_SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")
# Threads spin for a moment (well below a millisecond in GCC's library, 1 ms in LLVM's), then they sleep. To sleep at
# once (OMP_WAIT_POLICY=passive) is better on a busy machine. But a training step has hundreds of short pauses, and on a
# quiet machine it took 84 instead of 58 ms.
SHORT_SPIN = {"GOMP_SPINCOUNT": "10000", "KMP_BLOCKTIME": "1"}


def let_threads_sleep() -> None:
    """Let idle threads of PyTorch sleep after a short while instead of spin, unless the user has chosen how they wait.

    Threads that spin take the cores from those that they wait for: beside one other busy process, a training step on
    two cores takes many times as long (``benchmarks/busy_machine.py``). OpenMP reads the environment once, when it is
    loaded, so this must be called before PyTorch is imported. Processes that this one starts inherit the setting.
    """
    if not any(name in os.environ for name in WAIT_SETTINGS):
        os.environ.update(SHORT_SPIN)
