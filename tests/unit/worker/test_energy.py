"""Energy since the first sample, from counters and from present power."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pareto.remote.worker.sensors.energy import Meter, Metered, rapl_meters

POWERCAP = "sys/class/powercap"


def answers(*values: float | None) -> Callable[[], float | None]:
    return iter(values).__next__


def test_a_counter_is_taken_as_it_is_from_its_first_reading_on() -> None:
    meter = Meter("x", answers(1000.0, 1003.0, 1004.0))
    assert meter.sample(10.0) == Metered(0.0, None)  # no quotient yet: not 0 W
    assert meter.sample(11.0) == Metered(3.0, 3.0)
    assert meter.sample(13.0) == Metered(4.0, 0.5)


def test_a_counter_that_misses_a_reading_has_lost_nothing() -> None:
    meter = Meter("x", answers(1000.0, None, 1004.0))
    meter.sample(0.0)
    assert meter.sample(1.0) == Metered(None, None)
    assert meter.sample(2.0) == Metered(4.0, 2.0)


def test_present_power_is_not_derived_where_it_is_read() -> None:
    meter = Meter("x", answers(0.0, 3.0), answers(20.0, None))
    assert meter.sample(0.0) == Metered(0.0, 20.0)
    assert meter.sample(1.0) == Metered(3.0, None)


def test_power_is_integrated_by_the_trapezoid_rule_over_the_real_times() -> None:
    meter = Meter("x", None, answers(2.0, 4.0, 4.0))
    assert meter.sample(10.0) == Metered(0.0, 2.0)
    assert meter.sample(10.5) == Metered(1.5, 4.0)
    assert meter.sample(13.5) == Metered(13.5, 4.0)


def test_a_missing_power_reading_is_a_sample_without_energy() -> None:
    meter = Meter("x", None, answers(2.0, None, 4.0))
    meter.sample(0.0)
    assert meter.sample(1.0) == Metered(None, None)
    after = meter.sample(2.0)
    assert after.energy_j == pytest.approx(6.0)


def zone(folder: Path, name: str, energy_uj: int | None, range_uj: int = 1_000_000) -> Path:
    """`energy_uj` None: a file that cannot be read, whoever runs this test."""
    folder.mkdir(parents=True)
    (folder / "name").write_text(name + "\n")
    (folder / "max_energy_range_uj").write_text(f"{range_uj}\n")
    if energy_uj is None:
        (folder / "energy_uj").mkdir()
    else:
        (folder / "energy_uj").write_text(f"{energy_uj}\n")
    return folder


def link_flat(powercap: Path) -> None:
    """The class folder shows subzones a second time, beside their packages."""
    for sub in powercap.glob("intel-rapl:*/intel-rapl:*"):
        (powercap / sub.name).symlink_to(sub)


def names(sysfs: Path) -> list[str]:
    return [x.name for x in rapl_meters(sysfs)]


def test_every_package_and_its_memory_once(tmp_path: Path) -> None:
    powercap = tmp_path / POWERCAP
    for n in (0, 1):
        package = zone(powercap / f"intel-rapl:{n}", f"package-{n}", 0)
        zone(package / f"intel-rapl:{n}:0", "core", 0)
        zone(package / f"intel-rapl:{n}:1", "uncore", 0)
        zone(package / f"intel-rapl:{n}:2", "dram", 0)
    zone(powercap / "intel-rapl:2", "psys", 0)
    zone(powercap / "intel-rapl-mmio:0", "package-0", 0)
    zone(powercap / "dtpm", "package-9", 0)
    link_flat(powercap)
    assert names(tmp_path) == [
        "powercap intel-rapl:0",
        "powercap intel-rapl:0:2 dram",
        "powercap intel-rapl:1",
        "powercap intel-rapl:1:2 dram",
    ]


def test_joules_since_the_first_sample_across_the_wrap(tmp_path: Path) -> None:
    folder = zone(tmp_path / POWERCAP / "intel-rapl:0", "package-0", 400_000, range_uj=1_000_000)
    (meter,) = rapl_meters(tmp_path)
    energies = [meter.sample(0.0).energy_j]
    for at_s, reading in enumerate((900_000, 100_000, 150_000, 50_000), 1):
        (folder / "energy_uj").write_text(f"{reading}\n")
        energies.append(meter.sample(float(at_s)).energy_j)
    assert energies == [pytest.approx(x) for x in (0, 0.5, 0.7, 0.75, 1.65)]


def test_a_counter_that_may_not_be_read_is_no_sensor(tmp_path: Path) -> None:
    zone(tmp_path / POWERCAP / "intel-rapl:0", "package-0", None)
    assert names(tmp_path) == []


def test_a_counter_of_unknown_range_is_no_sensor(tmp_path: Path) -> None:
    folder = zone(tmp_path / POWERCAP / "intel-rapl:0", "package-0", 0)
    (folder / "max_energy_range_uj").unlink()
    assert names(tmp_path) == []


def test_a_counter_that_goes_away_gives_no_energy(tmp_path: Path) -> None:
    folder = zone(tmp_path / POWERCAP / "intel-rapl:0", "package-0", 0)
    (meter,) = rapl_meters(tmp_path)
    meter.sample(0.0)
    (folder / "energy_uj").unlink()
    assert meter.sample(1.0).energy_j is None


def test_a_machine_without_powercap_has_none(tmp_path: Path) -> None:
    assert names(tmp_path) == []
