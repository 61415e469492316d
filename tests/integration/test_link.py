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

import pytest
from pyroute2 import IPRoute, netns
from syrupy.assertion import SnapshotAssertion

from pareto.remote.link import journal, offload, qdisc, steering
from pareto.remote.link.netem import QdiscError
from tests import REPOSITORY
from tests.less_than_root import needs_networks
from tests.program import Program

pytestmark = [
    pytest.mark.integration,
    needs_networks,
]

ADDRESS = "10.78.0.1"
ALL_OFF = {"tso": False, "gso": False, "gro": False}


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


def test_an_unshaped_interface_is_not_touched(helper: Helper) -> None:
    before = offload.read("data0")
    reply = helper.apply(egress={})
    assert reply["result"] == {
        "shaper": "none",
        "scope": "interface",
        "egress": None,
        "ingress": None,
        "offloads": before,
        "without_effect": [],
    }
    assert helper.ask("stats", interface="data0")["result"] == {"dropped": 0, "position_s": None}


def roots() -> list[str]:
    with IPRoute() as ip:
        return [q.get_attr("TCA_KIND") for q in ip.get_qdiscs(index=qdisc.index_of("data0"))]


@pytest.mark.parametrize("kind", ["tbf", "pfifo_fast"])
def test_somebodys_qdisc_is_refused_and_left_alone(
    helper: Helper, kind: str, snapshot: SnapshotAssertion
) -> None:
    options = {"rate": 125_000, "burst": 16_000, "latency": 50_000} if kind == "tbf" else {}
    with IPRoute() as ip:
        ip.tc("add", kind, qdisc.index_of("data0"), handle="8001:", **options)
    before = offload.read("data0")
    for egress in ({"delay_s": 0.01}, {}):  # unshaped it is not, either
        reply = helper.apply(egress=egress)
        assert reply["error"] == snapshot
    assert roots() == [kind]
    assert offload.read("data0") == before
    assert not files()


def test_errors_are_one_line(helper: Helper, snapshot: SnapshotAssertion) -> None:
    requests: list[dict[str, Any]] = [
        {"interface": "nosuch0", "egress": {"delay_s": 0.01}},
        {"interface": None},
        {"egress": {"jitters": 1}},
        {"ingress": {"delay_s": -1}},
        {"egress": {"rate_bps": 1e6}, "bucket": {"burst": 1}},
        {"interface": "lo", "address": "127.0.0.1", "egress": {"delay_s": 0.01}},
        {"interface": "peer0", "egress": {"delay_s": 0.01}},
        {"address": "10.78.0.2", "egress": {"delay_s": 0.01}},
        {"address": "data0", "egress": {"delay_s": 0.01}},
        {"patience_s": 1e9},
    ]
    errors = [helper.apply(**fields)["error"] for fields in requests]
    assert not any("\n" in error for error in errors)
    # Which interfaces a new namespace has depends on the kernel.
    assert "\n".join(error.partition(": there are ")[0] for error in errors) == snapshot


def test_a_kernel_without_netem_is_told_and_nothing_stays(helper: Helper) -> None:
    found = offload.read("data0")
    supported = helper.ask("supported")["result"]
    reply = helper.apply(egress={"delay_s": 0.01, "rate_bps": 5e6})
    assert reply["ok"] == supported
    if not supported:
        assert reply["error"] == qdisc.NO_NETEM
        assert not files()
    assert helper.close() == 0
    assert roots() == ["noqueue"]
    assert offload.read("data0") == found
    assert not files()


# The journal


def files() -> list[Path]:
    """The journal's, of this namespace; those of others are no business of this test."""
    return list(journal.FOLDER.glob(f"*{Path('/proc/thread-self/ns/net').stat().st_ino}-*"))


@contextmanager
def killed(interface: str = "data0") -> Iterator[None]:
    """A program claimed the interface, switched its offloads off, and was killed."""
    code = (
        "import os; from pareto.remote.link import journal, offload\n"
        f"journal.claim({interface!r}); offload.write({interface!r}, offload.OFF); os.kill(os.getpid(), 9)"
    )
    found = offload.read(interface)
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY)
    assert offload.read(interface) == ALL_OFF != found
    (path,) = files()
    yield
    assert not path.exists()


