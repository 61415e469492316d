"""Libraries that Inductor builds: which are kept on the disk, and what one of them does to its process."""

from __future__ import annotations

import gc
import os
import re
import shutil
import subprocess
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from pareto.partitions import proof
from pareto.partitions.engines import compiled, registry
from pareto.partitions.engines.compiled import Library, weights
from pareto.partitions.stage import Stage

from .stages import images, stages

needs_compiler = pytest.mark.skipif(bool(registry.missing("compile")), reason="no C++ compiler here")


class Wide(nn.Module):
    """A product of matrices that takes some milliseconds."""

    def __init__(self) -> None:
        super().__init__()
        self.product = nn.Linear(512, 512)

    def forward(self, x: Tensor) -> tuple[Tensor]:
        return (self.product(x).relu(),)


WAITS = r"""
#include <poll.h>
#include <stdio.h>
#include <unistd.h>
static int began, may_end;
extern "C" {
int AOTInductorModelContainerCreateWithDevice(void *, size_t, const char *pipes, const char *) {
    return sscanf(pipes, "%d:%d", &began, &may_end) != 2;
}
int AOTInductorModelContainerGetNumOutputs(void *, size_t *count) { return *count = 0; }
int AOTInductorModelContainerRun(...) {
    struct pollfd waiting = {may_end, POLLIN, 0};
    return write(began, "x", 1) != 1 || poll(&waiting, 1, 60000) != 1;
}
int AOTInductorModelContainerDelete(void *) { return 0; }
}
"""
"""A library that says when it computes, and computes until it is told to end, for a minute at most."""


class StandIn:
    """What is loaded of a library that is none."""

    weights_bytes = 7

    def __init__(self, file: Path, device: str) -> None:
        assert weights(file).exists()
        assert device == "cpu"


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Iterator[compiled.Compiler]:
    """Its libraries have weights of 100 bytes each, and it may keep 250."""

    def build(stage: object, example: object, folder: Path) -> Path:
        folder.mkdir()
        weights(folder / "library.so").write_bytes(bytes(100))
        return folder / "library.so"

    monkeypatch.setattr(compiled, "_compiled", build)
    monkeypatch.setattr(compiled, "Library", StandIn)
    monkeypatch.setattr(compiled, "KEPT_BYTES", 250)
    builder = compiled.Compiler(1)
    yield builder
    builder.close()


def test_libraries_that_were_not_used_for_longest_are_removed(builder: compiled.Compiler) -> None:
    stage, _ = stages()
    for key in "aabacadda":
        builder.build(stage, images(), key, {})
    assert "".join(map(str, builder._libraries)) == "da"
    assert builder._made == 4, "each was built once"
    assert set(builder._folder.iterdir()) == {library.parent for library in builder._libraries.values()}


@pytest.mark.deep
@needs_compiler
def test_a_library_has_the_weights_in_memory_once() -> None:
    builder, body, tensors = compiled.Compiler(1), Wide().eval(), (torch.randn(2048, 512),)
    with torch.inference_mode():
        expected = body(*tensors)
        run = builder.build(Stage(body), tensors, "key", {})  # type: ignore[arg-type]
        assert proof.max_error(run(tensors), expected) <= proof.TOLERANCE
    (library,) = builder._libraries.values()
    weights_bytes = 512 * 513 * 4
    assert run.weights_bytes == pytest.approx(weights_bytes, rel=0.01)
    assert library.stat().st_size < weights_bytes, "nobody can unload it"
    assert _resident_bytes(weights(library)) == 0
    weight = weakref.ref(body.product.weight)
    del body
    gc.collect()
    assert weight() is None, "nor does the compiler keep them"
    builder.close()


@needs_compiler
def test_others_go_on_while_a_library_computes(tmp_path: Path) -> None:
    """Also those that need Python's lock: else nobody would tell it to end."""
    source, library = tmp_path / "waits.cpp", tmp_path / "waits.so"
    source.write_text(WAITS)
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    assert compiler
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    weights(library).touch()
    (began, says), (waits, end) = os.pipe(), os.pipe()
    run = Library(library, f"{says}:{waits}")
    with ThreadPoolExecutor(1) as other:
        computing = other.submit(run, ())
        assert os.read(began, 1) == b"x"
        assert not computing.done()
        os.write(end, b"x")
        assert computing.result(60) == ()
    for each in (began, says, waits, end):
        os.close(each)


@pytest.mark.deep
@pytest.mark.skipif(bool(registry.missing("compile:bfloat16")), reason=registry.missing("compile:bfloat16"))
def test_with_16_bits_the_weights_are_half_as_large_and_results_have_the_dtype_that_they_had() -> None:
    body, tensors = Wide().eval(), (torch.randn(64, 512),)
    builder = registry.builder("compile:bfloat16", 1)
    with torch.inference_mode():
        (expected,) = body(*tensors)
        run = builder.build(Stage(body), tensors, "key", {})  # type: ignore[arg-type]
        (result,) = run(tensors)
    builder.close()
    assert run.weights_bytes == pytest.approx(512 * 513 * 2, rel=0.01)
    assert result.dtype == torch.float32
    assert proof.TOLERANCE < proof.max_error([result], [expected]) < 0.05


def _resident_bytes(file: Path) -> int:
    """Of a file's mappings in this process."""
    total, is_its = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_its = line.endswith(str(file))
        elif is_its and line.startswith("Rss:"):
            total += 1024 * int(line.split()[1])
    return total
