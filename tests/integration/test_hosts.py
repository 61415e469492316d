"""The story of two hosts, by real sshds, the real sudo and the commands that a user gives: they are added, looked at by
the doctor, set up, and swept over while one loses its power.

Each chapter is a fixture, so that its tests may run in any order and by themselves; a chapter does what is dear once.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import threading
from base64 import b64decode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet
from syrupy.assertion import SnapshotAssertion

from pareto.commands import doctor as examination
from pareto.hosts import inventory
from pareto.hosts.access import open_testbed
from pareto.hosts.connection import Connection
from pareto.hosts.host import Host, TestbedError
from pareto.hosts.inventory import HostEntry
from pareto.hosts.leases import HostLeases
from pareto.hosts.session import Session, SessionError
from pareto.hosts.setup import checkup, finding, privileged
from pareto.hosts.setup import hosts as setup
from pareto.hosts.setup import pair as pairing
from pareto.hosts.setup.finding import Finding
from pareto.hosts.setup.pair import Terminal
from pareto.hosts.ssh import connection as ssh
from pareto.hosts.ssh import known_hosts, login
from pareto.hosts.ssh.keys import Keyring
from pareto.hosts.testbed import Remote
from tests.integration.own_machine import processes
from tests.integration.test_sweep import exit_code, only_run, rows_in, sound
from tests.lab import Lab, LabHost, give_up_soon, open_lab
from tests.lab.wiring import MANAGEMENT
from tests.less_than_root import needs_networks
from tests.program import LENIENT, command, measured, wait_until
from tests.unit.example_host import ExampleHost, resolve

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.timeout(900),
    needs_networks,
    pytest.mark.skipif(shutil.which("sudo") is None, reason="needs sudo"),
]
PASSWORD = "raspberry"  # noqa: S105
NET = Path(__file__).parents[1] / "faults" / "net.py"
SMALL = f"--model {NET}:build --netem none --quick --figures none --points 1 --only --backend tcp"
HEAVY = """
from torch import nn

input_shape = (3, 32, 32)


def build():
    stem = nn.Sequential(nn.Conv2d(3, 8, 2, stride=2), nn.ReLU())
    return nn.Sequential(stem, nn.Flatten(), nn.Linear(2048, 4400), nn.Linear(4400, 10))
"""
HEAVY_BYTES = 4 * 2048 * 4400
"""Its largest layer, which nearly all of it is."""
CUT, WHOLE = "1", "3"
JOB = f"--netem none --points {CUT},{WHOLE} --only --quick --figures none --trials 2"
CEILING_S = 240.0
"""Against hanging."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Hosts on which nothing is installed and nothing allowed; the driver's key is in, a password would do, too."""
    with open_lab(tmp_path_factory.mktemp("lab")) as lab, pytest.MonkeyPatch.context() as patch:
        for host in lab.hosts.values():
            host.run(f"echo {host.user}:{PASSWORD} | chpasswd")
            host.run("sed -i 's/^PasswordAuthentication no/PasswordAuthentication yes/' /etc/ssh/sshd_config")
            host.change_host_key()  # starts sshd anew
        lab.know_hosts()
        patch.setenv("HOME", str(lab.home))
        patch.delenv("SSH_AUTH_SOCK", raising=False)
        yield lab


def opened(member: HostEntry) -> Connection:
    return ssh.SshConnection(login.resolve(replace(member, host_key="")), Keyring())


# Adding


@dataclass
class Asked:
    """What was said and asked while a host was added, and the entry that came of it or why none did."""

    lines: list[str]
    entry: HostEntry | None = None
    fault: str = ""


