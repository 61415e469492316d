"""The closed phases of a trial, written once against the backend protocol, for the first device. Every time is from
this host's monotonic clock; what the later hosts say are durations on their own."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

import torch

from pareto.protocol.constants import MOST_REQUESTS
from pareto.protocol.messages import Window
from pareto.protocol.trial_messages import Length
from pareto.remote.backends.base import Client, Reply, Tensors, check_order, layout, nbytes
from pareto.remote.worker.pace import in_bursts

Compute = Callable[[Tensors], Tensors]

P95_REQUESTS = 130
"""Samples needed before a 95th percentile may be stated at 99 % confidence."""
OVERTIME = 4.0
"""A throughput phase whose requests take longer than foreseen is cut at this multiple of its length."""


@dataclass(frozen=True)
class Sample:
    """One request. Seconds; `started_s` and `finished_s` count from the start of the phase.

    stages_s: of the later stages with their codecs, in the order of the chain; empty where no other host took part.
    wire_bytes: what the edge sent, with a codec. decode_s: where a request begins with files, until the edge made the
    model's input of them, before `edge_s`. waited_s: where inputs are decoded ahead, until this one was then computed.
    result_s: for decoding the result, where it came encoded. scheduled_s: when a request arrived that did so by itself.
    """

    started_s: float
    finished_s: float
    edge_s: float
    serialize_s: float
    stages_s: tuple[float, ...]
    encode_s: float = 0.0
    wire_bytes: int = 0
    decode_s: float = 0.0
    waited_s: float = 0.0
    result_s: float = 0.0
    scheduled_s: float = 0.0

    @property
    def busy_s(self) -> float:
        """How long the edge's processor worked on the request before it was sent."""
        return self.decode_s + self.edge_s + self.encode_s

    @property
    def latency_s(self) -> float:
        return self.finished_s - self.started_s


def unseen(requests: int) -> None: ...


@dataclass(frozen=True)
class Phase:
    """The requests of a phase. origin_s: when it began, on the clock of `time.monotonic`, on Linux also that of
    `time.perf_counter`. outputs: the number of an input, and its result, unless it equals the input's last one. depth:
    requests that were in flight. prefetch: those that were decoded ahead, at most, beside them."""

    origin_s: float
    samples: list[Sample]
    outputs: list[tuple[int, Tensors]]
    depth: int = 1
    prefetch: int = 0


@dataclass(frozen=True)
class _Taken:
    """The model's input for a request; when the request began, and the seconds that decoding took."""

    tensors: Tensors
    started: float
    decode_s: float


@dataclass(frozen=True)
class Edge:
    """The edge's work for every request, with these inputs in turn. decode: what is done to an input first. encode: to
    a payload before it is sent. Each is None where nothing is."""

    client: Client
    compute: Compute
    inputs: Sequence[Tensors]
    encode: Compute | None = None
    decode: Compute | None = None

    def take(self, number: int) -> _Taken:
        """The beginning of the request of this number."""
        tensors, started = self.inputs[number % len(self.inputs)], time.perf_counter()
        if self.decode is None:
            return _Taken(tensors, started, 0.0)
        return _Taken(self.decode(tensors), started, time.perf_counter() - started)

    def make(self, taken: _Taken, waited_s: float = 0.0) -> tuple[Tensors, Sample]:
        """The tensors to send for a request, and the request so far; it starts on the clock of `time.perf_counter`."""
        payload = self.compute(taken.tensors)
        computed, encode_s, wire_bytes = time.perf_counter(), 0.0, 0
        if self.encode is not None:
            payload = self.encode(payload)
            encode_s, wire_bytes = time.perf_counter() - computed, nbytes(payload)
        edge_s = computed - taken.started - taken.decode_s - waited_s
        coded = encode_s, wire_bytes, taken.decode_s, waited_s
        return payload, Sample(taken.started, math.nan, edge_s, 0.0, (), *coded)


def latency(edge: Edge, length: Length, seen: Callable[[int], None] = unseen) -> Phase:
    """The phase of requests one after another, each from the input being ready to the result being there. seen: gets
    the number of requests done, outside their time."""
    samples: list[Sample] = []
    outputs = _Outputs()
    origin = time.perf_counter()
    while (number := len(samples)) < MOST_REQUESTS:
        if number >= length.requests and time.perf_counter() - origin >= length.seconds:
            break
        seen(number)
        payload, begun = edge.make(edge.take(number))
        serialize_s = edge.client.send(number, payload)
        reply = edge.client.receive()
        finished = time.perf_counter()
        check_order(reply, number)
        samples.append(_whole(begun, origin, finished, serialize_s, reply))
        outputs.add(number % len(edge.inputs), reply.tensors)
    return Phase(origin, samples, outputs.kept)


