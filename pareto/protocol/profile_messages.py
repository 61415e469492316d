"""The driver's requests to a worker for a model profile, and its reports: `pareto.protocol.messages` has the rules."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from pareto.protocol.messages import (
    Columns,
    Count,
    Difference,
    Duration,
    Positive,
    Rate,
    Request,
    Seconds,
    Share,
    Window,
)
from pareto.protocol.validation import Bounds

MAX_UNIT_RUNS = 300
MAX_UNITS = 2000
MAX_CODED = 100_000
"""Points, each with each codec."""
MOST_TRIPS, MOST_PAYLOAD_BYTES = 200, 1 << 24
"""Payloads by which a backend is timed at once, and the bytes of one."""
PayloadBytes = Annotated[int, Bounds(1, MOST_PAYLOAD_BYTES)]
Trips = Annotated[int, Bounds(1, MOST_TRIPS)]


@dataclass
class Steady:
    """Runs without a pause, for the energy of them."""

    window: Window
    runs: Positive


@dataclass
class UnitRuns:
    """The times of a stage's units, in seconds.

    units_s: of each run with marks, each unit. whole_s: of each run without, all of them. outside_s: what the same run
    took besides. peak_bytes: memory in use, of each unit; None: not known. steady: of the whole, then of each unit by
    itself, where they were asked for. paused_s: of each run without marks after a pause, as if it had waited for the
    network.
    """

    units_s: Annotated[list[Annotated[list[Seconds], Bounds(1, MAX_UNITS)]], Bounds(6, MAX_UNIT_RUNS)]
    whole_s: Annotated[list[Duration], Bounds(6, MAX_UNIT_RUNS)]
    outside_s: Annotated[list[Seconds], Bounds(1, MAX_UNIT_RUNS)]
    peak_bytes: list[Count] | None
    steady: Annotated[list[Steady], Bounds(0, 1 + MAX_UNITS)] = field(default_factory=list)
    paused_s: Annotated[list[Duration], Bounds(0, MAX_UNIT_RUNS)] = field(default_factory=list)

    def __post_init__(self) -> None:
        units = {len(run) for run in self.units_s}
        if len(units) > 1 or (self.peak_bytes is not None and {len(self.peak_bytes)} != units):
            raise ValueError("its runs have different numbers of units")
        if len(self.steady) > 1 and {len(self.steady) - 1} != units:
            raise ValueError("it ran other units without a pause than it has")


@dataclass
class TimeUnits(Request[UnitRuns], op="units"):
    """Hold the whole model, and time its units, in a batch of noise; the stage that was held is gone.

    cpu: this host's share of a core: below 1, units' times are processor time over it. runs, seconds: at least so many,
    and so long; not over `most_s`. steady_s, unit_s: how long to run all units, and each by itself, without a pause
    afterwards, for the sensors.
    """

    batch_size: Positive
    cpu: Share
    runs: Positive
    seconds: Seconds
    most_s: Seconds
    steady_s: Seconds
    unit_s: Seconds


@dataclass
class Roofline:
    """The best rates of a device, a second: floating-point operations; bytes that it reads and writes."""

    flops: Rate
    bytes_s: Rate


@dataclass
class MeasureRoofline(Request[Roofline], op="roofline"):
    """The best rates of this device, in a product of matrices and in a copy. cpu: as in `TimeUnits`."""

    cpu: Share


@dataclass
class CodecRuns(Columns):
    """Codecs' work on the payloads of some batches: for each point and codec of a request, in order, a figure a run.

    payload_bytes: of one batch, at each. encode_s, decode_s: seconds of runs after other work, as in a trial;
    encode_again_s, decode_again_s: right after such a run. Decoding is empty where not wanted. wire_bytes: encoded.
    """

    payload_bytes: Annotated[list[Count], Bounds(0, MAX_CODED)]
    encode_s: list[Annotated[list[Seconds], Bounds(1, MAX_UNIT_RUNS)]]
    encode_again_s: list[Annotated[list[Seconds], Bounds(1, MAX_UNIT_RUNS)]]
    decode_s: list[Annotated[list[Seconds], Bounds(0, MAX_UNIT_RUNS)]]
    decode_again_s: list[Annotated[list[Seconds], Bounds(0, MAX_UNIT_RUNS)]]
    wire_bytes: list[Annotated[list[Count], Bounds(1, MAX_UNIT_RUNS)]]


@dataclass
class TimeCodecs(Request[CodecRuns], op="codecs"):
    """Encode, and decode if wanted, what crosses a link at points of the model; the stage that was held is gone. coded:
    points, each with a codec. data: a file of `inputs`. decodes: if a host sends to this one. cpu: see `TimeUnits`."""

    coded: list[tuple[Count, str]]
    data: str
    decodes: bool
    cpu: Share


@dataclass(frozen=True)
class Expect(Request[None], op="expect"):
    """A link's far end: get ready for `count` payloads of `nbytes`, and count processor time from here. kept: whether
    the last payload is kept for a check. The stage that was served is not served any more."""

    backend: str
    nbytes: PayloadBytes
    count: Trips
    kept: bool = False


@dataclass(frozen=True)
class Taken:
    """The payloads that came since `Expect`. same: whether the last one is as sent; None: not kept."""

    cpu_s: Seconds
    count: Count
    same: bool | None


@dataclass(frozen=True)
class GetTaken(Request[Taken], op="taken"):
    """The far end: what came."""


@dataclass(frozen=True)
class Timed:
    """The seconds of each round trip, or of the whole stream; meanwhile the near end's processor time, and the bytes
    that its interface sent."""

    seconds: Annotated[list[Duration], Bounds(1, MOST_TRIPS)]
    cpu_s: Seconds
    sent_bytes: Difference


@dataclass(frozen=True)
class TimePayloads(Request[Timed], op="time"):
    """The near end: time `count` payloads, at most `in_flight` of them unanswered; None: each round trip by itself."""

    backend: str
    nbytes: PayloadBytes
    count: Trips
    interface: str
    in_flight: Positive | None = None
