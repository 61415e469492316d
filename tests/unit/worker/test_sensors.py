"""A device's sensors: energy, a GPU's by a stand-in for pynvml, a Raspberry Pi's firmware by one for `vcgencmd`; how
busy a process' cores are, by this machine's kernel; temperature and clock, in a tree like sysfs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import psutil
import pytest

from pareto.remote.worker.sensors import nvml, processor, raspberry
from pareto.remote.worker.sensors.energy import Gauge, Meter, Metered, rapl_meters
from pareto.remote.worker.sensors.processor import WatchedProcess
from pareto.remote.worker.sensors.raspberry import parse_rails_w, parse_throttled, throttled_words

# Energy since the first sample, from counters and from present power

POWERCAP = "sys/class/powercap"


def answers(*values: float | None) -> Callable[[], float | None]:
    return iter(values).__next__


METERS: list[tuple[Meter, dict[float, Any]]] = [
    # A counter, from its first reading on; without a quotient its power is unknown, not 0
    (Meter("x", answers(1000, 1003, 1004)), {10.0: (0.0, None), 11.0: (3.0, 3.0), 13.0: (4.0, 0.5)}),
    # One that misses a reading has lost nothing
    (Meter("x", answers(1000, None, 1004)), {0.0: (0.0, None), 1.0: (None, None), 2.0: (4.0, 2.0)}),
    # Power that is read is not derived
    (Meter("x", answers(0.0, 3.0), answers(20.0, None)), {0.0: (0.0, 20.0), 1.0: (3.0, None)}),
    # Power alone, by the trapezoid rule over the real times; and where a reading is missing
    (Meter("x", None, answers(2, 4, 4)), {10.0: (0.0, 2.0), 10.5: (1.5, 4.0), 13.5: (13.5, 4.0)}),
    (Meter("x", None, answers(2, None, 4)), {0.0: (0.0, 2.0), 1.0: (None, None), 2.0: (6.0, 4.0)}),
]


def test_energy_since_the_first_reading() -> None:
    for meter, expected in METERS:
        assert {at_s: tuple(meter.sample(at_s)) for at_s in expected} == expected


def written(file: Path, text: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")
    return file


def zone(folder: Path, name: str, energy_uj: int | None = 0) -> Path:
    """`energy_uj` None: a file that cannot be read, whoever runs this test."""
    written(folder / "name", name)
    written(folder / "max_energy_range_uj", 1_000_000)
    if energy_uj is None:
        (folder / "energy_uj").mkdir()
    else:
        written(folder / "energy_uj", energy_uj)
    return folder


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


# A GPU

UUID = "GPU-5e3c2c3a-0d6b-7f4e"
READINGS = {"gpu_percent": 87, "gpu_memory_bytes": 30, "gpu_clock_hz": 1.98e9}
COUNTER, POWER = "TotalEnergyConsumption", "PowerUsage"


class NVMLError(Exception):
    pass


class Pynvml:
    """pynvml with one GPU; `broken` holds the calls that raise."""

    NVML_CLOCK_SM = 1
    NVMLError = NVMLError

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)
        self.answers: dict[str, Any] = {
            "UtilizationRates": SimpleNamespace(gpu=87, memory=12),
            "MemoryInfo": SimpleNamespace(total=80, free=50, used=30),
            "ClockInfo": 1980,
            COUNTER: 5_000_000,
            POWER: 70_500,
        }

    def nvmlInit(self) -> None:
        if "init" in self.broken:
            raise NVMLError("init")

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        if uuid != UUID:
            raise NVMLError("uuid")
        return "gpu 1"

    def __getattr__(self, name: str) -> Callable[..., Any]:
        call = name.removeprefix("nvmlDeviceGet")

        def answer(handle: str, *clock: int) -> Any:
            assert (handle, clock) == ("gpu 1", (self.NVML_CLOCK_SM,) * (call == "ClockInfo"))
            if call in self.broken:
                raise NVMLError(call)
            return self.answers[call]

        return answer


def readings(found: list[Gauge | Meter]) -> dict[str, object]:
    return {each.field: each.read() for each in found if isinstance(each, Gauge)}


def meter_of(found: list[Gauge | Meter]) -> Meter:
    (meter,) = (each for each in found if isinstance(each, Meter))
    assert meter.least_window_s == nvml.LEAST_WINDOW_S
    return meter


@pytest.mark.parametrize(
    ("broken", "metered"),
    {
        "": [(0.0, 70.5), (12.0, 70.5)],
        COUNTER: [(0.0, 70.5), (141.0, 70.5)],  # power is integrated
        POWER: [(0.0, None), (12.0, 6.0)],  # by the counter's rise
    }.items(),
)
def test_a_gpus_energy_and_power(broken: str, metered: list[tuple[float, float]]) -> None:
    pynvml = Pynvml(broken)
    meter = meter_of(nvml.gpu(UUID, pynvml))
    came = [meter.sample(0.0)]
    pynvml.answers[COUNTER] += 12_000
    assert [*came, meter.sample(2.0)] == metered


def test_gauges_in_base_units_without_those_that_a_device_does_not_support(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = nvml.gpu(UUID, Pynvml())
    assert {each.source for each in gpu if isinstance(each, Gauge)} == {f"nvml {UUID}"}
    assert readings(gpu) == readings(nvml.gpu(UUID.removeprefix("GPU-"), Pynvml())) == READINGS, "as by CUDA"
    for broken, field in zip(Pynvml().answers, READINGS, strict=False):
        left = {name: value for name, value in READINGS.items() if name != field}
        assert readings(nvml.gpu(UUID, Pynvml(broken))) == left
    # An error later is a missing value and earlier no sensor.
    pynvml = Pynvml()
    gpu = nvml.gpu(UUID, pynvml)
    meter = meter_of(gpu)
    pynvml.broken.update(pynvml.answers)
    assert readings(gpu) == dict.fromkeys(READINGS)
    assert meter.sample(0.0) == Metered(None, None)
    assert nvml.gpu("GPU-0", Pynvml()) == nvml.gpu(UUID, pynvml) == nvml.gpu(UUID, None) == []
    for module, loaded in ((pynvml, pynvml), (Pynvml("init"), None), (None, None)):
        monkeypatch.setitem(sys.modules, "pynvml", module)
        assert nvml.load() is loaded


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


# The cores of a process

STAT = """\
cpu  30 3 33 300 9 0 6 12 0 0
cpu0 10 1 11 100 3 0 2 4 0 0
cpu1 20 2 22 200 6 0 4 8 0 0
cpu10 7 7 7 7 7 7 7 7 7 7
intr 17267044 0 0
"""


def test_what_others_take_of_the_cores_of_a_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of all programs on its cores, those that are not the process; interrupts are nobody's."""
    assert [of[0] for of in processor.cores(STAT, {0, 10})] == [10, 7]
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    found = WatchedProcess(os.getpid())
    found._cores = {0, 1}
    file = written(tmp_path / "stat", STAT)
    monkeypatch.setattr(processor, "Path", lambda name: file if name == "/proc/stat" else Path(name))
    times = SimpleNamespace(user=4 * tick_s, system=2 * tick_s)
    found._process = mock.Mock(
        is_running=lambda: True,
        oneshot=nullcontext,
        status=lambda: "running",
        cpu_times=lambda: times,
        memory_info=lambda: SimpleNamespace(rss=4096),
    )
    first = found.sample(100.0)
    assert first["cpu_percent"] is None
    busy, others, steal = (first[name] / tick_s * 2 for name in ("busy_s", "others_s", "steal_s"))
    assert (busy, others, steal) == pytest.approx((30 + 3 + 33 + 6, 30 + 3 + 33 - 6, 4 + 8))
    times.user += 50 * tick_s
    assert found.sample(100.0 + 100 * tick_s)["cpu_percent"] == pytest.approx(50.0)


