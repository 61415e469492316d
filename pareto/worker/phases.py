"""The two phases of a trial, written once against the backend protocol. Runs on the first device.

Every time is from this host's monotonic clock; what the later hosts say are durations on their own.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from pareto.backends.base import Client, Reply, Tensors, check_order, layout, nbytes
from pareto.constants import MOST_IN_FLIGHT
from pareto.messages import Length

Compute = Callable[[Tensors], Tensors]

MAX_LATENCY_REQUESTS = 2_000
MAX_THROUGHPUT_REQUESTS = 5_000
P95_REQUESTS = 130
"""Samples needed before a 95th percentile may be stated at 99 % confidence."""
OVERTIME = 4.0
"""A throughput phase whose requests take longer than foreseen is cut at this multiple of its length."""


@dataclass(frozen=True)
class Sample:
    """One request. Seconds; `started_s` and `finished_s` count from the start of the phase.

    `stages_s` is of the later stages, in the order of the chain: empty where no other host took part. A codec's times
    there are within them.
    """

    started_s: float
    finished_s: float
    edge_s: float
    serialize_s: float
    stages_s: tuple[float, ...]
    encode_s: float = 0.0
    wire_bytes: int = 0
    """With a codec, what the edge sent."""

    @property
    def busy_s(self) -> float:
        """How long the edge's processor worked on the request before it was sent."""
        return self.edge_s + self.encode_s

    @property
    def latency_s(self) -> float:
        return self.finished_s - self.started_s


@dataclass(frozen=True)
class Phase:
    origin_s: float
    """When it began, on the clock of `time.monotonic`, which on Linux is also that of `time.perf_counter`."""
    samples: list[Sample]
    outputs: list[tuple[int, Tensors]]
    """Which input each result belongs to, and the result: checked after the clock has stopped. Of results that are
    equal to the last bit one is there."""
    depth: int = 1
    """Requests that were in flight."""


class NoLink:
    """The client of the last point: the edge has the whole model, nothing crosses."""

    def __init__(self) -> None:
        self._done: queue.SimpleQueue[tuple[int, Tensors]] = queue.SimpleQueue()

    def open(self, fingerprint: bytes, takes: object) -> None: ...

    def send(self, request_id: int, tensors: Tensors) -> float:
        self._done.put((request_id, tensors))
        return 0.0

    def receive(self) -> Reply:
        request_id, tensors = self._done.get()
        return Reply(request_id, tensors, (), 0.0)

    def warm(self, nbytes: int) -> None: ...

    def close(self) -> None: ...


def latency(
    client: Client,
    compute: Compute,
    inputs: Sequence[Tensors],
    length: Length,
    encode: Compute | None = None,
) -> Phase:
    """Measure requests one after another, each from the input being ready to the result being there.

    encode: what is done to a payload before it is sent.
    """
    samples: list[Sample] = []
    outputs = _Outputs()
    origin = time.perf_counter()
    while len(samples) < MAX_LATENCY_REQUESTS:
        if len(samples) >= length.requests and time.perf_counter() - origin >= length.seconds:
            break
        number = len(samples)
        which = number % len(inputs)
        started = time.perf_counter()
        payload = compute(inputs[which])
        computed = time.perf_counter()
        coded = _NOT_CODED
        if encode is not None:
            payload, coded = _encoded(encode, payload)
        serialize_s = client.send(number, payload)
        reply = client.receive()
        finished = time.perf_counter()
        check_order(reply, number)
        samples.append(_sample(origin, started, computed, finished, serialize_s, reply, coded))
        outputs.add(which, reply.tensors)
    return Phase(origin, samples, outputs.kept)


def in_flight(latency_s: float, slowest_s: float) -> int:
    """Requests to keep in flight so that the slowest step never waits (Little's law, with a quarter to spare).

    A latency is computing, transfers and the link's delay: so this covers bandwidth x delay too.
    """
    return max(2, min(MOST_IN_FLIGHT, math.ceil(1.25 * latency_s / slowest_s)))


