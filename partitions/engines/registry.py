"""The engines: what each is called, which module has it, and what it needs on a host.

An engine is one name for all hosts, as in `onnx`, or says what each host has, as in `edge=onnx+server=compile`: hosts
that are not named have `eager`. This module imports no engine and no torch: a request is checked with it.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Callable, Sequence
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pareto.errors import UserError
from partitions.by_role import IS, JOINS, ByRole, role

if TYPE_CHECKING:
    from partitions.engines.base import Builder

EAGER = "eager"


class Entry(NamedTuple):
    """An engine. module: has `builder(threads)`; empty: the stage is run as it is. package: whose version is its own.
    needs: packages, which are imported by the same names. compiler: whether it needs one for C++. first_s, stage_s,
    node_s, again_s: about how long it takes to build a stage on a core like those in docs/performance.md: what a host's
    first takes more than others, what each takes, what each operator in it; and one that was built before.
    made_by: the module's function. flags: of the processor, in /proc/cpuinfo, one of which it needs. on_gpu: whether it
    computes on an NVIDIA GPU, too. gpu_package: what is installed for that in place of `package`. capability: what
    compute capability that needs.
    differs: of what it changes in the results, the share by which two kinds of processors may differ; 0: it changes
    nothing but the last digits.
    """

    module: str = ""
    words: str = ""
    package: str = "torch"
    needs: tuple[str, ...] = ()
    compiler: bool = False
    first_s: float = 0.0
    stage_s: float = 0.0
    node_s: float = 0.0
    again_s: float = 0.0
    differs: float = 0.0
    made_by: str = "builder"
    flags: tuple[str, ...] = ()
    on_gpu: bool = False
    gpu_package: str = ""
    capability: tuple[int, int] = (0, 0)


_HAS_BFLOAT16 = ("avx512_bf16", "amx_bf16", "bf16")
_COMPILED = Entry(
    "partitions.engines.compiled",
    "torch.compile",
    compiler=True,
    first_s=7.0,
    stage_s=9.0,
    node_s=0.035,
    again_s=0.1,
    on_gpu=True,
)
ENGINES = {
    EAGER: Entry(words="PyTorch as it is", on_gpu=True),
    "eager:channels_last": Entry(
        "partitions.engines.formats",
        "PyTorch with the channels of a pixel beside each other",
        stage_s=0.3,
        again_s=0.3,
        made_by="channels_last",
        on_gpu=True,
    ),
    "eager:bfloat16": Entry(
        "partitions.engines.formats",
        "PyTorch with 16 bits",
        stage_s=0.3,
        again_s=0.3,
        differs=0.5,
        made_by="bfloat16",
        flags=_HAS_BFLOAT16,
        on_gpu=True,
        capability=(8, 0),
    ),
    "compile": _COMPILED,
    "compile:bfloat16": _COMPILED._replace(
        words="torch.compile with 16 bits",
        differs=0.5,
        made_by="bfloat16",
        flags=_HAS_BFLOAT16,
        capability=(8, 0),
    ),
    "onnx": Entry(
        "partitions.engines.onnx",
        "ONNX Runtime",
        "onnxruntime",
        ("onnx", "onnxscript", "onnxruntime"),
        first_s=0.5,
        stage_s=0.5,
        node_s=0.014,
        again_s=0.1,
        on_gpu=True,
        gpu_package="onnxruntime-gpu",
    ),
    "onnx:int8": Entry(
        "partitions.engines.quantised",
        "ONNX Runtime, quantised",
        "onnxruntime",
        ("onnx", "onnxscript", "onnxruntime"),
        first_s=0.5,
        stage_s=1.0,
        node_s=0.03,
        again_s=0.1,
        differs=0.1,
    ),
}
"""A new engine is a module and an entry here."""
CUDA_TOOLKIT = Path("/usr/local/cuda")
"""Where NVIDIA's packages put it."""


class Engine(ByRole):
    """What runs the stages of a chain."""

    what, usual, example = "engine", EAGER, "edge=onnx,server=compile"
    names = {name: entry.words for name, entry in ENGINES.items()}  # noqa: RUF012  (the class's own)

    def lossy(self, cuts: Sequence[int], last: int) -> Engine:
        """What of it changes the results of a model that is cut there: the engines of hosts that compute something.

        last: the model's last point.
        """
        ends, hosts = (0, *cuts, last), len(cuts) + 1
        used = {
            role(position, hosts): self.at(position, hosts)
            for position in range(hosts)
            if ends[position] < ends[position + 1]
        }
        parts = [f"{which}{IS}{name}" for which, name in used.items() if ENGINES[name].differs]
        return Engine(JOINS.join(parts) or EAGER)

    @property
    def differs(self) -> float:
        """The largest `Entry.differs` of its engines."""
        return max(ENGINES[name].differs for name in (self.by_role.values() or (self.text,)))