@dataclass
class Stranger:
    """pi as one that has no key of ours, and whose own is not known here."""

    lab: Lab
    path: Path

    def add(self, password: str = PASSWORD, confirm: str = "yes", *, terminal: bool = True) -> Asked:
        """With a program that answers what ssh asks; its questions end up among the lines."""
        host, lines = self.lab.host("pi"), list[str]()
        asked, answer = self.lab.folder / "asked", self.lab.folder / "answer"
        asked.write_text("")
        answer.write_text(
            f'#!/bin/sh\necho "$1" >>{asked}\n'
            f"case $1 in *yes/no*) echo {confirm} ;; *) echo {password} ;; esac\n"
        )
        answer.chmod(0o755)
        wanted = HostEntry("", "edge", f"{host.user}@{host.address}", "", port=host.port)
        seat = Terminal(lines.append, confirm=lambda question: True, ask=lambda prompt: "")
        told = Asked(lines)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SSH_ASKPASS", str(answer))
            patch.setenv("SSH_ASKPASS_REQUIRE", "force")
            try:
                told.entry = pairing.add(
                    wanted, self.path, seat if terminal else Terminal(lines.append), opened
                )
            except TestbedError as fault:
                told.fault = str(fault)
        lines += asked.read_text().splitlines()
        return told


@pytest.fixture(scope="module")
def stranger(lab: Lab) -> Iterator[Stranger]:
    host = lab.host("pi")
    kept = host.run(f"cat {host.home}/.ssh/authorized_keys").strip()
    host.run(f"rm -rf {host.home}/.ssh")
    yield Stranger(lab, lab.folder / "added.yaml")
    host.run(f"mkdir -p -m 700 .ssh && echo '{kept}' > .ssh/authorized_keys", host.user)
    lab.know_hosts()


@pytest.fixture(scope="module")
def refusals(stranger: Stranger) -> dict[str, Asked]:
    """Why pi was not added: without a terminal, where its key is not confirmed, by a wrong password, as another."""
    lab, told = stranger.lab, dict[str, Asked]()
    lab.known_hosts.write_text("")
    told["unknown"] = stranger.add(terminal=False)
    told["not confirmed"] = stranger.add(confirm="no")
    assert lab.known_hosts.read_text() == ""
    told["wrong password"] = stranger.add("wrong")
    lab.know_hosts()
    told["no key"] = stranger.add(terminal=False)
    lab.host("pi").change_host_key()
    told["changed"] = stranger.add()
    lab.known_hosts.write_text("")
    assert not stranger.path.exists()
    return told


@dataclass(frozen=True)
class Pair:
    """first: of pi, when it was the only one. anew: of pi, once more. server: of gpu."""

    path: Path
    first: Asked
    anew: Asked
    server: HostEntry


@pytest.fixture(scope="module")
def pair(stranger: Stranger, refusals: dict[str, Asked]) -> Pair:
    """Both hosts, added: pi by its password, and again, and then gpu, whose key is known and which has ours."""
    lab = stranger.lab
    first = stranger.add()
    kept = stranger.path.read_text()
    stranger.path.unlink()
    anew = stranger.add("unused")
    stranger.path.write_text(kept)
    with lab.known_hosts.open("a") as file:
        file.write(f"{lab.host('gpu').address} {lab.host('gpu').host_key}\n")
    terminal = Terminal(first.lines.append, confirm=lambda question: True)
    server = pairing.add(HostEntry("", "server", "gpu", ""), stranger.path, terminal, opened)
    return Pair(stranger.path, first, anew, server)


def test_a_host_that_is_not_added_is_one_line_and_changes_nothing(
    refusals: dict[str, Asked], pair: Pair
) -> None:
    """Nothing that keeps it from being added after all."""
    words = {
        "unknown": r"ssh-keyscan .*known_hosts; there is no terminal",
        "not confirmed": "your key was not put over",
        "wrong password": r"your key was not put over: .*Permission denied",
        "no key": r"ssh-copy-id .*; there is no terminal",
        "changed": "ssh-keygen -R",
    }
    assert {
        name: bool(re.search(words[name], told.fault)) for name, told in refusals.items()
    } == dict.fromkeys(words, True)
    assert not any("\n" in told.fault for told in refusals.values())
    assert not any("'s password:" in line for line in refusals["not confirmed"].lines)


