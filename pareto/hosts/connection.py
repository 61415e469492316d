"""A connection to an SSH server: the stream to it, its host key checked, ourselves proven to it."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import TypeVar

import paramiko
from paramiko.ssh_exception import IncompatiblePeer

from pareto.hosts import known_hosts
from pareto.hosts.keys import Keyring, NoKey, Offer
from pareto.hosts.login import Login
from pareto.hosts.way import Unreachable

CONNECT_TIMEOUT_S = 10.0
"""From the first packet until the host key is seen; finding the address of a name takes what the name service takes."""
AUTH_TIMEOUT_S = 30.0
"""One key; it may have to be touched, or allowed in a dialogue of the agent."""
REFUSED_S = 3.0
"""How long a port that refuses is tried again."""
STARTING_S = 10.0
"""The same where the server is one that we started ourselves, a moment ago."""
KEEPALIVE_S = 5
SILENCE_S = 20.0
"""A peer that acknowledges nothing for so long is gone: its power was cut, or a cable pulled. Behind a
jump host or a ProxyCommand, twice as long."""

Proof = Callable[[paramiko.Transport, Login], None]
"""Shows a server who we are. Raises Unreachable."""

_Stream = TypeVar("_Stream", socket.socket, paramiko.Channel)

logging.getLogger("paramiko").addHandler(logging.NullHandler())  # its tracebacks; what matters is raised


class Connection:
    """`transport` carries the channels. Made at once, through the jump hosts; raises Unreachable."""

    def __init__(self, login: Login, keyring: Keyring, prove: Proof | None) -> None:
        """Without `prove`, only as far as the host's key, which is not checked."""
        self._login = login
        self._below = contextlib.ExitStack()
        self._proxy: _ProxyCommand | None = None
        try:
            entries = known_hosts.known(login)
            self.transport = self._shaken(keyring, entries)
            if prove is not None:
                known_hosts.check(login, self.transport.get_remote_server_key(), entries)
                prove(self.transport, login)
                self._keep_alive()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._below.close()

    def loss(self) -> str:
        """That it is lost, and why; empty where it lives. Its channels hear of the end a moment before it does."""
        self.transport.join(0.5)
        if self.transport.is_active():
            return ""
        error = self.transport.get_exception()
        return f"the connection is lost{f' ({error})' if error is not None and str(error) else ''}"

    def _shaken(self, keyring: Keyring, entries: list[known_hosts.Entry]) -> paramiko.Transport:
        login = self._login
        jump = self._jump(keyring)
        # A server of our own in a namespace of its own: on a busy machine the way there has to start first, too.
        patience_s = CONNECT_TIMEOUT_S + (STARTING_S if login.host_key and login.proxy_command else 0.0)
        deadline = time.monotonic() + patience_s
        try:
            transport = paramiko.Transport(self._stream(jump))
            self._below.callback(_end, transport)
            options = transport.get_security_options()
            options.key_types = known_hosts.kinds(entries, list(options.key_types))
            transport.banner_timeout = patience_s
            transport.auth_timeout = AUTH_TIMEOUT_S
            transport.start_client(timeout=max(deadline - time.monotonic(), 1.0))
            if not transport.initial_kex_done:
                raise TimeoutError
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise Unreachable(f"{login}: {self._words(error)}") from error
        return transport

    def _jump(self, keyring: Keyring) -> Connection | None:
        if self._login.jump is None:
            return None
        try:
            jump = Connection(self._login.jump, keyring, with_keys(keyring))
        except Unreachable as error:
            raise Unreachable(f"{self._login}: its jump host {error}") from error
        self._below.callback(jump.close)
        return jump

    def _stream(self, jump: Connection | None) -> socket.socket | paramiko.Channel:
        login = self._login
        patience_s = STARTING_S if login.host_key else REFUSED_S
        if jump is not None:
            way, there, here = jump.transport, (login.address, login.port), ("127.0.0.1", 0)
            return _patiently(
                lambda timeout_s: way.open_channel("direct-tcpip", there, here, timeout=timeout_s), patience_s
            )
        if login.proxy_command:
            self._proxy = _ProxyCommand(login.proxy_command)
            self._below.callback(self._proxy.close)
            return self._proxy.socket
        stream = _patiently(lambda timeout_s: _connected(login.address, login.port, timeout_s), patience_s)
        self._below.callback(stream.close)
        return stream

    def _keep_alive(self) -> None:
        self.transport.set_keepalive(KEEPALIVE_S)
        if self._login.jump is not None or self._proxy is not None:
            # The kernel knows only the way to the first stop. Who lives beyond it must answer.
            threading.Thread(target=self._listen, name="ssh-alive", daemon=True).start()

    def _listen(self) -> None:
        transport = self.transport
        while transport.is_active():
            # Twice as patient: the answer waits its turn behind what is being sent.
            overdue = threading.Timer(2 * SILENCE_S, transport.close)
            overdue.daemon = True
            overdue.start()
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
                transport.global_request("keepalive@openssh.com", wait=True)
            overdue.cancel()
            transport.join(KEEPALIVE_S)

    def _words(self, error: Exception) -> str:
        """Why there is no connection, and what to do."""
        login = self._login
        if self._proxy is not None and (words := self._proxy.failure()):
            return f"its ProxyCommand failed: {words}"
        if isinstance(error, paramiko.ChannelException) and login.jump is not None:
            return f"{login.jump} does not get to port {login.port} of it: {error.text or error.code}"
        if isinstance(error, socket.gaierror):
            return f"no host of the name {login.address} is known: check it, or give its address"
        if isinstance(error, ConnectionRefusedError):
            return f"refuses connections on port {login.port}: is its SSH server running?"
        if isinstance(error, TimeoutError):
            return f"does not answer on port {login.port}: is it switched on, and in this network?"
        if isinstance(error, IncompatiblePeer):
            return f"speaks another SSH than we do: {error}"
        if isinstance(error, OSError) and error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH):
            return (
                f"there is no way to it ({os.strerror(error.errno)}): is it switched on, and in this network?"
            )
        if "banner" in str(error).lower() or "protocol version" in str(error):
            return f"what answers on port {login.port} is no SSH server, or is too busy to say so"
        return str(error) or "the connection was closed"


