"""What happens to the command itself, or to the folder that it writes to: whole runs, gone on with."""

from __future__ import annotations

import csv
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from pareto.trial.store import REDONE
from tests.faults.harness import MEASURED, NET, now_s
from tests.faults.table import DRIVER, ENDED, Fault
from tests.integration.own_machine import left_behind
from tests.less_than_root import needs_networks
from tests.program import LENIENT, descendants, ended, pareto, wait_until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    needs_networks,
]
FAULTS = DRIVER
ROUNDS = 4
SWEEP = (
    "--model",
    f"{NET}:build",
    "--points",
    "1",
    "--only",
    "--backend",
    "tcp",
    "--netem",
    "none",
    "--quick",
)
REPORT = ("--figures", "none")
START_S = 200.0


def test_fault(
    tmp_path: Path, machine: None, fault: Fault, note: Callable[[Fault, str, float | None], None]
) -> None:
    with disk(fault, tmp_path) as out:
        process = pareto(*SWEEP, "--trials", str(ROUNDS), *LENIENT, *REPORT, "--out", str(out))
        assert wait_until(lambda: len(rows(out)) >= 2, START_S), process.communicate()
        (run,) = out.iterdir()
        family, kept = descendants(process.pid), rows(out)
        began_s = now_s()
        strike(fault, process, run)
        said = "".join(process.communicate(timeout=START_S))
        noticed_s = now_s() - began_s
        assert "Traceback" not in said
        assert fault.reason in said
        assert ended(family), family
        assert wait_until(lambda: not left_behind()), left_behind()
        if fault.then == ENDED:
            assert process.returncode != 0
        mend(fault, out)
        if fault.whom != "the run's folder":
            again = pareto("--resume", str(run), *SWEEP[:2], *REPORT)
            said_then = "".join(again.communicate(timeout=START_S))
            assert "Traceback" not in said_then
            found = rows(out)
            sound = [row for row in kept if row["status"] not in REDONE]
            assert found[: len(sound)] == sound
            assert Counter(row["round"] for row in found) == {str(n): 1 for n in range(1, ROUNDS + 1)}
            assert {row["status"] for row in found} <= set(MEASURED), said_then
    line = next((line for line in said.splitlines() if fault.reason in line), "")
    note(fault, line, noticed_s if fault.then == ENDED else None)


@contextmanager
def disk(fault: Fault, folder: Path) -> Iterator[Path]:
    """A folder for the results on a disk of its own: one of ext4 where it is to become read-only by an error."""
    disk = folder / "disk"
    disk.mkdir()
    if fault.what == "read-only":
        with image_of(disk).open("wb") as file:
            file.truncate(16 << 20)
        subprocess.run(["mkfs.ext4", "-q", str(image_of(disk))], check=True)
        mount_image(disk)
    else:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], check=True)
    try:
        (disk / "results").mkdir()
        yield disk / "results"
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def image_of(disk: Path) -> Path:
    return disk.with_name("image")


def mount_image(disk: Path) -> None:
    options = ["-o", "loop,errors=remount-ro"]
    subprocess.run(["mount", *options, str(image_of(disk)), str(disk)], check=True)


def rows(out: Path) -> list[dict[str, str]]:
    """Those that are whole."""
    found = []
    for path in out.glob("*/trials.csv"):
        with path.open(newline="") as file:
            found += [row for row in csv.DictReader(file) if row["restart"]]
    return found


def strike(fault: Fault, process: subprocess.Popen[str], run: Path) -> None:
    if fault.what.startswith("SIG"):
        process.send_signal(signal.Signals[fault.what])
    elif fault.what == "full":
        with (run.parent / "fill").open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(1 << 12))
    elif fault.what == "read-only":
        (device,) = (
            partition.device
            for partition in psutil.disk_partitions()
            if partition.mountpoint == str(run.parents[1])
        )
        Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error").write_text("1")
    elif fault.what == "removed":
        shutil.rmtree(run)
    else:
        process.send_signal(signal.SIGSTOP)  # so that it is still there then
        try:
            second = pareto("--resume", str(run), *SWEEP[:2], *REPORT)
            said = "".join(second.communicate(timeout=START_S))
        finally:
            process.send_signal(signal.SIGCONT)
        assert second.returncode == 2, said


def mend(fault: Fault, out: Path) -> None:
    if fault.what == "full":
        (out / "fill").unlink()
    elif fault.what == "read-only":
        subprocess.run(["umount", str(out.parent)], check=True)
        mount_image(out.parent)
