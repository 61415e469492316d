"""The local testbed: real namespaces, sshd, paramiko and workers, and nothing left of them."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import pytest

from pareto.hosts import ssh
from pareto.hosts.connection import Unreachable
from pareto.hosts.host import EDGE, SERVER, TcpSettings, TestbedError
from pareto.hosts.keys import Keyring, new_key
from pareto.hosts.local_testbed import open_local
from pareto.hosts.session import SessionError
from pareto.hosts.shaping import RelayShaper
from pareto.hosts.testbed import Link, Testbed
from pareto.link.probe import Tolerance, question
from pareto.link.profile import Direction, Profile
from pareto.probing import Probers
from pareto.profile_files import load
from tests.integration.own_machine import left_behind
from tests.less_than_root import needs_networks
from tests.program import descendants, ended, python_programs, started, wait_until

pytestmark = [
    pytest.mark.integration,
    needs_networks,
    pytest.mark.usefixtures("nothing_left"),
]


SPIN = (  # how much of half a second's computing it got, whoever else wants the core
    f'nice -n -20 {sys.executable} -c "import time; t, c = time.perf_counter(), time.process_time()\n'
    "while time.perf_counter() - t < 0.5: pass\n"
    'print((time.process_time() - c) / (time.perf_counter() - t))"'
)


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    with closing(open_local(edge_cpu=0.25)) as bed:
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


def test_hosts_are_apart_and_joined_by_the_link_alone(bed: Testbed) -> None:
    server = bed.remotes[SERVER].host
    assert "data0" in run(bed, EDGE, "cat /proc/self/net/dev")
    assert run(bed, EDGE, "hostname; echo $$") != ""
    assert {run(bed, name, "readlink /proc/self/ns/net") for name in (EDGE, SERVER)}.isdisjoint(
        {str(Path("/proc/self/ns/net").readlink())}
    )
    bed.links[0].shaper.apply(load("none"))
    code = (
        f"import socket; s = socket.create_server(('{server.data_address}', 0)); "
        "print(s.getsockname()[1], flush=True); s.accept()[0].sendall(b'hello')"
    )
    with running(bed, SERVER, code) as lines:
        port = int(lines.get(timeout=30))
        reach = (
            f"import socket; print(socket.create_connection(('{server.data_address}', {port}), 5).recv(5))"
        )
        assert run(bed, EDGE, f'{sys.executable} -c "{reach}"') == "b'hello'"


def test_each_host_has_its_own_core_and_the_edge_its_quota(bed: Testbed) -> None:
    cores = {name: run(bed, name, "taskset -cp $$").split()[-1] for name in (EDGE, SERVER)}
    assert cores == {name: str(bed.remotes[name].host.core) for name in (EDGE, SERVER)}
    if len(os.sched_getaffinity(0)) > 1:
        assert cores[EDGE] != cores[SERVER]
    assert float(run(bed, EDGE, SPIN)) < 0.35
    assert bed.watch_strangers is not None  # a quota does not hide what other programs take
    # More than the edge's quota, even where others want the core as well.
    assert any(float(run(bed, SERVER, SPIN)) > 0.3 for _ in range(5))


def test_a_twentieth_of_a_core_can_be_had() -> None:
    """Of the usual period that is less than the kernel's least quota."""
    with closing(open_local(edge_cpu=0.05)) as bed:
        assert float(run(bed, EDGE, SPIN)) < 0.1


def test_an_unknown_host_key_is_refused(bed: Testbed) -> None:
    connection = bed.remotes[EDGE].connection
    assert isinstance(connection, ssh.SshConnection)
    key, _ = new_key()
    other = bed.remotes[SERVER].connection
    assert isinstance(other, ssh.SshConnection)
    with pytest.raises(Unreachable, match="another host key"):
        ssh.SshConnection(replace(connection.login, host_key=other.login.host_key), Keyring(only=key))
    with pytest.raises(Unreachable, match="takes none of these keys"):
        ssh.SshConnection(connection.login, Keyring(only=key))


