"""What a device's sensors say of a trial, and the monitors that are asked for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto import devices
from pareto.devices import Devices
from pareto.hosts.host import EDGE, SERVER
from pareto.hosts.session import PipeWire, SessionError
from pareto.hosts.testbed import Testbed
from tests import REPOSITORY
from tests.unit.far_end import HOSTS, FarEnd, StandIn, bed_of

INTERVAL_S = 0.01
PMIC_W = 2.5
UNDER_VOLTAGE, CAPPED = 0x1, 0x2
VCGENCMD = """#!/bin/sh
case "$1" in
get_throttled) echo throttled=0x50005;;
pmic_read_adc) echo '   HDMI_A current(22)=0.5A'; echo '   HDMI_V volt(23)=5.0V';;
esac
"""
RAPL = "sys/class/powercap/intel-rapl:0"
FILES = {
    f"{RAPL}/name": "package-0",
    f"{RAPL}/max_energy_range_uj": "1000000000",
    f"{RAPL}/energy_uj": "7000000",
    "sys/class/hwmon/hwmon0/name": "cpu_thermal",
    "sys/class/hwmon/hwmon0/temp1_input": "52350",
}
SERIES: dict[str, list[Any]] = {
    "at_s": [10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0],
    "energy_j": [0.0, 5.0, 10.0, 30.0, 50.0, 70.0, 75.0],
    "temperature_c": [40.0, 41.0, 45.0, 50.0, 48.0, 47.0, 99.0],
    "frequency_hz": [1e9, 1e9, 2e9, 2e9, 2e9, 1e9, 9e9],
    "throttled": [0, 0, 0, CAPPED, UNDER_VOLTAGE, 0, 0x8],
    "gpu_percent": [None] * 7,
    "busy_s": [0.0, 0.0, 1.0, 1.5, 2.0, 2.5, 9.0],
    "others_s": [5.0, 5.0, 6.0, 6.5, 7.0, 7.0, 9.0],
    "steal_s": [0.0, 0.0, 0.1, 0.1, 0.1, 0.2, 0.2],
    "throttled_s": [0.0, 0.0, 0.0, 0.3, 0.6, 0.9, 0.9],
}
TOLD = {
    "trial_window": [11.0, 15.0],
    "throughput_window": [12.0, 15.0],
    "throughput_window_requests": 5,
    "peak_rss_bytes": 7 << 20,
    "gpu_s": 0.25,
}


def test_a_trials_columns() -> None:
    assert devices.columns(EDGE, SERIES, TOLD, 4) == {
        "edge_peak_rss_bytes": 7 << 20,
        "edge_gpu_s": 0.25,
        "edge_temperature_c": 50.0,
        "edge_frequency_hz": pytest.approx(8e9 / 5),
        "edge_throttled": "0x3",
        "edge_gpu_percent": None,
        "edge_gpu_memory_bytes": None,
        "edge_steal_percent": pytest.approx(5.0),
        "edge_others_percent": None,
        "edge_wait_percent": None,
        "edge_core_percent": pytest.approx(100 * (1.5 - 1.0 + 0.9) / 3),
        "edge_energy_j": pytest.approx((70.0 - 10.0) / (5 * 4)),
    }


def test_the_active_energy_is_what_is_above_idle() -> None:
    """Idle, the device draws what it drew in the window less 4 W: what an image is charged is 4 W x the time of one."""
    begin, end = TOLD["throughput_window"]
    idle_w = 60.0 / (end - begin) - 4.0
    made = devices.columns(EDGE, SERIES, {**TOLD, "idle_power_w": idle_w}, 4)
    assert made["edge_energy_j"] == pytest.approx(60.0 / (5 * 4))
    assert made["edge_active_energy_j"] == pytest.approx(4.0 * (end - begin) / (5 * 4))
    assert "edge_active_energy_j" not in devices.columns(EDGE, SERIES, {**TOLD, "idle_power_w": None}, 4)


def test_a_core_is_full_where_it_is_busy_or_a_quota_is_used_up() -> None:
    spent = {**SERIES, "throttled_s": [0.9 * at for at in SERIES["at_s"]]}
    assert devices.columns(EDGE, spent, TOLD, 1)["edge_core_percent"] == 100.0
    free = {**SERIES, "throttled_s": [None] * 7}
    assert devices.columns(EDGE, free, TOLD, 1)["edge_core_percent"] == pytest.approx(50.0)


def test_what_others_had_is_not_known_under_a_quota() -> None:
    """The kernel samples it at its ticks, and the quota begins anew in step with these."""
    free = {**SERIES, "throttled_s": [0.0] * 7}
    assert devices.columns(EDGE, free, TOLD, 1)["edge_others_percent"] == pytest.approx(50.0)
    assert devices.columns(EDGE, SERIES, TOLD, 1)["edge_others_percent"] is None


def test_energy_is_of_the_steady_part_alone() -> None:
    trial_alone = {**TOLD, "throughput_window": None, "throughput_window_requests": None}
    assert "edge_energy_j" not in devices.columns(EDGE, SERIES, trial_alone, 1)
    no_requests = {**TOLD, "throughput_window_requests": 0}
    assert "edge_energy_j" not in devices.columns(EDGE, SERIES, no_requests, 1)


def test_not_throttled_is_not_the_same_as_unknown() -> None:
    calm = {**SERIES, "throttled": [0] * 7}
    blind = {**SERIES, "throttled": [None] * 7, "energy_j": [None] * 7}
    assert devices.columns(EDGE, calm, TOLD, 1)["edge_throttled"] == "0x0"
    made = devices.columns(SERVER, blind, TOLD, 1)
    assert (made["server_throttled"], made["server_energy_j"]) == (None, None)


@pytest.mark.parametrize(
    ("series", "told"), [(None, TOLD), (SERIES, {**TOLD, "trial_window": None}), (None, {})]
)
def test_without_samples_or_a_window_only_what_the_worker_told(
    series: dict[str, list[Any]] | None, told: dict[str, Any]
) -> None:
    assert devices.columns(SERVER, series, told, 1) == {
        "server_peak_rss_bytes": told.get("peak_rss_bytes"),
        "server_gpu_s": told.get("gpu_s"),
    }
    assert devices.throttling(SERVER, series, told) == ""


def test_what_held_a_device_back_is_said(snapshot: SnapshotAssertion) -> None:
    said = devices.throttling(SERVER, SERIES, TOLD)
    assert SERVER in said
    assert said == snapshot


@pytest.mark.parametrize("bits", [0, None, 0x50000])
def test_what_was_so_before_or_cannot_be_seen_is_not_held_against_it(bits: int | None) -> None:
    assert devices.throttling(EDGE, {**SERIES, "throttled": [bits] * 7}, TOLD) == ""


def test_the_samples_of_a_window_and_those_around_it() -> None:
    assert devices.within(SERIES, (12.5, 14.0)) == {
        "at_s": [-0.5, 0.5, 1.5, 2.5],
        **{field: values[2:6] for field, values in SERIES.items() if field != "at_s"},
    }
    assert devices.within(SERIES, (12.5, 14.0), margin_s=0.0)["at_s"] == [0.5, 1.5]
    assert devices.within(SERIES, (20.0, 30.0))["at_s"] == []


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Callable[[bool], Testbed]]:
    """Two devices on this machine: an edge with sensors, a server with none; each monitor is a process."""
    for file, text in FILES.items():
        path = tmp_path / "edge" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    for role in (EDGE, SERVER):
        (tmp_path / role / "bin").mkdir(parents=True)
    program = tmp_path / "edge/bin/vcgencmd"
    program.write_text(VCGENCMD)
    program.chmod(0o755)
    paths = {EDGE: f"{tmp_path}/edge/bin:{os.environ['PATH']}", SERVER: f"{tmp_path}/server/bin"}
    made: list[Testbed] = []

    def started(role: str) -> Callable[[str], PipeWire]:
        return lambda module: PipeWire(
            [sys.executable, "-m", module, "--sysfs", str(tmp_path / role)],
            cwd=REPOSITORY,
            env={**os.environ, "PATH": paths[role]},
        )

    def make(is_local: bool) -> Testbed:
        remotes = {role: StandIn(replace(HOSTS[role], device="cpu"), started(role)) for role in HOSTS}
        made.append(bed_of(remotes, is_local=is_local))
        return made[-1]

    yield make
    for bed in made:
        bed.close()


@contextmanager
def watching(bed: Testbed) -> Iterator[Devices]:
    """Both devices' monitors, watching this process."""
    with closing(Devices(bed, INTERVAL_S)) as watched:
        watched.start({key: {"pid": os.getpid()} for key in HOSTS})
        yield watched


