"""The story of two hosts, by real sshds, the real sudo and the commands that a user gives: they are added, looked at by
the doctor, and set up. Its chapters may be run in any order; test_lost_hosts.py sweeps over two such hosts."""

from __future__ import annotations

import os
import re
import shutil
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pareto.commands import doctor as examination
from pareto.hosts import inventory
from pareto.hosts.connection import Connection
from pareto.hosts.host import Host, TestbedError
from pareto.hosts.inventory import HostEntry
from pareto.hosts.leases import HostLeases
from pareto.hosts.session import Session, SessionError
from pareto.hosts.setup import finding, privileged
from pareto.hosts.setup import hosts as setup
from pareto.hosts.setup import pair as pairing
from pareto.hosts.setup.finding import Finding
from pareto.hosts.setup.pair import Terminal
from pareto.hosts.ssh import connection as ssh
from pareto.hosts.ssh import known_hosts, login
from pareto.hosts.ssh.keys import Keyring
from pareto.hosts.testbed import Remote
from tests.integration.conftest import PASSWORD
from tests.lab import Lab, LabHost, give_up_soon, open_lab
from tests.lab.wiring import MANAGEMENT
from tests.less_than_root import needs_networks
from tests.program import command, wait_until
from tests.unit.example_host import ExampleHost, resolve

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(900), needs_networks]
pytestmark += [
    pytest.mark.skipif(shutil.which("sudo") is None, reason="needs sudo"),
    pytest.mark.usefixtures("known"),
]
CEILING_S = 240.0
"""Against hanging."""
INSTALLED = f"{privileged.LIBRARY} {privileged.LAUNCHER} {privileged.SUDOERS}"


def opened(member: HostEntry) -> Connection:
    return ssh.SshConnection(login.resolve(replace(member, host_key="")), Keyring())


# Adding


@pytest.fixture
def stranger(lab: Lab) -> Iterator[LabHost]:
    """pi as one that has no key of ours."""
    host = lab.host("pi")
    kept = host.run(f"cat {host.home}/.ssh/authorized_keys").strip()
    host.run(f"rm -rf {host.home}/.ssh")
    yield host
    host.run(f"mkdir -p -m 700 .ssh && echo '{kept}' > .ssh/authorized_keys", host.user)
    lab.know_hosts()


def add(
    lab: Lab, path: Path, password: str = PASSWORD, confirm: str = "yes", *, terminal: bool = True
) -> tuple[HostEntry | None, list[str]]:
    """The entry of pi, or none, and what was said: with a program that answers what ssh asks, its questions in the end;
    then why there is none."""
    host, lines = lab.host("pi"), list[str]()
    asked, answer = lab.folder / "asked", lab.folder / "answer"
    asked.write_text("")
    cases = f"case $1 in *yes/no*) echo {confirm} ;; *) echo {password} ;; esac"
    answer.write_text(f'#!/bin/sh\necho "$1" >>{asked}\n{cases}\n')
    answer.chmod(0o755)
    wanted, made = HostEntry("", "edge", f"{host.user}@{host.address}", "", port=host.port), None
    seat = Terminal(lines.append, confirm=lambda question: True, ask=lambda prompt: "")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSH_ASKPASS", str(answer))
        patch.setenv("SSH_ASKPASS_REQUIRE", "force")
        try:
            made = pairing.add(wanted, path, seat if terminal else Terminal(lines.append), opened)
        except TestbedError as fault:
            return None, [*lines, *asked.read_text().splitlines(), str(fault)]
    return made, lines + asked.read_text().splitlines()


def asks_password(lines: list[str]) -> bool:
    return any("'s password:" in line for line in lines)


