"""Pairing with hosts and setting them up, by real sshds and the real sudo of a lab."""

from __future__ import annotations

import os
import shutil
import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from pareto.hosts import (
    finding,
    inventory,
    known_hosts,
    leases,
    login,
    pairing,
    privileged,
    setup,
    ssh,
)
from pareto.hosts.connection import Connection
from pareto.hosts.host import TestbedError
from pareto.hosts.inventory import HostEntry
from pareto.hosts.keys import Keyring
from pareto.hosts.pairing import Terminal
from pareto.hosts.session import Heartbeat, Session, SessionError
from pareto.hosts.testbed import Remote
from tests.lab import Lab, LabHost, open_lab
from tests.lab.wiring import MANAGEMENT
from tests.less_than_root import needs_networks
from tests.program import wait_until
from tests.unit.example_host import ExampleHost

pytestmark = [
    pytest.mark.integration,
    needs_networks,
    pytest.mark.skipif(shutil.which("sudo") is None, reason="needs sudo"),
]
PASSWORD = "raspberry"  # noqa: S105


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_lab(tmp_path_factory.mktemp("lab")) as lab:
        for host in lab.hosts.values():
            host.run(f"echo {host.user}:{PASSWORD} | chpasswd")
            host.run("sed -i 's/^PasswordAuthentication no/PasswordAuthentication yes/' /etc/ssh/sshd_config")
            host.change_host_key()  # starts sshd anew
        lab.know_hosts()
        yield lab