def idle_power_w(watched: Devices, monkeypatch: pytest.MonkeyPatch) -> float:
    """The edge's, over a time in which it was sampled twice, however slow this machine is."""
    seconds = 5 * INTERVAL_S
    while True:
        monkeypatch.setattr(devices, "IDLE_S", seconds)
        facts = watched.facts()
        assert facts[SERVER] == {"sensors": {"cpu_percent": "psutil", "rss_bytes": "psutil"}} | {
            "idle_power_w": None
        }
        if (power_w := facts[EDGE]["idle_power_w"]) is not None:
            return float(power_w)
        seconds *= 2


def test_which_sensors_there_are_and_the_idle_power(
    bed: Callable[[bool], Testbed], monkeypatch: pytest.MonkeyPatch
) -> None:
    with watching(bed(False)) as watched:
        assert idle_power_w(watched, monkeypatch) == pytest.approx(PMIC_W)
        energy = "powercap intel-rapl:0 + vcgencmd pmic_read_adc"
        assert watched.facts()[EDGE]["sensors"] == {
            "cpu_percent": "psutil",
            "rss_bytes": "psutil",
            "temperature_c": "cpu_thermal",
            "throttled": "vcgencmd get_throttled",
            "energy_j": energy,
            "power_w": energy,
        }


