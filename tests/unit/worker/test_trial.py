"""What a trial reports, and that it refuses to time what is not the whole model."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pareto.partitions import proof
from pareto.partitions.stage import Stage
from pareto.protocol import pace as paces
from pareto.protocol.jsonlines import Refused
from pareto.protocol.messages import Split
from pareto.protocol.trial_messages import Length, Progress, RunTrial, WrongOutput
from pareto.remote.backends.base import Client, Layout, Tensors, layout
from pareto.remote.backends.tcp import TcpClient, TcpServer
from pareto.remote.codecs.registry import Codec, parse
from pareto.remote.worker import trial
from pareto.remote.worker.device import Device
from pareto.remote.worker.phases import Phase, Sample
from pareto.remote.worker.served import Coding
from pareto.remote.worker.trial import Data

CLASSES = 5
LOGITS = [torch.eye(CLASSES)[[0, 1]], torch.eye(CLASSES)[[2, 3]]]
"""Two inputs of two images; the edge's stage passes them on, and the whole model does nothing else."""


def run(
    client: Client,
    data: Data,
    *,
    requests: int = 5,
    transfer_s: float = 0.001,
    in_flight: int | None = None,
    codec: Codec | None = None,
    so_far: Callable[[Progress], None] | None = None,
) -> Any:
    request = RunTrial(
        split=Split((0,), 2, "tcp"),
        warmup_requests=2,
        latency=Length(requests, 0.0),
        throughput=Length(requests, 0.0),
        transfer_s=transfer_s,
        in_flight=in_flight,
        interface="lo",
        peer="127.0.0.1",
    )
    return trial.run(client, Device(), Stage(None), data, request, codec, so_far=so_far)


def data(references: tuple[Tensors, ...] | None = None) -> Data:
    alone = tuple((logits,) for logits in LOGITS)
    return Data(alone, references or alone)


class Heads:
    """A stage with several results that says it took `seconds`."""

    def __init__(self, heads: int, seconds: float) -> None:
        self.fingerprint = bytes(8)
        self.takes: Layout = layout(LOGITS[:1])
        self._heads = heads
        self._seconds = seconds

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        return tuple(tensors[0] * (head + 1) for head in range(self._heads)), self._seconds


@pytest.fixture
def server() -> Iterator[TcpServer]:
    server = TcpServer("127.0.0.1", "t")
    yield server
    server.close()


def connected(server: TcpServer, heads: int, seconds: float = 0.0) -> Client:
    stage = Heads(heads, seconds)
    server.serve(stage)
    client = TcpClient("127.0.0.1", server.port, "t")
    client.open(stage.fingerprint, stage.takes * heads)
    return client


def test_every_result_is_compared_and_counted(server: TcpServer) -> None:
    references = tuple((logits, 2 * logits, 3 * logits) for logits in LOGITS)
    report = run(connected(server, 3), data(references))
    assert report.result_bytes == 3 * report.payload_bytes == 3 * LOGITS[0].nbytes
    assert report.max_abs_error == 0.0


def test_only_a_trial_that_takes_long_reports_how_far_it_is(
    server: TcpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Progress] = []
    run(connected(server, 1), data(), so_far=told.append)
    assert told == []
    monkeypatch.setattr(trial, "WATCHED_S", 0.0)
    run(connected(server, 1), data(), so_far=told.append)
    assert [(each.phase, each.requests) for each in told] == [
        ("warming up", 0),
        ("latency", 0),
        ("throughput", 0),
    ]
    told.clear()
    monkeypatch.setattr(trial, "PROGRESS_S", 0.0)
    run(connected(server, 1), data(), requests=3, so_far=told.append)
    assert [each.requests for each in told if each.phase == "latency"] == [0, 1, 2]
    throughput = [each.requests for each in told if each.phase == "throughput"]
    assert throughput == list(range(len(throughput)))


