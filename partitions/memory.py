"""Memory that is free, and who has it."""

from __future__ import annotations

import ctypes


def give_back_freed() -> None:
    """Return to the system what the C library's allocator keeps for later.

    It keeps most of what tensors of up to 32 MiB leave behind, and others seldom fit into the gaps: a second model
    would come on top of the first, and memory use would tell of what is gone.
    """
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # glibc's; other C libraries have none
        trim(0)
