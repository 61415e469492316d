"""Logging in by OpenSSH's configuration to real sshds, and what is said and noticed when that fails."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.connection import Unreachable
from pareto.hosts.session import Session, SessionLost
from pareto.hosts.ssh import connection as ssh
from pareto.hosts.ssh.keys import Keyring, load
from pareto.hosts.ssh.login import Login
from tests.lab import Lab, give_up_soon, open_lab
from tests.less_than_root import needs_networks
from tests.program import wait_until
from tests.unit.example_host import resolve

needs_client = pytest.mark.skipif(shutil.which("ssh-agent") is None, reason="needs OpenSSH's client")
pytestmark = [pytest.mark.integration, needs_networks, needs_client]
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
    before = threads()
    yield hosts
    hosts.know_hosts()
    assert wait_until(lambda: threads() <= before), threads() - before


def threads() -> set[threading.Thread]:
    """All but the one that pings every session of this process."""
    return {each for each in threading.enumerate() if each.name != "heartbeat"}


@contextmanager
def agent(folder: Path, *keys: Path) -> Iterator[str]:
    """The socket of an agent that holds these keys."""
    at = folder / f"agent{len(keys)}"
    with subprocess.Popen(["ssh-agent", "-D", "-a", str(at)], stdout=subprocess.DEVNULL) as process:
        try:
            assert wait_until(at.exists)
            environment = {**os.environ, "SSH_AUTH_SOCK": str(at)}
            subprocess.run(["ssh-add", "-q", *map(str, keys)], env=environment, check=True)
            yield str(at)
        finally:
            process.terminate()


def new_key(path: Path) -> Path:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", str(path)]
    subprocess.run(argv, check=True)
    return path


def connected(name: str) -> closing[ssh.SshConnection]:
    return closing(ssh.SshConnection(resolve(name, name), Keyring()))


def hostname(login: Login, keyring: Keyring | None = None) -> str:
    with closing(ssh.SshConnection(login, keyring or Keyring())) as connection:
        return connection.run("hostname").out.strip()


def refusal(lab: Lab, login: Login, keyring: Keyring | None = None) -> str:
    """Without what differs from run to run."""
    with pytest.raises(Unreachable) as fault:
        ssh.SshConnection(login, keyring or Keyring()).close()
    words = str(fault.value)
    assert "\n" not in words
    assert words.startswith(f"{login.name} ({login.user}@{login.address})")
    return words.replace(str(lab.folder), "LAB")


def stable(words: str) -> str:
    return re.sub(r"(SHA256:|AAAA)[A-Za-z0-9+/]+", r"\1...", words)


def test_directly_through_a_jump_host_by_a_proxy_command_and_by_a_pinned_key(
    lab: Lab, snapshot: SnapshotAssertion
) -> None:
    direct, gpu, pi = resolve("pi", "pi"), resolve("gpu", "gpu"), lab.host("pi")
    assert gpu.jump is not None
    assert (hostname(direct), hostname(gpu)) == ("pi", "gpu")
    reach = f"ssh -F {lab.ssh_config} -o BatchMode=yes -W %h:%p jump"
    config = lab.ssh_config.read_text()
    lab.ssh_config.write_text(config.replace("ProxyJump jump", f"ProxyCommand {reach}"))
    try:
        gpu = resolve("gpu", "gpu")
    finally:
        lab.ssh_config.write_text(config)
    assert gpu.jump is None and gpu.proxy_command
    children = set(psutil.Process().children())
    assert hostname(gpu) == "gpu"
    assert set(psutil.Process().children()) == children
    pinned, only = Login("pi", pi.address, pi.port, pi.user, pi.host_key), Keyring(only=load(lab.key))
    assert hostname(pinned, only) == "pi"
    other = refusal(lab, replace(pinned, host_key=lab.host("gpu").host_key), only)
    failing = replace(direct, proxy_command="sh -c 'echo no such road >&2; exit 7'")
    assert [stable(other), refusal(lab, failing)] == snapshot
    missing = refusal(lab, replace(failing, proxy_command="/no/such/program"))
    assert "/no/such/program" in missing or "ProxyCommand" in missing


# Keys.


def test_keys_of_the_agent_and_keys_that_are_not_taken(
    lab: Lab, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """A key that only the agent has; another; none; and more than the server lets be tried."""
    shutil.copy(lab.key.with_suffix(".pub"), tmp_path / "key.pub")
    strangers = [new_key(tmp_path / f"stranger{number}") for number in range(7)]
    who = replace(resolve("pi", "pi"), identities=(tmp_path / "key",))
    stranger = replace(who, identities=tuple(strangers[:1]))
    assert who.identities_only
    with agent(tmp_path, strangers[0], lab.key) as socket:
        assert hostname(replace(who, agent=socket)) == "pi"
        assert hostname(replace(who, agent=socket, identities_only=False, identities=())) == "pi"
        words = [refusal(lab, replace(stranger, agent=socket))]
        assert words[0].count("in the agent") == 1
    assert [*words, refusal(lab, replace(who, agent=socket)), refusal(lab, stranger)] == snapshot
    with agent(tmp_path, *strangers) as socket:
        many = replace(resolve("pi", "pi"), agent=socket, identities_only=False)
        assert "too many" in refusal(lab, many)
        assert hostname(replace(many, identities_only=True)) == "pi"


# Host keys.


@pytest.mark.parametrize("name", ["pi", "gpu"])
def test_an_unknown_host_can_be_added_as_it_says(lab: Lab, name: str, snapshot: SnapshotAssertion) -> None:
    known = [f"{host.address} {host.host_key}\n" for host in lab.hosts.values() if host.name != name]
    lab.known_hosts.write_text("".join(known))
    words = refusal(lab, resolve(name, name))
    assert stable(words) == snapshot
    add, environment = words.partition("and add it: ")[2], {**os.environ, "HOME": str(lab.home)}
    subprocess.run(["sh", "-c", add], env=environment, check=True, stderr=subprocess.DEVNULL)
    assert hostname(resolve(name, name)) == name


def test_a_host_key_that_changed_can_be_removed_as_it_says(lab: Lab, snapshot: SnapshotAssertion) -> None:
    """A jump host's is checked, too."""
    who, gpu = resolve("pi", "pi"), resolve("gpu", "gpu")
    for name in ("pi", "jump"):
        lab.host(name).change_host_key()
    words = refusal(lab, who)
    assert [stable(words), stable(refusal(lab, gpu))] == snapshot
    # ssh-keygen too takes the home from the passwd entry.
    remove = f"{words.partition('anew: ')[2]} -f {lab.known_hosts}"
    subprocess.run(["sh", "-c", remove], check=True, capture_output=True)
    assert "is not in known_hosts" in refusal(lab, who)
    with lab.known_hosts.open("a") as file:
        file.write(f"{who.known_as} {lab.host('pi').host_key}\n")
    assert hostname(who) == "pi"


