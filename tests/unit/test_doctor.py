"""The doctor's page on a testbed file: a section a host, what mends each finding, and whether a sweep would run."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from pareto.commands import doctor
from pareto.hosts.connection import Outcome, Unreachable
from pareto.hosts.host import EDGE, SERVER, Host, TestbedError
from pareto.hosts.inventory import HostEntry, Inventory
from pareto.hosts.setup import checkup, privileged
from pareto.hosts.setup.finding import Finding
from pareto.hosts.ssh import testbed
from pareto.partitions import scratch
from pareto.protocol.jsonlines import Refused
from pareto.remote.link.probe import Reading
from tests.unit import checkup_facts
from tests.unit.far_end import HOSTS, FarEnd, StandIn, bed_of

TESTBED = """\
hosts:
  pi: {role: edge, ssh: pi@pi.local, data_address: 192.168.7.2, port: 2222}
  gpu: {role: server, ssh: gpu.lab, data_address: 192.168.7.1, device: "cuda:0"}
"""


class FakeConnection:
    """Notes what is run."""

    def __init__(self, outcome: Outcome, facts: dict[str, Any]) -> None:
        self.outcome = outcome
        self.facts = facts
        self.commands: list[str] = []
        self.closed = False

    def run(self, command: str, stdin: Iterable[bytes] = (), **_: Any) -> Outcome:
        self.commands.append(command)
        if self.outcome.status == 0:
            self.facts["left_shaped"] = []
        return self.outcome

    def close(self) -> None:
        self.closed = True


class Lab:
    """Two hosts that tell what they are told to, or cannot be reached."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.file = tmp_path / "lab.yaml"
        self.file.write_text(TESTBED)
        self.facts = {"pi": checkup_facts.pi(), "gpu": checkup_facts.gpu()}
        self.lost: set[str] = set()
        self.connections = {
            name: FakeConnection(Outcome(0, "nothing to repair\n", ""), facts)
            for name, facts in self.facts.items()
        }
        self.link = [Finding("link", "round trip 0.3 ms")]
        self.links_tried = 0
        monkeypatch.setattr(testbed, "connect", self._connect)
        monkeypatch.setattr(checkup, "ask", lambda connection, member, sides: dict(self.facts[member.name]))
        monkeypatch.setattr(doctor, "_of_links", self._links)
        monkeypatch.setattr(privileged, "digest", lambda: checkup_facts.DIGEST)

    def examine(self, *, repair: bool = False, width: int = 80) -> tuple[bool, list[str]]:
        said = io.StringIO()
        fine = doctor.examine(Console(file=said, width=width), str(self.file), repair=repair)
        return fine, said.getvalue().splitlines()

    def _connect(self, member: HostEntry) -> FakeConnection:
        if member.name in self.lost:
            raise Unreachable(f"{member.name} does not answer: is it on?")
        return self.connections[member.name]

    def _links(self, file: object) -> list[Finding]:
        self.links_tried += 1
        return self.link


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lab:
    return Lab(monkeypatch, tmp_path)


def sections(lines: list[str]) -> list[list[str]]:
    """One for each host, what is between them, and the verdict."""
    return [part.splitlines() for part in "\n".join(lines).split("\n\n")]


def worth_a_word(lines: list[str]) -> str:
    """The page, but of each host only what is not ok."""
    *hosts, between, end = sections(lines)
    faulty = [[line for line in host if not line.startswith("ok ")] for host in hosts]
    return "\n\n".join("\n".join(part) for part in (*faulty, between, end))


def test_healthy_hosts(real: Lab, snapshot: SnapshotAssertion) -> None:
    fine, lines = real.examine()
    assert fine
    *parts, end = sections(lines)
    assert {line[:7] for part in parts for line in part[1:]} == {"ok     "}
    assert end[-1].endswith(f" --testbed {real.file}")
    assert "\n".join(lines) == snapshot
    assert all(connection.closed for connection in real.connections.values())


def test_a_host_that_cannot_be_reached_does_not_hide_the_other(
    real: Lab, snapshot: SnapshotAssertion
) -> None:
    real.lost = {"pi"}
    fine, lines = real.examine()
    assert not fine
    pi, gpu, *_ = sections(lines)
    assert pi[1].startswith("fault  login: ")
    assert pi[2:] == ["       ssh -p 2222 pi@pi.local true"]
    assert any(line.startswith("ok     gpu: NVIDIA RTX A4000") for line in gpu)
    assert worth_a_word(lines) == snapshot
    assert real.links_tried == 0


OTHER_TORCH = {**checkup_facts.gpu()["packages"], "torch": "2.12.0+cu126"}
PAGES: dict[str, tuple[dict[str, Any], dict[str, Any], bool, int]] = {
    "netem alone": ({"netem_supported": False}, {}, False, 1),
    "another fault": ({"disk_free_bytes": 1e6}, {}, False, 0),
    "what only wants mending": ({"governors": ["ondemand"]}, {"packages": OTHER_TORCH}, True, 1),
}