@pytest.mark.parametrize("wrong", [1, 2])
def test_nothing_is_timed_where_any_result_is_wrong(server: TcpServer, wrong: int) -> None:
    references = tuple(tuple(logits * (head + 1) + (head == wrong) for head in range(3)) for logits in LOGITS)
    report = run(connected(server, 3), data(references=references))
    assert isinstance(report, WrongOutput)
    assert report.max_abs_error == 1 / (wrong + 2), "of the largest value of that result"


@pytest.mark.parametrize(
    ("stage_s", "transfer_s", "in_flight", "pace"),
    [
        (0.25, 0.0, None, (5, 0.25)),
        (0.0, 0.0, None, (10, 0.125)),  # the edge's
        (0.25, 0.5, None, (3, 0.5)),
        (0.25, 0.5, 1, (1, 1.0)),
        (0.25, 0.5, 9, (9, 0.5)),
    ],
)
def test_the_slowest_of_all_steps_sets_the_pace(
    stage_s: float, transfer_s: float, in_flight: int | None, pace: tuple[int, float]
) -> None:
    lone = Phase(0.0, [Sample(0.0, 1.0, 0.125, 0.0, (0.0625, stage_s))] * 3, [])
    assert trial.pacing(lone, transfer_s, in_flight) == pace


@pytest.mark.parametrize(
    ("ahead", "in_flight", "pace"),
    [(False, None, (4, 0.375)), (True, None, (4, 0.25)), (False, 1, (1, 1.0)), (True, 1, (1, 0.75))],
)
def test_what_is_decoded_ahead_is_a_step_of_its_own(
    ahead: bool, in_flight: int | None, pace: tuple[int, float]
) -> None:
    lone = Phase(0.0, [Sample(0.0, 1.0, 0.125, 0.0, (0.0625,), decode_s=0.25)] * 3, [])
    assert trial.pacing(lone, 0.0, in_flight, ahead=ahead) == pace


@pytest.mark.parametrize(("stage_s", "transfer_s"), [(0.02, 1e-6), (0.0, 10.0)], ids=["stage", "link"])
def test_a_trial_keeps_as_many_in_flight_as_its_pace_asks_for(
    server: TcpServer, stage_s: float, transfer_s: float
) -> None:
    report = run(connected(server, 1, stage_s), data(), transfer_s=transfer_s)
    slowest_s = max(report.edge_s, *report.stages_s, transfer_s)
    assert report.in_flight == paces.in_flight(report.latency_s, slowest_s)


def test_how_many_are_in_flight_may_be_asked_for(server: TcpServer) -> None:
    assert run(connected(server, 1), data(), in_flight=1).in_flight == 1
    assert run(connected(server, 1), data(), in_flight=7).in_flight == 7


def test_what_the_stages_took_comes_from_the_requests(server: TcpServer) -> None:
    report = run(connected(server, 1, 0.02), data())
    one_by_one, many = report.requests.latency, report.requests.throughput
    of_stage = [[stage_s for (stage_s,) in phase.stages_s] for phase in (one_by_one, many)]
    assert report.stages_s == (statistics.median(of_stage[0]),)
    assert min(itertools.chain(*of_stage)) >= 0.02
    sums = [a + sum(b) for a, b in zip(one_by_one.edge_s, one_by_one.stages_s, strict=True)]
    assert report.work_s == statistics.median(sums)


def test_a_data_file_gives_each_input_all_its_answers() -> None:
    tensors = {
        "input0": torch.arange(6, dtype=torch.uint8).reshape(3, 2, 1, 1, 1),
        "reference1": torch.arange(3.0).reshape(3, 1) + 10,
        "reference0": torch.arange(3.0).reshape(3, 1),
    }
    found = Data.of(tensors)
    assert [it.flatten().tolist() for (it,) in found.inputs] == [[0, 1], [2, 3], [4, 5]]
    assert found.inputs[0][0].dtype == torch.uint8
    assert [[int(it) for it in answers] for answers in found.references] == [[0, 10], [1, 11], [2, 12]]