def test_a_host_is_added_by_its_password_once(lab: Lab, pair: Pair) -> None:
    host, first = lab.host("pi"), pair.first
    assert first.entry is not None, first.fault
    assert (first.entry.name, first.entry.data_address, first.entry.data_interface) == (
        *("pi", host.address, MANAGEMENT),
    )
    assert any("fingerprint is SHA256:" in line for line in first.lines)
    assert PASSWORD not in "\n".join(first.lines)
    (key,) = host.run("cat .ssh/authorized_keys", host.user).splitlines()
    assert key.split()[:2] == lab.key.with_suffix(".pub").read_text().split()[:2]
    assert {entry.key for entry in known_hosts.known(resolve("pi", "pi"))} == {
        b64decode(host.host_key.split()[1])
    }
    with closing(opened(first.entry)) as connection:
        assert connection.run("id -un").out == "pi\n"
    assert pair.anew.entry == first.entry
    assert not any("'s password:" in line for line in pair.anew.lines), "neither is strange any more"


def test_the_cable_between_two_hosts_is_found_although_ssh_does_not_use_it(lab: Lab, pair: Pair) -> None:
    roles = inventory.load(pair.path).roles
    for role, host in (("edge", lab.host("pi")), ("server", lab.host("gpu"))):
        assert (roles[role].data_address, roles[role].data_interface) == (
            *(host.data_address, host.data_interface),
        )
    assert roles["server"] == pair.server


# The doctor, before anything is set up


def doctor(testbed: Path, *options: str) -> tuple[int, list[str]]:
    """Its exit code, and what it said, each finding in one line."""
    done = command("doctor", "--testbed", str(testbed), *options)
    assert done.err == ""
    return done.code, done.out.replace("\n         ", " ").splitlines()


def of(host: str, lines: list[str]) -> list[str]:
    """The section of that host."""
    start = next(number for number, line in enumerate(lines) if line.split()[1:2] == [host])
    return lines[start : lines.index("", start)]


def links(lab: Lab) -> list[Finding]:
    """What the doctor says of them, were the hosts fine."""
    return examination._of_links(inventory.load(lab.testbed()))


def test_what_the_hosts_tell_the_doctor_of_themselves(lab: Lab) -> None:
    lab.know_hosts()
    pi, gpu = lab.host("pi"), lab.host("gpu")
    for host in (pi, gpu):
        host.run(f"rm -rf {privileged.LIBRARY} {privileged.LAUNCHER} {privileged.SUDOERS}")
    code, lines = doctor(lab.testbed())
    assert code == 2  # the program that shapes the link was never installed there
    for host, other in ((pi, gpu), (gpu, pi)):
        said = of(host.name, lines)
        assert any(line.startswith(f"ok     data link: {host.data_address} on data0") for line in said)
        assert f"ok     route: packets to {other.data_address} leave through data0" in said
        assert f"ok     listening: can listen on {host.data_address}" in said
        assert any(line.startswith("ok     packages: torch ") for line in said)
        rights = next(number for number, line in enumerate(said) if "rights:" in line)
        assert "/usr/local/sbin/pareto-link, which shapes the link, is not installed" in said[rights]
        assert said[rights + 1] == f"       ./pareto.sh hosts setup --testbed {lab.testbed()}"
    (found,) = links(lab)
    assert (found.what, found.fix, found.fatal) == ("link", "", False), found.words
    assert "round trip" in found.words
    assert "/s out, " in found.words


