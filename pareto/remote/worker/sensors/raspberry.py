"""A Raspberry Pi's firmware, asked by `vcgencmd`: is it throttled, and what its power rails take.
https://www.raspberrypi.com/documentation/computers/os.html#vcgencmd"""

from __future__ import annotations

import re
import subprocess

from pareto.remote.worker.checkup import run
from pareto.remote.worker.sensors.energy import Gauge, Meter, answering
from pareto.remote.worker.sensors.throttled import FIELD

_TIMEOUT_S = 2.0
"""A firmware that hangs must not hold up the other sensors for long."""

_RAIL = re.compile(r"^\s*(\w+)_([AV])\s+\w+\(\d+\)=(-?\d+(?:\.\d+)?)\2\s*$", re.MULTILINE)


def parse_throttled(text: str) -> int | None:
    """The bits of ``throttled=0x50005``; None if `text` is something else."""
    match = re.fullmatch(r"throttled=(0x[0-9a-fA-F]+)", text.strip())
    return int(match[1], 16) if match else None


def parse_rails_w(text: str) -> float | None:
    """Watts of all rails in the output of `pmic_read_adc` that have both a current and a voltage.

    ``3V3_SYS_A current(1)=0.0468A`` and ``3V3_SYS_V volt(9)=3.2984V`` are one rail: pairs go by name, the
    channel numbers differ. None if there is no pair.
    """
    rails = {(name, unit): float(value) for name, unit, value in _RAIL.findall(text)}
    amperes = {name: value for (name, unit), value in rails.items() if unit == "A"}
    powers = [value * rails[name, "V"] for name, value in amperes.items() if (name, "V") in rails]
    return sum(powers) if powers else None


def throttling() -> Gauge | None:
    return answering(FIELD, "vcgencmd get_throttled", lambda: parse_throttled(_vcgencmd("get_throttled")))


def rails() -> Meter | None:
    """The rails of the power controller that a Raspberry Pi 5 has. Nothing measures the current of its 5 V input."""

    def read_w() -> float | None:
        return parse_rails_w(_vcgencmd("pmic_read_adc"))

    out = "USB devices, HATs and the regulators' losses (at the wall about 1.145 times as much, and 0.59 W)"
    meter = Meter("vcgencmd pmic_read_adc", read_power_w=read_w, leaves_out=out)
    return None if read_w() is None else meter


def _vcgencmd(command: str) -> str:
    """The output of `vcgencmd`; empty where it is not there, not allowed (group `video`), too slow or does not know."""
    try:
        done = run(["vcgencmd", command], _TIMEOUT_S)
    except (OSError, subprocess.SubprocessError):
        return ""
    return "" if done.returncode else done.stdout
