"""What a worker's process takes of its host's memory, and what becomes of freed memory."""

from __future__ import annotations

import mmap
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import save_file

from pareto.partitions import allocator, registry, weights
from pareto.partitions.recipe import Cuts, Recipe
from pareto.protocol.jsonlines import plain
from pareto.protocol.messages import Split
from pareto.remote.worker import host
from tests.unit.forked import Forked, run_main

FETCHES = """
import ctypes, sys
from pareto.partitions import allocator

class Info(ctypes.Structure):
    names = ["arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"]
    _fields_ = [(name, ctypes.c_size_t) for name in names]

if "keep" in sys.argv:
    allocator.keep_freed()
if "leave" in sys.argv:
    allocator.untouched()
library = ctypes.CDLL(None)
library.mallinfo2.restype, library.malloc.restype = Info, ctypes.c_void_p
before = library.mallinfo2().hblks
library.malloc(ctypes.c_size_t(48 << 20))
print(allocator.in_force, library.mallinfo2().hblks - before)
"""
"""How many blocks of a size above any dynamic threshold the library fetches from the system, and so gives back."""
needs_glibc = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="mallopt is part of glibc")
VARIABLES = {name: str(1 << 30) for name in ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_")}


def printed(script: str, *words: str, env: dict[str, str] | None = None) -> str:
    command = [sys.executable, "-c", script, *words]
    return subprocess.run(command, env=env, capture_output=True, check=True, text=True).stdout


@needs_glibc
@pytest.mark.parametrize(
    ("how", "variables", "said"),
    [
        ("keep", {}, "tuned 0"),
        ("leave", {}, "default 1"),
        ("leave", VARIABLES, "default 1"),
        ("", VARIABLES, "default 0"),  # as a program that is deployed with them
    ],
)
def test_an_allocator_is_tuned_or_as_it_was(how: str, variables: dict[str, str], said: str) -> None:
    usual = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    assert printed(FETCHES, how, env=usual | variables).strip() == said


TRIALS = """
import threading
import torch
import pareto.remote.worker.__main__
from pareto.remote.worker import host
from pareto.partitions import allocator

allocator.keep_freed()
over, resident = threading.Event(), []

def probe(sent):
    bytes(12_500_000) + b"sent"
    sent.set()
    over.wait()

for number in range(16):
    stage = [torch.ones(1 << 20, dtype=torch.uint8) for _ in range(8 * (number % 4))]
    [torch.ones(nbytes << 20, dtype=torch.uint8) for nbytes in (50, 3)]
    sent = threading.Event()
    threading.Thread(target=probe, args=(sent,)).start()
    sent.wait()
    del stage
    allocator.give_back_freed()
    resident.append(host.resident_bytes())
over.set()
print(*resident)
"""


@needs_glibc
def test_memory_does_not_grow_with_the_trials_whatever_stage_and_threads_each_has() -> None:
    """Threads stay, as those of connections do; each leaves behind what a probe of a quick link takes."""
    resident = list(map(int, printed(TRIALS).split()))
    assert len(resident) == 16
    assert resident[-1] - max(resident[:4]) < 12_500_000


MIB = 1 << 20


def test_the_peak_is_that_since_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    peak = host.PeakMemory()
    assert peak.nbytes() is None
    peak.begin()
    if (before := peak.nbytes()) is None:
        pytest.skip("this kernel does not let a process reset its peak")
    with mmap.mmap(-1, 128 * MIB) as block:  # an allocator might keep what is freed
        for page in range(0, len(block), mmap.PAGESIZE):
            block[page] = 1
    assert (risen := peak.nbytes() or 0) > before + 100 * MIB
    peak.begin()
    assert 0 < (peak.nbytes() or 0) < risen - 100 * MIB

    def denied(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(Path, "write_text", denied)
    peak.begin()
    assert peak.nbytes() is None, "what cannot begin anew is not measured"


LARGE = """
from torch import nn

class Large(nn.Sequential):
    input_shape = (3, 8, 8)

    def __init__(self):
        stem = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 1024))
        body = [nn.Sequential(nn.Linear(*it), nn.ReLU()) for it in ((1024, 7680), (7680, 512))]
        head = nn.Sequential(nn.Linear(512, 1 << 16), nn.ReLU())
        super().__init__(stem, *body, head, nn.Linear(1 << 16, 10))
"""


WORKER = "pareto.remote.worker.__main__"


HEAD_BYTES = (1 << 16) * 512 * 4


STEM, BODY, WHOLE = 1, 3, 5  # points


def stage_to(point: int) -> dict[str, Any]:
    """The fields of a request for an edge's stage."""
    return {"position": 0, "interface": None, "split": plain(Split((point,), 1, "tcp"))}


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The `load` request of a model with 177 MiB of weights, all zero, most of them in one tensor, and one input."""
    folder = tmp_path_factory.mktemp("large")
    (folder / "large.py").write_text(LARGE)
    name = registry.canonical(f"{folder / 'large.py'}:Large")
    structure = registry.build_structure(name).state_dict()
    save_file({key: torch.zeros(tensor.shape) for key, tensor in structure.items()}, folder / "weights")
    save_file({"input0": torch.ones(1, 1, 3, 8, 8), "reference0": torch.zeros(1, 1, 10)}, folder / "data")
    return {
        "recipe": asdict(Recipe(name, Cuts(), *registry.source(name))),
        "weights": {str(folder / "weights"): (digest := weights.file_digest(folder / "weights"))},
        "digest": digest,
        "data": [str(folder / "data")],
    }


def main_that_gives_back() -> None:
    """The worker's, but what is freed goes back at once, so that no hole is left in a full address space."""
    with patch.object(allocator, "keep_freed"):
        run_main(WORKER)


@pytest.fixture(params=[()])
def worker(request: pytest.FixtureRequest) -> Iterator[Forked]:
    with closing(Forked(*(request.param or (run_main, WORKER)))) as worker:
        yield worker


def test_a_small_stage_of_a_large_model_takes_little_memory(worker: Forked, large: dict[str, Any]) -> None:
    """Not after it was loaded, not after a larger one was held: or a device with 1 GB would not do."""

    def held(point: int) -> tuple[int, int]:
        """The bytes of the weights of a stage that is held now, and those that the worker has in memory."""
        staged = worker.result("stage", **stage_to(point))
        return staged["weights_bytes"], worker.result("usage")["rss_bytes"]

    worker.result("load", **large)
    first = worker.result("usage")["rss_bytes"]
    small, whole = held(STEM), held(WHOLE)
    # Without the last layers, whose tensors are so large that freeing them always gives them back. The body's largest
    # has just the size from which glibc keeps all of the body, unless it is told.
    points = (BODY, STEM, BODY, STEM)
    _, _, body, again = map(held, points)
    assert whole[0] > 170 * MIB
    assert small[0] == again[0] < MIB
    assert 0.9 < (whole[1] - first) / whole[0] < 1.4
    for _, rss_bytes in (small, again):
        assert rss_bytes < first + 0.2 * whole[0]
    assert again[1] < small[1] + 0.5 * body[0]


@pytest.mark.parametrize("worker", [(main_that_gives_back,)], indirect=True)
def test_a_stage_too_large_is_refused_and_the_worker_lives(worker: Forked, large: dict[str, Any]) -> None:
    worker.result("load", **large)
    pid = worker.process.pid
    assert pid is not None
    used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (used + 100 * MIB, resource.RLIM_INFINITY))
    error = worker.reply("stage", **stage_to(WHOLE))["error"]
    assert error.startswith("out of memory: ") and str(HEAD_BYTES) in error and "\n" not in error
    assert worker.result("stage", **stage_to(STEM))["weights_bytes"] < MIB


@pytest.mark.parametrize(
    ("worker", "told"),
    [((), "tuned"), *(((run_main, WORKER, "--allocator", told), told) for told in ("tuned", "default"))],
    indirect=["worker"],
)
def test_facts_say_where_the_worker_computes(worker: Forked, told: str) -> None:
    """No host collects garbage by itself: in the middle of a request that would be charged to it."""
    facts = worker.result("facts")
    expected = {"pid": worker.process.pid, "device": "cpu", "cuda": None, "allocator": told}
    expected["collects_garbage"] = False
    assert {name: facts[name] for name in expected} == expected
    assert facts["memory_bytes"] > facts["swap_bytes"] >= 0 or facts["swap_bytes"] > 0
    error = worker.reply("warm", backend="tcp", nbytes="9")["error"]
    assert error.startswith("the request warm cannot be: nbytes is '9'")
