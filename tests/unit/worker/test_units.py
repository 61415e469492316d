"""Units timed within their stage, codecs on what crosses a link, and what a device reaches at best."""

from __future__ import annotations

import functools
import itertools
import json
import statistics
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from pareto.partitions import model as partitioned
from pareto.partitions import weights
from pareto.partitions.recipe import Recipe
from pareto.protocol.jsonlines import Refused, plain
from pareto.protocol.messages import LoadModel, LoadStage, Split
from pareto.protocol.profile_messages import CodecRuns, MeasureRoofline, TimeCodecs, TimeUnits, UnitRuns
from pareto.protocol.validation import read
from pareto.remote.codecs import registry
from pareto.remote.worker import codings, device, units
from pareto.remote.worker.worker import Worker, answers
from tests.unit.small_models import small

pytestmark = pytest.mark.usefixtures("one_thread")

UNITS = 12
FEW = {"runs": 6, "seconds": 0.0, "most_s": 60.0, "steady_s": 0.0, "unit_s": 0.0}
CODED = [(3, "int8"), (0, "zstd:3"), (3, "zstd:3"), (0, "png"), (7, "fp16")]
BATCHES = 3


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker that has a small model."""
    with small("squeezenet1_1", 64) as name:
        recipe = Recipe(name, input="uint8")
        made = weights.make(name, "seeded", 3, tmp_path_factory.mktemp("weights"))
        worker, files = Worker(device.named("cpu")), {str(made): made.stem}
        worker.load(LoadModel(vars(recipe) | {"cuts": vars(recipe.cuts)}, files, made.stem, []))
        yield worker


def request(**fields: Any) -> TimeUnits:
    return TimeUnits(**{"batch_size": 2, "cpu": 1.0, **FEW, **fields})


def rounded(seconds: Iterable[float]) -> set[float]:
    return {round(each, 6) for each in seconds}


@pytest.fixture
def quota_s(monkeypatch: pytest.MonkeyPatch) -> float:
    """What takes a millisecond of the processor takes so long under a quota of a quarter."""
    ticks = itertools.count()
    monkeypatch.setattr(time, "process_time", lambda: 0.001 * next(ticks))
    return 0.004


@pytest.fixture
def ticking(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device whose clock shows a millisecond more each time, with several threads, so that it counts."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(worker._device, "stamp", functools.partial(next, itertools.count(step=0.001)))
    monkeypatch.setattr(units.Waits, "seconds", lambda _: 0.0)


def test_each_unit_is_timed_in_turn_with_all_of_them(worker: Worker) -> None:
    worker.stage(LoadStage(Split((UNITS,), 1, "tcp"), 0, None))
    report = worker.units(request(runs=8))
    assert worker._staged is None, "what was held before is gone"
    assert {len(run) for run in report.units_s} == {UNITS}
    assert len(report.units_s) == len(report.whole_s) == len(report.outside_s) == 8
    assert min(min(run) for run in report.units_s) > 0
    assert read(UnitRuns, json.loads(json.dumps(plain(report)))) == report
    assert report.steady == []
    assert len(report.paused_s) == units.LEAST_RUNS
    assert min(report.paused_s) > 0
    if report.peak_bytes is not None:  # the kernel lets a process count anew
        assert len(report.peak_bytes) == UNITS
        assert min(report.peak_bytes) > 1 << 20
    asked = answers(worker)
    assert asked[TimeUnits] == worker.units and asked[MeasureRoofline] == worker.roofline
    with pytest.raises(Refused, match="no model"):
        Worker(device.named("cpu")).units(request())


def test_before_each_of_some_runs_the_device_waits(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(worker.units(request(runs=22)).paused_s) == 11, "half as many"
    assert len(worker.units(request(runs=40)).paused_s) == units.PAUSED_RUNS
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    monkeypatch.setattr(units, "PAUSED_MOST_S", 0.0)
    assert len(worker.units(request(runs=40)).paused_s) == units.LEAST_RUNS, "a slow stage has few"
    assert pauses == [units.PAUSE_S] * units.LEAST_RUNS
    # Slow stages have few runs and quick not many.
    assert len(worker.units(request(runs=1000, most_s=0.0)).units_s) == units.LEAST_RUNS
    monkeypatch.setattr(units, "MAX_UNIT_RUNS", 9)
    assert len(worker.units(request(runs=5, seconds=60.0)).units_s) == 9


def test_the_whole_and_each_unit_run_for_the_sensors(worker: Worker) -> None:
    whole, *each = worker.units(request(steady_s=0.02, unit_s=0.01)).steady
    assert len(each) == UNITS
    for least_s, steadies in ((0.02, [whole]), (0.01, each)):
        for steady in steadies:
            assert steady.runs >= 1
            assert steady.window[1] - steady.window[0] >= least_s
    ends = [at for steady in (whole, *each) for at in steady.window]
    assert ends == sorted(ends), "one after the other"


def test_under_a_quota_units_take_processor_time_over_the_share(worker: Worker, quota_s: float) -> None:
    report = worker.units(request(cpu=0.25))
    assert rounded(itertools.chain(*report.units_s)) == {quota_s}
    assert statistics.median(report.whole_s) != pytest.approx(UNITS * quota_s), "by the clock on the wall"


@pytest.mark.usefixtures("ticking")
def test_several_threads_take_time_without_waits(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    report = worker.units(request())
    assert rounded(itertools.chain(*report.units_s)) == {0.001}
    assert rounded(report.whole_s) == {0.001}, "from the first mark to the last"
    for waited_s, left_s in ((0.0004, 0.0006), (3600.0, 0.001 * units.LEAST_SHARE)):
        waited = itertools.count(step=waited_s)
        monkeypatch.setattr(units.Waits, "seconds", lambda _, waited=waited: next(waited))
        assert rounded(worker.units(request()).whole_s) == {left_s}
        quota = worker.units(request(cpu=0.5))
        assert rounded(quota.whole_s) == {0.001}, "a pause would have come then"


def test_a_device_reaches_something_at_best(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, little in {"MATRIX": 64, "COPIED_BYTES": 1 << 16, "WINDOW_S": 0.001}.items():
        monkeypatch.setattr(units, name, little)
    best = units.roofline(device.named("cpu"))
    assert min(best.flops, best.bytes_s) > 1e6
    monkeypatch.setattr(units.Waits, "seconds", lambda _: pytest.fail("under a quota no wait is taken off"))
    assert units.roofline(device.named("cpu"), 0.25).flops > 1e6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_real_gpu_events_tell(tmp_path: Path) -> None:
    recipe = Recipe("mobilenet_v2")
    file = weights.make("mobilenet_v2", "seeded", 0, tmp_path)
    gpu, outline = device.named("cuda:0"), partitioned.outline(recipe)
    resident = partitioned.ResidentStage(outline, [file], gpu.name)
    resident.change(0, len(outline.points) - 1)
    report = units.timed(gpu, resident, units.example((("float32", (1, 3, 224, 224)),)), request(runs=30))
    sums = [sum(run) for run in report.units_s]
    assert statistics.median(sums) == pytest.approx(statistics.median(report.whole_s), rel=0.2)
    assert report.peak_bytes is not None
    assert units.roofline(gpu).flops > 1e12


class Images:
    """Some images, in a file."""

    def __init__(self, folder: Path) -> None:
        seeded = torch.Generator().manual_seed(1)
        self.batches = torch.randint(0, 256, (BATCHES, 2, 3, 64, 64), generator=seeded).to(torch.uint8)
        self._file = str(folder / "examples")
        save_file({"input0": self.batches}, self._file)

    def ask(
        self, worker: Worker, coded: list[tuple[int, str]] = CODED, cpu: float = 1.0, decodes: bool = True
    ) -> CodecRuns:
        return worker.coded(TimeCodecs(coded, self._file, cpu=cpu, decodes=decodes))


@pytest.fixture
def images(tmp_path: Path) -> Images:
    return Images(tmp_path)


def test_each_codec_is_timed_on_the_models_own_payloads(worker: Worker, images: Images) -> None:
    runs = images.ask(worker)
    assert read(CodecRuns, json.loads(json.dumps(plain(runs)))) == runs
    assert answers(worker)[TimeCodecs] == worker.coded
    outline, resident = worker._loaded()
    for number, (point, text) in enumerate(CODED):
        nbytes = 2 * outline.points[point].payload_bytes
        assert runs.payload_bytes[number] == nbytes
        assert [len(each[number]) for each in (runs.encode_s, runs.decode_s, runs.wire_bytes)] == [
            BATCHES
        ] * 3
        assert min(runs.encode_s[number] + runs.decode_s[number]) > 0
        resident.change(0, point)
        expected = []
        for batch in images.batches:
            payload = device.named("cpu").run(resident.stage, (batch,))
            expected.append(sum(tensor.nbytes for tensor in registry.parse(text).encode(payload)))
        assert runs.wire_bytes[number][:BATCHES] == expected, text
        assert max(expected) < 1.1 * nbytes
    runs = images.ask(worker, decodes=False)  # as nothing is sent to this host
    assert runs.decode_s == runs.decode_again_s == [[]] * len(CODED)


def test_under_a_quota_codecs_take_processor_time_over_the_share(
    worker: Worker, images: Images, quota_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = images.ask(worker, cpu=0.25)
    assert rounded(itertools.chain(*runs.encode_s, *runs.decode_again_s)) == {quota_s}
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    assert min(map(min, images.ask(worker).encode_s)) < 0.001, "with several threads the time that passes"


def test_a_first_run_is_apart(worker: Worker, images: Images, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = images.ask(worker, [(3, "int8")])
    assert len(runs.encode_s[0]) == len(runs.decode_s[0]) == BATCHES
    assert len(runs.encode_again_s[0]) == len(runs.decode_again_s[0]) == BATCHES * codings.AGAIN
    copied: list[int] = []
    real = torch.Tensor.copy_
    monkeypatch.setattr(torch.Tensor, "copy_", lambda one, it: copied.append(one.nbytes) or real(one, it))
    images.ask(worker, [(3, "fp16")])
    assert copied.count(codings.COOLING_BYTES) == 2 * BATCHES, "before each first run, and no other"
    images.ask(worker, [])
    assert worker._loaded()[1].stage.body is None
    with pytest.raises(Refused, match="'gzip' is no codec"):
        images.ask(worker, [(0, "gzip")])