def test_a_port_that_refuses_and_a_host_and_a_jump_host_that_are_off(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    gpu = resolve("gpu", "gpu")
    with monkeypatch.context() as patch:
        patch.setattr(ssh, "REFUSED_S", 0.2)
        said = [refusal(lab, resolve("pi", "pi", port=23)), refusal(lab, replace(gpu, port=23))]
    give_up_soon(monkeypatch, lab.host("pi"), lab.host("jump"))
    for name, who in (("pi", resolve("pi", "pi")), ("jump", gpu)):
        lab.host(name).unplug()
        try:
            said.append(refusal(lab, who))
        finally:
            lab.host(name).plug()
    assert said == snapshot


# Commands.


def test_large_input_and_both_large_outputs_at_once(lab: Lab) -> None:
    data = os.urandom(6_000_000)
    with connected("gpu") as connection:
        large = "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2; sha256sum; exit 3"
        outcome = connection.run(large, [data])
        assert (outcome.status, len(outcome.err)) == (3, 3_000_000)
        assert outcome.out[3_000_000:].split()[0] == hashlib.sha256(data).hexdigest()
        # It does not want its input, and ends all the same.
        assert connection.run("exit 4", [data]).status == 4


def test_lines_are_had_as_they_come_and_what_does_not_end_well_is_told(lab: Lab) -> None:
    lines: list[str] = []

    def on_line(line: str) -> None:
        lines.append(line)
        if line == "first":
            connection.run("touch go")  # which the other waits for

    def torn() -> Iterator[bytes]:
        yield b"the beginning"
        raise OSError("the disk is gone")

    with connected("pi") as connection:
        wait = "echo first; while [ ! -e go ]; do sleep 0.01; done; rm go; printf last"
        assert connection.run(wait, on_line=on_line).out == "first\nlast"
        assert lines == ["first", "last"]
        with pytest.raises(OSError, match="the disk is gone"):
            connection.run("cat", torn())
        with pytest.raises(Unreachable, match="was killed there"):
            connection.run("kill -9 $$")
        with closing(connection.start("exec sleep 1000", CEILING_S)) as silent, pytest.raises(TimeoutError):
            silent.read(0.2)
        session = Session("pi", connection.open("echo what a pity >log 2>&1; read line", "log"))
        with closing(session), pytest.raises(SessionLost, match="pi ended: what a pity"):
            session.request("anything", 10)


# Connections that are lost.


def silent_session(connection: ssh.SshConnection, name: str) -> Session:
    return Session(name, connection.open("cat >/dev/null", "/dev/null"))


@pytest.mark.parametrize("name", ["pi", "gpu"])
def test_a_host_that_falls_silent_is_noticed(lab: Lab, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pulled cable. The connection to gpu is through a host that goes on answering."""
    with monkeypatch.context() as patch:
        # The kernel watches from the first packet on; what listens to the host beyond, once all of it stands.
        if name == "pi":
            patch.setattr(ssh, "SILENCE_S", 1.0)
        patch.setattr(ssh, "KEEPALIVE_S", 1)
        made = connected(name)
        patch.setattr(ssh, "SILENCE_S", 1.0)
        with made as connection:
            session = silent_session(connection, name)
            lab.host(name).unplug()
            try:
                with pytest.raises(SessionLost):
                    session.request("anything", CEILING_S)
            finally:
                lab.host(name).plug()
            patch.undo()
            connection.renew()  # with the time that a busy machine takes
            assert connection.run("hostname").out.strip() == name


def test_a_host_that_was_switched_off_and_on_is_logged_in_to_again(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected("pi") as connection:
        before = connection._transport
        connection.renew()
        assert connection._transport is before
        session = silent_session(connection, "pi")
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


def test_a_connection_that_is_reset_ends_its_sessions_at_once(lab: Lab) -> None:
    with connected("pi") as connection:
        session = silent_session(connection, "pi")
        for pid in lab.host("pi").pids("sshd: pi"):
            psutil.Process(pid).kill()
        with pytest.raises(SessionLost):
            session.request("anything", CEILING_S)
        with pytest.raises(Unreachable, match="the connection is lost"):
            connection.run("true")
        connection.renew()
        assert connection.run("true").status == 0
