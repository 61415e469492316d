"""Files of sensors in a tree like sysfs."""

from __future__ import annotations

from pathlib import Path

POWERCAP = "sys/class/powercap"


def written(file: Path, text: object) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")
    return file


def zone(folder: Path, name: str, energy_uj: int | None = 0) -> Path:
    """`energy_uj` None: a file that cannot be read, whoever runs this test."""
    written(folder / "name", name)
    written(folder / "max_energy_range_uj", 1_000_000)
    if energy_uj is None:
        (folder / "energy_uj").mkdir()
    else:
        written(folder / "energy_uj", energy_uj)
    return folder


JETSON = (
    "ina3221 in1_label=VDD_IN in1_input=5000 curr1_input=1200 in2_label=VDD_CPU_GPU_CV in2_input=5000 "
    "curr2_input=400 in3_label=VDD_SOC in3_input=5000 curr3_input=200 in7_label=sum in7_input=40 "
    "update_interval=200"
)


def with_chips(sysfs: Path, chips: str) -> Path:
    for number, line in enumerate(chips.splitlines()):
        name, *files = line.split()
        for file, _, text in (each.partition("=") for each in (f"name={name}", *files)):
            written(sysfs / f"sys/class/hwmon/hwmon{number}" / file, text)
    return sysfs


CPUS = "sys/devices/system/cpu"


def cpu(sysfs: Path, number: int, of: int, **counts: int) -> None:
    written(sysfs / f"{CPUS}/cpu{number}/topology/physical_package_id", 0)
    written(sysfs / f"{CPUS}/cpu{number}/topology/core_id", of)
    for what, count in counts.items():
        written(sysfs / f"{CPUS}/cpu{number}/thermal_throttle/{what}_throttle_count", count)
