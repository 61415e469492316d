"""The doctor's page on a testbed file: a section a host, what mends each finding, and whether a sweep would run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, Any

import pytest
from rich.console import Console

from pareto import doctor
from pareto.doctor import hosts, local
from pareto.hosts import checkup, lab, privileged
from pareto.hosts.finding import Finding
from pareto.hosts.host import EDGE, SERVER, Host, TestbedError
from pareto.hosts.inventory import Inventory, Member
from pareto.hosts.way import Outcome, Unreachable
from pareto.jsonlines import Refused
from tests.unit import checkup_facts
from tests.unit.far_end import HOSTS, FarEnd, StandIn, bed_of

TESTBED = """\
hosts:
  pi: {role: edge, ssh: pi@pi.local, data_address: 192.168.7.2, port: 2222}
  gpu: {role: server, ssh: gpu.lab, data_address: 192.168.7.1, device: "cuda:0"}
"""


class FakeWay:
    """Notes what is run."""

    def __init__(self, outcome: Outcome, facts: dict[str, Any]) -> None:
        self.outcome = outcome
        self.facts = facts
        self.commands: list[str] = []
        self.closed = False

    def run(self, command: str, stdin: IO[bytes] | None = None, **_: Any) -> Outcome:
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
        self.ways = {
            name: FakeWay(Outcome(0, "nothing to repair\n", ""), facts) for name, facts in self.facts.items()
        }
        self.link = [Finding("link", "round trip 0.3 ms")]
        self.links_tried = 0
        monkeypatch.setattr(lab, "open_way", self._open_way)
        monkeypatch.setattr(checkup, "ask", lambda way, member, sides: dict(self.facts[member.name]))
        monkeypatch.setattr(hosts, "_links", self._links)
        monkeypatch.setattr(privileged, "digest", lambda: checkup_facts.DIGEST)
        monkeypatch.setattr("time.time", lambda: checkup_facts.NOW_S)

    def examine(self, *, repair: bool = False, width: int = 80) -> tuple[bool, list[str]]:
        said = io.StringIO()
        fine = doctor.examine(Console(file=said, width=width), str(self.file), repair=repair)
        return fine, said.getvalue().splitlines()

    def _open_way(self, member: Member) -> FakeWay:
        if member.name in self.lost:
            raise Unreachable(f"{member.name} does not answer: is it on?")
        return self.ways[member.name]

    def _links(self, file: object) -> list[Finding]:
        self.links_tried += 1
        return self.link


@pytest.fixture
def real(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Lab:
    return Lab(monkeypatch, tmp_path)


def test_healthy_hosts(real: Lab) -> None:
    fine, lines = real.examine()
    assert fine
    assert lines[0] == "edge pi (pi@pi.local)"
    assert lines[1] == "ok     login: it answers"
    assert lines.index("server gpu (gpu.lab)") < lines.index("between them")
    assert "ok     link: round trip 0.3 ms" in lines
    assert [line for line in lines if line.startswith(("fault", "mend"))] == []
    assert (
        lines[-1] == f"A sweep would run: ./pareto.sh --model mobilenetv2 --netem lte --testbed {real.file}"
    )
    assert all(way.closed for way in real.ways.values())


def test_a_host_that_cannot_be_reached_does_not_hide_the_other(real: Lab) -> None:
    real.lost = {"pi"}
    fine, lines = real.examine()
    assert not fine
    assert lines[1:3] == [
        "fault  login: pi does not answer: is it on?",
        "       ssh -p 2222 pi@pi.local true",
    ]
    assert any(line.startswith("ok     gpu: NVIDIA RTX A4000") for line in lines)
    assert "ok     link: not tried, for a host has a fault" in lines
    assert lines[-1] == "No sweep would run here: 1 fault."
    assert real.links_tried == 0


def test_a_fault_of_a_host_is_a_fault(real: Lab) -> None:
    real.facts["pi"] = checkup_facts.pi(netem_supported=False)
    fine, lines = real.examine()
    assert not fine
    assert "       sudo modprobe sch_netem" in lines
    assert real.links_tried == 1
    assert "ok     the link as it is: a sweep with --netem none would run" in lines
    assert lines[-1] == "No sweep of an emulated link would run here: 1 fault."


def test_a_host_with_another_fault_is_not_tried(real: Lab) -> None:
    real.facts["pi"] = checkup_facts.pi(disk_free_bytes=1e6)
    fine, lines = real.examine()
    assert not fine
    assert real.links_tried == 0
    assert lines[-1] == "No sweep would run here: 1 fault."


def test_a_link_that_carries_nothing_is_a_fault(real: Lab) -> None:
    real.link = [Finding("link", "refused", "sudo ufw allow from 192.168.7.2", fatal=True)]
    assert not real.examine()[0]


def test_what_only_wants_mending_is_no_fault(real: Lab) -> None:
    real.facts["pi"] = checkup_facts.pi(governors=["ondemand"])
    real.facts["gpu"]["packages"] = {**real.facts["gpu"]["packages"], "torch": "2.12.0+cu126"}
    fine, lines = real.examine()
    assert fine
    start = lines.index("between them")
    assert lines[start + 1] == "mend   versions: torch 2.13.0+cpu on pi, 2.12.0+cu126 on gpu"
    assert lines[start + 2] == f"       ./pareto.sh hosts setup --testbed {real.file}"
    assert real.links_tried == 1


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
    assert real.ways["pi"].commands == []
    real.ways["pi"].outcome = Outcome(0, "eth0: put back as it was\n", "")
    _, lines = real.examine(repair=True)
    assert real.ways["pi"].commands == ["sudo -n /usr/local/sbin/pareto-link --repair"]
    assert "ok     repaired: eth0: put back as it was" in lines
    assert "ok     repaired: nothing to repair" in lines
    assert not any("still shaped" in line for line in lines)


def test_repairing_where_root_logs_in(real: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosts.shipping, "absolute", lambda way, folder: f"/root/{folder}")
    monkeypatch.setattr(hosts.shipping, "ship_code", lambda way, folder: f"{folder}/code-1")
    real.facts["pi"] = checkup_facts.pi(uid=0, executable="/root/.pareto/venv/bin/python")
    real.examine(repair=True)
    (command,) = real.ways["pi"].commands
    assert command == "cd /root/.pareto/code-1 && /root/.pareto/venv/bin/python -B -m pareto.link --repair"


def test_a_repair_that_is_not_allowed(real: Lab) -> None:
    real.facts["pi"]["left_shaped"] = ["eth0"]
    real.ways["pi"].outcome = Outcome(1, "", "sudo: a password is required\n")
    _, lines = real.examine(repair=True)
    assert "mend   repair: could not be done: sudo: a password is required" in lines
    assert any("eth0 is still shaped" in line for line in lines)


def test_a_file_that_is_no_testbed(tmp_path: Path) -> None:
    with pytest.raises(TestbedError, match=r"none\.yaml"):
        doctor.examine(Console(file=io.StringIO()), str(tmp_path / "none.yaml"), repair=False)
    file = tmp_path / "half.yaml"
    file.write_text("hosts:\n  pi: {role: edge, ssh: pi, data_address: 192.168.7.2}\n")
    with pytest.raises(TestbedError, match="role server"):
        doctor.examine(Console(file=io.StringIO()), str(file), repair=False)


MIDDLE = "  mid: {role: middle, ssh: mid.lab, data_address: 192.168.7.3}\n"


def test_every_host_of_a_chain_is_examined(real: Lab) -> None:
    """The last one shapes nothing: it may lack what that needs."""
    real.file.write_text(TESTBED + MIDDLE)
    to = {
        name: {
            peer: {"source": address, "interface": card}
            for peer in ("192.168.7.1", "192.168.7.2", "192.168.7.3")
        }
        for name, address, card in (
            ("pi", "192.168.7.2", "eth0"),
            ("mid", "192.168.7.3", "eth0"),
            ("gpu", "192.168.7.1", "enp3s0"),
        )
    }
    cards = [checkup_facts.interface("eth0", "192.168.7.3/24")]
    real.facts["mid"] = checkup_facts.pi(interfaces=cards, routes=to["mid"])
    real.ways["mid"] = FakeWay(Outcome(0, "nothing to repair\n", ""), real.facts["mid"])
    real.facts["pi"]["routes"], real.facts["gpu"]["routes"] = to["pi"], to["gpu"]
    real.facts["gpu"] |= {"netem_supported": False, "netem": "absent"}
    fine, lines = real.examine()
    assert fine, lines
    headings = [line for line in lines if line.endswith((".local)", ".lab)"))]
    assert headings == ["edge pi (pi@pi.local)", "middle1 mid (mid.lab)", "server gpu (gpu.lab)"]
    of_middle = lines[lines.index(headings[1]) : lines.index(headings[2])]
    for peer in ("192.168.7.1", "192.168.7.2"):
        assert f"ok     route: packets to {peer} leave through eth0" in of_middle
    of_last = lines[lines.index(headings[2]) : lines.index("between them")]
    assert "ok     netem: not needed here: the host before it shapes the link" in of_last
    assert not any(" rights:" in line for line in of_last)
    real.facts["mid"] |= {"netem_supported": False, "netem": "absent"}
    assert not real.examine()[0]


def links_of(monkeypatch: pytest.MonkeyPatch, deaf: tuple[str, str] | None) -> list[Finding]:
    """What is said of the links of a chain. `deaf`: the name of a host that does not hear another, whose address."""

    def prober(name: str) -> FarEnd:
        def connect(request: dict[str, Any]) -> float:
            if deaf == (name, request["address"]):
                raise Refused("TimeoutError: timed out")
            return 0.001

        def reach(request: dict[str, Any]) -> float:
            assert (name, request["address"]) == ("pi", "192.168.7.1"), "neighbours have met already"
            return connect(request)

        reading = {"rtt_s": 0.0003, "rate_bps": 94e6, "rate_back_bps": 93e6}
        answers = {
            "listen": lambda request: {"probe": 1},
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
    monkeypatch.setattr(lab, "open_lab", lambda file, *, shaped: bed_of(stand_ins))
    return hosts._links(Inventory(Path("lab.yaml"), ()))


def test_each_link_of_a_chain_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    whats = ["link edge-middle1", "link middle1-server"]
    found = links_of(monkeypatch, None)
    assert [(one.what, one.fatal) for one in found] == [(what, False) for what in whats]
    assert found[0].words == "round trip 0.3 ms, 94 Mbit/s out, 93 Mbit/s back"
    found = links_of(monkeypatch, ("mid", "192.168.7.1"))
    assert [(one.what, one.fatal) for one in found] == [(whats[0], False), (whats[1], True)]
    assert found[1].words.startswith(
        "no connection from mid to 192.168.7.1 (mid: TimeoutError: timed out): on gpu"
    )
    assert found[1].mend == "sudo ufw allow from 192.168.7.3"


def test_what_rpc_needs_of_hosts_that_are_no_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    *_, found = links_of(monkeypatch, ("pi", "192.168.7.1"))
    assert (found.what, found.fatal) == ("rpc", False)
    assert found.words == "no connection from pi to 192.168.7.1, gpu's: --backend tcp alone would run"
    assert found.mend == (
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
    monkeypatch.setattr(local, "findings", lambda *, repair: found if repair else [])
    said = io.StringIO()
    assert doctor.examine(Console(file=said, width=80), "local", repair=True) is fine
    assert f"{found[0].what}: {found[0].words}\n" in said.getvalue()