class Decodes:
    """A stage that does nothing but decode."""

    def __init__(self, codec: Codec, takes: Layout) -> None:
        self.fingerprint = bytes(8)
        self.takes: Layout = codec.encoded(takes)
        self._coding = Coding(codec, takes)

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        return self._coding.decode(tensors), 0.0


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("text", ["fp16", "int8", "uint4:channel", "zstd", "lz4", "int8+zstd"])
def test_a_trial_through_a_codec_is_held_to_the_same_in_one_process(
    server: TcpServer, text: str, connections: int
) -> None:
    codec, inputs = parse(text), tuple(torch.randn(2, 90) for _ in range(3))
    layouts = layout(inputs[:1])
    coded = tuple(codec.decode(codec.encode((one,)), layouts) for one in inputs)
    server.serve(Decodes(codec, layouts))
    client = TcpClient("127.0.0.1", server.port, "t", str(connections))
    client.open(bytes(8), layouts)
    whole = tuple((one,) for one in inputs)
    known = Data(whole, whole, coded={codec.coded_name((0,)): coded})
    try:
        report = run(client, known, codec=codec)
        other = run(
            client, Data(whole, whole, coded={codec.coded_name((0,)): coded[1:] + coded[:1]}), codec=codec
        )
    finally:
        client.close()
    assert report.max_abs_error == 0.0
    assert report.payload_bytes == 720
    sizes = [sum(each.nbytes for each in codec.encode((one,))) for one in inputs]
    latency = len(report.requests.latency.started_s)
    assert report.coded.wire_bytes[:latency] == [sizes[number % 3] for number in range(latency)]
    assert len(report.coded.encode_s) == latency + len(report.requests.throughput.started_s)
    assert min(report.coded.encode_s) > 0
    assert report.work_s >= statistics.median(report.coded.encode_s[:latency])
    if codec.lossless:
        assert not isinstance(other, WrongOutput), "the whole model is the reference"
    else:
        assert isinstance(other, WrongOutput)


def test_results_that_were_never_encoded_are_wrong_through_a_codec(server: TcpServer) -> None:
    codec, inputs = parse("uint4"), (torch.randn(2, 90),)
    layouts = layout(inputs)
    coded = (codec.decode(codec.encode(inputs), layouts),)
    server.serve(Echo(layouts))
    client = TcpClient("127.0.0.1", server.port, "t")
    client.open(bytes(8), layouts)
    known = Data((inputs,), (inputs,), coded={"uint4@0": coded})
    try:
        # The edge has no codec either: both ends left it out.
        request = run(client, Data((inputs,), coded), codec=None)
    finally:
        client.close()
    assert isinstance(request, WrongOutput)
    assert known.tolerance(known.expected(codec, (0,))) < request.max_abs_error


class Echo:
    def __init__(self, takes: Layout) -> None:
        self.fingerprint = bytes(8)
        self.takes = takes

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        return tensors, 0.0


def test_a_reference_that_was_not_made_is_refused() -> None:
    with pytest.raises(Refused, match="no reference for int8@7"):
        data().expected(parse("int8+zstd"), (7,))


def test_results_of_a_codec_are_found_in_a_data_file() -> None:
    tensors = {"input0": torch.zeros(2, 1, 3), "reference0": torch.ones(2, 1, 4)}
    coded = {"int8@3+7.reference0": torch.full((2, 1, 4), 5.0)}
    found = Data.of(tensors | coded)
    assert [one.tolist() for (one,) in found.expected(parse("int8"), (3, 7))] == [[[5.0] * 4]] * 2
    assert len(found.references) == 2


def test_what_a_codec_makes_infinite_is_never_right() -> None:
    inputs = (torch.tensor([[1e6, 1.0]]),)
    codec = parse("fp16")
    coded = (codec.decode(codec.encode(inputs), layout(inputs)),)
    known = Data((inputs,), (inputs,), coded={"fp16@0": coded})
    assert known.tolerance(known.expected(codec, (0,))) == proof.TOLERANCE
    assert known.changed(known.expected(codec, (0,))) == float("inf")
