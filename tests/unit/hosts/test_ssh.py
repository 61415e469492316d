"""What a session and a user are told of a connection that breaks, or that a server refuses; which hosts are known."""

from __future__ import annotations

import errno
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import paramiko
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.connection import NotAdmitted, Unreachable
from pareto.hosts.session import Session, SessionLost, ping_all
from pareto.hosts.ssh import connection as ssh
from pareto.hosts.ssh import keys, known_hosts
from pareto.hosts.ssh.connection import SshConnection
from pareto.hosts.ssh.keys import Keyring
from pareto.hosts.ssh.login import Login
from tests.unit.far_end import Clock
from tests.unit.refusals import refusal


class Broken:
    """A channel whose connection is gone: paramiko tells it in several ways, by what it was about to do."""

    def __init__(self, error: Exception) -> None:
        self.send = self.close = Mock(side_effect=error)


def session_on(channel: Broken) -> Session:
    command = ssh._RemoteCommand(cast(paramiko.Channel, channel), Mock())
    command.last_words = lambda: "the connection is lost"
    return Session("pi", command)


def test_a_broken_connection_is_a_lost_session() -> None:
    for error in (EOFError(), OSError("Socket is closed"), paramiko.SSHException("rekey")):
        session = session_on(Broken(error))
        session.ping()
        with pytest.raises(SessionLost, match="pi ended: the connection is lost"):
            session.check()
        with pytest.raises(SessionLost):
            session.request("facts")
        session.close()
    # Whatever is open is kept alive and one lost session does not end that.
    quiet = Broken(EOFError())
    quiet.send = Mock(side_effect=len)
    lost, fine = session_on(Broken(EOFError())), session_on(quiet)
    ping_all()
    with pytest.raises(SessionLost):
        lost.check()
    fine.check()
    fine.close()
    ping_all()
    quiet.send.assert_called_once_with(b'{"op": "ping"}\n')
    assert any(thread.name == "heartbeat" for thread in threading.enumerate())


HOST_KEY, HOST_LINE = keys.new_key()


class Server(paramiko.ServerInterface):
    """Names the ways to log in that it is made with, takes none and notes the keys that it is shown."""

    def __init__(self, allowed: str, shown: list[str]) -> None:
        self.allowed = allowed
        self.shown = shown

    def get_allowed_auths(self, username: str) -> str:
        return self.allowed

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        self.shown.append(key.get_base64())
        return paramiko.AUTH_FAILED


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def serve(listener: socket.socket, allowed: str, shown: list[str]) -> Login:
    def accept() -> None:
        stream, _ = listener.accept()
        transport = paramiko.Transport(stream)
        transport.add_server_key(HOST_KEY)
        # Not waited for: the client may leave while they still shake hands.
        transport.start_server(threading.Event(), Server(allowed, shown))

    threading.Thread(target=accept, daemon=True).start()
    return Login("pi", "127.0.0.1", listener.getsockname()[1], "pi", HOST_LINE)


def connect(login: Login) -> None:
    key, _ = keys.new_key()
    SshConnection(login, Keyring(only=key))


def test_a_key_is_never_shown_to_a_host_that_is_not_known(listener: socket.socket, tmp_path: Path) -> None:
    """One that is known and takes none of the keys may be added."""
    shown: list[str] = []
    who = serve(listener, "publickey", shown)
    stranger = Login("pi", who.address, who.port, "pi", known_hosts=(tmp_path / "kh",), known_as="127.0.0.1")
    with pytest.raises(NotAdmitted, match="known_hosts"):
        connect(stranger)
    assert shown == []
    with pytest.raises(NotAdmitted, match="takes none of these keys"):
        connect(serve(listener, "publickey", shown))
    assert len(shown) > 0


def answers(listener: socket.socket, greeting: bytes) -> Login:
    def answer() -> None:
        with listener.accept()[0] as stream:
            stream.sendall(greeting)

    threading.Thread(target=answer, daemon=True).start()
    return Login("pi", "127.0.0.1", listener.getsockname()[1], "pi")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


SERVERS: dict[str, Callable[[socket.socket], Login]] = {
    "takes no keys": lambda listener: serve(listener, "password", []),
    "no ssh server": lambda listener: answers(listener, b"HTTP/1.1 400 Bad Request\r\n\r\n"),
    "hangs up": lambda listener: answers(listener, b""),
    "nobody knows": lambda _: Login("pi", "nowhere.invalid", 22, "pi"),
    "says nothing": lambda listener: Login("pi", "127.0.0.1", listener.getsockname()[1], "pi"),
    "refuses": lambda _: Login("pi", "127.0.0.1", free_port(), "pi"),
}


