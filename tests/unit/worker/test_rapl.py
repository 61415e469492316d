"""RAPL counters in a powercap tree as the kernel lays it out."""

from __future__ import annotations

from pathlib import Path

import pytest

from pareto.worker.sensors import rapl

POWERCAP = "sys/class/powercap"


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
    return [x.name for x in rapl.meters(sysfs)]


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
    (meter,) = rapl.meters(tmp_path)
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
    (meter,) = rapl.meters(tmp_path)
    meter.sample(0.0)
    (folder / "energy_uj").unlink()
    assert meter.sample(1.0).energy_j is None


def test_a_machine_without_powercap_has_none(tmp_path: Path) -> None:
    assert names(tmp_path) == []
