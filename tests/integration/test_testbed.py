"""The local testbed: real namespaces, sshd, paramiko and workers, and nothing left of them."""

from __future__ import annotations

import os
import queue
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.connection import Unreachable
from pareto.hosts.host import EDGE, SERVER, TcpSettings, TestbedError
from pareto.hosts.local import cpu
from pareto.hosts.local.testbed import open_local
from pareto.hosts.session import SessionError
from pareto.hosts.shapers import RelayShaper
from pareto.hosts.ssh import connection as ssh
from pareto.hosts.ssh.keys import Keyring, new_key
from pareto.hosts.testbed import Testbed
from pareto.remote.link import qdisc
from pareto.remote.link.probe import Tolerance, question
from pareto.remote.link.profile import Direction, Profile
from pareto.sweep.profile_files import load
from pareto.trial.probes import Probers
from tests.integration.own_machine import left_behind
from tests.less_than_root import needs_networks, quota
from tests.program import command, descendants, ended, pareto, python_programs, started, wait_until

pytestmark = [pytest.mark.integration, needs_networks, pytest.mark.usefixtures("nothing_left")]
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


def test_hosts_are_apart_each_with_its_cores_and_share(bed: Testbed, other: Testbed) -> None:
    hosts = [(each, name) for each in (bed, other) for name in (EDGE, SERVER)]
    here = str(Path("/proc/self/ns/net").readlink())
    assert len({run(each, name, "readlink /proc/self/ns/net") for each, name in hosts} - {here}) == 4
    assert len({each.remotes[name].host.data_address for each, name in hosts}) == 4
    assert "data0" in run(bed, EDGE, "cat /proc/self/net/dev")
    cores = {name: run(bed, name, "taskset -cp $$").split()[-1] for name in (EDGE, SERVER)}
    assert cores == {name: str(bed.remotes[name].host.core) for name in (EDGE, SERVER)}
    assert cores[EDGE] != cores[SERVER] or len(os.sched_getaffinity(0)) == 1
    assert bed.watch_strangers is not None  # a quota does not hide what other programs take
    assert (quota(bed, EDGE), quota(other, EDGE)) == (0.25, 0.05)


@pytest.mark.skipif(bool(cpu.refused(("memory",))), reason="no cgroup with memory is to be had here")
def test_an_edge_is_killed_for_more_memory_than_it_has_and_nobody_else() -> None:
    takes = shlex.join([sys.executable, "-c", f"print(len(bytearray(b'x') * {200 << 20}))"])
    with closing(open_local(memory=100 << 20)) as small:
        edge, server = (small.remotes[name].connection.run(takes) for name in (EDGE, SERVER))
        assert (edge.status, edge.out, server.out) == (137, "", f"{200 << 20}\n")
        assert small.label.endswith("with 105 MB of memory")
        assert run(small, EDGE, "echo lives").strip() == "lives"


def test_over_ssh_strangers_are_refused(bed: Testbed) -> None:
    remote = bed.remotes[EDGE]
    connection, of_server = remote.connection, bed.remotes[SERVER].connection
    assert isinstance(connection, ssh.SshConnection)
    assert isinstance(of_server, ssh.SshConnection)
    stranger = Keyring(only=new_key()[0])
    with pytest.raises(Unreachable, match="another host key"):
        ssh.SshConnection(replace(connection.login, host_key=of_server.login.host_key), stranger)
    with pytest.raises(Unreachable, match="takes none of these keys"):
        ssh.SshConnection(connection.login, stranger)


@pytest.mark.parametrize(("which", "window", "after_idle"), [(0, None, "0"), (1, 17, "1")])
def test_tcp_over_the_link_behaves_as_was_asked(
    bed: Testbed, other: Testbed, which: int, window: int | None, after_idle: str
) -> None:
    """A connection's own word for it, at both ends; the kernel's settings; and the manifest's."""
    bed = (bed, other)[which]
    assert bed.links[0].shaper.apply(load("none"))["shaper"] == "relay"
    server, facts = bed.remotes[SERVER].host.data_address, bed.facts
    congestion = "s.getsockopt(6, socket.TCP_CONGESTION, 16).partition(bytes(1))[0].decode()"
    said = f"{congestion}, struct.unpack_from('I', s.getsockopt(6, socket.TCP_INFO, 104), 80)[0]"
    code = (
        f"import socket, struct; l = socket.create_server(('{server}', 0)); "
        f"print(l.getsockname()[1], flush=True); s, _ = l.accept(); print({said}); s.recv(1)"
    )
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    program = (bed.remotes[SERVER].connection.run, f'{sys.executable} -c "{code}"')
    far = threading.Thread(target=program[0], args=program[1:], kwargs={"on_line": lines.put})
    far.start()
    reach = f"('{server}', {int(lines.get(timeout=30))})"
    near = f"import socket, struct; s = socket.create_connection({reach}, 30); print({said})"
    ends = [run(bed, EDGE, f'{sys.executable} -c "{near}"'), lines.get(timeout=30)]
    far.join(30)
    assert not far.is_alive()
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


