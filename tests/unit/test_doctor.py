"""The doctor's pages: of a testbed file a section a host with what mends each finding; of a link asked and measured."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from rich.console import Console

from pareto.commands import doctor
from pareto.commands.link_check import Judgement, Observed, judge
from pareto.hosts.connection import Outcome, Unreachable
from pareto.hosts.host import EDGE, SERVER, Host, TestbedError
from pareto.hosts.inventory import HostEntry, Inventory
from pareto.hosts.setup import checkup, privileged
from pareto.hosts.setup.finding import Finding
from pareto.hosts.ssh import testbed
from pareto.partitions import scratch
from pareto.protocol.jsonlines import Refused
from pareto.remote.link.probe import GOODPUT, Probed, Reading, Sample, Tolerance
from pareto.remote.link.profile import Bucket, Direction, Profile
from pareto.remote.link.trace import Step, Trace
from tests.unit import checkup_facts
from tests.unit.far_end import HOSTS, FarEnd, StandIn, bed_of
from tests.unit.refusals import refusal

TESTBED = """\
hosts:
  pi: {role: edge, ssh: pi@pi.local, data_address: 192.168.7.2, port: 2222}
  gpu: {role: server, ssh: gpu.lab, data_address: 192.168.7.1, device: "cuda:0"}
