"""What becomes of freed memory: whether the C library's allocator keeps it for the next tensors, or gives it back."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""
_MOST_BYTES, _LEAST_MOST_BYTES = 1 << 30, 32 << 20
"""What they are set to, and the greatest _MMAP_THRESHOLD that glibc of every version takes (mallopt(3))."""


def keep_freed() -> None:
    """Have the C library keep what tensors leave behind for the next run, until `give_back_freed` is called.

    By itself it may give it back to the system after each run and fetch it page by page in the next: 2400 to 4700
    faults for a run of MobileNetV2, 5 of 18 ms. Whether it does is chance: it depends on how memory was used before.
    """
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):  # glibc's; other C libraries have none
        # If it took none it would stay where it is, at 128 KiB, and no longer grow by itself.
        _ = mallopt(_MMAP_THRESHOLD, _MOST_BYTES) or mallopt(_MMAP_THRESHOLD, _LEAST_MOST_BYTES)
        mallopt(_TRIM_THRESHOLD, _MOST_BYTES)


def give_back_freed() -> None:
    """Give freed memory back to the system, which the C library's allocator would keep for later.

    It keeps most of what tensors of up to 32 MiB leave behind, and other tensors seldom fit into the gaps: a second
    model would come on top of the first, and memory use would include tensors that are gone.
    """
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc's; other C libraries have none
        trim(0)
