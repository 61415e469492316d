"""What a device's sensors say of a trial, and the monitors that are asked for it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from pareto.hosts.connection import ChildProcess
from pareto.hosts.host import EDGE, SERVER
from pareto.hosts.testbed import Testbed
from pareto.protocol.jsonlines import plain
from pareto.protocol.own import Own
from pareto.protocol.trial_messages import Usage
from pareto.remote.worker.sensors.throttled import throttled_words
from pareto.trial import devices
from pareto.trial.devices import Devices
from pareto.trial.result import HostReport
from tests import REPOSITORY
from tests.unit.far_end import HOSTS, FarEnd, StandIn, bed_of
from tests.unit.reported import facts

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
    f"{RAPL}/name": "package-0", f"{RAPL}/max_energy_range_uj": "1000000000",
    f"{RAPL}/energy_uj": "7000000", "sys/class/hwmon/hwmon0/name": "cpu_thermal",
    "sys/class/hwmon/hwmon0/temp1_input": "52350",
}  # fmt: skip
SERIES: dict[str, list[Any]] = {
    "at_s": [10.0, 11.0, 12.0, 13.0, 14.0, 15.0, 16.0], "energy_j": [0.0, 5.0, 10.0, 30.0, 50.0, 70.0, 75.0],
    "temperature_c": [40.0, 41.0, 45.0, 50.0, 48.0, 47.0, 99.0],
    "frequency_hz": [1e9, 1e9, 2e9, 2e9, 2e9, 1e9, 9e9], "gpu_percent": [None] * 7,
    "throttled": [0, 0, 0, CAPPED, UNDER_VOLTAGE, 0, 0x8], "busy_s": [0.0, 0.0, 1.0, 1.5, 2.0, 2.5, 9.0],
    "others_s": [5.0, 5.0, 6.0, 6.5, 7.0, 7.0, 9.0], "steal_s": [0.0, 0.0, 0.1, 0.1, 0.1, 0.2, 0.2],
    "throttled_s": [0.0, 0.0, 0.0, 0.3, 0.6, 0.9, 0.9],
}  # fmt: skip
USAGE = {"trial_window": [11.0, 15.0], "throughput_window": [12.0, 15.0], "throughput_window_requests": 5}
REPORTED = {"cpu_percent": 5.0, "rss_bytes": 4 << 20, "peak_rss_bytes": 7 << 20, "gpu_s": 0.25}
USAGE |= REPORTED


def usage(**changes: Any) -> Usage:
    nothing = dict.fromkeys(field.name for field in fields(Usage))
    return Usage(**{**nothing, **USAGE, **changes})


def columns(series: devices.Series | None, images: int = 1, **changes: Any) -> dict[str, Any]:
    of_host = {"idle_power_w": changes.pop("idle_power_w", None), "meter": ("", changes.pop("least_s", 0.0))}
    return devices.columns(series, HostReport(usage(**changes), **of_host), images)


def test_a_trials_columns() -> None:
    assert columns(SERIES, images=4) == {
        **{**REPORTED, "temperature_c": 50.0, "throttled": "0x3"},
        **{"frequency_hz": pytest.approx(8e9 / 5), "gpu_percent": None, "gpu_memory_bytes": None},
        "gpu_temperature_c": None,
        **{"steal_percent": pytest.approx(5.0), "others_percent": None, "wait_percent": None},
        "core_percent": pytest.approx(100 * (1.5 - 1.0 + 0.9) / 3),
        "energy_j": pytest.approx((70.0 - 10.0) / (5 * 4)),
    }


def test_the_active_energy_is_what_is_above_idle() -> None:
    """Idle, the device draws what it drew in the window less 4 W: what an image is charged is 4 W x the time of one."""
    begin, end = USAGE["throughput_window"]
    made = columns(SERIES, images=4, idle_power_w=60.0 / (end - begin) - 4.0)
    charged = made["energy_j"], made["active_energy_j"]
    assert charged == pytest.approx((60.0 / (5 * 4), 4.0 * (end - begin) / (5 * 4)))
    assert "active_energy_j" not in columns(SERIES, images=4)


def test_a_meter_that_was_not_read_for_long_enough_has_no_energy() -> None:
    made = [columns(SERIES, idle_power_w=1.0, least_s=least_s) for least_s in (3.0, 3.1)]
    assert made[0]["energy_j"] is not None
    assert made[1]["energy_j"] is None and "active_energy_j" not in made[1]


COLUMNS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "a quota used up": ({"throttled_s": [0.9 * at for at in SERIES["at_s"]]}, {}, {"core_percent": 100.0}),
    "a busy core": ({"throttled_s": [None] * 7}, {}, {"core_percent": pytest.approx(50.0)}),
    # Under a quota it is not known: the kernel samples it at its ticks, in step with which the quota begins anew.
    "others": ({"throttled_s": [0.0] * 7}, {}, {"others_percent": pytest.approx(50.0)}),
    "not throttled": ({"throttled": [0] * 7}, {}, {"throttled": "0x0"}),
    "unknown": ({"throttled": [None] * 7, "energy_j": [None] * 7}, {}, {"throttled": None, "energy_j": None}),
    "no steady part": ({}, {"throughput_window": None, "throughput_window_requests": None}, {}),
    "no request": ({}, {"throughput_window_requests": 0}, {}),
}


@pytest.mark.parametrize(("series", "changes", "made"), COLUMNS.values(), ids=COLUMNS)
def test_a_column_is_of_what_was_seen(series: Any, changes: Any, made: Any) -> None:
    found = columns({**SERIES, **series}, **changes)
    assert {name: found[name] for name in made} == made
    assert ("energy_j" in found) == (not changes)


def test_without_samples_or_a_window_only_what_the_worker_reports() -> None:
    for series, window in ((None, (11.0, 15.0)), (SERIES, None), (None, None)):
        assert columns(series, trial_window=window) == REPORTED


def test_what_held_a_device_back_is_said(snapshot: object) -> None:
    said = devices.throttling(SERVER, SERIES, usage().trial_window)
    assert SERVER in said
    assert said == snapshot


@pytest.mark.parametrize("bits", [0, None, 0x50000, 0x80])
def test_what_was_so_before_or_cannot_be_seen_is_not_held_against_it(bits: int | None) -> None:
    assert devices.throttling(EDGE, {**SERIES, "throttled": [bits] * 7}, usage().trial_window) == ""


@pytest.mark.parametrize("bits", [0x10, 0x20, 0x40, 0xA0])
def test_heat_and_a_lack_of_power_spoil_a_trial_whoever_tells_of_it(bits: int) -> None:
    words = throttled_words(bits & ~0x80)
    said = devices.throttling(EDGE, {**SERIES, "throttled": [0, 0, bits, 0, 0, 0, 0]}, usage().trial_window)
    assert said == f"the edge throttled: {', '.join(words)}"


def test_the_samples_of_a_window_and_those_around_it() -> None:
    inside = {field: values[2:6] for field, values in SERIES.items()}
    assert devices.within(SERIES, (12.5, 14.0)) == {**inside, "at_s": [-0.5, 0.5, 1.5, 2.5]}
    assert devices.within(SERIES, (12.5, 14.0), margin_s=0.0)["at_s"] == [0.5, 1.5]
    assert devices.within(SERIES, (20.0, 30.0))["at_s"] == []


TIMES = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
ALL = 0.0, 5.0
ENERGY = [0.0, 10.0, 20.0, 50.0, 60.0, 80.0]  # watts between them: 10 10 30 10 20
NOTHING = dict.fromkeys(("temperature_c", "frequency_hz", "throttled", "gpu_percent", "gpu_memory_bytes"))
NOTHING |= {"gpu_temperature_c": None}


def series(**columns: list[float | None]) -> devices.Series:
    return {"at_s": TIMES, **columns}


def energies(*missed: int) -> devices.Series:
    """The counter, without the readings of these numbers."""
    return series(energy_j=[None if number in missed else at for number, at in enumerate(ENERGY)])


PER_IMAGE: dict[str, tuple[devices.Series, tuple[float, float], int, float | None]] = {
    "between samples": (energies(), (0.5, 4.25), 1, 65.0 - 5.0),
    "of many images": (energies(), (0.5, 4.25), 30, 2.0),
    **{f"of {images} images": (energies(), (1.0, 4.0), images, None) for images in (0, -1)},
    "all": (energies(), (0.0, 5.0), 1, 80.0),
    "on samples": (energies(), (1.0, 3.0), 1, 40.0),
    "three samples": (energies(), (0.9, 3.0), 1, 41.0),
    # Two samples, one that begins too early, one that ends too late, after all, before all.
    **{
        f"{window}": (energies(), window, 1, None)
        for window in ((0.9, 2.1), (-0.1, 4.0), (1.0, 5.1), (6.0, 9.0), (-9.0, -6.0))
    },
    "no column": (series(), (1.0, 4.0), 1, None),
    "never measured": (energies(*range(6)), (1.0, 4.0), 1, None),
    "nothing": ({}, (1.0, 4.0), 1, None),
    **{f"{missed} missed": (energies(missed), (0.5, 3.5), 1, None) for missed in range(5)},
    "missed elsewhere": (energies(5), (0.5, 3.5), 1, 50.0),
}


@pytest.mark.parametrize(("columns", "window", "images", "energy_j"), PER_IMAGE.values(), ids=PER_IMAGE)
def test_energy_is_interpolated_and_shared_out(columns: Any, window: Any, images: int, energy_j: Any) -> None:
    assert devices.energy_per_image(columns, window, images) == pytest.approx(energy_j)


COUNTED = [0.0, 57.0, 114.0, 171.0, 228.0, 285.0]
STANDING: dict[str, tuple[dict[str, list[float | None]], float, float | None, str]] = {
    "of one sensor": ({}, 3.0, None, ""),
    "a counter and its power": ({"counted_j": [*COUNTED], "integrated_j": [*COUNTED]}, 0.0, 1.0, ""),
    # As was reported of one GPU: 187 J by its counter, 327 J by its power
    "that differ": (
        {"counted_j": [*COUNTED], "integrated_j": [327 / 187 * each for each in COUNTED]},
        *(0.0, 187 / 327, "doubtful: its counter has 57% of what its power adds up to"),
    ),
    "of a power of 0": ({"counted_j": [*COUNTED], "integrated_j": [0.0] * 6}, 0.0, None, ""),
    "too short": ({}, 3.5, None, "none: it was read for 3 s of the 3.5 s that it needs"),
    "missed": ({"energy_j": [None, *COUNTED[1:]]}, 0.0, None, "none: too few readings, or one was missed"),
}


@pytest.mark.parametrize(("more", "least_s", "ratio", "doubt"), STANDING.values(), ids=STANDING)
def test_how_far_an_energy_can_be_trusted(more: Any, least_s: float, ratio: Any, doubt: str) -> None:
    samples = series(**{"energy_j": [*ENERGY], **more})
    host = HostReport(usage(throughput_window=(0.5, 3.5)), meter=("a meter", least_s))
    assert devices.energy_standing(samples, host) == {
        "energy_source": "a meter",
        "energy_ratio": ratio and pytest.approx(ratio),
        "energy_doubt": doubt,
    }
    without = replace(host, meter=("", 0.0)), replace(host, usage=usage(throughput_window=None))
    for nothing in ((None, host), *((samples, each) for each in without)):
        assert devices.energy_standing(*nothing) == {}


BUSY = series(busy_s=[0.0, 0.5, 1.5, 1.5, 1.5, 2.5])
SHARES: dict[str, tuple[devices.Series, tuple[float, float], Any]] = {
    "all": (BUSY, (0.0, 5.0), pytest.approx(0.5)),
    "between samples": (BUSY, (0.5, 1.5), pytest.approx(0.75)),
    "between two": (BUSY, (2.2, 2.8), 0.0),
    # Two counts that are read one after the other are not quite of the same time.
    "falls back a little": (series(busy_s=[0.0, 0.0, -0.01, -0.01, 0.0, 0.0]), (1.0, 2.0), 0.0),
    "begins too early": (BUSY, (-0.1, 4.0), None),
    "ends too late": (BUSY, (1.0, 5.1), None),
    "no time": (BUSY, (2.0, 2.0), None),
    "no column": (series(), (1.0, 2.0), None),
    "never measured": (series(busy_s=[None] * 6), (1.0, 2.0), None),
}


@pytest.mark.parametrize(("counted", "window", "share"), SHARES.values(), ids=SHARES)
def test_a_counters_share_is_interpolated(counted: Any, window: Any, share: Any) -> None:
    assert devices.share(counted, "busy_s", window) == share


SEEN = series(
    temperature_c=[90.0, 50.0, 55.0, 52.0, 91.0, 92.0], frequency_hz=[0.0, 1e9, 2e9, 3e9, 0.0, 0.0],
    throttled=[0x8, 0x50000, 0x50001, 0x50004, 0x8, 0x8],
    gpu_percent=[100.0, 10.0, 20.0, 60.0, 100.0, 100.0], gpu_memory_bytes=[99, 5, 7, 6, 99, 99],
    gpu_temperature_c=[99.0, 61.0, 63.0, 62.0, 99.0, 99.0],
)  # fmt: skip
SUMMARIES: dict[str, tuple[devices.Series, tuple[float, float], dict[str, Any]]] = {
    "inside": (SEEN, (1.0, 3.0), dict(zip(NOTHING, (55.0, 2e9, 0x5, 30.0, 7, 63.0), strict=True))),
    "some missed": (series(frequency_hz=[None, 2.0, None, 4.0, None, None]), ALL, {"frequency_hz": 3.0}),
    # What was so since boot comes up in the window: 0x40000 is "has been throttled".
    "throttled between two": (series(throttled=[*[0x10000] * 3, *[0x50000] * 3]), ALL, {"throttled": 0x4}),
    "throttled before": (series(throttled=[0x50000] * 6), ALL, {"throttled": 0}),
    "not throttled": (series(throttled=[0] * 6), ALL, {"throttled": 0}),
    "no column": (series(), ALL, {}),
    # Of a GPU and a processor, which no firmware sums up since it was started
    "GPU and processor": (series(throttled=[0, 0x10, 0, 0xA0, 0, 0]), ALL, {"throttled": 0xB0}),
    "never measured": (series(frequency_hz=[None] * 6), ALL, {}),
    "nothing": ({}, ALL, {}),
    "between two samples": (series(frequency_hz=[1.0] * 6), (1.2, 1.8), {}),
}


@pytest.mark.parametrize(("columns", "window", "found"), SUMMARIES.values(), ids=SUMMARIES)
def test_summary_of_the_samples_inside(columns: Any, window: Any, found: Any) -> None:
    assert devices.summary(columns, window) == {**NOTHING, **found}


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
    with ExitStack() as made:

        def started(role: str) -> Callable[[str], ChildProcess]:
            environment = {**os.environ, "PATH": paths[role]}
            argv = [sys.executable, "-m"], ["--sysfs", str(tmp_path / role)]
            return lambda module: ChildProcess([*argv[0], module, *argv[1]], cwd=REPOSITORY, env=environment)

        def make(is_local: bool = False) -> Testbed:
            remotes = {role: StandIn(replace(HOSTS[role], device="cpu"), started(role)) for role in HOSTS}
            return made.enter_context(closing(bed_of(remotes, is_local=is_local)))

        yield make


@contextmanager
def watching(bed: Testbed, gpu: str | None = None) -> Iterator[Devices]:
    """Both devices' monitors, watching this process and its GPU."""
    with closing(Devices(bed, INTERVAL_S)) as watched:
        watched.start({role: facts(os.getpid(), gpu) for role in HOSTS})
        yield watched


