"""What a worker holds in memory, what it reports of a trial, and when: over loopback, and as a program by itself."""

from __future__ import annotations

import gc
import itertools
import json
import mmap
import resource
import statistics
import time
import weakref
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from safetensors.torch import load_file, save_file
from syrupy.assertion import SnapshotAssertion

from pareto.models import codec_results
from pareto.partitions import allocator, proof, registry, weights
from pareto.partitions import model as partitioned
from pareto.partitions.engines import registry as engines
from pareto.partitions.engines.base import Built
from pareto.partitions.graph import TensorSpec
from pareto.partitions.recipe import Cuts, Recipe
from pareto.partitions.weights import file_digest
from pareto.protocol import messages
from pareto.protocol.errors import BackendError, UserError
from pareto.protocol.jsonlines import Refused, plain
from pareto.protocol.messages import GetFacts, LoadModel, LoadStage, MeasureBaseline, OwnCodec, Split
from pareto.protocol.trial_messages import GetUsage, Length, RunTrial, TrialReport, WrongOutput
from pareto.protocol.validation import read
from pareto.remote.codecs import camera, own, pictures
from pareto.remote.codecs.registry import parse
from pareto.remote.link.probe import Question
from pareto.remote.worker import device, host
from pareto.remote.worker.__main__ import _guarded
from pareto.remote.worker.worker import Worker, _layout, answers
from pareto.trial.codec_work import without_codecs
from tests.unit.backends.builders import keys, refusal
from tests.unit.codecs.test_pictures import jpeg
from tests.unit.forked import Forked, run_main
from tests.unit.own_codecs import ENTROPY, LEARNED, written
from tests.unit.small_models import small

MODEL = "squeezenet1_1_64_pixels"
RECIPE = Recipe(MODEL)
LAST = 12
CODED = [(0, 0), (2, 6), (3, LAST)]
"""Splits whose results through codecs are known."""
MIB = 1 << 20
ENCRYPTED = ("tcp:tls", "tcp:3:tls")
AT_EDGE: dict[str, Any] = {"position": 0, "interface": None}
needs_onnx = pytest.mark.skipif(bool(engines.missing("onnx")), reason="ONNX Runtime is not installed")


@pytest.fixture(autouse=True, scope="module")
def model() -> Iterator[None]:
    with small("squeezenet1_1", 64) as name:
        assert name == MODEL
        yield


