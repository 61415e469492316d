"""Testbed files: what they say, and one line for each fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from pareto.hosts import inventory
from pareto.hosts.host import EDGE, SERVER, TestbedError
from pareto.hosts.inventory import Member, Side

GOOD = """\
# two hosts on a bench
hosts:
  pi:
    role: edge
    ssh: pi@192.168.7.2
    port: 2222
    key: ~/.ssh/bench
    data_address: 192.168.7.2
    data_interface: eth0
    threads: 4
  gpu:
    role: server
    ssh: local
    data_address: 192.168.7.1
    device: cuda:1
    python: /opt/venv/bin/python
    folder: /srv/pareto
    pip_index: https://example.org/simple
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "lab.yaml"
    path.write_text(text)
    return path


def test_what_a_file_says(tmp_path: Path) -> None:
    read = inventory.load(write(tmp_path, GOOD))
    edge, server = read.roles[EDGE], read.roles[SERVER]
    assert list(read.roles) == [EDGE, SERVER]
    assert edge == Member(
        "pi",
        "edge",
        "pi@192.168.7.2",
        "192.168.7.2",
        "eth0",
        port=2222,
        key=Path.home() / ".ssh/bench",
        threads=4,
    )
    assert not edge.is_here
    assert server.is_here
    assert (server.device, server.python, server.folder) == ("cuda:1", "/opt/venv/bin/python", "/srv/pareto")
    assert (server.data_interface, server.pip_index) == ("", "https://example.org/simple")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("role: edge", "role: client"), "lab.yaml:4: role 'client': use edge, middle or server"),
        (("role: server", "role: edge"), "lab.yaml:12: pi and gpu have the same role edge"),
        (
            ("192.168.7.1\n", "192.168.7.2\n"),
            "lab.yaml:12: pi and gpu have the same data_address 192.168.7.2",
        ),
        (("cuda:1", "gpu"), "lab.yaml:15: device 'gpu': use cpu, or cuda:0 for the first GPU"),
        (("threads: 4", "threads: 0"), "lab.yaml:10: threads '0': a number from 1 to 256"),
        (("port: 2222", "port: ssh"), "lab.yaml:6: port 'ssh': a port from 1 to 65535"),
        (
            ("192.168.7.2\n    data_i", "pi.local\n    data_i"),
            "lab.yaml:8: data_address 'pi.local': an IPv4 address",
        ),
        (("    ssh: local\n", ""), "lab.yaml:12: host gpu: ssh is missing"),
        (("threads: 4", "thread: 4"), "lab.yaml:10: unknown key 'thread' (did you mean threads?)"),
        (("ssh: local", "ssh: -oProxyCommand=reboot"), "lab.yaml:13: ssh '-oProxyCommand=reboot': a name"),
        (("  pi:", "  pi: {"), "lab.yaml:5: not YAML"),
        (("port: 2222", "port: [2222]"), "lab.yaml:6: port must be one value"),
        (("hosts:", "host:"), "lab.yaml:2: unknown key 'host' (did you mean hosts?)"),
        (("  gpu:", "  pi:"), "lab.yaml:11: key 'pi' stands here twice"),
        (("port: 2222", "next_address: 10.0.0.2"), "lab.yaml:6: next_address '10.0.0.2': only a middle host"),
    ],
)
def test_faults(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    assert GOOD.count(change[0]) == 1
    with pytest.raises(TestbedError) as fault:
        inventory.load(write(tmp_path, GOOD.replace(*change)))
    assert str(fault.value).startswith(f"{tmp_path}/{says}"), fault.value
    assert "\n" not in str(fault.value)


CHAIN = """\
hosts:
  gpu: {role: server, ssh: gpu, data_address: 192.168.8.1}
  second:
    role: middle
    ssh: second
    data_address: 192.168.7.4
    next_address: 192.168.8.4
    next_interface: eth1
  pi: {role: edge, ssh: pi, data_address: 192.168.7.2, data_interface: eth0}
  third: {role: middle, ssh: third, data_address: 192.168.8.5}
"""


def test_middle_hosts_come_in_the_files_order(tmp_path: Path) -> None:
    read = inventory.load(write(tmp_path, CHAIN))
    assert {role: member.name for role, member in read.roles.items()} == {
        "edge": "pi",
        "middle1": "second",
        "middle2": "third",
        "server": "gpu",
    }
    assert list(read.roles) == ["edge", "middle1", "middle2", "server"]
    assert read.sides == {
        "edge": (Side("192.168.7.2", "eth0", "192.168.7.4"),),
        "middle1": (Side("192.168.7.4", "", "192.168.7.2"), Side("192.168.8.4", "eth1", "192.168.8.5")),
        "middle2": (Side("192.168.8.5", "", "192.168.8.4"), Side("192.168.8.5", "", "192.168.8.1")),
        "server": (Side("192.168.8.1", "", "192.168.8.5"),),
    }


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (
            ("next_address: 192.168.8.4", "next_address: mid.lab"),
            "lab.yaml:7: next_address 'mid.lab': an IPv4 address on the link to the next host",
        ),
        (
            ("next_address: 192.168.8.4", "next_address: 192.168.7.4"),
            "lab.yaml:7: next_address '192.168.7.4': as data_address: leave it out",
        ),
        (("    next_address: 192.168.8.4\n", ""), "lab.yaml:7: next_interface 'eth1': say next_address too"),
        (
            ("next_address: 192.168.8.4", "next_address: 192.168.8.1"),
            "lab.yaml:4: gpu and second have the same data_address 192.168.8.1",
        ),
        (
            ("192.168.8.5", "192.168.8.4"),
            "lab.yaml:10: second and third have the same data_address 192.168.8.4",
        ),
    ],
)
def test_faults_of_middle_hosts(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    assert CHAIN.count(change[0]) == 1
    with pytest.raises(TestbedError) as fault:
        inventory.load(write(tmp_path, CHAIN.replace(*change)))
    assert str(fault.value).startswith(f"{tmp_path}/{says}"), fault.value


def test_a_chain_has_an_end(tmp_path: Path) -> None:
    more = [f"  m{i}: {{role: middle, ssh: m{i}, data_address: 192.168.9.{i}}}\n" for i in range(1, 6)]
    assert len(inventory.load(write(tmp_path, CHAIN + "".join(more[:4]))).roles) == 8
    with pytest.raises(TestbedError, match=r"lab\.yaml:15: a chain has at most 8 hosts"):
        inventory.load(write(tmp_path, CHAIN + "".join(more)))


@pytest.mark.parametrize(
    ("text", "says"), [("", "is empty"), ("hosts: [pi]", "hosts must map"), ("pi", "must be a mapping")]
)
def test_a_file_of_something_else(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(TestbedError, match=says):
        inventory.load(write(tmp_path, text))


def test_a_role_that_nobody_has(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD[: GOOD.index("  gpu:")])
    with pytest.raises(TestbedError, match=r"no host has the role server: add one, or ./pareto.sh hosts add"):
        _ = inventory.load(path).roles
    assert inventory.load(write(tmp_path, "hosts:\n")).members == ()


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match="cannot read the testbed"):
        inventory.load(tmp_path / "lab.yaml")
