"""The local testbed: real namespaces, sshd, paramiko and workers, and nothing left of them."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest
from pyroute2 import netns

from pareto.hosts.connection import Unreachable
from pareto.hosts.host import EDGE, SERVER, TcpSettings, TestbedError
from pareto.hosts.local.testbed import open_local
from pareto.hosts.session import SessionError
from pareto.hosts.shapers import RelayShaper
from pareto.hosts.ssh import connection as ssh
from pareto.hosts.ssh.keys import Keyring, new_key
from pareto.hosts.testbed import Testbed
from pareto.remote.link.probe import Tolerance, question
from pareto.remote.link.profile import Direction, Profile
from pareto.sweep.profile_files import load
from pareto.trial.probes import Probers
from tests.integration.own_machine import left_behind
from tests.less_than_root import needs_networks, quota
from tests.program import descendants, ended, python_programs, started, wait_until

pytestmark = [
    pytest.mark.integration,
    needs_networks,
    pytest.mark.usefixtures("nothing_left"),
]


TCP = TcpSettings("reno", initial_window=17, slow_start_after_idle=True)


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with closing(open_local(edge_cpu=0.25)) as bed:
        yield bed


@pytest.fixture(scope="module")
def other() -> Iterator[Testbed]:
    """A second one beside it. Its edge has less than the kernel's least quota of the usual period."""
    with closing(open_local(edge_cpu=0.05, tcp=TCP)) as bed:
        yield bed


@pytest.fixture(scope="module")
def chain() -> Iterator[Testbed]:
    with closing(open_local(hosts=3)) as bed:
        yield bed


def run(bed: Testbed, host: str, command: str) -> str:
    done = bed.remotes[host].connection.run(command)
    return (done.out + done.err).strip()


@contextmanager
def running(bed: Testbed, host: str, code: str) -> Iterator[queue.SimpleQueue[str]]:
    """A Python program there, meanwhile; the lines that it prints. It must have ended by itself afterwards."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    program = threading.Thread(
        target=bed.remotes[host].connection.run,
        args=(f'{sys.executable} -c "{code}"',),
        kwargs={"on_line": lines.put},
    )
    program.start()
    yield lines
    program.join(30)
    assert not program.is_alive()


def test_hosts_are_apart_each_with_its_cores_and_share(bed: Testbed, other: Testbed) -> None:
    hosts = [(each, name) for each in (bed, other) for name in (EDGE, SERVER)]
    here = str(Path("/proc/self/ns/net").readlink())
    assert len({run(each, name, "readlink /proc/self/ns/net") for each, name in hosts} - {here}) == 4
    assert len({each.remotes[name].host.data_address for each, name in hosts}) == 4
    assert "data0" in run(bed, EDGE, "cat /proc/self/net/dev")
    cores = {name: run(bed, name, "taskset -cp $$").split()[-1] for name in (EDGE, SERVER)}
    assert cores == {name: str(bed.remotes[name].host.core) for name in (EDGE, SERVER)}
    if len(os.sched_getaffinity(0)) > 1:
        assert cores[EDGE] != cores[SERVER]
    assert bed.watch_strangers is not None  # a quota does not hide what other programs take
    assert (quota(bed, EDGE), quota(other, EDGE)) == (0.25, 0.05)


def test_over_ssh_strangers_are_refused_and_files_go_once_and_whole(bed: Testbed) -> None:
    remote = bed.remotes[EDGE]
    connection, of_server = remote.connection, bed.remotes[SERVER].connection
    assert isinstance(connection, ssh.SshConnection)
    assert isinstance(of_server, ssh.SshConnection)
    stranger = Keyring(only=new_key()[0])
    with pytest.raises(Unreachable, match="another host key"):
        ssh.SshConnection(replace(connection.login, host_key=of_server.login.host_key), stranger)
    with pytest.raises(Unreachable, match="takes none of these keys"):
        ssh.SshConnection(connection.login, stranger)
    content = os.urandom(3_000_000)
    path = remote.ship(content, "blob")
    stamp = run(bed, EDGE, f"stat -c '%s %y' {path}")
    assert stamp.startswith("3000000 ")
    assert remote.ship(content, "blob") == path
    assert run(bed, EDGE, f"stat -c '%s %y' {path}") == stamp


@pytest.mark.parametrize(("which", "window", "after_idle"), [("bed", None, "0"), ("other", 17, "1")])
def test_tcp_over_the_link_behaves_as_was_asked(
    request: pytest.FixtureRequest, which: str, window: int | None, after_idle: str
) -> None:
    """A connection's own word for it, at both ends; the kernel's settings; and the manifest's."""
    bed: Testbed = request.getfixturevalue(which)
    assert bed.links[0].shaper.apply(load("none"))["shaper"] == "relay"
    server = bed.remotes[SERVER].host.data_address
    congestion = "s.getsockopt(6, socket.TCP_CONGESTION, 16).partition(bytes(1))[0].decode()"
    said = f"{congestion}, struct.unpack_from('I', s.getsockopt(6, socket.TCP_INFO, 104), 80)[0]"
    code = (
        f"import socket, struct; l = socket.create_server(('{server}', 0)); "
        f"print(l.getsockname()[1], flush=True); s, _ = l.accept(); print({said}); s.recv(1)"
    )
    facts = bed.facts
    with running(bed, SERVER, code) as lines:
        reach = f"('{server}', {int(lines.get(timeout=30))})"
        near = f"import socket, struct; s = socket.create_connection({reach}, 30); print({said})"
        ends = [run(bed, EDGE, f'{sys.executable} -c "{near}"'), lines.get(timeout=30)]
    assert {end.split()[0] for end in ends} == {facts["congestion_control"]}
    if window is not None:
        assert ends == [f"reno {window}"] * 2
        assert facts["initial_window_segments"] == window
        assert facts["sysctls"]["net/ipv4/tcp_slow_start_after_idle"] == after_idle
    for role in (EDGE, SERVER):
        assert run(bed, role, "cat /proc/sys/net/ipv4/tcp_slow_start_after_idle") == after_idle


