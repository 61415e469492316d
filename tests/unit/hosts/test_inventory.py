"""Testbed files: what they say, and one line for each fault."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts import inventory
from pareto.hosts.host import EDGE, TestbedError
from pareto.hosts.inventory import HostEntry
from tests.unit.refusals import refusal

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


def test_what_a_file_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    read = inventory.load(write(tmp_path, GOOD))
    assert read.roles == snapshot(name="roles")
    assert [host.is_this_machine for host in read.roles.values()] == [False, True]
    # Middle hosts come in the file's order.
    read = inventory.load(write(tmp_path, CHAIN))
    assert [{role: member.name for role, member in read.roles.items()}, read.sides] == snapshot


def test_a_meters_file_lies_beside_the_testbeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/shelly.py").touch()
    file = write(tmp_path, GOOD.replace("port: 2222", "meter: sub/shelly.py:Plug"))
    monkeypatch.chdir("/")
    (of_edge, of_server) = (host.meter for host in inventory.load(file).roles.values())
    assert (of_edge, of_server) == (f"{tmp_path}/sub/shelly.py:Plug", "")


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


FAULTS = {
    GOOD: (
        ("role: edge", "role: client", 4),
        ("role: server", "role: edge", 12),
        ("192.168.7.1\n", "192.168.7.2\n", 14),
        ("cuda:1", "gpu", 15),
        ("threads: 4", "threads: 0", 10),
        ("port: 2222", "port: ssh", 6),
        ("192.168.7.2\n    data_i", "pi.local\n    data_i", 8),
        ("    ssh: local\n", "", 11),
        ("threads: 4", "thread: 4", 10),
        ("ssh: local", "ssh: -oProxyCommand=reboot", 13),
        ("  pi:", "  pi: {", 5),
        ("port: 2222", "port: [2222]", 6),
        ("ssh: pi@192.168.7.2", "ssh: pi@192.168.7.2:2222", 5),
        ("hosts:", "host:", 2),
        ("  gpu:", "  pi:", 11),
        ("port: 2222", "next_address: 10.0.0.2", 6),
        ("port: 2222", "meter: shelly", 6),
        ("port: 2222", "meter: none.py:Plug", 6),
    ),
    CHAIN: (
        ("next_address: 192.168.8.4", "next_address: mid.lab", 7),
        ("next_address: 192.168.8.4", "next_address: 192.168.7.4", 7),
        ("    next_address: 192.168.8.4\n", "", 7),
        ("next_address: 192.168.8.4", "next_address: 192.168.8.1", 6),
        ("192.168.8.5", "192.168.8.4", 10),
    ),
}


def test_faults(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """A chain has an end."""
    more = [f"  m{i}: {{role: middle, ssh: m{i}, data_address: 192.168.9.{i}}}\n" for i in range(1, 6)]
    assert len(inventory.load(write(tmp_path, CHAIN + "".join(more[:4]))).roles) == 8
    too_long = refusal(TestbedError, inventory.load, write(tmp_path, CHAIN + "".join(more)))
    assert re.search(r"lab\.yaml:15: .* 8 ", too_long)
    said = [too_long]
    for text, faults in FAULTS.items():
        for old, new, line in faults:
            assert text.count(old) == 1
            said.append(refusal(TestbedError, inventory.load, write(tmp_path, text.replace(old, new))))
            assert said[-1].startswith(f"{tmp_path}/lab.yaml:{line}: "), old
    assert said == snapshot


def test_one_file_may_have_several_testbeds(tmp_path: Path) -> None:
    pi = "role: edge, ssh: pi@192.168.7.3, data_address: 192.168.7.3"
    gpu = "gpu: {role: server, ssh: local, data_address: 192.168.7.1}"
    beds = (("one", "a"), ("two", "b"))
    each = [f"  {name}: {{hosts: {{{host}: {{{pi}}}, {gpu}}}}}\n" for name, host in beds]
    path = write(tmp_path, "testbeds:\n" + "".join(each))
    one, two = (path.with_name(f"{path.name}#{name}") for name in ("one", "two"))
    assert inventory.names(path) == ("one", "two")
    assert inventory.names(one) == inventory.names(tmp_path / "nosuch.yaml") == ()
    assert [inventory.load(each).roles[EDGE].name for each in (one, two)] == ["a", "b"]
    assert [host.name for host in inventory.all_hosts(path)] == ["a", "gpu", "b"]
    assert [host.name for host in inventory.all_hosts(one)] == ["a", "gpu"]
    # Faults of a file of several.
    one = "testbeds: {one: {hosts: {}}}"
    for name, text, words in (
        ("lab.yaml", one, "lab.yaml has several testbeds: name one, such as "),
        ("lab.yaml#two", one, "has no testbed two: it has one"),
        ("lab.yaml#one", one, "no host has the role edge: add one"),
        ("lab.yaml#one", "hosts: {}", "lab.yaml:1: 'hosts' is an unknown key"),
        ("lab.yaml#one", "testbeds: {}", "lab.yaml:1: testbeds: name at least one"),
        ("lab.yaml#o.e", "testbeds:\n  o.e: {hosts: {}}", "lab.yaml:2: 'o.e': a testbed's name"),
        ("lab.yaml#one", "testbeds:\n  one:\n    hosts: {a: {role: sever}}", "lab.yaml:3: role 'sever'"),
    ):
        write(tmp_path, text)
        path = tmp_path / name
        said = refusal(TestbedError, lambda path=path: inventory.load(path).roles)
        assert words in said
        assert "hosts add" not in said
        with pytest.raises(TestbedError, match="by hand"):
            inventory.require_one(tmp_path / "lab.yaml#one")


def test_files_that_are_none(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    def load(text: str) -> str:
        return refusal(TestbedError, lambda: inventory.load(write(tmp_path, text)).roles)

    assert [load(text) for text in ("", "hosts: [pi]", "pi")] == snapshot(name="something else")
    said = load(GOOD[: GOOD.index("  gpu:")])
    assert "server" in said
    assert said == snapshot(name="a role that nobody has")
    assert inventory.load(write(tmp_path, "hosts:\n")).hosts == ()
    nowhere = tmp_path / "lab.yaml" / "lab.yaml"
    assert str(nowhere) in refusal(TestbedError, inventory.load, nowhere)
    assert str(nowhere) in refusal(TestbedError, inventory.add, nowhere, PI)


PI = HostEntry("pi", "edge", "pi@192.168.7.2", "192.168.7.2", "eth0")
MIDDLE = HostEntry("mid", "middle", "mid", "192.168.7.3", next_address="192.168.8.3", next_interface="eth1")
GPU = HostEntry("gpu", "server", "gpu", "192.168.7.1", device="cuda:0", threads=8, python="/opt/python")


def test_a_file_is_made_with_a_header_and_grows(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    path = tmp_path / "folder" / "lab.yaml"
    inventory.add(path, PI)
    inventory.add(path, GPU)
    assert inventory.load(path).hosts == (PI, GPU)
    assert path.read_text() == snapshot
    assert path.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in path.parent.iterdir()] == ["lab.yaml"]
    # The user's own text stays. A symbolic link, too.
    path = tmp_path / "link.yaml"
    path.symlink_to(tmp_path / "lab.yaml")
    none = ("hosts:  # none yet\n", "hosts:\n", "hosts:")
    for before in (MINE, f"hosts:\n  {FLOW}  # no end of line", *none):
        write(tmp_path, before).chmod(0o600)
        already = inventory.load(path).hosts
        inventory.add(path, PI)
        assert path.read_text().startswith(before)
        assert inventory.load(path).hosts == (*already, PI)
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.is_symlink()
    # Every value is read back as it was.
    odd: tuple[dict[str, Any], ...] = (
        {"key": Path("/keys/of mine/a: b #c"), "user": "o'hara", "port": 2222},
        {"port": 2222, "host_key": "ssh-ed25519 AAAAC3Nza+/b="},
        {"ssh": "pi@fe80::1%eth0", "data_interface": '"'},
        {"ssh": "ssh://pi@10.0.0.2:22", "python": "C:\\python"},
        {"name": "on", "user": "null", "folder": "/mnt/0x10"},
        {"name": "1.5", "ssh": "@home", "pip_index": "https://example.org/simple?a=b#c"},
        {"ssh": "fe80::"},
    )
    for number, member in enumerate((*(replace(PI, **fields) for fields in odd), GPU, MIDDLE)):
        path = tmp_path / f"{number}.yaml"
        inventory.add(path, member)
        assert inventory.load(path).hosts == (member,)


MINE = """\
# mine
hosts:
      gpu:  # the big one
          role: server
          ssh: gpu
          data_address: 10.0.0.1
      # more to come
