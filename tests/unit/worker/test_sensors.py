"""A device's sensors: energy and thermal limits, in a tree like sysfs; a Raspberry Pi's firmware, by a `vcgencmd`."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pareto.remote.worker.sensors import hwmon, raspberry, throttled
from pareto.remote.worker.sensors.energy import Gauge, Meter, Metered, rapl_meters
from pareto.remote.worker.sensors.raspberry import parse_rails_w, parse_throttled
from pareto.remote.worker.sensors.throttled import throttled_words
from tests.unit.worker.sysfs import CPUS, JETSON, POWERCAP, cpu, with_chips, written, zone

# Energy since the first sample, from counters and from present power


def answers(*values: float | None) -> Callable[[], float | None]:
    return iter(values).__next__


METERS: list[tuple[Meter, dict[float, Any]]] = [
    # A counter, from its first reading on; without a quotient its power is unknown, not 0
    (Meter("x", answers(1000, 1003, 1004)), {10.0: (0.0, None), 11.0: (3.0, 3.0), 13.0: (4.0, 0.5)}),
    # One that misses a reading has lost nothing
    (Meter("x", answers(1000, None, 1004)), {0.0: (0.0, None), 1.0: (None, None), 2.0: (4.0, 2.0)}),
    # Power that is read is not derived, and is integrated beside the counter
    (
        Meter("x", answers(0.0, 3.0, None, 9.0), answers(20.0, 22.0, 22.0, None)),
        {0.0: (0.0, 20.0, 0.0), 1.0: (3.0, 22.0, 21.0), 2.0: (None, 22.0, 43.0), 3.0: (9.0, None)},
    ),
    # Power alone, by the trapezoid rule over the real times; and where a reading is missing
    (Meter("x", None, answers(2, 4, 4)), {10.0: (0.0, 2.0), 10.5: (1.5, 4.0), 13.5: (13.5, 4.0)}),
    (Meter("x", None, answers(2, None, 4)), {0.0: (0.0, 2.0), 1.0: (None, None), 2.0: (6.0, 4.0)}),
]


def test_energy_since_the_first_reading() -> None:
    for meter, expected in METERS:
        for at_s, told in expected.items():
            assert meter.sample(at_s) == Metered(*told)


def names(sysfs: Path) -> list[str]:
    return [x.name for x in rapl_meters(sysfs)]


def test_every_package_and_its_memory_once(tmp_path: Path) -> None:
    powercap = tmp_path / POWERCAP
    for n in (0, 1):
        package = zone(powercap / f"intel-rapl:{n}", f"package-{n}")
        for number, part in enumerate(("core", "uncore", "dram")):
            sub = zone(package / f"intel-rapl:{n}:{number}", part)
            # The class folder shows subzones a second time, beside their packages.
            (powercap / sub.name).symlink_to(sub)
    for folder, name in (("intel-rapl:2", "psys"), ("intel-rapl-mmio:0", "package-0"), ("dtpm", "package-9")):
        zone(powercap / folder, name)
    found = ("intel-rapl:0", "intel-rapl:0:2 dram", "intel-rapl:1", "intel-rapl:1:2 dram")
    assert names(tmp_path) == [f"powercap {each}" for each in found]


def test_joules_across_the_wrap_and_of_what_may_be_read_and_has_a_range(tmp_path: Path) -> None:
    assert names(tmp_path) == []
    zone(tmp_path / POWERCAP / "intel-rapl:0", "package-0", None)
    folder = zone(tmp_path / POWERCAP / "intel-rapl:1", "package-1", 400_000)
    (meter,) = rapl_meters(tmp_path)
    energies = [meter.sample(0.0).energy_j]
    for at_s, reading in enumerate((900_000, 100_000, 150_000, 50_000), 1):
        written(folder / "energy_uj", reading)
        energies.append(meter.sample(float(at_s)).energy_j)
    assert energies == [pytest.approx(x) for x in (0, 0.5, 0.7, 0.75, 1.65)]
    (folder / "max_energy_range_uj").unlink()
    assert names(tmp_path) == []
    (folder / "energy_uj").unlink()
    assert meter.sample(9.0).energy_j is None


# The kernel's hardware monitors: a line is a chip and its files

AGX = (
    "ina3221 in1_label=VDD_GPU_SOC in1_input=19000 curr1_input=200 in2_label=VDD_CPU_CV in2_input=19000 "
    "curr2_input=100\nina3221 in2_label=VIN_SYS_5V0 in2_input=5000 curr2_input=600 "
    "in4_label=VDDQ_VDD2_1V8AO in4_input=5000 curr4_input=100"
)
CHIPS: dict[str, tuple[str, float, float] | None] = {
    # The rail of all, and not those behind it
    JETSON: ("VDD_IN", 6.0, 2.0),
    AGX: ("VDD_GPU_SOC + VDD_CPU_CV + VIN_SYS_5V0", 8.7, 1.0),
    # One input, whatever it is; of an average its own interval
    "power_meter power1_average=250000000 power1_average_interval=5000": ("power_meter power1", 250.0, 50.0),
    "ina226 in1_input=5000 curr1_input=700 power1_input=3500000\nnvme temp1_input=40000": (
        "ina226 power1",
        3.5,
        1.0,
    ),
    "ina219 in1_input=5000 curr1_input=700": ("ina219 in1", 3.5, 1.0),
    # Several, of which nothing says that one holds the others; one that does not answer; a regulator's two sides; a
    # battery
    "ina226 power1_input=3500000\nina226 power1_input=100000": None,
    "amd power1_input=1 power2_input=2": None,
    "ina219 in1_input=5000": None,
    "ina226 power1_input=": None,
    "tps in1_input=12000 curr1_input=700": None,
    "BAT0 power1_input=3500000 device/type=Battery": None,
    "": None,
}


@pytest.mark.parametrize("chips", CHIPS)
def test_the_meter_of_all_that_a_board_takes(tmp_path: Path, chips: str) -> None:
    sysfs = with_chips(tmp_path, chips)
    meter = hwmon.board(sysfs) or hwmon.only(sysfs)
    assert (hwmon.board(sysfs) is not None) == ("VDD" in chips)
    found = meter and (meter.name, meter.sample(0.0).power_w, meter.least_window_s)
    name, *figures = CHIPS[chips] or ("", None)
    assert found == (None if CHIPS[chips] is None else (f"hwmon {name}", *map(pytest.approx, figures)))
    assert meter is None or meter.leaves_out
    if meter is not None:
        shutil.rmtree(tmp_path / "sys/class/hwmon/hwmon0")
        assert meter.sample(1.0) == Metered(None, None), "a part is not the whole"


def test_a_chip_that_counts_energy_is_taken_as_it_is(tmp_path: Path) -> None:
    with_chips(tmp_path, "amd_energy energy1_input=5000000 power1_input=7000000")
    meter = hwmon.only(tmp_path)
    assert meter is not None
    meter.sample(0.0)
    written(tmp_path / "sys/class/hwmon/hwmon0/energy1_input", 9_000_000)
    assert meter.sample(2.0) == Metered(4.0, 2.0)


# Thermal limits of x86 processors, and several who tell of one device


def test_a_thermal_limit_that_was_reached_since_the_last_reading(tmp_path: Path) -> None:
    cpu(tmp_path, 0, 0)
    assert throttled.processor(tmp_path) is None, "a virtual machine"
    for number, core in enumerate((0, 1, 0, 1)):
        cpu(tmp_path, number, core, package=7, core=3)
    gauge = throttled.processor(tmp_path)
    assert gauge is not None and gauge.read() == 0, "what was so before is not held against it"
    for changed in ({"core": 4, "package": 7}, {"core": 4, "package": 9}):
        cpu(tmp_path, 1, 1, **changed)
        cpu(tmp_path, 0, 0, **{"core": 3, "package": changed["package"]})
        assert throttled_words(int(gauge.read() or 0)) == ["processor at its thermal limit"]
        assert gauge.read() == 0
    counted = tmp_path / f"{CPUS}/cpu0/thermal_throttle/package_throttle_count"
    counted.rename(hidden := tmp_path / "hidden")
    assert gauge.read() is None
    hidden.rename(counted)
    assert gauge.read() == 0, "it had no less meanwhile"


@pytest.mark.parametrize(
    ("told", "bits"),
    [
        ((0, 0), 0),
        ((0x50000, 0x20), 0x50020),
        ((None, 0), None),
        ((None, 0x10), 0x10),
        ((0x50000, None), None),
    ],
)
def test_bits_of_several_sensors(told: tuple[int | None, ...], bits: int | None) -> None:
    (gauge,) = throttled.together([Gauge("throttled", str(at), answers(one)) for at, one in enumerate(told)])
    assert (gauge.field, gauge.source, gauge.read()) == ("throttled", "0 + 1", bits)
    assert throttled.together([]) == []


# What a Raspberry Pi's firmware prints, and a `vcgencmd` that is missing or refuses

# Layout, rails and channels as a Pi 5 prints them (recorded in github.com/jfikar/RPi5-power); rounder values.
PMIC = """\
 3V7_WL_SW_A current(0)=0.00000000A
   3V3_SYS_A current(1)=0.06000000A
  DDR_VDD2_A current(3)=0.00800000A
  VDD_CORE_A current(7)=10.90000000A
   3V3_DAC_A current(17)=0.00040000A
   3V3_ADC_A current(18)=0.00040000A
   0V8_AON_A current(16)=0.00600000A
 3V7_WL_SW_V volt(8)=3.80000000V
   3V3_SYS_V volt(9)=3.31000000V
  DDR_VDD2_V volt(11)=1.10000000V
  VDD_CORE_V volt(15)=0.90000000V
   3V3_DAC_V volt(20)=3.30000000V
   3V3_ADC_V volt(21)=3.30000000V
   0V8_AON_V volt(19)=0.80000000V
     EXT5V_V volt(24)=5.07000000V
      BATT_V volt(25)=3.01000000V
