"""Commands on a host over SSH: strict host keys, one connection a host with many channels."""

from __future__ import annotations

import contextlib
import errno
import logging
import shlex
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

import paramiko
from paramiko.ssh_exception import IncompatiblePeer

from pareto import COMMAND
from pareto.hosts.connection import ANSWER_S, ChildProcess, Connection, NotAdmitted, Outcome, Unreachable
from pareto.hosts.session import BLOCK_BYTES, Command
from pareto.hosts.ssh import known_hosts
from pareto.hosts.ssh.keys import Keyring, NoKey
from pareto.hosts.ssh.login import Login

CONNECT_TIMEOUT_S = 10.0
"""From the first packet until the host key is seen; the lookup of a name takes what the name service takes."""
AUTH_TIMEOUT_S = 30.0
"""For one key; it may have to be touched, or allowed in a dialogue of the agent."""
REFUSED_S = 3.0
"""How long a port that refuses is tried again."""
STARTING_S = 10.0
"""The same where the server is one that this program has just started."""
KEEPALIVE_S = 5
SILENCE_S = 20.0
"""A peer that acknowledges nothing for so long is gone: its power was cut, or a cable pulled. Behind a
jump host or a ProxyCommand, twice as long."""
FROM_STDIN = """exec sh -c 'IFS= read -r script; eval "$script"'"""
"""The command for the user's own shell, be it csh or fish, which may not understand what is written for `sh`."""

_Stream = TypeVar("_Stream", socket.socket, paramiko.Channel)

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # its tracebacks; what matters is raised


class SshConnection(Connection):
    """A connection to a host that is logged in to. Its methods raise Unreachable."""

    def __init__(self, login: Login, keyring: Keyring) -> None:
        self.login = login
        self._keyring = keyring
        self._transport = _Transport(login, keyring)

    def __str__(self) -> str:
        return str(self.login)

    def loss(self) -> str:
        words = self._transport.loss()
        return f"{self}: {words}" if words else ""

    def renew(self) -> None:
        with contextlib.suppress(Unreachable):
            if self.run("true", timeout_s=ANSWER_S).status == 0:
                return
        self.close()
        self._transport = _Transport(self.login, self._keyring)

    def close(self) -> None:
        self._transport.close()

    def start(self, command: str, timeout_s: float) -> _RemoteCommand:
        """`timeout_s` bounds each of two round trips."""
        try:
            channel = self._transport.paramiko.open_session(timeout=timeout_s)
            late = threading.Timer(timeout_s, channel.close)
            late.start()
            try:
                channel.exec_command(FROM_STDIN)
                with contextlib.suppress(OSError):  # a shell that is none has ended: its status is to be said
                    channel.sendall(first_line(command))
            finally:
                late.cancel()
        except (OSError, EOFError, paramiko.SSHException) as error:
            words = f"{error}".rstrip(".") or "it was closed"
            raise Unreachable(f"{self}: the connection is lost ({words})") from error
        return _RemoteCommand(channel, self)


def first_line(command: str) -> bytes:
    """The line of input by which `FROM_STDIN` gets a command; all that follows is the command's own input."""
    # `read` takes no byte more than the line, as `sh -s` may.
    escaped = command.replace("\\", r"\\").replace("\n", r"\n")
    return f'eval "$(printf %b {shlex.quote(escaped)})"\n'.encode()


