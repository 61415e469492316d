"""A sweep without SSH: one namespace serves, another is edge and driver. And what is left when one of them dies."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyroute2 import IPRoute, netns

from tests.integration.test_sweep import exit_code, only_run, rows_in, sound
from tests.less_than_root import needs_networks
from tests.program import descendants, ended, started

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    needs_networks,
    pytest.mark.usefixtures("nothing_left"),
]

EDGE, SERVER = "198.19.127.1", "198.19.127.2"
NET = Path(__file__).parents[1] / "faults" / "net.py"
SWEEP = (
    "--model",
    f"{NET}:build",
    "--points",
    "1",
    "--quick",
    "--figures",
    "none",
    "--sample",
    "off",
    *("--rtt-floor", "100ms", "--slowdown", "100", "--others", "100%"),
)
"""Without --tolerance: the cable's rate varies by more than half, and hardly matters."""
DEADLINE_S = 120.0
Process = subprocess.Popen[str]


@pytest.fixture
def hosts() -> Iterator[dict[str, str]]:
    """Two namespaces, by their hosts' addresses, with a cable between them and no SSH server."""
    names = {address: f"pareto-hand-{role}" for role, address in (("edge", EDGE), ("server", SERVER))}
    for name in names.values():
        netns.create(name)
    try:
        with IPRoute(netns=names[EDGE]) as edge:
            peer = {"ifname": "data0", "net_ns_fd": names[SERVER]}
            edge.link("add", ifname="data0", kind="veth", peer=peer)
        for address, name in names.items():
            with IPRoute(netns=name) as ip:
                (index,) = ip.link_lookup(ifname="data0")
                ip.addr("add", index=index, address=address, prefixlen=24)
                for each in (1, index):
                    ip.link("set", index=each, state="up")
        yield names
    finally:
        for name in names.values():
            netns.remove(name)


def on(name: str, *arguments: str) -> Process:
    enter = ("nsenter", f"--net=/run/netns/{name}", "--")
    return started(*enter, sys.executable, "-u", "-m", "pareto", *arguments)


@contextmanager
def serving(hosts: dict[str, str], tmp_path: Path, *options: str) -> Iterator[Process]:
    token, folder = tmp_path / "token", tmp_path / "served"
    where = ("--listen", SERVER, "--token-file", str(token), "--folder", str(folder))
    process = on(hosts[SERVER], "serve", *where, "--allow", str(NET), *options)
    try:
        hears(process, "listening on")
        yield process
    finally:
        process.kill()


def hears(process: Process, words: str) -> None:
    """Wait for a line that it prints."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        if words in line:
            return
    raise AssertionError(f"{words!r} not in {lines}")


def connect(hosts: dict[str, str], tmp_path: Path, *options: str) -> Process:
    token = ("--token-file", str(tmp_path / "token"), "--out", str(tmp_path / "out"))
    return on(hosts[EDGE], "connect", SERVER, *token, *SWEEP, *options)


def test_a_sweep_by_hand(hosts: dict[str, str], tmp_path: Path) -> None:
    with serving(hosts, tmp_path, "--rpc") as server:
        first = connect(hosts, tmp_path)
        out, err = first.communicate(timeout=DEADLINE_S)
        rows = rows_in(tmp_path / "out")
        assert first.returncode == exit_code(rows), out + err
        assert {(row["point"], row["backend"]) for row in rows} == {
            (point, backend) for point in ("0", "1", "2") for backend in ("tcp", "rpc")
        }
        assert all(map(sound, rows)), [row["reason"] for row in rows]
        assert "the link itself: round trip" in out
        assert (only_run(tmp_path / "out") / "report.html").is_file()
        hears(server, "the driver left")
        server.send_signal(signal.SIGINT)
        assert server.wait(DEADLINE_S) == 0


def test_when_one_of_them_dies(hosts: dict[str, str], tmp_path: Path) -> None:
    """The driver, then a second one beside another, then whoever serves."""
    with serving(hosts, tmp_path) as server:
        first = connect(hosts, tmp_path, "--backend", "tcp")
        hears(server, "pareto.worker runs")
        workers = descendants(server.pid, "-m pareto.worker")
        second = connect(hosts, tmp_path, "--backend", "tcp")
        _, err = second.communicate(timeout=DEADLINE_S)
        assert (second.returncode, err.count("\n")) == (2, 1), err
        assert f"another driver is there, at {EDGE}" in err
        first.kill()
        hears(server, "the driver")
        assert ended(workers)
        third = connect(hosts, tmp_path, "--backend", "tcp")
        hears(server, "pareto.worker runs")
        workers = descendants(server.pid, "-m pareto.worker")
        server.kill()
        assert ended(workers)
        third.kill()