"""
FLOW = "gpu: {role: server, ssh: gpu, data_address: 10.0.0.1}"


def test_a_file_that_cannot_be_added_to_is_left(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    messages = []
    its_address = FLOW.replace("10.0.0.1", PI.data_address)
    hosts = (f"hosts: {{{FLOW}}}", "hosts: {}", f"hosts:\n  {FLOW}\n...", f"hosts:\n  {its_address}")
    for before in hosts:
        path = write(tmp_path, f"{before}\n")
        messages.append(refusal(TestbedError, inventory.add, path, PI))
        assert messages[-1].startswith(f"{path} ") and ".lab.yaml" not in messages[-1]
        assert path.read_text() == f"{before}\n"
        assert [each.name for each in tmp_path.iterdir()] == ["lab.yaml"]
    assert messages == snapshot


MOVED = {
    "hosts:\n  pi:  # mine\n    role: edge\n    data_address: 10.0.0.2  # by hand\n    ssh: pi\n": (
        "hosts:\n  pi:  # mine\n    role: edge\n    data_interface: eth1\n"
        "    data_address: 10.9.9.9  # by hand\n    ssh: pi\n"
    ),
    "hosts:\n  pi: {role: edge, data_address: 10.0.0.2, ssh: pi}\n": (
        "hosts:\n  pi: {role: edge, data_interface: eth1, data_address: 10.9.9.9, ssh: pi}\n"
    ),
    'hosts: {pi: {ssh: pi, data_interface: "eth0", data_address: "10.0.0.2", role: edge}}\n': (
        "hosts: {pi: {ssh: pi, data_interface: eth1, data_address: 10.9.9.9, role: edge}}\n"
    ),
}


def test_an_address_is_changed_and_nothing_else(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    """One that stands elsewhere is left."""
    for before, moved in MOVED.items():
        path = write(tmp_path, before)
        (host,) = inventory.load(path).hosts
        inventory.change(path, replace(host, data_address="10.9.9.9", data_interface="eth1"))
        assert path.read_text() == moved
    path = write(tmp_path, shared := "hosts:\n  pi: {role: edge, ssh: &here 10.0.0.2, data_address: *here}\n")
    (host,) = inventory.load(path).hosts
    assert refusal(TestbedError, inventory.change, path, replace(host, data_address="10.9.9.9")) == snapshot
    assert path.read_text() == shared
    # How a host is reached is changed and nothing else.
    keys = "    role: edge\n    port: 41 # of the day\n    data_address: 10.0.0.2\n    ssh: ann@10.0.0.2\n"
    path = write(tmp_path, f"hosts:\n  pi:\n{keys}")
    (host,) = inventory.load(path).hosts
    other = {"host_key": "ssh-ed25519 AAAA+/b=", "key": Path("/keys/its own")}
    changed = replace(host, port=42, ssh="bob@10.0.0.2", **other)
    inventory.change(path, changed)
    assert inventory.load(path).hosts == (changed,)
    assert "port: 42 # of the day\n" in path.read_text()
