"""The bits of what holds a device back, by whichever of its sensors: a Raspberry Pi's firmware, x86 processors' thermal
limits, NVML. Bits 0 to 7 say what is so now; bits 16 to 19 what the firmware says of all the time since boot."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from operator import or_
from pathlib import Path

from pareto.remote.worker.sensors.energy import Gauge, answering, integer, text

FIELD = "throttled"
_WORDS = (
    *("under-voltage", "frequency capped", "throttled", "soft temperature limit"),
    *("processor at its thermal limit", "GPU slowed for heat", "GPU slowed by its hardware or power supply"),
    "GPU at its power cap",
)
_CPU_HOT, _GPU_HOT, _GPU_SLOWED, _GPU_CAPPED = 0x10, 0x20, 0x40, 0x80
NOW, SINCE_BOOT = 0xFF, 16
SPOILING = NOW & ~_GPU_CAPPED
"""All but a power cap: a server's GPU is meant to work at its own, and gives the same figures there each time."""
_OF_NVML = {0x4: _GPU_CAPPED, 0x8: _GPU_SLOWED, 0x20: _GPU_HOT, 0x40: _GPU_HOT, 0x80: _GPU_SLOWED}
"""By NVML's bit: software's power cap, slowdown by hardware, for heat by software and by hardware, power brake."""


def throttled_words(bits: int) -> list[str]:
    """The words for what holds this device back now."""
    return [word for bit, word in enumerate(_WORDS) if bits >> bit & 1]


def of_nvml(reasons: int) -> int:
    """The bits for NVML's reasons of a clock that is not the highest; some are no limit, such as an idle GPU."""
    return sum({bit for theirs, bit in _OF_NVML.items() if reasons & theirs})


def processor(sysfs: Path) -> Gauge | None:
    """The gauge of x86 thermal limits: whether a package's or core's count of them has risen since the last reading."""
    of_core: dict[tuple[str | None, ...], Path] = {}
    for cpu in sorted((sysfs / "sys/devices/system/cpu").glob("cpu[0-9]*")):
        core = (text(cpu / "topology" / of) for of in ("physical_package_id", "core_id"))
        of_core.setdefault(tuple(core), cpu / "thermal_throttle")
    files = [file for folder in of_core.values() for file in folder.glob("*_throttle_count")]
    last: int | None = None

    def read() -> int | None:
        nonlocal last
        counts = [count for count in map(integer, files) if count is not None]
        if not files or len(counts) < len(files):
            return None
        before, last = last, sum(counts)
        return _CPU_HOT if before is not None and last > before else 0

    return answering(FIELD, "thermal_throttle", read)


def together(gauges: Sequence[Gauge]) -> list[Gauge]:
    """One gauge for several that tell bits; no value where one of them has none and no other tells of a limit."""

    def read() -> int | None:
        each = [gauge.read() for gauge in gauges]
        bits = reduce(or_, (int(told or 0) for told in each))
        return None if None in each and not bits & NOW else bits

    return [Gauge(FIELD, " + ".join(gauge.source for gauge in gauges), read)] if gauges else []