def throughput(
    edge: Edge,
    length: Length,
    pace_s: float,
    depth: int,
    prefetch: int = 0,
    seen: Callable[[int], None] = unseen,
) -> Phase:
    """The phase of `depth` requests in flight: this thread computes, one sends, one receives.

    length: of the steady state; requests that fill and drain the steps come on top. pace_s: foreseen from a completion
    to the next; it only decides how many requests are made. A payload is encoded by the thread that computes, while the
    one before it is sent. So is an input decoded; or, with `prefetch`, by a thread of its own, so many requests ahead
    at most: a request begins there, and is in flight once it is taken. seen: gets the number of requests done.
    """
    least, wanted = in_bursts(length.requests, length.seconds, pace_s, depth, prefetch)
    with (
        Pipeline(edge, depth, seen) as pipeline,
        closing(_all_taken(edge, wanted, prefetch)) as all_taken,
    ):
        for number in range(wanted):
            is_open = pipeline.has_room()
            late = time.perf_counter() - pipeline.origin > OVERTIME * length.seconds and number >= least
            if late or not is_open:
                break
            taken = next(all_taken)
            waited_s = time.perf_counter() - taken.started - taken.decode_s if prefetch else 0.0
            pipeline.send(*edge.make(taken, waited_s))
    return pipeline.phase(prefetch)


class Pipeline:
    """At most `depth` requests in flight. Whoever enters it computes in his own thread, one thread sends, one receives;
    it is left when all have come back, and raises then what went wrong. origin: when it began."""

    def __init__(
        self, edge: Edge, depth: int, seen: Callable[[int], None], fails: Callable[[], object] = lambda: None
    ) -> None:
        """seen: gets the number of requests done. fails: called once a request is lost."""
        self._edge, self._depth, self._seen, self._fails = edge, depth, seen, fails
        self._permits = threading.Semaphore(depth)
        self._to_send: queue.SimpleQueue[tuple[int, Tensors] | None] = queue.SimpleQueue()
        self._sent: queue.SimpleQueue[tuple[int, float] | None] = queue.SimpleQueue()
        self._begun: list[Sample] = []
        self._samples: list[Sample] = []
        self._outputs = _Outputs()
        self._faults: list[Exception] = []
        self._threads = [threading.Thread(target=each) for each in (self._send, self._receive)]
        seen(0)
        self.origin = time.perf_counter()

    def __enter__(self) -> Pipeline:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._to_send.put(None)
        for thread in self._threads:
            thread.join()
        if self._faults and kind is None:
            raise self._faults[0]

    def has_room(self) -> bool:
        """Wait until fewer than `depth` are in flight; whether all is well until then."""
        self._permits.acquire()
        return not self._faults

    def send(self, payload: Tensors, begun: Sample) -> None:
        """Have the next request sent, for which there is room. begun: as of `Edge.make`."""
        self._begun.append(begun)
        self._to_send.put((len(self._begun) - 1, payload))

    def phase(self, prefetch: int = 0) -> Phase:
        return Phase(self.origin, self._samples, self._outputs.kept, self._depth, prefetch)

    def _fail(self, error: Exception) -> None:
        self._faults.append(error)
        self._permits.release()  # the computing thread may be waiting for one
        self._fails()

    def _send(self) -> None:
        try:
            while (item := self._to_send.get()) is not None:
                number, payload = item
                self._sent.put((number, self._edge.client.send(number, payload)))
        except Exception as error:
            self._fail(error)
        finally:
            self._sent.put(None)

    def _receive(self) -> None:
        try:
            while (item := self._sent.get()) is not None:
                number, serialize_s = item
                reply = self._edge.client.receive()
                finished = time.perf_counter()
                check_order(reply, number)
                sample = _whole(self._begun[number], self.origin, finished, serialize_s, reply)
                self._samples.append(sample)
                self._permits.release()
                self._seen(len(self._samples))
                self._outputs.add(number % len(self._edge.inputs), reply.tensors)
        except Exception as error:
            self._fail(error)


