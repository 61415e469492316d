"""The measuring loops, over a real connection on loopback or by a clock of the test's own; and what a stage takes by
itself, also while something else wants its core. And the load phase: what arrives waits, is served in order, or is
dropped; and it always ends."""

from __future__ import annotations

import functools
import itertools
import math
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from pareto.protocol.errors import BackendError
from pareto.protocol.trial_messages import Arrivals
from pareto.remote.backends.base import NoLink, Reply, Tensors, layout
from pareto.remote.backends.tcp import TcpClient, TcpServer
from pareto.remote.worker import pace, phases, served
from pareto.remote.worker.open_loop import offered
from pareto.remote.worker.phases import Edge, Length, Phase, Sample
from tests.unit.backends.builders import Works, opened, refusal

INPUTS = [(torch.full((1, 8), float(i)),) for i in range(4)]


def connect(
    server: TcpServer, seconds: float = 0.0, begins: Callable[[int], object] = lambda _: None
) -> TcpClient:
    """To a stage that says that its work took so long. begins: called with each request's number, before its work."""
    numbers = itertools.count()

    def work(tensors: Tensors) -> Tensors:
        begins(next(numbers))
        return tensors[0] + 1, tensors[0][:, 0].long()

    takes = layout(INPUTS[0])
    return opened(server, Works(takes, work, seconds), (*takes, ("int64", (1,))))


def unchanged(tensors: Tensors) -> Tensors:
    return tensors


class Clock:
    """In place of `time`, and of what the kernel says that this thread waited: stands still but for what is computed,
    and what comes from afar."""

    def __init__(self) -> None:
        self.now_s, self.waited_s, self.runs = 128.0, 0.0, 0

    def perf_counter(self) -> float:
        return self.now_s

    def taking(self, seconds: float, waits_s: float = 0.0) -> phases.Compute:
        def compute(tensors: Tensors) -> Tensors:
            self.now_s += seconds + waits_s
            self.waited_s += waits_s
            self.runs += 1
            return tensors

        return compute


def phase_of(*began_done: tuple[float, float], at_s: float = 0.0, **fields: Any) -> Phase:
    return Phase(at_s, [Sample(began, done, 0.0, 0.0, ()) for began, done in began_done], [], **fields)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (phases, served):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(served.Waits, "seconds", lambda _: clock.waited_s)
    return clock


@pytest.mark.parametrize(("requests", "made"), [(0, 6), (1, 6), (9, 9)])
def test_latency_lasts_for_both_lengths(server: TcpServer, clock: Clock, requests: int, made: int) -> None:
    phase = phases.latency(Edge(NoLink(), clock.taking(1 / 64), INPUTS), Length(requests, 6 / 64))
    assert len(phase.samples) == made
    phase = phases.latency(Edge(connect(server), unchanged, INPUTS), Length(requests, 0.0))
    assert len(phase.samples) == requests


def test_latency_covers_every_part_and_one_request_is_in_flight(server: TcpServer, clock: Clock) -> None:
    client = connect(server, 1 / 32, begins=lambda _: clock.taking(1 / 32)(()))
    phase = phases.latency(Edge(client, clock.taking(1 / 64), INPUTS), Length(5, 0.0))
    assert [(s.edge_s, s.stages_s, s.latency_s) for s in phase.samples] == [(1 / 64, (1 / 32,), 3 / 64)] * 5
    assert all(a.finished_s <= b.started_s for a, b in itertools.pairwise(phase.samples))


def test_results_belong_to_their_inputs_and_none_that_differs_is_passed_over(server: TcpServer) -> None:
    client = connect(server)
    for phase in (
        phases.latency(Edge(client, unchanged, INPUTS), Length(9, 0.0)),
        phases.throughput(Edge(client, unchanged, INPUTS), Length(30, 0.0), 1.0, depth=5),
    ):
        assert len(phase.samples) > len(INPUTS)
        assert sorted(which for which, _ in phase.outputs) == list(range(len(INPUTS)))  # equal ones once
        for which, (first, second) in phase.outputs:
            assert torch.equal(first, INPUTS[which][0] + 1)
            assert second.tolist() == [which]
    numbers, takes = itertools.count(1), layout(INPUTS[0])
    straying = Works(takes, lambda tensors: (tensors[0] + (next(numbers) % 3 == 0),))
    phase = phases.latency(Edge(opened(server, straying, takes), unchanged, INPUTS[:1]), Length(9, 0.0))
    assert [int(result[0, 0]) for _, (result,) in phase.outputs] == [0, 1, 0, 1, 0, 1]