def test_a_claim_is_on_file_before_anything_is_changed(namespace: str) -> None:
    claim = journal.claim("data0")
    (path,) = files()
    assert path.name == f"{Path('/proc/thread-self/ns/net').stat().st_ino}-data0.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(journal.FOLDER.stat().st_mode) == 0o755
    assert json.loads(path.read_text())["offloads"] == offload.read("data0")
    offload.write("data0", offload.OFF)
    assert claim.undo() == []
    assert offload.read("data0") == claim.offloads
    assert not files()


def test_one_program_shapes_an_interface(helper: Helper, snapshot: SnapshotAssertion) -> None:
    claim = journal.claim("data0")
    errors = {helper.apply(egress=egress)["error"] for egress in ({"delay_s": 0.01}, {})}
    (error,) = errors
    assert error == snapshot
    assert journal.leftovers() == journal.repair() == []
    assert claim.undo() == []


def test_what_a_killed_program_left_is_undone_by_the_next(helper: Helper) -> None:
    found = offload.read("data0")
    with killed():
        helper.apply(egress={})
        assert offload.read("data0") == found


def test_what_a_killed_program_left_is_repaired_in_its_own_namespace(
    namespace: str, snapshot: SnapshotAssertion
) -> None:
    found = offload.read("data0")
    with killed():
        netns.popns()
        try:
            assert [*journal.leftovers(), *journal.repair()] == snapshot
        finally:
            netns.pushns(namespace)
        assert offload.read("data0") == found


def test_a_namespace_that_is_gone_leaves_only_a_file_to_remove(
    namespace: str, snapshot: SnapshotAssertion
) -> None:
    with killed():
        netns.popns()
        netns.remove(namespace)
        try:
            assert journal.repair() == snapshot
        finally:
            netns.create(namespace)
            netns.pushns(namespace)


def test_another_interface_of_the_same_name_is_left_alone(
    namespace: str, snapshot: SnapshotAssertion
) -> None:
    with killed():
        with IPRoute() as ip:
            ip.link("del", index=qdisc.index_of("data0"))
            ip.link("add", ifname="other0", kind="veth", peer="other1")
            ip.link("add", ifname="data0", kind="veth", peer="peer0")
        offload.write("data0", offload.OFF)
        assert journal.repair() == snapshot
        assert offload.read("data0") == ALL_OFF


def test_what_cannot_be_put_back_keeps_nothing_else_from_it(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = journal.look("data0")
    offload.write("data0", offload.OFF)

    def refuse(*_: object) -> str:
        raise QdiscError("the kernel refused")

    monkeypatch.setattr(steering, "stop_ingress", refuse)
    with pytest.raises(QdiscError, match="the kernel refused"):
        before.put_back()
    assert offload.read("data0") == before.offloads


def test_with_nothing_to_repair(namespace: str) -> None:
    argv = [sys.executable, "-m", "pareto.remote.link", "--repair"]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True)
    assert (done.returncode, done.stdout.startswith("nothing to repair")) == (0, True), done


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


@pytest.mark.parametrize("peer", [None, "fd00::2"])
def test_a_shared_interface_needs_the_peers_address(
    addressed: None, monkeypatch: pytest.MonkeyPatch, peer: str | None, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.78.0.9 5555 10.78.0.1 22")
    with pytest.raises(QdiscError) as refused:
        steering.scope("data0", peer, False)
    assert str(refused.value) == snapshot


def test_ssh_is_known_behind_sudo_which_empties_the_environment(addressed: None) -> None:
    inner = "from pareto.remote.link import steering; print(steering.scope('data0', '10.78.0.2', False))"
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}], env={{}})"
    done = subprocess.run(
        [sys.executable, "-c", outer],
        cwd=REPOSITORY,
        env=os.environ | {"SSH_CONNECTION": "10.78.0.9 5555 10.78.0.1 2022"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "peer 10.78.0.2, TCP port 2022 spared\n", done.stderr
