"""What each program on a host may report: types, and ranges beyond which a figure is nonsense, by request.

A host may be broken, or somebody else's. What passes here is finite, in range and of the declared shape, so that
nobody behind has to ask; whether it is true is for `pareto.verdict`. Who adds a figure to a report declares it here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import GenericAlias
from typing import Annotated, Any, get_type_hints

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    create_model,
    model_validator,
)

from pareto.backends.base import MOST_S
from pareto.backends.wire import MAX_STAGES

MOST = 1e18
"""Of anything; also of what is whole where no figure needs to be."""
MOST_REQUESTS = 10_000
"""Of a phase: twice as many as a trial makes."""

Finite = Annotated[float, Field(ge=-1e15, le=1e15, allow_inf_nan=False)]
Seconds = Annotated[float, Field(ge=0, le=MOST_S, allow_inf_nan=False)]
Some = Annotated[float, Field(ge=1e-9, le=MOST_S, allow_inf_nan=False)]
"""Seconds of what took some time: it is divided by."""
Rate = Annotated[float, Field(ge=1e-9, le=MOST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, lt=1 << 63)]
Difference = Annotated[int, Field(gt=-(1 << 63), lt=1 << 63)]
"""Of a counter, which may begin anew."""
Percent = Annotated[float, Field(ge=0, le=1e7, allow_inf_nan=False)]
"""Of one core: a host has many."""
Port = Annotated[int, Field(ge=1, le=65535)]


def _sane(value: float) -> float:
    if value != math.inf and not value <= MOST:
        raise ValueError(f"should be at most {MOST:g}, or infinite")
    return value


Error = Annotated[float, Field(ge=0), AfterValidator(_sane)]
"""Infinite where results have another shape."""
LineRate = Annotated[float, Field(ge=1e-9), AfterValidator(_sane)]
"""In bit/s; infinite for what came in one piece."""


def _rising(window: list[float]) -> list[float]:
    if not window[0] < window[1]:
        raise ValueError("ends before it begins")
    return window


Window = Annotated[list[Finite], Field(min_length=2, max_length=2), AfterValidator(_rising)]


def _finite(value: Any) -> Any:
    """Any value; raises ValueError where a number in it is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError("is not finite")
    for part in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        _finite(part)
    return value


Anything = Annotated[Any, AfterValidator(_finite)]