def test_a_listing_of_threads_while_some_of_them_end(tmp_path: Path) -> None:
    """Names one that has ended, passes one over, has a number anew: each second of waiting counts once."""
    found = WatchedProcess(os.getpid())
    found._tasks = tmp_path
    for one, two, told in (
        (1, 1, 2),
        (1, None, 2),
        (0, 2, 3),  # one is passed over
        (1, 1, 4),
        (None, 0, None),
    ):
        for name, waited in (("one", one), ("two", two)):
            shutil.rmtree(tmp_path / name, ignore_errors=True)
            if waited:
                written(tmp_path / name / "schedstat", f"1 {waited * 10**9} 1")
            elif waited is None:
                (tmp_path / name).mkdir()
        assert found.sample(0.0)["waited_s"] == told


def test_a_process_that_is_gone_has_nothing_to_tell() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = WatchedProcess(child.pid)
        first = found.sample(0.0)
        assert first["busy_s"] > 0 and first["others_s"] >= 0
        if Path("/proc/self/schedstat").exists():  # this kernel counts what threads wait
            assert first["waited_s"] >= 0
    assert found.sample(1.0) == {}
    with pytest.raises(psutil.NoSuchProcess):
        WatchedProcess(child.pid)


# A line is a chip, as in `coretemp temp1_input=40000`; or a thermal zone, as in `zone cpu-thermal temp=53000`.
SENSORS = {
    "cpu_thermal temp1_input=52350\nrp1_adc temp1_input=61000\nzone cpu-thermal temp=53000": 52.35,
    # The hottest core of all sockets
    "nvme temp1_input=99000\ncoretemp temp1_input=40000 temp2_input=44000 temp1_crit=100000\n"
    "coretemp temp1_input=47000": 47.0,
    # The true one of two AMD readings, and the only one
    "k10temp temp1_input=87000 temp1_label=Tctl temp2_input=60000 temp2_label=Tdie": 60.0,
    "k10temp temp1_input=61000 temp1_label=Tctl": 61.0,
    # Elsewhere
    "acpitz temp1_input=27800\nnvme temp1_input=38000\nzone acpitz temp=1\nzone iwlwifi_1 temp=2": None,
    # A chip that does not answer gives way to a zone
    "coretemp temp1_input=\nzone x86_pkg_temp temp=50000": 50.0,
    **{
        f"zone acpitz temp=27800\nzone {kind} temp=50500": 50.5
        for kind in ("cpu-thermal", "cpu_thermal", "soc-thermal", "x86_pkg_temp")
    },
}