def test_what_is_wrong_with_a_host_is_found_and_hides_nothing_of_the_other(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is not right about one and a cable that is pulled; then a host that is off."""
    lab.know_hosts()
    pi, gpu = lab.host("pi"), lab.host("gpu")
    lab.link_down()
    lab.link_up()
    # The kernel has just passed on a change of carrier, and takes a second until it passes on this one.
    lab.link_down()
    try:
        wrong = {"data_interface": "mgmt0", "python": "/nowhere/python"}
        code, lines = doctor(lab.testbed("faults.yaml", pi=wrong))
        _, pulled = doctor(lab.testbed())
    finally:
        lab.link_up()
    assert code == 2
    assert "fault  python: there is no /nowhere/python" in of("pi", lines)
    assert "fault  data link: data0 is down" in of("gpu", lines)
    assert "fault  data link: data0 has no carrier" in of("pi", pulled)
    give_up_soon(monkeypatch, gpu)
    gpu.power_off()
    try:
        code, lines = doctor(lab.testbed("faults.yaml", pi={"data_interface": "mgmt0"}))
    finally:
        gpu.power_on()
        lab.wait_for_link()
    assert code == 2
    assert of("gpu", lines)[1].startswith("fault  login: gpu (pi@")
    assert of("gpu", lines)[2] == "       ssh gpu true"
    assert "ok     login: it answers" in of("pi", lines)
    assert f"fault  data link: {pi.data_address} is on data0, not on mgmt0" in of("pi", lines)


@pytest.mark.deep
def test_a_chain_whose_ends_do_not_meet_is_told_how_they_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a network between each two neighbours: what it lacks, and that the commands put it right."""
    with open_lab(tmp_path, middle="cables") as lab:
        monkeypatch.setenv("HOME", str(lab.home))
        code, lines = doctor(lab.testbed())
        assert code == 2
        mid, gpu = lab.host("mid"), lab.host("gpu")
        said = of("mid", lines)
        assert said[0] == "middle1 mid (mid)"
        for address, interface, peer in (
            (mid.data_address, "data0", lab.host("pi").data_address),
            (mid.next_address, "data1", gpu.data_address),
        ):
            assert any(line.startswith(f"ok     data link: {address} on {interface}") for line in said)
            assert f"ok     route: packets to {peer} leave through {interface}" in said
        assert any(line.startswith("fault  rights: ") for line in said)
        assert not any(line.startswith("fault") for line in of("gpu", lines)), "it has nothing to shape"
        *fine, rpc = links(lab)
        names = ["link edge-middle1", "link middle1-server"]
        assert [(one.what, one.fatal) for one in fine] == [(name, False) for name in names]
        assert rpc.what == "rpc"
        for step in rpc.fix.split("; "):
            name, cure = step.removeprefix("on ").split(": ")
            lab.host(name).run(cure.removeprefix("sudo "))
        assert [one.what for one in links(lab)] == names


# Setting up


def may(host: LabHost, what: str = "") -> None:
    """Let the user do that by sudo, as the file that comes with a distribution does, and nothing else."""
    host.run("sed -i '/^pi /d' /etc/sudoers")
    if what:
        host.run(
            f"sed -i '/^@includedir/i {host.user} ALL=(ALL) {what}' /etc/sudoers && visudo -cf /etc/sudoers"
        )


def set_up(
    lab: Lab, host: str, ask: Callable[[str], str] | None = None, **changed: object
) -> tuple[bool, list[str]]:
    """Whether that host is, and what was said."""
    lines: list[str] = []
    members = inventory.load(lab.testbed(**{host: changed})).hosts
    chosen = [member for member in members if member.name == host]
    return setup.set_up(chosen, opened, say=lines.append, ask=ask), lines


def helper(lab: Lab, role: str) -> Session:
    connection = opened(inventory.load(lab.testbed()).roles[role])
    return Session(role, connection.open(privileged.COMMAND + " 2>/dev/null", "/dev/null"))


@dataclass
class SetUp:
    """How setting up pi went, three times, and what was asked meanwhile. wanted: its entry's fields."""

    wanted: dict[str, object]
    turns: list[tuple[bool, list[str]]] = field(default_factory=list)
    prompts: list[str] = field(default_factory=list)
    still_making: bool = True


@pytest.fixture(scope="module")
def ready(lab: Lab) -> SetUp:
    """pi, whose user may do all by a password: its connection is cut while packages are installed, it is gone on with,
    and done again."""
    lab.know_hosts()
    pi = lab.host("pi")
    may(pi, "ALL")
    pi.run(f"rm -rf {privileged.LIBRARY} {privileged.LAUNCHER} {privileged.SUDOERS} {pi.home}/.pareto/venv")
    ExampleHost(lab.folder / "disks" / "pi" / "home" / "pi").offer("tiny", "1.0")
    requirements = lab.folder / "requirements.txt"
    requirements.write_text("tiny==1.0\n")
    told = SetUp({"python": None, "pip_index": "file:///home/pi/index"})

    def ask(prompt: str) -> str:
        told.prompts.append(prompt)
        return PASSWORD

    def cut_off() -> None:
        """Once the environment is being made."""
        wait_until(lambda: pi.pids("-Im venv"), CEILING_S)
        for pid in pi.pids("sshd: pi"):
            os.kill(pid, 9)

    class Lines(list[str]):
        def append(self, line: str) -> None:
            super().append(line)
            if "making" in line:
                threading.Thread(target=cut_off).start()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finding, "REQUIREMENTS", requirements)
        cut, member = Lines(), inventory.load(lab.testbed(pi=told.wanted)).roles["edge"]
        told.turns.append((setup.set_up([member], opened, say=cut.append, ask=ask), cut))
        told.still_making = not wait_until(lambda: not pi.pids("-Im venv"))
        told.turns += [set_up(lab, "pi", ask, **told.wanted) for _ in range(2)]
    may(pi)
    return told


