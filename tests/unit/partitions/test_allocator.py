"""What becomes of freed memory."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
import torch
import pareto.worker.__main__  # what else a worker has in memory decides where the holes are
from partitions import allocator

torch.set_num_threads(1)
if "keep" in sys.argv:
    allocator.keep_freed()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def run():
    return [torch.zeros(nbytes, dtype=torch.uint8) for nbytes in (50 << 20, 3 << 20)]

for _ in range(3):
    run()
before = faults()
for _ in range(4):
    run()
print(faults() - before)
"""


@pytest.mark.deep
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is part of glibc")
def test_memory_that_a_run_has_freed_is_there_for_the_next() -> None:
    plain, kept = (
        int(subprocess.run([sys.executable, "-c", FAULTS, *how], capture_output=True, check=True).stdout)
        for how in ([], ["keep"])
    )
    assert plain > 1000
    assert kept < 100
