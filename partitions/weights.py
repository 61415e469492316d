"""Weights files: made once, named by their digest, so that every host computes with the same numbers."""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from . import registry
from .seeded import seeded
from .torchvision_compat import models


class WeightsError(ValueError):
    """Weights that cannot be had, or do not fit the model; the message is one line."""


@dataclass(frozen=True)
class Weights:
    """A weights file in safetensors format. digest: SHA-256 of its bytes, in hex."""

    path: Path
    digest: str


# Pretrained files carry auxiliary heads, which `registry.build` leaves out.
_AUXILIARY = ("aux1.", "aux2.", "AuxLogits.")


def make(name: str, source: str, seed: int, directory: Path) -> Weights:
    """Write the weights of a model to <directory>/<digest>.safetensors; the same tensors give the same file.

    source: 'seeded' (random from `seed`), 'pretrained' (torchvision's default, downloaded by it), or the
    path of a state dict: .safetensors, .pt or .pth. seed: for 'seeded' only; the global RNG is left alone.
    Raises UnknownModel, and WeightsError where the source cannot be had or does not fit the model.
    """
    name = registry.canonical(name)
    if source == "seeded":
        state: Mapping[str, Tensor] = seeded(name, seed).state_dict()
    elif source == "pretrained":
        state = _pretrained(name)
    else:
        state = _from_file(Path(source))
    return _write(_checked(state, name, source), directory)


def read(path: Path, name: str) -> dict[str, Tensor]:
    """The tensors of a weights file, on the CPU. Raises WeightsError where they do not fit the model.

    They are copied out of the file's mapping, in which they lie at odd addresses: kernels round otherwise
    there than on tensors that torch allocated, and a mapped page may be read from disk in mid-measurement.
    """
    state = _checked(_from_file(path), registry.canonical(name), str(path))
    return {key: tensor.clone() for key, tensor in state.items()}


def _pretrained(name: str) -> Mapping[str, Tensor]:
    try:
        state: Mapping[str, Tensor] = models.get_model(name, weights="DEFAULT", progress=False).state_dict()
    except (OSError, RuntimeError) as error:  # no network, no such file, a broken download
        raise WeightsError(f"no pretrained weights for {name}: {_one_line(error)}") from error
    return state


def _from_file(path: Path) -> Mapping[str, Tensor]:
    """The state dict in a file, also one that a training script wrapped as 'state_dict' or 'model'."""
    if path.suffix not in (".safetensors", ".pt", ".pth"):
        raise WeightsError(
            f"{str(path)!r} is not 'seeded', 'pretrained', or a .safetensors, .pt or .pth file"
        )
    try:
        if path.suffix == ".safetensors":
            content: Any = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, EOFError, RuntimeError, ValueError, pickle.UnpicklingError, SafetensorError) as error:
        raise WeightsError(f"cannot read weights from {path}: {_one_line(error)}") from error
    for key in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(key), Mapping):
            content = content[key]
    if not isinstance(content, Mapping) or not all(isinstance(value, Tensor) for value in content.values()):
        raise WeightsError(f"{path} does not hold a state dict")
    return cast("Mapping[str, Tensor]", content)


def _checked(state: Mapping[str, Tensor], name: str, source: str) -> dict[str, Tensor]:
    """The entries that the model has, in its order and dtypes."""
    expected = registry.build_structure(name).state_dict()
    given = {key: value for key, value in state.items() if not key.startswith(_AUXILIARY)}
    faults = {
        "missing": [key for key in expected if key not in given],
        "unexpected": [key for key in given if key not in expected],
        "of another shape": [
            key for key in expected if key in given and given[key].shape != expected[key].shape
        ],
    }
    found = [
        f"{len(keys)} {what} ({', '.join(keys[:3])}{', ...' if len(keys) > 3 else ''})"
        for what, keys in faults.items()
        if keys
    ]
    if found:
        raise WeightsError(f"weights from {source} do not fit {name}: {'; '.join(found)}")
    return {key: given[key].detach().to("cpu", value.dtype) for key, value in expected.items()}


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
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
