"""The driver's messages to a host's monitor, and to the keeper of its lease; `messages` has the rules."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from typing import get_type_hints

from pareto.protocol.messages import Columns, Count, Duration, Finite, Percent, Request, Seconds
from pareto.protocol.own import Own

# The monitor


@dataclass
class Sensors:
    """by_field: where its figure comes from. least_window_s: over less time, energy by these sensors says little.
    leaves_out: what each sensor of energy does not see, in words."""

    by_field: dict[str, str]
    least_window_s: Seconds
    leaves_out: str = ""


@dataclass
class BeginSampling(Request[Sensors], op="begin"):
    """Watch a process and sample every `interval_s`, anew if it did already. gpu: a GPU's UUID. meter: a user's own, in
    place of the host's."""

    pid: int
    interval_s: Duration
    gpu: str | None
    meter: Own | None = None


@dataclass(frozen=True, slots=True)
class SensorSample:
    """One reading of every sensor.

    at_s: on the host's `time.monotonic`. cpu_percent: of one core since the previous sample. energy_j: since the
    first sample; counted_j and integrated_j: of it, what is of meters that count energy and tell power too, by either.
    throttled: the bits of `sensors.throttled`. All fields after gpu_clock_hz are counted by the kernel, in seconds
    since some fixed time, as `sensors.processor.WatchedProcess` has it.
    """

    at_s: Finite
    cpu_percent: Finite | None = None
    rss_bytes: Count | None = None
    temperature_c: Finite | None = None
    frequency_hz: Finite | None = None
    throttled: Count | None = None
    energy_j: Finite | None = None
    power_w: Finite | None = None
    counted_j: Finite | None = None
    integrated_j: Finite | None = None
    gpu_temperature_c: Finite | None = None
    gpu_percent: Finite | None = None
    gpu_memory_bytes: Count | None = None
    gpu_clock_hz: Finite | None = None
    busy_s: Finite | None = None
    others_s: Finite | None = None
    steal_s: Finite | None = None
    waited_s: Finite | None = None
    throttled_s: Finite | None = None


@dataclass
class GetLatestSample(Request[SensorSample | None], op="latest"):
    """The newest sample; None before the first."""


SensorSeries = make_dataclass(
    "SensorSeries",
    [(name, list[hint]) for name, hint in get_type_hints(SensorSample, include_extras=True).items()],  # type: ignore[valid-type]
    bases=(Columns,),
)
"""Samples, a column for each field."""


@dataclass
class CollectSamples(Request[SensorSeries], op="collect"):  # type: ignore[valid-type]
    """The samples since the last such request, and the last one of that, a column for each field."""


@dataclass
class MeasureIdle(Request[Finite | None], op="idle"):
    """The mean power over so many seconds, in watts; None: a source did not answer, or two samples were not taken."""

    seconds: Seconds


@dataclass
class SamplingCost:
    """The cost of sampling itself. late_p99_s: by how much 99 % of the samples are at most late."""

    cpu_percent: Percent
    samples: Count
    late_p99_s: Seconds | None


@dataclass
class GetSamplingCost(Request[SamplingCost], op="cost"):
    """The monitor's own cost since `BeginSampling`."""


# The lease of a host


@dataclass
class Holder:
    """Who measures on a host, or waits for it. origin: from where; run: what for, in words. By the host's clock."""

    who: str
    origin: str
    run: str
    since_s: Seconds


@dataclass
class Lease:
    """ahead: who comes first, the one that measures at the front."""

    host: str
    ahead: list[Holder]


@dataclass
class TakeLease(Request[Lease], op="take"):
    """Wait for the host, in the order of coming. key: the same for all roles of one testbed."""

    key: str
    who: str
    run: str


@dataclass
class GetLease(Request[Lease], op="lease"):
    """Who measures on the host, and who waits for it."""


@dataclass
class GetCarrierLosses(Request[Count | None], op="carrier"):
    """How often a network interface has lost its carrier so far, as when a cable is pulled; None: it has none now."""

    interface: str
