"""Power and energy by the kernel's hardware monitors: https://docs.kernel.org/hwmon/sysfs-interface.html. Millivolts,
milliamperes, microwatts and microjoules there; an INA3221 has voltages and currents only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from pareto.remote.worker.sensors.energy import Meter, integer, text

_WHOLE = (("VDD_IN",), ("POM_5V_IN",), ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"))
"""By their labels, the rails that are all that a Jetson's module takes: its other rails lie behind these."""
_READINGS, _USUAL_MS = 10, 100
"""A window of so many readings misses a tenth at either end; and how often a chip looks that does not say it."""


def board(sysfs: Path) -> Meter | None:
    """The meter of the whole of a Jetson's module, behind which its processor's and GPU's own lie."""
    known = {text(chip / f"{name}_label"): (chip, name) for chip, name in _inputs(sysfs)}
    rails = next((rails for rails in _WHOLE if known.keys() >= {*rails}), ())
    out = "the carrier board and the power supply (6 to 7 W of 30 at an Orin)"
    return _meter([known[rail] for rail in rails], " + ".join(rails), out) if rails else None


def only(sysfs: Path) -> Meter | None:
    """The meter of the one power or energy that there is. Nothing says which of several holds which."""
    found = list(_inputs(sysfs))
    named = " ".join(f"{text(chip / 'name')} {name}" for chip, name in found)
    return _meter(found, named, "what does not run through it") if len(found) == 1 else None


def _inputs(sysfs: Path) -> Iterator[tuple[Path, str]]:
    """Yield the energies of each chip (`energy1`), or its powers, or of an INA its voltages with a current (`in1`)."""
    for chip in sorted((sysfs / "sys/class/hwmon").glob("hwmon*")):
        is_ina = (text(chip / "name") or "").startswith("ina")  # elsewhere in1 and curr1 may be of two rails
        # A battery or its charger has a type, and is where power comes from.
        for kind in ("energy", "power", "in")[: 0 if (chip / "device/type").exists() else 2 + is_ina]:
            names = sorted({file.name.partition("_")[0] for file in chip.glob(f"{kind}[0-9]*_[ia]*")})
            if found := [(chip, name) for name in names if _read(chip, name) is not None]:
                yield from found
                break


def _read(chip: Path, name: str) -> float | None:
    """Watts, or joules."""
    values = (integer(chip / f"{name}_{of}") for of in ("input", "average"))
    value = next((value for value in values if value is not None), None)
    factor = integer(chip / f"curr{name[2:]}_input") if name.startswith("in") else 1
    return None if value is None or factor is None else value * factor / 1e6


def _meter(inputs: Sequence[tuple[Path, str]], name: str, leaves_out: str) -> Meter:
    """The meter of the sum of some inputs of one kind."""

    def read() -> float | None:
        values = [_read(*each) for each in inputs]
        return None if None in values else sum(value or 0.0 for value in values)

    files = (chip / name for chip, each in inputs for name in (f"{each}_average_interval", "update_interval"))
    least_s = _READINGS * (max(filter(None, map(integer, files)), default=_USUAL_MS)) / 1e3
    power, energy = (None, read) if inputs[0][1].startswith("energy") else (read, None)
    return Meter(f"hwmon {name}", energy, power, least_window_s=least_s, leaves_out=leaves_out)
