"""State dicts out of checkpoints as people have them: under any name and nesting, told from their content."""

from __future__ import annotations

import argparse
import importlib
import pickle
import zipfile
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pareto.protocol.errors import UserError, one_line

COUNTERS = ("num_batches_tracked", "total_ops", "total_params")
"""The last part of keys that decide nothing in eval mode: files lack them, or have them besides."""
_DEEPEST = 3


def state_dict(
    path: Path, expected: Collection[str], read: Callable[[Path], dict[str, Tensor]]
) -> dict[str, Tensor]:
    """The state dict in a file that has the most of the keys in `expected`, dense; `read`: of a safetensors file.

    A prefix that all its keys share, as of a wrapper, is left out where that makes them the expected ones.
    Raises UserError.
    """
    try:
        with path.open("rb") as file:
            head = file.read(9)
    except OSError as error:
        raise unreadable(path, error) from error
    if head.endswith(b"{"):  # the length of a header, and the header
        return _bare(read(path), expected)
    if not head.startswith((b"PK", b"\x80")):
        raise unreadable(path, "it is a file neither of torch.save nor of safetensors")
    content = _loaded(path)
    found = [_bare(state, expected) for state in _state_dicts(content)]
    if not found:
        has = f": it has {', '.join(map(str, [*content][:8]))}" if isinstance(content, Mapping) else ""
        raise UserError(f"{path} does not hold a state dict{has}")
    best = max(found, key=lambda state: len(state.keys() & expected))
    plain = {key: one.dequantize() if one.is_quantized else one for key, one in best.items()}
    return {key: tensor.detach().to_dense() for key, tensor in plain.items()}


def _loaded(path: Path) -> Any:
    """The object that torch.save wrote, none of whose code runs. Raises UserError."""
    if zipfile.is_zipfile(path) and any("/code/" in name for name in zipfile.ZipFile(path).namelist()):
        by = "torch.save(module.state_dict(), FILE)"
        raise unreadable(path, f"it is TorchScript: save the state dict of its module, by {by}")
    # What training scripts save beside a state dict, and is no code: options, and numbers of numpy.
    numpy = importlib.import_module("numpy")  # the driver has it; a device that holds a stage need not
    kinds = (type(numpy.dtype(kind)) for kind in ("f8", "f4", "f2", "i8", "i4", "u1", "?"))
    harmless = [argparse.Namespace, numpy.dtype, numpy._core.multiarray.scalar, *kinds]
    try:
        with path.open("rb") as file, torch.serialization.safe_globals(harmless):
            # Not by its name, for which torch may have another reader.
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:  # whose words advise to execute what is in the file
        by = "torch.save(model.state_dict(), FILE)"
        raise unreadable(path, f"it holds other things than tensors: save it by {by}") from error
    except (OSError, EOFError, RuntimeError, ValueError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, why: Exception | str) -> UserError:
    """The error about a file of weights."""
    return UserError(f"cannot read weights from {path}: {why if isinstance(why, str) else one_line(why)}")


def _state_dicts(content: Any, depth: int = 0) -> Iterator[dict[str, Tensor]]:
    """The tensors of each mapping that has some, the outer ones first."""
    if not isinstance(content, Mapping) or depth > _DEEPEST:
        return
    tensors = {str(key): value for key, value in content.items() if isinstance(value, Tensor)}
    if tensors:
        yield tensors
    for value in content.values():
        yield from _state_dicts(value, depth + 1)


def _bare(state: dict[str, Tensor], expected: Collection[str]) -> dict[str, Tensor]:
    """The same tensors without a prefix that all keys share, if so more of them are expected."""
    bare = state
    while bare.keys().isdisjoint(expected):
        if not all("." in key for key in bare) or len({key.partition(".")[0] for key in bare}) != 1:
            return state
        bare = {key.partition(".")[2]: tensor for key, tensor in bare.items()}
    return bare
