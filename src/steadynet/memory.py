"""Keep the memory that a training step or a search frees, for the next one."""

from __future__ import annotations

import ctypes
import sys

# The names that <malloc.h> of the GNU C library has for its settings.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
KEPT_BLOCK = 32 * 2**20  # bytes; larger blocks are still returned to the system at once
KEPT_TOTAL = 2**30  # bytes that may be free before some of them are returned


def keep_freed_memory() -> bool:
    """Let the C library keep freed memory instead of returning it to the system after every step.

    A training step or a backward pass on a CPU allocates and frees the same large tensors over and over. With the
    defaults of the GNU C library, most of their memory is returned and requested anew, and the system clears every page
    again: a sixth of the time of an NBC step (``benchmarks/training_step.py``), a quarter of that of a short search.
    The process needs no more memory at its peak. The setting is one of the whole process and stays.

    Returns:
        Whether the C library took the settings; others than GNU's have none.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    return bool(mallopt(_MMAP_THRESHOLD, KEPT_BLOCK)) and bool(mallopt(_TRIM_THRESHOLD, KEPT_TOTAL))