def steady(phase: Phase) -> Sequence[Sample]:
    """The requests whose completions are counted: from the first one's to the last one's is steady state.

    Those completed after the last one was begun drain the steps: they are not among them. And where `depth` requests do
    not fill a long link, they come back in bursts, one a round trip: from a burst's beginning to the end of another
    would be more completions than round trips. So the time is a whole number of times `depth` completions. From
    `throughput` these are at least as many as were to be measured, and one.
    """
    samples = phase.samples
    full = [sample for sample in samples if sample.finished_s <= samples[-1].started_s]
    return full[: 1 + (len(full) - 1) // phase.depth * phase.depth]


def rate(phase: Phase, batch_size: int) -> float:
    counted = steady(phase)
    return (len(counted) - 1) * batch_size / (counted[-1].finished_s - counted[0].finished_s)


def window(phase: Phase) -> tuple[tuple[float, float], int]:
    """The time of `rate`, on this host's `time.monotonic`, and how many requests were completed in it."""
    ended = [phase.origin_s + sample.finished_s for sample in steady(phase)]
    return (ended[0], ended[-1]), len(ended) - 1


def loaded(phase: Phase) -> Sequence[Sample]:
    """The requests that began when `depth - 1` others were in flight: their latencies are those under load."""
    return phase.samples[phase.depth + phase.prefetch :]


def p95_s(samples: Sequence[Sample]) -> float | None:
    """The 95th percentile of the latencies; None where they are too few to state it."""
    latencies_s = sorted(sample.latency_s for sample in samples)
    return latencies_s[int(0.95 * len(latencies_s))] if len(latencies_s) >= P95_REQUESTS else None


def edge_runs(phase: Phase) -> list[list[Window]]:
    """When each step of the edge worked on each request, from the phase's start: two steps where it decodes ahead."""
    samples = phase.samples
    if not phase.prefetch:
        return [[(each.started_s, each.started_s + each.busy_s) for each in samples]]
    decoding = [(each.started_s, each.started_s + each.decode_s) for each in samples]
    computing = [
        (began_s := decoded_s + each.waited_s, began_s + each.edge_s + each.encode_s)
        for each, (_, decoded_s) in zip(samples, decoding, strict=True)
    ]
    return [decoding, computing]


def busy_s(phase: Phase) -> float:
    """Seconds that the edge worked within `window`; with two steps, those of the busier."""
    counted = steady(phase)
    first, last = counted[0].finished_s, counted[-1].finished_s
    return max(
        sum(max(0.0, min(ended, last) - max(began, first)) for began, ended in runs)
        for runs in edge_runs(phase)
    )


class _Outputs:
    """The results of a phase, without repetitions: all of a segmentation's would not fit into the memory."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, Tensors]] = []
        self._latest: dict[int, Tensors] = {}

    def add(self, which: int, tensors: Tensors) -> None:
        latest = self._latest.get(which, ())
        if layout(latest) != layout(tensors) or not all(map(torch.equal, latest, tensors)):
            self._latest[which] = tensors
            self.kept.append((which, tensors))


def _all_taken(edge: Edge, requests: int, prefetch: int) -> Generator[_Taken, None, None]:
    """So many requests, each begun when it is wanted; with `prefetch` by a thread, so many ahead. Its errors are raised
    where their request is wanted. It has ended when the generator is closed."""
    if not prefetch:
        yield from map(edge.take, range(requests))
        return
    room, is_over = threading.Semaphore(prefetch), threading.Event()
    begun: queue.SimpleQueue[_Taken | Exception] = queue.SimpleQueue()

    def begin() -> None:
        try:
            for number in range(requests):
                room.acquire()
                if is_over.is_set():
                    return
                begun.put(edge.take(number))
        except Exception as error:
            begun.put(error)

    thread = threading.Thread(target=begin)
    thread.start()
    try:
        for _ in range(requests):
            taken = begun.get()
            if isinstance(taken, Exception):
                raise taken
            room.release()
            yield taken
    finally:
        is_over.set()
        room.release()  # the thread may be waiting for it
        thread.join()


def _whole(begun: Sample, origin: float, finished: float, serialize_s: float, reply: Reply) -> Sample:
    """A request that came back, in seconds from the origin."""
    return replace(
        begun,
        started_s=begun.started_s - origin,
        finished_s=finished - origin,
        serialize_s=serialize_s + reply.serialize_s,
        stages_s=reply.stages_s,
        result_s=reply.decode_s,
    )