@pytest.mark.parametrize("sensors", SENSORS)
def test_the_temperature_is_that_of_the_processor(tmp_path: Path, sensors: str) -> None:
    for number, line in enumerate(sensors.splitlines()):
        is_zone = line.startswith("zone ")
        label, place = ("type", "thermal/thermal_zone") if is_zone else ("name", "hwmon/hwmon")
        name, *files = line.removeprefix("zone ").split()
        for file, _, text in (each.partition("=") for each in (f"{label}={name}", *files)):
            written(tmp_path / f"sys/class/{place}{number}" / file, text)
    gauge = processor.temperature(tmp_path)
    assert (gauge and gauge.read()) == SENSORS[sensors]
    assert gauge is None or f"{gauge.source} temp" in sensors
    if gauge is not None:
        shutil.rmtree(tmp_path / "sys")
        assert gauge.read() is None, "it stops answering"


def test_frequency_is_the_mean_of_the_processors_online(tmp_path: Path) -> None:
    folder = tmp_path / "sys/devices/system/cpu"
    (folder / "cpu0").mkdir(parents=True)
    assert processor.frequency(tmp_path) is None
    for number, khz in enumerate((1_500_000, 2_400_000, "<unknown>")):
        written(folder / f"cpu{number}/cpufreq/scaling_cur_freq", khz)
    gauge = processor.frequency(tmp_path)
    assert gauge is not None
    assert (gauge.field, gauge.source, gauge.read()) == ("frequency_hz", "cpufreq", 1.95e9)