"""


@dataclass
class FakeConnection:
    """Notes what is run."""

    outcome: Outcome
    facts: dict[str, Any]
    commands: list[str] = field(default_factory=list)
    closed: bool = False

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
        nothing = Outcome(0, "nothing to repair\n", "")
        self.connections = {name: FakeConnection(nothing, facts) for name, facts in self.facts.items()}
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


def test_healthy_hosts(real: Lab, snapshot: object) -> None:
    fine, lines = real.examine()
    *parts, end = sections(lines)
    assert (fine, {line[:7] for part in parts for line in part[1:]}) == (True, {"ok     "})
    assert end[-1].endswith(f" --testbed {real.file}")
    assert "\n".join(lines) == snapshot
    assert all(connection.closed for connection in real.connections.values())


def test_a_host_that_cannot_be_reached_does_not_hide_the_other(real: Lab, snapshot: object) -> None:
    real.lost = {"pi"}
    fine, lines = real.examine()
    pi, gpu, *_ = sections(lines)
    assert pi[1].startswith("fault  login: ")
    assert pi[2:] == ["       ssh -p 2222 pi@pi.local true"]
    assert any(line.startswith("ok     gpu: NVIDIA RTX A4000") for line in gpu)
    assert worth_a_word(lines) == snapshot
    assert (fine, real.links_tried) == (False, 0)


OTHER_TORCH = {**checkup_facts.gpu()["packages"], "torch": "2.12.0+cu126"}
PAGES: dict[str, tuple[dict[str, Any], dict[str, Any], bool, int]] = {
    "netem alone": ({"netem_supported": False}, {}, False, 1),
    "another fault": ({"disk_free_bytes": 1e6}, {}, False, 0),
    "what only wants mending": ({"governors": ["ondemand"]}, {"packages": OTHER_TORCH}, True, 1),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_fault_of_a_host_is_a_fault(real: Lab, snapshot: object, name: str) -> None:
    """The link is tried as it is, where nothing but shaping it fails."""
    pi, gpu, fine, links_tried = PAGES[name]
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
    governor = "sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor"
    assert f"       echo performance | {governor}" in commands
    words = [line for line in lines[:-2] if line not in commands and str(real.file) not in line]
    assert max(map(len, words)) <= width


def test_repairing(real: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    real.facts["pi"]["left_shaped"] = ["eth0"]
    assert f"       ./pareto.sh doctor --testbed {real.file} --repair" in real.examine()[1]
    commands = real.connections["pi"].commands
    assert commands == []
    real.connections["pi"].outcome = Outcome(0, "eth0: put back as it was\n", "")
    pi, gpu, *_ = sections(real.examine(repair=True)[1])
    for host, told in ((pi, "eth0: put back as it was"), (gpu, "nothing to repair")):
        assert f"ok     repaired: {told}" in host
    assert all(line.startswith("ok ") for part in (pi, gpu) for line in part[1:])
    # Where root logs in.
    monkeypatch.setattr(doctor.parcels, "absolute", lambda connection, folder: f"/root/{folder}")
    monkeypatch.setattr(doctor.parcels, "ship_code", lambda connection, folder: f"{folder}/code-1")
    code, python = "/root/.pareto/code-1", "/root/.pareto/venv/bin/python"
    real.facts["pi"] = checkup_facts.pi(uid=0, executable=python)
    real.examine(repair=True)
    by_root = f"cd {code} && {python} -B -m pareto.remote.link --repair"
    assert commands == ["sudo -n /usr/local/sbin/pareto-link --repair", by_root]


def test_a_repair_that_is_not_allowed(real: Lab, snapshot: object) -> None:
    real.facts["pi"]["left_shaped"] = ["eth0"]
    real.connections["pi"].outcome = Outcome(1, "", "sudo: a password is required\n")
    _, lines = real.examine(repair=True)
    (refused,) = [line for line in lines if line.endswith(": sudo: a password is required")]
    assert refused.startswith("fix    repair: ")
    assert worth_a_word(lines) == snapshot


def test_a_file_that_is_no_testbed(tmp_path: Path, snapshot: object) -> None:
    (tmp_path / "half.yaml").write_text("hosts:\n  pi: {role: edge, ssh: pi, data_address: 192.168.7.2}\n")
    for name in ("none.yaml", "half.yaml"):
        file = str(tmp_path / name)
        line = refusal(TestbedError, doctor.examine, Console(file=io.StringIO()), file, repair=False)
        assert name in line
        assert line == snapshot


MIDDLE = "  mid: {role: middle, ssh: mid.lab, data_address: 192.168.7.3}\n"


def test_every_host_of_a_chain_is_examined(real: Lab, snapshot: object) -> None:
    """The last one shapes nothing: it may lack what that needs."""
    real.file.write_text(TESTBED + MIDDLE)
    pi, mid, gpu = "192.168.7.2", "192.168.7.3", "192.168.7.1"
    for name, own, card in (("pi", pi, "eth0"), ("mid", mid, "eth0"), ("gpu", gpu, "enp3s0")):
        routes = {peer: {"source": own, "interface": card} for peer in (pi, mid, gpu)}
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
        answers = {"listen": lambda request: 1, "probe": lambda request: reading}
        return FarEnd({**answers, "connect": connect, "reach": reach})

    middle = Host("mid", "192.168.7.3", "eth0", "/home/mid/.pareto", "python3")
    chain = {EDGE: HOSTS[EDGE], "middle1": middle, SERVER: HOSTS[SERVER]}
    stand_ins = {role: StandIn(host, lambda _, name=host.name: prober(name)) for role, host in chain.items()}
    monkeypatch.setattr(testbed, "open_ssh_testbed", lambda file, *, shaped: bed_of(stand_ins))
    return doctor._of_links(Inventory(Path("lab.yaml"), ()))


def test_each_link_of_a_chain_is_tried(monkeypatch: pytest.MonkeyPatch, snapshot: object) -> None:
    first, second = "link edge-middle1", "link middle1-server"
    found = links_of(monkeypatch, None)
    assert [(one.what, one.fatal) for one in found] == [(first, False), (second, False)]
    assert found[0].words == snapshot
    found = links_of(monkeypatch, ("mid", "192.168.7.1"))
    assert [(one.what, one.fatal) for one in found] == [(first, False), (second, True)]
    assert "192.168.7.1" in found[1].words
    assert found[1].words == snapshot
    assert found[1].fix == "sudo ufw allow from 192.168.7.3"
    # What rpc needs of hosts that are no neighbours.
    *_, found = links_of(monkeypatch, ("pi", "192.168.7.1"))
    assert (found.what, found.fatal) == ("rpc", False)
    assert found.words == snapshot
    assert found.fix == (
        "on pi: sudo ip route add 192.168.7.1 via 192.168.7.3; on mid: sudo sysctl -w net.ipv4.ip_forward=1; "
        "on gpu: sudo ip route add 192.168.7.2 via 192.168.7.3"
    )


def test_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for found in (
        Finding("left behind", "nothing"),
        Finding("left behind", "testbed 1", "./pareto.sh doctor --repair"),
        Finding("needs", "no sshd", "install it", fatal=True),
    ):
        monkeypatch.setattr(doctor, "of_this_machine", lambda *, repair, it=found: [it] if repair else [])
        said = io.StringIO()
        assert doctor.examine(Console(file=said, width=80), "local", repair=True) is not found.fatal
        assert f"{found.what}: {found.words}\n" in said.getvalue()


def test_what_a_killed_preparation_left_is_named_and_removed_also_where_no_testbed_can_be_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "require_local", Mock(side_effect=TestbedError("no sshd")))
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


# A link: asked against measured, from a series of probes

SLOW = Profile("slow", Direction(0.2, 5e6))
AIM = Tolerance(0.01, 0.0005, 0.02)


def series(*readings: Reading, fault: str = "") -> list[Observed]:
    return [Observed(float(i), (i, i + 1.0), Probed(r, fault)) for i, r in enumerate(readings)]


def reading(rtt_s: float = 0.2004, rate_bps: float = 4.77e6, **more: object) -> Reading:
    return Reading(rtt_s, rate_bps, None, rtts_s=(rtt_s - 0.0001, rtt_s, rtt_s + 0.0001), **more)  # type: ignore[arg-type]


def judged(profile: Profile, *readings: Reading) -> dict[str, Judgement]:
    return of(profile, series(*readings))


def of(profile: Profile, observed: list[Observed]) -> dict[str, Judgement]:
    return {one.quantity: one for one in judge(profile, observed, AIM)}


def test_a_good_link_agrees_in_everything_and_one_odd_reading_is_not_a_verdict() -> None:
    odd = [reading()] * 4 + [reading(0.9, 1e6)]
    assert not any(one.fault for one in judged(SLOW, *odd).values())
    found = judged(SLOW, *[reading(message_s=0.2507)] * 5)
    assert set(found) == {"RTT", "rate out", "30 kB, answered"}
    assert not any(one.fault for one in found.values())
    assert (found["RTT"].asked, found["RTT"].measured) == (0.2, pytest.approx(0.2004))
    assert found["RTT"].spread == pytest.approx((0.2003, 0.2005))
    assert found["rate out"].asked == pytest.approx(5e6 * GOODPUT)
    assert found["rate out"].off == pytest.approx(-0.0025, abs=1e-3)


def test_a_small_message_must_feel_the_rate() -> None:
    """30 kB in 21 segments at 5 Mbit/s take 50.2 ms after the delay; through a bucket's credit, nothing."""
    message = judged(SLOW, *[reading(message_s=0.2002)] * 5)["30 kB, answered"]
    assert message.asked == pytest.approx(0.2 + 8 * (30_000 + 21 * 66) / 5e6)
    assert message.fault
    bucket = Profile("tbf", Direction(0.2, 5e6), bucket=Bucket())
    assert judged(bucket, reading(message_s=0.2002))["30 kB, answered"].fault == ""


