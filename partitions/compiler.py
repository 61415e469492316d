"""Stands in for torch's compiler (`torch._dynamo`) until something is compiled: nothing here ever is.

Its import takes about 2 s and 35 MB, a quarter of what a worker waits for when it starts. Without a stand-in every
process that traces a model imports it, for two reasons: functions that it must pass over, such as those that compute
shapes on the meta device, are marked so by itself when they run first; and torchvision's `ops.roi_align` asks it.
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
        sys.modules[_UTILS] = _Later(
            _UTILS, is_compile_supported=lambda device: _itself(_UTILS).is_compile_supported(device)
        )


class _Later(ModuleType):
    """A module that is imported when something else is taken from it than what it has from the beginning."""

    def __init__(self, name: str, **has: Callable[..., Any]) -> None:
        super().__init__(name)
        vars(self).update(has)

    def __getattr__(self, name: str) -> Any:
        # Imports and `inspect` look for such names in any module; only what lies in a package needs its path.
        if name.startswith("__") and (name != "__path__" or self.__name__ == _UTILS):
            raise AttributeError(name)
        return getattr(_itself(self.__name__), name)


def _itself(name: str) -> Any:
    """The module that something stands in for."""
    if isinstance(sys.modules.get(_NAME), _Later):
        del sys.modules[_NAME], sys.modules[_UTILS], torch._dynamo
    return importlib.import_module(name)


def _disable(function: Callable[..., Any], *arguments: Any, **options: Any) -> Callable[..., Any]:
    """The function that the compiler, once it is imported, must pass over: what `torch._dynamo.disable` returns."""

    @functools.cache
    def disabled() -> Any:
        return _itself(_NAME).disable(function, *arguments, **options)

    @functools.wraps(function)
    def passed_over(*args: Any, **kwargs: Any) -> Any:
        later = isinstance(sys.modules.get(_NAME), _Later)
        return function(*args, **kwargs) if later else disabled()(*args, **kwargs)

    return passed_over