def test_files_go_over_once_and_whole(bed: Testbed) -> None:
    remote = bed.remotes[EDGE]
    content = os.urandom(3_000_000)
    path = remote.ship(content, "blob")
    assert run(bed, EDGE, f"stat -c %s {path}") == "3000000"
    stamp = run(bed, EDGE, f"stat -c %y {path}")
    assert remote.ship(content, "blob") == path
    assert run(bed, EDGE, f"stat -c %y {path}") == stamp


def test_two_testbeds_do_not_meet() -> None:
    with closing(open_local()) as first, closing(open_local()) as second:
        addresses = {
            bed.remotes[name].host.data_address for bed in (first, second) for name in (EDGE, SERVER)
        }
        assert len(addresses) == 4
        spaces = {
            run(bed, name, "readlink /proc/self/ns/net") for bed in (first, second) for name in (EDGE, SERVER)
        }
        assert len(spaces) == 4


def test_the_link_has_the_congestion_control_that_the_manifest_says(bed: Testbed) -> None:
    server = bed.remotes[SERVER].host.data_address
    code = (
        "import socket; s = socket.socket(); s.setblocking(False); "
        f"s.connect_ex(('{server}', 9)); print(s.getsockopt(6, socket.TCP_CONGESTION, 16).decode())"
    )
    used = run(bed, EDGE, f'{sys.executable} -c "{code}"').strip("\0\n")
    assert used == bed.facts["congestion_control"]
    assert run(bed, EDGE, "cat /proc/sys/net/ipv4/tcp_slow_start_after_idle") == "0"


def test_tcp_behaves_as_was_asked() -> None:
    """A connection's own word for it, at both ends; and the manifest's."""
    asked = TcpSettings("reno", initial_window=17, slow_start_after_idle=True)
    with closing(open_local(tcp=asked)) as bed:
        bed.links[0].shaper.apply(load("none"))
        server = bed.remotes[SERVER].host.data_address
        congestion = "s.getsockopt(6, socket.TCP_CONGESTION, 16).partition(bytes(1))[0].decode()"
        window = "struct.unpack_from('I', s.getsockopt(6, socket.TCP_INFO, 104), 80)[0]"
        said = f"{congestion}, {window}"
        code = (
            f"import socket, struct; l = socket.create_server(('{server}', 0)); "
            f"print(l.getsockname()[1], flush=True); s, _ = l.accept(); print({said}); s.recv(1)"
        )
        with running(bed, SERVER, code) as lines:
            port = int(lines.get(timeout=30))
            reach = (
                f"import socket, struct; s = socket.create_connection(('{server}', {port}), 5); print({said})"
            )
            assert run(bed, EDGE, f'{sys.executable} -c "{reach}"') == "reno 17"
            assert lines.get(timeout=30) == "reno 17"
        for role in (EDGE, SERVER):
            assert run(bed, role, "cat /proc/sys/net/ipv4/tcp_slow_start_after_idle") == "1"
        assert bed.facts["congestion_control"] == "reno"
        assert bed.facts["initial_window_segments"] == 17
        assert bed.facts["sysctls"]["net/ipv4/tcp_slow_start_after_idle"] == "1"


def test_a_congestion_control_that_the_kernel_lacks_is_refused_in_one_line() -> None:
    with pytest.raises(TestbedError, match="--congestion nonesuch: this kernel has only") as refused:
        open_local(tcp=TcpSettings("nonesuch"))
    there_is = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    assert str(refused.value).endswith(" and ".join(there_is))


def test_segmentation_offloads_are_off_on_slow_links_only(bed: Testbed) -> None:
    def switched_on(profile: str) -> set[str]:
        in_force = bed.links[0].shaper.apply(load(profile))["offloads"]
        return {name for host in in_force.values() for name, on in host.items() if on}

    before = switched_on("none")
    assert before >= {"tso", "gso"}
    assert switched_on("200ms-5mbit") == set()
    assert switched_on("none") == before