def idle_power_w(watched: Devices, monkeypatch: pytest.MonkeyPatch) -> float:
    """The edge's, over a time in which it was sampled twice, however slow this machine is."""
    seconds = 5 * INTERVAL_S
    while True:
        monkeypatch.setattr(devices, "IDLE_S", seconds)
        facts = watched.facts()
        sensors = {"cpu_percent": "psutil", "rss_bytes": "psutil"}
        assert facts[SERVER] == {"sensors": sensors, "idle_power_w": None}
        if (power_w := facts[EDGE]["idle_power_w"]) is not None:
            return float(power_w)
        seconds *= 2


def test_what_sensors_there_are_and_say(bed: Callable[..., Testbed], monkeypatch: pytest.MonkeyPatch) -> None:
    with watching(bed()) as watched:
        first = watched.latest()
        assert list(first) == [EDGE, SERVER]
        assert (first[EDGE]["temperature_c"], first[EDGE]["throttled"]) == (52.35, 0x50005)
        assert first[SERVER]["temperature_c"] is first[SERVER]["energy_j"] is None
        while (newer := watched.latest())[EDGE]["at_s"] <= first[EDGE]["at_s"]:
            pass
        assert newer[EDGE]["power_w"] == pytest.approx(PMIC_W)  # of the very first there is none yet
        assert idle_power_w(watched, monkeypatch) == pytest.approx(PMIC_W)
        energy = "powercap intel-rapl:0 + vcgencmd pmic_read_adc"
        assert watched.facts()[EDGE]["sensors"] == {
            **{"cpu_percent": "psutil", "rss_bytes": "psutil", "temperature_c": "cpu_thermal"},
            **{"throttled": "vcgencmd get_throttled", "energy_j": energy, "power_w": energy},
        }
        assert watched.least_window_s == 4 * INTERVAL_S
        assert watched.meter(EDGE) == (energy, 0.0) and watched.meter(SERVER) == ("", 0.0)
        out = watched.facts()[EDGE]["energy_leaves_out"]
        assert all(f"{name}: " in out for name in energy.split(" + "))
        for cost in watched.cost().values():
            assert set(cost) == {"cpu_percent", "samples", "late_p99_s"}
            assert cost["samples"] >= 1


