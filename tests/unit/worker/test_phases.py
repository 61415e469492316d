"""The measuring loops over a real connection on loopback."""

from __future__ import annotations

import itertools
import math
import queue
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from pareto.protocol.errors import BackendError
from pareto.remote.backends.base import Layout, Reply, Tensors, layout
from pareto.remote.backends.tcp import TcpClient, TcpServer
from pareto.remote.worker import phases
from pareto.remote.worker.phases import Length, NoLink, Phase, Sample

INPUTS = [(torch.full((1, 8), float(i)),) for i in range(4)]
NAME = bytes(8)


class Sleeping:
    """A stage that says how long its work took, and needs no time for it.

    begins: called with the number of each request, before its work.
    """

    def __init__(
        self, takes: Layout, seconds: float = 0.0, begins: Callable[[int], object] = lambda _: None
    ) -> None:
        self.fingerprint = NAME
        self.takes = takes
        self._seconds = seconds
        self._begins = begins
        self._numbers = itertools.count()

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        self._begins(next(self._numbers))
        return (tensors[0] + 1, tensors[0][:, 0].long()), self._seconds


@pytest.fixture
def server() -> Iterator[TcpServer]:
    server = TcpServer("127.0.0.1", "t")
    yield server
    server.close()


def connect(
    server: TcpServer, seconds: float = 0.0, begins: Callable[[int], object] = lambda _: None
) -> TcpClient:
    takes = layout(INPUTS[0])
    server.serve(Sleeping(takes, seconds, begins))
    client = TcpClient("127.0.0.1", server.port, "t")
    client.open(NAME, (*takes, ("int64", (1,))))
    return client


def unchanged(tensors: Tensors) -> Tensors:
    return tensors


class Clock:
    """Stands still but for what the edge computes, and what comes from afar."""

    def __init__(self) -> None:
        self.now_s = 128.0

    def perf_counter(self) -> float:
        return self.now_s

    def taking(self, seconds: float) -> phases.Compute:
        def compute(tensors: Tensors) -> Tensors:
            self.now_s += seconds
            return tensors

        return compute


class Afar(NoLink):
    """Each reply is there a round trip after its request, however many are under way."""

    def __init__(self, clock: Clock, round_trip_s: float) -> None:
        super().__init__()
        self._clock = clock
        self._round_trip_s = round_trip_s
        self._due: queue.SimpleQueue[float] = queue.SimpleQueue()

    def send(self, request_id: int, tensors: Tensors) -> float:
        self._due.put(self._clock.now_s + self._round_trip_s)
        return super().send(request_id, tensors)

    def receive(self) -> Reply:
        self._clock.now_s = max(self._clock.now_s, self._due.get())
        return super().receive()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(phases, "time", clock)
    return clock


def test_latency_lasts_until_as_many_requests_as_asked_are_there(server: TcpServer) -> None:
    client = connect(server)
    assert len(phases.latency(client, unchanged, INPUTS, Length(7, 0.0)).samples) == 7
    assert phases.latency(client, unchanged, INPUTS, Length(0, 0.0)).samples == []


@pytest.mark.parametrize(("requests", "made"), [(1, 6), (9, 9)])
def test_latency_lasts_until_both_requests_and_seconds_are_there(
    clock: Clock, requests: int, made: int
) -> None:
    phase = phases.latency(NoLink(), clock.taking(1 / 64), INPUTS, Length(requests, 6 / 64))
    assert len(phase.samples) == made


def test_latency_covers_every_part_and_one_request_is_in_flight(server: TcpServer, clock: Clock) -> None:
    client = connect(server, 1 / 32, begins=lambda _: clock.taking(1 / 32)(()))
    phase = phases.latency(client, clock.taking(1 / 64), INPUTS, Length(5, 0.0))
    assert [(s.edge_s, s.stages_s, s.latency_s) for s in phase.samples] == [(1 / 64, (1 / 32,), 3 / 64)] * 5
    assert all(a.finished_s <= b.started_s for a, b in itertools.pairwise(phase.samples))


def test_results_belong_to_their_inputs(server: TcpServer) -> None:
    client = connect(server)
    for phase in (
        phases.latency(client, unchanged, INPUTS, Length(9, 0.0)),
        phases.throughput(client, unchanged, INPUTS, Length(30, 0.0), 1.0, depth=5),
    ):
        assert len(phase.samples) > len(INPUTS)
        assert sorted(which for which, _ in phase.outputs) == list(range(len(INPUTS)))  # equal ones once
        for which, (first, second) in phase.outputs:
            assert torch.equal(first, INPUTS[which][0] + 1)
            assert second.tolist() == [which]


