"""A run whose disk fails, whose folder is wanted twice, or that ends before it began: nothing measured is lost."""

from __future__ import annotations

import csv
import signal
import socket
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pareto.analysis.schema import TRIALS
from pareto.models.prepare import prepare
from pareto.partitions import scratch
from pareto.sweep.sweep import Sweep
from tests.program import Ended, measured, wait_until
from tests.unit.own_command import Command, can_mount, small_disk, small_files
from tests.unit.simulated.worlds import MODEL

WORLD = "hosts: {edge: {gflops: 0.02}, server: {gflops: 0.2}}\nrequests: 20"
"""A trial has few requests, so that it takes no time."""
POINTS = ("0", "3", "7")
Words = tuple[str, ...]
NOBODY = """
hosts:
  edge: {role: edge, ssh: 127.0.0.1, port: 1, data_address: 127.0.0.1}
  server: {role: server, ssh: 127.0.0.1, port: 1, data_address: 127.0.0.2}
"""


def simulated(out: Path) -> Words:
    """Of results in a folder beside its world."""
    return ("--model", MODEL, "--testbed", f"simulated:{out.parent}/world.yaml", "--figures", "none")


@pytest.fixture
def job(out: Path) -> Words:
    """Far more trials than any test waits for."""
    (out.parent / "world.yaml").write_text(WORLD)
    words = f"--netem 10ms-50mbit --trials 1000 --points {','.join(POINTS)} --only --backend tcp --out {out}"
    return (*simulated(out), *words.split())


