"""Weights files: made once, named by their digest, so that every host computes with the same numbers."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from pareto.protocol.errors import UserError, one_line

from . import allocator, registry, torchvision_models
from .checkpoints import COUNTERS, state_dict, unreadable
from .entry import Entry
from .graph import first_paths
from .seeded import seeded

# Pretrained files carry auxiliary heads also for models that are built without them.
_AUXILIARY = ("aux1.", "aux2.", "AuxLogits.", "aux_classifier.")


def make(name: str, source: str, seed: int, directory: Path) -> Path:
    """The file with the weights of a model, <directory>/<SHA-256>.safetensors; the same tensors give the same file.

    source: 'seeded' (random from `seed`), 'pretrained' (its author's, downloaded where they are not here), or a file
    of torch.save or safetensors. The global RNG is left alone, and no weights stay in memory.
    Raises UserError, also where the source cannot be had or does not fit the model.
    """
    name = registry.canonical(name)
    made = _write(_checked(_state(name, source, seed), name, source), directory)
    allocator.give_back_freed()
    return made


def classes(name: str, source: str) -> int:
    """The number of classes of a file of weights that differs from the model in its head alone; else 0."""
    if not (torchvision_models.is_of_classes(name) and Path(source).is_file()):
        return 0  # no other head could follow
    expected, _ = _state_of(registry.entry(name))
    state = state_dict(Path(source), expected, _whole)
    others = [(key, state[key]) for key in expected.keys() & state if state[key].shape != expected[key].shape]
    alike = all(one.dim() and one.shape[1:] == expected[key].shape[1:] for key, one in others)
    numbers = {one.shape[0] for _, one in others} if alike else set()
    return numbers.pop() if len(numbers) == 1 else 0


def _state(name: str, source: str, seed: int) -> Mapping[str, Tensor]:
    if source == "seeded":
        return seeded(name, seed).state_dict()
    if source != "pretrained":
        path, expected = Path(source), {*itertools.chain(*_state_of(registry.entry(name)))}
        if not path.is_file():
            raise UserError(f"--weights {source}: neither 'seeded' nor 'pretrained', and no such file")
        return state_dict(path, expected, _whole)
    published = registry.entry(name).pretrained
    if published is None:
        raise UserError(f"no pretrained weights for {name}: give a file of them (--weights), or 'seeded'")
    try:
        return published()
    except (OSError, RuntimeError) as error:  # no network, no such file, a broken download
        raise UserError(f"no pretrained weights for {name}: {one_line(error)}") from error


class Reader:
    """Weights files that fit their model; their tensors are read by key, and no other reference to them is kept.

    in_part: the files need not have all keys of the model between them: a host gets those that it needs.

    Each tensor is read straight into memory that torch allocates. Mapping the file would be shorter, but its pages
    count as the process's own, may be read from disk during a measurement, and hold tensors at odd addresses, where
    kernels round otherwise. Raises UserError where a file cannot be read or does not fit the model.
    """

    def __init__(self, files: Iterable[Path], name: str, *, in_part: bool = True) -> None:
        name = registry.canonical(name)
        self._places: dict[str, tuple[Path, Place, torch.dtype]] = {}
        for path in files:
            places = layout(path)
            shapes = {key: place.shape for key, place in places.items()}
            fitting = _fitting(shapes, name, str(path), in_part=in_part)
            self._places |= {key: (path, places[own], dtype) for key, (own, dtype) in fitting.items() if own}

    @property
    def keys(self) -> Iterable[str]:
        """The keys of the model's state dict that the files have."""
        return self._places.keys()

    def read(self, keys: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        """The keys and their tensors one by one, on the CPU, in the model's dtypes. Raises UserError, KeyError."""
        for path, of_file in itertools.groupby(keys, lambda key: self._places[key][0]):
            try:
                with path.open("rb") as file:
                    for key in of_file:
                        _, place, dtype = self._places[key]
                        yield key, _tensor(file, place, key).to(dtype)
            except OSError as error:
                raise unreadable(path, error) from error


def read(path: Path, name: str) -> dict[str, Tensor]:
    """All tensors of a weights file, on the CPU. Raises UserError where they do not fit the model."""
    reader = Reader([path], name, in_part=False)
    return dict(reader.read(reader.keys))


def _whole(path: Path) -> dict[str, Tensor]:
    """All tensors of a safetensors file as they are; the format's own reader would map it besides. Raises UserError."""
    places = layout(path)
    with path.open("rb") as file:
        return {key: _tensor(file, place, key) for key, place in places.items()}


def _tensor(file: BinaryIO, place: Place, key: str) -> Tensor:
    tensor = torch.empty(place.shape, dtype=_DTYPES[place.dtype])
    content = memoryview(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
    file.seek(place.begin)
    if file.readinto(content) != content.nbytes:  # type: ignore[attr-defined]
        raise unreadable(Path(file.name), f"it ends within {key}")
    return tensor


_DTYPES = {
    **{"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16},
    **{"I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8},
    **{"U8": torch.uint8, "BOOL": torch.bool},
}


@dataclass(frozen=True)
class Place:
    """The bytes of a tensor in a file. dtype: as safetensors names it."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def layout(path: Path) -> dict[str, Place]:
    """Each tensor's place in a safetensors file, by key. Raises UserError where the file cannot be read. The format: 8
    bytes of length, little endian; as many bytes of JSON; the data, to which the offsets refer."""
    try:
        with safe_open(path, "pt"):
            pass  # checks the form: tensors within the file, of the sizes that their shapes want
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header: dict[str, Any] = json.loads(file.read(length))
    except (OSError, ValueError, SafetensorError) as error:
        raise unreadable(path, error) from error
    header.pop("__metadata__", None)
    places = {}
    for key, entry in header.items():
        if entry["dtype"] not in _DTYPES:
            raise unreadable(path, f"dtype {entry['dtype']}")
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        places[key] = Place(entry["dtype"], tuple(entry["shape"]), begin, end)
    return places


def _checked(state: Mapping[str, Tensor], name: str, source: str) -> dict[str, Tensor]:
    """The model's entries of `state`, in the model's order and dtypes. Raises UserError."""
    fits = _fitting({key: tensor.shape for key, tensor in state.items()}, name, source)
    result = {}
    for key, (own, dtype) in fits.items():
        result[key] = state[own].detach().to("cpu", dtype) if own else torch.zeros((), dtype=dtype)
        if result[key].is_floating_point() and result[key].isnan().any():
            raise UserError(f"weights from {source}: {own} has values that are not numbers (NaN)")
    return result


def _fitting(
    shapes: Mapping[str, Sequence[int]], name: str, source: str, *, in_part: bool = False
) -> dict[str, tuple[str, torch.dtype]]:
    """The model's keys in its order: by which key of `shapes`, and its dtype. Raises UserError unless they fit.

    A tensor that the model has under several keys has the first; that of a counter which is missing is empty. in_part:
    some of the keys are enough, and those are returned.
    """
    expected, first = _state_of(registry.entry(name))
    given = {
        key: tuple(shape)
        for key, shape in shapes.items()
        if key in expected or key in first or (not key.endswith(COUNTERS) and not key.startswith(_AUXILIARY))
    }
    own = {first.get(key, key): key for key in reversed([*given])}
    absent = [] if in_part else [key for key in expected if key not in own]
    faults = {
        "missing": [key for key in absent if not key.endswith(COUNTERS)],
        "unexpected": [key for key in given if first.get(key, key) not in expected],
        "of another shape": [
            f"{key}: {_by(given[own[key]])}, not {_by(tensor.shape)}"
            for key, tensor in expected.items()
            if key in own and given[own[key]] != tuple(tensor.shape)
        ],
    }
    words = [
        f"{len(keys)} {what} ({', '.join(keys[:3])}{', ...' if len(keys) > 3 else ''})"
        for what, keys in faults.items()
        if keys
    ]
    if words:
        raise UserError(f"weights from {source} do not fit {name}: {'; '.join(words)}")
    kept = own.keys() | {*absent}
    return {key: (own.get(key, ""), tensor.dtype) for key, tensor in expected.items() if key in kept}


def _by(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "one number"


@functools.lru_cache(maxsize=16)  # building a model takes time
def _state_of(entry: Entry) -> tuple[Mapping[str, Tensor], Mapping[str, str]]:
    """The model's state dict on the meta device, and the first key of each tensor that has several, by the others."""
    model = registry.build_structure(entry.name)
    first = first_paths(model)
    state = {key: tensor.to("meta") for key, tensor in model.state_dict().items()}
    return {key: tensor for key, tensor in state.items() if key not in first}, first


def _write(state: dict[str, Tensor], directory: Path) -> Path:
    """Save under a temporary name, then under the digest: a file with a digest for a name is complete."""
    directory.mkdir(parents=True, exist_ok=True)
    separate, seen = dict[str, Tensor](), set[int]()  # each in memory of its own, as the format wants them
    for key, tensor in state.items():
        storage = tensor.untyped_storage()
        shared = storage.data_ptr() in seen or storage.nbytes() != tensor.nbytes
        seen.add(storage.data_ptr())
        separate[key] = tensor.clone(memory_format=torch.contiguous_format) if shared else tensor.contiguous()
    with tempfile.TemporaryDirectory(suffix=".tmp", dir=directory) as folder:
        written = Path(folder, "weights")
        save_file(separate, written)
        return written.replace(directory / f"{file_digest(written)}.safetensors")


def file_digest(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()
