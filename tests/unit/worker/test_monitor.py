"""The monitor program, over a sysfs and a `vcgencmd` of the test's own; and its sampler by itself."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.protocol import host_messages as told
from pareto.protocol.host_messages import SensorSample
from pareto.protocol.validation import read
from pareto.remote.worker import monitor as monitoring
from pareto.remote.worker.monitor import Instruments, Sampler
from tests import REPOSITORY
from tests.program import Program
from tests.unit.worker.conftest import now_s
from tests.unit.worker.sysfs import JETSON, cpu, with_chips, zone
from tests.unit.worker.test_nvml import COUNTER, UUID, Pynvml

INTERVAL_S = 0.01
Child = subprocess.Popen[bytes]
RAPL = "sys/class/powercap/intel-rapl:0"
PMIC_W = 2.5
VCGENCMD = """#!/bin/sh
read request  # gets end of file at once: were stdin the control connection, it would eat or await a request
case "$1" in
get_throttled) echo throttled=0x50005;;
pmic_read_adc) echo '   HDMI_A current(22)=0.5A'; echo '   HDMI_V volt(23)=5.0V';;
esac
"""
FILES = {
    f"{RAPL}/name": "package-0",
    f"{RAPL}/max_energy_range_uj": "1000000000",
    f"{RAPL}/energy_uj": "7000000",
    "sys/class/hwmon/hwmon0/name": "cpu_thermal",
    "sys/class/hwmon/hwmon0/temp1_input": "52350",
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "1500000",
}


@pytest.fixture
def device(tmp_path: Path) -> Path:
    """A Raspberry Pi that has an Intel processor's counters too."""
    for file, text in FILES.items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    program = tmp_path / "bin/vcgencmd"
    program.parent.mkdir()
    program.write_text(VCGENCMD)
    program.chmod(0o755)
    return tmp_path


REPORTS = {
    **{each.op: each.report for each in (told.BeginSampling, told.GetLatestSample, told.CollectSamples)},
    **{each.op: each.report for each in (told.MeasureIdle, told.GetSamplingCost)},
}


class Monitor(Program):
    """All that it reports is as declared: the driver takes nothing else (`pareto.protocol.messages`)."""

    def __init__(self, sysfs: Path, path: str) -> None:
        environment = {**os.environ, "PATH": path}
        super().__init__("pareto.remote.worker.monitor", "--sysfs", str(sysfs), environment=environment)

    def result(self, op: str, **fields: Any) -> Any:
        answer = super().result(op, **fields)
        read(REPORTS[op], answer)
        return answer

    def begin(self, pid: int, interval_s: float = INTERVAL_S) -> dict[str, str]:
        begun = self.result("begin", pid=pid, interval_s=interval_s, gpu=None)
        assert begun["least_window_s"] == 0.0  # counters of a processor and a power controller move at once
        return dict(begun["by_field"])

    def later(self) -> dict[str, Any]:
        """A sample that began after this call: the next one but one, for the next may have begun before."""
        for _ in range(2):
            last_s = self.result("latest")["at_s"]
            while (sample := self.result("latest"))["at_s"] == last_s:
                pass  # the test's time limit ends a vain wait
        return dict(sample)

    def idle_power_w(self) -> float:
        """The answer of `idle` over a time in which two samples were taken, however slow this machine is."""
        seconds = 5 * INTERVAL_S
        while (power_w := self.result("idle", seconds=seconds)) is None:
            seconds *= 2
        return float(power_w)


@pytest.fixture
def monitor(device: Path) -> Iterator[Monitor]:
    program = Monitor(device, f"{device / 'bin'}:{os.environ['PATH']}")
    yield program
    assert program.close() == 0


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    yield process
    process.kill()
    process.wait()


def counter_shows(device: Path, energy_uj: int) -> None:
    """From one reading to the next: the monitor meets no file that is empty, as a kernel's never is."""
    new = device / "new"
    new.write_text(f"{energy_uj}\n")
    new.replace(device / RAPL / "energy_uj")


