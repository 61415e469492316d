"""The engines: what each is called, what builds its stages, and what it needs on a host.

An engine is one name for all hosts, as in `onnx`, or says what each host has, as in `edge=onnx+server=compile`: hosts
that are not named have `eager`. An installed package offers others by entry points. This module imports no engine and
no torch: a request is checked with it.
"""

from __future__ import annotations

import functools
import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pareto.partitions.by_role import IS, JOINS, ByRole, role
from pareto.protocol import own
from pareto.protocol.errors import one_line

if TYPE_CHECKING:
    from pareto.partitions.engines.base import Builder

EAGER = "eager"


class Kind(NamedTuple):
    """An engine. builder: the module and the class in it that build stages; empty: a stage is run as it is.

    package: whose version is its own; empty: torch, or the package that offers it. gpu_package: what is installed in
    its place for an NVIDIA GPU. needs: packages, which are imported by the same names. first_s, stage_s, node_s,
    again_s: about how long it takes to build a stage on a core like those in docs/notes/performance.md: what a host's
    first takes more than others, what each takes, what each operator in it; and one that was built before. differs: of
    what it changes in the results, the share by which two kinds of processors may differ; 0: it changes nothing but the
    last digits. compiler: whether it needs one for C++. short: whether it computes with 16 bits. on_gpu: whether on an
    NVIDIA GPU, too. fault: why it cannot be used here.
    """

    builder: str
    words: str
    package: str = ""
    gpu_package: str = ""
    needs: tuple[str, ...] = ()
    first_s: float = 0.0
    stage_s: float = 0.0
    node_s: float = 0.0
    again_s: float = 0.0
    differs: float = 0.0
    compiler: bool = False
    short: bool = False
    on_gpu: bool = True
    fault: str = ""

    def __str__(self) -> str:
        return self.words


_FORMATTED = Kind(
    ".formats:Reformatter", "PyTorch with the channels of a pixel beside each other", stage_s=0.3, again_s=0.3
)
_COMPILED = Kind(
    ".compiled:Compiler", "torch.compile", first_s=7.0, stage_s=9.0, node_s=0.035, again_s=0.1, compiler=True
)
_ONNX = Kind(
    ".onnx:Exporter",
    "ONNX Runtime",
    "onnxruntime",
    "onnxruntime-gpu",
    ("onnx", "onnxscript", "onnxruntime"),
    first_s=0.5,
    stage_s=0.5,
    node_s=0.014,
    again_s=0.1,
)
_BUILT_IN = {
    EAGER: Kind("", "PyTorch as it is"),
    "eager:channels_last": _FORMATTED,
    "eager:bfloat16": _FORMATTED._replace(words="PyTorch with 16 bits", differs=0.5, short=True),
    "compile": _COMPILED,
    "compile:bfloat16": _COMPILED._replace(words="torch.compile with 16 bits", differs=0.5, short=True),
    "onnx": _ONNX,
    "onnx:int8": _ONNX._replace(
        builder=".quantised:Quantiser",
        words="ONNX Runtime, quantised",
        stage_s=1.0,
        node_s=0.03,
        differs=0.1,
        on_gpu=False,
    ),
}
"""A new engine is a module and an entry here."""
_OFFERED = own.Kind("engine", "", "pareto.engines", taken=frozenset(_BUILT_IN))


class _Engines(Mapping[str, Kind]):
    """All engines by name; what packages offer is looked for where no other has the name."""

    def __getitem__(self, name: str) -> Kind:
        return _BUILT_IN.get(name) or _offered(name)

    def __iter__(self) -> Iterator[str]:
        return iter((*_BUILT_IN, *_OFFERED.others))

    def __len__(self) -> int:
        return len((*_BUILT_IN, *_OFFERED.others))


ENGINES = _Engines()


@functools.cache
def _offered(name: str) -> Kind:
    """The engine that a package offers; one with a fault where it is none. Raises KeyError."""
    point = _OFFERED.offered()[name]
    try:
        kind = point.load()
        if isinstance(kind, Kind):
            return kind._replace(package=kind.package or (point.dist.name if point.dist else ""))
        fault = f"it is no Kind of {__name__} but {type(kind).__name__}"
    except (Exception, SystemExit) as error:
        fault = f"{type(error).__name__}: {one_line(error)}"
    return Kind("", "it cannot be used", fault=f"a package offers it as {point.value}: {fault}")


CUDA_TOOLKIT = Path("/usr/local/cuda")
"""Where NVIDIA's packages put it."""
_BFLOAT16_FLAGS, _BFLOAT16_CAPABILITY = ("avx512_bf16", "amx_bf16", "bf16"), (8, 0)
"""In /proc/cpuinfo, one of which a processor has that computes with 16 bits; and what a GPU has at least."""