@pytest.mark.parametrize(("pi", "gpu", "fine", "links_tried"), PAGES.values(), ids=PAGES)
def test_a_fault_of_a_host_is_a_fault(
    real: Lab,
    snapshot: SnapshotAssertion,
    pi: dict[str, Any],
    gpu: dict[str, Any],
    fine: bool,
    links_tried: int,
) -> None:
    """The link is tried as it is, where nothing but shaping it fails."""
    real.facts["pi"] |= pi
    real.facts["gpu"] |= gpu
    found, lines = real.examine()
    assert (found, real.links_tried) == (fine, links_tried)
    assert worth_a_word(lines) == snapshot


def test_a_link_that_carries_nothing_is_a_fault(real: Lab) -> None:
    real.link = [Finding("link", "refused", "sudo ufw allow from 192.168.7.2", fatal=True)]
    assert not real.examine()[0]


@pytest.mark.parametrize("width", [60, 80, 200])
def test_words_are_wrapped_and_commands_are_not(real: Lab, width: int) -> None:
    real.facts["pi"] = checkup_facts.pi(interfaces=[], governors=["ondemand"], slow_start_after_idle=1)
    _, lines = real.examine(width=width)
    commands = [line for line in lines if line.startswith("       ") and not line.startswith("         ")]
    assert (
        "       echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor" in commands
    )
    words = [line for line in lines[:-2] if line not in commands and str(real.file) not in line]
    assert max(map(len, words)) <= width


def test_repairing(real: Lab) -> None:
    real.facts["pi"]["left_shaped"] = ["eth0"]
    assert f"       ./pareto.sh doctor --testbed {real.file} --repair" in real.examine()[1]
    assert real.connections["pi"].commands == []
    real.connections["pi"].outcome = Outcome(0, "eth0: put back as it was\n", "")
    _, lines = real.examine(repair=True)
    assert real.connections["pi"].commands == ["sudo -n /usr/local/sbin/pareto-link --repair"]
    pi, gpu, *_ = sections(lines)
    for host, told in ((pi, "eth0: put back as it was"), (gpu, "nothing to repair")):
        assert f"ok     repaired: {told}" in host
    assert all(line.startswith("ok ") for part in (pi, gpu) for line in part[1:])


def test_repairing_where_root_logs_in(real: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.parcels, "absolute", lambda connection, folder: f"/root/{folder}")
    monkeypatch.setattr(doctor.parcels, "ship_code", lambda connection, folder: f"{folder}/code-1")
    real.facts["pi"] = checkup_facts.pi(uid=0, executable="/root/.pareto/venv/bin/python")
    real.examine(repair=True)
    code, python = "/root/.pareto/code-1", "/root/.pareto/venv/bin/python"
    repair = f"cd {code} && {python} -B -m pareto.remote.link --repair"
    assert real.connections["pi"].commands == [repair]


def test_a_repair_that_is_not_allowed(real: Lab, snapshot: SnapshotAssertion) -> None:
    real.facts["pi"]["left_shaped"] = ["eth0"]
    real.connections["pi"].outcome = Outcome(1, "", "sudo: a password is required\n")
    _, lines = real.examine(repair=True)
    (refused,) = [line for line in lines if line.endswith(": sudo: a password is required")]
    assert refused.startswith("fix    repair: ")
    assert worth_a_word(lines) == snapshot


