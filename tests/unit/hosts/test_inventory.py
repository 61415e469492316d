"""Testbed files: what they say, and one line for each fault."""

from __future__ import annotations

from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

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
    ("old", "new", "line"),
    [
        ("role: edge", "role: client", 4),
        ("role: server", "role: edge", 12),
        ("192.168.7.1\n", "192.168.7.2\n", 12),
        ("cuda:1", "gpu", 15),
        ("threads: 4", "threads: 0", 10),
        ("port: 2222", "port: ssh", 6),
        ("192.168.7.2\n    data_i", "pi.local\n    data_i", 8),
        ("    ssh: local\n", "", 12),
        ("threads: 4", "thread: 4", 10),
        ("ssh: local", "ssh: -oProxyCommand=reboot", 13),
        ("  pi:", "  pi: {", 5),
        ("port: 2222", "port: [2222]", 6),
        ("hosts:", "host:", 2),
        ("  gpu:", "  pi:", 11),
        ("port: 2222", "next_address: 10.0.0.2", 6),
    ],
)
def test_faults(tmp_path: Path, old: str, new: str, line: int, snapshot: SnapshotAssertion) -> None:
    assert GOOD.count(old) == 1
    with pytest.raises(TestbedError) as fault:
        inventory.load(write(tmp_path, GOOD.replace(old, new)))
    assert str(fault.value).startswith(f"{tmp_path}/lab.yaml:{line}: ")
    assert "\n" not in str(fault.value)
    assert str(fault.value) == snapshot


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
    ("old", "new", "line"),
    [
        ("next_address: 192.168.8.4", "next_address: mid.lab", 7),
        ("next_address: 192.168.8.4", "next_address: 192.168.7.4", 7),
        ("    next_address: 192.168.8.4\n", "", 7),
        ("next_address: 192.168.8.4", "next_address: 192.168.8.1", 4),
        ("192.168.8.5", "192.168.8.4", 10),
    ],
)
def test_faults_of_middle_hosts(
    tmp_path: Path, old: str, new: str, line: int, snapshot: SnapshotAssertion
) -> None:
    assert CHAIN.count(old) == 1
    with pytest.raises(TestbedError) as fault:
        inventory.load(write(tmp_path, CHAIN.replace(old, new)))
    assert str(fault.value).startswith(f"{tmp_path}/lab.yaml:{line}: ")
    assert "\n" not in str(fault.value)
    assert str(fault.value) == snapshot


def test_a_chain_has_an_end(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    more = [f"  m{i}: {{role: middle, ssh: m{i}, data_address: 192.168.9.{i}}}\n" for i in range(1, 6)]
    assert len(inventory.load(write(tmp_path, CHAIN + "".join(more[:4]))).roles) == 8
    with pytest.raises(TestbedError, match=r"lab\.yaml:15: .* 8 ") as fault:
        inventory.load(write(tmp_path, CHAIN + "".join(more)))
    assert str(fault.value) == snapshot


@pytest.mark.parametrize("text", ["", "hosts: [pi]", "pi"])
def test_a_file_of_something_else(tmp_path: Path, text: str, snapshot: SnapshotAssertion) -> None:
    with pytest.raises(TestbedError) as fault:
        inventory.load(write(tmp_path, text))
    assert str(fault.value) == snapshot


def test_a_role_that_nobody_has(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    path = write(tmp_path, GOOD[: GOOD.index("  gpu:")])
    with pytest.raises(TestbedError, match="server") as fault:
        _ = inventory.load(path).roles
    assert str(fault.value) == snapshot
    assert inventory.load(write(tmp_path, "hosts:\n")).members == ()


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match=str(tmp_path / "lab.yaml")):
        inventory.load(tmp_path / "lab.yaml")
