"""How busy a process' cores are, by this machine's own kernel; temperature and clock, in a tree like sysfs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import psutil
import pytest

from pareto.remote.worker.sensors import processor
from pareto.remote.worker.sensors.processor import WatchedProcess, cores

STAT = """\
cpu  30 3 33 300 9 0 6 12 0 0
cpu0 10 1 11 100 3 0 2 4 0 0
cpu1 20 2 22 200 6 0 4 8 0 0
cpu10 7 7 7 7 7 7 7 7 7 7
intr 17267044 0 0
"""


def test_the_counters_of_some_cores() -> None:
    assert cores(STAT, {1}) == [[20, 2, 22, 200, 6, 0, 4, 8, 0, 0]]
    assert [of[0] for of in cores(STAT, {0, 10})] == [10, 7]


needs_schedstat = pytest.mark.skipif(
    not Path("/proc/self/schedstat").exists(), reason="this kernel does not count what threads wait"
)


def files_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stat: str) -> None:
    """This text in place of /proc/stat."""
    file = tmp_path / "stat"
    file.write_text(stat)
    monkeypatch.setattr(processor, "Path", lambda name: file if name == "/proc/stat" else Path(name))


def test_what_others_take_of_the_cores_of_a_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of all programs on its cores, those that are not the process; interrupts are nobody's."""
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    found = WatchedProcess(os.getpid())
    found._cores = {0, 1}
    files_of(monkeypatch, tmp_path, STAT)
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
    assert first["busy_s"] == pytest.approx((30 + 3 + 33 + 6) / 2 * tick_s)
    assert first["others_s"] == pytest.approx((30 + 3 + 33 - 6) / 2 * tick_s)
    assert first["steal_s"] == pytest.approx((4 + 8) / 2 * tick_s)
    times.user += 50 * tick_s
    assert found.sample(100.0 + 100 * tick_s)["cpu_percent"] == pytest.approx(50.0)


@needs_schedstat
def test_this_kernel_counts_what_threads_wait() -> None:
    sampled = WatchedProcess(os.getpid()).sample(0.0)
    assert sampled["waited_s"] >= 0
    assert sampled["busy_s"] > 0
    assert sampled["others_s"] >= 0


def threads(tasks: Path, **waited_ns: int | None) -> None:
    """A listing of threads, of which those without a number have ended since."""
    for folder in tasks.glob("*"):
        shutil.rmtree(folder)
    for name, waited in waited_ns.items():
        (tasks / name).mkdir(parents=True)
        if waited is not None:
            (tasks / name / "schedstat").write_text(f"1 {waited} 1\n")


def test_a_listing_of_threads_while_some_of_them_end(tmp_path: Path) -> None:
    """Names one that has ended, passes one over, has a number anew: each second of waiting counts once."""
    found = WatchedProcess(os.getpid())
    found._tasks = tmp_path
    waited = []
    for listing in (
        {"one": 10**9, "two": 10**9},
        {"one": 10**9, "two": None},
        {"two": 2 * 10**9},
        {"one": 10**9, "two": 10**9},
    ):
        threads(tmp_path, **listing)
        waited.append(found.sample(0.0)["waited_s"])
    assert waited == [2, 2, 3, 4]
    threads(tmp_path, one=None)
    assert found.sample(0.0)["waited_s"] is None


def test_a_process_that_is_gone_has_nothing_to_tell() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = WatchedProcess(child.pid)
        assert found.sample(0.0) != {}
    assert found.sample(1.0) == {}
    with pytest.raises(psutil.NoSuchProcess):
        WatchedProcess(child.pid)


def put(sysfs: Path, sensors: str) -> None:
    """A chip a line, as in `coretemp temp1_input=40000`; or a thermal zone, as in `zone cpu-thermal temp=53000`."""
    for number, line in enumerate(sensors.splitlines()):
        label, place = (
            ("type", "thermal/thermal_zone") if line.startswith("zone ") else ("name", "hwmon/hwmon")
        )
        name, *files = line.removeprefix("zone ").split()
        folder = sysfs / f"sys/class/{place}{number}"
        folder.mkdir(parents=True)
        for file, _, text in (each.partition("=") for each in (f"{label}={name}", *files)):
            (folder / file).write_text(f"{text}\n")


def cpu(sysfs: Path, number: int, khz: object) -> None:
    folder = sysfs / f"sys/devices/system/cpu/cpu{number}/cpufreq"
    folder.mkdir(parents=True)
    (folder / "scaling_cur_freq").write_text(f"{khz}\n")


SENSORS = {
    "a Raspberry Pi": (
        "cpu_thermal temp1_input=52350\nrp1_adc temp1_input=61000\nzone cpu-thermal temp=53000",
        52.35,
    ),
    "the hottest core of all sockets": (
        "nvme temp1_input=99000\ncoretemp temp1_input=40000 temp2_input=44000 temp1_crit=100000\n"
        "coretemp temp1_input=47000",
        47.0,
    ),
    "the true one of two AMD readings": (
        "k10temp temp1_input=87000 temp1_label=Tctl temp2_input=60000 temp2_label=Tdie",
        60.0,
    ),
    "the only AMD reading": ("k10temp temp1_input=61000 temp1_label=Tctl", 61.0),
    "elsewhere": (
        "acpitz temp1_input=27800\nnvme temp1_input=38000\nzone acpitz temp=1\nzone iwlwifi_1 temp=2",
        None,
    ),
    "a chip that does not answer gives way to a zone": (
        "coretemp temp1_input=\nzone x86_pkg_temp temp=50000",
        50.0,
    ),
    **{
        kind: (f"zone acpitz temp=27800\nzone {kind} temp=50500", 50.5)
        for kind in ("cpu-thermal", "cpu_thermal", "soc-thermal", "x86_pkg_temp")
    },
}


@pytest.mark.parametrize(("sensors", "expected_c"), SENSORS.values(), ids=SENSORS)
def test_the_temperature_is_that_of_the_processor(
    tmp_path: Path, sensors: str, expected_c: float | None
) -> None:
    put(tmp_path, sensors)
    gauge = processor.temperature(tmp_path)
    assert (gauge and gauge.read()) == expected_c
    assert gauge is None or f"{gauge.source} temp" in sensors


def test_a_sensor_that_stops_answering(tmp_path: Path) -> None:
    put(tmp_path, "zone cpu-thermal temp=50000")
    gauge = processor.temperature(tmp_path)
    assert gauge is not None
    (tmp_path / "sys/class/thermal/thermal_zone0/temp").unlink()
    assert gauge.read() is None


def test_frequency_is_the_mean_of_the_processors_online(tmp_path: Path) -> None:
    cpu(tmp_path, 0, 1_500_000)
    cpu(tmp_path, 1, 2_400_000)
    cpu(tmp_path, 2, "<unknown>")
    gauge = processor.frequency(tmp_path)
    assert gauge is not None
    assert (gauge.field, gauge.source, gauge.read()) == ("frequency_hz", "cpufreq", 1.95e9)


def test_without_cpufreq_there_is_no_frequency(tmp_path: Path) -> None:
    (tmp_path / "sys/devices/system/cpu/cpu0").mkdir(parents=True)
    assert processor.frequency(tmp_path) is None