class Engine(ByRole):
    """The engines that run the stages of a chain."""

    what, usual, example = "engine", EAGER, "edge=onnx,server=compile"
    names = ENGINES

    def lossy(self, cuts: Sequence[int], last: int) -> Engine:
        """The engines that change the results of a model that is cut there: of hosts that compute something."""
        ends, hosts = (0, *cuts, last), len(cuts) + 1
        parts = [
            f"{role(position, hosts)}{IS}{name}"
            for position in range(hosts)
            if ends[position] < ends[position + 1] and ENGINES[name := self.at(position, hosts)].differs
        ]
        return Engine(JOINS.join(parts) or EAGER)

    @property
    def differs(self) -> float:
        """The largest `Kind.differs` of its engines."""
        return max(ENGINES[name].differs for name in self.of_all)


parse, listed = Engine.parse, Engine.listed
EXACT = Engine(EAGER)
"""The value of `Engine.lossy` where no engine changes the results."""


def missing(name: str, device: str = "cpu", capability: str = "") -> str:
    """The words about what this host lacks for an engine on a device, and what to do; empty: nothing. capability: of a
    GPU, as in '9.0'."""
    kind, on_gpu = ENGINES[name], device != "cpu"
    if kind.fault:
        return kind.fault
    if on_gpu and not kind.on_gpu:
        return f"it is for processors only so far, and this host computes on {device}"
    form = name.partition(":")[2]
    if kind.short and on_gpu and tuple(map(int, capability.split("."))) < _BFLOAT16_CAPABILITY:
        least = ".".join(map(str, _BFLOAT16_CAPABILITY))
        return f"its GPU has no {form}: that needs compute capability {least}, and {device} has {capability}"
    if kind.short and not on_gpu and processor_flags().isdisjoint(_BFLOAT16_FLAGS):
        return f"its processor has no {form}: /proc/cpuinfo has none of {', '.join(_BFLOAT16_FLAGS)}"
    needs = (*kind.needs, *(("triton",) if on_gpu and kind.compiler else ()))
    lacking, pip = [each for each in needs if not find_spec(each)], f"{shlex.quote(sys.executable)} -m pip"
    if lacking:
        several = "the packages" if len(lacking) > 1 else "the package"
        if on_gpu and kind.gpu_package:
            lacking = [kind.gpu_package if package == kind.package else package for package in lacking]
        return f"it lacks {several} {', '.join(lacking)}: {pip} install {' '.join(lacking)}"
    if on_gpu and kind.gpu_package and not has_cuda(kind.package):
        swap = f"{pip} uninstall -y {kind.package} && {pip} install {kind.gpu_package}"
        return f"its {kind.package} computes on processors only, and this host computes on {device}: {swap}"
    if kind.compiler:
        if not shutil.which(os.environ.get("CXX", "g++")):
            return "it lacks a C++ compiler: sudo apt-get install g++"
        if not Path(sysconfig.get_path("include"), "Python.h").is_file():
            return "it lacks Python's header files: sudo apt-get install python3-dev"
        if on_gpu and cuda_toolkit() is None:
            return "it lacks CUDA's header files: install NVIDIA's CUDA toolkit, or say by CUDA_HOME where it lies"
    return ""


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
    kind = ENGINES[name]
    for package in (kind.package or "torch", kind.gpu_package):
        with suppress(metadata.PackageNotFoundError, ValueError):  # for an empty name
            return metadata.version(package)
    return "unknown"


def has_cuda(package: str) -> bool:
    """Whether ONNX Runtime is built with CUDA: then its package has a library for that."""
    found = find_spec(package)
    folders = (found.submodule_search_locations if found else None) or []
    return any(list(Path(folder, "capi").glob("*providers_cuda.*")) for folder in folders)


def builder(name: str, threads: int) -> Builder:
    """A builder of stages by an engine other than `eager`, which imports what the engine needs. Raises EngineError."""
    from pareto.partitions.engines.base import Builder, refusing

    kind = ENGINES[name]
    module, _, made_by = kind.builder.partition(":")
    with refusing(kind.builder, "fails"):
        made = getattr(import_module(module, __package__), made_by)(threads, short=kind.short)
        if not isinstance(made, Builder):
            raise TypeError(f"it makes no Builder but {type(made).__name__}")
    return made


def processor_flags() -> frozenset[str]:
    """The names that Linux has for what the processor can do; empty where they are not known."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    named = (line.partition(":")[2] for line in lines if line.startswith(("flags", "Features")))
    return frozenset(next(named, "").split())
