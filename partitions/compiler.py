"""Stands in for torch's compiler (`torch._dynamo`) until something is compiled: nothing here ever is.

Its import takes nearly as long as torch's own, and 35 MB: half of what a worker waits for when it starts. Without a
stand-in every process that traces a model imports it, for two reasons: functions that it must pass over, such as those
that compute shapes on the meta device, are marked so by itself when they run first; and torchvision's `ops.roi_align`
has a question for it.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch

_NAME = "torch._dynamo"
_UTILS = f"{_NAME}.utils"


def put_off() -> None:
    """Have the compiler imported by its first use, not before; nothing happens where it is imported already."""
    if _NAME not in sys.modules:
        torch._dynamo = sys.modules[_NAME] = _Later(_NAME, disable=_disable)
        sys.modules[_UTILS] = _Later(_UTILS, is_compile_supported=_is_compile_supported)


class _Later(ModuleType):
    """A module that is imported when something else is taken from it than what it has from the beginning."""

    def __init__(self, name: str, **has: Callable[..., Any]) -> None:
        super().__init__(name)
        vars(self).update(has)

    def __getattr__(self, name: str) -> Any:
        # Imports and `inspect` look for such names in any module; only what lies in a package needs its path.
        if name.startswith("__") and (name != "__path__" or self.__name__ == _UTILS):
            raise AttributeError(name)
        _import()
        return getattr(importlib.import_module(self.__name__), name)


def _import() -> None:
    for name in (_NAME, _UTILS):
        if isinstance(sys.modules.get(name), _Later):
            del sys.modules[name]
    if isinstance(vars(torch).get("_dynamo"), _Later):
        del torch._dynamo
    importlib.import_module(_NAME)


def _disable(function: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[..., Any]:
    """The function that the compiler, once it is imported, must pass over: what `torch._dynamo.disable` returns."""
    disabled: Callable[..., Any] | None = None

    @functools.wraps(function)
    def passed_over(*args: Any, **kwargs: Any) -> Any:
        nonlocal disabled
        if disabled is None:
            if isinstance(sys.modules.get(_NAME), _Later):
                return function(*args, **kwargs)
            disabled = importlib.import_module(_NAME).disable(function, *arguments, **options)
        return disabled(*args, **kwargs)

    return passed_over


def _is_compile_supported(device_type: str) -> bool:
    _import()
    return bool(importlib.import_module(_UTILS).is_compile_supported(device_type))
