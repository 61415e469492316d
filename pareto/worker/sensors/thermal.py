"""The processor's temperature and clock, by sysfs.

Only sensors known to sit in the processor: others (`acpitz`, a disk's) are somewhere else. They are read
here and not by psutil, which reads every sensor of the machine each time: a disk's takes a command to it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import fmean

from pareto.worker.sensors.gauge import Gauge, answering

_CHIPS = ("cpu_thermal", "cpu_thermal_zone", "soc_thermal", "coretemp", "k10temp", "zenpower")
"""Names under /sys/class/hwmon."""

_ZONES = ("cpu-thermal", "cpu_thermal", "soc-thermal", "soc_thermal", "CPU-therm", "x86_pkg_temp")
"""Types under /sys/class/thermal, for kernels that show none of these under hwmon."""


def temperature(sysfs: Path) -> Gauge | None:
    """`temperature_c`: the hottest of the processor's sensors."""
    for source, inputs in (*_hwmon(sysfs / "sys/class/hwmon"), *_zones(sysfs / "sys/class/thermal")):
        gauge = answering(Gauge("temperature_c", source, partial(_hottest_c, inputs)))
        if gauge is not None:
            return gauge
    return None


def frequency(sysfs: Path) -> Gauge | None:
    """`frequency_hz`: the mean over the processors that are online.

    Without cpufreq there is none: the MHz in /proc/cpuinfo are a constant in virtual machines.
    """
    cpus = sysfs / "sys/devices/system/cpu"
    return answering(Gauge("frequency_hz", "cpufreq", lambda: _mean_hz(_frequency_files(cpus))))


def _hwmon(folder: Path) -> list[tuple[str, list[Path]]]:
    """Each known chip's name and its sensors, those of several sockets together."""
    inputs: dict[str, list[Path]] = {}
    for chip in sorted(folder.glob("hwmon*")):
        name = _text(chip / "name")
        if name in _CHIPS:
            inputs.setdefault(name, []).extend(_chip_inputs(chip))
    return list(inputs.items())


def _chip_inputs(chip: Path) -> list[Path]:
    """AMD's Tctl is up to 27 K above the truth on some models; these have the truth as Tdie."""
    labels = {
        path: _text(path.with_name(path.name.replace("_input", "_label")))
        for path in chip.glob("temp*_input")
    }
    return sorted(path for path, label in labels.items() if label != "Tctl" or "Tdie" not in labels.values())


def _zones(folder: Path) -> list[tuple[str, list[Path]]]:
    inputs: dict[str, list[Path]] = {}
    for zone in sorted(folder.glob("thermal_zone*")):
        kind = _text(zone / "type")
        if kind in _ZONES:
            inputs.setdefault(kind, []).append(zone / "temp")
    return list(inputs.items())


def _hottest_c(inputs: list[Path]) -> float | None:
    """Both trees give thousandths of a degree."""
    return max((x / 1e3 for x in map(_integer, inputs) if x is not None), default=None)


def _frequency_files(cpus: Path) -> list[Path]:
    return list(cpus.glob("cpu[0-9]*/cpufreq/scaling_cur_freq"))


def _mean_hz(files: list[Path]) -> float | None:
    """The files give kHz."""
    khz = [x for x in map(_integer, files) if x is not None]
    return fmean(khz) * 1e3 if khz else None


def _integer(path: Path) -> int | None:
    text = _text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
