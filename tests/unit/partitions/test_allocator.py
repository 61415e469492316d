"""What becomes of freed memory."""

from __future__ import annotations

import os
import platform
import subprocess
import sys

import pytest

LARGE = """
import ctypes, sys
from pareto.partitions import allocator

class Info(ctypes.Structure):
    names = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]
    _fields_ = [(name, ctypes.c_size_t) for name in names]

if "keep" in sys.argv:
    allocator.keep_freed()
if "leave" in sys.argv:
    allocator.untouched()
library = ctypes.CDLL(None)
library.mallinfo2.restype, library.malloc.restype = Info, ctypes.c_void_p
before = library.mallinfo2().hblks
library.malloc(ctypes.c_size_t(48 << 20))
print(allocator.in_force, library.mallinfo2().hblks - before)
"""
"""How many blocks of a size above any dynamic threshold the library fetches from the system, and so gives back."""
needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is part of glibc")
VARIABLES = {name: str(1 << 30) for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")}


def printed(script: str, *words: str, env: dict[str, str] | None = None) -> str:
    command = [sys.executable, "-c", script, *words]
    return subprocess.run(command, env=env, capture_output=True, check=True, text=True).stdout


@needs_glibc
@pytest.mark.parametrize(
    ("how", "variables", "said"),
    [
        ("keep", {}, "tuned 0"),
        ("leave", {}, "default 1"),
        ("leave", VARIABLES, "default 1"),
        ("", VARIABLES, "default 0"),  # as a program that is deployed with them
    ],
)
def test_an_allocator_is_tuned_or_as_it_was(how: str, variables: dict[str, str], said: str) -> None:
    usual = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    assert printed(LARGE, how, env=usual | variables).strip() == said


TRIALS = """
import threading
import torch
import pareto.remote.worker.__main__
from pareto.remote.worker import host
from pareto.partitions import allocator

allocator.keep_freed()
over, resident = threading.Event(), []

def probe(sent):
    bytes(12_500_000) + b"sent"
    sent.set()
    over.wait()

for number in range(16):
    stage = [torch.ones(1 << 20, dtype=torch.uint8) for _ in range(8 * (number % 4))]
    [torch.ones(nbytes << 20, dtype=torch.uint8) for nbytes in (50, 3)]
    sent = threading.Event()
    threading.Thread(target=probe, args=(sent,)).start()
    sent.wait()
    del stage
    allocator.give_back_freed()
    resident.append(host.resident_bytes())
over.set()
print(*resident)
"""


@needs_glibc
def test_memory_does_not_grow_with_the_trials_whatever_stage_and_threads_each_has() -> None:
    """Threads stay, as those of connections do; each leaves behind what a probe of a quick link takes."""
    resident = list(map(int, printed(TRIALS).split()))
    assert len(resident) == 16
    assert resident[-1] - max(resident[:4]) < 12_500_000