class Straying(Sleeping):
    """Every third result is another one."""

    def __init__(self, takes: Layout) -> None:
        super().__init__(takes)
        self._ran = 0

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        self._ran += 1
        return (tensors[0] + (self._ran % 3 == 0),), 0.0


def test_no_result_that_differs_is_passed_over(server: TcpServer) -> None:
    server.serve(Straying(layout(INPUTS[0])))
    client = TcpClient("127.0.0.1", server.port, "t")
    client.open(NAME, layout(INPUTS[0]))
    phase = phases.latency(client, unchanged, INPUTS[:1], Length(9, 0.0))
    assert [int(result[0, 0]) for _, (result,) in phase.outputs] == [0, 1, 0, 1, 0, 1]


def test_stages_overlap_in_the_throughput_phase(server: TcpServer) -> None:
    """The server is at each request but the last while the edge computes the next one."""
    made = 8 + 1 + 4  # steady, the first, and those that drain the steps
    both = threading.Barrier(2, timeout=60)
    numbers = itertools.count()

    def compute(tensors: Tensors) -> Tensors:
        if next(numbers) > 0:
            both.wait()
        return tensors

    client = connect(server, begins=lambda number: number < made - 1 and both.wait())
    phase = phases.throughput(client, compute, INPUTS, Length(8, 0.0), 1.0, depth=4)
    assert len(phase.samples) == made


def test_never_more_in_flight_than_asked(server: TcpServer) -> None:
    third = threading.Event()
    numbers = itertools.count()

    def compute(tensors: Tensors) -> Tensors:
        if next(numbers) == 2:
            third.set()
        return tensors

    client = connect(server, begins=lambda _: third.wait(60))
    phase = phases.throughput(client, compute, INPUTS, Length(40, 0.0), 0.01, depth=3)
    events = sorted([(s.started_s, 1) for s in phase.samples] + [(s.finished_s, -1) for s in phase.samples])
    flying = most = 0
    for _, change in events:
        flying += change
        most = max(most, flying)
    assert most == 3


@pytest.mark.parametrize(("each_s", "made"), [(1 / 16, 9), (1.0, 5)])
def test_throughput_is_cut_when_it_takes_far_longer_than_foreseen(
    clock: Clock, each_s: float, made: int
) -> None:
    """After half a second, but not before there are as many as asked."""
    phase = phases.throughput(NoLink(), clock.taking(each_s), INPUTS, Length(2, 1 / 8), 1e-4, depth=2)
    assert len(phase.samples) == made  # 1250 were foreseen


class Failing:
    """A client whose server goes away after some requests."""

    def __init__(self, after: int) -> None:
        self._left = after

    def open(self, fingerprint: bytes, takes: Layout) -> None: ...

    def send(self, request_id: int, tensors: Tensors) -> float:
        return 0.0

    def receive(self) -> Reply:
        self._left -= 1
        if self._left < 0:
            raise BackendError("gone")
        return Reply(0 if self._left else 99, (torch.zeros(1),), (), 0.0)

    def warm(self, nbytes: int) -> None: ...

    def close(self) -> None: ...


@pytest.mark.timeout(60)
def test_a_lost_server_ends_the_phase_with_its_error() -> None:
    with pytest.raises(BackendError, match="gone"):
        phases.throughput(Failing(0), unchanged, INPUTS, Length(100, 0.0), 1.0, depth=3)
    with pytest.raises(BackendError, match="gone"):
        phases.latency(Failing(0), unchanged, INPUTS, Length(3, 0.0))