def throughput(
    client: Client,
    compute: Compute,
    inputs: Sequence[Tensors],
    length: Length,
    pace_s: float,
    depth: int,
    encode: Compute | None = None,
) -> Phase:
    """Measure with `depth` requests in flight: this thread computes, one sends, one receives.

    `pace_s` is the foreseen time from one completion to the next and only decides how many requests are made. `length`
    is that of the steady state: the requests that fill the steps, and those that drain them, come on top. A payload is
    encoded by the thread that computes, while the one before it is sent.
    """
    foreseen = min(MAX_THROUGHPUT_REQUESTS, math.ceil(length.seconds / pace_s))
    least, wanted = (
        depth * math.ceil(requests / depth) + 1 + depth  # whole bursts, see `steady`
        for requests in (length.requests, max(length.requests, foreseen))
    )
    permits = threading.Semaphore(depth)
    to_send: queue.SimpleQueue[tuple[int, Tensors] | None] = queue.SimpleQueue()
    sent: queue.SimpleQueue[tuple[int, float] | None] = queue.SimpleQueue()
    started_at: list[tuple[float, float, tuple[float, int]]] = []
    samples: list[Sample] = []
    outputs = _Outputs()
    faults: list[Exception] = []
    origin = time.perf_counter()

    def fail(error: Exception) -> None:
        faults.append(error)
        permits.release()  # the computing thread may be waiting for one

    def send() -> None:
        try:
            while (item := to_send.get()) is not None:
                number, payload = item
                serialize_s = client.send(number, payload)
                sent.put((number, serialize_s))
        except Exception as error:
            fail(error)
        finally:
            sent.put(None)

    def receive() -> None:
        try:
            while (item := sent.get()) is not None:
                number, serialize_s = item
                started, computed, coded = started_at[number]
                reply = client.receive()
                finished = time.perf_counter()
                check_order(reply, number)
                samples.append(_sample(origin, started, computed, finished, serialize_s, reply, coded))
                permits.release()
                outputs.add(number % len(inputs), reply.tensors)
        except Exception as error:
            fail(error)

    threads = [threading.Thread(target=send), threading.Thread(target=receive)]
    for thread in threads:
        thread.start()
    try:
        for number in range(wanted):
            permits.acquire()
            started = time.perf_counter()
            late = started - origin > OVERTIME * length.seconds and number >= least
            if faults or late:
                break
            payload = compute(inputs[number % len(inputs)])
            computed, coded = time.perf_counter(), _NOT_CODED
            if encode is not None:
                payload, coded = _encoded(encode, payload)
            started_at.append((started, computed, coded))
            to_send.put((number, payload))
    finally:
        to_send.put(None)
        for thread in threads:
            thread.join()
    if faults:
        raise faults[0]
    return Phase(origin, samples, outputs.kept, depth)


def steady(phase: Phase) -> Sequence[Sample]:
    """The requests whose completions are counted: from the first one's to the last one's is steady state.

    Those that were completed after the last one was begun drain the steps: they are not among them. And where `depth`
    requests do not fill a long link, they come back in bursts, one burst a round trip: from a burst's beginning to
    the end of another would be more completions than round trips. So the time is a whole number of times `depth`
    completions, after which each burst is where it was.

    From `throughput` these are at least as many as were to be measured, and one: with `depth` in flight the last
    request only begins when all but `depth - 1` before it are there.
    """
    samples = phase.samples
    full = [sample for sample in samples if sample.finished_s <= samples[-1].started_s]
    return full[: 1 + (len(full) - 1) // phase.depth * phase.depth]


def rate(phase: Phase, batch_size: int) -> float:
    """Images per second over steady state."""
    counted = steady(phase)
    return (len(counted) - 1) * batch_size / (counted[-1].finished_s - counted[0].finished_s)


def sequential_rate(samples: Sequence[Sample], batch_size: int) -> float:
    """Images per second with one request in flight, by the time that the requests took."""
    return len(samples) * batch_size / sum(sample.latency_s for sample in samples)


def window(phase: Phase) -> tuple[tuple[float, float], int]:
    """The time of `rate`, on this host's `time.monotonic`, and how many requests were completed in it."""
    ended = [phase.origin_s + sample.finished_s for sample in steady(phase)]
    return (ended[0], ended[-1]), len(ended) - 1


def loaded(phase: Phase) -> Sequence[Sample]:
    """The requests that began when `depth - 1` others were in flight: their latencies are those under load.

    The first `depth` of a phase find fewer before them, and are quicker for it.
    """
    return phase.samples[phase.depth :]


def p95_s(samples: Sequence[Sample]) -> float | None:
    """The 95th percentile of the latencies; None where they are too few to state it."""
    latencies_s = sorted(sample.latency_s for sample in samples)
    return latencies_s[int(0.95 * len(latencies_s))] if len(latencies_s) >= P95_REQUESTS else None


def busy_s(phase: Phase) -> float:
    """Seconds that the edge computed within `window`, and encoded."""
    counted = steady(phase)
    first, last = counted[0].finished_s, counted[-1].finished_s
    runs = ((sample.started_s, sample.started_s + sample.busy_s) for sample in phase.samples)
    return sum(max(0.0, min(ended, last) - max(began, first)) for began, ended in runs)


class _Outputs:
    """The results of a phase, without repetitions: all of a segmentation's would not fit into the memory."""

    def __init__(self) -> None:
        self.kept: list[tuple[int, Tensors]] = []
        self._latest: dict[int, Tensors] = {}

    def add(self, which: int, tensors: Tensors) -> None:
        latest = self._latest.get(which, ())
        if layout(latest) == layout(tensors) and all(map(torch.equal, latest, tensors)):
            return
        self._latest[which] = tensors
        self.kept.append((which, tensors))


_NOT_CODED = 0.0, 0


def _encoded(encode: Compute, payload: Tensors) -> tuple[Tensors, tuple[float, int]]:
    """What is sent of a payload; the seconds that encoding took, and its bytes."""
    began = time.perf_counter()
    encoded = encode(payload)
    return encoded, (time.perf_counter() - began, nbytes(encoded))


def _sample(
    origin: float,
    started: float,
    computed: float,
    finished: float,
    serialize_s: float,
    reply: Reply,
    coded: tuple[float, int],
) -> Sample:
    return Sample(
        started_s=started - origin,
        finished_s=finished - origin,
        edge_s=computed - started,
        serialize_s=serialize_s + reply.serialize_s,
        stages_s=reply.stages_s,
        encode_s=coded[0],
        wire_bytes=coded[1],
    )
