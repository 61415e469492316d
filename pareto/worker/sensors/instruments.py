"""Every sensor that this device has, read together as one sample."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pareto.worker.sensors import nvml, rapl, raspberry, thermal
from pareto.worker.sensors.cores import Cores
from pareto.worker.sensors.energy import Meter
from pareto.worker.sensors.gauge import Gauge
from pareto.worker.sensors.process import WatchedProcess


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading of every sensor; None: no sensor, or it did not answer.

    `at_s` is this host's monotonic clock, `cpu_percent` is of one core since the previous sample, `energy_j`
    is since the first sample. `throttled`: the bits of `vcgencmd get_throttled`. `busy_s` and what follows: as in
    `pareto.worker.sensors.cores.Use`.
    """

    at_s: float
    cpu_percent: float | None = None
    rss_bytes: int | None = None
    temperature_c: float | None = None
    frequency_hz: float | None = None
    throttled: int | None = None
    energy_j: float | None = None
    power_w: float | None = None
    gpu_percent: float | None = None
    gpu_memory_bytes: int | None = None
    gpu_clock_hz: float | None = None
    busy_s: float | None = None
    others_s: float | None = None
    steal_s: float | None = None
    waited_s: float | None = None
    throttled_s: float | None = None
    energy_by_source_j: tuple[float | None, ...] = ()


FIELDS = tuple(x.name for x in fields(Sample) if x.name != "energy_by_source_j")
"""What a sample is to those who ask for it; energy by source is for the mean power of each."""


class Instruments:
    """Raises psutil.NoSuchProcess. `gpu` is a GPU's UUID, or None; `sysfs` holds the folder `sys`."""

    def __init__(self, pid: int, gpu: str | None, sysfs: Path) -> None:
        self._process = WatchedProcess(pid)
        self._cores = Cores(pid)
        device = nvml.Gpu() if gpu is None else nvml.gpu(gpu, nvml.load())
        gauges = (
            thermal.temperature(sysfs),
            thermal.frequency(sysfs),
            raspberry.throttling(),
            *device.gauges,
        )
        self._gauges: list[Gauge] = [x for x in gauges if x is not None]
        # The slow one last: the counters are to be read at the sample's time, not after it.
        meters = (*rapl.meters(sysfs), device.meter, raspberry.rails())
        self._meters: list[Meter] = [x for x in meters if x is not None]

    @property
    def sources(self) -> list[str]:
        """The names of the sources of energy, in the order of `Sample.energy_by_source_j`."""
        return [x.name for x in self._meters]

    @property
    def sensors(self) -> dict[str, str]:
        """Each field that this device can measure, and where it comes from; but for what any kernel tells of cores."""
        energy = " + ".join(self.sources)
        return {
            "cpu_percent": "psutil",
            "rss_bytes": "psutil",
            **{x.field: x.source for x in self._gauges},
            **({"energy_j": energy, "power_w": energy} if energy else {}),
        }

    def sample(self) -> Sample:
        at_s = time.monotonic()
        cpu_percent, rss_bytes = self._process.sample(at_s)
        metered = [x.sample(at_s) for x in self._meters]
        values: dict[str, Any] = {x.field: x.read() for x in self._gauges}
        return Sample(
            at_s=at_s,
            cpu_percent=cpu_percent,
            rss_bytes=rss_bytes,
            **asdict(self._cores.use()),
            energy_j=_sum(x.energy_j for x in metered),
            power_w=_sum(x.power_w for x in metered),
            energy_by_source_j=tuple(x.energy_j for x in metered),
            **values,
        )


def _sum(parts: Iterable[float | None]) -> float | None:
    """None without parts, and where one is missing: the rest would look like less energy, not like a gap."""
    total: float | None = None
    for part in parts:
        if part is None:
            return None
        total = part if total is None else total + part
    return total