def test_a_congestion_control_that_the_kernel_lacks_is_refused_in_one_line() -> None:
    with pytest.raises(TestbedError, match="--congestion nonesuch: this kernel has only") as refused:
        open_local(tcp=TcpSettings("nonesuch"))
    there_is = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    assert str(refused.value).endswith(" and ".join(there_is))


def test_a_links_offloads_are_off_where_it_is_slow_and_a_refused_profile_changes_nothing(
    bed: Testbed,
) -> None:
    shaper = bed.links[0].shaper
    assert isinstance(shaper, RelayShaper)

    def switched_on(profile: str) -> set[str]:
        in_force = shaper.apply(load(profile))["offloads"]
        return {name for host in in_force.values() for name, on in host.items() if on}

    before = switched_on("none")
    assert before >= {"tso", "gso"}
    assert switched_on("200ms-5mbit") == set()
    with pytest.raises(SessionError):
        shaper._builder.request("shape", link=0, edge_to_server={"delay_s": -1.0}, server_to_edge={})
    assert switched_on("none") == before


ROOM = 8 << 20
"""More than a probe sends: nothing is dropped."""
ONE = Profile("one", Direction(0.01, 50e6, limit_bytes=ROOM), Direction(0.02, 20e6, limit_bytes=ROOM))
OTHER = Profile("other", Direction(0.04, 8e6, limit_bytes=ROOM), Direction(0.0, 12e6, limit_bytes=ROOM))


def test_each_link_of_a_chain_has_its_own_profile_and_all_hosts_meet(chain: Testbed) -> None:
    """Those that are no neighbours through those between them, over every address."""
    first, second = chain.links
    assert (first.name, second.name) == ("edge-middle1", "middle1-server")
    with closing(Probers(chain)) as probers:
        for link, profile in ((first, ONE), (second, OTHER)):
            probers.shape(link, profile)
            found, _ = probers.probed(link, profile, Tolerance(), question(profile))
            assert found.reading.rtt_s >= sum(way.delay_s for way in profile.directions) - 0.0001
        assert [link.shaper.facts()["relay"]["dropped"] for link in chain.links] == [0, 0]
        assert probers.reach_s(EDGE, SERVER) >= 0.0699
        probers.shape(first, load("none"))
        assert probers.reach_s(EDGE, SERVER) >= 0.0399
    addresses = {end.address: end.role for link in chain.links for end in (link.near, link.far)}
    assert len(addresses) == 4
    for role in chain.remotes:
        others = [address for address, of in addresses.items() if of != role]
        code = (
            f"import socket\nfor address in {others}:\n"
            " s = socket.socket()\n"
            " try: s.connect((address, 9))\n"
            " except ConnectionRefusedError: print('refused')\n"
            " s = socket.socket(); s.setblocking(False); s.connect_ex((address, 9))\n"
            " print(s.getsockopt(6, socket.TCP_CONGESTION, 16).partition(bytes(1))[0].decode())"
        )
        said = run(chain, role, f'{sys.executable} -c "{code}"').split()
        assert said == ["refused", chain.facts["congestion_control"]] * len(others), role
    assert run(chain, "middle1", "ls /sys/class/net; cat /proc/net/dev").count("data1:") == 1


