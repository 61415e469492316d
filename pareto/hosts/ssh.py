"""Commands on a host over SSH: strict host keys, one connection a host with many channels."""

from __future__ import annotations

import contextlib
import io
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from typing import IO

import paramiko
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from pareto.hosts import connection
from pareto.hosts.connection import Connection, Proof
from pareto.hosts.keys import Keyring
from pareto.hosts.login import Login
from pareto.hosts.way import RUN_TIMEOUT_S, Outcome, Unreachable

ANSWER_S = 5.0
"""A host that lives answers a command like `true` within this."""
_BLOCK = 1 << 18
_TICK_S = 0.2


class Ssh:
    """A `way.Way` to a host that is logged in to. Raises Unreachable."""

    def __init__(self, login: Login, keyring: Keyring, prove: Proof | None = None) -> None:
        self.login = login
        self._keyring = keyring
        self._prove = prove or connection.with_keys(keyring)
        self._connection = Connection(login, keyring, self._prove)

    def __str__(self) -> str:
        return str(self.login)

    def run(
        self,
        command: str,
        stdin: IO[bytes] | None = None,
        *,
        timeout_s: float = RUN_TIMEOUT_S,
        on_line: Callable[[str], None] | None = None,
    ) -> Outcome:
        running = _Running(self._start(command, timeout_s), stdin, timeout_s)
        try:
            out = running.out(on_line)
            status = running.status()
        except TimeoutError:
            raise Unreachable(f"{self.login}: a command said nothing for {timeout_s:g} s") from None
        finally:
            running.close()
        if running.fault is not None:
            raise running.fault
        if status < 0:
            raise Unreachable(f"{self.login}: {self._connection.loss() or 'a command was killed there'}")
        return Outcome(status, out, running.err)

    def open(self, command: str, log: str) -> ChannelWire:
        return ChannelWire(self._start(command, RUN_TIMEOUT_S), lambda: self._last_words(log))

    def loss(self) -> str:
        words = self._connection.loss()
        return f"{self.login}: {words}" if words else ""

    def renew(self) -> None:
        with contextlib.suppress(Unreachable):
            if self.run("true", timeout_s=ANSWER_S).status == 0:
                return
        self.close()
        self._connection = Connection(self.login, self._keyring, self._prove)

    def close(self) -> None:
        self._connection.close()

    def _start(self, command: str, timeout_s: float) -> paramiko.Channel:
        """A channel on which the command runs; `timeout_s` bounds each of two round trips."""
        try:
            channel = self._connection.transport.open_session(timeout=timeout_s)
            late = threading.Timer(timeout_s, channel.close)
            late.start()
            try:
                # The user's own shell may be none that understands what is written for `sh`.
                channel.exec_command(f"exec sh -c {shlex.quote(command)}")
            finally:
                late.cancel()
        except (OSError, EOFError, paramiko.SSHException) as error:
            words = f"{error}".rstrip(".") or "it was closed"
            raise Unreachable(f"{self.login}: the connection is lost ({words})") from error
        return channel

    def _last_words(self, log: str) -> str:
        try:
            return self.run(f"tail -c 4096 {shlex.quote(log)}", timeout_s=ANSWER_S).out
        except Unreachable as error:
            return str(error)


class ChannelWire:
    """A program that talks on a channel: a `session.Wire`."""

    def __init__(self, channel: paramiko.Channel, last_words: Callable[[], str]) -> None:
        self._channel = channel
        self._last_words = last_words

    def send(self, data: bytes) -> None:
        try:
            # No time-out of its own: the channel has one for both ways, and it is `receive`'s, in another thread.
            self._channel.sendall(data)
        except (EOFError, paramiko.SSHException) as error:  # paramiko's words for a socket that broke
            raise OSError(str(error) or "the connection is lost") from error

    def receive(self, timeout_s: float) -> bytes:
        self._channel.settimeout(timeout_s)
        return self._channel.recv(1 << 20)

    def close(self) -> None:
        _close(self._channel)

    def last_words(self) -> str:
        return self._last_words()


