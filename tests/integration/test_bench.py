"""`bench transport` for real, small: every way in every place, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from tests.less_than_root import needs_networks
from tests.program import command, pareto, python_programs, wait_until

pytestmark = [
    pytest.mark.integration,
    needs_networks,
    pytest.mark.usefixtures("nothing_left"),
]

BENCH = ("bench", "transport")
LONG = ("--places", "veth", "--sizes", "4kB", "--rounds", "1000")


@pytest.mark.parametrize(
    ("places", "labels"),
    [
        (["loopback", "1ms-50mbit"], ["floor", "tcp", "rpc", "naive", "asyncio"]),
        pytest.param(
            *(["loopback", "veth", "1ms-50mbit"], ["floor", "tcp", "rpc", "rpc:basic", "naive", "asyncio"]),
            marks=pytest.mark.deep,
        ),
    ],
)
def test_every_way_in_every_place(tmp_path: Path, places: list[str], labels: list[str]) -> None:
    settings = ("--quick", "--rounds", "2", "--sizes", "100kB", "--netem", "1ms-50mbit", "--seed", "7")
    where = ("--places", ",".join([*places[:-1], "netem"]), "--ways", ",".join(labels))
    done = command(*BENCH, "--out", str(tmp_path), *settings, *where)
    assert done.code == 0, done
    out = done.out
    (path,) = tmp_path.iterdir()
    assert out.splitlines()[-1] == str(path)
    assert max(len(line) for line in out.splitlines() if str(path) not in line) <= 80

    record = json.loads(path.read_text())
    assert [place["name"] for place in record["places"]] == places
    for place in places:
        assert f"{place}: " in out
    for label in labels:
        assert out.count(f" {label} ") >= len(places)

    samples = record["samples"]
    taken = [(one["place"], one["nbytes"], one["way"], one["round"]) for one in samples]
    assert len(set(taken)) == len(taken) == len(places) * len(labels) * 2
    for sample in samples:
        assert sample["trip_s"] > 0
        assert sample["trips"] >= 1
        assert sample["stream_s"] > 0
        assert sample["near_cpu_s"] + sample["far_cpu_s"] > 0
        assert sample["sent_bytes"] >= sample["nbytes"] * sample["payloads"]
    assert all(one["trip_s"] > 0.001 for one in samples if one["place"] == "1ms-50mbit")

    orders = [[one["way"] for one in samples if one["round"] == number] for number in (1, 2)]
    assert orders[0] != orders[1]
    assert record["settings"]["seed"] == 7
    for place in record["places"]:
        edge, server = place["ends"]["near"], place["ends"]["far"]
        assert edge["torch"] == server["torch"]
        if os.cpu_count() != 1:
            assert edge["cores"] != server["cores"]
    assert record["places"][-1]["in_force"]["edge_to_server"]["rate_bps"] == 50e6
    assert len(record["rows"]) == len(places) * len(labels)


def programs(driver: int) -> list[psutil.Process]:
    """The benchmark's, on the hosts: what is started through a testbed's sshd descends from the driver's builder."""
    return python_programs(driver, "pareto.worker.bench")


@pytest.mark.deep
def test_ctrl_c_in_the_middle(tmp_path: Path) -> None:
    process = pareto(*BENCH, "--out", str(tmp_path), *LONG)
    assert wait_until(lambda: len(programs(process.pid)) == 2, 60)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []


def test_an_end_that_is_killed_is_one_line(tmp_path: Path) -> None:
    def kill() -> None:
        if wait_until(lambda: len(programs(os.getpid())) == 2, 60):
            programs(os.getpid())[-1].kill()

    killer = threading.Thread(target=kill)
    killer.start()
    done = command(*BENCH, "--out", str(tmp_path), *LONG)
    killer.join()
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert line.startswith("error: the benchmark broke off: ")
    assert list(tmp_path.iterdir()) == []
