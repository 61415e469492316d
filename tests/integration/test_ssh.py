"""Logging in by OpenSSH's configuration to real sshds, and what is said and noticed when that fails."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.connection import Outcome, Unreachable
from pareto.hosts.session import Session, SessionLost
from pareto.hosts.ssh import connection as ssh
from pareto.hosts.ssh.keys import Keyring, load
from pareto.hosts.ssh.login import Login
from tests.lab import Lab, give_up_soon, open_lab
from tests.less_than_root import needs_networks
from tests.program import wait_until
from tests.unit.example_host import resolve

pytestmark = [
    pytest.mark.integration,
    needs_networks,
    pytest.mark.skipif(shutil.which("ssh-agent") is None, reason="needs OpenSSH's client"),
]
SECRET = "secret"  # noqa: S105
CEILING_S = 120.0
"""Against hanging."""


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with open_lab(tmp_path_factory.mktemp("lab"), jump=True) as lab:
        yield lab


@pytest.fixture
def lab(hosts: Lab, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    """With the driver's home, and none of the driver's threads left behind."""
    monkeypatch.setenv("HOME", str(hosts.home))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    threads = set(threading.enumerate())
    yield hosts
    hosts.know_hosts()
    assert wait_until(lambda: set(threading.enumerate()) <= threads), threading.enumerate()


@pytest.fixture
def keyring() -> Keyring:
    return Keyring()


@contextmanager
def agent(folder: Path, *keys: Path) -> Iterator[str]:
    """The socket of an agent that holds these keys."""
    at = folder / "agent"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(at)], stdout=subprocess.DEVNULL) as process:
        try:
            assert wait_until(at.exists)
            for key in keys:
                environment = {**os.environ, "SSH_AUTH_SOCK": str(at)}
                subprocess.run(["ssh-add", "-q", str(key)], env=environment, check=True)
            yield str(at)
        finally:
            process.terminate()


def new_key(path: Path) -> Path:
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path)], check=True
    )
    return path


def locked_copy(key: Path, path: Path) -> Path:
    shutil.copy(key, path)
    subprocess.run(
        ["ssh-keygen", "-q", "-p", "-P", "", "-N", SECRET, "-f", str(path)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return path


def hostname(login: Login, keyring: Keyring) -> str:
    with closing(ssh.SshConnection(login, keyring)) as connection:
        return connection.run("hostname").out.strip()


def refusal(login: Login, keyring: Keyring) -> str:
    with pytest.raises(Unreachable) as fault:
        ssh.SshConnection(login, keyring).close()
    assert "\n" not in str(fault.value)
    assert str(fault.value).startswith(f"{login.name} ({login.user}@{login.address})")
    return str(fault.value)


def stable(lab: Lab, words: str) -> str:
    """Without what differs from run to run."""
    return re.sub(r"(SHA256:|AAAA)[A-Za-z0-9+/]+", r"\1...", words.replace(str(lab.folder), "LAB"))


def test_directly_and_through_a_jump_host(lab: Lab, keyring: Keyring) -> None:
    assert hostname(resolve("edge", "pi"), keyring) == "pi"
    gpu = resolve("server", "gpu")
    assert gpu.jump is not None
    assert hostname(gpu, keyring) == "gpu"


def test_through_a_proxy_command(lab: Lab, keyring: Keyring) -> None:
    reach = f"ssh -F {lab.ssh_config} -o BatchMode=yes -W %h:%p jump"
    config = lab.ssh_config.read_text()
    lab.ssh_config.write_text(config.replace("ProxyJump jump", f"ProxyCommand {reach}"))
    try:
        gpu = resolve("server", "gpu")
    finally:
        lab.ssh_config.write_text(config)
    assert gpu.jump is None and gpu.proxy_command
    children = set(psutil.Process().children())
    assert hostname(gpu, keyring) == "gpu"
    assert set(psutil.Process().children()) == children


def test_a_pinned_host_key_and_a_key_of_ones_own(lab: Lab, snapshot: SnapshotAssertion) -> None:
    pi = lab.host("pi")
    who = Login("edge", pi.address, pi.port, pi.user, pi.host_key)
    keyring = Keyring(only=load(lab.key))
    assert hostname(who, keyring) == "pi"
    words = refusal(replace(who, host_key=lab.host("gpu").host_key), keyring)
    assert stable(lab, words) == snapshot


@pytest.mark.parametrize("shell", ["/etc/odd", "/bin/tcsh", "/usr/bin/fish"])
def test_a_user_whose_shell_is_not_sh(lab: Lab, keyring: Keyring, shell: str) -> None:
    pi = lab.host("pi")
    pi.run("printf '#!/bin/sh\\nexec /bin/sh \"$@\"\\n' > /etc/odd && chmod 755 /etc/odd")
    if "yes" not in pi.run(f"test ! -x {shell} || echo yes"):
        pytest.skip(f"there is no {shell} here")
    pi.run(f"usermod -s {shell} pi")
    try:
        with closing(ssh.SshConnection(resolve("edge", "pi"), keyring)) as connection:
            assert connection.run('echo "it\'s";\npwd').out == "it's\n/home/pi\n"
            assert connection.run("cat; exit 3", [b"input"]) == Outcome(3, "input", "")
    finally:
        pi.run("usermod -s /bin/bash pi")


# Keys.


def test_a_key_that_only_the_agent_has(
    lab: Lab, keyring: Keyring, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    shutil.copy(lab.key.with_suffix(".pub"), tmp_path / "key.pub")
    stranger = new_key(tmp_path / "stranger")
    who = replace(resolve("edge", "pi"), identities=(tmp_path / "key",))
    with agent(tmp_path, stranger, lab.key) as socket:
        assert who.identities_only
        assert hostname(replace(who, agent=socket), keyring) == "pi"
        assert hostname(replace(who, agent=socket, identities_only=False, identities=()), keyring) == "pi"
        words = refusal(replace(who, agent=socket, identities=(stranger,)), keyring)
        assert words.count("in the agent") == 1
    without = refusal(replace(who, agent=socket), keyring)
    assert [stable(lab, words), stable(lab, without)] == snapshot


def test_a_passphrase_is_asked_for_once_for_two_connections(
    lab: Lab, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    asked: list[str] = []

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return SECRET

    who = replace(resolve("server", "gpu"), identities=(locked_copy(lab.key, tmp_path / "locked"),))
    keyring = Keyring(ask)
    assert hostname(who, keyring) == hostname(who, keyring) == "gpu"
    assert len(asked) == 1
    with agent(tmp_path, lab.key) as socket:
        assert hostname(replace(who, agent=socket), Keyring(ask)) == "gpu"
    assert len(asked) == 1
    assert stable(lab, refusal(who, Keyring())) == snapshot


def test_a_key_that_is_not_taken_names_it_and_the_cure(
    lab: Lab, keyring: Keyring, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    who = replace(resolve("edge", "pi"), identities=(new_key(tmp_path / "stranger"),))
    assert stable(lab, refusal(who, keyring)) == snapshot


def test_more_keys_than_the_server_lets_be_tried(lab: Lab, keyring: Keyring, tmp_path: Path) -> None:
    strangers = [new_key(tmp_path / f"stranger{number}") for number in range(7)]
    with agent(tmp_path, *strangers) as socket:
        who = replace(resolve("edge", "pi"), agent=socket, identities_only=False)
        assert "too many" in refusal(who, keyring)
        assert hostname(replace(who, identities_only=True), keyring) == "pi"


# Host keys.


@pytest.mark.parametrize("name", ["pi", "gpu"])
def test_an_unknown_host_can_be_added_as_it_says(
    lab: Lab, keyring: Keyring, name: str, snapshot: SnapshotAssertion
) -> None:
    lab.known_hosts.write_text(
        "".join(f"{h.address} {h.host_key}\n" for h in lab.hosts.values() if h.name != name)
    )
    words = refusal(resolve(name, name), keyring)
    assert stable(lab, words) == snapshot
    command = words.partition("and add it: ")[2]
    environment = {**os.environ, "HOME": str(lab.home)}
    subprocess.run(["sh", "-c", command], env=environment, check=True, stderr=subprocess.DEVNULL)
    assert hostname(resolve(name, name), keyring) == name


def test_a_host_key_that_changed_can_be_removed_as_it_says(
    lab: Lab, keyring: Keyring, snapshot: SnapshotAssertion
) -> None:
    who = resolve("edge", "pi")
    lab.host("pi").change_host_key()
    words = refusal(who, keyring)
    assert stable(lab, words) == snapshot
    command = words.partition("anew: ")[2]
    # ssh-keygen too takes the home from the passwd entry.
    subprocess.run(["sh", "-c", f"{command} -f {lab.known_hosts}"], check=True, capture_output=True)
    unknown = refusal(who, keyring)
    assert "is not in known_hosts" in unknown
    with lab.known_hosts.open("a") as file:
        file.write(f"{who.known_as} {lab.host('pi').host_key}\n")
    assert hostname(who, keyring) == "pi"


def test_a_jump_host_s_key_is_checked_too(lab: Lab, keyring: Keyring, snapshot: SnapshotAssertion) -> None:
    lab.host("jump").change_host_key()
    words = refusal(resolve("server", "gpu"), keyring)
    assert stable(lab, words) == snapshot


def test_the_type_of_key_that_is_known_is_asked_for(lab: Lab, keyring: Keyring) -> None:
    pi = lab.host("pi")
    rsa = "/etc/ssh/ssh_host_rsa_key"
    pi.run(f"ssh-keygen -q -t rsa -b 2048 -N '' -f {rsa} && echo HostKey {rsa} >> /etc/ssh/sshd_config")
    try:
        pi.change_host_key()
        lab.known_hosts.write_text(f"{pi.address} {pi.run(f'cat {rsa}.pub')}")
        assert hostname(resolve("edge", "pi"), keyring) == "pi"
    finally:
        pi.run(f"sed -i /rsa_key/d /etc/ssh/sshd_config; rm {rsa}*")
        pi.change_host_key()


# Hosts that do not answer.


def test_a_refused_port(
    lab: Lab, keyring: Keyring, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    monkeypatch.setattr(ssh, "REFUSED_S", 0.2)
    direct = refusal(resolve("edge", "pi", port=23), keyring)
    jumped = refusal(replace(resolve("server", "gpu"), port=23), keyring)
    assert [stable(lab, direct), stable(lab, jumped)] == snapshot


def test_a_proxy_command_that_fails(lab: Lab, keyring: Keyring, snapshot: SnapshotAssertion) -> None:
    who = replace(resolve("edge", "pi"), proxy_command="sh -c 'echo no such road >&2; exit 7'")
    missing = refusal(replace(who, proxy_command="/no/such/program"), keyring)
    assert "/no/such/program" in missing or "ProxyCommand" in missing
    assert stable(lab, refusal(who, keyring)) == snapshot


def test_a_host_and_a_jump_host_that_are_off(
    lab: Lab, keyring: Keyring, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    give_up_soon(monkeypatch, lab.host("pi"), lab.host("jump"))
    said = []
    for name, target in (("pi", "pi"), ("jump", "gpu")):
        who = resolve(target, target)
        lab.host(name).unplug()
        try:
            words = refusal(who, keyring)
        finally:
            lab.host(name).plug()
        said.append(stable(lab, words))
    assert said == snapshot


# Commands.


def test_large_input_and_both_large_outputs_at_once(lab: Lab, keyring: Keyring) -> None:
    data = os.urandom(6_000_000)
    with closing(ssh.SshConnection(resolve("server", "gpu"), keyring)) as connection:
        outcome = connection.run(
            "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; sha256sum; exit 3", [data]
        )
        assert (outcome.status, len(outcome.err)) == (3, 3_000_000)
        assert outcome.out[3_000_000:].split()[0] == hashlib.sha256(data).hexdigest()
        assert (
            connection.run("exit 4", [data]).status == 4
        )  # it does not want its input, and ends all the same


def test_lines_are_had_as_they_come(lab: Lab, keyring: Keyring) -> None:
    with closing(ssh.SshConnection(resolve("edge", "pi"), keyring)) as connection:
        lines: list[str] = []

        def on_line(line: str) -> None:
            lines.append(line)
            if line == "first":
                connection.run("touch go")  # which the other waits for

        outcome = connection.run(
            "echo first; while [ ! -e go ]; do sleep 0.01; done; rm go; printf last", on_line=on_line
        )
        assert lines == ["first", "last"]
        assert outcome.out == "first\nlast"


def test_input_that_cannot_be_read_is_not_the_end_of_it(lab: Lab, keyring: Keyring) -> None:
    def torn() -> Iterator[bytes]:
        yield b"the beginning"
        raise OSError("the disk is gone")

    with (
        closing(ssh.SshConnection(resolve("edge", "pi"), keyring)) as connection,
        pytest.raises(OSError, match="the disk is gone"),
    ):
        connection.run("cat", torn())


def test_commands_that_do_not_end_well(lab: Lab, keyring: Keyring) -> None:
    with closing(ssh.SshConnection(resolve("edge", "pi"), keyring)) as connection:
        with pytest.raises(Unreachable, match="was killed there"):
            connection.run("kill -9 $$")
        silent = connection.start("exec sleep 1000", CEILING_S)
        with pytest.raises(TimeoutError):
            silent.read(0.2)
        silent.close()


def test_a_program_s_last_words(lab: Lab, keyring: Keyring) -> None:
    with closing(ssh.SshConnection(resolve("edge", "pi"), keyring)) as connection:
        session = Session("pi", connection.open("echo what a pity >log 2>&1; read line", "log"))
        with pytest.raises(SessionLost, match="pi ended: what a pity"):
            session.request("anything", 10)


# Connections that are lost.


@pytest.mark.parametrize("name", ["pi", "gpu"])
def test_a_host_that_falls_silent_is_noticed(
    lab: Lab, keyring: Keyring, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pulled cable. The connection to gpu is through a host that goes on answering."""
    with ExitStack() as undo:
        with monkeypatch.context() as patch:
            # The kernel watches from the first packet on; what listens to the host beyond, once all of it stands.
            if name == "pi":
                patch.setattr(ssh, "SILENCE_S", 1.0)
            patch.setattr(ssh, "KEEPALIVE_S", 1)
            connection = undo.enter_context(closing(ssh.SshConnection(resolve(name, name), keyring)))
            session = Session(name, connection.open("cat >/dev/null", "/dev/null"))
            patch.setattr(ssh, "SILENCE_S", 1.0)
            lab.host(name).unplug()
            try:
                with pytest.raises(SessionLost):
                    session.request("anything", CEILING_S)
            finally:
                lab.host(name).plug()
        connection.renew()  # with the time that a busy machine takes
        assert connection.run("hostname").out.strip() == name