def test_a_host_that_is_lost_while_it_is_set_up_is_gone_on_with(lab: Lab, ready: SetUp) -> None:
    (first, lost), (second, lines), (third, again) = ready.turns
    assert (first, second, third) == (False, True, True), ready.turns
    assert lost[0] == "pi: installed the program that shapes the link"
    assert any("lost" in line for line in lost), lost
    assert not ready.still_making, "what it began has outlived it"
    assert lines[-1] == "pi: set up"
    assert again == ["pi: set up already"]
    assert ready.prompts == ["pi: password of pi for sudo there, once: "]
    pi = lab.host("pi")
    assert pi.run(".pareto/venv/bin/python -c 'import tiny; print(tiny.version)'", "pi") == "1.0\n"
    owners = pi.run(f"find {privileged.LIBRARY} {privileged.LAUNCHER} ! -user 0 -o -perm /022")
    assert owners == ""
    assert pi.run("sudo -n true || echo asked", "pi") == "asked\n"


def test_what_was_installed_shapes_by_one_line_of_sudoers_and_knows_that_ssh_started_it(
    lab: Lab, ready: SetUp
) -> None:
    with closing(helper(lab, "edge")) as session:
        assert session.request("supported") in (True, False)
        shape = {"interface": MANAGEMENT, "egress": {"delay_s": 0.1}}
        with pytest.raises(SessionError, match="does not carry the data address"):
            session.request("apply", address="192.168.7.2", **shape)
        with pytest.raises(SessionError, match="SSH uses it too: say which host that is"):
            session.request("apply", address=lab.host("pi").address, **shape)
    assert wait_until(lambda: not lab.host("pi").pids("pareto-link"))


def test_hosts_are_listed(lab: Lab, ready: SetUp) -> None:
    """One whose user is nobody there; then both, while gpu is measured on."""
    lines: list[str] = []

    def listed(**members: dict[str, object]) -> bool:
        lines.clear()
        entries = inventory.load(lab.testbed(**members)).hosts
        return setup.list_hosts(entries, opened, say=lines.append, within_s=CEILING_S)

    assert not listed(gpu={"user": "nobody"})
    assert lines[1].endswith("reachable, set up")
    assert "gpu (nobody@" in lines[2]
    site = setup._reach(inventory.load(lab.testbed()).roles["server"], opened, lines.append)
    with closing(site.connection), ExitStack() as undo:
        python = site.entry.python or f"{site.venv}/bin/python"
        host = Host("gpu", site.entry.data_address, site.entry.data_interface, site.folder, python)
        leases = HostLeases({"server": Remote(host, site.connection)}, 0.0, lines.append)
        undo.callback(leases.close)
        leases.take()
        assert listed()
    assert re.search(r"reachable, (not )?set up; .*measures there", lines[2])


def test_without_a_terminal_the_command_that_is_printed_does_it(lab: Lab) -> None:
    lab.know_hosts()
    gpu = lab.host("gpu")
    may(gpu)
    gpu.run(f"rm -rf {privileged.LIBRARY} {privileged.LAUNCHER} {privileged.SUDOERS}")
    done, lines = set_up(lab, "gpu")
    assert not done
    gpu.run(lines[0].partition("run there: sudo ")[2])
    done, lines = set_up(lab, "gpu")
    assert done, lines


