"""The graph of a model that defies tracing, from the names of the submodules that one after another are the model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.utils._python_dispatch import TorchDispatchMode

from .graph import UntraceableModel


def graph(module: nn.Module, chain: tuple[str, ...]) -> fx.Graph:
    """Images into the first submodule of `chain`, its output into the second, and so on to the model's result.

    chain: paths, as in 'features.0'. A submodule may do what no graph can tell (take one branch or another, loop until
    something is found): it runs as it is. Raises UntraceableModel where a submodule is missing.
    """
    result = fx.Graph()
    value = result.placeholder("images")
    for path in chain:
        try:
            unit = module.get_submodule(path)
        except AttributeError as error:
            has = ", ".join(name for name, _ in module.named_children())
            raise UntraceableModel(
                f"{type(module).__name__} has no submodule {path!r}: it has {has}"
            ) from error
        value = result.call_module(path, (value,))
        value.meta["nn_module_stack"] = {path: (path, type(unit))}
    result.output(value)
    return result


class AnyBranch(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is active, a value that decides where a program goes may be on the meta device: it counts as 0.

    A payload has one shape, so whichever branch is taken leads to the shapes of all.
    """

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default and args[0].is_meta:
            return torch.zeros((), dtype=args[0].dtype).item()
        return func(*args, **(kwargs or {}))
