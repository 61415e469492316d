"""The fate of freed memory: the C library's allocator keeps it for the next tensors, or gives it back."""

from __future__ import annotations

import ctypes
import os
import sys

from pareto.protocol.constants import KEPT_BYTES

from .by_role import ByRole

TUNED, DEFAULT = "tuned", "default"
"""The allocators that there are: told to keep what is freed, or as the C library has it."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Parameters of mallopt(3)."""
_LEAST_MOST_BYTES = 32 << 20
"""The greatest _MMAP_THRESHOLD that glibc of every version takes (mallopt(3))."""
in_force = DEFAULT
"""The allocator that this process has."""


class Allocator(ByRole):
    """The allocator of each host of a chain."""

    what, usual, example = "allocator", TUNED, f"edge={DEFAULT},server={TUNED}"
    names = {TUNED: "what is freed is kept", DEFAULT: "as the C library has it"}  # noqa: RUF012  (the class's own)


def untouched() -> None:
    """Leave the allocator as the C library has it: this program starts again where variables say something else."""
    of_glibc = ("MALLOC_", "GLIBC_TUNABLES")
    plain = {name: value for name, value in os.environ.items() if not name.startswith(of_glibc)}
    if len(plain) < len(os.environ):
        os.execve(sys.executable, sys.orig_argv, plain)  # noqa: S606  (the same program)


def keep_freed() -> None:
    """Have the C library keep what tensors leave behind for the next run, until `give_back_freed` is called.

    By itself it may give it back to the system after each run and fetch it page by page in the next: 2400 to 4700
    faults for a run of MobileNetV2, 5 of 18 ms. Whether it does is chance: it depends on how memory was used before.
    """
    global in_force
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # glibc's; other C libraries have none
        # If it took none it would stay where it is, at 128 KiB, and no longer grow by itself.
        is_set = mallopt(_MMAP_THRESHOLD, KEPT_BYTES) or mallopt(_MMAP_THRESHOLD, _LEAST_MOST_BYTES)
        if mallopt(_TRIM_THRESHOLD, KEPT_BYTES) and is_set:
            in_force = TUNED
        # Else threads have heaps of their own, of which malloc_trim(3) leaves the end: 12 MB more for each that probed.
        mallopt(_ARENA_MAX, 1)


def give_back_freed() -> None:
    """Give freed memory back to the system, which the C library's allocator would keep for later.

    It keeps most of what tensors of up to 32 MiB leave behind, and other tensors seldom fit into the gaps: a second
    model would come on top of the first, and memory use would include tensors that are gone.
    """
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc's; other C libraries have none
        trim(0)