@pytest.mark.parametrize(
    ("allowed", "password", "says"),
    [
        ("ALL", "wrong", "incorrect password"),
        pytest.param("", PASSWORD, "sudoers", marks=pytest.mark.deep),
        pytest.param("ALL", "", "no password", marks=pytest.mark.deep),
    ],
)
def test_what_sudo_refuses_is_said(lab: Lab, allowed: str, password: str, says: str) -> None:
    lab.know_hosts()
    gpu = lab.host("gpu")
    gpu.run(f"rm -rf {privileged.LIBRARY} {privileged.LAUNCHER} {privileged.SUDOERS}")
    may(gpu, allowed)
    try:
        done, lines = set_up(lab, "gpu", lambda prompt: password)
    finally:
        may(gpu)
    assert not done
    assert says in lines[0]
    assert lines[-1] == "gpu: not set up: see above"


@pytest.mark.deep
def test_a_full_disk_is_said(lab: Lab) -> None:
    lab.know_hosts()
    gpu = lab.host("gpu")
    may(gpu, "NOPASSWD: ALL")
    gpu.small_disk("small", "4m")
    filling = gpu.fill("small")
    try:
        done, lines = set_up(lab, "gpu", folder="small", python=None)
    finally:
        gpu.run(f"rm {filling}; umount {gpu.home}/small")
        may(gpu)
    assert not done
    assert any("No space left on device" in line for line in lines), lines
    assert all("Traceback" not in line for line in lines)


# Measuring


@dataclass
class Swept:
    """A sweep that lost a host, by its power; or a worker and the link between the hosts, by its cable."""

    lost: str
    out: Path
    code: int
    said: str

    @property
    def session(self) -> dict[str, Any]:
        (session,) = json.loads((only_run(self.out) / "manifest.json").read_text())["sessions"]
        return dict(session)


def is_shell(pid: int) -> bool:
    return Path(f"/proc/{pid}/exe").readlink().name in ("sh", "dash", "bash")