def test_what_is_off_says_so(snapshot: object) -> None:
    found = judged(SLOW, *[reading(0.21, 5.5e6)] * 3)
    assert list(found) == ["RTT", "rate out"]
    assert "210 ms" in found["RTT"].fault
    assert "5.5 Mbit/s" in found["rate out"].fault
    assert [one.fault for one in found.values()] == snapshot

    # Nothing came back.
    rtt, rate = judged(SLOW, Reading(None, None, None)).values()
    assert rtt.measured is rate.measured is rtt.off is None
    assert all([rtt.fault, rate.fault])
    assert [rtt.fault, rate.fault] == snapshot


def test_samples_are_added_up_and_judged_by_their_interval(snapshot: object) -> None:
    lossy = Profile("lossy", Direction(0.2, 5e6, loss=0.1, duplicate=0.01, reorder=0.05))
    samples = [Sample(1000, 905, 9, 40), Sample(200, 178, 3, 12)]
    found = judged(lossy, *[reading(sample=s) for s in samples])
    lost = found["lost out"]
    assert (lost.asked, lost.measured) == pytest.approx((0.1, (95 + 22) / 1200))
    assert {lost.fault, found["repeated out"].fault, found["reordered out"].fault} == {""}
    fault = judged(lossy, reading(sample=Sample(1000, 1000, 0, 0)))["lost out"].fault
    assert "0 of 1000" in fault
    assert fault == snapshot


def test_jitter_shows_as_the_spread_of_round_trips() -> None:
    shaky = Profile("shaky", Direction(0.05, jitter_s=0.03), Direction(0.05, jitter_s=0.04))
    spread = judged(shaky, Reading(0.1, None, None, rtts_s=(0.08, 0.1, 0.12)))["RTT, std. dev."]
    assert (spread.asked, spread.measured) == pytest.approx((0.05 / 3**0.5, 0.02))


def test_a_changing_link_is_off_when_many_readings_are(snapshot: object) -> None:
    changing = Profile("t", Direction(trace=Trace("t", 10.0, (Step(0, 0.2, 5e6),))))
    good = series(*[reading()] * 9)
    few, many = good + series(reading(), fault="RTT 1 ms"), good + series(*[reading()] * 3, fault="RTT 1 ms")
    assert of(changing, few)["RTT"].fault == ""
    fault = of(changing, many)["RTT"].fault
    assert "3 of 12" in fault
    assert fault == snapshot
