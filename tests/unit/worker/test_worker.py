"""What a worker holds in memory, what it reports of a trial, and when: over loopback, and as a program by itself."""

from __future__ import annotations

import gc
import itertools
import json
import statistics
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from syrupy.assertion import SnapshotAssertion

from pareto.models import codec_results
from pareto.partitions import model as partitioned
from pareto.partitions import registry
from pareto.partitions.engines import registry as engines
from pareto.partitions.engines.base import Built
from pareto.protocol import messages
from pareto.protocol.errors import BackendError, UserError
from pareto.protocol.jsonlines import Refused, answer, plain
from pareto.protocol.messages import GetFacts, LoadModel, LoadStage, MeasureBaseline
from pareto.protocol.trial_messages import GetUsage, TrialReport, WrongOutput
from pareto.protocol.validation import read
from pareto.remote.codecs.registry import parse
from pareto.remote.link.probe import Question
from pareto.remote.worker import device
from pareto.remote.worker.worker import Worker, answers
from tests.unit.backends.builders import refusal
from tests.unit.offered import example, installed
from tests.unit.worker.conftest import AT_EDGE, ENCRYPTED, LAST, MODEL, RECIPE, Chain, asked, now_s, run_trial

needs_onnx = pytest.mark.skipif(bool(engines.missing("onnx")), reason="ONNX Runtime is not installed")


def test_each_host_holds_its_own_part_and_each_cut_computes_the_model(three: Chain) -> None:
    """Also where a host only passes on, and where the result is complete before the last one."""
    middle = LAST // 2
    whole = sum(tensor.nbytes for tensor in registry.build_structure(MODEL).state_dict().values())
    for cuts, later in {(2, middle): 2, (0, 0): 2, (middle, LAST): 1, (LAST, LAST): 0}.items():
        staged = three.stage(*cuts)
        held = [each.weights_bytes for each in staged]
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


@pytest.fixture
def offered(tmp_path: Path) -> Iterator[None]:
    """The engine of docs/extend.md, one that builds nothing, and one without a builder."""
    more = "\nBAD, NONE = Kind('fusing:Bad', ''), Kind('fusing:none', '', 'gone')\nnone = lambda *_, short: 5"
    more += "\nclass Bad(Builder):\n    def build(self, *_):\n        return 5"
    points = "fused = fusing:ENGINE\nbad = fusing:BAD\nnone = fusing:NONE"
    with installed(tmp_path, {"fusing.py": example("fusing.py") + more}, engines=points):
        yield


def test_an_engine_of_a_package_that_builds_nothing_says_so(three: Chain, offered: None) -> None:
    assert engines.version("none") == "unknown"
    for name, fault in {"bad": "bad does not take the stage: ", "none": "fails: it makes no Builder"}.items():
        assert fault in refusal(three.stage, 0, 11, engine=name, by=Refused)


@pytest.mark.parametrize("name", [pytest.param("onnx", marks=needs_onnx), "fused"])
def test_each_host_runs_its_stage_by_its_engine_unless_it_passes_on(
    three: Chain, offered: None, name: str
) -> None:
    engine = f"edge={name}+server={name}"
    assert [one.engine_s is not None for one in three.stage(0, 11, engine=engine)] == [False, False, True]
    report = three.trial(0, 11, engine=engine)
    assert report.max_abs_error <= report.tolerance
    assert name == "fused" or report.max_abs_error > 0  # another order of sums
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
    check(Worker(device.named("cpu")), messages.Listen("127.0.0.1", "t", ["tcp", "rpc"]))
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


def test_a_fault_of_the_link_or_of_a_users_file_is_a_reason_and_no_traceback(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(kind: type[Exception]) -> None:
        raise kind("sending to the server failed")

    for kind in (BackendError, UserError):
        reply = json.loads(answer({"fail": lambda _, kind=kind: fail(kind)}, {"op": "fail"}))
        assert reply == {"id": None, "ok": False, "error": "sending to the server failed"}
    assert not capsys.readouterr().err
