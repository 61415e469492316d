"""Units timed within their stage, and what a device reaches at best."""

from __future__ import annotations

import functools
import itertools
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from pareto.partitions import model as partitioned
from pareto.partitions import weights
from pareto.partitions.recipe import Recipe
from pareto.protocol.jsonlines import Refused, plain
from pareto.protocol.messages import LoadModel, LoadStage, Split
from pareto.protocol.profile_messages import MeasureRoofline, TimeUnits, UnitRuns
from pareto.protocol.validation import read
from pareto.remote.worker import device, units
from pareto.remote.worker.worker import Worker, answers
from tests.unit.small_models import small

pytestmark = pytest.mark.usefixtures("one_thread")

UNITS = 12
FEW = {"runs": 6, "seconds": 0.0, "most_s": 60.0, "steady_s": 0.0}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker that has a small model."""
    with small("squeezenet1_1", 64) as name:
        recipe = Recipe(name, input="uint8")
        made = weights.make(name, "seeded", 3, tmp_path_factory.mktemp("weights"))
        worker = Worker(device.named("cpu"))
        worker.load(
            LoadModel(
                vars(recipe) | {"cuts": vars(recipe.cuts)}, {str(made.path): made.digest}, made.digest, []
            )
        )
        yield worker


def request(**fields: Any) -> TimeUnits:
    return TimeUnits(**{"batch_size": 2, "cpu": 1.0, **FEW, **fields})


@pytest.fixture
def ticking(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device whose clock shows a millisecond more each time, with several threads, so that it counts."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(worker._device, "stamp", functools.partial(next, itertools.count(step=0.001)))
    monkeypatch.setattr(units.Waits, "seconds", lambda _: 0.0)


def test_each_unit_is_timed_in_turn_with_all_of_them(worker: Worker) -> None:
    report = worker.units(request(runs=8))
    assert {len(run) for run in report.units_s} == {UNITS}
    assert len(report.units_s) == len(report.whole_s) == len(report.outside_s) == 8
    assert min(min(run) for run in report.units_s) > 0
    assert read(UnitRuns, json.loads(json.dumps(plain(report)))) == report
    assert (report.window, report.window_runs) == (None, 0)
    assert len(report.paused_s) == units.LEAST_RUNS
    assert min(report.paused_s) > 0
    assert len(worker.units(request(runs=22)).paused_s) == 11, "half as many"
    assert len(worker.units(request(runs=40)).paused_s) == units.PAUSED_RUNS


def test_before_each_of_some_runs_the_device_waits(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(units, "PAUSED_MOST_S", 0.0)
    assert len(worker.units(request(runs=40)).paused_s) == units.LEAST_RUNS, "a slow stage has few"
    assert pauses == [units.PAUSE_S] * units.LEAST_RUNS


def test_it_is_an_operation_of_the_worker(worker: Worker) -> None:
    answer = answers(worker)
    assert answer[TimeUnits] == worker.units
    assert answer[MeasureRoofline] == worker.roofline


def test_the_stage_that_was_held_before_is_gone(worker: Worker) -> None:
    worker.stage(LoadStage(Split((UNITS,), 1, "tcp"), 0, None))
    worker.units(request())
    assert worker._staged is None


def test_under_a_quota_units_take_processor_time_over_the_share(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr(time, "process_time", lambda: 0.001 * next(ticks))
    report = worker.units(request(cpu=0.25))
    assert {round(seconds, 6) for run in report.units_s for seconds in run} == {0.004}
    assert statistics.median(report.whole_s) != pytest.approx(UNITS * 0.004), "by the clock on the wall"


@pytest.mark.usefixtures("ticking")
def test_with_several_threads_units_take_the_time_that_passes(worker: Worker) -> None:
    report = worker.units(request())
    assert {round(seconds, 6) for run in report.units_s for seconds in run} == {0.001}
    assert {round(seconds, 6) for seconds in report.whole_s} == {0.001}, "from the first mark to the last"


@pytest.mark.usefixtures("ticking")
def test_waits_for_a_core_are_no_time_of_the_stage(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    for waited_s, left_s in ((0.0004, 0.0006), (3600.0, 0.001 * units.LEAST_SHARE)):
        waited = itertools.count(step=waited_s)
        monkeypatch.setattr(units.Waits, "seconds", lambda _, waited=waited: next(waited))
        assert {round(seconds, 6) for seconds in worker.units(request()).whole_s} == {left_s}
        quota = worker.units(request(cpu=0.5))
        assert {round(seconds, 6) for seconds in quota.whole_s} == {0.001}, "a pause would have come then"


def test_slow_stages_have_few_runs_and_quick_ones_not_too_many(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(worker.units(request(runs=1000, most_s=0.0)).units_s) == units.LEAST_RUNS
    monkeypatch.setattr(units, "MAX_UNIT_RUNS", 9)
    assert len(worker.units(request(runs=5, seconds=60.0)).units_s) == 9


def test_the_whole_runs_without_a_pause_for_the_sensors(worker: Worker) -> None:
    report = worker.units(request(steady_s=0.02))
    assert report.window is not None
    assert report.window_runs >= 1
    assert report.window[1] - report.window[0] >= 0.02


def test_memory_is_that_of_the_process(worker: Worker) -> None:
    report = worker.units(request())
    if report.peak_bytes is not None:  # the kernel lets a process count anew
        assert len(report.peak_bytes) == UNITS
        assert min(report.peak_bytes) > 1 << 20


def test_without_a_model_it_is_refused() -> None:
    with pytest.raises(Refused, match="no model"):
        Worker(device.named("cpu")).units(request())


def test_noise_for_a_stage_has_its_layout() -> None:
    image, mask = units.example((("uint8", (2, 3, 4, 4)), ("float32", (2, 5))))
    assert (image.dtype, tuple(image.shape)) == (torch.uint8, (2, 3, 4, 4))
    assert image.max() > image.min()
    assert (mask.dtype, tuple(mask.shape)) == (torch.float32, (2, 5))


def test_a_device_reaches_something_at_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "MATRIX", 64)
    monkeypatch.setattr(units, "COPIED_BYTES", 1 << 16)
    monkeypatch.setattr(units, "WINDOW_S", 0.001)
    best = units.roofline(device.named("cpu"))
    assert best.flops > 1e6
    assert best.bytes_s > 1e6
    monkeypatch.setattr(units.Waits, "seconds", lambda _: pytest.fail("under a quota no wait is taken off"))
    assert units.roofline(device.named("cpu"), 0.25).flops > 1e6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_real_gpu_events_tell(tmp_path: Path) -> None:
    recipe = Recipe("mobilenet_v2")
    file = weights.make("mobilenet_v2", "seeded", 0, tmp_path)
    gpu, outline = device.named("cuda:0"), partitioned.outline(recipe)
    resident = partitioned.ResidentStage(outline, [file.path], gpu.name)
    resident.change(0, len(outline.points) - 1)
    report = units.timed(gpu, resident, units.example((("float32", (1, 3, 224, 224)),)), request(runs=30))
    sums = [sum(run) for run in report.units_s]
    assert statistics.median(sums) == pytest.approx(statistics.median(report.whole_s), rel=0.2)
    assert report.peak_bytes is not None
    assert units.roofline(gpu).flops > 1e12
