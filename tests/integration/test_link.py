"""The privileged helper, its journal and the offload switches on a real interface; what needs sch_netem: tests/vm."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyroute2 import IPRoute, netns
from syrupy.assertion import SnapshotAssertion

from pareto.remote.link import journal, offload, qdisc, steering
from pareto.remote.link.netem import QdiscError
from tests import REPOSITORY
from tests.less_than_root import needs_networks
from tests.program import Program

pytestmark = [pytest.mark.integration, needs_networks]

ADDRESS = "10.78.0.1"
ALL_OFF = {"tso": False, "gso": False, "gro": False}
SHAPED: dict[str, Any] = {"egress": {"delay_s": 0.01}}
UNSHAPED: dict[str, Any] = {"egress": {}}


@pytest.fixture
def namespace() -> Iterator[str]:
    """A namespace with one end of a veth, data0; this thread is in it."""
    name = f"pareto-test-{os.getpid()}-host"
    netns.create(name)
    netns.pushns(name)
    with IPRoute() as ip:
        ip.link("add", ifname="data0", kind="veth", peer="peer0")
        index = ip.link_lookup(ifname="data0")[0]
        ip.addr("add", index=index, address=ADDRESS, prefixlen=24)
        ip.link("set", index=index, state="up")
    yield name
    netns.popns()
    netns.remove(name)


class Helper(Program):
    ask = Program.reply

    def __init__(self) -> None:
        super().__init__("pareto.remote.link")

    def apply(self, **fields: Any) -> dict[str, Any]:
        return self.ask("apply", **{"interface": "data0", "address": ADDRESS} | fields)


@pytest.fixture
def helper(namespace: str) -> Iterator[Helper]:
    helper = Helper()
    yield helper
    helper.close()


def roots() -> list[str]:
    with IPRoute() as ip:
        return [q.get_attr("TCA_KIND") for q in ip.get_qdiscs(index=qdisc.index_of("data0"))]


def test_what_cannot_be_is_one_line_and_without_netem_nothing_stays(
    helper: Helper, snapshot: SnapshotAssertion
) -> None:
    """Nor is an interface touched that is to be unshaped."""
    found = offload.read("data0")
    nothing: dict[str, Any] = {"shaper": "none", "scope": "interface", "without_effect": []}
    nothing |= {"egress": None, "ingress": None}
    assert helper.apply(egress={})["result"] == nothing | {"offloads": found}
    assert helper.ask("stats", interface="data0")["result"] == {"dropped": 0, "position_s": None}
    requests: list[dict[str, Any]] = [
        {"interface": "nosuch0", **SHAPED},
        {"interface": None},
        {"egress": {"jitters": 1}},
        {"ingress": {"delay_s": -1}},
        {"egress": {"rate_bps": 1e6}, "bucket": {"burst": 1}},
        {"interface": "lo", "address": "127.0.0.1", **SHAPED},
        {"interface": "peer0", **SHAPED},
        {"address": "10.78.0.2", **SHAPED},
        {"address": "data0", **SHAPED},
        {"patience_s": 1e9},
    ]
    errors = [helper.apply(**fields)["error"] for fields in requests]
    assert not any("\n" in error for error in errors)
    # Which interfaces a new namespace has depends on the kernel.
    assert "\n".join(error.partition(": there are ")[0] for error in errors) == snapshot
    supported = helper.ask("supported")["result"]
    reply = helper.apply(egress={"delay_s": 0.01, "rate_bps": 5e6})
    assert reply["ok"] == supported
    assert supported or (reply["error"], files()) == (qdisc.NO_NETEM, [])
    assert helper.close() == 0
    assert (roots(), offload.read("data0"), files()) == (["noqueue"], found, [])


# The journal


def files() -> list[Path]:
    """The journal's, of this namespace; those of others are no business of this test."""
    return list(journal.FOLDER.glob(f"*{Path('/proc/thread-self/ns/net').stat().st_ino}-*"))


@contextmanager
def killed() -> Iterator[None]:
    """A program claimed the interface, switched its offloads off, and was killed."""
    code = (
        "import os; from pareto.remote.link import journal, offload\n"
        "journal.claim('data0'); offload.write('data0', offload.OFF); os.kill(os.getpid(), 9)"
    )
    found = offload.read("data0")
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY)
    assert offload.read("data0") == ALL_OFF != found
    (path,) = files()
    yield
    assert not path.exists()