def test_a_reply_to_another_request_is_noticed(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(BackendError) as noticed:
        phases.latency(Failing(1), unchanged, INPUTS, Length(3, 0.0))
    assert str(noticed.value) == snapshot


def test_without_a_link_the_edge_alone_is_measured(clock: Clock) -> None:
    alone = phases.latency(NoLink(), clock.taking(1 / 64), INPUTS, Length(3, 0.0))
    assert [(s.stages_s, s.edge_s, s.latency_s) for s in alone.samples] == [((), 1 / 64, 1 / 64)] * 3
    many = phases.throughput(NoLink(), clock.taking(1 / 64), INPUTS, Length(10, 0.0), 0.01, depth=1)
    assert phases.rate(many, 1) == 64
    assert len(many.samples) == 10 + 1 + 1


def test_what_decodes_an_input_is_apart_from_the_stage_and_keeps_the_edge_busy(clock: Clock) -> None:
    def decode(tensors: Tensors) -> Tensors:
        clock.taking(1 / 32)(tensors)
        return (tensors[0] + 1,)

    alone = phases.latency(NoLink(), clock.taking(1 / 64), INPUTS, Length(3, 0.0), decode=decode)
    many = phases.throughput(
        NoLink(), clock.taking(1 / 64), INPUTS, Length(10, 0.0), 0.01, depth=1, decode=decode
    )
    for sample in (*alone.samples, *many.samples):
        assert (sample.decode_s, sample.edge_s, sample.busy_s) == (1 / 32, 1 / 64, 3 / 64)
    assert {sample.latency_s for sample in alone.samples} == {3 / 64}
    assert phases.rate(many, 1) == pytest.approx(64 / 3)
    for which, (output,) in (*alone.outputs, *many.outputs):
        assert torch.equal(output, INPUTS[which][0] + 1)


AHEAD = 2


def test_inputs_are_decoded_ahead_while_the_edge_computes_but_no_further_than_asked() -> None:
    """Each request but the last ones is computed only when as many behind it have begun to be decoded."""
    made = 2 * math.ceil(5 / 2) + 1 + 2 + AHEAD
    decoding = [threading.Event() for _ in range(made)]
    computed, overlapped, ahead = itertools.count(), list[bool](), list[int]()

    def decode(tensors: Tensors) -> Tensors:
        number = sum(event.is_set() for event in decoding)
        ahead.append(number + 1 - len(overlapped))
        decoding[number].set()
        return (tensors[0] + 1,)

    def compute(tensors: Tensors) -> Tensors:
        overlapped.append(decoding[min(next(computed) + AHEAD, made - 1)].wait(30))
        return tensors

    phase = phases.throughput(
        NoLink(), compute, INPUTS, Length(5, 0.0), 1.0, depth=2, decode=decode, prefetch=AHEAD
    )
    assert overlapped == [True] * made
    assert max(ahead) <= AHEAD + 1  # the one that is computed
    assert len(phases.steady(phase)) >= 5 + 1
    assert len(phases.loaded(phase)) == made - 2 - AHEAD
    for sample in phase.samples:
        parts_s = sample.decode_s + sample.waited_s + sample.edge_s + sample.encode_s
        assert sample.waited_s >= -1e-9 and parts_s <= sample.latency_s + 1e-9
    for which, (output,) in phase.outputs:
        assert torch.equal(output, INPUTS[which][0] + 1)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("where", ["decode", "compute", "send"])
def test_a_fault_ends_the_phase_and_the_thread_that_decodes_ahead(where: str) -> None:
    numbers = itertools.count()

    def fault(tensors: Tensors) -> Tensors:
        if next(numbers) == 3:
            raise BackendError("gone")
        return tensors

    class Sending(NoLink):
        def send(self, request_id: int, tensors: Tensors) -> float:
            return super().send(request_id, fault(tensors) if where == "send" else tensors)

    before = set(threading.enumerate())
    with pytest.raises(BackendError, match="gone"):
        phases.throughput(
            Sending(),
            fault if where == "compute" else unchanged,
            INPUTS,
            Length(50, 0.0),
            1.0,
            depth=2,
            decode=fault if where == "decode" else unchanged,
            prefetch=AHEAD,
        )
    assert set(threading.enumerate()) <= before


def test_an_edge_that_decodes_ahead_is_as_busy_as_the_busier_of_its_steps() -> None:
    """From 1.0 to 3.0 it decodes for 0.75 s, and computes and encodes for 1 s, part of it at the same time."""
    samples = [
        Sample(0.0, 1.0, 0.5, 0.0, (), 0.25, decode_s=0.25),
        Sample(0.5, 2.0, 0.25, 0.0, (), 0.25, decode_s=0.75, waited_s=0.25),
        Sample(1.5, 3.0, 0.25, 0.0, (), 0.25, decode_s=0.5, waited_s=0.5),
        Sample(3.0, 4.0, 0.5, 0.0, (), 0.25, decode_s=0.25),
    ]
    phase = Phase(0.0, samples, [], prefetch=AHEAD)
    assert [runs[1] for runs in phases.edge_runs(phase)] == [(0.5, 1.25), (1.5, 2.0)]
    assert phases.busy_s(phase) == 1.0


def test_rate_leaves_fill_and_drain_out_and_counts_images() -> None:
    """Three in flight: when the last one began, the two before it were still on their way."""
    began_done = [(0.0, 1.0), (0.1, 1.1), (0.2, 1.2), (1.0, 1.3), (1.1, 1.31), (1.3, 1.32)]
    phase = Phase(0.0, [Sample(began, done, 0.0, 0.0, ()) for began, done in began_done], [])
    assert phases.rate(phase, 1) == pytest.approx(10.0)
    assert phases.rate(phase, 8) == pytest.approx(80.0)


@pytest.mark.parametrize("depth", [2, 5])
def test_what_comes_in_bursts_is_counted_by_whole_ones(clock: Clock, depth: int) -> None:
    """A link that too few requests do not fill: `depth` of them a round trip, and no more."""
    client = Afar(clock, round_trip_s=1 / 16)
    many = phases.throughput(client, unchanged, INPUTS, Length(depth + 1, 0.0), 0.01, depth)
    assert phases.rate(many, 1) <= depth * 16
    assert phases.window(many)[1] % depth == 0


@pytest.mark.parametrize("requests", range(8, 17))
def test_a_burst_that_is_cut_short_does_not_count(requests: int) -> None:
    """Three a round trip of a second, within a hundredth each: of a phase that was cut in the middle, too."""
    done = [1 + number // 3 + number % 3 / 100 for number in range(requests)]
    began = [0.0, 0.0, 0.0, *done]
    samples = [Sample(*times, 0.0, 0.0, ()) for times in zip(began, done, strict=False)]
    phase = Phase(0.0, samples, [], depth=3)
    assert phases.rate(phase, 1) == pytest.approx(3.0)
    assert phases.window(phase)[1] == (requests - 4) // 3 * 3


@pytest.mark.parametrize("depth", [1, 2, 5])
def test_as_many_requests_as_asked_are_in_steady_state(server: TcpServer, depth: int) -> None:
    many = phases.throughput(connect(server), unchanged, INPUTS, Length(6, 0.0), 0.01, depth)
    assert len(many.samples) == depth * math.ceil(6 / depth) + 1 + depth
    counted = phases.steady(many)
    assert len(counted) >= 6 + 1
    assert all(sample.finished_s <= many.samples[-1].started_s for sample in counted)


def test_one_after_the_other_counts_what_the_requests_took() -> None:
    samples = [Sample(0.5, 1.0, 0.0, 0.0, ()), Sample(1.5, 2.5, 0.0, 0.0, ())]
    assert phases.sequential_rate(samples, 9) == pytest.approx(12.0)


def test_the_window_of_a_phase_is_that_of_its_rate_on_the_hosts_clock() -> None:
    samples = [Sample(began, done, 0.0, 0.0, ()) for began, done in ((0, 1.0), (0.5, 1.25), (1.25, 1.5))]
    assert phases.window(Phase(100.0, samples, [])) == ((101.0, 101.25), 1)


def test_the_latency_under_load_is_that_of_the_requests_that_began_among_others() -> None:
    """The first two fill the steps."""
    began_done = [(0.0, 1.0), (0.1, 1.1), (1.0, 1.25), (1.1, 1.3), (1.25, 1.35)]
    phase = Phase(0.0, [Sample(began, done, 0.0, 0.0, ()) for began, done in began_done], [], depth=2)
    assert [sample.latency_s for sample in phases.loaded(phase)] == pytest.approx([0.25, 0.2, 0.1])


def test_no_95th_percentile_of_too_few_requests() -> None:
    samples = [Sample(0.0, 0.4 + i / 1000, 0.0, 0.0, ()) for i in range(200)]
    assert phases.p95_s(samples) == pytest.approx(0.4 + 0.190)
    assert phases.p95_s(samples[:130]) is not None
    assert phases.p95_s(samples[:129]) is None


def test_busy_is_what_the_edge_computed_within_the_window(clock: Clock) -> None:
    """From 1.0 to 3.0: half of the first run, the second, and nothing of the third and of the last."""
    runs = [(0.5, 1.0), (1.5, 0.25), (3.0, 0.5), (3.5, 0.5)]
    done = [1.0, 2.0, 3.0, 4.0]
    samples = [
        Sample(started, ended, edge_s, 0.0, ()) for (started, edge_s), ended in zip(runs, done, strict=True)
    ]
    assert phases.busy_s(Phase(100.0, samples, [])) == 0.5 + 0.25
    alone = phases.throughput(NoLink(), clock.taking(1 / 64), INPUTS, Length(10, 0.0), 0.01, depth=1)
    assert phases.window(alone) == ((128 + 1 / 64, 128 + 11 / 64), 10)
    assert phases.busy_s(alone) == 10 / 64


def test_a_payload_is_encoded_while_the_one_before_it_is_sent() -> None:
    encoded = [threading.Event() for _ in range(4)]
    overlapped = []

    class Sending(NoLink):
        def send(self, request_id: int, tensors: Tensors) -> float:
            if request_id + 1 < len(encoded):
                overlapped.append(encoded[request_id + 1].wait(30))
            return super().send(request_id, tensors)

    numbers = itertools.count()

    def encode(tensors: Tensors) -> Tensors:
        if (number := next(numbers)) < len(encoded):
            encoded[number].set()
        return tensors

    phases.throughput(Sending(), unchanged, INPUTS, Length(5, 0.0), 1e-3, depth=2, encode=encode)
    assert overlapped == [True] * 3
