"""A device's sensors: energy, a GPU's by a stand-in for pynvml, a Raspberry Pi's firmware by one for `vcgencmd`; how
busy a process' cores are, by this machine's kernel; temperature and clock, in a tree like sysfs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import types
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import psutil
import pytest

from pareto.remote.worker.sensors import hwmon, nvml, processor, raspberry, throttled
from pareto.remote.worker.sensors.energy import Gauge, Meter, Metered, rapl_meters
from pareto.remote.worker.sensors.processor import WatchedProcess
from pareto.remote.worker.sensors.raspberry import parse_rails_w, parse_throttled
from pareto.remote.worker.sensors.throttled import throttled_words

# Energy since the first sample, from counters and from present power

POWERCAP = "sys/class/powercap"


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
READINGS = {"gpu_percent": 87, "gpu_memory_bytes": 30, "gpu_clock_hz": 1.98e9, "gpu_temperature_c": 61}
READINGS |= {"throttled": 0x80}
COUNTER, POWER, INSTANT = "TotalEnergyConsumption", "PowerUsage", "FieldValues"
OLD, NEW = "CurrentClocksThrottleReasons", "CurrentClocksEventReasons"
POWER_CAP, HW_SLOWDOWN, SW_THERMAL, HW_THERMAL, POWER_BRAKE = 0x4, 0x8, 0x20, 0x40, 0x80


class NVMLError(Exception):
    pass


class Pynvml:
    """pynvml with one GPU; `broken` holds the calls that raise."""

    NVML_CLOCK_SM = 1
    NVML_TEMPERATURE_GPU = 0
    NVML_FI_DEV_POWER_INSTANT = 186
    NVMLError = NVMLError
    asked = types.MappingProxyType({"ClockInfo": (1,), "Temperature": (0,), INSTANT: ([186],)})

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)
        self.answers: dict[str, Any] = {
            "UtilizationRates": SimpleNamespace(gpu=87, memory=12),
            "MemoryInfo": SimpleNamespace(total=80, free=50, used=30),
            "ClockInfo": 1980,
            "Temperature": 61,
            NEW: POWER_CAP | 0x1,
            COUNTER: 5_000_000,
            POWER: 70_500,
            INSTANT: [SimpleNamespace(nvmlReturn=0, value=SimpleNamespace(uiVal=80_500))],
            "Name": "NVIDIA L4",
            OLD: POWER_CAP,
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

        def answer(handle: str, *more: Any) -> Any:
            assert (handle, more) == ("gpu 1", self.asked.get(call, ()))
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
    ("broken", "how", "metered"),
    [
        # The counter, and beside it the power of the moment, or where there is none of the last second, integrated
        ([], "energy counter", [(0.0, 80.5, 0.0), (12.0, 80.5, 161.0)]),
        ([INSTANT], "energy counter", [(0.0, 70.5, 0.0), (12.0, 70.5, 141.0)]),
        ([COUNTER], "power, integrated", [(0.0, 80.5, None), (161.0, 80.5, None)]),
        ([POWER, INSTANT], "energy counter", [(0.0, None, None), (12.0, 6.0, None)]),  # by the counter's rise
    ],
)
def test_a_gpus_energy_and_power(broken: list[str], how: str, metered: list[Any]) -> None:
    pynvml = Pynvml(*broken)
    meter = meter_of(nvml.gpu(UUID, pynvml))
    assert meter.name == f"nvml {UUID} {how}"
    came = [meter.sample(0.0)]
    pynvml.answers[COUNTER] += 12_000
    assert [*came, meter.sample(2.0)] == metered


def test_a_field_that_nvml_does_not_know_is_no_power() -> None:
    pynvml = Pynvml(COUNTER, POWER)
    pynvml.answers[INSTANT][0].nvmlReturn = 3
    assert not [each for each in nvml.gpu(UUID, pynvml) if isinstance(each, Meter)]


@pytest.mark.parametrize("model", ["NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe", "NVIDIA H200", "Tesla V100"])
def test_whose_sensor_sees_a_part_of_the_time(model: str) -> None:
    pynvml = Pynvml()
    pynvml.answers["Name"] = model
    is_partly = model[7:11] in ("A100", "H100")
    assert ("a quarter" in meter_of(nvml.gpu(UUID, pynvml)).leaves_out) == is_partly


REASONS = {
    0: [], 0x1 | 0x2 | 0x10: [], POWER_CAP: ["GPU at its power cap"], SW_THERMAL: ["GPU slowed for heat"],
    HW_SLOWDOWN | HW_THERMAL: ["GPU slowed for heat", "GPU slowed by its hardware or power supply"],
    POWER_BRAKE | HW_SLOWDOWN: ["GPU slowed by its hardware or power supply"],
}  # fmt: skip


@pytest.mark.parametrize("known_as", [NEW, OLD])
def test_why_a_gpus_clock_is_low(known_as: str) -> None:
    pynvml = Pynvml(*{NEW, OLD} - {known_as})
    for reasons, words in REASONS.items():
        pynvml.answers[known_as] = reasons
        bits = readings(nvml.gpu(UUID, pynvml))["throttled"]
        assert isinstance(bits, int)
        assert throttled_words(bits) == words
        assert bool(bits & throttled.SPOILING) == (bool(words) and reasons != POWER_CAP)
    pynvml.broken |= {NEW, OLD}
    assert "throttled" not in readings(nvml.gpu(UUID, pynvml))


def test_gauges_in_base_units_without_those_that_a_device_does_not_support(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpu = nvml.gpu(UUID, Pynvml())
    assert {each.source for each in gpu if isinstance(each, Gauge)} == {f"nvml {UUID}"}
    assert readings(gpu) == readings(nvml.gpu(UUID.removeprefix("GPU-"), Pynvml())) == READINGS, "as by CUDA"
    for broken, field in zip(Pynvml().answers, READINGS, strict=False):
        left = {name: value for name, value in READINGS.items() if name != field}
        assert readings(nvml.gpu(UUID, Pynvml(broken, OLD))) == left
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


# The kernel's hardware monitors: a line is a chip and its files

JETSON = (
    "ina3221 in1_label=VDD_IN in1_input=5000 curr1_input=1200 in2_label=VDD_CPU_GPU_CV in2_input=5000 "
    "curr2_input=400 in3_label=VDD_SOC in3_input=5000 curr3_input=200 in7_label=sum in7_input=40 "
    "update_interval=200"
)
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


def with_chips(sysfs: Path, chips: str) -> Path:
    for number, line in enumerate(chips.splitlines()):
        name, *files = line.split()
        for file, _, text in (each.partition("=") for each in (f"name={name}", *files)):
            written(sysfs / f"sys/class/hwmon/hwmon{number}" / file, text)
    return sysfs


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

CPUS = "sys/devices/system/cpu"


def cpu(sysfs: Path, number: int, of: int, **counts: int) -> None:
    written(sysfs / f"{CPUS}/cpu{number}/topology/physical_package_id", 0)
    written(sysfs / f"{CPUS}/cpu{number}/topology/core_id", of)
    for what, count in counts.items():
        written(sysfs / f"{CPUS}/cpu{number}/thermal_throttle/{what}_throttle_count", count)


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
