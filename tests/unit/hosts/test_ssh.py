"""What a session and a user are told of a connection that breaks, or that a server refuses."""

from __future__ import annotations

import errno
import shlex
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import cast
from unittest.mock import Mock

import paramiko
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.connection import NotAdmitted, Unreachable
from pareto.hosts.session import Session, SessionLost, ping_all
from pareto.hosts.ssh import connection as ssh
from pareto.hosts.ssh import keys
from pareto.hosts.ssh.connection import SshConnection
from pareto.hosts.ssh.keys import Keyring
from pareto.hosts.ssh.login import Login
from tests.unit.far_end import Clock


class Broken:
    """A channel whose connection is gone: paramiko tells it in several ways, by what it was about to do."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def send(self, data: bytes) -> int:
        raise self._error

    def close(self) -> None:
        raise self._error


def session_on(channel: Broken) -> Session:
    command = ssh._RemoteCommand(cast(paramiko.Channel, channel), Mock())
    command.last_words = lambda: "the connection is lost"
    return Session("pi", command)


@pytest.mark.parametrize("error", [EOFError(), OSError("Socket is closed"), paramiko.SSHException("rekey")])
def test_a_broken_connection_is_a_lost_session(error: Exception) -> None:
    session = session_on(Broken(error))
    session.ping()
    with pytest.raises(SessionLost, match="pi ended: the connection is lost"):
        session.check()
    with pytest.raises(SessionLost):
        session.request("facts")
    session.close()


def test_whatever_is_open_is_kept_alive_and_one_lost_session_does_not_end_that() -> None:
    pinged: list[bytes] = []

    class Quiet(Broken):
        def send(self, data: bytes) -> int:
            pinged.append(data)
            return len(data)

    lost, fine = session_on(Broken(EOFError())), session_on(Quiet(EOFError()))
    ping_all()
    with pytest.raises(SessionLost):
        lost.check()
    fine.check()
    fine.close()
    assert pinged == [b'{"op": "ping"}\n']
    ping_all()
    assert len(pinged) == 1
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


def refusal(refused: pytest.ExceptionInfo[Unreachable], port: int) -> str:
    return str(refused.value).replace(str(port), "PORT")


def connect(login: Login) -> None:
    key, _ = keys.new_key()
    SshConnection(login, Keyring(only=key))


def test_a_key_is_never_shown_to_a_host_that_is_not_known(listener: socket.socket, tmp_path: Path) -> None:
    shown: list[str] = []
    who = serve(listener, "publickey", shown)
    stranger = Login("pi", who.address, who.port, "pi", known_hosts=(tmp_path / "kh",), known_as="127.0.0.1")
    with pytest.raises(NotAdmitted, match="known_hosts"):
        connect(stranger)
    assert shown == []


def test_a_host_that_takes_none_of_the_keys_may_be_added(listener: socket.socket) -> None:
    shown: list[str] = []
    with pytest.raises(NotAdmitted, match="takes none of these keys"):
        connect(serve(listener, "publickey", shown))
    assert len(shown) > 0


def test_a_server_that_takes_no_keys(listener: socket.socket, snapshot: SnapshotAssertion) -> None:
    who = serve(listener, "password", [])
    with pytest.raises(Unreachable) as refused:
        connect(who)
    assert not isinstance(refused.value, NotAdmitted)
    assert refusal(refused, who.port) == snapshot


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_what_is_no_ssh_server(listener: socket.socket, greeting: bytes, snapshot: SnapshotAssertion) -> None:
    def answer() -> None:
        with listener.accept()[0] as stream:
            stream.sendall(greeting)

    threading.Thread(target=answer, daemon=True).start()
    port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match=str(port)) as refused:
        connect(Login("pi", "127.0.0.1", port, "pi"))
    assert refusal(refused, port) == snapshot


def test_a_server_that_says_nothing_is_waited_for_so_long(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "CONNECT_TIMEOUT_S", 0.1)
    port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match=str(port)):
        connect(Login("pi", "127.0.0.1", port, "pi"))


def test_a_port_that_refuses(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    monkeypatch.setattr(ssh, "REFUSED_S", 0.1)
    with socket.socket() as taken:  # and not listened on
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(Unreachable, match=str(port)) as refused:
            connect(Login("pi", "127.0.0.1", port, "pi"))
    assert refusal(refused, port) == snapshot


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


def test_a_peer_that_falls_silent_is_the_kernels_to_notice(
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


def test_a_name_that_nobody_knows(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(Unreachable, match=r"nowhere\.invalid") as refused:
        connect(Login("pi", "nowhere.invalid", 22, "pi"))
    assert str(refused.value) == snapshot


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
