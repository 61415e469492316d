"""By which right the local testbed is made, and what is said where there is none."""

from __future__ import annotations

import os
import re

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.local import rights
from pareto.hosts.local.rights import OWN, ROOT, SUDO, Forbidden

REFUSAL = "unshare: unshare failed: Operation not permitted"


class Machine:
    """Who runs there, and what it permits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.uid = 1000
        self.lacking: list[str] = []
        self.refusal = ""
        self.sudo = False
        monkeypatch.setattr(os, "geteuid", lambda: self.uid)
        monkeypatch.setattr(rights, "_lacking", lambda: self.lacking)
        monkeypatch.setattr(rights, "_refusal", lambda *argv: self.refusal)
        monkeypatch.setattr(rights, "_sudo", lambda: self.sudo)

    def words(self, own_lacks: str = "") -> str:
        with pytest.raises(Forbidden) as refused:
            rights.find(own_lacks)
        return str(refused.value)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(monkeypatch)


def test_root_needs_nothing_more(machine: Machine) -> None:
    machine.uid = 0
    assert rights.find().kind == ROOT
    assert rights.find("no share of a core").kind == ROOT


def test_no_sudo_is_asked_for_where_the_kernel_lets_a_user_make_a_namespace_of_its_own(
    machine: Machine,
) -> None:
    machine.sudo = True
    found = rights.find()
    assert found.kind == OWN
    assert found.prefix[0] == "unshare"


@pytest.mark.parametrize("lacks", ["", "no share of a core"])
def test_sudo_is_the_way_where_that_is_refused_or_not_enough(machine: Machine, lacks: str) -> None:
    machine.refusal, machine.sudo = "" if lacks else REFUSAL, True
    assert rights.find(lacks) == rights.Rights(SUDO, ("sudo", "-n"))


def test_a_user_with_neither_is_told_of_both(machine: Machine, snapshot: SnapshotAssertion) -> None:
    machine.refusal = REFUSAL
    assert machine.words() == snapshot
    assert machine.words("no share of a core") == "no share of a core"


def test_root_of_a_container_makes_a_namespace_of_its_own(machine: Machine) -> None:
    machine.uid, machine.lacking = 0, ["NET_ADMIN", "SYS_ADMIN"]
    assert rights.find().kind == OWN


@pytest.mark.parametrize("lacking", [["NET_ADMIN", "SYS_ADMIN"], ["SYS_ADMIN"]])
def test_root_of_a_container_that_refuses_it_is_told_what_is_missing_and_the_two_ways_out(
    machine: Machine, lacking: list[str], snapshot: SnapshotAssertion
) -> None:
    machine.uid, machine.lacking, machine.refusal = 0, lacking, REFUSAL
    words = machine.words()
    assert words == snapshot
    assert re.findall(r"--cap-add (\w+)", words) == lacking
    assert "--testbed FILE" in words


def test_root_whom_a_container_refuses_its_mounts(machine: Machine, snapshot: SnapshotAssertion) -> None:
    machine.uid, machine.refusal = 0, "mount: /run: permission denied."
    assert machine.words() == snapshot
