"""Weights files: made once, named by their digest, so that every host computes with the same numbers."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pickle
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from pareto.errors import UserError, one_line

from . import allocator, registry


@dataclass(frozen=True)
class Weights:
    """A weights file in safetensors format. digest: SHA-256 of its bytes, in hex."""

    path: Path
    digest: str


# Pretrained files carry auxiliary heads also for models that are built without them.
_AUXILIARY = ("aux1.", "aux2.", "AuxLogits.", "aux_classifier.")


def make(name: str, source: str, seed: int, directory: Path) -> Weights:
    """Write the weights of a model to <directory>/<digest>.safetensors; the same tensors give the same file.

    source: 'seeded' (random from `seed`), 'pretrained' (its author's, downloaded where they are not here), or the path
    of a state dict: .safetensors, .pt or .pth. The global RNG is left alone, and no weights stay in memory.
    Raises UserError, also where the source cannot be had or does not fit the model.
    """
    name = registry.canonical(name)
    made = _write(_checked(_state(name, source, seed), name, source), directory)
    allocator.give_back_freed()
    return made


def _state(name: str, source: str, seed: int) -> Mapping[str, Tensor]:
    if source == "seeded":
        return seeded(name, seed).state_dict()
    if source == "pretrained":
        return _pretrained(name)
    if source.endswith(".safetensors"):
        return read(Path(source), name)  # the format's own reader would have the file in memory besides
    return _from_file(Path(source))


class Reader:
    """A weights file that fits its model; its tensors are read by key, and no other reference to them is kept.

    Each tensor is read straight into memory that torch allocates. Mapping the file would be shorter, but its pages
    count as the process's own, may be read from disk during a measurement, and hold tensors at odd addresses, where
    kernels round otherwise. Raises UserError where the file cannot be read or does not fit the model.
    """

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        entries, self._data_start = _header(path)
        self._dtypes = _fitting(
            {key: entry["shape"] for key, entry in entries.items()}, registry.canonical(name), str(path)
        )
        self._entries = {key: entries[key] for key in self._dtypes}
        unknown = sorted({entry["dtype"] for entry in self._entries.values()} - _DTYPES.keys())
        if unknown:
            raise UserError(f"cannot read weights from {path}: dtype {', '.join(unknown)}")

    @property
    def keys(self) -> Iterable[str]:
        """The keys of the model's state dict, in its order."""
        return self._entries.keys()

    def read(self, keys: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """The keys and their tensors one by one, on the CPU, in the model's dtypes. Raises UserError, KeyError."""
        try:
            with self._path.open("rb") as file:
                for key in keys:
                    yield key, self._tensor(file, key)
        except OSError as error:
            raise UserError(f"cannot read weights from {self._path}: {one_line(error)}") from error

    def _tensor(self, file: BinaryIO, key: str) -> Tensor:
        entry = self._entries[key]
        tensor = torch.empty(entry["shape"], dtype=_DTYPES[entry["dtype"]])
        content = memoryview(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
        file.seek(self._data_start + entry["data_offsets"][0])
        if file.readinto(content) != content.nbytes:  # type: ignore[attr-defined]
            raise UserError(f"cannot read weights from {self._path}: it ends within {key}")
        return tensor.to(self._dtypes[key])


def read(path: Path, name: str) -> dict[str, Tensor]:
    """All tensors of a weights file, on the CPU. Raises UserError where they do not fit the model."""
    reader = Reader(path, name)
    return dict(reader.read(reader.keys))


_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Each tensor's entry in a safetensors file (dtype, shape, data_offsets), and the offset of the file's data.

    The format: 8 bytes of length, little endian; as many bytes of JSON; the data, to which the offsets refer.
    """
    try:
        with safe_open(path, "pt"):
            pass  # checks the form: tensors within the file, of the sizes that their shapes want
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header: dict[str, Any] = json.loads(file.read(length))
    except (OSError, ValueError, SafetensorError) as error:
        raise UserError(f"cannot read weights from {path}: {one_line(error)}") from error
    header.pop("__metadata__", None)
    return header, 8 + length


def _pretrained(name: str) -> Mapping[str, Tensor]:
    published = registry.entry(name).pretrained
    if published is None:
        raise UserError(f"no pretrained weights for {name}: give a file of them (--weights), or 'seeded'")
    try:
        return published()
    except (OSError, RuntimeError) as error:  # no network, no such file, a broken download
        raise UserError(f"no pretrained weights for {name}: {one_line(error)}") from error


def _from_file(path: Path) -> Mapping[str, Tensor]:
    """The state dict in a pickle, also in one where a training script put it under 'state_dict' or 'model'."""
    if path.suffix not in (".pt", ".pth"):
        raise UserError(f"{str(path)!r} is not 'seeded', 'pretrained', or a .safetensors, .pt or .pth file")
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError) as error:
        raise UserError(f"cannot read weights from {path}: {one_line(error)}") from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise UserError(f"{path} does not hold a state dict")
    return cast("Mapping[str, Tensor]", content)


def _checked(state: Mapping[str, Tensor], name: str, source: str) -> dict[str, Tensor]:
    """The model's entries of `state`, in the model's order and dtypes."""
    dtypes = _fitting({key: tensor.shape for key, tensor in state.items()}, name, source)
    return {key: state[key].detach().to("cpu", dtype) for key, dtype in dtypes.items()}


def _fitting(shapes: Mapping[str, Sequence[int]], name: str, source: str) -> dict[str, torch.dtype]:
    """The model's keys in its order, with its dtypes. Raises UserError unless `shapes` are the model's."""
    expected = _state_of(name)
    given = {
        key: tuple(shape)
        for key, shape in shapes.items()
        if key in expected or not key.startswith(_AUXILIARY)
    }
    faults = {
        "missing": [key for key in expected if key not in given],
        "unexpected": [key for key in given if key not in expected],
        "of another shape": [
            key for key in expected if key in given and given[key] != tuple(expected[key].shape)
        ],
    }
    words = [
        f"{len(keys)} {what} ({', '.join(keys[:3])}{', ...' if len(keys) > 3 else ''})"
        for what, keys in faults.items()
        if keys
    ]
    if words:
        raise UserError(f"weights from {source} do not fit {name}: {'; '.join(words)}")
    return {key: tensor.dtype for key, tensor in expected.items()}


@functools.lru_cache(maxsize=16)
def _state_of(name: str) -> Mapping[str, Tensor]:
    """The model's state dict on the meta device, kept because building a model takes time."""
    return {key: tensor.to("meta") for key, tensor in registry.build_structure(name).state_dict().items()}


def _write(state: dict[str, Tensor], directory: Path) -> Weights:
    """Save under a temporary name, then under the digest: a file with a digest for a name is complete."""
    directory.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(suffix=".tmp", dir=directory)
    os.close(handle)
    try:
        save_file(_separate(state), temporary)
        digest = file_digest(Path(temporary))
        path = directory / f"{digest}.safetensors"
        Path(temporary).replace(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return Weights(path, digest)


def _separate(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same tensors, each contiguous and in memory of its own, as the format wants them."""
    seen: set[int] = set()
    result = {}
    for key, tensor in state.items():
        storage = tensor.untyped_storage()
        shared = storage.data_ptr() in seen or storage.nbytes() != tensor.nbytes
        seen.add(storage.data_ptr())
        result[key] = tensor.clone(memory_format=torch.contiguous_format) if shared else tensor.contiguous()
    return result


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


# Random weights on which a proof of equality proves something

_IMAGES_OF_A_KIND = 2  # normalized images, and raw ones between 0 and 1: inputs may be either

_Head = nn.Linear | _ConvNd
_FAULTS = (RuntimeError, ValueError, TypeError, IndexError, AssertionError)


def seeded(name: str, seed: int) -> nn.Module:
    """The model with random weights that depend on `seed` only; the global RNG is left alone.

    A constructor's initialization is the start of a training, not a working network: untrained batch normalization
    passes on signals that fade (MobileNetV2 ends at 1e-10) or explode (ResNet152 at 1e7) with depth, and ViT's head
    is zero. Such a network yields much the same for any input, and any split of it would pass for equal. So one batch
    of noise runs through it, as in the first step of a training: batch normalization takes its statistics, and the
    heads are scaled so that their outputs are centred, with unit deviation. A model that does not take images gets the
    inputs that its author makes.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        entry = registry.entry(name)
        model = entry.module()
        if entry.make_inputs is None:
            shape = (_IMAGES_OF_A_KIND, *entry.input_shape)
            inputs: tuple[Tensor, ...] = (torch.cat([torch.randn(shape), torch.rand(shape)]),)
        else:
            inputs = entry.example(2 * _IMAGES_OF_A_KIND, seed)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # the order of summation, and with it the last bits, depends on their number
        try:
            with torch.no_grad():
                _calibrate(model, functools.partial(entry.call, model), inputs)
        except _FAULTS as error:
            shapes = ", ".join(
                f"{str(one.dtype).removeprefix('torch.')} {tuple(one.shape)}" for one in inputs
            )
            raise UserError(f"{name} fails on inputs of {shapes}: {one_line(error)}") from error
        finally:
            torch.set_num_threads(threads)
    return model.requires_grad_(False)


_Call = Callable[[Sequence[Tensor]], Any]


def _calibrate(model: nn.Module, call: _Call, inputs: Sequence[Tensor]) -> None:
    norms = [m for m in model.modules() if isinstance(m, _BatchNorm)]
    heads = _heads(model, call, [one[:1] for one in inputs])
    for head in heads:
        if not head.weight.any():
            nn.init.trunc_normal_(head.weight, std=head.weight.shape[1] ** -0.5)
    momenta = [norm.momentum for norm in norms]
    outputs: dict[_Head, list[tuple[Tensor, Tensor]]] = {head: [] for head in heads}
    hooks = [
        head.register_forward_hook(
            lambda layer, _inputs, output: outputs[layer].append((output, output.clone()))
        )
        for head in heads
    ]
    try:
        for norm in norms:
            norm.train().momentum = 1.0  # the statistics of this batch, whole
        call(inputs)
    finally:
        for hook in hooks:
            hook.remove()
        for norm, momentum in zip(norms, momenta, strict=True):
            norm.eval().momentum = momentum
    for head, seen in outputs.items():
        if seen:  # more than once, if it serves several feature maps
            _standardize(head, torch.cat([_channels_last(head, _activated(*pair)) for pair in seen]))


def _activated(output: Tensor, before: Tensor) -> Tensor:
    """A head's output before any work in place on it, except rectification, whose cut-off part does not count."""
    return output if torch.equal(output, before.relu()) else before


def _channels_last(layer: _Head, output: Tensor) -> Tensor:
    channel = -1 if isinstance(layer, nn.Linear) else 1
    return output.movedim(channel, -1).flatten(0, -2)


def _standardize(layer: _Head, outputs: Tensor) -> None:
    """Scale weights and bias so that `outputs` would have had mean 0 a channel and deviation 1 overall."""
    mean = outputs.mean(0)
    deviation = (outputs - mean).std()
    if not deviation > 0:
        return
    layer.weight /= deviation
    if layer.bias is not None:
        layer.bias.sub_(mean).div_(deviation)


def _heads(model: nn.Module, call: _Call, inputs: Sequence[Tensor]) -> list[_Head]:
    """The layers with no other layer between them and the model's result, in the order of the modules.

    A layer that its builder froze is no head but part of the arithmetic (YOLO's expectation over distances).
    """
    every = [m for m in model.modules() if isinstance(m, _Head)]
    layers = [layer for layer in every if layer.weight.requires_grad] or every
    origins = _Origins()
    hooks = [
        layer.register_forward_hook(lambda layer, _inputs, output: origins.begin(layer, output))
        for layer in layers
    ]
    try:
        with origins:
            result = call(inputs)
    finally:
        for hook in hooks:
            hook.remove()
    heads = frozenset[_Head]().union(
        *(origins.of(one) for one in tree_leaves(result) if isinstance(one, Tensor))
    )
    return [layer for layer in layers if layer in heads]


class _Origins(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The layers from which each tensor was computed last, by the tensor's memory."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._of: dict[int, frozenset[_Head]] = {}

    def begin(self, layer: _Head, output: Tensor) -> None:
        self._of[_memory(output)] = frozenset([layer])

    def of(self, tensor: Tensor) -> frozenset[_Head]:
        return self._of.get(_memory(tensor), frozenset())

    def __torch_dispatch__(
        self, func: Any, _types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        read = [value for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
        origin = frozenset[_Head]().union(*map(self.of, read))
        for tensor in tree_leaves(result):
            if isinstance(tensor, Tensor):
                self._of[_memory(tensor)] = origin
        return result


def _memory(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)