def test_a_refused_profile_leaves_the_session_usable(bed: Testbed) -> None:
    shaper = bed.links[0].shaper
    assert isinstance(shaper, RelayShaper)
    with pytest.raises(SessionError):
        shaper._builder.request("shape", link=0, edge_to_server={"delay_s": -1.0}, server_to_edge={})
    assert shaper.apply(load("none"))["shaper"] == "relay"


ROOM = 8 << 20
"""More than a probe sends: nothing is dropped."""
ONE = Profile("one", Direction(0.01, 50e6, limit_bytes=ROOM), Direction(0.02, 20e6, limit_bytes=ROOM))
OTHER = Profile("other", Direction(0.04, 8e6, limit_bytes=ROOM), Direction(0.0, 12e6, limit_bytes=ROOM))


def test_each_link_of_a_chain_has_its_own_profile(chain: Testbed) -> None:
    """And hosts that are no neighbours meet through those between them."""

    def off(link: Link, profile: Profile) -> str:
        """A reading that is off is taken once more, as in a sweep; and again, for this machine may be busy."""
        asked = question(profile)
        faults = (probers.probed(link, profile, Tolerance(), asked)[0].fault for _ in range(8))
        return next((fault for fault in faults if not fault), "off in all readings")

    first, second = chain.links
    assert (first.name, second.name) == ("edge-middle1", "middle1-server")
    with closing(Probers(chain)) as probers:
        probers.shape(first, ONE)
        probers.shape(second, OTHER)
        assert (off(first, ONE), off(second, OTHER)) == ("", "")
        forwarded = [link.shaper.facts()["relay"]["dropped"] for link in chain.links]
        assert forwarded == [0, 0]
        passing = min(probers.reach_s(EDGE, SERVER) for _ in range(10))
        assert passing == pytest.approx(0.07, abs=0.005)
        probers.shape(first, load("none"))
        assert (off(first, load("none")), off(second, OTHER)) == ("", "")


def test_every_address_of_a_chain_is_reached_with_its_congestion_control(chain: Testbed) -> None:
    addresses = {end.address: end.role for link in chain.links for end in (link.near, link.far)}
    assert len(addresses) == 4
    for role in chain.remotes:
        for address in (address for address, of in addresses.items() if of != role):
            code = (
                "import socket; s = socket.socket()\n"
                f"try: s.connect(('{address}', 9))\n"
                "except ConnectionRefusedError: print('refused')\n"
                "s = socket.socket(); s.setblocking(False); "
                f"s.connect_ex(('{address}', 9)); print(s.getsockopt(6, socket.TCP_CONGESTION, 16).decode())"
            )
            said = run(chain, role, f'{sys.executable} -c "{code}"').strip("\0\n").split()
            assert said == ["refused", chain.facts["congestion_control"]], (role, address)
    assert run(chain, "middle1", "ls /sys/class/net; cat /proc/net/dev").count("data1:") == 1


def test_a_testbed_that_has_lost_a_part_is_built_again() -> None:
    """It lives as a whole or not at all: who waits for one of its hosts hears of it at once."""
    others = descendants(os.getpid(), "pareto.link.relay")
    with closing(open_local(hosts=3)) as bed:
        for link in bed.links:
            link.shaper.apply(load("none"))
        waiting = bed.remotes[EDGE].connection.open("sleep 600", "/dev/null")
        relay = descendants(os.getpid(), "--edge middle1 --server server")[-1]
        relay.kill()
        assert waiting.receive(20.0) == b""
        assert "the relay between middle1 and server ended: killed by signal 9" in bed.lost()
        left = [it for it in descendants(os.getpid(), "pareto.link.relay") if it not in others]
        assert ended(left)
        bed.revive()
        assert bed.lost() == ""
        for link in bed.links:
            assert link.shaper.apply(ONE)["edge_to_server"]["delay_s"] == 0.01
        assert run(bed, "middle1", "echo hi") == "hi"


DRIVER = """
import sys, time
from pareto.hosts.local_testbed import open_local
bed = open_local(hosts=3, edge_cpu=0.5)
session = bed.remotes["middle1"].start("pareto.link")
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


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
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