def test_a_file_that_is_no_testbed(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    (tmp_path / "half.yaml").write_text("hosts:\n  pi: {role: edge, ssh: pi, data_address: 192.168.7.2}\n")
    for name in ("none.yaml", "half.yaml"):
        with pytest.raises(TestbedError) as refused:
            doctor.examine(Console(file=io.StringIO()), str(tmp_path / name), repair=False)
        assert name in str(refused.value)
        assert str(refused.value) == snapshot


MIDDLE = "  mid: {role: middle, ssh: mid.lab, data_address: 192.168.7.3}\n"


def test_every_host_of_a_chain_is_examined(real: Lab, snapshot: SnapshotAssertion) -> None:
    """The last one shapes nothing: it may lack what that needs."""
    real.file.write_text(TESTBED + MIDDLE)
    pi, mid, gpu = "192.168.7.2", "192.168.7.3", "192.168.7.1"
    for name, own, card in (("pi", pi, "eth0"), ("mid", mid, "eth0"), ("gpu", gpu, "enp3s0")):
        way = {"source": own, "interface": card}
        routes = dict.fromkeys((pi, mid, gpu), way)
        cards = [checkup_facts.interface(card, f"{own}/24")]
        real.facts[name] = checkup_facts.pi(interfaces=cards, routes=routes)
    real.connections["mid"] = FakeConnection(Outcome(0, "nothing to repair\n", ""), real.facts["mid"])
    real.facts["gpu"] |= {"netem_supported": False, "netem": "absent", "torch_cuda": "12.6"}
    real.facts["gpu"] |= {"cuda": {"devices": 1, "version": "12.4"}}
    fine, lines = real.examine()
    assert fine, lines
    *hosts, _, _ = sections(lines)
    assert [host[0] for host in hosts][1] == "middle1 mid (mid.lab)"
    _, middle, last = hosts
    for peer in (pi, gpu):
        assert f"ok     route: packets to {peer} leave through eth0" in middle
    (netem,) = [line for line in last if " netem: " in line]
    assert netem.startswith("ok ")
    assert netem == snapshot
    assert not any(" rights:" in line for line in last)
    real.facts["mid"] |= {"netem_supported": False, "netem": "absent"}
    assert not real.examine()[0]


def links_of(monkeypatch: pytest.MonkeyPatch, deaf: tuple[str, str] | None) -> list[Finding]:
    """What is said of the links of a chain. `deaf`: the name of a host that does not hear another, whose address."""

    def prober(name: str) -> FarEnd:
        def connect(request: dict[str, Any]) -> None:
            if deaf == (name, request["address"]):
                raise Refused("TimeoutError: timed out")

        def reach(request: dict[str, Any]) -> float:
            assert (name, request["address"]) == ("pi", "192.168.7.1"), "neighbours have met already"
            connect(request)
            return 0.001

        reading = Reading(0.0003, 94e6, 93e6)
        answers = {
            "listen": lambda request: 1,
            "connect": connect,
            "reach": reach,
            "probe": lambda request: reading,
        }
        return FarEnd(answers)

    middle = Host("mid", "192.168.7.3", "eth0", "/home/mid/.pareto", "python3")
    chain = {EDGE: HOSTS[EDGE], "middle1": middle, SERVER: HOSTS[SERVER]}
    stand_ins = {
        role: StandIn(host, lambda module, name=host.name: prober(name))  # type: ignore[misc]
        for role, host in chain.items()
    }
    monkeypatch.setattr(testbed, "open_ssh_testbed", lambda file, *, shaped: bed_of(stand_ins))
    return doctor._of_links(Inventory(Path("lab.yaml"), ()))


def test_each_link_of_a_chain_is_tried(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    whats = ["link edge-middle1", "link middle1-server"]
    found = links_of(monkeypatch, None)
    assert [(one.what, one.fatal) for one in found] == [(what, False) for what in whats]
    assert found[0].words == snapshot
    found = links_of(monkeypatch, ("mid", "192.168.7.1"))
    assert [(one.what, one.fatal) for one in found] == [(whats[0], False), (whats[1], True)]
    assert "192.168.7.1" in found[1].words
    assert found[1].words == snapshot
    assert found[1].fix == "sudo ufw allow from 192.168.7.3"


def test_what_rpc_needs_of_hosts_that_are_no_neighbours(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    *_, found = links_of(monkeypatch, ("pi", "192.168.7.1"))
    assert (found.what, found.fatal) == ("rpc", False)
    assert found.words == snapshot
    assert found.fix == (
        "on pi: sudo ip route add 192.168.7.1 via 192.168.7.3; on mid: sudo sysctl -w net.ipv4.ip_forward=1; "
        "on gpu: sudo ip route add 192.168.7.2 via 192.168.7.3"
    )


@pytest.mark.parametrize(
    ("found", "fine"),
    [
        ([Finding("left behind", "nothing")], True),
        ([Finding("left behind", "testbed 1", "./pareto.sh doctor --repair")], True),
        ([Finding("needs", "no sshd", "install it", fatal=True)], False),
    ],
)
def test_this_machine(monkeypatch: pytest.MonkeyPatch, found: list[Finding], fine: bool) -> None:
    monkeypatch.setattr(doctor, "of_this_machine", lambda *, repair: found if repair else [])
    said = io.StringIO()
    assert doctor.examine(Console(file=said, width=80), "local", repair=True) is fine
    assert f"{found[0].what}: {found[0].words}\n" in said.getvalue()


def test_what_a_killed_preparation_left_is_named_and_removed_also_where_no_testbed_can_be_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse() -> None:
        raise TestbedError("no sshd")

    monkeypatch.setattr(doctor, "require_local", refuse)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left = tmp_path / f"{scratch.PREFIX}abc"
    left.mkdir()
    needs, found = doctor.of_this_machine(repair=False)
    assert (found.what, found.words) == ("left behind", str(left))
    assert "--repair" in found.fix
    needs, done = doctor.of_this_machine(repair=True)
    assert needs.fatal
    assert str(left) in done.words
    assert not left.exists()