def test_a_host_that_was_switched_off_and_on_is_logged_in_to_again(
    lab: Lab, keyring: Keyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(ssh.SshConnection(resolve("edge", "pi"), keyring)) as connection:
        before = connection._transport
        connection.renew()
        assert connection._transport is before
        session = Session("pi", connection.open("cat >/dev/null", "/dev/null"))
        lab.host("pi").power_off()
        with monkeypatch.context() as patch:
            give_up_soon(patch, lab.host("pi"))
            patch.setattr(ssh, "ANSWER_S", 1.0)
            with pytest.raises(Unreachable, match="is it switched on"):
                connection.renew()
        lab.host("pi").power_on()
        with pytest.raises(SessionLost):
            session.request("anything", CEILING_S)
        connection.renew()
        assert connection.run("hostname").out.strip() == "pi"


def test_a_connection_that_is_reset_ends_its_sessions_at_once(lab: Lab, keyring: Keyring) -> None:
    with closing(ssh.SshConnection(resolve("edge", "pi"), keyring)) as connection:
        session = Session("pi", connection.open("cat >/dev/null", "/dev/null"))
        for pid in lab.host("pi").pids("sshd: pi"):
            psutil.Process(pid).kill()
        with pytest.raises(SessionLost):
            session.request("anything", CEILING_S)
        with pytest.raises(Unreachable, match="the connection is lost"):
            connection.run("true")
        connection.renew()
        assert connection.run("true").status == 0
