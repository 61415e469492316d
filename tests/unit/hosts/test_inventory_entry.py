"""Adding a host to a testbed file: the user's comments stay, and what is written is read back or not written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts import inventory, inventory_entry
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import Member

PI = Member("pi", "edge", "pi@192.168.7.2", "192.168.7.2", "eth0")
MIDDLE = Member("mid", "middle", "mid", "192.168.7.3", next_address="192.168.8.3", next_interface="eth1")
GPU = Member("gpu", "server", "gpu", "192.168.7.1", device="cuda:0", threads=8, python="/opt/python")


def test_a_file_is_made_with_a_header_and_grows(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    path = tmp_path / "folder" / "lab.yaml"
    assert inventory_entry.read(path).members == ()
    inventory_entry.add(path, PI)
    inventory_entry.add(path, GPU)
    assert inventory.load(path).members == (PI, GPU)
    assert path.read_text() == snapshot
    assert path.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in path.parent.iterdir()] == ["lab.yaml"]


@pytest.mark.parametrize(
    "before",
    [
        "# mine\nhosts:\n      gpu:  # the big one\n          role: server\n          ssh: gpu\n"
        "          data_address: 10.0.0.1\n      # more to come\n",
        "hosts:\n  gpu: {role: server, ssh: gpu, data_address: 10.0.0.1}  # no end of line",
        "hosts:  # none yet\n",
        "hosts:\n",
        "hosts:",
    ],
)
def test_what_the_user_wrote_stays(tmp_path: Path, before: str) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(before)
    path.chmod(0o600)
    already = inventory.load(path).members
    inventory_entry.add(path, PI)
    assert path.read_text().startswith(before)
    assert inventory.load(path).members == (*already, PI)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "before",
    [
        "hosts: {gpu: {role: server, ssh: gpu, data_address: 10.0.0.1}}\n",
        "hosts: {}\n",
        "hosts:\n  gpu: {role: server, ssh: gpu, data_address: 10.0.0.1}\n...\n",
        "hosts:\n  gpu: {role: server, ssh: gpu, data_address: 192.168.7.2}\n",
    ],
)
def test_a_file_that_cannot_be_added_to_is_left(
    tmp_path: Path, before: str, snapshot: SnapshotAssertion
) -> None:
    path = tmp_path / "lab.yaml"
    path.write_text(before)
    with pytest.raises(TestbedError) as fault:
        inventory_entry.add(path, PI)
    assert str(fault.value).startswith(f"{path} ")
    assert ".lab.yaml" not in str(fault.value)
    assert str(fault.value) == snapshot
    assert "\n" not in str(fault.value)
    assert path.read_text() == before
    assert [each.name for each in tmp_path.iterdir()] == ["lab.yaml"]


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "lab.yaml"
    real.write_text("hosts:\n")
    link.symlink_to(real)
    inventory_entry.add(link, PI)
    assert link.is_symlink()
    assert inventory.load(real).members == (PI,)


@pytest.mark.parametrize(
    "member",
    [
        replace(PI, key=Path("/keys/of mine/a: b #c"), user="o'hara", port=2222),
        replace(PI, ssh="pi@fe80::1%eth0", data_interface='"'),
        replace(PI, ssh="ssh://pi@10.0.0.2:22", python="C:\\python"),
        replace(PI, name="on", user="null", folder="/mnt/0x10"),
        replace(PI, name="1.5", ssh="@home", pip_index="https://example.org/simple?a=b#c"),
        replace(PI, ssh="fe80::"),
        GPU,
        MIDDLE,
    ],
)
def test_every_value_is_read_back_as_it_was(tmp_path: Path, member: Member) -> None:
    path = tmp_path / "lab.yaml"
    inventory_entry.add(path, member)
    assert inventory.load(path).members == (member,)


def test_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TestbedError, match=str(tmp_path / "file" / "lab.yaml")):
        inventory_entry.add(tmp_path / "file" / "lab.yaml", PI)