"""
UNKNOWN = 'error=1 error_msg="Command not registered"\n'


def test_power_is_the_sum_over_rails_with_both_readings() -> None:
    watts = 0.06 * 3.31 + 0.008 * 1.1 + 10.9 * 0.9 + 2 * 0.0004 * 3.3 + 0.006 * 0.8
    assert parse_rails_w(PMIC) == pytest.approx(watts)
    for text in ("", UNKNOWN, "EXT5V_V volt(24)=5.07V\n", "HDMI_A current(22)=0.01A\n"):
        assert parse_rails_w(text) is None
    # Throttled bits and words for what is on now.
    unread = dict.fromkeys(("", UNKNOWN, "throttled=\n", "VCHI initialization failed\n"))
    known = {"throttled=0x0\n": 0, "throttled=0x50005\n": 0x50005, **unread}
    assert {text: parse_throttled(text) for text in known} == known
    under, capped, slowed, warm = ("under-voltage", "frequency capped", "throttled", "soft temperature limit")
    words = {0: [], 1: [under], 2: [capped], 4: [slowed], 8: [warm], 0x50005: [under, slowed]}
    words[0xF0000] = []  # since boot, not now
    assert {bits: throttled_words(bits) for bits in words} == words


PRINTS = {
    "what it should": (
        """case "$1" in
        get_throttled) echo throttled=0x50005;;
        pmic_read_adc) echo '  HDMI_A current(22)=0.5A'; echo '  HDMI_V volt(23)=5.0V';;
        esac"""
    ),
    "unknown: an older Pi's firmware does not know pmic_read_adc": f"echo '{UNKNOWN.strip()}'",
    "denied": "echo throttled=0x0; echo 'HDMI_A current(22)=1A'; echo 'HDMI_V volt(23)=5V'; exit 255",
    "hangs": "exec /bin/sleep 1000",
    "not there": "",
}


@pytest.mark.parametrize("prints", PRINTS)
def test_what_a_pi_prints_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(raspberry, "_TIMEOUT_S", 0.05 if prints == "hangs" else 2.0)
    if PRINTS[prints]:
        written(tmp_path / "vcgencmd", f"#!/bin/sh\n{PRINTS[prints]}").chmod(0o755)
    throttling, rails = raspberry.throttling(), raspberry.rails()
    told = throttling and (throttling.field, throttling.read()), rails and rails.sample(0.0).power_w
    assert told == ((("throttled", 0x50005), 2.5) if prints == "what it should" else (None, None))