def test_hosts_are_added_by_a_password_once_or_one_line_says_why_not(lab: Lab, stranger: LabHost) -> None:
    """Where there is no terminal, its key is not confirmed, the password is wrong, no key of ours is there, or its own
    has changed: nothing that keeps it from being added after all. gpu is known, and has our key."""
    path = lab.folder / "added.yaml"

    def refused(words: str, *how: str, terminal: bool = True) -> list[str]:
        made, lines = add(lab, path, *how, terminal=terminal)
        assert made is None
        assert re.search(words, lines[-1]) and "\n" not in lines[-1], lines
        return lines

    lab.known_hosts.write_text("")
    refused(r"ssh-keyscan .*known_hosts; there is no terminal", terminal=False)
    assert not asks_password(refused("your key was not put over", PASSWORD, "no"))
    assert lab.known_hosts.read_text() == ""
    refused(r"your key was not put over: .*Permission denied", "wrong")
    lab.know_hosts()
    refused(r"ssh-copy-id .*; there is no terminal", terminal=False)
    stranger.change_host_key()
    refused("ssh-keygen -R")
    lab.known_hosts.write_text("")
    assert not path.exists()

    first, lines = add(lab, path)
    assert first is not None, lines
    assert (first.name, first.data_address, first.data_interface) == ("pi", stranger.address, MANAGEMENT)
    assert any("fingerprint is SHA256:" in line for line in lines)
    assert PASSWORD not in "\n".join(lines)
    (key,) = stranger.run("cat .ssh/authorized_keys", stranger.user).splitlines()
    assert key.split()[:2] == lab.key.with_suffix(".pub").read_text().split()[:2]
    shown = b64decode(stranger.host_key.split()[1])
    assert {entry.key for entry in known_hosts.known(resolve("pi", "pi"))} == {shown}
    with closing(opened(first)) as connection:
        assert connection.run("id -un").out == "pi\n"
    kept = path.read_text()
    path.unlink()
    anew, lines = add(lab, path, "unused")
    assert (anew, asks_password(lines)) == (first, False), "neither is strange any more"

    path.write_text(kept)
    gpu = lab.host("gpu")
    with lab.known_hosts.open("a") as file:
        file.write(f"{gpu.address} {gpu.host_key}\n")
    terminal = Terminal(lines.append, confirm=lambda question: True)
    server = pairing.add(HostEntry("", "server", "gpu", ""), path, terminal, opened)
    # The cable between the two is found although SSH does not use it.
    roles = inventory.load(path).roles
    assert roles["server"] == server
    for role, host in (("edge", stranger), ("server", gpu)):
        found = roles[role].data_address, roles[role].data_interface
        assert found == (host.data_address, host.data_interface)


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
    pi, gpu = lab.host("pi"), lab.host("gpu")
    for host in (pi, gpu):
        host.run(f"rm -rf {INSTALLED}")
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
    with open_lab(tmp_path, middle=True) as lab:
        monkeypatch.setenv("HOME", str(lab.home))
        code, lines = doctor(lab.testbed())
        assert code == 2
        mid, gpu = lab.host("mid"), lab.host("gpu")
        said = of("mid", lines)
        assert said[0] == "middle1 mid (mid)"
        ways = ((mid.data_address, "data0", lab.host("pi")), (mid.next_address, "data1", gpu))
        for address, interface, peer in ways:
            assert any(line.startswith(f"ok     data link: {address} on {interface}") for line in said)
            assert f"ok     route: packets to {peer.data_address} leave through {interface}" in said
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
        line = f"{host.user} ALL=(ALL) {what}"
        host.run(f"sed -i '/^@includedir/i {line}' /etc/sudoers && visudo -cf /etc/sudoers")


def set_up(
    lab: Lab, host: str, ask: Callable[[str], str] | None = None, **changed: object
) -> tuple[bool, list[str]]:
    """Whether that host is, and what was said."""
    lines: list[str] = []
    members = inventory.load(lab.testbed(**{host: changed})).hosts
    chosen = [member for member in members if member.name == host]
    return setup.set_up(chosen, opened, say=lines.append, ask=ask), lines


