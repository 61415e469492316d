"""A library that Inductor built of a stage: loaded, run, and unloaded.

It is called by its C interface, so that other threads go on while it computes: torch's own binding for it would keep
Python's lock meanwhile, and the host could neither receive nor send.
"""

from __future__ import annotations

import _ctypes
import ctypes
import mmap
import weakref
from ctypes import byref, c_char_p, c_size_t, c_void_p, py_object
from pathlib import Path

import torch

from partitions.stage import Payload

_PREFIX = "AOTInductorModelContainer"
_pointer = ctypes.PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_capsule = ctypes.PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", ctypes.pythonapi))


def weights(library: Path) -> Path:
    """The file of its weights."""
    return library.with_name(f"{library.stem}_weights.blob")


class Library:
    """Runs the stage on the device that it was built for, as in 'cuda:0'; nobody else runs it at the same time.

    weights_bytes: of its weights, which are in the device's memory once. Raises RuntimeError, OSError.
    """

    def __init__(self, file: Path, device: str = "cpu") -> None:
        if file.with_suffix(".json").exists():
            raise RuntimeError("one of its operators can be called from Python only")
        self._loaded = ctypes.CDLL(str(file))
        self._model, outputs = c_void_p(), c_size_t()
        self._call("CreateWithDevice", byref(self._model), c_size_t(1), device.encode(), None)
        weakref.finalize(self, _unload, self._loaded, self._model).atexit = False
        self._call("GetNumOutputs", self._model, byref(outputs))
        self._outputs = outputs.value
        self.weights_bytes = self._read_weights(weights(file))

    def __call__(self, tensors: Payload) -> Payload:
        handles = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors(list(tensors))
        inputs = (c_void_p * len(handles))(*(_pointer(handle, None) for handle in handles))
        outputs = (c_void_p * self._outputs)()
        # It takes over what its inputs point to, also where it fails.
        counts = c_size_t(len(inputs)), c_size_t(len(outputs))
        # On a GPU no stream means the default one, which torch uses here, too.
        self._call("Run", self._model, inputs, counts[0], outputs, counts[1], None, None)
        taken = [_capsule(handle, None, None) for handle in outputs]
        return tuple(torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs(taken))

    def _call(self, name: str, *arguments: object) -> None:
        if getattr(self._loaded, _PREFIX + name)(*arguments) != 0:
            raise RuntimeError(f"{name} of the library fails")

    def _read_weights(self, file: Path) -> int:
        """Have the library copy its weights from their file, into its own memory; their bytes."""
        if (nbytes := file.stat().st_size) > 0:
            with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, mmap.MAP_PRIVATE) as mapped:
                first = ctypes.c_char.from_buffer(mapped)
                if self._loaded.AOTInductorModelUpdateConstantsFromBlob(self._model, byref(first)) != 0:
                    raise RuntimeError("the library does not take its weights")
                del first
        return nbytes


def _unload(loaded: ctypes.CDLL, model: c_void_p) -> None:
    getattr(loaded, _PREFIX + "Delete")(model)
    _ctypes.dlclose(loaded._handle)
