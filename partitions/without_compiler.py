"""Keeps torch's compiler (`torch._dynamo`) out of processes that compile nothing.

Its import takes as long as torch's own, half of what each start of a worker and of the driver takes. Two things would
import it unasked: torchvision's `ops.roi_align`, for a question that it asks when it runs, and a dispatch mode's first
operation, so that the compiler passes over what the mode does.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

_COMPILER, _UTILS = "torch._dynamo", "torch._dynamo.utils"


class DispatchMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode of torch whose operations do not import the compiler."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


@contextmanager
def importing_torchvision() -> Iterator[None]:
    """Have torchvision, imported inside, import the compiler when it needs it, in place of at once."""
    if _COMPILER in sys.modules or _UTILS in sys.modules:
        yield
        return
    later = ModuleType(_UTILS)
    later.is_compile_supported = _is_compile_supported  # type: ignore[attr-defined]
    later.__getattr__ = _of_compiler  # type: ignore[method-assign]
    sys.modules[_UTILS] = later
    try:
        yield
    finally:
        if sys.modules.get(_UTILS) is later:
            del sys.modules[_UTILS]


def _is_compile_supported(device_type: str) -> bool:
    from torch._dynamo.utils import is_compile_supported

    return bool(is_compile_supported(device_type))


def _of_compiler(name: str) -> Any:
    """Whatever else another version of torchvision takes from the module: the compiler is imported for it."""
    if name.startswith("__"):
        raise AttributeError(name)
    sys.modules.pop(_UTILS, None)
    import torch._dynamo.utils

    return getattr(torch._dynamo.utils, name)