@pytest.fixture
def lab(hosts: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """Hosts as they are new: nothing installed, nothing allowed; the key is in."""
    monkeypatch.setenv("HOME", str(hosts.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    for host in hosts.hosts.values():
        host.run(
            f"rm -rf {privileged.LIBRARY} {privileged.LAUNCHER} {privileged.SUDOERS} {host.home}/.pareto"
        )
        host.run("sed -i '/^pi /d' /etc/sudoers")
    yield hosts
    hosts.know_hosts()


@pytest.fixture
def lines() -> list[str]:
    return []


def may(host: LabHost, what: str) -> None:
    """Let the user do that by sudo, as the file that comes with a distribution does."""
    host.run(f"sed -i '/^@includedir/i {host.user} ALL=(ALL) {what}' /etc/sudoers && visudo -cf /etc/sudoers")


def opened(member: HostEntry) -> Connection:
    who = login.resolve(member.name, member.ssh, port=member.port, user=member.user, key=member.key)
    return ssh.SshConnection(who, Keyring())


def set_up(
    lab: Lab,
    lines: list[str],
    ask: Callable[[str], str] | None = None,
    **pi: object,
) -> bool:
    lines.clear()
    members = [member for member in inventory.load(lab.testbed(pi=pi)).hosts if member.name == "pi"]
    return setup.set_up(members, opened, say=lines.append, ask=ask)


def helper(lab: Lab) -> Session:
    connection = opened(inventory.load(lab.testbed()).roles["edge"])
    return Session("pi", connection.open(privileged.COMMAND + " 2>/dev/null", "/dev/null"))


def test_by_a_password_that_is_asked_for_once(lab: Lab, lines: list[str]) -> None:
    may(lab.host("pi"), "ALL")
    prompts: list[str] = []

    def ask(prompt: str) -> str:
        prompts.append(prompt)
        return PASSWORD

    assert set_up(lab, lines, ask), lines
    assert lines == ["pi: installed the program that shapes the link", "pi: set up"]
    assert set_up(lab, lines, ask)
    assert lines == ["pi: set up already"]
    assert prompts == ["pi: password of pi for sudo there, once: "]
    owners = lab.host("pi").run(f"find {privileged.LIBRARY} {privileged.LAUNCHER} ! -user 0 -o -perm /022")
    assert owners == ""
    assert lab.host("pi").run("sudo -n true || echo asked", "pi") == "asked\n"


def test_what_was_installed_shapes_by_one_line_of_sudoers_and_knows_that_ssh_started_it(
    lab: Lab, lines: list[str]
) -> None:
    may(lab.host("pi"), "NOPASSWD: ALL")
    assert set_up(lab, lines), lines
    lab.host("pi").run("sed -i '/^pi /d' /etc/sudoers")
    with closing(helper(lab)) as session:
        assert session.request("supported") in (True, False)
        shape = {"interface": MANAGEMENT, "egress": {"delay_s": 0.1}}
        with pytest.raises(SessionError, match="does not carry the data address"):
            session.request("apply", address="192.168.7.2", **shape)
        with pytest.raises(SessionError, match="SSH uses it too: say which host that is"):
            session.request("apply", address=lab.host("pi").address, **shape)
    assert wait_until(lambda: not lab.host("pi").pids("pareto-link"))


def test_without_a_terminal_the_command_that_is_printed_does_it(lab: Lab, lines: list[str]) -> None:
    assert not set_up(lab, lines)
    command = lines[0].partition("run there: sudo ")[2]
    lab.host("pi").run(command)
    assert set_up(lab, lines), lines


@pytest.mark.parametrize(
    ("allowed", "password", "says"),
    [("ALL", "wrong", "incorrect password"), ("", PASSWORD, "sudoers"), ("ALL", "", "no password")],
)
def test_what_sudo_refuses_is_said(
    lab: Lab, lines: list[str], allowed: str, password: str, says: str
) -> None:
    if allowed:
        may(lab.host("pi"), allowed)
    assert not set_up(lab, lines, lambda prompt: password)
    assert says in lines[0]
    assert lines[-1] == "pi: not set up: see above"


def test_packages_go_over_and_a_lost_host_is_gone_on_with(
    lab: Lab, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    may(lab.host("pi"), "NOPASSWD: ALL")
    disk = lab.folder / "disks" / "pi" / "home" / "pi"
    example = ExampleHost(disk)
    example.offer("tiny", "1.0")
    requirements = lab.folder / "requirements.txt"
    requirements.write_text("tiny==1.0\n")
    monkeypatch.setattr(finding, "REQUIREMENTS", requirements)
    wanted = {"python": None, "pip_index": "file:///home/pi/index"}

    def cut_off() -> None:
        """Once the environment is being made."""
        wait_until(lambda: lab.host("pi").pids("-m venv"))
        for pid in lab.host("pi").pids("sshd: pi"):
            os.kill(pid, 9)

    def cut(line: str) -> None:
        lines.append(line)
        if "making" in line:
            threading.Thread(target=cut_off).start()

    member = inventory.load(lab.testbed(pi=wanted)).roles["edge"]
    assert not setup.set_up([member], opened, say=cut, ask=None)
    assert any("lost" in line for line in lines), lines
    assert wait_until(lambda: not lab.host("pi").pids("-m venv"))
    assert set_up(lab, lines, **wanted), lines
    assert (
        lab.host("pi").run(".pareto/venv/bin/python -c 'import tiny; print(tiny.version)'", "pi") == "1.0\n"
    )
    assert set_up(lab, lines, **wanted)
    assert lines == ["pi: set up already"]


def test_a_full_disk_is_said_and_gone_on_with(lab: Lab, lines: list[str]) -> None:
    may(lab.host("pi"), "NOPASSWD: ALL")
    lab.host("pi").small_disk("small", "4m")
    filling = lab.host("pi").fill("small")
    try:
        assert not set_up(lab, lines, folder="small", python=None)
        assert any("No space left on device" in line for line in lines), lines
        assert all("Traceback" not in line for line in lines)
    finally:
        lab.host("pi").run(f"rm {filling}; umount {lab.host('pi').home}/small")


def test_hosts_are_listed(lab: Lab, lines: list[str]) -> None:
    may(lab.host("pi"), "NOPASSWD: ALL")
    set_up(lab, lines)
    lines.clear()
    path = lab.testbed(gpu={"user": "nobody"})
    assert not setup.list_hosts(inventory.load(path).hosts, opened, say=lines.append)
    assert lines[1].endswith("reachable, set up")
    assert "gpu (nobody@" in lines[2]
    lines.clear()
    assert setup.list_hosts(inventory.load(lab.testbed()).hosts, opened, say=lines.append)
    assert lines[2].endswith("reachable, not set up")
    site = setup._reach(inventory.load(lab.testbed()).roles["server"], opened, lines.append)
    with closing(site.connection), ExitStack() as undo:
        remote = Remote(setup._host(site), site.connection)
        heartbeat = Heartbeat()
        undo.callback(heartbeat.stop)
        leases.held({"server": remote}, heartbeat, 0.0, lines.append, undo)
        lines.clear()
        assert setup.list_hosts(inventory.load(lab.testbed()).hosts, opened, say=lines.append)
    assert "reachable, not set up; " in lines[2]
    assert "measures there" in lines[2]


def test_the_cable_between_two_hosts_is_found_although_ssh_does_not_use_it(
    lab: Lab, lines: list[str]
) -> None:
    pi, gpu = lab.host("pi"), lab.host("gpu")
    path = lab.folder / "paired.yaml"
    terminal = Terminal(lines.append, confirm=lambda question: True)
    first = pairing.add(HostEntry("", "edge", "pi", ""), path, terminal, opened)
    assert (first.data_address, first.data_interface) == (pi.address, MANAGEMENT)
    second = pairing.add(HostEntry("", "server", "gpu", ""), path, terminal, opened)
    assert (second.data_address, second.data_interface) == (gpu.data_address, gpu.data_interface)
    roles = inventory.load(path).roles
    assert (roles["edge"].data_address, roles["edge"].data_interface) == (
        *(pi.data_address, pi.data_interface),
    )
    assert roles["server"] == second


class TestAdding:
    """A host that knows no key of ours, and we not its."""

    @pytest.fixture(autouse=True)
    def strangers(self, lab: Lab) -> Iterator[None]:
        host = lab.host("pi")
        kept = host.run(f"cat {host.home}/.ssh/authorized_keys")
        host.run(f"rm -rf {host.home}/.ssh")
        lab.known_hosts.write_text("")
        yield
        host.run(f"mkdir -p -m 700 .ssh && echo '{kept.strip()}' > .ssh/authorized_keys", host.user)

    def add(
        self,
        lab: Lab,
        lines: list[str],
        monkeypatch: pytest.MonkeyPatch,
        password: str = PASSWORD,
        confirm: str = "yes",
    ) -> HostEntry:
        """With a program that answers what ssh asks; its questions end up among the lines."""
        host = lab.host("pi")
        asked, answer = lab.folder / "asked", lab.folder / "answer"
        asked.write_text("")
        answer.write_text(
            f'#!/bin/sh\necho "$1" >>{asked}\n'
            f"case $1 in *yes/no*) echo {confirm} ;; *) echo {password} ;; esac\n"
        )
        answer.chmod(0o755)
        monkeypatch.setenv("SSH_ASKPASS", str(answer))
        monkeypatch.setenv("SSH_ASKPASS_REQUIRE", "force")
        lines.clear()
        wanted = HostEntry("", "edge", f"{host.user}@{host.address}", "", port=host.port)
        terminal = Terminal(lines.append, confirm=lambda question: True, ask=lambda prompt: "")
        try:
            return pairing.add(wanted, lab.folder / "added.yaml", terminal, opened)
        finally:
            lines += asked.read_text().splitlines()

    def test_by_a_password(self, lab: Lab, lines: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        host = lab.host("pi")
        path = lab.folder / "added.yaml"
        path.write_text(
            f"hosts:\n  gpu: {{role: server, ssh: gpu, data_address: {lab.host('gpu').data_address}}}\n"
        )
        member = self.add(lab, lines, monkeypatch)
        assert inventory.load(path).roles["edge"] == member
        assert (member.name, member.data_address, member.data_interface) == (
            *("pi", host.data_address, host.data_interface),
        )
        (key,) = host.run("cat .ssh/authorized_keys", host.user).splitlines()
        assert key.split()[:2] == lab.key.with_suffix(".pub").read_text().split()[:2]
        assert any("fingerprint is SHA256:" in line for line in lines)
        assert {entry.key for entry in known_hosts.known(login.resolve("pi", "pi"))} == {
            b64decode(host.host_key.split()[1])
        }
        with closing(opened(member)) as connection:
            assert connection.run("id -un").out == "pi\n"
        assert PASSWORD not in "\n".join(lines)
        path.unlink()
        self.add(lab, lines, monkeypatch, password="unused")  # noqa: S106
        assert not any("'s password:" in line for line in lines), (
            "neither the key nor the host is strange any more"
        )
        assert len(host.run("cat .ssh/authorized_keys", host.user).splitlines()) == 1
        path.unlink()

    def test_a_wrong_password_changes_nothing(
        self, lab: Lab, lines: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(TestbedError, match=r"your key was not put over: .*Permission denied") as refused:
            self.add(lab, lines, monkeypatch, "wrong")
        assert "\n" not in str(refused.value)
        assert not (lab.folder / "added.yaml").exists()

    def test_a_host_key_that_is_not_confirmed(
        self, lab: Lab, lines: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(TestbedError, match="your key was not put over"):
            self.add(lab, lines, monkeypatch, confirm="no")
        assert not any("'s password:" in line for line in lines)
        assert lab.known_hosts.read_text() == ""

    def test_a_host_key_that_changed(
        self, lab: Lab, lines: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lab.know_hosts()
        lab.host("pi").change_host_key()
        with pytest.raises(TestbedError, match="ssh-keygen -R"):
            self.add(lab, lines, monkeypatch)

    def test_without_a_terminal(self, lab: Lab, lines: list[str]) -> None:
        host = lab.host("pi")
        wanted = HostEntry("", "edge", f"{host.user}@{host.address}", "", port=host.port)
        with pytest.raises(TestbedError, match=r"ssh-keyscan .*known_hosts; there is no terminal"):
            pairing.add(wanted, lab.folder / "added.yaml", Terminal(lines.append), opened)
        lab.know_hosts()
        with pytest.raises(TestbedError, match=r"ssh-copy-id .*; there is no terminal"):
            pairing.add(wanted, lab.folder / "added.yaml", Terminal(lines.append), opened)