@pytest.mark.parametrize(("is_local", "gpu"), [(True, None), (False, "GPU-7")])
def test_one_machines_energy_is_nobodys(bed: Callable[..., Testbed], is_local: bool, gpu: str | None) -> None:
    """On the local testbed, and where hosts have one GPU: what both took cannot be told apart, and no time is spent
    waiting for it."""
    with watching(bed(is_local), gpu) as watched:
        facts, latest = watched.facts()[EDGE], watched.latest()[EDGE]
        assert set(facts["sensors"]) == {"cpu_percent", "rss_bytes", "temperature_c", "throttled"}
        assert (facts["idle_power_w"], watched.least_window_s) == (None, 0.0)
        assert "energy_leaves_out" not in facts and watched.meter(EDGE) == ("", 0.0)
        assert not {"energy_j", "power_w"} & set(latest)
        columns = watched.collect()[EDGE]
        assert columns["energy_j"] == columns["power_w"] == [None] * len(columns["at_s"])
        assert {*columns["temperature_c"], latest["temperature_c"]} == {52.35}


def test_closing_ends_the_monitors_and_they_can_begin_again(bed: Callable[..., Testbed]) -> None:
    made = bed()
    watched = Devices(made, INTERVAL_S)
    for _ in range(2):
        watched.start({role: facts(os.getpid()) for role in HOSTS})
        watched.close()
    wires = [wire for remote in made.remotes.values() for wire in remote.wires]  # type: ignore[attr-defined]
    assert [wire.process.returncode for wire in wires] == [0] * 4


