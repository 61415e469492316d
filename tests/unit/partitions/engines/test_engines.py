"""Every engine that is not eager: what it builds computes what the stage computes; the compiler's libraries."""

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

from pareto.partitions import proof, scratch, tracing
from pareto.partitions.engines import compiled, registry
from pareto.partitions.engines.base import Builder, Built, Calibrator, EngineError, Ranges, Run
from pareto.partitions.engines.compiled import Library, weights
from pareto.partitions.stage import Payload, Stage
from pareto.remote.worker import device
from tests.unit.partitions.builders import byte_images as images
from tests.unit.partitions.builders import stages
from tests.unit.refusals import refusal

KEEP_WEIGHTS = {"compile", "compile:bfloat16", "onnx:int8"}
"""They keep the weights of a stage in a file."""
BUILT = [
    # By the C++ compiler, which takes 20 s: test_compiled has one.
    pytest.param(name, marks=[pytest.mark.deep] if entry.compiler else [])
    for name, entry in registry.ENGINES.items()
    if name != registry.EAGER
]
ON_GPU = [name for name, entry in registry.ENGINES.items() if entry.on_gpu and name != registry.EAGER]


@pytest.fixture(scope="module", params=BUILT)
def engine(request: pytest.FixtureRequest) -> str:
    if lacks := registry.missing(request.param):
        pytest.skip(lacks)
    return str(request.param)


@pytest.fixture(scope="module")
def built(engine: str) -> Iterator[tuple[Stage, Run]]:
    """The first stage, and what the engine built of it."""
    builder, payload, (stage, _) = registry.builder(engine, 1), images(), stages()
    tracing._constants.cache_clear()
    with torch.inference_mode():
        run = builder.build(stage, payload, "key", _ranges(builder, stage, payload))
    yield stage, run
    builder.close()


def _ranges(builder: Builder, stage: Stage, payload: Payload) -> Ranges:
    return builder.calibrated(stage, [payload], "key") if isinstance(builder, Calibrator) else {}


def allowed(engine: str) -> float:
    return 0.1 if registry.ENGINES[engine].differs else proof.TOLERANCE / 10


def assert_is_right(engine: str, run: Run, stage: Stage, payload: Payload) -> None:
    """It computes what the stage computes: to a tenth where the engine changes that."""
    before = [tensor.clone() for tensor in payload]
    outputs, expected = run(payload), stage(payload)
    assert all(map(torch.equal, payload, before)), "the inputs are not written to"
    assert all(one.is_contiguous() for one in outputs)
    assert proof.max_error(outputs, expected) <= allowed(engine)


def test_what_is_built_computes_what_the_stage_computes(engine: str, built: tuple[Stage, Run]) -> None:
    stage, run = built
    with torch.inference_mode():
        assert_is_right(engine, run, stage, images())
        first = run(images())
        kept = [tensor.clone() for tensor in first]
        run((255 - images()[0],))
    assert all(map(torch.equal, first, kept)), "a later run does not overwrite an earlier one's results"


def test_what_an_engine_traces_leaves_nothing_in_what_is_eager(built: tuple[Stage, Run]) -> None:
    """The constants that bytes are normalised by are made once; a tracer's stand-ins for them are no tensors."""
    first, _ = built
    with torch.inference_mode():
        after = first(images())
        tracing._constants.cache_clear()
        assert all(map(torch.equal, after, first(images())))


def test_a_stage_that_comes_back_is_built_again_after_its_weights_were_let_go_of_and_nothing_is_left(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stage that takes two tensors."""
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    # As on a host: else PyTorch makes a folder of its own among those for files in passing when it is first asked.
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path.parent / "inductor"))
    before, builder = dict(os.environ), registry.builder(engine, 1)
    with torch.inference_mode():
        first, stage = stages()
        payload = first(images())
        assert len(payload) == 2
        ranges = _ranges(builder, stage, payload)
        run = builder.build(stage, payload, "key", ranges)
        assert_is_right(engine, run, stage, payload)
        del run
        builder.release()
        stage.to("meta")
        _, again = stages()
        for tensor in again.parameters():
            tensor.data *= 1 if engine in KEEP_WEIGHTS else 2
        run = builder.build(again, payload, "key", ranges)
        assert_is_right(engine, run, again, payload)
        if run.weights_bytes is not None:
            outputs = run(payload)
            for tensor in again.parameters():
                tensor.data.zero_()
            assert all(map(torch.equal, run(payload), outputs)), "it has weights of its own"
    weights = [weakref.ref(weight) for weight in again.parameters()]
    del run, again, tensor
    builder.close()
    gc.collect()
    assert {weight() for weight in weights} == {None}, "nor does anything keep the weights"
    assert not list(tmp_path.iterdir())
    assert dict(os.environ) == before


def test_a_stage_that_an_engine_does_not_take_is_refused_in_one_line(engine: str) -> None:
    if engine.startswith(registry.EAGER):
        pytest.skip("it takes whatever PyTorch runs")

    class Sorted(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            return (torch.tensor([float(x.sum())]),) if float(x.sum()) > 0 else (x,)

    build, stage = registry.builder(engine, 1).build, Stage(Sorted())  # type: ignore[arg-type]
    assert "does not take the stage" in refusal(EngineError, build, stage, images(), "key", {})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("name", ON_GPU)
def test_what_is_built_for_a_gpu_computes_what_the_stages_compute_on_the_cpu(name: str) -> None:
    gpu = device.named("cuda:0")
    if lacks := registry.missing(name, gpu.name, gpu.capability()):
        pytest.skip(lacks)
    builder, payload = registry.builder(name, 1), images()
    with torch.inference_mode():
        for number, stage in enumerate(stages()):
            expected = stage(payload)
            stage.to(gpu.name)
            on_gpu = tuple(tensor.to(gpu.name) for tensor in payload)
            with gpu.current():
                run = builder.build(stage, on_gpu, number, {})
                again = builder.build(stage, on_gpu, number, {})
            for one in (run, again):
                outputs = gpu.run(Built(stage, one), payload)
                assert proof.max_error(outputs, expected) <= allowed(name)
                assert all(tensor.is_contiguous() and not tensor.is_cuda for tensor in outputs)
            payload = expected
            del run, again, one
            builder.release()
            stage.to("meta")
    builder.close()
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()  # it keeps 32 MiB for the products of matrices, whosever they are
    assert torch.cuda.memory_allocated() < 1 << 20


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
