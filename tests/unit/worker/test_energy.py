"""Energy since the first sample, from counters and from present power."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pareto.remote.worker.sensors.energy import Meter, rapl_meters

POWERCAP = "sys/class/powercap"


def answers(*values: float | None) -> Callable[[], float | None]:
    return iter(values).__next__


METERS = {
    "a counter, from its first reading on; without a quotient its power is unknown, not 0": (
        Meter("x", answers(1000.0, 1003.0, 1004.0)),
        {10.0: (0.0, None), 11.0: (3.0, 3.0), 13.0: (4.0, 0.5)},
    ),
    "a counter that misses a reading has lost nothing": (
        Meter("x", answers(1000.0, None, 1004.0)),
        {0.0: (0.0, None), 1.0: (None, None), 2.0: (4.0, 2.0)},
    ),
    "power that is read is not derived": (
        Meter("x", answers(0.0, 3.0), answers(20.0, None)),
        {0.0: (0.0, 20.0), 1.0: (3.0, None)},
    ),
    "power alone, by the trapezoid rule over the real times": (
        Meter("x", None, answers(2.0, 4.0, 4.0)),
        {10.0: (0.0, 2.0), 10.5: (1.5, 4.0), 13.5: (13.5, 4.0)},
    ),
    "a reading of power is missing": (
        Meter("x", None, answers(2.0, None, 4.0)),
        {0.0: (0.0, 2.0), 1.0: (None, None), 2.0: (6.0, 4.0)},
    ),
}


@pytest.mark.parametrize(("meter", "expected"), METERS.values(), ids=METERS)
def test_energy_since_the_first_reading(
    meter: Meter, expected: dict[float, tuple[float | None, float | None]]
) -> None:
    assert {at_s: tuple(meter.sample(at_s)) for at_s in expected} == expected


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
    (folder / "energy_uj").unlink()
    assert meter.sample(9.0).energy_j is None


def test_a_counter_that_may_not_be_read_or_has_no_known_range_is_no_sensor(tmp_path: Path) -> None:
    assert names(tmp_path) == []
    zone(tmp_path / POWERCAP / "intel-rapl:0", "package-0", None)
    assert names(tmp_path) == []
    folder = zone(tmp_path / POWERCAP / "intel-rapl:1", "package-1", 0)
    assert names(tmp_path) == ["powercap intel-rapl:1"]
    (folder / "max_energy_range_uj").unlink()
    assert names(tmp_path) == []