parse, listed = Engine.parse, Engine.listed
EXACT = Engine(EAGER)
"""What of an engine changes the results where nothing does."""


def names(texts: Sequence[str], roles: Sequence[str]) -> dict[str, set[str]]:
    """By role, the engines that a host needs for all of these, but for `eager`."""
    return {role: {parse(text).of(role) for text in texts} - {EAGER} for role in roles}


def missing(name: str, device: str = "cpu", capability: str = "") -> str:
    """What this host lacks for an engine on a device, and what to do; empty: nothing.

    capability: the compute capability of a GPU, as in '9.0'.
    """
    entry, on_gpu = ENGINES[name], device != "cpu"
    if on_gpu and not entry.on_gpu:
        return f"it is for processors only so far, and this host computes on {device}"
    form = name.partition(":")[2]
    if on_gpu and entry.capability > tuple(map(int, capability.split("."))):
        least = ".".join(map(str, entry.capability))
        return f"its GPU has no {form}: that needs compute capability {least}, and {device} has {capability}"
    if entry.flags and not on_gpu and not processor_flags().intersection(entry.flags):
        return f"its processor has no {form}: /proc/cpuinfo has none of {', '.join(entry.flags)}"
    needs = (*entry.needs, *(("triton",) if on_gpu and entry.compiler else ()))
    lacking, pip = [each for each in needs if not find_spec(each)], f"{shlex.quote(sys.executable)} -m pip"
    if lacking:
        several = "the packages" if len(lacking) > 1 else "the package"
        if on_gpu and entry.gpu_package:
            lacking = [entry.gpu_package if package == entry.package else package for package in lacking]
        return f"it lacks {several} {', '.join(lacking)}: {pip} install {' '.join(lacking)}"
    if on_gpu and entry.gpu_package and not has_cuda(entry.package):
        swap = f"{pip} uninstall -y {entry.package} && {pip} install {entry.gpu_package}"
        return f"its {entry.package} computes on processors only, and this host computes on {device}: {swap}"
    if entry.compiler:
        if not shutil.which(os.environ.get("CXX", "g++")):
            return "it lacks a C++ compiler: sudo apt-get install g++"
        if not Path(sysconfig.get_path("include"), "Python.h").is_file():
            return "it lacks Python's header files: sudo apt-get install python3-dev"
        if on_gpu and cuda_toolkit() is None:
            return "it lacks CUDA's header files: install NVIDIA's CUDA toolkit, or say by CUDA_HOME where it lies"
    return ""


def check_lossy(texts: Sequence[str]) -> None:
    """Raises UserError where this host cannot work out what engines that change results make of them."""
    for text in texts:
        engine = parse(text)
        for name in engine.by_role.values() or (engine.text,):
            if ENGINES[name].differs and (lacks := missing(name)):
                raise UserError(
                    f"--engine {name}: what it does to the results is worked out here first: {lacks}"
                )


def missing_here(device: str, capability: str = "") -> dict[str, str]:
    """`missing` of each engine but `eager`."""
    return {name: missing(name, device, capability) for name in ENGINES if name != EAGER}


def cuda_toolkit() -> Path | None:
    """The folder of CUDA's toolkit, found as torch finds it; None where it has no header files."""
    nvcc = shutil.which("nvcc")
    beside = Path(nvcc).parents[1] if nvcc else CUDA_TOOLKIT
    home = Path(os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or beside)
    return home if (home / "include" / "cuda.h").is_file() else None


def version(name: str) -> str:
    """The version of an engine that this host has."""
    entry = ENGINES[name]
    try:
        return metadata.version(entry.package)
    except metadata.PackageNotFoundError:
        return metadata.version(entry.gpu_package or entry.package)


def has_cuda(package: str) -> bool:
    """Whether ONNX Runtime is built with CUDA: then its package has a library for that."""
    found = find_spec(package)
    folders = (found.submodule_search_locations if found else None) or []
    return any(list(Path(folder, "capi").glob("*providers_cuda.*")) for folder in folders)


def builder(name: str, threads: int) -> Builder:
    """What builds stages by an engine other than `eager`; it imports what the engine needs."""
    entry = ENGINES[name]
    made: Callable[[int], Builder] = getattr(import_module(entry.module), entry.made_by)
    return made(threads)


def processor_flags() -> frozenset[str]:
    """What the processor can do, as Linux names it; empty where that is not known."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    named = (line.partition(":")[2] for line in lines if line.startswith(("flags", "Features")))
    return frozenset(next(named, "").split())
