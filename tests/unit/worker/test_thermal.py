"""The processor's temperature and clock, in a tree as sysfs lays it out."""

from __future__ import annotations

from pathlib import Path

import pytest

from pareto.worker.sensors import thermal


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
    gauge = thermal.temperature(sysfs)
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
    gauge = thermal.temperature(tmp_path)
    assert gauge is not None
    (tmp_path / "sys/class/thermal/thermal_zone0/temp").unlink()
    assert gauge.read() is None


def test_frequency_is_the_mean_of_the_processors_online(tmp_path: Path) -> None:
    cpu(tmp_path, 0, 1_500_000)
    cpu(tmp_path, 1, 2_400_000)
    cpu(tmp_path, 2, "<unknown>")
    gauge = thermal.frequency(tmp_path)
    assert gauge is not None
    assert (gauge.field, gauge.source, gauge.read()) == ("frequency_hz", "cpufreq", 1.95e9)


def test_without_cpufreq_there_is_no_frequency(tmp_path: Path) -> None:
    (tmp_path / "sys/devices/system/cpu/cpu0").mkdir(parents=True)
    assert thermal.frequency(tmp_path) is None
