"""Random weights on which a proof of equality proves something."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pareto.protocol.errors import UserError, one_line

from . import registry
from .graph import storages

_Head = nn.Linear | _ConvNd
FAULTS = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)


def seeded(name: str, seed: int) -> nn.Module:
    """The model with random weights that depend on `seed` only; the global RNG is left alone.

    A constructor's initialization is the start of a training, not a working network: untrained batch normalization
    passes on signals that fade (MobileNetV2 ends at 1e-10) or explode (ResNet152 at 1e7) with depth, and ViT's head
    is zero. Such a network yields much the same for any input, and any split of it would pass for equal. So one batch
    of noise runs through it, as in the first step of a training: batch normalization takes its statistics, and the
    heads are scaled so that their outputs are centred, with unit deviation. A model that does not take images gets the
    inputs that its author makes.
    """
    entry = registry.entry(name)
    with torch.random.fork_rng(devices=[]), entry.blamed():
        torch.manual_seed(seed)
        model = entry.module()
        inputs = entry.takes.calibrating(seed)
        torch.set_num_threads(1)  # the order of summation, and with it the last bits, depends on their number
        try:
            with torch.no_grad():
                _calibrate(model, functools.partial(entry.call, model), inputs)
        except FAULTS as error:
            shapes = ", ".join(
                f"{str(one.dtype).removeprefix('torch.')} {tuple(one.shape)}" for one in inputs
            )
            raise UserError(f"{name} fails on inputs of {shapes}: {one_line(error)}") from error
    return model.requires_grad_(False)


_Call = Callable[[Sequence[Tensor]], Any]


@contextmanager
def _noted(layers: Sequence[_Head], note: Callable[[_Head, Tensor], None]) -> Iterator[None]:
    """A context in which `note` gets each of these layers that runs, and what it returns."""
    hooks = [
        layer.register_forward_hook(lambda layer, _inputs, output: note(layer, output)) for layer in layers
    ]
    yield
    for hook in hooks:
        hook.remove()


def _calibrate(model: nn.Module, call: _Call, inputs: Sequence[Tensor]) -> None:
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    heads = _heads(model, call, [one[:1] for one in inputs])
    for head in heads:
        if not head.weight.any():
            nn.init.trunc_normal_(head.weight, std=head.weight.shape[1] ** -0.5)
    momenta = [norm.momentum for norm in norms]
    outputs: dict[_Head, list[tuple[Tensor, Tensor]]] = {head: [] for head in heads}
    for norm in norms:
        norm.train().momentum = 1.0  # the statistics of this batch, whole
    with _noted(heads, lambda layer, output: outputs[layer].append((output, output.clone()))):
        call(inputs)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.eval().momentum = momentum
    for head, seen in outputs.items():
        channel = -1 if isinstance(head, nn.Linear) else 1
        if rows := [_activated(*pair).movedim(channel, -1).flatten(0, -2) for pair in seen]:
            _standardize(head, torch.cat(rows))  # several, if it serves several feature maps


def _activated(output: Tensor, before: Tensor) -> Tensor:
    """A head's output before any work in place on it, except rectification, whose cut-off part does not count."""
    return output if torch.equal(output, before.relu()) else before


def _standardize(layer: _Head, outputs: Tensor) -> None:
    """Scale weights and bias so that `outputs` would have had mean 0 a channel and deviation 1 overall."""
    mean = outputs.mean(0)
    deviation = (outputs - mean).std()
    if deviation > 0:
        layer.weight /= deviation
        if layer.bias is not None:
            layer.bias.sub_(mean).div_(deviation)


def _heads(model: nn.Module, call: _Call, inputs: Sequence[Tensor]) -> list[_Head]:
    """The layers with no other layer between them and the model's result, in the order of the modules. One that its
    builder froze is no head but part of the arithmetic (YOLO's expectation over distances)."""
    every = [m for m in model.modules() if isinstance(m, _Head)]
    layers = [layer for layer in every if layer.weight.requires_grad] or every
    origins = _Origins()
    with _noted(layers, origins.begin), origins:
        result = call(inputs)
    heads = origins.of(result)
    return [layer for layer in layers if layer in heads]


class _Origins(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The layers from which each tensor was computed last, by the tensor's memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._of: dict[int, frozenset[_Head]] = {}

    def begin(self, layer: _Head, output: Tensor) -> None:
        self._of.update(dict.fromkeys(storages(output), frozenset([layer])))

    def of(self, value: Any) -> frozenset[_Head]:
        known = (self._of.get(memory, frozenset()) for memory in storages(tree_leaves(value)))
        return frozenset[_Head]().union(*known)

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self._of.update(dict.fromkeys(storages(tree_leaves(result)), self.of((args, kwargs))))
        return result
