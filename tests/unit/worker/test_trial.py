"""What a trial reports, and that it refuses to time what is not the whole model; payloads by themselves, likewise over
real sockets."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from pareto.partitions import proof
from pareto.partitions.stage import Stage
from pareto.protocol import pace as paces
from pareto.protocol.jsonlines import Refused
from pareto.protocol.messages import Connect, Listen, Split
from pareto.protocol.profile_messages import Expect, GetTaken, TimePayloads
from pareto.protocol.trial_messages import Length, Progress, RunTrial, WrongOutput
from pareto.remote.backends.base import Client, Layout, Tensors, layout
from pareto.remote.backends.tcp import TcpClient, TcpServer
from pareto.remote.codecs.registry import Codec, parse
from pareto.remote.worker import device, trial
from pareto.remote.worker.payloads import Answering, Near, payload
from pareto.remote.worker.phases import Phase, Sample
from pareto.remote.worker.served import Coding
from pareto.remote.worker.trial import Data
from pareto.remote.worker.worker import Worker
from tests.unit.backends.builders import HERE, TOKEN, Work, Works, opened, refusal

LOGITS = [torch.eye(5)[[0, 1]], torch.eye(5)[[2, 3]]]
"""Two inputs of two images; the edge's stage passes them on, and the whole model does nothing else."""
ALONE = tuple((logits,) for logits in LOGITS)
TAKES = layout(LOGITS[:1])


@pytest.fixture
def server() -> Iterator[TcpServer]:
    with closing(TcpServer(HERE, TOKEN)) as server:
        yield server


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
    length, split = Length(requests, 0.0), Split((0,), 2, "tcp")
    paced: dict[str, Any] = {
        "transfer_s": transfer_s,
        "in_flight": in_flight,
        "latency": length,
        "throughput": length,
    }
    request = RunTrial(split=split, warmup_requests=2, interface="lo", peer=HERE, **paced)
    return trial.run(client, device.Device(), Stage(None), data, request, codec, so_far=so_far)


def connected(server: TcpServer, heads: int = 1, seconds: float = 0.0) -> Client:
    """To a stage with several results that says it took `seconds`."""
    work: Work = lambda tensors: tuple(tensors[0] * (head + 1) for head in range(heads))  # noqa: E731
    return opened(server, Works(TAKES, work, seconds), TAKES * heads)


