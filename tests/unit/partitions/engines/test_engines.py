"""Every engine that is not eager: what it builds computes what the stage computes."""

from __future__ import annotations

import gc
import os
import weakref
from collections.abc import Hashable, Iterator
from pathlib import Path

import pytest
import torch

from partitions import proof, scratch, tracing
from partitions.engines import registry
from partitions.engines.base import Builder, Calibrator, EngineError, Ranges, Run
from partitions.stage import Payload, Stage

from .stages import images, stages

KEEP_WEIGHTS = {"compile", "onnx:int8"}
"""They keep the weights of a stage in a file."""
BUILT = [name for name in registry.ENGINES if name != registry.EAGER]


@pytest.fixture(scope="module", params=BUILT)
def engine(request: pytest.FixtureRequest) -> str:
    if lacks := registry.missing(request.param):
        pytest.skip(lacks)
    return str(request.param)


@pytest.fixture(scope="module")
def built(engine: str) -> Iterator[tuple[Builder, list[Stage], list[Run]]]:
    builder, payload, made, runs = registry.builder(engine, 1), images(), [*stages()], []
    tracing._constants.cache_clear()
    with torch.inference_mode():
        for number, stage in enumerate(made):
            ranges = _ranges(builder, stage, payload, number)
            runs.append(builder.build(stage, payload, number, ranges))
            payload = stage(payload)
    yield builder, made, runs
    builder.close()


def _ranges(builder: Builder, stage: Stage, payload: Payload, key: Hashable) -> Ranges:
    return builder.calibrated(stage, [payload], key) if isinstance(builder, Calibrator) else {}


def _allowed(engine: str) -> float:
    """How far a stage's results may be off: a tenth where the engine changes them."""
    return 0.1 if registry.ENGINES[engine].differs else proof.TOLERANCE / 10


def test_what_is_built_computes_what_the_stages_compute(
    engine: str, built: tuple[Builder, list[Stage], list[Run]]
) -> None:
    _, made, runs = built
    payload = expected = images()
    with torch.inference_mode():
        for stage, run in zip(made, runs, strict=True):
            before = [tensor.clone() for tensor in payload]
            outputs, expected = run(payload), stage(expected)
            assert all(map(torch.equal, payload, before)), "the inputs are not written to"
            assert proof.max_error(outputs, expected) <= _allowed(engine)
            assert all(one.is_contiguous() for one in outputs)
            payload = outputs
    assert len(stages()[1](stages()[0](images()))) == 1


def test_what_an_engine_traces_leaves_nothing_in_what_is_eager(
    built: tuple[Builder, list[Stage], list[Run]],
) -> None:
    """The constants that bytes are normalised by are made once; a tracer's stand-ins for them are no tensors."""
    _, (first, _), _ = built
    with torch.inference_mode():
        after = first(images())
        tracing._constants.cache_clear()
        assert all(map(torch.equal, after, first(images())))


def test_results_are_in_memory_of_their_own(built: tuple[Builder, list[Stage], list[Run]]) -> None:
    _, _, (run, _) = built
    with torch.inference_mode():
        first = run(images())
        kept = [tensor.clone() for tensor in first]
        run((255 - images()[0],))
    assert all(map(torch.equal, first, kept)), "a later run does not overwrite an earlier one's results"


def test_a_stage_that_comes_back_is_built_again_after_its_weights_were_let_go_of(engine: str) -> None:
    first, _ = stages()
    builder = registry.builder(engine, 1)
    with torch.inference_mode():
        ranges = _ranges(builder, first, images(), "key")
        run = builder.build(first, images(), "key", ranges)
        del run
        builder.release()
        first.to("meta")
    again, _ = stages()
    assert again.body is not None
    if engine not in KEEP_WEIGHTS:
        for tensor in again.parameters():
            tensor.data *= 2
    with torch.inference_mode():
        run = builder.build(again, images(), "key", ranges)
        outputs, expected = run(images()), again(images())
        assert proof.max_error(outputs, expected) <= _allowed(engine)
        if run.weights_bytes is not None:
            for tensor in again.parameters():
                tensor.data.zero_()
            assert all(map(torch.equal, run(images()), outputs)), "it has weights of its own"
    builder.close()


def test_a_builder_leaves_nothing_behind(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch.tempfile, "tempdir", str(tmp_path))
    before = dict(os.environ)
    builder = registry.builder(engine, 1)
    with torch.inference_mode():
        _, stage = stages()
        payload = stages()[0](images())
        builder.build(stage, payload, "key", _ranges(builder, stage, payload, "key"))
    weight = weakref.ref(next(stage.parameters()))
    del stage
    builder.close()
    gc.collect()
    assert weight() is None, "nor does anything keep the weights"
    assert not list(tmp_path.iterdir())
    assert dict(os.environ) == before


def test_a_stage_that_an_engine_does_not_take_is_refused_in_one_line(engine: str) -> None:
    if engine.startswith(registry.EAGER):
        pytest.skip("it takes whatever PyTorch runs")

    class Sorted(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
            return (torch.tensor([float(x.sum())]),) if float(x.sum()) > 0 else (x,)

    with pytest.raises(EngineError, match="does not take the stage") as refused:
        registry.builder(engine, 1).build(Stage(Sorted()), images(), "key", {})  # type: ignore[arg-type]
    assert "\n" not in str(refused.value)