class _Report(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _Facts(BaseModel):
    """What a host says of itself: what the driver uses of it, and anything else that a reader may want."""

    model_config = ConfigDict(strict=True, extra="allow")
    __pydantic_extra__: dict[str, Anything]
    pid: Annotated[int, Field(ge=1)]
    cuda: dict[str, Anything] | None = None


class _Loaded(_Report):
    graph_digest: str
    rss_bytes: Count


class _Staged(_Report):
    weights_bytes: Count
    rss_bytes: Count
    run_s: Seconds


class _Requests(_Report):
    """Every request of a phase."""

    started_s: Annotated[list[Seconds], Field(min_length=1, max_length=MOST_REQUESTS)]
    finished_s: list[Seconds]
    edge_s: list[Seconds]
    serialize_s: list[Seconds]
    stages_s: list[Annotated[list[Seconds], Field(max_length=MAX_STAGES)]]

    @model_validator(mode="after")
    def _even(self) -> _Requests:
        columns: Sequence[Sequence[object]] = (self.finished_s, self.edge_s, self.serialize_s, self.stages_s)
        if any(len(column) != len(self.started_s) for column in columns):
            raise ValueError("has columns of different lengths")
        if len({len(each) for each in self.stages_s}) > 1:
            raise ValueError("has requests that went through different numbers of stages")
        return self


class _Phases(_Report):
    latency: _Requests
    throughput: _Requests


class _Connection(_Report):
    """As `pareto.worker.connections.carried` has it."""

    congestion: str | None = None
    tcp_connections: Count | None = None
    tcp_retransmits: Difference | None = None
    tcp_cwnd_packets: Count | None = None
    tcp_rtt_s: Seconds | None = None
    tcp_min_rtt_s: Seconds | None = None
    tcp_delivery_rate_bps: LineRate | None = None


class _Disproved(_Report):
    """Of a trial that measured nothing, for the results are wrong."""

    max_abs_error: Error
    tolerance: Finite
    tcp: _Connection


class _Trial(_Report):
    """As `pareto.worker.trial.run` has it."""

    latency_s: Some
    latency_p95_s: Seconds | None
    loaded_latency_s: Seconds
    loaded_latency_p95_s: Seconds | None
    edge_s: Some
    work_s: Seconds
    serialize_s: Seconds
    stages_s: Annotated[list[Some], Field(max_length=MAX_STAGES)]
    throughput_ips: Rate
    sequential_ips: Rate
    steady_s: Some | None
    in_flight: Annotated[int, Field(ge=1, le=MOST_REQUESTS)]
    throughput_window: Window
    throughput_window_requests: Annotated[int, Field(ge=1, le=MOST_REQUESTS)]
    throughput_busy_s: Seconds
    requests: _Phases
    gpu_s: Seconds | None
    payload_bytes: Count
    result_bytes: Count
    max_abs_error: Error
    tolerance: Finite
    top1: Annotated[float, Field(ge=0, le=1)] | None
    top1_images: Count | None
    sent_bytes: Difference
    received_bytes: Difference
    retransmits: Difference
    cpu_percent: Percent
    rss_bytes: Count
    peak_rss_bytes: Count | None
    trial_window: Window
    measured_s: Seconds
    tcp: _Connection

    @model_validator(mode="after")
    def _agrees(self) -> _Trial:
        for name, phase in (("latency", self.requests.latency), ("throughput", self.requests.throughput)):
            if len(phase.stages_s[0]) != len(self.stages_s):
                raise ValueError(f"has other stages in its {name} phase than in all")
        return self


class _Usage(_Report):
    """What a host behind the edge says of a trial."""

    cpu_percent: Percent
    rss_bytes: Count
    peak_rss_bytes: Count | None
    gpu_s: Seconds | None
    trial_window: Annotated[list[Finite], Field(min_length=2, max_length=2)] | None
    throughput_window: Window | None
    throughput_window_requests: Count | None
    steady_s: Some | None
    throughput_busy_s: Seconds | None
    sent_bytes: Difference | None
    received_bytes: Difference | None
    retransmits: Difference | None


class _Sample(_Report):
    """Of datagrams."""

    sent: Annotated[Count, Field(gt=0)]
    received: Count
    duplicates: Count
    reordered: Count

    @model_validator(mode="after")
    def _possible(self) -> _Sample:
        if self.received > self.sent or self.reordered > self.received:
            raise ValueError("has more datagrams that came than were sent")
        return self


class _Reading(_Report):
    """As `pareto.worker.probe.Reading`."""

    rtt_s: Seconds | None
    rtts_s: Annotated[list[Seconds], Field(max_length=MOST_REQUESTS)]
    rate_bps: LineRate | None
    rate_back_bps: LineRate | None
    payload_share: Annotated[float, Field(gt=0, le=1)]
    ping_bytes: Count
    sample: _Sample | None
    sample_back: _Sample | None
    message_s: Seconds | None


class _Begun(_Report):
    sensors: dict[str, str]


class _Idle(_Report):
    power_w: Finite | None
    power_w_by_source: dict[str, Finite | None]


class _Cost(_Report):
    cpu_percent: Percent
    samples: Count
    late_p99_s: Seconds | None


class _Trips(_Report):
    median_s: Some
    mean_s: Some
    sent_bytes: Difference


class _Stream(_Report):
    seconds: Some
    cpu_s: Seconds
    sent_bytes: Difference


class _Taken(_Report):
    cpu_s: Seconds
    count: Count
    same: bool | None


class _Latest(_Report):
    """As `pareto.worker.sensors.instruments.Sample`."""

    at_s: Finite
    cpu_percent: Finite | None
    rss_bytes: Count | None
    temperature_c: Finite | None
    frequency_hz: Finite | None
    throttled: Count | None
    energy_j: Finite | None
    power_w: Finite | None
    gpu_percent: Finite | None
    gpu_memory_bytes: Count | None
    gpu_clock_hz: Finite | None
    busy_s: Finite | None
    others_s: Finite | None
    steal_s: Finite | None
    waited_s: Finite | None
    throttled_s: Finite | None


class _Even(_Report):
    @model_validator(mode="after")
    def _even(self) -> _Even:
        if len({len(column) for _, column in self}) > 1:
            raise ValueError("has columns of different lengths")
        return self


_LISTS: dict[str, Any] = {
    name: (GenericAlias(list, (kind,)), ...)
    for name, kind in get_type_hints(_Latest, include_extras=True).items()
    if name in _Latest.model_fields
}
_Columns: Any = create_model("_Columns", __base__=_Even, **_LISTS)
"""The same of many samples."""


class _Series(_Report):
    columns: _Columns


_DISPROVED = "trial, disproved"
_PROBING: Mapping[str, Any] = {"connect": None, "probe": _Reading}
_OF_MODULE: Mapping[str, Mapping[str, Any]] = {
    "pareto.worker": {
        **_PROBING,
        "facts": _Facts,
        "load": _Loaded,
        "listen": dict[str, Port],
        "rendezvous": Port,
        "join_rpc": None,
        "warm": Seconds,
        "stage": _Staged,
        "baseline": Some | None,
        "trial": _Trial,
        _DISPROVED: _Disproved,
        "usage": _Usage,
    },
    "pareto.worker.bench": {
        "facts": _Facts,
        "listen": dict[str, Port],
        "connect": None,
        "rendezvous": Port,
        "join_rpc": None,
        "expect": None,
        "taken": _Taken,
        "trips": _Trips,
        "stream": _Stream,
    },
    "pareto.worker.prober": {**_PROBING, "listen": dict[str, Port], "reach": Seconds},
    "pareto.worker.monitor": {
        "begin": _Begun,
        "latest": _Latest | None,
        "collect": _Series,
        "idle": _Idle,
        "cost": _Cost,
    },
}


class Reports:
    """What one program may report; of a program that has nothing declared, anything."""

    def __init__(self, module: str) -> None:
        self._kinds = {op: TypeAdapter(kind) for op, kind in _OF_MODULE.get(module, {}).items()}

    def check(self, op: str, result: Any) -> None:
        """Raises ValueError, in one line."""
        if op == "trial" and isinstance(result, dict) and "latency_s" not in result:
            op = _DISPROVED
        kind = self._kinds.get(op)
        if kind is None:
            return
        try:
            kind.validate_python(result, strict=True)
        except ValidationError as error:
            raise ValueError(_words(error)) from None


def _words(error: ValidationError) -> str:
    """The first fault."""
    fault = error.errors(include_url=False)[0]
    where = ".".join(str(part) for part in fault["loc"]) or "it"
    value, why = fault["input"], fault["msg"].removeprefix("Value error, ").removeprefix("Input ")
    if fault["type"] == "missing":
        return f"{where} is missing"
    if fault["type"] == "model_type":
        why = "should be an object"
    shown = f"{value!r:.40}" if isinstance(value, int | float | str | None) else f"a {type(value).__name__}"
    return f"{where} is {shown}: {why}"
