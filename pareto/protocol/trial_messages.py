"""The driver's and the workers' messages on a trial: its length, what the edge measured, what each host used."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pareto.protocol.messages import (
    MAX_REQUESTS,
    MAX_STAGES,
    Columns,
    Count,
    Difference,
    Duration,
    Error,
    Finite,
    LineRate,
    Percent,
    Positive,
    Prefetch,
    Rate,
    Request,
    Seconds,
    Split,
    Window,
)
from pareto.protocol.validation import Bounds


@dataclass
class Length:
    """How long a phase lasts: at least `requests` measured ones, and at least `seconds`."""

    requests: int
    seconds: float


@dataclass
class Arrivals:
    """When requests arrive, in seconds from the start of a phase. queue: how many may wait; more are dropped."""

    at_s: Annotated[list[Seconds], Bounds(1, MAX_REQUESTS)]
    queue: Count


@dataclass
class Requests(Columns):
    """Every request of a phase, a column each. stages_s: of the hosts behind the edge, in the order of the chain."""

    started_s: Annotated[list[Seconds], Bounds(1, MAX_REQUESTS)]
    finished_s: list[Seconds]
    edge_s: list[Seconds]
    serialize_s: list[Seconds]
    stages_s: list[Annotated[tuple[Seconds, ...], Bounds(0, MAX_STAGES)]]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len({len(stages) for stages in self.stages_s}) > 1:
            raise ValueError("its requests went through different numbers of stages")


@dataclass
class Served(Requests):
    """Requests that arrived by themselves. scheduled_s: when each should have arrived; `started_s` is when the edge
    took it."""

    scheduled_s: list[Seconds]


@dataclass
class Offered:
    """The phase in which requests arrive. dropped_s: when those should have arrived that found the queue full. late_s:
    by how much every arrival came later than it should have."""

    requests: Served
    dropped_s: list[Seconds]
    late_s: list[Seconds]


@dataclass
class Phases:
    latency: Requests
    throughput: Requests
    load: Offered | None = None

    @property
    def all(self) -> list[Requests]:
        """The requests of each phase, in the order of the phases."""
        return [self.latency, self.throughput, *([self.load.requests] if self.load else [])]


@dataclass
class TcpConnection:
    """The kernel's figures of the connections on which a trial's requests went. Segments are of all of them together;
    times and the rate are of the one on which most was acknowledged."""

    congestion: str
    tcp_connections: Count
    tcp_retransmits: Difference | None
    tcp_cwnd_packets: Count | None
    tcp_rtt_s: Seconds | None
    tcp_min_rtt_s: Seconds | None
    tcp_delivery_rate_bps: LineRate | None


@dataclass
class Coded(Columns):
    """The work of a host's codec for each request of all phases, in order: the latency phase's come first. decode_s:
    on what came, or on a request's file; encode_s: on what it sent, of `wire_bytes`: the last host the result, if that
    is encoded at all. result_s: of the edge, on the result; 0 if left out."""

    decode_s: Annotated[list[Seconds], Bounds(1, MAX_REQUESTS)]
    encode_s: list[Seconds]
    wire_bytes: list[Count]
    result_s: list[Seconds] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.result_s = self.result_s or [0.0] * len(self.decode_s)
        super().__post_init__()


@dataclass(kw_only=True)
class Usage:
    """The resources that a host used in a trial.

    trial_window: from its first run to its last. throughput_window: the steady part of the throughput phase, with the
    number of requests that ended in it after its beginning, and the seconds that the host computed meanwhile.
    steady_s: the least time from one run to the next in steady work. gpu_s: the median of a run.
    Bytes and retransmitted segments are of the interface to the host behind. coded: None without a codec.
    """

    cpu_percent: Percent | None
    rss_bytes: Count | None
    peak_rss_bytes: Count | None
    gpu_s: Seconds | None
    trial_window: Window | None
    throughput_window: Window | None
    throughput_window_requests: Count | None
    throughput_busy_s: Seconds | None
    steady_s: Duration | None
    sent_bytes: Difference | None
    received_bytes: Difference | None
    retransmits: Difference | None
    coded: Coded | None = None

    def __post_init__(self) -> None:
        window = self.throughput_window
        if window is not None and not window[0] < window[1]:
            raise ValueError("its throughput_window ends before it begins")


@dataclass
class GetUsage(Request[Usage], op="usage"):
    """Every host but the edge: what it used since `LoadStage`; CPU time since the last such request. Its throughput
    window spans the first `steady` of the last `requests` runs; `coded` is of the last `coded` runs."""

    requests: int = 0
    steady: int = 0
    coded: int = 0


@dataclass
class WrongOutput:
    """A trial that measured nothing, because the split's results are not the whole model's."""

    max_abs_error: Error
    tolerance: Finite


@dataclass(kw_only=True)
class TrialReport(Usage):
    """The edge's figures of a trial. Times and rates of the two phases are medians unless the name says otherwise.

    work_s: what all hosts compute for a request (the median of the sums). stages_s: of each host behind the edge that
    took part; both have a codec's times, where the edge cannot tell them from computing. sequential_ips: images per
    second with one request in flight. measured_s: how long both phases took. prefetch: how many requests the edge
    decoded ahead. Then throughput_busy_s is of the busier of decoding and what follows it, and steady_s of that.
    """

    trial_window: Window
    throughput_window: Window
    throughput_window_requests: Annotated[int, Bounds(1, MAX_REQUESTS)]
    throughput_busy_s: Seconds
    sent_bytes: Difference
    received_bytes: Difference
    latency_s: Duration
    latency_p95_s: Seconds | None
    loaded_latency_s: Seconds
    loaded_latency_p95_s: Seconds | None
    edge_s: Duration
    work_s: Seconds
    serialize_s: Seconds
    stages_s: Annotated[tuple[Duration, ...], Bounds(0, MAX_STAGES)]
    throughput_ips: Rate
    sequential_ips: Rate
    in_flight: Annotated[int, Bounds(1, MAX_REQUESTS)]
    prefetch: Prefetch = 0
    requests: Phases
    payload_bytes: Count
    result_bytes: Count
    max_abs_error: Error
    tolerance: Finite
    measured_s: Seconds
    tcp: TcpConnection | None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.trial_window[0] < self.trial_window[1]:
            raise ValueError("its trial_window ends before it begins")
        if self.prefetch and self.coded is None:
            raise ValueError(f"its prefetch is {self.prefetch}, without any decode_s")
        for phase in self.requests.all:
            if len(phase.stages_s[0]) != len(self.stages_s):
                raise ValueError("its stages_s are not as many as those of its requests")


@dataclass(kw_only=True)
class RunTrial(Request[TrialReport | WrongOutput], op="trial"):
    """The edge: one trial. interface, peer: lead to the host behind, and its address.

    in_flight: requests of the throughput phase; None: as many as keep the slowest step busy. transfer_s: what the
    slowest link needs at least for a payload or a result. prefetch: how many requests to decode ahead in the throughput
    phase, if the edge decodes. is_watched: whether to report `Progress` meanwhile. arrivals: of a third phase.
    """

    split: Split
    interface: str
    peer: str
    warmup_requests: Count
    latency: Length
    throughput: Length
    transfer_s: Seconds
    in_flight: Positive | None
    prefetch: Prefetch = 0
    is_watched: bool = False
    arrivals: Arrivals | None = None


@dataclass
class Progress:
    """Before a trial's report: the phase that runs, and how many of its requests are done."""

    phase: Annotated[str, Bounds(1, 20)]
    requests: Annotated[int, Bounds(0, MAX_REQUESTS)]
