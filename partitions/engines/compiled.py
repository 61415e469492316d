"""Inductor, torch's compiler, ahead of time: it writes C++ for a stage and has it built as a library. For a GPU it
writes kernels for Triton, too, whose machine code lies beside the library.

Weights are frozen: what follows from them alone, such as a batch norm that goes into its convolution, is computed once.
They lie beside the library, in the layout that its code reads: a stage that comes back is loaded from these files, and
nothing is traced again.
"""

from __future__ import annotations

import _ctypes
import ctypes
import gc
import mmap
import os
import shutil
import warnings
import weakref
from collections.abc import Hashable
from ctypes import byref, c_char_p, c_size_t, c_void_p, py_object
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.experimental import proxy_tensor

from pareto.partitions import scratch
from pareto.partitions.engines.base import Builder, Ranges, Run, one_example, refusing
from pareto.partitions.engines.formats import Shortened
from pareto.partitions.engines.registry import cuda_toolkit
from pareto.partitions.stage import Payload, Stage

KEPT_BYTES = 1 << 30
"""Libraries of stages that may come back take about this much of the disk at most."""
OPTIONS = {
    "freezing": True,
    # Others would stay, and take the cores that a trial is measured on.
    "compile_threads": 1,
    # They would stay on the disk, outside the folder.
    "aot_inductor.precompile_headers": False,
    # For a debugger; they are most of a library, and a process never lets go of one.
    "aot_inductor.enable_line_tables": False,
    # So the weights lie in a file of their own.
    "aot_inductor.package_constants_in_so": False,
    "aot_inductor.package_constants_on_disk_format": "binary_blob",
}


class Compiler(Builder):
    """Libraries lie in a scratch folder; those that were not used for longest are removed."""

    def __init__(self, threads: int, *, short: bool = False) -> None:
        super().__init__(threads, short=short)
        self._folder = self._held.enter_context(scratch.folder())
        self._libraries: dict[Hashable, Path] = {}
        """By stage; the one that was used last is the last."""
        self._made = 0
        cache = self._folder / "cache"
        variables = {"TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": cache / "triton"}
        if torch.version.cuda and (toolkit := cuda_toolkit()) is not None:
            # Only so is the linker told of the stub that the toolkit has for the driver's library.
            variables["CUDA_HOME"] = toolkit
        for name in variables.keys() - os.environ.keys():
            os.environ[name] = str(variables[name])
            self._held.callback(os.environ.pop, name, None)

    def build(self, stage: Stage, example: Payload, key: Hashable, ranges: Ranges) -> Run:
        with refusing("torch.compile"):
            library = self._libraries.pop(key, None)
            if library is None:
                assert stage.body is not None  # noqa: S101
                body = Shortened(stage.body, example) if self._short else stage.body
                self._made += 1
                library = _compiled(body, one_example(example), self._folder / str(self._made))
            self._libraries[key] = library
            loaded = Library(library, str(example[0].device))
        self._remove_old()
        return Run(loaded, loaded.weights_bytes)

    def _remove_old(self) -> None:
        sizes = {key: weights(library).stat().st_size for key, library in self._libraries.items()}
        *old, _ = sizes
        for key in old:
            if sum(sizes.values()) <= KEPT_BYTES:
                break
            del sizes[key]
            shutil.rmtree(self._libraries.pop(key).parent)


def _compiled(body: nn.Module, example: tuple[Tensor, ...], folder: Path) -> Path:
    """The library of a stage's body, in that folder."""
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that float32 is not shortened, though the GPU could: it is meant so
        program: Any = torch.export.export(body, example).module()
        built = torch._inductor.aot_compile(
            program, example, options={**OPTIONS, "aot_inductor.output_path": str(folder)}
        )
    assert isinstance(built, str)  # noqa: S101
    del program
    # torch keeps the graphs that it exported, and these their weights; they refer to themselves, too.
    proxy_tensor._FAKE_TENSOR_ID_TO_PROXY_MAP_FOR_EXPORT.clear()
    gc.collect()
    if example[0].is_cuda:
        torch.cuda.empty_cache()  # the library takes the memory for its weights from the driver
    return Path(built)


# The library of a stage, called by its C interface, so that other threads go on while it computes: torch's own binding
# for it would keep Python's lock meanwhile, and the host could neither receive nor send.

_PREFIX = "AOTInductorModel"
_pointer = ctypes.PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_capsule = ctypes.PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", ctypes.pythonapi))


def weights(library: Path) -> Path:
    """The file of its weights."""
    return library.with_name(f"{library.stem}_weights.blob")


class Library:
    """Runs the stage on the device that it was built for, as in 'cuda:0', one run at a time. weights_bytes: of its
    weights, which are in the device's memory once. Raises RuntimeError, OSError."""

    def __init__(self, file: Path, device: str = "cpu") -> None:
        if file.with_suffix(".json").exists():
            raise RuntimeError("one of its operators can be called from Python only")
        self._loaded = ctypes.CDLL(str(file))
        self._model, outputs = c_void_p(), c_size_t()
        self._call("ContainerCreateWithDevice", byref(self._model), c_size_t(1), device.encode(), None)
        weakref.finalize(self, _unload, self._loaded, self._model).atexit = False
        self._call("ContainerGetNumOutputs", self._model, byref(outputs))
        self._outputs = outputs.value
        blob = weights(file)
        if (nbytes := blob.stat().st_size) > 0:
            with blob.open("rb") as opened, mmap.mmap(opened.fileno(), 0, mmap.MAP_PRIVATE) as mapped:
                first = ctypes.c_char.from_buffer(mapped)
                # It copies them into its own memory.
                self._call("UpdateConstantsFromBlob", self._model, byref(first))
                del first
        self.weights_bytes = nbytes

    def __call__(self, tensors: Payload) -> Payload:
        handles = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors(list(tensors))
        inputs = (c_void_p * len(handles))(*(_pointer(handle, None) for handle in handles))
        outputs = (c_void_p * self._outputs)()
        counts = c_size_t(len(inputs)), c_size_t(len(outputs))
        # It takes over what its inputs point to, also where it fails. On a GPU no stream means the default one, which
        # torch uses here, too.
        self._call("ContainerRun", self._model, inputs, counts[0], outputs, counts[1], None, None)
        taken = [_capsule(handle, None, None) for handle in outputs]
        return tuple(torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs(taken))

    def _call(self, name: str, *arguments: object) -> None:
        if getattr(self._loaded, _PREFIX + name)(*arguments) != 0:
            raise RuntimeError(f"{name} of the library fails")


def _unload(loaded: ctypes.CDLL, model: c_void_p) -> None:
    getattr(loaded, f"{_PREFIX}ContainerDelete")(model)
    _ctypes.dlclose(loaded._handle)