def test_each_sensor_is_named_and_a_sample_has_every_field(
    monitor: Monitor, device: Path, child: Child
) -> None:
    assert monitor.result("latest") is None
    energy = "powercap intel-rapl:0 + vcgencmd pmic_read_adc"
    assert monitor.begin(os.getpid()) == {
        "cpu_percent": "psutil",
        "rss_bytes": "psutil",
        "temperature_c": "cpu_thermal",
        "frequency_hz": "cpufreq",
        "throttled": "vcgencmd get_throttled",
        "energy_j": energy,
        "power_w": energy,
    }
    sample = monitor.later()
    there = {"temperature_c": 52.35, "frequency_hz": 1.5e9, "throttled": 0x50005}
    there |= dict.fromkeys(("gpu_percent", "gpu_memory_bytes", "gpu_clock_hz"))
    assert {name: sample[name] for name in there} == there
    assert sample["power_w"] == pytest.approx(PMIC_W)  # and the counter stands still
    assert sample["rss_bytes"] > 1_000_000
    assert sample["cpu_percent"] >= 0
    # Idle power is that of its time alone.
    assert monitor.idle_power_w() == pytest.approx(PMIC_W)  # and the counter stands still
    counter_shows(device, 999_000_000)
    monitor.later()
    assert monitor.idle_power_w() == pytest.approx(PMIC_W)
    monitor.begin(os.getpid(), interval_s=1000.0)
    assert monitor.result("idle", seconds=0.0) is monitor.result("cost")["late_p99_s"] is None
    # Sampling goes on when the process is gone.
    monitor.begin(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and a zombie
    for _ in range(2):
        sample = monitor.later()
        assert (sample["rss_bytes"], sample["cpu_percent"]) == (None, None)
        child.wait()
    assert sample["temperature_c"] == 52.35
    # Energy is the sum of all sources and never of some.
    counter_shows(device, 7_000_000)
    monitor.begin(os.getpid())
    counter_shows(device, 12_000_000)
    monitor.later()
    columns = monitor.result("collect")
    assert columns["energy_j"][0] == 0.0
    assert columns["power_w"][0] is None  # a counter has no power yet
    lasted_s = columns["at_s"][-1] - columns["at_s"][0]
    assert columns["energy_j"][-1] == pytest.approx(5.0 + PMIC_W * lasted_s)
    (device / "bin/vcgencmd").unlink()
    sample = monitor.later()
    assert (sample["energy_j"], sample["power_w"], sample["throttled"]) == (None, None, None)
    assert monitor.result("idle", seconds=5 * INTERVAL_S) is None


def test_a_device_without_sensors_has_empty_cells(tmp_path: Path) -> None:
    monitor = Monitor(tmp_path, str(tmp_path))
    assert monitor.begin(os.getpid()) == {"cpu_percent": "psutil", "rss_bytes": "psutil"}
    measured = {field for field, value in monitor.later().items() if value is not None}
    of_cores = {"busy_s", "others_s", "steal_s", "waited_s", "throttled_s"}
    assert measured - of_cores == {"at_s", "cpu_percent", "rss_bytes"}
    assert {"busy_s", "others_s", "steal_s"} <= measured
    assert monitor.result("idle", seconds=5 * INTERVAL_S) is None
    assert monitor.result("collect")["energy_j"][-1] is None
    assert monitor.result("cost")["samples"] >= 2
    assert monitor.close() == 0


def test_two_collections_share_one_sample_and_begin_again_starts_anew(monitor: Monitor, child: Child) -> None:
    monitor.begin(os.getpid())
    collected = []
    for _ in range(3):
        monitor.later()
        collected.append(monitor.result("collect"))
    for before, after in pairwise(collected):
        assert {field: of[-1] for field, of in before.items()} == {
            field: of[0] for field, of in after.items()
        }
    times = collected[0]["at_s"] + collected[1]["at_s"][1:] + collected[2]["at_s"][1:]
    assert times == sorted(set(times))
    assert len(times) >= 4
    assert {len(x) for x in collected[0].values()} == {len(collected[0]["at_s"])}
    threads = psutil.Process(monitor.process.pid).num_threads()
    begun_s = now_s()
    monitor.begin(child.pid, interval_s=1000.0)
    ended_s = now_s()
    columns = monitor.result("collect")
    first_s, last_s = columns["at_s"]  # at the beginning, and when they were collected
    assert begun_s < first_s <= ended_s <= last_s
    assert columns["energy_j"][0] == 0.0
    assert monitor.result("cost")["samples"] == 2
    assert psutil.Process(monitor.process.pid).num_threads() == threads  # the sampling before has ended


def test_what_cannot_be_is_refused(monitor: Monitor, child: Child, snapshot: SnapshotAssertion) -> None:
    replies = [monitor.reply("collect"), monitor.reply("idle", seconds=0.0), monitor.reply("cost")]
    assert {reply["error"] for reply in replies} == {"nothing is watched yet"}
    child.kill()
    child.wait()
    asked = [(child.pid, INTERVAL_S), *((os.getpid(), each) for each in (0, -1, float("inf")))]
    replies = [monitor.reply("begin", pid=pid, interval_s=each, gpu=None) for pid, each in asked]
    assert [reply["error"].replace(str(child.pid), "PID") for reply in replies] == snapshot


def test_cost_counts_the_programs_it_starts(monitor: Monitor, device: Path) -> None:
    burn = "i=0; while [ $i -lt 5000 ]; do i=$((i+1)); done\n"
    (device / "bin/vcgencmd").write_text(VCGENCMD + burn)
    watcher = psutil.Process(monitor.process.pid)

    def all_s() -> tuple[float, float]:
        """Processor time of the monitor itself, and of the programs that it has started."""
        times = watcher.cpu_times()
        return times.user + times.system, times.children_user + times.children_system

    begun_s = now_s()
    monitor.begin(os.getpid())
    own_s, children_s = all_s()
    while (now := all_s())[1] < children_s + 0.2:
        pass
    cost = monitor.result("cost")
    cost_s = cost["cpu_percent"] / 100 * (now_s() - begun_s)
    assert cost_s >= sum(now) - own_s - children_s - 0.04  # four clocks, each in ticks
    assert cost["samples"] >= 2 and cost["late_p99_s"] >= 0


def test_it_needs_no_torch() -> None:
    code = "import sys; sys.modules.update(torch=None, pynvml=None); import pareto.remote.worker.monitor"
    assert subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY).returncode == 0


