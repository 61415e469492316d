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


def chip(sysfs: Path, number: int, name: str, **files: object) -> None:
    folder = sysfs / f"sys/class/hwmon/hwmon{number}"
    folder.mkdir(parents=True)
    for file, text in {"name": name, **files}.items():
        (folder / file).write_text(f"{text}\n")


def zone(sysfs: Path, number: int, kind: str, millidegrees: object) -> None:
    folder = sysfs / f"sys/class/thermal/thermal_zone{number}"
    folder.mkdir(parents=True)
    (folder / "type").write_text(f"{kind}\n")
    (folder / "temp").write_text(f"{millidegrees}\n")


def cpu(sysfs: Path, number: int, khz: object) -> None:
    folder = sysfs / f"sys/devices/system/cpu/cpu{number}/cpufreq"
    folder.mkdir(parents=True)
    (folder / "scaling_cur_freq").write_text(f"{khz}\n")


def temperature(sysfs: Path) -> tuple[str, float | int | None] | None:
    gauge = processor.temperature(sysfs)
    return None if gauge is None else (gauge.source, gauge.read())


def test_a_raspberry(tmp_path: Path) -> None:
    chip(tmp_path, 0, "cpu_thermal", temp1_input=52350)
    chip(tmp_path, 1, "rp1_adc", temp1_input=61000)
    zone(tmp_path, 0, "cpu-thermal", 53000)
    assert temperature(tmp_path) == ("cpu_thermal", 52.35)


def test_the_hottest_core_of_all_sockets(tmp_path: Path) -> None:
    chip(tmp_path, 0, "nvme", temp1_input=99000)
    chip(tmp_path, 1, "coretemp", temp1_input=40000, temp2_input=44000, temp1_crit=100000)
    chip(tmp_path, 2, "coretemp", temp1_input=47000)
    assert temperature(tmp_path) == ("coretemp", 47.0)


def test_the_true_one_of_two_amd_readings(tmp_path: Path) -> None:
    chip(tmp_path, 0, "k10temp", temp1_input=87000, temp1_label="Tctl", temp2_input=60000, temp2_label="Tdie")
    assert temperature(tmp_path) == ("k10temp", 60.0)


def test_the_only_amd_reading(tmp_path: Path) -> None:
    chip(tmp_path, 0, "k10temp", temp1_input=61000, temp1_label="Tctl")
    assert temperature(tmp_path) == ("k10temp", 61.0)


@pytest.mark.parametrize("kind", ["cpu-thermal", "cpu_thermal", "soc-thermal", "x86_pkg_temp"])
def test_a_thermal_zone_where_no_chip_is_known(tmp_path: Path, kind: str) -> None:
    zone(tmp_path, 0, "acpitz", 27800)
    zone(tmp_path, 1, kind, 50500)
    assert temperature(tmp_path) == (kind, 50.5)


def test_sensors_elsewhere_are_not_the_processors(tmp_path: Path) -> None:
    chip(tmp_path, 0, "acpitz", temp1_input=27800)
    chip(tmp_path, 1, "nvme", temp1_input=38000)
    zone(tmp_path, 0, "acpitz", 27800)
    zone(tmp_path, 1, "iwlwifi_1", 45000)
    assert temperature(tmp_path) is None


def test_a_chip_that_does_not_answer_gives_way_to_a_zone(tmp_path: Path) -> None:
    chip(tmp_path, 0, "coretemp", temp1_input="")
    zone(tmp_path, 0, "x86_pkg_temp", 50000)
    assert temperature(tmp_path) == ("x86_pkg_temp", 50.0)


def test_a_sensor_that_stops_answering(tmp_path: Path) -> None:
    zone(tmp_path, 0, "cpu-thermal", 50000)
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