def test_every_result_is_compared_and_nothing_is_timed_where_any_is_wrong(
    server: TcpServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    references = tuple((logits, 2 * logits, 3 * logits) for logits in LOGITS)
    report = run(connected(server, 3), Data(ALONE, references))
    assert report.result_bytes == 3 * report.payload_bytes == 3 * LOGITS[0].nbytes
    assert report.max_abs_error == 0.0
    for wrong in (1, 2):
        other = tuple(tuple(each + (head == wrong) for head, each in enumerate(of)) for of in references)
        report = run(connected(server, 3), Data(ALONE, other))
        assert isinstance(report, WrongOutput)
        assert report.max_abs_error == 1 / (wrong + 2), "of the largest value of that result"
    # Only a long trial reports how far it is.
    told: list[Progress] = []
    run(connected(server), Data(ALONE, ALONE), so_far=told.append)
    assert told == []
    monkeypatch.setattr(trial, "WATCHED_S", 0.0)
    run(connected(server), Data(ALONE, ALONE), so_far=told.append)
    phases = ("warming up", "latency", "throughput")
    assert [(each.phase, each.requests) for each in told] == [(phase, 0) for phase in phases]
    told.clear()
    monkeypatch.setattr(trial, "PROGRESS_S", 0.0)
    run(connected(server), Data(ALONE, ALONE), requests=3, so_far=told.append)
    lone, many = ([each.requests for each in told if each.phase == phase] for phase in phases[1:])
    assert (lone, many) == ([0, 1, 2], [*range(len(many))])


def test_the_slowest_of_all_steps_sets_the_pace() -> None:
    def pacing(stage_s: float, transfer_s: float, in_flight: int | None) -> tuple[int, float]:
        lone = Phase(0.0, [Sample(0.0, 1.0, 0.125, 0.0, (0.0625, stage_s))] * 3, [])
        return trial.pacing(lone, transfer_s, in_flight)

    assert pacing(0.25, 0.0, None) == (5, 0.25)
    assert pacing(0.0, 0.0, None) == (10, 0.125), "the edge's"
    assert [pacing(0.25, 0.5, asked) for asked in (None, 1, 9)] == [(3, 0.5), (1, 1.0), (9, 0.5)]
    lone = Phase(0.0, [Sample(0.0, 1.0, 0.125, 0.0, (0.0625,), decode_s=0.25)] * 3, [])
    for ahead, alone, several in ((False, (1, 1.0), (4, 0.375)), (True, (1, 0.75), (4, 0.25))):
        # What is decoded ahead is a step of its own.
        assert trial.pacing(lone, 0.0, 1, ahead=ahead) == alone
        assert trial.pacing(lone, 0.0, None, ahead=ahead) == several


@pytest.mark.parametrize(("stage_s", "transfer_s"), [(0.02, 1e-6), (0.0, 10.0)], ids=["stage", "link"])
def test_a_trial_keeps_as_many_in_flight(server: TcpServer, stage_s: float, transfer_s: float) -> None:
    client = connected(server, 1, stage_s)
    report = run(client, Data(ALONE, ALONE), transfer_s=transfer_s)
    slowest_s = max(report.edge_s, *report.stages_s, transfer_s)
    assert report.in_flight == paces.in_flight(report.latency_s, slowest_s)
    one_by_one, many = report.requests.latency, report.requests.throughput
    of_stage = [seconds for (seconds,) in one_by_one.stages_s]
    assert report.stages_s == (statistics.median(of_stage),)
    assert {*of_stage, *itertools.chain(*many.stages_s)} == {stage_s}, "as the requests tell"
    sums = [a + sum(b) for a, b in zip(one_by_one.edge_s, one_by_one.stages_s, strict=True)]
    assert report.work_s == statistics.median(sums)
    for asked in (1, 7):
        assert run(client, Data(ALONE, ALONE), in_flight=asked).in_flight == asked


def test_a_data_file_gives_each_input_all_its_answers_and_those_through_a_codec() -> None:
    tensors = {
        "input0": torch.arange(6, dtype=torch.uint8).reshape(3, 2, 1, 1, 1),
        "reference1": torch.arange(3.0).reshape(3, 1) + 10,
        "reference0": torch.arange(3.0).reshape(3, 1),
        "int8@3+7.reference0": torch.full((3, 1, 4), 5.0),
    }
    found = Data.of(tensors)
    assert [it.flatten().tolist() for (it,) in found.inputs] == [[0, 1], [2, 3], [4, 5]]
    assert found.inputs[0][0].dtype == torch.uint8
    assert [[int(it) for it in answers] for answers in found.references] == [[0, 10], [1, 11], [2, 12]]
    assert [one.tolist() for (one,) in found.expected(parse("int8"), (3, 7))] == [[[5.0] * 4]] * 3
    with pytest.raises(Refused, match="no reference for int8@7"):
        found.expected(parse("int8+zstd"), (7,))


def coded_by(codec: Codec, inputs: tuple[torch.Tensor, ...], layouts: Layout) -> list[Tensors]:
    return [codec.decode(codec.encode((one,)), layouts) for one in inputs]


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("text", ["fp16", "int8", "uint4:channel", "zstd", "lz4", "int8+zstd"])
def test_a_trial_by_a_codec_equals_one_process(server: TcpServer, text: str, connections: int) -> None:
    codec, inputs = parse(text), tuple(torch.randn(2, 90) for _ in range(3))
    layouts = layout(inputs[:1])
    coded, whole = coded_by(codec, inputs, layouts), tuple((one,) for one in inputs)
    decodes = Works(codec.encoded(layouts), Coding(codec, layouts).decode, 0.0)
    with closing(opened(server, decodes, layouts, connections)) as client:
        report, other = (
            run(client, Data(whole, whole, coded={codec.coded_name((0,)): known}), codec=codec)
            for known in (coded, coded[1:] + coded[:1])
        )
    assert (report.max_abs_error, report.payload_bytes) == (0.0, 720)
    sizes = [sum(each.nbytes for each in codec.encode((one,))) for one in inputs]
    latency = len(report.requests.latency.started_s)
    assert report.coded.wire_bytes[:latency] == [sizes[number % 3] for number in range(latency)]
    assert len(report.coded.encode_s) == latency + len(report.requests.throughput.started_s)
    assert min(report.coded.encode_s) > 0
    assert report.work_s >= statistics.median(report.coded.encode_s[:latency])
    assert isinstance(other, WrongOutput) == (not codec.lossless), "else the whole model is the reference"


def test_what_was_never_encoded_or_becomes_infinite_is_wrong_through_a_codec(server: TcpServer) -> None:
    codec, inputs = parse("uint4"), (torch.randn(2, 90),)
    coded = tuple(coded_by(codec, inputs, layout(inputs)))
    known = Data((inputs,), (inputs,), coded={"uint4@0": coded})
    with closing(opened(server, Works(layout(inputs), tuple), layout(inputs))) as client:
        # The edge has no codec either: both ends left it out.
        report = run(client, Data((inputs,), coded), codec=None)
    assert isinstance(report, WrongOutput)
    assert known.tolerance(known.expected(codec, (0,))) < report.max_abs_error
    codec, inputs = parse("fp16"), (torch.tensor([[1e6, 1.0]]),)
    known = Data((inputs,), (inputs,), coded={"fp16@0": tuple(coded_by(codec, inputs, layout(inputs)))})
    assert known.tolerance(known.expected(codec, (0,))) == proof.TOLERANCE
    assert known.changed(known.expected(codec, (0,))) == float("inf")


@pytest.fixture
def near(server: TcpServer) -> Iterator[Near]:
    with closing(TcpClient(HERE, server.port, TOKEN)) as client:
        yield Near(client)


def test_payloads_of_every_size_arrive(near: Near, server: TcpServer, snapshot: SnapshotAssertion) -> None:
    for nbytes in (4, 4_000, 3_000_000):
        near.begin(payload(nbytes))
        server.serve(stage := Answering(nbytes, kept=True))
        seconds = near.trips(3)
        assert len(seconds) == 3
        assert min(seconds) > 0
        count, last = stage.taken
        assert count == 3 and last is not None and torch.equal(last, payload(nbytes))
    near.begin(payload(8))
    assert refusal(near.trips, 1) == snapshot(name="something else is expected")


@pytest.mark.parametrize("in_flight", [1, 4])
@pytest.mark.parametrize("count", [1, 3, 9])
def test_a_stream_ends_when_all_is_there(near: Near, server: TcpServer, count: int, in_flight: int) -> None:
    near.begin(payload(200_000))
    server.serve(stage := Answering(200_000))
    near.stream(count, in_flight)
    assert stage.taken == (count, None)
    server.serve(stage := Answering(200_000))  # nothing of the stream is left over
    near.trips(1)
    assert stage.taken[0] == 1


def test_two_workers_time_payloads_between_them() -> None:
    """By whatever backends, which may have a server in common, and again after the far end served something else."""
    near, far = (Worker(device.named("cpu")) for _ in range(2))
    refusal(far.payloads.taken, GetTaken(), by=Refused)
    near.connect(Connect(HERE, "t", far.listen(Listen(HERE, "t")), ["tcp", "tcp:2"]))
    for backend, nbytes, in_flight in (
        ("tcp", 4_000, None),
        ("tcp:2", 4_000, None),
        ("tcp", 4_000, None),
        ("tcp", 300_000, None),
        ("tcp", 300_000, 4),
    ):
        far.payloads.expect(Expect(backend, nbytes, 5, kept=True))
        report = near.payloads.time(TimePayloads(backend, nbytes, 5, "lo", in_flight))
        taken = far.payloads.taken(GetTaken())
        assert (taken.count, taken.same, len(report.seconds)) == (5, True, 1 if in_flight else 5)
        assert report.sent_bytes >= 5 * nbytes
        far._servers["tcp"].serve(Answering(8))