def test_the_oldest_samples_give_way() -> None:
    reached, numbers = threading.Event(), itertools.count(1)

    def take() -> SensorSample:
        if (number := next(numbers)) == 6:
            reached.set()
        return SensorSample(at_s=0.0, rss_bytes=number)

    sampler = Sampler(take, 0.001, kept=3)
    reached.wait()
    sampler.stop()
    taken = sampler.cost().samples
    assert [sample.rss_bytes for sample in sampler.waiting()] == [taken - 2, taken - 1, taken]


class Clock:
    """In place of `time` and of the event that ends sampling: a wait is over at once, and time goes on by it."""

    def __init__(self, samples: int) -> None:
        self.now_s = 0.0
        self._left = samples

    def monotonic(self) -> float:
        return self.now_s

    def wait(self, seconds: float) -> bool:
        self.now_s += seconds
        self._left -= 1
        return self._left < 0

    def set(self) -> None:
        self._left = 0


def test_times_that_have_passed_are_left_out_and_told_as_lateness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every second; the third sample takes 4.5 s, and the next is there when the whole second after it is."""
    clock, taken = Clock(6), list[float]()

    def take() -> SensorSample:
        taken.append(clock.now_s)
        clock.now_s += 4.5 if len(taken) == 3 else 0.0
        return SensorSample(at_s=taken[-1])

    monkeypatch.setattr(monitoring, "time", clock)
    threads = SimpleNamespace(Event=lambda: clock, Lock=threading.Lock, Thread=threading.Thread)
    monkeypatch.setattr(monitoring, "threading", threads)
    sampler = Sampler(take, 1.0)
    sampler._thread.join()
    assert taken == [0.0, 1.0, 2.0, 6.5, 7.0, 8.0, 9.0]
    cost = sampler.cost()
    assert (cost.samples, cost.late_p99_s) == (7, 3.5)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_sampling_that_has_failed_does_not_look_like_none() -> None:
    numbers = itertools.count(1)

    def take() -> SensorSample:
        if next(numbers) == 3:
            raise OSError("broken")
        return SensorSample(at_s=0.0)

    sampler = Sampler(take, 0.001)
    sampler._thread.join()
    for ask in (sampler.collect, sampler.waiting):
        with pytest.raises(RuntimeError) as failed:
            ask()
        assert isinstance(failed.value.__cause__, OSError)


def test_a_gpu_and_a_processor_tell_of_one_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their bits together, their energies added, and the counter that can be checked beside its power; but where a rail
    is all that the device takes, that alone."""
    monkeypatch.setenv("PATH", "")
    zone(tmp_path / RAPL, "package-0")
    pynvml = Pynvml()
    monkeypatch.setattr(monitoring.nvml, "load", lambda: pynvml)
    cpu(tmp_path, 0, 0, package=7)
    of_both = Instruments(os.getpid(), UUID, tmp_path)
    first = of_both.sample()
    assert (first.throttled, first.counted_j, first.integrated_j) == (0x80, 0.0, 0.0)
    cpu(tmp_path, 0, 0, package=8)
    zone(tmp_path / RAPL, "package-0", 500_000)
    pynvml.answers[COUNTER] += 12_000
    second = of_both.sample()
    assert (second.throttled, second.energy_j, second.counted_j) == (0x90, 12.5, 12.0)
    assert second.integrated_j == pytest.approx(80.5 * (second.at_s - first.at_s))
    energy = of_both.sensors.by_field["energy_j"]
    assert energy == f"powercap intel-rapl:0 + nvml {UUID} energy counter"
    assert all(f"{name}: " in of_both.sensors.leaves_out for name in energy.split(" + "))
    assert of_both.sensors.by_field["throttled"] == f"nvml {UUID} + thermal_throttle"
    pynvml.broken.add(COUNTER)
    missed = of_both.sample()
    assert (missed.energy_j, missed.counted_j) == (None, None)
    with_chips(tmp_path, JETSON)
    of_board = Instruments(os.getpid(), UUID, tmp_path)
    assert (of_board.sensors.by_field["energy_j"], of_board.sensors.least_window_s) == ("hwmon VDD_IN", 2.0)
    assert (of_board.sample().power_w, of_board.sample().counted_j) == (6.0, None)