@pytest.fixture(scope="module", params=["power", pytest.param("cable", marks=pytest.mark.deep)])
def swept(request: pytest.FixtureRequest, lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Swept:
    """Begins when the driver before it is done. Then gpu's power is cut; or a worker killed, and the data cable pulled,
    which takes a minute to be noticed."""
    lab.know_hosts()
    out = tmp_path_factory.mktemp("swept")
    pi, gpu = lab.host("pi"), lab.host("gpu")
    where = ("--testbed", str(lab.testbed()), "--out", str(out))
    (lab.folder / "heavy.py").write_text(HEAVY)
    with closing(open_testbed(str(lab.testbed()), [], shape_at="both")) as before:
        other = command("run", *SMALL.split(), *where)
        assert other.code == 2, other
        (line,) = other.err.splitlines()
        assert re.search(r"measures there, from [0-9.]+, for \d.*--wait", line)
        assert not list(out.iterdir())
        rest = ("--model", f"{lab.folder}/heavy.py:build", "--sample", "50ms", "--congestion", "reno")
        process = lab.pareto("run", *JOB.split(), *LENIENT, *rest, *where, "--wait", "5min")
        assert process.stdout is not None
        assert any("waiting for " in line for line in process.stdout)
        lab.link_down()
        assert "no carrier on data0" in before.lost()
        lab.link_up()
        assert before.lost() == ""

    def wait_for(trials: int) -> None:
        """Until so many have ended: the next is at work."""
        assert wait_until(lambda: len(rows_in(out)) >= trials or process.poll() is not None, CEILING_S)
        assert process.poll() is None, process.communicate()

    wait_for(1)
    if request.param == "power":
        gpu.power_off()
        gpu.power_on()
    else:
        (worker,) = (pid for pid in pi.pids("-m pareto.remote.worker --threads") if not is_shell(pid))
        os.kill(worker, 9)
        wait_for(3)
        lab.link_down()
    said = ""
    for line in process.stdout:
        said += line
        if "carrier" in line:
            lab.link_up()
    return Swept(request.param, out, process.wait(CEILING_S), said)


def test_a_worker_that_is_killed_costs_its_trial_and_lost_hosts_cost_none(swept: Swept) -> None:
    """What a host was doing when it lost its power, or its data cable was pulled, is done again once it is back."""
    rows = rows_in(swept.out)
    assert swept.code == exit_code(rows), swept.said
    expected = [(point, backend) for point in (CUT, WHOLE) for backend in ("tcp", "rpc")]
    assert Counter((row["point"], row["backend"], row["round"]) for row in rows) == {
        (*cell, number): 1 for cell in expected for number in ("1", "2")
    }
    reasons = [row["reason"] for row in rows if not sound(row)]
    killed = int(swept.lost == "cable")
    assert ["killed by signal 9" in reason for reason in reasons] == [True] * killed, swept.said
    assert swept.said.count("the testbed is built or reached again") == 1
    (rebuilt,) = swept.session["rebuilt"]
    assert rebuilt["reason"].startswith("pi: no carrier on data0" if killed else "gpu "), rebuilt


def test_what_was_measured_there_says_on_what(lab: Lab, swept: Swept) -> None:
    """Each host's memory and load, the congestion control on both backends' sockets, the link as it is."""
    rows = [row for row in rows_in(swept.out) if sound(row)]
    run, session = only_run(swept.out), swept.session
    assert "the link itself: round trip" in swept.said
    for row in rows:
        assert int(row["edge_peak_rss_bytes"]) >= 0.9 * int(row["edge_rss_bytes"])
        assert row["edge_energy_j"] == row["edge_throttled"] == ""  # these hosts have no sensors
        cell = f"k{int(row['point']):02d}-{row['backend']}"
        series = parquet.read_table(next(run.glob(f"devices/*{cell}*r{int(row['round']):02d}*")))
        served = {"server"} if row["point"] != WHOLE else set()
        assert set(series["host"].to_pylist()) == {"edge", *served}
        if row["point"] == CUT:
            # On the sockets of both backends, for the hosts' users may not set the system's.
            assert row["congestion"] == "reno"
    # Who has not got the large layer needs its bytes less.
    by_point = {row["point"]: row for row in rows}
    for role, more, less in (("edge", WHOLE, CUT), ("server", CUT, WHOLE)):
        held, spared = (int(by_point[point][f"{role}_rss_bytes"]) for point in (more, less))
        assert held - spared > 0.65 * HEAVY_BYTES
    assert {row["backend"] for row in rows if row["point"] == CUT} == {"tcp", "rpc"}
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["testbed"] == "edge pi (cpu), server gpu (cpu)"
    assert session["testbed"]["shaper"] == "none"
    assert {host["congestion_control"] for host in session["hosts"].values()} == {"reno"}
    assert session["bare_links"]["edge-server"]["rtt_s"] > 0
    assert session["bare_links"]["edge-server"]["rate_bps"] > 0
    assert session["sampling"]["edge"]["cpu_percent"] > 0
    assert session["hosts"]["edge"]["sensors"]["cpu_percent"]
    assert wait_until(lambda: not any(host.pids("pareto.remote.worker") for host in lab.hosts.values()))
    assert wait_until(lambda: not [it for _, it in processes() if "pareto.remote.worker" in it])


@pytest.mark.deep
def test_the_drivers_machine_is_one_of_the_hosts(lab: Lab, tmp_path: Path) -> None:
    """No SSH to itself; and the data link is the one over which SSH goes to the other host."""
    lab.know_hosts()
    pi, out, folder = lab.host("pi"), tmp_path / "results", tmp_path / "here"
    route = subprocess.run(["ip", "-j", "route", "get", pi.address], capture_output=True, check=True)
    (way,) = json.loads(route.stdout)
    here = {"ssh": "local", "data_address": way["prefsrc"], "data_interface": None, "folder": str(folder)}
    there = {"data_address": pi.address, "data_interface": "mgmt0"}
    done = command(
        *SMALL.split(), *LENIENT, "--testbed", str(lab.testbed(pi=there, gpu=here)), "--out", str(out)
    )
    assert all(map(sound, rows_in(out))), done
    (session,) = json.loads((only_run(out) / "manifest.json").read_text())["sessions"]
    assert session["testbed"]["hosts"]["server"]["data_interface"] == way["dev"]
    assert session["hosts"]["server"]["hostname"] == os.uname().nodename
    assert session["hosts"]["edge"]["hostname"] == "pi"
    assert list(folder.glob("*.safetensors"))


# Hosts that cannot be used


def refused(lab: Lab, out: Path, *options: str, **members: dict[str, object]) -> str:
    """The one line of a sweep that measures nothing, in which what differs from run to run is cut out."""
    done = measured(*SMALL.split(), *options, "--testbed", str(lab.testbed(**members)), "--out", str(out))
    assert done.code == 2, done
    (line,) = done.err.splitlines()
    assert line.startswith("error: ")
    assert not list(out.glob("*")), "a run that measured nothing leaves no folder"
    line = re.sub(r"198\.1([89])\.\d+\.", r"198.1\1.SLOT.", line.replace(str(lab.folder), "LAB"))
    return re.sub(r"kernel \S+", "kernel ...", re.sub(r"SHA256:\S+?(?=[\s;,)])", "SHA256:...", line))


def test_a_host_that_cannot_be_used_is_one_line(
    lab: Lab, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """Its address and shell; its key comes last, for then it is known no more."""
    lab.know_hosts()
    gpu, lines = lab.host("gpu"), list[str]()
    lines.append(refused(lab, tmp_path, pi={"data_address": "198.19.0.1"}))
    loud = "'#!/bin/sh\\necho Welcome\\nexec /bin/sh \"$@\"\\n'"
    gpu.run(f"printf {loud} > /etc/loud && chmod 755 /etc/loud && usermod -s /etc/loud pi")
    try:
        lines.append(refused(lab, tmp_path))
    finally:
        gpu.run("usermod -s /bin/bash pi")
    gpu.change_host_key()
    try:
        lines.append(refused(lab, tmp_path))
    finally:
        lab.know_hosts()
    assert lines == snapshot


@pytest.mark.deep
def test_other_reasons_why_a_host_cannot_be_used(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """Its device or congestion control, another user, it is off, its disk is too small, its kernel has no netem."""
    lab.know_hosts()
    gpu = lab.host("gpu")
    assert "gpu: gpu: " in refused(lab, tmp_path, gpu={"device": "cuda:0"})
    allowed = Path("/proc/sys/net/ipv4/tcp_allowed_congestion_control").read_text().split()
    for wanted in [name for name in ("cubic", "bbr", "reno") if name not in allowed][:1]:
        line = refused(lab, tmp_path, "--congestion", wanted)
        assert f"congestion control {wanted} is not allowed here" in line
        cure = f'sudo sysctl -w net.ipv4.tcp_allowed_congestion_control="{" ".join(allowed)} {wanted}"'
        assert cure in line
    assert refused(lab, tmp_path, gpu={"user": "root", "ssh": gpu.address}) == snapshot
    with monkeypatch.context() as patch:
        give_up_soon(patch, gpu)
        gpu.power_off()
        try:
            assert "gpu (pi@198.18.SLOT.6)" in refused(lab, tmp_path)
        finally:
            gpu.power_on()
            lab.wait_for_link()
    monkeypatch.setattr(checkup, "LEAST_DISK_BYTES", 1e6)  # or so small a disk would be turned away at once
    gpu.run("rm -rf .pareto", gpu.user)
    gpu.small_disk(".pareto", "30m")  # less than resnet18's weights
    try:
        line = refused(lab, tmp_path, "--points", "0", "--model", "squeezenet1_1,resnet18", *LENIENT)
    finally:
        # What was started there may still be ending.
        gpu.run(f"umount --lazy {gpu.home}/.pareto")
    assert re.search(r"gpu .*: \d\d MB are free for .*/\.pareto, and \d\d MB are to come$", line), line
    if lab.host("pi").run("modprobe -n sch_netem 2>/dev/null && echo there || :"):
        pytest.skip("this kernel has sch_netem")
    assert refused(lab, tmp_path, "--netem", "lte") == snapshot