def test_each_monitor_gets_its_workers_process_its_own_gpu_and_its_own_meter(tmp_path: Path) -> None:
    (tmp_path / "shelly.py").write_text("class Plug: ...")
    meter = Own("shelly.Plug", f"{tmp_path}/shelly.py", "Plug", f"{tmp_path}/shelly.py")
    answers = {"begin": lambda request: {"by_field": {}, "least_window_s": 0.0}}
    hosts = HOSTS | {EDGE: replace(HOSTS[EDGE], meter=meter)}
    remotes = {role: StandIn(hosts[role], lambda module: FarEnd(answers)) for role in HOSTS}
    made = bed_of(remotes)
    with closing(made), closing(Devices(made, 0.2)) as watched:
        watched.start({EDGE: facts(11), SERVER: facts(22, "GPU-7")})
        begun = [remotes[role].wires[0].of("begin") for role in (EDGE, SERVER)]
    asked = ((11, None), (22, "GPU-7"))
    digest = sha256(b"class Plug: ...").hexdigest()
    there = plain(replace(meter, file=f"{HOSTS[EDGE].folder}/{digest}.py"))
    assert begun == [
        [{"pid": pid, "interval_s": 0.2, "gpu": gpu, "meter": of_host}]
        for (pid, gpu), of_host in zip(asked, (there, None), strict=True)
    ]