@pytest.fixture(scope="module")
def loading(model: None, one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The fields of a small model's `LoadModel`."""
    folder = tmp_path_factory.mktemp("load")
    made = weights.make(MODEL, "seeded", 3, folder)
    model = partitioned.load(RECIPE, made.path)
    inputs = torch.randn(2, 1, *model.input_shape, generator=torch.Generator().manual_seed(1))
    references = torch.stack([proof.reference(model, batch)[0] for batch in inputs])
    tensors = {"input0": inputs, "reference0": references}
    coded = codec_results.expected(model, tensors, CODED, [parse("int8"), parse("fp16")]).references
    save_file({**tensors, **coded}, folder / "data")
    files = {"weights": {str(made.path): made.digest}, "digest": made.digest}
    return {"recipe": asdict(RECIPE), **files, "data": [str(folder / "data")]}


def run_trial(split: Split, prefetch: int = 0) -> RunTrial:
    """The request for a trial of a few requests over loopback."""
    length: dict[str, Any] = {"latency": Length(4, 0.0), "throughput": Length(4, 0.0), "warmup_requests": 2}
    where: dict[str, Any] = {"peer": "127.0.0.1", "interface": "lo"}
    return RunTrial(split=split, transfer_s=0.001, in_flight=None, prefetch=prefetch, **length, **where)


def asked(*cuts: int, backend: str = "tcp", codec: str = "none", engine: str = "eager") -> Split:
    return Split(cuts, 1, backend, codec, engine)


def requests_of(report: TrialReport) -> int:
    return len(report.requests.latency.started_s) + len(report.requests.throughput.started_s)


class Chain:
    """Workers in this process, connected over loopback: two, or more with `hosts`."""

    def __init__(self, loading: dict[str, Any], hosts: int = 2) -> None:
        self.hosts = [Worker(device.named("cpu")) for _ in range(hosts)]
        self.edge, *_, self.server = self.hosts
        self.ports: dict[Worker, dict[str, int]] = {}
        for near, far in itertools.pairwise(self.hosts):
            self.ports[near] = far.listen(messages.Listen("127.0.0.1", "t", keys()))
        self.connect()
        for worker in self.hosts:
            worker.load(LoadModel(**loading if worker is self.edge else {**loading, "data": []}))

    def connect(self) -> None:
        for near, ports in self.ports.items():
            near.connect(messages.Connect("127.0.0.1", "t", ports, ["tcp", "tcp:3", *ENCRYPTED], keys()))

    def stage(self, *cuts: int, **how: str) -> list[messages.StageLoaded]:
        """how: backend, codec, engine."""
        return [self.stage_at(position, *cuts, **how) for position in range(len(self.hosts))]

    def stage_at(self, position: int, *cuts: int, **how: str) -> messages.StageLoaded:
        interface = "lo" if position < len(self.hosts) - 1 else None
        return self.hosts[position].stage(LoadStage(asked(*cuts, **how), position, interface))

    def trial(self, *cuts: int, prefetch: int = 0, **how: str) -> TrialReport:
        report = self.edge.trial(run_trial(asked(*cuts, **how), prefetch))
        assert isinstance(report, TrialReport)
        return report


@pytest.fixture(scope="module")
def pair(loading: dict[str, Any], one_thread: None) -> Chain:
    return Chain(loading)


@pytest.fixture(scope="module")
def three(loading: dict[str, Any], one_thread: None) -> Chain:
    return Chain(loading, hosts=3)


def test_each_host_holds_its_own_part_and_each_cut_computes_the_model(three: Chain) -> None:
    """Also where a host only passes on, and where the result is complete before the last one."""
    middle = LAST // 2
    whole = sum(tensor.nbytes for tensor in registry.build_structure(MODEL).state_dict().values())
    for cuts, later in {(2, middle): 2, (0, 0): 2, (middle, LAST): 1, (LAST, LAST): 0}.items():
        staged = three.stage(*cuts)
        held = [each.weights_bytes for each in staged]
        assert min(each.rss_bytes for each in staged) > 0
        bounds = (0, *cuts, LAST)
        assert sum(held) == whole
        assert [not nbytes for nbytes in held] == [a == b for a, b in itertools.pairwise(bounds)]
        report = three.trial(*cuts)
        assert report.max_abs_error == 0.0  # one kind of device, one order of sums
        assert len(report.stages_s) == later
        assert all(seconds > 0 for seconds in report.stages_s)
        of_requests = report.requests.latency.stages_s
        assert {len(each) for each in of_requests} == {later}
        assert (report.result_bytes > 0) == (later > 0)
        assert report.stages_s == tuple(map(statistics.median, zip(*of_requests, strict=True)))


@pytest.mark.parametrize("backend", ENCRYPTED)
def test_an_encrypting_chain_serves_nobody_in_clear(
    three: Chain, loading: dict[str, Any], backend: str
) -> None:
    """Else who passes on the handshake of a plain connection could have requests computed meanwhile."""
    three.stage(2, 5, backend=backend)
    report = three.trial(2, 5, backend=backend)
    assert report.max_abs_error < 1e-4
    assert all(len(each) == 2 for each in report.requests.latency.stages_s)
    pair = Chain(loading)
    pair.stage(5, backend=backend)
    plain_client = pair.edge._clients["tcp"]
    plain_client.open(pair.edge._fingerprint(asked(5), 1), ())
    plain_client.send(1, (torch.zeros(1),))
    with pytest.raises(BackendError):
        plain_client.receive()
    assert pair.trial(5, backend=backend).max_abs_error < 1e-4


@pytest.mark.parametrize(
    ("codec", "cuts"),
    [("int8", CODED[0]), ("int8", CODED[1]), ("int8", CODED[2]), ("fp16", CODED[1]), ("int8+lz4", CODED[1])],
)
def test_each_link_carries_what_the_codec_makes(three: Chain, codec: str, cuts: tuple[int, ...]) -> None:
    """The results are the same to the last bit as those of one process that encodes at the same cuts."""
    three.stage(*cuts, codec=codec)
    report = three.trial(*cuts, codec=codec)
    assert report.max_abs_error == 0.0
    requests = requests_of(report)
    usages = [worker.usage(GetUsage(coded=requests)) for worker in three.hosts[1:]]
    taking_part = sum(cut < LAST for cut in cuts)
    assert [usage.coded is not None for usage in usages] == [place < taking_part for place in range(2)]
    points = partitioned.describe(RECIPE)[0]
    hosts = [report.coded, *(usage.coded for usage in usages if usage.coded is not None)]
    for place, coded in enumerate(hosts):
        assert len(coded.decode_s) == len(coded.wire_bytes) == requests
        assert (min(coded.decode_s) > 0) == (place > 0)
        if place == taking_part:
            assert set(coded.wire_bytes) == {0}, "nothing goes on from here"
            continue
        payload = points[cuts[place]].payload_bytes
        if codec in ("fp16", "int8"):
            assert set(coded.wire_bytes) == {{"fp16": payload // 2, "int8": payload // 4 + 8}[codec]}
        else:
            assert 0 < max(coded.wire_bytes) < payload + 1000
    plainly = without_codecs(report, usages)
    assert all(after < before for after, before in zip(plainly.stages_s, report.stages_s, strict=True))


@pytest.mark.parametrize(
    ("theirs", "ours"), [("fp16", {"codec": "int8"}), ("none", {"engine": "server=onnx"})]
)
def test_hosts_that_disagree_do_not_talk(three: Chain, theirs: str, ours: dict[str, str]) -> None:
    three.stage(2, 6, codec=theirs)
    three.stage_at(0, 2, 6, **ours)
    assert "another model or point" in refusal(three.trial, 2, 6, **ours)
    three.connect()  # the fault was the last thing said


def test_what_a_host_lacks(
    three: Chain, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr("pareto.remote.codecs.registry.find_spec", lambda name: None)
    monkeypatch.setattr("pareto.partitions.engines.registry.find_spec", lambda name: None)
    monkeypatch.setattr("sys.executable", "/opt/venv/bin/python")
    assert "needs the package lz4" in refusal(three.stage, 2, 6, codec="lz4", by=Refused)
    assert refusal(three.stage, 2, 6, engine="onnx", by=Refused) == snapshot
    assert "is no engine" in refusal(three.stage, 2, 6, engine="tensorrt", by=Refused)


@needs_onnx
def test_each_host_runs_its_stage_by_its_engine_unless_it_passes_on(three: Chain) -> None:
    engine = "edge=onnx+server=onnx"
    assert [one.engine_s is not None for one in three.stage(0, 11, engine=engine)] == [False, False, True]
    report = three.trial(0, 11, engine=engine)
    assert 0 < report.max_abs_error <= report.tolerance  # another order of sums
    assert isinstance(three.server._model[1].stage, Built)  # type: ignore[index]
    eager = three.stage(0, 11)
    assert [one.engine_s for one in eager] == [None] * 3
    assert three.trial(0, 11).max_abs_error == 0.0


@pytest.mark.deep
@needs_onnx
def test_a_quantised_stage_computes_what_the_driver_foresees(loading: dict[str, Any], tmp_path: Path) -> None:
    engine, (data,) = "edge=onnx:int8", loading["data"]
    tensors = load_file(data)
    model = partitioned.load(RECIPE, Path(*loading["weights"]))
    by = [engines.parse(engine)]
    foreseen = codec_results.expected(model, tensors, [(LAST,)], [parse("none")], engines=by)
    save_file({**tensors, **foreseen.references}, tmp_path / "data")
    worker = Worker(device.named("cpu"))
    worker.load(LoadModel(**{**loading, "data": [str(tmp_path / "data")]}))
    split = asked(LAST, engine=engine)
    ranges = foreseen.ranges["onnx:int8", 0, LAST]
    plain = worker.stage(LoadStage(asked(LAST), **AT_EDGE))
    with pytest.raises(Refused, match="another version"):
        worker.stage(LoadStage(split, **AT_EDGE, ranges={"of another torch": (0.0, 1.0)}))
    staged = worker.stage(LoadStage(split, **AT_EDGE, ranges=dict(ranges)))
    assert staged.weights_bytes < plain.weights_bytes / 2
    request = run_trial(split)
    report = worker.trial(request)
    assert report.max_abs_error <= report.tolerance
    assert isinstance(report, TrialReport)
    wrong = {name: (low / 9, high / 9) for name, (low, high) in ranges.items()}
    worker.forget_engines()
    worker.stage(LoadStage(split, **AT_EDGE, ranges=wrong))
    assert isinstance(worker.trial(request), WrongOutput)
    assert set(worker._builders) == {"onnx:int8"}
    worker.load(LoadModel(**loading))
    assert not worker._builders, "they are let go of with the model"


def test_each_host_tells_what_it_sent_and_how_long_it_computed(three: Chain) -> None:
    three.stage(1, 3)
    report = three.trial(1, 3)
    requests = len(report.requests.throughput.started_s)
    steady = 1 + report.throughput_window_requests
    asked = GetUsage(requests, steady)
    edge, middle, server = (worker.usage(asked) for worker in three.hosts)
    assert edge.throughput_busy_s is None  # the edge's is in the report
    window = report.throughput_window
    assert 0 < report.throughput_busy_s <= window[1] - window[0]
    for usage, stages in ((middle, 0), (server, 1)):
        first, last = usage.throughput_window
        told = [each[stages] for each in report.requests.throughput.stages_s][1:steady]
        assert usage.throughput_busy_s == pytest.approx(sum(told))
        assert usage.throughput_busy_s <= last - first
    payload_bytes = partitioned.describe(RECIPE)[0][3].payload_bytes
    assert middle.sent_bytes > payload_bytes  # on this loopback, of all three
    assert middle.received_bytes > 0 and middle.retransmits >= 0
    assert server.sent_bytes is server.received_bytes is server.retransmits is None


def now_s() -> float:
    """By the clock that workers read, too: for an order, not for how long something took."""
    return time.monotonic()  # noqa: TID251


def test_a_trial_tells_when_each_host_worked_on_its_own_clock(pair: Chain) -> None:
    before = now_s()
    pair.stage(5)
    report = pair.trial(5)
    assert report.max_abs_error <= report.tolerance
    begin, end = report.trial_window
    first, last = report.throughput_window
    assert before < begin < first < last <= end < now_s()
    requests = len(report.requests.throughput.started_s)
    completed = report.throughput_window_requests
    assert 2 <= completed < requests - 1  # without those that drain the steps
    assert report.throughput_ips == pytest.approx(completed / (last - first))
    one_by_one = report.requests.latency
    took_s = sum(one_by_one.finished_s) - sum(one_by_one.started_s)
    assert report.sequential_ips == pytest.approx(len(one_by_one.started_s) / took_s)
    assert report.peak_rss_bytes >= report.rss_bytes * 0.9
    assert report.gpu_s is None
    usage = pair.server.usage(GetUsage(requests, 1 + completed))
    served_first, served_last = usage.throughput_window
    began, ended = usage.trial_window
    assert before < began < served_first < served_last < ended < now_s()
    assert served_first > begin  # here, and here only, both hosts are one
    assert (usage.throughput_window_requests, usage.gpu_s) == (completed, None)
    assert usage.peak_rss_bytes > 0
    # Nothing served is no window.
    for cut in (5, LAST):
        pair.stage(cut)
        pair.trial(cut)
    for usage in (worker.usage(GetUsage(4, 3)) for worker in pair.hosts):
        assert usage.trial_window is usage.throughput_window is None
        assert usage.throughput_window_requests is usage.throughput_busy_s is None


def test_a_trial_of_what_was_not_staged_is_refused(
    pair: Chain, loading: dict[str, Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    pair.stage(4)
    said = [refusal(pair.trial, 5, by=Refused), refusal(pair.trial, 4, backend="rpc", by=Refused)]
    pair.edge.load(LoadModel(**loading))
    said.append(refusal(pair.trial, 4, by=Refused))
    damaged = tmp_path / "weights"
    damaged.touch()
    pair.stage(3)
    request = LoadModel(**{**loading, "weights": {str(damaged): loading["digest"]}})
    said.append(refusal(pair.edge.load, request, by=Refused))
    assert not damaged.exists()  # or it would pass for sent
    assert pair.trial(3).latency_s > 0, "nothing was let go of"
    own = tmp_path / "own"
    own.write_bytes(Path(*loading["weights"]).read_bytes())
    pair = Chain({**loading, "weights": {str(own): loading["digest"]}})
    pair.stage(5)
    own.unlink()
    refusal(pair.stage_at, 1, 4, by=UserError)
    assert [*said, refusal(pair.trial, 5)] == snapshot


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
STEM, BODY, WHOLE = 1, 3, 5  # points
HEAD_BYTES = (1 << 16) * 512 * 4


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
    first = worker.result("load", **large)["rss_bytes"]
    small = worker.result("stage", **AT_EDGE, split=plain(asked(STEM)))
    whole = worker.result("stage", **AT_EDGE, split=plain(asked(WHOLE)))
    # Without the last layers, whose tensors are so large that freeing them always gives them back. The body's largest
    # has just the size from which glibc keeps all of the body, unless it is told.
    points = (BODY, STEM, BODY, STEM)
    _, _, body, again = (worker.result("stage", **AT_EDGE, split=plain(asked(point))) for point in points)
    assert whole["weights_bytes"] > 170 * MIB
    assert small["weights_bytes"] == again["weights_bytes"] < MIB
    assert 0.9 < (whole["rss_bytes"] - first) / whole["weights_bytes"] < 1.4
    for stage in (small, again):
        assert stage["rss_bytes"] < first + 0.2 * whole["weights_bytes"]
    assert again["rss_bytes"] < small["rss_bytes"] + 0.5 * body["weights_bytes"]


@pytest.mark.parametrize("worker", [(main_that_gives_back,)], indirect=True)
def test_a_stage_too_large_is_refused_and_the_worker_lives(worker: Forked, large: dict[str, Any]) -> None:
    worker.result("load", **large)
    pid = worker.process.pid
    assert pid is not None
    used = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(pid, resource.RLIMIT_AS, (used + 100 * MIB, resource.RLIM_INFINITY))
    error = worker.reply("stage", **AT_EDGE, split=plain(asked(WHOLE)))["error"]
    assert error.startswith("out of memory: ") and str(HEAD_BYTES) in error and "\n" not in error
    assert worker.result("stage", **AT_EDGE, split=plain(asked(STEM)))["weights_bytes"] < MIB


def test_a_layout_has_so_many_times_what_one_image_is_made_into() -> None:
    """Swin computes on 64 windows of an image, one after another in the dimension of the batch."""
    specs = [TensorSpec((64, 49, 96), "float32"), TensorSpec((1, 10), "uint8")]
    assert _layout(specs, 3) == (("float32", (192, 49, 96)), ("uint8", (3, 10)))


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


def test_garbage_is_collected_when_a_stage_changes(pair: Chain) -> None:
    """Graphs and their modules refer to each other: else each trial would leave some."""

    class Node:
        pass

    node = Node()
    node.itself = node  # type: ignore[attr-defined]
    left = weakref.ref(node)
    gc.disable()
    try:
        del node
        assert left() is not None
        pair.stage(5)
        assert left() is None
    finally:
        gc.enable()


def test_a_stages_baseline_is_its_own_and_leaves_no_trace_in_the_trial(pair: Chain) -> None:
    """A stage without units has none."""
    whole = asked(0)
    pair.stage(0)
    assert pair.edge.baseline(MeasureBaseline(whole, 0)) is None
    assert (pair.server.baseline(MeasureBaseline(whole, 1)) or 0.0) > 0
    assert pair.server.usage(GetUsage()).trial_window is None
    pair.trial(0)
    assert pair.server.baseline(MeasureBaseline(whole, 1)) is not None


def test_all_that_it_reports_is_declared(pair: Chain, loading: dict[str, Any]) -> None:
    """The driver takes nothing else (`pareto.protocol.messages`)."""

    def check(worker: Worker, request: Any) -> Any:
        report = answers(worker)[type(request)](request)
        assert read(request.report, json.loads(json.dumps(report, default=plain))) == report
        return report

    check(pair.edge, GetFacts())
    check(pair.edge, LoadModel(**loading))
    check(Worker(device.named("cpu")), messages.Listen("127.0.0.1", "t"))
    check(pair.edge, messages.WarmUp("tcp", 1000))
    bulks = {"bulk_out": 100_000, "bulk_back": 100_000, "sample_out": 3, "sample_back": 3, "message": 10}
    for more in ({}, {"datagrams": True}, {"bulk_out": 0, "sample_out": 0}, {"bulk_out": 1}):
        check(pair.edge, Question(**{**bulks, **more}))
    for cut in (0, 5, LAST):
        which = asked(cut)
        check(pair.edge, LoadStage(which, 0, "lo"))
        check(pair.server, LoadStage(which, 1, None))
        check(pair.server, MeasureBaseline(which, 1))
        check(pair.server, GetUsage())
        report = check(pair.edge, run_trial(which))
        served = GetUsage(len(report.requests.throughput.started_s), 1 + report.throughput_window_requests)
        check(pair.server, served)
        check(pair.edge, served)


def test_a_fault_of_the_link_or_of_a_users_file_is_a_reason_and_no_traceback() -> None:
    def fail(request: dict[str, Any]) -> None:
        raise request["kind"]("sending to the server failed")

    for kind in (BackendError, UserError):
        assert refusal(_guarded, fail, {"kind": kind}, by=Refused) == "sending to the server failed"


@pytest.mark.parametrize(("name", "behind"), [("Bottleneck", ""), ("Bottleneck", "+lz4"), ("Entropy", "")])
def test_an_own_codec_differs_by_link(
    loading: dict[str, Any], tmp_path: Path, name: str, behind: str
) -> None:
    """The results are those of one process to the last bit, whatever random numbers a host draws."""
    file = written(tmp_path, {"Bottleneck": LEARNED, "Entropy": ENTROPY}[name])
    cuts, codec = CODED[1], f"{name}{behind}"
    model = partitioned.load(RECIPE, Path(*loading["weights"]))
    places = [
        own.Cut.of(MODEL, cut, model.points[cut].name, _layout(model.points[cut].payload, 1)) for cut in cuts
    ]
    (bound,) = own.bound([parse(f"{file}:{codec}")], places, seed=5)
    ((path,), state) = loading["data"], tmp_path / "state"
    known = load_file(path)
    coded = codec_results.expected(model, known, [cuts], [bound]).references
    save_file({**known, **coded}, tmp_path / "data")
    steps: Any = bound.made
    save_file(own.state_of(steps), state)
    sent = OwnCodec(name, str(file), name, "b.py", str(state), file_digest(state), 5, own.cuts_of(steps))
    three = Chain({**loading, "data": [str(tmp_path / "data")], "codecs": [sent]}, hosts=3)
    three.stage(*cuts, codec=codec)
    report = three.trial(*cuts, codec=codec)
    assert report.max_abs_error == 0.0
    assert report.coded is not None
    payload = partitioned.describe(RECIPE)[0][cuts[0]].payload_bytes
    assert 0 < max(report.coded.wire_bytes) < payload
    with pytest.raises(Refused, match="is no codec"):
        three.stage(*cuts, codec="Other")


def test_an_own_codec_that_a_host_cannot_import_is_refused(loading: dict[str, Any], tmp_path: Path) -> None:
    file, state = written(tmp_path, "import no_such_package_of_this_name\n"), tmp_path / "state"
    save_file({}, state)
    sent = OwnCodec("Own", str(file), "Own", "b.py", str(state), file_digest(state), 5, [])
    words = refusal(Chain, {**loading, "codecs": [sent]}, by=UserError)
    assert "No module named 'no_such_package_of_this_name'" in words


def test_requests_begin_with_files_which_either_host_decodes(loading: dict[str, Any], tmp_path: Path) -> None:
    recipe = Recipe(MODEL, input="uint8")
    model = partitioned.load(recipe, Path(*loading["weights"]))
    crop = camera.crop_for(MODEL, (3, 64, 64))
    files = [jpeg(1), jpeg(2, quality=30)]
    inputs = torch.stack([camera.pixels(file, crop)[None] for file in files])
    references = torch.stack([proof.reference(model, batch)[0] for batch in inputs])
    framed = {f"file{number}": pictures.joined([file]) for number, file in enumerate(files)}
    save_file({"input0": inputs, "reference0": references, **framed}, tmp_path / "data")
    sizes = {len(file) for file in files}
    changed = {"recipe": asdict(recipe), "data": [str(tmp_path / "data")], "file_bytes": max(sizes)}
    pair = Chain({**loading, **changed})
    of_stage = model.points[3].payload_bytes
    for codec, cut, sent in (
        ("none", 0, {3 * 64 * 64}),
        ("file", 0, sizes),
        ("none", 3, {of_stage}),
        ("none", LAST, {0}),
    ):
        pair.stage(cut, codec=codec)
        report = pair.trial(cut, codec=codec, prefetch=2)
        assert report.prefetch == (2 if codec == "none" else 0)
        behind = pair.server.usage(GetUsage(requests_of(report), 2, requests_of(report))).coded
        assert report.coded is not None
        assert set(report.coded.wire_bytes) == sent
        assert all(each > 0 for each in report.coded.decode_s) == (codec == "none")
        assert (behind is not None and all(each > 0 for each in behind.decode_s)) == (codec == "file")
