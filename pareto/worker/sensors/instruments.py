"""Every sensor that this device has, read together as one sample."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pareto.messages import SensorSample
from pareto.worker.sensors import nvml, processor, raspberry
from pareto.worker.sensors.energy import Gauge, Meter, rapl_meters


class Instruments:
    """The device's sensors, and a process. `gpu`: a GPU's UUID. `sysfs`: the folder that holds `sys`.

    Raises psutil.NoSuchProcess.
    """

    def __init__(self, pid: int, gpu: str | None, sysfs: Path) -> None:
        self._process = processor.WatchedProcess(pid)
        device = nvml.Gpu() if gpu is None else nvml.gpu(gpu, nvml.load())
        gauges = (
            processor.temperature(sysfs),
            processor.frequency(sysfs),
            raspberry.throttling(),
            *device.gauges,
        )
        self._gauges: list[Gauge] = [gauge for gauge in gauges if gauge is not None]
        # The slow one last: the counters are to be read at the sample's time, not after it.
        meters = (*rapl_meters(sysfs), device.meter, raspberry.rails())
        self._meters: list[Meter] = [meter for meter in meters if meter is not None]

    @property
    def sensors(self) -> dict[str, str]:
        """Each field that this device can measure, and where it comes from; but for what any kernel tells of cores."""
        energy = " + ".join(meter.name for meter in self._meters)
        return {
            "cpu_percent": "psutil",
            "rss_bytes": "psutil",
            **{gauge.field: gauge.source for gauge in self._gauges},
            **({"energy_j": energy, "power_w": energy} if energy else {}),
        }

    def sample(self) -> SensorSample:
        at_s = time.monotonic()
        of_process = self._process.sample(at_s)
        metered = [meter.sample(at_s) for meter in self._meters]
        values: dict[str, Any] = {gauge.field: gauge.read() for gauge in self._gauges}
        return SensorSample(
            at_s=at_s,
            **of_process,
            energy_j=_sum(each.energy_j for each in metered),
            power_w=_sum(each.power_w for each in metered),
            **values,
        )


def _sum(parts: Iterable[float | None]) -> float | None:
    """The sum; None without parts, and where one is missing: the rest would look like less energy, not like a gap."""
    known = list(parts)
    return sum(part for part in known if part is not None) if known and None not in known else None
