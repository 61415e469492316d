"""A machine without an SSH server, on which a driver has no account: it runs `serve`, and a sweep runs there."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from pyroute2 import IPRoute, netns

from pareto import COMMAND
from pareto.hosts import inventory
from tests.integration import short
from tests.integration.test_sweep import exit_code, rows_in, sound
from tests.less_than_root import USER, needs_networks, user
from tests.program import Ended, descendants, ended, started

pytestmark = [pytest.mark.integration, needs_networks, pytest.mark.usefixtures("nothing_left")]

EDGE, SERVER = "198.19.127.1", "198.19.127.2"
NET = Path(__file__).parents[1] / "faults" / "net.py"
SWEEP = (
    f"--model {NET}:build --points 1,2 --only --quick --figures none --backend tcp --sample off --rtt-floor 100ms "
    "--slowdown 100 --others 100%"
)
"""Without --tolerance: the cable's rate varies by more than half, and hardly matters."""
DEADLINE_S = 240.0


@pytest.fixture
def hosts() -> Iterator[dict[str, str]]:
    """Two namespaces, by their hosts' addresses, with a cable between them and no SSH server."""
    names = {EDGE: "pareto-hand-edge", SERVER: "pareto-hand-server"}
    try:
        for name in names.values():
            netns.create(name)
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


def within(name: str) -> tuple[str, ...]:
    return ("nsenter", f"--net=/run/netns/{name}", "--")


@pytest.fixture
def account(tmp_path: Path) -> Iterator[tuple[Path, tuple[str, ...]]]:
    """The home of an ordinary user, and what starts a program as that one, by the test's own list of accounts. Where
    pytest keeps its own, others may not look."""
    home, accounts = Path(tempfile.mkdtemp(dir=os.environ["TMPDIR"])), tmp_path / "passwd"
    os.chown(home, USER, USER)
    accounts.write_text(f"{Path('/etc/passwd').read_text()}pat:x:{USER}:{USER}::{home}:/bin/sh\n")
    with_account = f'mount --bind {accounts} /etc/passwd && exec "$@"'
    place = ("env", f"HOME={home}", f"TMPDIR={home}")
    yield home, ("unshare", "--mount", "sh", "-c", with_account, "sh", *user(), *place)
    shutil.rmtree(home)


@contextmanager
def serving(hosts: dict[str, str], *who: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A `serve`, and the line that it prints."""
    serve = (sys.executable, "-m", "pareto", "serve", "--listen", SERVER)
    process = started(*within(hosts[SERVER]), *who, *serve)
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline()
    finally:
        process.kill()


def pasted(hosts: dict[str, str], line: str, file: Path) -> str:
    """What comes of the line on the edge, with this testbed file in place of the one that it names."""
    command = line.replace(COMMAND, f"{sys.executable} -m pareto").replace("lab.yaml", f"{file} --name gpu")
    done = started(*within(hosts[EDGE]), "sh", "-c", command)
    out, err = done.communicate(timeout=DEADLINE_S)
    assert done.returncode == 0, err
    return out


def at_edge(hosts: dict[str, str], *arguments: str) -> Ended:
    """The command by this process, whose thread is there meanwhile."""
    netns.pushns(hosts[EDGE])
    try:
        return short.command(*arguments)
    finally:
        netns.popns()


def test_a_sweep_with_a_host_that_serves_and_is_killed(
    hosts: dict[str, str], account: tuple[Path, tuple[str, ...]], tmp_path: Path
) -> None:
    file, (home, as_user) = tmp_path / "lab.yaml", account
    pair = ("hosts", "add", "local", "--role", "edge", "--name", "pi", "--testbed", str(file))
    run = (*SWEEP.split(), "--testbed", str(file), "--out", str(tmp_path / "out"))
    with serving(hosts, *as_user) as (server, line):
        assert at_edge(hosts, *pair).code == 0
        assert f"reaches pi, {EDGE}" in pasted(hosts, line, file)
        (key,) = tmp_path.glob("*.pem")
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        done = at_edge(hosts, *run)
        rows = rows_in(tmp_path / "out")
        assert done.code == exit_code(rows), done
        assert [(row["point"], row["backend"]) for row in rows] == [("1", "tcp"), ("2", "tcp")], done
        assert all(map(sound, rows)), [row["reason"] for row in rows]
        driver = started(*within(hosts[EDGE]), sys.executable, "-m", short.__name__, *run)
        assert driver.stderr is not None
        while not (workers := descendants(server.pid, "-m pareto.remote.worker")):
            assert driver.poll() is None, driver.stderr.read()
        left = psutil.Process(server.pid).children(recursive=True)
        assert {each.uids().real for each in left} == {USER}
        server.kill()
        assert ended(workers)
        assert ended(left)
        assert not list(home.glob("pareto-serve*"))
        driver.kill()


def test_a_host_that_serves_again_takes_its_place(hosts: dict[str, str], tmp_path: Path) -> None:
    """Also where not it is ended, but what guards it."""
    file, entries = tmp_path / "lab.yaml", []
    for code in (0, 2):
        with serving(hosts) as (server, line):
            pasted(hosts, line, file)
            entries += inventory.load(file).hosts
            left = psutil.Process(server.pid).children(recursive=True)
            if code == 0:
                server.send_signal(signal.SIGINT)
            else:
                left[0].kill()
            assert server.wait(DEADLINE_S) == code
            assert ended(left)
    first, second = entries
    assert (first.name, first.data_address) == (second.name, second.data_address) == ("gpu", SERVER)
    assert first.host_key != second.host_key
    done = at_edge(hosts, "hosts", "list", "--testbed", str(file))
    assert done.code == 2
    assert "is its SSH server running?" in done.out