class _Running:
    """A command whose input goes in and whose two outputs come out at the same time, so that none blocks another.

    The channel's one time-out is a tick; `timeout_s` without progress in any of the three is what raises.
    """

    def __init__(self, channel: paramiko.Channel, stdin: IO[bytes] | None, timeout_s: float) -> None:
        self.fault: Exception | None = None
        self._channel = channel
        self._timeout_s = timeout_s
        self._moved = time.monotonic()
        self._errors: list[bytes] = []
        channel.settimeout(_TICK_S)
        self._threads = [
            threading.Thread(target=self._feed, args=(stdin,), name="ssh-stdin", daemon=True),
            threading.Thread(target=self._hear, name="ssh-stderr", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    @property
    def err(self) -> str:
        return b"".join(self._errors).decode(errors="replace")

    def out(self, on_line: Callable[[str], None] | None) -> str:
        """All of stdout. Raises TimeoutError."""
        parts, rest = [], b""
        for part in self._parts(self._channel.recv, self._check):
            parts.append(part)
            if on_line is not None:
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    on_line(line.decode(errors="replace").rstrip())
        if on_line is not None and rest:
            on_line(rest.decode(errors="replace").rstrip())
        return b"".join(parts).decode(errors="replace")

    def status(self) -> int:
        """Waits for the end; negative where there was none to hear of. Raises TimeoutError."""
        while not self._channel.status_event.wait(_TICK_S):
            self._check()
        while self._threads[1].is_alive():
            self._threads[1].join(_TICK_S)
            self._check()
        return self._channel.exit_status

    def close(self) -> None:
        _close(self._channel)
        for thread in self._threads:
            thread.join()

    def _feed(self, stdin: IO[bytes] | None) -> None:
        try:
            while stdin is not None and (block := stdin.read(_BLOCK)):
                if not self._sent(block):
                    return
        except Exception as error:
            # Not to be taken for the end of the input: what is read here would look whole there.
            self.fault = error
            _close(self._channel)
            return
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()

    def _sent(self, block: bytes) -> bool:
        """Whether the command took it; where it did not want all, its exit status says why."""
        while block:
            try:
                count = self._channel.send(block)
            except TimeoutError:
                continue
            except (OSError, EOFError):
                return False
            if count == 0:
                return False
            self._moved = time.monotonic()
            block = block[count:]
        return True

    def _hear(self) -> None:
        self._errors.extend(self._parts(self._channel.recv_stderr, lambda: None))

    def _parts(self, receive: Callable[[int], bytes], idle: Callable[[], None]) -> Iterator[bytes]:
        while True:
            try:
                part = receive(_BLOCK)
            except TimeoutError:
                idle()
                continue
            if not part:
                return
            self._moved = time.monotonic()
            yield part

    def _check(self) -> None:
        if time.monotonic() - self._moved > self._timeout_s:
            raise TimeoutError


def _close(channel: paramiko.Channel) -> None:
    """Say that it is at an end, if there still is anybody to say it to."""
    with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
        channel.close()


def with_password(login: Login, password: str, keyring: Keyring | None = None) -> Ssh:
    """Log in once by password, to put a key over; jump hosts take keys. Nothing is stored. Raises Unreachable."""
    return Ssh(login, keyring or Keyring.own(None), connection.with_password(password))


def fetch_host_key(login: Login, keyring: Keyring | None = None) -> paramiko.PKey:
    """The key that a host shows, not checked, without logging in; jump hosts are logged in to. Raises Unreachable."""
    reached = Connection(login, keyring or Keyring.own(None), None)
    try:
        return reached.transport.get_remote_server_key()
    finally:
        reached.close()


def new_key() -> tuple[paramiko.Ed25519Key, str]:
    """A key pair for one run, never written to disk; the public half in OpenSSH's one-line form."""
    pem = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    key = paramiko.Ed25519Key.from_private_key(io.StringIO(pem.decode()))
    return key, f"{key.get_name()} {key.get_base64()}"
