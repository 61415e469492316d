"""Logging in once by password, to a server that takes them; and what servers are told apart by."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import paramiko
import pytest

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
        transport.start_server(server=Server(ways))

    threading.Thread(target=accept, daemon=True).start()
    return Login("pi", "127.0.0.1", listener.getsockname()[1], "pi", HOST_LINE)


@pytest.mark.parametrize("ways", ["password", "keyboard-interactive", "publickey,password"])
def test_a_password_logs_in(listener: socket.socket, ways: str) -> None:
    with closing(ssh.with_password(serve(listener, ways), "right")) as way:
        assert way.run("true").status == 0


@pytest.mark.parametrize(
    ("ways", "password", "words"),
    [
        ("password", "wrong", "does not take this password for pi"),
        ("keyboard-interactive", "wrong", "does not take this password for pi"),
        ("publickey", "right", "takes no passwords"),
    ],
)
def test_a_password_that_is_not_taken(listener: socket.socket, ways: str, password: str, words: str) -> None:
    with pytest.raises(Unreachable, match=rf"^pi \(pi@127.0.0.1\): {words}"):
        ssh.with_password(serve(listener, ways), password)


def test_a_password_is_never_said_to_a_host_that_is_not_known(
    listener: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr(
        Server, "check_auth_password", lambda self, user, password: said.append(password) or 2
    )
    who = serve(listener, "password")
    stranger = Login("pi", who.address, who.port, "pi", known_hosts=(tmp_path / "kh",), known_as="127.0.0.1")
    with pytest.raises(Unreachable, match="is not in known_hosts"):
        ssh.with_password(stranger, "right")
    assert said == []


def test_a_host_s_key_is_had_without_logging_in(listener: socket.socket) -> None:
    key = ssh.fetch_host_key(serve(listener, "publickey"))
    assert known_hosts.fingerprint(key) == known_hosts.fingerprint(HOST_KEY)


def test_a_server_that_takes_no_keys(listener: socket.socket) -> None:
    key, _ = ssh.new_key()
    with pytest.raises(Unreachable, match="takes no keys: PubkeyAuthentication"):
        ssh.Ssh(serve(listener, "password"), Keyring.of(key))


@pytest.mark.parametrize("greeting", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
def test_what_is_no_ssh_server(listener: socket.socket, greeting: bytes) -> None:
    def answer() -> None:
        with listener.accept()[0] as stream:
            stream.sendall(greeting)

    threading.Thread(target=answer, daemon=True).start()
    port = listener.getsockname()[1]
    with pytest.raises(Unreachable, match=rf"what answers on port {port} is no SSH server"):
        ssh.fetch_host_key(Login("pi", "127.0.0.1", port, "pi"))


def test_a_server_that_says_nothing_is_waited_for_so_long(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "CONNECT_TIMEOUT_S", 0.5)
    with pytest.raises(Unreachable, match=r"does not answer on port|no SSH server"):
        ssh.fetch_host_key(Login("pi", "127.0.0.1", listener.getsockname()[1], "pi"))


def test_a_port_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "REFUSED_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(
        Unreachable, match=rf"refuses connections on port {port}: is its SSH server running\?$"
    ):
        ssh.fetch_host_key(Login("pi", "127.0.0.1", port, "pi"))


def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(Unreachable, match=r"no host of the name nowhere\.invalid is known"):
        ssh.fetch_host_key(Login("pi", "nowhere.invalid", 22, "pi"))
