"""Whether a model depends on its inputs alone: what its code assigns, draws, and sets for the whole process."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from .graph import HopelessModel, named_tensors


class UnrepeatableModel(HopelessModel):
    """The model's answer depends on more, so that two hosts, or two runs, would give others."""


def changes(module: nn.Module, path: str) -> UnrepeatableModel:
    """The error about a model that changes a tensor of its own."""
    what = "parameter" if path in dict(module.named_parameters()) else "buffer"
    return UnrepeatableModel(
        f"{type(module).__name__} changes its own {what} {path} when it runs: no two hosts can share it"
    )


@contextlib.contextmanager
def kept(module: nn.Module) -> Iterator[None]:
    """A context after which all that a module's own code has assigned to it is as before. Raises UnrepeatableModel
    where that was a parameter or a buffer, or its values."""
    held: list[tuple[Any, ...]] = [
        (owner, dict(vars(owner)), dict(owner._parameters), dict(owner._buffers))
        for owner in module.modules()
    ]
    trained = {path: owner.training for path, owner in module.named_modules()}
    before = {path: (tensor, _writes(tensor)) for path, tensor in named_tensors(module)}
    try:
        yield
        for path, tensor in named_tensors(module):
            known, writes = before.get(path, (None, 0))
            if known is not tensor or writes != _writes(tensor):
                raise changes(module, path)
        for path, owner in module.named_modules():
            if owner.training and not trained.get(path, True):
                raise UnrepeatableModel(
                    f"{type(module).__name__} puts {path or 'itself'} in training mode when it runs: take that out"
                )
    finally:
        for owner, *then in held:
            for own, was in zip((vars(owner), owner._parameters, owner._buffers), then, strict=True):
                own.clear()
                own.update(was)


def _writes(tensor: Tensor) -> int:
    """How often a tensor was written to; tensors of an inference do not count it."""
    return 0 if tensor.is_inference() else tensor._version


class Chance(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While this mode is active, `drawn` tells whether an operator drew random numbers, `last` which began last."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.drawn = False
        self.last: Any = None

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.last = func
        # Attention and recurrent layers could, and call an operator of the others where they do.
        could = torch.Tag.nondeterministic_seeded in func.tags
        self.drawn |= could and not re.search("attention|rnn|lstm|gru", func.name())
        return func(*args, **(kwargs or {}))


_SETTINGS: tuple[tuple[Callable[[], Any], Callable[[Any], object]], ...] = (
    (torch.get_num_threads, torch.set_num_threads),
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.is_grad_enabled, torch.set_grad_enabled),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    (lambda: torch.backends.cudnn.benchmark, lambda value: setattr(torch.backends.cudnn, "benchmark", value)),
    # None, as a device would be asked at each call of torch.
    (torch.get_default_device, lambda _: torch.set_default_device(None)),
    (os.getcwd, os.chdir),
)
"""The settings of the process that a user's file may change, but are the run's: how to read and set each."""


@contextlib.contextmanager
def settings_kept() -> Iterator[None]:
    """A context after which the settings are as before."""
    before = [read() for read, _ in _SETTINGS]
    try:
        yield
    finally:
        for (read, put), value in zip(_SETTINGS, before, strict=True):
            if read() != value:
                put(value)
