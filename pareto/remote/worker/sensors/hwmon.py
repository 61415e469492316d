"""Power and energy by the kernel's hardware monitors: https://docs.kernel.org/hwmon/sysfs-interface.html. Millivolts,
milliamperes, microwatts and microjoules there; an INA3221 has voltages and currents only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from pareto.remote.worker.sensors.energy import Meter, integer, text

_WHOLE = (("VDD_IN",), ("POM_5V_IN",), ("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"))
"""By their labels, the rails that are all that a Jetson's module takes: its other rails lie behind these."""
_READINGS, _USUAL_MS = 10, 100
"""A window of so many readings misses a tenth at either end; and how often a chip looks that does not say it."""


class Input(NamedTuple):
    """`power1`, `energy1` or, of a chip with voltages and currents, `in1` in a chip's folder."""

    chip: Path
    name: str

    @property
    def label(self) -> str:
        return text(self.chip / f"{self.name}_label") or ""

    @property
    def every_ms(self) -> int:
        said = integer(self.chip / f"{self.name}_average_interval") or integer(self.chip / "update_interval")
        return said or _USUAL_MS

    def read(self) -> float | None:
        """Watts, or joules."""
        values = (integer(self.chip / f"{self.name}_{of}") for of in ("input", "average"))
        value = next((value for value in values if value is not None), None)
        factor = integer(self.chip / f"curr{self.name[2:]}_input") if self.name.startswith("in") else 1
        return None if value is None or factor is None else value * factor / 1e6


def board(sysfs: Path) -> Meter | None:
    """The meter of the whole of a Jetson's module, behind which its processor's and GPU's own lie."""
    known = {each.label: each for each in _inputs(sysfs)}
    rails = next((rails for rails in _WHOLE if known.keys() >= {*rails}), ())
    out = "the carrier board and the power supply (6 to 7 W of 30 at an Orin)"
    return _meter([known[rail] for rail in rails], " + ".join(rails), out) if rails else None


def only(sysfs: Path) -> Meter | None:
    """The meter of the one power or energy that there is. Nothing says which of several holds which."""
    found = list(_inputs(sysfs))
    name = " ".join(f"{text(each.chip / 'name')} {each.label or each.name}" for each in found)
    return _meter(found, name, "what does not run through it") if len(found) == 1 else None


def _inputs(sysfs: Path) -> Iterator[Input]:
    """Yield the energies of each chip; where it has none its powers, and where none its voltages with a current."""
    for chip in sorted((sysfs / "sys/class/hwmon").glob("hwmon*")):
        is_ina = (text(chip / "name") or "").startswith("ina")  # elsewhere in1 and curr1 may be of two rails
        # A battery or its charger has a type, and is where power comes from.
        for kind in ("energy", "power", "in")[: 0 if (chip / "device/type").exists() else 2 + is_ina]:
            files = chip.glob(f"{kind}[0-9]*_[ia]*")
            each = [Input(chip, name) for name in sorted({file.name.partition("_")[0] for file in files})]
            if found := [one for one in each if one.read() is not None]:
                yield from found
                break


def _meter(inputs: Sequence[Input], name: str, leaves_out: str) -> Meter:
    """The meter of the sum of some inputs of one kind."""

    def read() -> float | None:
        values = [each.read() for each in inputs]
        return None if None in values else sum(value for value in values if value is not None)

    least_s = _READINGS * max(each.every_ms for each in inputs) / 1e3
    is_energy = inputs[0].name.startswith("energy")
    energy, power = (read, None) if is_energy else (None, read)
    return Meter(f"hwmon {name}", energy, power, least_window_s=least_s, leaves_out=leaves_out)