def test_offloads_are_off_where_it_is_slow_and_a_refused_profile_changes_nothing(bed: Testbed) -> None:
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


DRIVER = """
import sys, time
from pareto.hosts.local.testbed import open_local
bed = open_local(hosts=3, edge_cpu=0.5)
session = bed.remotes["middle1"].start("pareto.remote.link")
session.request("supported", 120)
print("ready", flush=True)
time.sleep(600)
"""
DEEP = [pytest.param(how, marks=pytest.mark.deep) for how in (signal.SIGINT, signal.SIGTERM)]


@pytest.mark.parametrize("how", [signal.SIGKILL, None, *DEEP], ids=str)
def test_nothing_outlives_a_driver_that_dies(how: signal.Signals | None) -> None:
    """Where its builder is killed with it, the kernel ends sshd and workers, and the next start sweeps up the rest."""
    before = left_behind()
    process = started(sys.executable, "-c", DRIVER)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    family, made = descendants(process.pid), left_behind() - before
    assert {what.split()[0] for what in made} == {"namespace", "interface", "file", "process"}
    assert any("cgroup" in what for what in made)
    if how is None:
        (builder,) = python_programs(process.pid, "pareto.hosts.local")
        builder.kill()
    process.send_signal(how or signal.SIGKILL)
    process.wait(20)
    assert ended(family)
    if how is None:
        assert any(what.startswith("namespace") for what in made & left_behind())
        open_local().close()
    assert wait_until(lambda: not made & left_behind()), made & left_behind()


# As its user meets it


def test_each_link_of_a_chain_is_checked_and_says_by_how_much_it_is_off(tmp_path: Path) -> None:
    strict = f"--tolerance 0.001% --rtt-tolerance 0.001% --rtt-floor 1us --duration 0.5s --out {tmp_path}"
    done = command("doctor", "--link", "20ms-20mbit-5%+5ms-50mbit", *strict.split())
    assert done.code == 1, done
    assert "off: RTT " in done.out
    tables = done.out.split("edge-middle1: 20ms-20mbit-5% on local: three namespaces")[1]
    lossy, plain = tables.split("middle1-server: 5ms-50mbit on local: three namespaces")
    for table, asked_ms in ((lossy, 20), (plain, 5)):
        (line,) = (line for line in table.splitlines() if line.startswith("RTT"))
        assert float(line.split()[2]) >= asked_ms  # late on a busy machine, never early
        assert "\nrate out" in table
    assert "\nlost out" in lossy
    assert "lost out" not in plain
    assert "\n30 kB, answered" in plain
    assert max(len(line) for line in done.out.splitlines() if str(tmp_path) not in line) <= 80
    for name in ("20ms-20mbit-5%-edge-middle1", "5ms-50mbit-middle1-server"):
        assert (tmp_path / f"link-{name}.png").stat().st_size > 5000


def test_doctor_finds_and_removes_what_a_killed_testbed_left(tmp_path: Path) -> None:
    """And nothing of a testbed that somebody works with meanwhile."""
    assert "left behind: nothing" in command("doctor").out
    lives, dies = (
        pareto("doctor", "--link", "none", "--duration", "600s", "--out", str(tmp_path)) for _ in range(2)
    )
    assert wait_until(lambda: all(len(workers(check)) == 2 for check in (lives, dies)), 120)
    family = descendants(dies.pid)
    (builder,) = python_programs(dies.pid, "pareto.hosts.local")
    builder.kill()
    dies.kill()
    assert ended(family), family
    there = namespaces()
    found = command("doctor")
    assert found.code == 0
    assert found.out.count("left behind: testbed") == 1
    assert "./pareto.sh doctor --repair" in found.out
    assert namespaces() == there, "it only looks"
    assert "removed" in command("doctor", "--repair").out
    assert "left behind: nothing" in command("doctor").out
    assert len(namespaces()) == len(there) - 3
    assert lives.poll() is None
    assert len(workers(lives)) == 2


def workers(driver: subprocess.Popen[str]) -> list[psutil.Process]:
    return python_programs(driver.pid, "pareto.remote.worker.probe")


def namespaces() -> list[str]:
    return sorted(name for name in left_behind() if name.startswith("namespace"))


def test_a_testbed_that_cannot_be_had_leaves_no_run(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    if qdisc.supported():
        pytest.skip("this kernel has sch_netem, so the edge can shape both directions")
    job = ("--model", "squeezenet1_1", "--points", "3", "--only", "--netem", "wifi", "--shape-at", "edge")
    done = command(*job, "--out", str(tmp_path))
    assert done.code == 2
    assert done.err == snapshot
    assert list(tmp_path.iterdir()) == []