class _RemoteCommand(Command):
    """A command on a channel."""

    def __init__(self, channel: paramiko.Channel, connection: SshConnection) -> None:
        self._channel = channel
        self._connection = connection

    def write(self, block: bytes) -> int:
        try:
            # Without a time-out of its own: the channel has one for both directions, and it is `read`'s.
            return self._channel.send(block)
        except (OSError, EOFError, paramiko.SSHException):
            return 0

    def end_input(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()

    def read(self, timeout_s: float | None = None) -> bytes:
        self._channel.settimeout(timeout_s)
        return self._channel.recv(BLOCK_BYTES)

    def read_errors(self) -> bytes:
        return self._channel.recv_stderr(BLOCK_BYTES)

    def wait(self, timeout_s: float) -> int | None:
        if not self._channel.status_event.wait(timeout_s):
            return None
        if self._channel.exit_status < 0:
            raise Unreachable(self._connection.loss() or f"{self._connection}: a command was killed there")
        return self._channel.exit_status

    def close(self) -> None:
        """Whether or not its connection still lives. The command, too, sees the end of its input."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self._channel.close()

    kill = close


class _Transport:
    """An SSH transport that is logged in, through its jump hosts; `paramiko` carries the channels."""

    def __init__(self, login: Login, keyring: Keyring) -> None:
        """Raises Unreachable."""
        self._login = login
        self._below = contextlib.ExitStack()
        self._proxy: _ProxyCommand | None = None
        try:
            entries = known_hosts.known(login)
            self.paramiko = self._negotiated(keyring, entries)
            known_hosts.check(login, self.paramiko.get_remote_server_key(), entries)
            _authenticate(self.paramiko, login, keyring)
            self.paramiko.set_keepalive(KEEPALIVE_S)
            if login.jump is not None or self._proxy is not None:
                # The kernel watches only the connection to the first stop. The host beyond it must answer.
                threading.Thread(target=self._listen, name="ssh-alive", daemon=True).start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._below.close()

    def loss(self) -> str:
        """Words on why it is lost; empty while it lives. Its channels end a moment before it does."""
        self.paramiko.join(0.5)
        if self.paramiko.is_active():
            return ""
        error = self.paramiko.get_exception()
        return f"the connection is lost{f' ({error})' if error is not None and str(error) else ''}"

    def _negotiated(self, keyring: Keyring, entries: list[known_hosts.Entry]) -> paramiko.Transport:
        """A transport that is encrypted; the host's key is not checked yet."""
        login = self._login
        # For a server of our own in a namespace, a program that leads into it has to start first.
        patience_s = CONNECT_TIMEOUT_S + (STARTING_S if login.host_key and login.proxy_command else 0.0)
        try:
            transport = paramiko.Transport(self._stream(keyring))
            self._below.callback(_end, transport)
            options = transport.get_security_options()
            options.key_types = known_hosts.kinds(entries, list(options.key_types))
            transport.banner_timeout = patience_s
            transport.auth_timeout = AUTH_TIMEOUT_S
            transport.start_client(timeout=2 * patience_s)  # a banner that is late has words of its own
            if not transport.initial_kex_done:
                raise TimeoutError
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise Unreachable(f"{login}: {self._words(error)}") from error
        return transport

    def _stream(self, keyring: Keyring) -> socket.socket | paramiko.Channel:
        login = self._login
        patience_s = STARTING_S if login.host_key else REFUSED_S
        if login.jump is not None:
            try:
                jump = _Transport(login.jump, keyring)
            except Unreachable as error:
                raise Unreachable(f"{login}: its jump host {error}") from error
            self._below.callback(jump.close)
            kind, there, here = "direct-tcpip", (login.address, login.port), ("127.0.0.1", 0)
            return _patiently(
                lambda timeout_s: jump.paramiko.open_channel(kind, there, here, timeout=timeout_s), patience_s
            )
        if login.proxy_command:
            self._proxy = _ProxyCommand(login.proxy_command)
            self._below.callback(self._proxy.close)
            return self._proxy.socket
        stream = _patiently(lambda timeout_s: _connected(login.address, login.port, timeout_s), patience_s)
        self._below.callback(stream.close)
        return stream

    def _listen(self) -> None:
        while self.paramiko.is_active():
            # Twice as patient: the answer waits its turn behind what is being sent.
            overdue = threading.Timer(2 * SILENCE_S, self.paramiko.close)
            overdue.daemon = True
            overdue.start()
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                self.paramiko.global_request("keepalive@openssh.com", wait=True)
            overdue.cancel()
            self.paramiko.join(KEEPALIVE_S)

    def _words(self, error: Exception) -> str:
        """Why there is no connection, and what to do."""
        login = self._login
        if self._proxy is not None and (words := self._proxy.failure()):
            return f"its ProxyCommand failed: {words}"
        if isinstance(error, paramiko.ChannelException) and login.jump is not None:
            return f"{login.jump} does not get to port {login.port} of it: {error.text or error.code}"
        for kind, words in (
            (socket.gaierror, f"no host of the name {login.address} is known: check it, or give its address"),
            (ConnectionRefusedError, f"refuses connections on port {login.port}: is its SSH server running?"),
            (TimeoutError, f"does not answer on port {login.port}: is it switched on, and in this network?"),
            (IncompatiblePeer, f"speaks another SSH than we do: {error}"),
        ):
            if isinstance(error, kind):
                return words
        if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
            return f"there is no way to it ({error.strerror}): is it switched on, and in this network?"
        if "banner" in str(error).lower() or "protocol version" in str(error):
            return f"what answers on port {login.port} is no SSH server, or is too busy to say so"
        return str(error) or "the connection was closed"


def _authenticate(transport: paramiko.Transport, login: Login, keyring: Keyring) -> None:
    """Log in with the first key that the server takes. Raises Unreachable."""
    tried = []
    try:
        with closing(keyring.offers(login)) as offers:
            for key, named in offers:
                tried.append(named)
                if _is_taken(transport, login, key, tried):
                    return
    except NoKey as error:
        raise NotAdmitted(f"{login}: {error}") from error
    make = "" if tried else "make one (ssh-keygen -t ed25519), then "
    over = f"ssh-copy-id {login.ssh or f'{login.user}@{login.address}'}, or {COMMAND} hosts add"
    reason = f"takes none of these keys: {', '.join(tried)}" if tried else "no key to log in with"
    raise NotAdmitted(f"{login}: {reason}: {make}put your key over: {over}")


def _is_taken(transport: paramiko.Transport, login: Login, key: paramiko.PKey, tried: list[str]) -> bool:
    try:
        more = transport.auth_publickey(login.user, key)
    except paramiko.BadAuthenticationType as error:
        raise Unreachable(f"{login}: takes no keys: PubkeyAuthentication must be on there") from error
    except (OSError, EOFError, paramiko.SSHException) as error:
        if transport.is_active():
            return False
        if not isinstance(error, paramiko.AuthenticationException):
            raise Unreachable(f"{login}: {tried[-1]} could not be used: {error or 'no answer'}") from error
        raise NotAdmitted(
            f"{login}: closed the connection at key {len(tried)}: where that is too many for it, name the right one "
            f"(key: in the testbed file, or IdentityFile with IdentitiesOnly yes in ~/.ssh/config)"
        ) from error
    if more:
        wanted = " or ".join(more)
        raise Unreachable(f"{login}: wants {wanted} besides a key, which is not for unattended runs")
    return True


def _end(transport: paramiko.Transport) -> None:
    transport.close()
    if transport.is_alive() and transport is not threading.current_thread():
        transport.join(1.0)  # what it reads from is closed next


def _patiently(connect: Callable[[float], _Stream], patience_s: float) -> _Stream:
    """The stream that `connect` returns; it is called again while the server, which may just be starting, refuses."""
    begun_s = time.monotonic()
    while True:
        spent_s = time.monotonic() - begun_s
        try:
            return connect(max(CONNECT_TIMEOUT_S - spent_s, 0.1))
        except paramiko.ChannelException as error:
            if error.code != paramiko.common.OPEN_FAILED_CONNECT_FAILED or spent_s > patience_s:
                raise
        except OSError as error:
            if error.errno not in (errno.ECONNREFUSED, errno.EHOSTUNREACH) or spent_s > patience_s:
                raise
        time.sleep(0.05)


def _connected(address: str, port: int, timeout_s: float) -> socket.socket:
    """A TCP connection to the first address of a name that answers; each has its share of the time. Raises OSError."""
    count = len(socket.getaddrinfo(address, port, type=socket.SOCK_STREAM))
    stream = socket.create_connection((address, port), timeout_s / count)
    # Without these a host whose power was cut is noticed after a quarter of an hour.
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SILENCE_S * 1000))
    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL):
        stream.setsockopt(socket.IPPROTO_TCP, option, KEEPALIVE_S)
    return stream


class _ProxyCommand(ChildProcess):
    """A command whose stdin and stdout are the connection, on a socket: paramiko's own spins at its end."""

    def __init__(self, command: str) -> None:
        self.socket, theirs = socket.socketpair()
        errors = tempfile.TemporaryFile()  # noqa: SIM115  (as long as the command)
        with theirs:
            argv = ["/bin/sh", "-c", f"exec {command}"]
            super().__init__(argv, errors=errors, ends=theirs.fileno(), start_new_session=True)

    def failure(self) -> str:
        """Why it ended, where it did; waits a moment, for its end of file comes first."""
        status = self.wait(0.5)
        return "" if status is None else Outcome(status, "", self.last_words()).words

    def close(self) -> None:
        self.socket.close()
        if self.wait(1.0) is None:
            self.kill()