def with_keys(keyring: Keyring) -> Proof:
    """A proof by the first key that the server takes."""

    def prove(transport: paramiko.Transport, login: Login) -> None:
        tried = []
        try:
            with closing(keyring.offers(login)) as offers:
                for offer in offers:
                    tried.append(offer.words)
                    if _is_taken(transport, login, offer, len(tried)):
                        return
        except NoKey as error:
            raise Unreachable(f"{login}: {error}") from error
        make = "" if tried else "make one (ssh-keygen -t ed25519), then "
        over = f"ssh-copy-id {login.ssh or f'{login.user}@{login.address}'}, or ./pareto.sh hosts add"
        reason = f"takes none of these keys: {', '.join(tried)}" if tried else "no key to log in with"
        raise Unreachable(f"{login}: {reason}: {make}put your key over: {over}")

    return prove


def with_password(password: str) -> Proof:
    """A proof by a password, as such or as the answer to what the server asks."""

    def prove(transport: paramiko.Transport, login: Login) -> None:
        try:
            try:
                more = transport.auth_password(login.user, password, fallback=False)
            except paramiko.BadAuthenticationType as refused:
                if "keyboard-interactive" not in refused.allowed_types:
                    raise
                more = transport.auth_interactive(login.user, lambda _, __, asked: [password] * len(asked))
        except paramiko.BadAuthenticationType as error:
            raise Unreachable(f"{login}: takes no passwords: put your key over another way") from error
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise Unreachable(f"{login}: does not take this password for {login.user}") from error
        if more:
            raise Unreachable(f"{login}: wants more than the password: put your key over another way")

    return prove


def _is_taken(transport: paramiko.Transport, login: Login, offer: Offer, count: int) -> bool:
    try:
        more = transport.auth_publickey(login.user, offer.key)
    except paramiko.BadAuthenticationType as error:
        raise Unreachable(f"{login}: takes no keys: PubkeyAuthentication must be on there") from error
    except (OSError, EOFError, paramiko.SSHException) as error:
        if transport.is_active():
            return False
        if not isinstance(error, paramiko.AuthenticationException):
            raise Unreachable(f"{login}: {offer.words} could not be used: {error or 'no answer'}") from error
        raise Unreachable(
            f"{login}: closed the connection at key {count}: where that is too many for it, name the right one "
            f"(key: in the testbed file, or IdentityFile with IdentitiesOnly yes in ~/.ssh/config)"
        ) from error
    if more:
        raise Unreachable(
            f"{login}: wants {' or '.join(more)} besides a key, which is not for unattended runs"
        )
    return True


def _end(transport: paramiko.Transport) -> None:
    transport.close()
    if transport.is_alive() and transport is not threading.current_thread():
        transport.join(1.0)  # what it reads from is closed next


def _patiently(connect: Callable[[float], _Stream], patience_s: float) -> _Stream:
    """Try again where it is refused: a server that was started a moment ago may need another."""
    begun = time.monotonic()
    while True:
        spent_s = time.monotonic() - begun
        try:
            return connect(max(CONNECT_TIMEOUT_S - spent_s, 0.1))
        except (OSError, paramiko.ChannelException) as error:
            if not _may_pass(error) or spent_s > patience_s:
                raise
        time.sleep(0.05)


def _may_pass(error: OSError | paramiko.ChannelException) -> bool:
    if isinstance(error, paramiko.ChannelException):
        return error.code == paramiko.common.OPEN_FAILED_CONNECT_FAILED
    return error.errno in (errno.ECONNREFUSED, errno.EHOSTUNREACH)


def _connected(address: str, port: int, timeout_s: float) -> socket.socket:
    """Raises OSError."""
    deadline = time.monotonic() + timeout_s
    faults: list[OSError] = []
    found = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)
    for index, (family, kind, protocol, _, there) in enumerate(found):
        stream = socket.socket(family, kind, protocol)
        try:
            stream.settimeout(max((deadline - time.monotonic()) / (len(found) - index), 0.1))
            # Without these a host whose power was cut is noticed after a quarter of an hour.
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SILENCE_S * 1000))
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S)
            stream.connect(there)
            return stream
        except OSError as error:
            stream.close()
            faults.append(error)
    raise faults[0]


class _ProxyCommand:
    """A command whose stdin and stdout are the connection, on a socket: paramiko's own spins at its end."""

    def __init__(self, command: str) -> None:
        self.socket, theirs = socket.socketpair()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed in `close`)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603  (the user's own configuration says it)
                ["/bin/sh", "-c", f"exec {command}"],
                stdin=theirs.fileno(),
                stdout=theirs.fileno(),
                stderr=self._errors,
                start_new_session=True,
            )

    def failure(self) -> str:
        """Why it ended, where it did; waits a moment, for its end of file comes first."""
        try:
            status = self._process.wait(0.5)
        except subprocess.TimeoutExpired:
            return ""
        self._errors.seek(0)
        words = self._errors.read().decode(errors="replace").strip().splitlines()
        return words[-1].strip() if words else f"exit status {status}"

    def close(self) -> None:
        self.socket.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._errors.close()