@pytest.mark.parametrize("server", SERVERS)
def test_said_where_no_key_helps(
    listener: socket.socket, server: str, monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion
) -> None:
    """Who says nothing, or refuses, is waited for so long."""
    if server in ("says nothing", "refuses"):
        monkeypatch.setattr(ssh, "CONNECT_TIMEOUT_S", 0.1)
        monkeypatch.setattr(ssh, "REFUSED_S", 0.1)
    who = SERVERS[server](listener)
    with pytest.raises(Unreachable) as refused:
        connect(who)
    assert not isinstance(refused.value, NotAdmitted)
    named = who.address if who.port == 22 else str(who.port)
    assert server == "takes no keys" or named in str(refused.value)
    assert str(refused.value).replace(str(who.port), "PORT") == snapshot


def test_a_port_that_refuses_is_tried_again_until_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each try with what is left of the time to connect; what does not answer at all is not tried again."""
    monkeypatch.setattr(ssh, "time", clock := Clock(100.0))
    faults: list[OSError] = [OSError(errno.ECONNREFUSED, "refused")] * 4
    tried: list[float] = []

    def connect(timeout_s: float) -> socket.socket:
        tried.append(round(timeout_s, 3))
        clock.now_s += 1.0
        raise faults.pop(0)

    with pytest.raises(ConnectionRefusedError):
        ssh._patiently(connect, ssh.REFUSED_S)
    assert tried == [10.0, 8.95, 7.9, 6.85]
    tried.clear()
    faults.append(TimeoutError())
    with pytest.raises(TimeoutError):
        ssh._patiently(connect, ssh.REFUSED_S)
    assert tried == [10.0]


def test_a_silent_peer_is_the_kernels_to_notice(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its limits are those of the moment at which the connection is made."""
    port = listener.getsockname()[1]
    for silence_s, keepalive_s in ((ssh.SILENCE_S, ssh.KEEPALIVE_S), (1.0, 1)):
        monkeypatch.setattr(ssh, "SILENCE_S", silence_s)
        monkeypatch.setattr(ssh, "KEEPALIVE_S", keepalive_s)
        with ssh._connected("127.0.0.1", port, 10.0) as made:
            options = (socket.TCP_USER_TIMEOUT, socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)
            told = [made.getsockopt(socket.IPPROTO_TCP, option) for option in options]
            assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert told == [1000 * silence_s, keepalive_s, keepalive_s]


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh", "csh", "tcsh", "fish"])
def test_a_command_means_the_same_whatever_the_shell_of_the_user_is(shell: str) -> None:
    path = shutil.which(shell)
    if path is None:
        pytest.skip(f"there is no {shell} here")
    text = "it's `date` $HOME !! \\n \\\\ % é *\n#two"
    command = f"printf %s {shlex.quote(text)}; cat\nexit 7"
    entered = ssh.first_line(command) + b"and the input\n"
    done = subprocess.run([path, "-c", ssh.FROM_STDIN], input=entered, capture_output=True, check=False)
    assert (done.stdout.decode(), done.stderr, done.returncode) == (f"{text}and the input\n", b"", 7)


# Host keys.

KEY, LINE = keys.new_key()
OTHER, OTHER_LINE = keys.new_key()
UNKNOWN, CHANGED, REVOKED = "is not in known_hosts", "another host key", "revoked"
"""What tells the refusals from each other."""


