"""Freed memory is kept: the pages of a step are not requested from the system again."""

import subprocess
import sys

import pytest

COUNT = """
import resource, sys, torch
from steadynet.memory import keep_freed_memory
if sys.argv[1] == "keep" and not keep_freed_memory():
    raise SystemExit("no mallopt")
def step():
    return [torch.zeros(2**20) for _ in range(8)]  # 8 tensors of 4 MiB: 8,192 pages
step(), step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run([sys.executable, "-c", COUNT, how], capture_output=True, text=True, check=False)
    if done.returncode:
        assert "no mallopt" in done.stderr, done.stderr
        pytest.skip("this C library has no mallopt")
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of the GNU C library")
def test_pages_are_used_again():
    assert 4 * faults("keep") < faults("return")
