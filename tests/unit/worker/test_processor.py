"""How busy a process' cores are, by this machine's kernel; temperature and clock, in a tree like sysfs."""

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
from pareto.remote.worker.sensors.processor import WatchedProcess
from tests.unit.worker.sysfs import written

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
