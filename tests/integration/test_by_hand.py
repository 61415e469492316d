"""A sweep without SSH, with a codec of the user's own: one namespace serves, another is edge and driver."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyroute2 import IPRoute, netns

from tests.integration import short
from tests.integration.test_sweep import exit_code, only_run, rows_in, sound
from tests.less_than_root import needs_networks
from tests.program import Ended, descendants, ended, started
from tests.unit.own_codecs import ENTROPY, written

pytestmark = [
    pytest.mark.integration,
    needs_networks,
    pytest.mark.usefixtures("nothing_left"),
]

EDGE, SERVER = "198.19.127.1", "198.19.127.2"
NET = Path(__file__).parents[1] / "faults" / "net.py"
SWEEP = (
    *("--model", f"{NET}:build", "--points", "1", "--only", "--quick", "--figures", "none"),
    *("--sample", "off", "--rtt-floor", "100ms", "--slowdown", "100", "--others", "100%"),
)
"""Without --tolerance: the cable's rate varies by more than half, and hardly matters."""
DEADLINE_S = 240.0
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


def on(name: str, module: str, *arguments: str) -> Process:
    enter = ("nsenter", f"--net=/run/netns/{name}", "--")
    return started(*enter, sys.executable, "-u", "-m", module, *arguments)


@contextmanager
def serving(hosts: dict[str, str], tmp_path: Path, *options: str) -> Iterator[Process]:
    token, folder = tmp_path / "token", tmp_path / "served"
    where = ("--listen", SERVER, "--token-file", str(token), "--folder", str(folder))
    process = on(hosts[SERVER], "pareto", "serve", *where, "--allow", str(NET), *options)
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


def driver(out: Path, *options: str) -> tuple[str, ...]:
    """Words that are typed on the edge."""
    return ("connect", SERVER, "--token-file", str(out.parent / "token"), "--out", str(out), *SWEEP, *options)


def connected(hosts: dict[str, str], out: Path, *options: str) -> Ended:
    """By this process, whose thread is there meanwhile."""
    netns.pushns(hosts[EDGE])
    try:
        return short.command(*driver(out, *options))
    finally:
        netns.popns()


def test_a_sweep_by_hand_after_one_that_was_killed(hosts: dict[str, str], tmp_path: Path) -> None:
    """Beside the first driver a second one is refused; then the first is killed, and a third has its turn."""
    own = written(tmp_path, ENTROPY)
    with serving(hosts, tmp_path, "--rpc", "--allow", str(own)) as server:
        first = on(hosts[EDGE], short.__name__, *driver(tmp_path / "first", "--backend", "tcp"))
        hears(server, "pareto.worker runs")
        workers = descendants(server.pid, "-m pareto.worker")
        second = connected(hosts, tmp_path / "second", "--backend", "tcp")
        assert (second.code, second.err.count("\n")) == (2, 1), second
        assert f"another driver is there, at {EDGE}" in second.err
        first.kill()
        hears(server, "the driver")
        assert ended(workers)
        third = connected(hosts, tmp_path / "third", "--codec", f"none,{own}:Entropy")
        rows = rows_in(tmp_path / "third")
        assert third.code == exit_code(rows), third
        assert Counter((row["point"], row["backend"], row["codec"]) for row in rows) == {
            ("1", backend, codec): 1 for backend in ("tcp", "rpc") for codec in ("none", "Entropy")
        }
        assert all(map(sound, rows)), [row["reason"] for row in rows]
        assert {float(row["max_abs_error"]) for row in rows} == {0.0}, "the driver had computed the same"
        sent = {row["codec"]: float(row["wire_bytes"]) / float(row["payload_bytes"]) for row in rows}
        assert sent["none"] == 1 > 2 * sent["Entropy"]
        assert "the link itself: round trip" in third.out
        assert (only_run(tmp_path / "third") / "report.html").is_file()
        hears(server, "the driver left")
        server.send_signal(signal.SIGINT)
        assert server.wait(DEADLINE_S) == 0


@pytest.mark.deep
def test_who_serves_is_killed(hosts: dict[str, str], tmp_path: Path) -> None:
    with serving(hosts, tmp_path) as server:
        process = on(hosts[EDGE], short.__name__, *driver(tmp_path / "out", "--backend", "tcp"))
        hears(server, "pareto.worker runs")
        workers = descendants(server.pid, "-m pareto.worker")
        server.kill()
        assert ended(workers)
        process.kill()