@pytest.fixture
def login(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Login:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / ".ssh" / "known_hosts"
    return Login("pi", "192.168.7.2", 22, "pi", known_hosts=(file,), known_as="192.168.7.2")


def at_port(login: Login, port: int) -> Login:
    return replace(login, port=port, known_as=f"[{login.address}]:{port}")


def write(login: Login, *lines: str) -> None:
    login.known_hosts[0].parent.mkdir(exist_ok=True)
    login.known_hosts[0].write_text("\n".join(lines) + "\n")


def check(login: Login, key: paramiko.PKey = KEY) -> None:
    known_hosts.check(login, key, known_hosts.known(login))


def refused(login: Login, key: paramiko.PKey = KEY) -> str:
    return refusal(Unreachable, check, login, key)


NAMES = {
    **dict.fromkeys(["192.168.7.2", "pi,192.168.7.2", "192.168.*", "192.168.7.?", "*,!10.*"], True),
    **dict.fromkeys(["192.168.7.20", "*,!192.168.7.2", "192.168.7.2.example", "192x168x7x2"], False),
}


def test_whom_a_line_is_about(login: Login, tmp_path: Path) -> None:
    for names, meant in NAMES.items():
        write(login, f"{names} {LINE} a comment")
        if meant:
            check(login)
        else:
            assert UNKNOWN in refused(login)
    # A port of its own.
    write(login, f"[192.168.7.2]:2222 {LINE}", f"192.168.7.2 {OTHER_LINE}")
    check(at_port(login, 2222))
    check(login, OTHER)
    assert CHANGED in refused(login)
    assert UNKNOWN in refused(at_port(login, 22222))
    pinned = replace(login, host_key=LINE)  # it is the only one
    check(pinned)
    assert CHANGED in refused(pinned, OTHER)
    # Hashed names as OpenSSH writes them.
    for who in (login, at_port(login, 2222)):
        write(who, f"{who.known_as} {LINE}", f"elsewhere {OTHER_LINE}")
        subprocess.run(["ssh-keygen", "-H", "-f", str(who.known_hosts[0])], check=True, capture_output=True)
        assert who.address not in who.known_hosts[0].read_text()
        check(who)
        assert CHANGED in refused(who, OTHER)
    # A revoked key is refused whatever else is said.
    write(login, f"192.168.7.2 {LINE}", f"@revoked * {LINE}")
    assert REVOKED in refused(login)
    write(login, f"@revoked * {OTHER_LINE}")
    assert UNKNOWN in refused(login)  # a revoked key alone is no key to expect
    # Lines that mean nothing are passed over.
    write(
        login,
        *("", "# a comment", "192.168.7.2", "192.168.7.2 ssh-ed25519", "192.168.7.2 ssh-ed25519 !!!!"),
        *("192.168.7.2 ssh-rsa AAAA", "|1|x|y ssh-ed25519 AAAA", "|1| ssh-ed25519 AAAA", "\x00\xff\xfe"),
        f"@cert-authority * {OTHER_LINE}",
        f"192.168.7.2 ssh-rsa {OTHER_LINE.split()[1]}",
        f"  192.168.7.2\t{LINE.replace(' ', chr(9))}",
    )
    assert [entry.kind for entry in known_hosts.known(login)] == ["ssh-ed25519"]
    check(login)
    write(login, f"@cert-authority * {LINE}")
    assert UNKNOWN in refused(login)
    # Several files of which some are not there.
    other = tmp_path / "machine"
    other.write_text(f"192.168.7.2 {LINE}\n")
    check(replace(login, known_hosts=(*login.known_hosts, tmp_path / "none", other)))
    (folder := tmp_path / "folder").mkdir()
    with pytest.raises(Unreachable, match="~/folder"):
        check(replace(login, known_hosts=(folder,)))


def test_what_is_said_of_unknown_hosts_and_changed_keys(login: Login, snapshot: SnapshotAssertion) -> None:
    """Where a scan would not see the host, the line itself is said."""
    other_port = at_port(login, 2222)
    unseen = replace(login, jump=login), replace(login, known_as="alias")
    refusals = [refused(each) for each in (login, other_port, *unseen)]
    write(login, f"192.168.7.2 {OTHER_LINE}", f"[192.168.7.2]:2222 {OTHER_LINE}")
    refusals += [refused(login), refused(other_port)]
    add, remove = f"{LINE}' >> ~/.ssh/known_hosts", "ssh-keygen -R"
    named = ["-p 2222 192.168.7.2 >>", f"'192.168.7.2 {add}", f"'alias {add}", f"{remove} 192.168.7.2"]
    for said, words in zip(refusals[1:], [*named, f"{remove} '[192.168.7.2]:2222'"], strict=True):
        assert words in said
    assert all(KEY.fingerprint in said for said in refusals)  # another one in each run, as the line
    assert [it.replace(KEY.fingerprint, "FINGERPRINT").replace(LINE, "LINE") for it in refusals] == snapshot


def test_types_that_are_known_are_asked_for_first(login: Login) -> None:
    public = rsa.generate_private_key(65537, 2048).public_key()
    write(login, "192.168.7.2 " + public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode())
    supported = ["ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512", "rsa-sha2-256"]
    ordered = known_hosts.kinds(known_hosts.known(login), supported)
    assert ordered == ["rsa-sha2-512", "rsa-sha2-256", "ssh-ed25519", "ecdsa-sha2-nistp256"]
    assert known_hosts.kinds([], supported) == supported