def test_a_claim_is_on_file_before_anything_is_changed_and_one_program_shapes_an_interface(
    helper: Helper, snapshot: SnapshotAssertion
) -> None:
    claim = journal.claim("data0")
    (path,) = files()
    assert path.name == f"{Path('/proc/thread-self/ns/net').stat().st_ino}-data0.json"
    assert [stat.S_IMODE(it.stat().st_mode) for it in (path, journal.FOLDER)] == [0o600, 0o755]
    assert json.loads(path.read_text())["offloads"] == offload.read("data0")
    (error,) = {helper.apply(**fields)["error"] for fields in (SHAPED, UNSHAPED)}
    assert error == snapshot
    assert journal.leftovers() == journal.repair() == []
    offload.write("data0", offload.OFF)
    assert claim.undo() == []
    assert (offload.read("data0"), files()) == (claim.offloads, [])


def test_what_a_killed_program_left_is_repaired_in_its_own_namespace(
    namespace: str, snapshot: SnapshotAssertion
) -> None:
    found = offload.read("data0")
    argv = [sys.executable, "-m", "pareto.remote.link", "--repair"]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True)
    assert (done.returncode, done.stdout.startswith("nothing to repair")) == (0, True), done
    with killed():
        netns.popns()
        try:
            assert [*journal.leftovers(), *journal.repair()] == snapshot
        finally:
            netns.pushns(namespace)
        assert offload.read("data0") == found


def test_of_a_namespace_or_an_interface_that_is_gone_a_file_is_removed_and_no_other_is_touched(
    namespace: str, snapshot: SnapshotAssertion
) -> None:
    with killed():
        with IPRoute() as ip:
            ip.link("del", index=qdisc.index_of("data0"))
            ip.link("add", ifname="other0", kind="veth", peer="other1")
            ip.link("add", ifname="data0", kind="veth", peer="peer0")
        offload.write("data0", offload.OFF)
        said = journal.repair()
        assert offload.read("data0") == ALL_OFF
    offload.write("data0", {"tso": True, "gso": True, "gro": False})
    with killed():
        netns.popns()
        netns.remove(namespace)
        try:
            assert said + journal.repair() == snapshot
        finally:
            netns.create(namespace)
            netns.pushns(namespace)


def test_what_cannot_be_put_back_keeps_nothing_else_from_it(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = journal.Journal("data0", qdisc.index_of("data0"), offload.read("data0"), 0)
    offload.write("data0", offload.OFF)
    monkeypatch.setattr(steering, "stop_ingress", Mock(side_effect=QdiscError("the kernel refused")))
    with pytest.raises(QdiscError, match="the kernel refused"):
        before.put_back()
    assert offload.read("data0") == before.offloads


# Whom it shapes


@pytest.fixture
def addressed(namespace: str) -> None:
    with IPRoute() as ip:
        ip.link("add", ifname="ssh0", kind="veth", peer="ssh1")
        ip.addr("add", index=qdisc.index_of("ssh0"), address="10.79.0.1", prefixlen=24)
        ip.link("set", index=qdisc.index_of("ssh0"), state="up")
        for name in ("lo", "peer0", "ssh1"):
            ip.link("set", index=qdisc.index_of(name), state="up")


def test_an_interface_that_ssh_uses_is_shaped_towards_the_peer_alone(
    addressed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the kernel says over which interface a client is reached; behind a filter nothing is known of that."""
    spared = "peer 10.78.0.2, TCP port 2022 spared"
    told = {
        ("10.78.0.9", False): spared,
        ("10.79.0.9", False): "interface",
        ("10.79.0.9", True): spared,
        ("127.0.0.1", False): "interface",
        ("192.0.2.1", False): "interface",  # no way there from here
        ("fe80::1%data0", False): spared,
        ("fe80::1%ssh0", False): "interface",
        ("", False): "interface",
        ("", True): "peer 10.78.0.2, TCP port 22 spared",
    }
    monkeypatch.setattr(steering, "_before_sudo", str)
    found = {}
    for client, filtered in told:
        monkeypatch.setenv("SSH_CONNECTION", f"{client} 5555 10.78.0.1 2022" if client else "")
        found[client, filtered] = str(steering.scope("data0", "10.78.0.2", filtered))
    assert found == told


def test_a_shared_interface_needs_the_peers_address_also_behind_sudo_which_empties_the_environment(
    addressed: None, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.78.0.9 5555 10.78.0.1 2022")
    refused = []
    for peer in (None, "fd00::2"):
        with pytest.raises(QdiscError) as fault:
            steering.scope("data0", peer, False)
        refused.append(str(fault.value))
    assert refused == snapshot
    inner = "from pareto.remote.link import steering; print(steering.scope('data0', '10.78.0.2', False))"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}], env={{}})"
    done = subprocess.run([sys.executable, "-c", outer], cwd=REPOSITORY, capture_output=True, text=True)
    assert done.stdout == "peer 10.78.0.2, TCP port 2022 spared\n", done.stderr