def of_edge(bed: Testbed) -> Callable[[Path], bool]:
    """A question to ask of a file: is it the network namespace of the testbed's edge?"""
    inode = int(run(bed, EDGE, "stat -L -c %i /proc/self/ns/net"))
    return lambda path: path.stat().st_ino == inode


def kill_relay(bed: Testbed) -> None:
    descendants(os.getpid(), "--edge middle1 --server server")[-1].kill()  # the youngest testbed's


def kill_sshd(bed: Testbed) -> None:
    is_its, sshds = of_edge(bed), descendants(os.getpid(), "[listener]")
    next(it for it in sshds if is_its(Path(f"/proc/{it.pid}/ns/net"))).kill()


def remove_namespace(bed: Testbed) -> None:
    (name,) = (name for name in netns.listnetns() if of_edge(bed)(Path("/run/netns", name)))
    netns.remove(name)


LOSSES = {
    kill_relay: "the relay between middle1 and server ended: killed by signal 9",
    kill_sshd: "the sshd of edge ended",
    remove_namespace: "-edge is gone",
}


def test_a_testbed_that_has_lost_a_part_is_built_again() -> None:
    """It lives as a whole or not at all: who waits for one of its hosts hears of it at once."""
    others = descendants(os.getpid(), "pareto.remote.link.relay")
    with closing(open_local(hosts=3)) as bed:
        for lose, words in LOSSES.items():
            for link in bed.links:
                link.shaper.apply(load("none"))
            waiting = bed.remotes[SERVER].connection.open("sleep 600", "/dev/null")
            relays = [it for it in descendants(os.getpid(), "pareto.remote.link.relay") if it not in others]
            assert len(relays) == 2
            lose(bed)
            assert waiting.read(20.0) == b""
            assert words in bed.lost()
            assert ended(relays)
            bed.revive()
            assert bed.lost() == ""
            for link in bed.links:
                assert link.shaper.apply(ONE)["edge_to_server"]["delay_s"] == 0.01
            assert run(bed, "middle1", "echo hi") == "hi"


DRIVER = """
import sys, time
from pareto.hosts.local.testbed import open_local
bed = open_local(hosts=3, edge_cpu=0.5)
session = bed.remotes["middle1"].start("pareto.remote.link")
session.request("supported", 120)
print("ready", flush=True)
time.sleep(600)
"""


@dataclass(frozen=True)
class Driver:
    """A program with a testbed of its own, all that it has started, and what of it is to be seen."""

    process: subprocess.Popen[str]
    family: list[psutil.Process]
    made: set[str]


@pytest.fixture
def driver() -> Driver:
    before = left_behind()
    process = started(sys.executable, "-c", DRIVER)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return Driver(process, descendants(process.pid), left_behind() - before)


@pytest.mark.parametrize(
    "how",
    [signal.SIGKILL, *(pytest.param(how, marks=pytest.mark.deep) for how in (signal.SIGINT, signal.SIGTERM))],
)
def test_nothing_outlives_a_driver_that_dies(driver: Driver, how: signal.Signals) -> None:
    assert {what.split()[0] for what in driver.made} == {"namespace", "interface", "file", "process"}
    assert any("cgroup" in what for what in driver.made)
    driver.process.send_signal(how)
    driver.process.wait(20)
    assert ended(driver.family)
    assert wait_until(lambda: not driver.made & left_behind()), driver.made & left_behind()


def test_the_next_start_sweeps_up_after_a_killed_builder(driver: Driver) -> None:
    (builder,) = python_programs(driver.process.pid, "pareto.hosts.local")
    builder.kill()
    driver.process.kill()
    driver.process.wait()
    assert ended(driver.family), "the kernel ends sshd and workers with their builder"
    assert any(what.startswith("namespace") for what in driver.made & left_behind())
    open_local().close()
    assert not driver.made & left_behind()
