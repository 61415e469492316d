"""Logging in once by password, to a server that takes them; and what servers are told apart by."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import paramiko
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.hosts import connection, known_hosts, ssh
from pareto.hosts.keys import Keyring
from pareto.hosts.login import Login
from pareto.hosts.way import Unreachable

HOST_KEY, HOST_LINE = ssh.new_key()


class Server(paramiko.ServerInterface):
    """Takes the password "right" in the ways it is made with, and runs nothing."""

    def __init__(self, ways: str) -> None:
        self.ways = ways

    def get_allowed_auths(self, username: str) -> str:
        return self.ways

    def check_auth_password(self, username: str, password: str) -> int:
        taken = "password" in self.ways and password == "right"  # noqa: S105
        return paramiko.AUTH_SUCCESSFUL if taken else paramiko.AUTH_FAILED

    def check_auth_interactive(self, username: str, submethods: str) -> int | paramiko.InteractiveQuery:
        if "keyboard-interactive" not in self.ways:
            return paramiko.AUTH_FAILED
        return paramiko.InteractiveQuery("", "", ("Password: ", False))

    def check_auth_interactive_response(self, responses: list[str]) -> int:
        return paramiko.AUTH_SUCCESSFUL if responses == ["right"] else paramiko.AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=_end, args=(channel,), daemon=True).start()
        return True


def _end(channel: paramiko.Channel) -> None:
    channel.recv(1)  # the end of its input, which the client sends when it knows that the command has started
    channel.send_exit_status(0)
    channel.close()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def serve(listener: socket.socket, ways: str) -> Login:
    def accept() -> None:
        stream, _ = listener.accept()
        transport = paramiko.Transport(stream)
        transport.add_server_key(HOST_KEY)
        # Not waited for: the client may leave while they still shake hands.
        transport.start_server(threading.Event(), Server(ways))

    threading.Thread(target=accept, daemon=True).start()
    return Login("pi", "127.0.0.1", listener.getsockname()[1], "pi", HOST_LINE)


@pytest.mark.parametrize("ways", ["password", "keyboard-interactive", "publickey,password"])
def test_a_password_logs_in(listener: socket.socket, ways: str) -> None:
    with closing(ssh.with_password(serve(listener, ways), "right")) as way:
        assert way.run("true").status == 0


def refusal(refused: pytest.ExceptionInfo[Unreachable], port: int) -> str:
    return str(refused.value).replace(str(port), "PORT")


@pytest.mark.parametrize(
    ("ways", "password"), [("password", "wrong"), ("keyboard-interactive", "wrong"), ("publickey", "right")]
)
def test_a_password_that_is_not_taken(
    listener: socket.socket, ways: str, password: str, snapshot: SnapshotAssertion
) -> None:
    who = serve(listener, ways)
    with pytest.raises(Unreachable, match=r"^pi \(pi@127.0.0.1\)") as refused:
        ssh.with_password(who, password)
    assert refusal(refused, who.port) == snapshot


def test_a_password_is_never_said_to_a_host_that_is_not_known(
    listener: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(
        Server, "check_auth_password", lambda self, user, password: said.append(password) or 2
    )
    who = serve(listener, "password")
    stranger = Login("pi", who.address, who.port, "pi", known_hosts=(tmp_path / "kh",), known_as="127.0.0.1")
    with pytest.raises(Unreachable, match="known_hosts"):
        ssh.with_password(stranger, "right")
    assert said == []


def test_a_host_s_key_is_had_without_logging_in(listener: socket.socket) -> None:
    key = ssh.fetch_host_key(serve(listener, "publickey"))
    assert known_hosts.fingerprint(key) == known_hosts.fingerprint(HOST_KEY)


def test_a_server_that_takes_no_keys(listener: socket.socket, snapshot: SnapshotAssertion) -> None:
    key, _ = ssh.new_key()
    who = serve(listener, "password")
    with pytest.raises(Unreachable) as refused:
        ssh.Ssh(who, Keyring.of(key))
    assert refusal(refused, who.port) == snapshot


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_what_is_no_ssh_server(listener: socket.socket, greeting: bytes, snapshot: SnapshotAssertion) -> None:
    def answer() -> None:
        with listener.accept()[0] as stream:
            stream.sendall(greeting)

    threading.Thread(target=answer, daemon=True).start()
    port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match=str(port)) as refused:
        ssh.fetch_host_key(Login("pi", "127.0.0.1", port, "pi"))
    assert refusal(refused, port) == snapshot


def test_a_server_that_says_nothing_is_waited_for_so_long(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_S", 0.1)
    port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match=str(port)):
        ssh.fetch_host_key(Login("pi", "127.0.0.1", port, "pi"))


def test_a_port_that_refuses(monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion) -> None:
    monkeypatch.setattr(connection, "REFUSED_S", 0.1)
    with socket.socket() as taken:  # and not listened on
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        with pytest.raises(Unreachable, match=str(port)) as refused:
            ssh.fetch_host_key(Login("pi", "127.0.0.1", port, "pi"))
    assert refusal(refused, port) == snapshot


def test_a_name_that_nobody_knows(snapshot: SnapshotAssertion) -> None:
    with pytest.raises(Unreachable, match=r"nowhere\.invalid") as refused:
        ssh.fetch_host_key(Login("pi", "nowhere.invalid", 22, "pi"))
    assert str(refused.value) == snapshot