def test_never_more_in_flight_than_asked(server: TcpServer) -> None:
    third = threading.Event()
    numbers = itertools.count()

    def compute(tensors: Tensors) -> Tensors:
        if next(numbers) == 2:
            third.set()
        return tensors

    client = connect(server, begins=lambda _: third.wait(60))
    phase = phases.throughput(Edge(client, compute, INPUTS), Length(40, 0.0), 0.01, depth=3)
    events = sorted(at for s in phase.samples for at in ((s.started_s, 1), (s.finished_s, -1)))
    assert max(itertools.accumulate(change for _, change in events)) == 3


@pytest.mark.parametrize(("each_s", "made"), [(1 / 16, 9), (1.0, 5)])
def test_throughput_is_cut_when_it_takes_far_too_long(clock: Clock, each_s: float, made: int) -> None:
    """After half a second, but not before there are as many as asked."""
    phase = phases.throughput(Edge(NoLink(), clock.taking(each_s), INPUTS), Length(2, 1 / 8), 1e-4, depth=2)
    assert len(phase.samples) == made  # 1250 were foreseen


@pytest.mark.parametrize("decodes_s", [0.0, 1 / 32])
def test_without_a_link_the_edge_alone_is_measured(clock: Clock, decodes_s: float) -> None:
    def decode(tensors: Tensors) -> Tensors:
        clock.taking(decodes_s)(tensors)
        return (tensors[0] + 1,)

    edge = Edge(NoLink(), clock.taking(1 / 64), INPUTS, decode=decode)
    alone = phases.latency(edge, Length(3, 0.0))
    began_s, busy_s = clock.now_s, 1 / 64 + decodes_s
    many = phases.throughput(edge, Length(10, 0.0), 0.01, depth=1)
    for sample in (*alone.samples, *many.samples):
        assert (sample.decode_s, sample.edge_s, sample.busy_s) == (decodes_s, 1 / 64, busy_s)
    assert [(s.stages_s, s.latency_s) for s in alone.samples] == [((), busy_s)] * 3
    assert phases.rate(many, 1) == pytest.approx(1 / busy_s)
    assert len(many.samples) == 10 + 1 + 1
    assert phases.window(many) == ((began_s + busy_s, began_s + 11 * busy_s), 10)
    assert phases.busy_s(many) == 10 * busy_s
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

    edge = Edge(NoLink(), compute, INPUTS, decode=decode)
    phase = phases.throughput(edge, Length(5, 0.0), 1.0, depth=2, prefetch=AHEAD)
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
@pytest.mark.parametrize("where", ["decode", "compute", "send", "receive"])
def test_a_fault_ends_the_phase_and_the_thread_that_decodes_ahead(where: str) -> None:
    def fails(place: str, given: Any) -> Any:
        if place == where and next(numbers) == 3:
            raise BackendError("gone")
        return given

    class Failing(NoLink):
        def send(self, request_id: int, tensors: Tensors) -> float:
            return super().send(request_id, fails("send", tensors))

        def receive(self) -> Reply:
            return fails("receive", super().receive())

    compute, decode = (functools.partial(fails, place) for place in ("compute", "decode"))
    before = set(threading.enumerate())
    edge = Edge(Failing(), compute, INPUTS, decode=decode)
    throughput = functools.partial(phases.throughput, pace_s=1.0, depth=2, prefetch=AHEAD)
    for phase in (phases.latency, throughput):
        numbers = itertools.count()
        assert refusal(phase, edge, Length(50, 0.0)) == "gone"
    assert set(threading.enumerate()) <= before


def test_a_reply_to_another_request_ends_the_phase() -> None:
    class Mistaken(NoLink):
        def receive(self) -> Reply:
            return Reply(99, (torch.zeros(1),), (), 0.0)

    words = refusal(phases.latency, Edge(Mistaken(), unchanged, INPUTS), Length(3, 0.0))
    assert words == "the reply to request 99 came in place of 0"


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