def test_a_host_that_is_lost_while_it_is_set_up_is_gone_on_with(lab: Lab) -> None:
    """pi, whose user may do all by a password: its connection is cut while packages are installed, it is gone on with,
    and done again. What was installed shapes, and knows that SSH started it. Then both are listed."""
    pi, requirements, prompts = lab.host("pi"), lab.folder / "requirements.txt", list[str]()
    may(pi, "ALL")
    pi.run(f"rm -rf {INSTALLED} {pi.home}/.pareto/venv")
    ExampleHost(lab.folder / "disks" / "pi" / "home" / "pi").offer("tiny", "1.0")
    requirements.write_text("tiny==1.0\n")
    wanted = {"python": None, "pip_index": "file:///home/pi/index"}

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return PASSWORD

    def cut_off() -> None:
        """Once the environment is being made."""
        wait_until(lambda: pi.pids("-Im venv"), CEILING_S)
        for pid in pi.pids("sshd: pi"):
            os.kill(pid, 9)

    def cut(line: str) -> None:
        lost.append(line)
        if "making" in line:
            threading.Thread(target=cut_off).start()

    lost, member = list[str](), inventory.load(lab.testbed(pi=wanted)).roles["edge"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finding, "REQUIREMENTS", requirements)
        assert not setup.set_up([member], opened, say=cut, ask=ask)
        assert wait_until(lambda: not pi.pids("-Im venv")), "what it began has outlived it"
        (second, lines), third = (set_up(lab, "pi", ask, **wanted) for _ in range(2))
    may(pi)
    assert lost[0] == "pi: installed the program that shapes the link"
    assert any("lost" in line for line in lost), lost
    assert (second, lines[-1], third) == (True, "pi: set up", (True, ["pi: set up already"])), lines
    assert prompts == ["pi: password of pi for sudo there, once: "]
    assert pi.run(".pareto/venv/bin/python -c 'import tiny; print(tiny.version)'", "pi") == "1.0\n"
    assert pi.run(f"find {privileged.LIBRARY} {privileged.LAUNCHER} ! -user 0 -o -perm /022") == ""
    assert pi.run("sudo -n true || echo asked", "pi") == "asked\n"

    connection = opened(inventory.load(lab.testbed()).roles["edge"])
    with closing(
        Session("edge", connection.open(f"{privileged.COMMAND} 2>/dev/null", "/dev/null"))
    ) as helper:
        assert helper.request("supported") in (True, False)
        shape: dict[str, Any] = {"interface": MANAGEMENT, "egress": {"delay_s": 0.1}}
        with pytest.raises(SessionError, match="does not carry the data address"):
            helper.request("apply", address="192.168.7.2", **shape)
        with pytest.raises(SessionError, match="SSH uses it too: say which host that is"):
            helper.request("apply", address=pi.address, **shape)
    assert wait_until(lambda: not pi.pids("pareto-link"))

    def listed(**members: dict[str, object]) -> bool:
        lines.clear()
        entries = inventory.load(lab.testbed(**members)).hosts
        return setup.list_hosts(entries, opened, say=lines.append, within_s=CEILING_S)

    # One whose user is nobody there; then both, while gpu is measured on.
    assert not listed(gpu={"user": "nobody"})
    assert lines[1].endswith("reachable, set up")
    assert "gpu (nobody@" in lines[2]
    site = setup._reach(inventory.load(lab.testbed()).roles["server"], opened, lines.append)
    python = site.entry.python or f"{site.venv}/bin/python"
    gpu = Host("gpu", site.entry.data_address, site.entry.data_interface, site.folder, python)
    leases = HostLeases({"server": Remote(gpu, site.connection)}, 0.0, lines.append)
    with closing(site.connection), closing(leases):
        leases.take()
        assert listed()
    assert re.search(r"reachable, (not )?set up; .*measures there", lines[2])


@contextmanager
def bare(lab: Lab, allowed: str = "") -> Iterator[LabHost]:
    """gpu with nothing installed, whose user may do that by sudo meanwhile."""
    gpu = lab.host("gpu")
    gpu.run(f"rm -rf {INSTALLED}")
    may(gpu, allowed)
    yield gpu
    may(gpu)


def test_without_a_terminal_the_command_that_is_printed_does_it(lab: Lab) -> None:
    with bare(lab) as gpu:
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
    with bare(lab, allowed):
        done, lines = set_up(lab, "gpu", lambda prompt: password)
    assert not done
    assert says in lines[0]
    assert lines[-1] == "gpu: not set up: see above"