@pytest.fixture
def out(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


@pytest.fixture
def disk(out: Path) -> Path:
    """A folder for a small disk."""
    return mountable(out)


def mountable(folder: Path) -> Path:
    if not can_mount(folder):
        pytest.skip("no file system can be mounted here")
    return folder


@pytest.fixture
def running(job: Words, out: Path, tmp_path: Path) -> Iterator[Command]:
    """A run that has measured something."""
    started = Command(*job, log=tmp_path / "log")
    assert wait_until(lambda: rows(out), 60)
    yield started
    started.process.kill()
    started.process.join()


def run_in(out: Path) -> Path:
    (run,) = out.iterdir()
    return run


def rows(out: Path) -> list[dict[str, str]]:
    """What is whole; every row has every column."""
    try:
        text = (run_in(out) / "trials.csv").read_text()
    except (ValueError, FileNotFoundError):
        return []
    lines = list(csv.reader(text[: text.rfind("\n") + 1].splitlines()))
    assert all(len(line) == len(TRIALS.columns) for line in lines)
    return [dict(zip(TRIALS.columns, line, strict=True)) for line in lines[1:]]


def resumed(out: Path, rounds: int) -> Ended:
    """Of the rounds that were measured no more are wanted than these."""
    manifest = run_in(out) / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"trials": 1000', f'"trials": {rounds}'))
    return measured("--resume", str(run_in(out)), *simulated(out))


def goes_on(out: Path) -> None:
    """Its rows are whole, and they stay when it goes on."""
    kept = rows(out)
    assert (run_in(out) / "trials.csv").read_text().endswith("\n")
    rounds = 2 + max(int(row["round"]) for row in kept)
    done = resumed(out, rounds)
    assert done.code == 0, done
    again = rows(out)
    assert again[: len(kept)] == kept
    each = Counter((row["point"], row["round"]) for row in again)
    assert not [path for path in run_in(out).rglob("*") if path.name == ".lock" or path.suffix == ".new"]
    assert each == {(point, str(number)): 1 for point in POINTS for number in range(1, rounds + 1)}


def broke(ended: Ended, why: str) -> None:
    """It said what is wrong and how to go on."""
    assert (ended.code, ended.err) == (1, ""), ended
    assert "Traceback" not in ended.out
    assert [why in line for line in ended.out.splitlines() if line.startswith("error: ")] == [True]
    assert any(line.startswith("go on with: ./pareto.sh --resume") for line in ended.out.splitlines())


def test_a_disk_that_becomes_full(job: Words, disk: Path, tmp_path: Path) -> None:
    kept, small = tmp_path / "kept", partial(small_disk, disk, "size=128k")
    broke(
        Command(*job, log=tmp_path / "log", before=small, keep=(disk, kept)).ended(),
        "No space left on device",
    )
    goes_on(kept)


def test_a_file_that_becomes_too_large(job: Words, out: Path, tmp_path: Path) -> None:
    full = Command(*job, log=tmp_path / "log", before=partial(small_files, 10_000))
    broke(full.ended(), "trials.csv: File too large")
    goes_on(out)


def test_a_disk_that_becomes_read_only(running: Command, disk: Path, tmp_path: Path) -> None:
    running.process.kill()
    running.process.join()
    aside, log = tmp_path / "aside", tmp_path / "again"
    aside.mkdir()
    log.mkdir()
    before = len(rows(disk))
    in_private = partial(small_disk, log, "size=4k")
    own = Command("--resume", str(run_in(disk)), *simulated(disk)[:4], log=log, before=in_private)
    assert wait_until(lambda: len(rows(disk)) > before, 60)
    # A mount by which somebody writes at the moment cannot be made read-only; one that is in its place can be.
    for action in (("--bind", disk, aside), ("-o", "remount,ro,bind", aside), ("--bind", aside, disk)):
        subprocess.run(["nsenter", "-t", str(own.pid), "-m", "mount", *action], check=True)
    broke(own.ended(), "Read-only file system")
    goes_on(disk)


def test_a_folder_that_is_removed(running: Command, out: Path) -> None:
    run_in(out).rename(out.parent / "elsewhere")
    ended = running.ended()
    assert (ended.code, ended.err) == (1, ""), ended
    assert "No such file or directory" in ended.out
    assert "--resume" not in ended.out
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("options", ["size=4k", "size=16k", "nr_inodes=3", "nr_inodes=6"])
def test_a_disk_that_is_full_at_the_start(job: Words, disk: Path, tmp_path: Path, options: str) -> None:
    kept, small = tmp_path / "kept", partial(small_disk, disk, options)
    ended = Command(*job, log=tmp_path / "log", before=small, keep=(disk, kept)).ended()
    said = ended.err + ended.out
    assert "No space left on device" in said
    assert len([line for line in said.splitlines() if line.startswith("error: ")]) == 1
    assert "Traceback" not in said
    assert list(kept.iterdir()) == []


def test_ctrl_c_before_the_first_trial_leaves_no_folder(tmp_path: Path) -> None:
    """While it logs in to a host that does not answer."""
    out = tmp_path / "made" / "for it"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        (tmp_path / "lab.yaml").write_text(NOBODY.replace("port: 1", f"port: {port}"))
        options = ("--testbed", f"{tmp_path}/lab.yaml", "--trials", "1", "--out", str(out))
        started = Command(
            "--model", MODEL, *options, log=tmp_path / "log", environment={"HOME": str(tmp_path)}
        )
        silent.settimeout(60)
        with closing(silent.accept()[0]):
            assert (run_in(out) / "trials.csv").exists()
            started.send(signal.SIGINT)
            ended = started.ended()
    assert ended.code == 130, ended
    assert "Traceback" not in ended.out + ended.err
    assert "--resume" not in ended.out
    assert not (tmp_path / "made").exists()


def test_a_run_has_one_writer_and_its_lock_dies_with_it(running: Command, out: Path) -> None:
    second = resumed(out, 1000)
    assert second.code == 2
    (line,) = second.err.splitlines()
    assert str(run_in(out)) in line
    assert f"process {running.pid}" in line
    running.send(signal.SIGKILL)
    running.process.join()
    goes_on(out)


DYING = """
import os, signal, tempfile
from pathlib import Path
from typing import Any
from torch import nn

def build():
    if [*Path(tempfile.gettempdir()).glob("pareto-*/*.safetensors")]:
        os.kill(os.getpid(), signal.SIGKILL)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU())
"""


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    (tmp_path / "lab.yaml").write_text(NOBODY)
    (tmp_path / "temporary").mkdir()
    return tmp_path / "temporary"


def preparing(model: str, tmp_path: Path, **how: Any) -> Ended:
    """A run that prepares this model in a temporary folder of its own."""
    where = ("--testbed", f"{tmp_path}/lab.yaml", "--out", f"{tmp_path}/out")
    environment = {"TMPDIR": f"{tmp_path}/temporary"}
    return Command("--model", model, *where, log=tmp_path / "log", environment=environment, **how).ended()


def test_what_a_killed_preparation_leaves_is_known_and_removed(
    tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is killed when the weights lie there."""
    (tmp_path / "dying.py").write_text(DYING)
    assert preparing(f"{tmp_path}/dying.py:build", tmp_path).code == -signal.SIGKILL
    (left,) = temporary.iterdir()
    assert [*left.glob("*.safetensors")]
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    assert scratch.left() == [left]
    prepare(MODEL, Sweep(model=MODEL))
    assert [*temporary.iterdir()] == []


def test_a_disk_without_room_for_the_weights(tmp_path: Path, temporary: Path) -> None:
    kept, small = tmp_path / "kept", partial(small_disk, mountable(temporary), "size=8k")
    ended = preparing(MODEL, tmp_path, before=small, keep=(temporary, kept))
    assert ended.code == 2, ended
    (line,) = ended.err.splitlines()
    assert "No space left on device" in line
    assert str(temporary) in line
    assert [*kept.iterdir()] == []
    assert not (tmp_path / "out").exists()