@pytest.mark.parametrize("requests", range(8, 17))
def test_a_burst_that_is_cut_short_does_not_count(requests: int) -> None:
    """Three a round trip of a second, within a hundredth each: of a phase that was cut in the middle, too."""
    done = [1 + number // 3 + number % 3 / 100 for number in range(requests)]
    began = [0.0, 0.0, 0.0, *done]
    phase = phase_of(*zip(began, done, strict=False), depth=3)
    assert phases.rate(phase, 1) == pytest.approx(3.0)
    assert phases.window(phase)[1] == (requests - 4) // 3 * 3


def test_what_a_phases_requests_say_of_it() -> None:
    """Its rate without fill and drain: when the last of three in flight began, two were still on their way;
    of its window on the host's clock; of latency, once the steps are filled; of the edge's work from 1.0 to 3.0: half
    of the first run, the second, and nothing of the third and of the last."""
    phase = phase_of((0.0, 1.0), (0.1, 1.1), (0.2, 1.2), (1.0, 1.3), (1.1, 1.31), (1.3, 1.32))
    assert [phases.rate(phase, size) for size in (1, 8)] == pytest.approx([10.0, 80.0])
    phase = phase_of((0, 1.0), (0.5, 1.25), (1.25, 1.5), at_s=100.0)
    assert phases.window(phase) == ((101.0, 101.25), 1)
    phase = phase_of((0.0, 1.0), (0.1, 1.1), (1.0, 1.25), (1.1, 1.3), (1.25, 1.35), depth=2)
    assert [sample.latency_s for sample in phases.loaded(phase)] == pytest.approx([0.25, 0.2, 0.1])
    runs = [(0.5, 1.0, 1.0), (1.5, 2.0, 0.25), (3.0, 3.0, 0.5), (3.5, 4.0, 0.5)]
    assert phases.busy_s(Phase(100.0, [Sample(*run, 0.0, ()) for run in runs], [])) == 0.5 + 0.25
    samples = [Sample(0.0, 0.4 + i / 1000, 0.0, 0.0, ()) for i in range(200)]
    assert phases.p95_s(samples) == pytest.approx(0.4 + 0.190)
    assert phases.p95_s(samples[:130]) is not None
    assert phases.p95_s(samples[:129]) is None, "too few"


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

    phases.throughput(Edge(Sending(), unchanged, INPUTS, encode), Length(5, 0.0), 1e-3, depth=2)
    assert overlapped == [True] * 3


@pytest.mark.parametrize(
    ("takes_s", "waits_s", "runs"),
    [
        (pace.BASELINE_S / 8, 0.0, 8),  # quick: until it says something
        (pace.BASELINE_S, 0.0, pace.BASELINE_RUNS),
        (1.1 * pace.BASELINE_MOST_S, 0.0, 1),  # slow: not often
        (pace.BASELINE_S / 8, pace.BASELINE_S / 8, 4),  # another has the core for half of the time
    ],
)
def test_a_baseline_is_time_without_waits(clock: Clock, takes_s: float, waits_s: float, runs: int) -> None:
    run, clock.now_s = clock.taking(takes_s, waits_s), 0.0
    assert served.baseline_s(lambda: run(())) == pytest.approx(takes_s)
    assert clock.runs == runs


def test_a_clock_is_read_where_nothing_was_waited(monkeypatch: pytest.MonkeyPatch, clock: Clock) -> None:
    waited = iter([0.0, 1.0, 1.0])
    monkeypatch.setattr(served.Waits, "seconds", lambda _: next(waited))
    assert served.Waits().clock() == (128.0, 1.0)
    assert next(waited, None) is None


def every(seconds: float, count: int, origin: float = 0.0) -> list[tuple[float, float]]:
    return [(origin + k * seconds, origin + (k + 1) * seconds) for k in range(count)]


def test_the_least_pace_is_that_of_the_best_stretch_and_no_less_than_that_of_the_runs_that_count() -> None:
    slow = every(0.1, 20)
    assert served.steady_s(slow) == pytest.approx(0.1)
    assert served.steady_s(slow + every(0.05, 20, origin=slow[-1][1])) == pytest.approx(0.05)
    # One quick run is no pace: under a CPU quota each fourth run meets a period of its own.
    ends = itertools.accumulate((0.001 if number % 4 == 0 else 0.005 for number in range(400)), initial=0.0)
    assert served.steady_s([*itertools.pairwise(ends)]) == pytest.approx(0.004, rel=0.02)
    least = served.steady_s([(k * 0.1, k * 0.1 + 0.02) for k in range(30)])
    assert least is not None
    assert 0.02 < least <= 0.1, "no throughput is above it"
    assert served.steady_s([]) is served.steady_s(every(0.01, 5)) is None, "too short a time"
    # The pace of as many runs as count is no less than theirs. In a short phase, and where a quick beginning
    # and end are further apart than a stretch is long.
    runs = [*every(0.005, 3), *every(0.015, 3, origin=0.015), *every(0.005, 6, origin=0.06)]
    paces_s = {0: None, 3: pytest.approx(0.005), 12: pytest.approx(0.0075)}
    assert {requests: served.steady_s(runs, requests) for requests in paces_s} == paces_s


def test_what_a_quota_held_back_is_read_from_cgroups(tmp_path: Path) -> None:
    """Of either version."""
    file = tmp_path / "cpu.stat"
    for text, seconds in {
        "nr_periods 61\nnr_throttled 59\nthrottled_time 204375240\n": 0.20437524,
        "usage_usec 9\nnr_throttled 2\nthrottled_usec 1500\n": 0.0015,
        "usage_usec 9\n": None,
        "cut off\nin the middle of": None,
    }.items():
        file.write_text(text)
        assert served.throttled_s(file) == seconds
    assert served.throttled_s(tmp_path / "gone") is served.throttled_s(None) is None


def test_windows_are_of_the_last_runs_and_only_of_as_many_as_there_were() -> None:
    runs = served.Runs()
    for number in range(5):
        runs.note(number, number + 0.5)
    assert runs.trial_window() == (0, 4.5)
    assert runs.steady_s(0) == 0.5
    assert runs.last(4, 3) == [(1, 1.5), (2, 2.5), (3, 3.5)]
    for requests, steady in ((0, 0), (4, 1), (6, 3), (3, 4)):
        assert not runs.last(requests, steady)


def test_every_request_that_arrives_is_served_in_order_with_its_own_result(server: TcpServer) -> None:
    at_s = [place / 200 for place in range(40)]
    found = offered(Edge(connect(server), unchanged, INPUTS), Arrivals(at_s, 1000), depth=3)
    samples = found.phase.samples
    assert [sample.scheduled_s for sample in samples] == at_s
    assert not found.dropped_s and len(found.late_s) == 40
    assert all(late_s >= 0 for late_s in found.late_s)
    assert all(sample.started_s >= at for sample, at in zip(samples, at_s, strict=True))
    assert sorted(which for which, _ in found.phase.outputs) == [0, 1, 2, 3]
    assert all(torch.equal(result, INPUTS[which][0] + 1) for which, (result, _) in found.phase.outputs)


def test_what_finds_the_queue_full_is_dropped(server: TcpServer) -> None:
    """All have arrived when the first is computed: the queue has room for two; a stall before it is one less served."""

    def compute(tensors: Tensors) -> Tensors:
        threading.Event().wait(0.3)
        return tensors

    at_s = [0.0, *(0.1 + place / 1000 for place in range(20))]
    found = offered(Edge(connect(server), compute, INPUTS), Arrivals(at_s, 2), depth=1)
    taken = [sample.scheduled_s for sample in found.phase.samples]
    assert len(taken) in (2, 3) and taken + found.dropped_s == at_s and len(found.late_s) == 21


@pytest.mark.parametrize("where", ["here", "there"])
def test_a_fault_ends_it_though_more_would_arrive(server: TcpServer, where: str) -> None:
    def fails(_: object) -> Tensors:
        raise BackendError("no more")

    client = connect(server, begins=fails) if where == "there" else connect(server)
    with pytest.raises(BackendError):
        edge = Edge(client, fails if where == "here" else unchanged, INPUTS)
        offered(edge, Arrivals([0.0, 0.001, 0.002, 3600.0], 8), depth=2)
    assert not [each for each in threading.enumerate() if each.name.endswith(("(_send)", "(_receive)"))]