def test_the_newest_sample_of_each(bed: Callable[[bool], Testbed]) -> None:
    with watching(bed(False)) as watched:
        first = watched.latest()
        assert list(first) == [EDGE, SERVER]
        assert (first[EDGE]["temperature_c"], first[EDGE]["throttled"]) == (52.35, 0x50005)
        assert first[SERVER]["temperature_c"] is first[SERVER]["energy_j"] is None
        while (newer := watched.latest())[EDGE]["at_s"] <= first[EDGE]["at_s"]:
            pass
        assert newer[EDGE]["power_w"] == pytest.approx(PMIC_W)  # of the very first there is none yet


def test_samples_come_once(bed: Callable[[bool], Testbed]) -> None:
    with watching(bed(False)) as watched:
        first = watched.collect()
        for role in (EDGE, SERVER):
            assert {len(values) for values in first[role].values()} == {len(first[role]["at_s"])}
        assert first[EDGE]["energy_j"][0] == 0.0
        assert set(first[SERVER]["energy_j"]) == {None}
        while len((then := watched.collect())[EDGE]["at_s"]) < 2:
            pass
        assert then[EDGE]["at_s"][1] > first[EDGE]["at_s"][-1]


def test_one_machines_energy_is_nobodys(bed: Callable[[bool], Testbed]) -> None:
    """On the local testbed, where what both hosts took cannot be told apart; and no time is spent waiting for it."""
    with watching(bed(True)) as watched:
        facts = watched.facts()[EDGE]
        assert set(facts["sensors"]) == {"cpu_percent", "rss_bytes", "temperature_c", "throttled"}
        assert facts["idle_power_w"] is None
        assert not {"energy_j", "power_w"} & set(watched.latest()[EDGE])
        assert watched.latest()[EDGE]["temperature_c"] == 52.35
        columns = watched.collect()[EDGE]
        assert columns["energy_j"] == columns["power_w"] == [None] * len(columns["at_s"])
        assert set(columns["temperature_c"]) == {52.35}


def test_what_sampling_cost(bed: Callable[[bool], Testbed]) -> None:
    with watching(bed(False)) as watched:
        for cost in watched.cost().values():
            assert set(cost) == {"cpu_percent", "samples", "late_p99_s"}
            assert cost["samples"] >= 1


def test_closing_ends_the_monitors_and_they_can_begin_again(bed: Callable[[bool], Testbed]) -> None:
    made = bed(False)
    watched = Devices(made, INTERVAL_S)
    for _ in range(2):
        watched.start({key: {"pid": os.getpid()} for key in HOSTS})
        assert len(made.heartbeat._sessions) == 2
        watched.close()
        assert made.heartbeat._sessions == []
    wires = [wire for remote in made.remotes.values() for wire in remote.wires]  # type: ignore[attr-defined]
    assert [wire.process.returncode for wire in wires] == [0] * 4


def test_a_worker_that_is_gone_cannot_be_watched(bed: Callable[[bool], Testbed]) -> None:
    gone = 2**22 + 1  # above what any kernel gives
    assert not psutil.pid_exists(gone)
    refused = pytest.raises(SessionError, match=rf"^pi: .*{gone}")
    with closing(Devices(bed(False), INTERVAL_S)) as watched, refused:
        watched.start({EDGE: {"pid": gone}, SERVER: {"pid": os.getpid()}})


def test_each_monitor_gets_its_workers_process_and_its_own_gpu() -> None:
    def monitor(module: str) -> FarEnd:
        return FarEnd({"begin": lambda request: {"sensors": {}}})

    remotes = {role: StandIn(HOSTS[role], monitor) for role in HOSTS}
    made = bed_of(remotes)
    with closing(made), closing(Devices(made, 0.2)) as watched:
        watched.start({EDGE: {"pid": 11, "cuda": None}, SERVER: {"pid": 22, "cuda": {"uuid": "GPU-7"}}})
        begun = {role: remotes[role].wires[0].of("begin") for role in HOSTS}
    assert begun == {
        EDGE: [{"pid": 11, "interval_s": 0.2, "gpu": None}],
        SERVER: [{"pid": 22, "interval_s": 0.2, "gpu": "GPU-7"}],
    }
