"""An encrypted connection between `serve` and a driver, and what they say to each other on it.

Both have a token, 64 hexadecimal digits in a file that only its owner can read. It is never sent: the driver proves it
(`handshake`), and then each end the key that follows from it (`aes_gcm`). The first line says what a connection is for:
it leads the driver's stay (`Begin`), or it carries a program's input and output (`Start`) or a file (`Put`).
"""

from __future__ import annotations

import contextlib
import hmac
import os
import re
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pareto.backends import handshake
from pareto.backends.aes_gcm import AesGcm
from pareto.backends.base import BackendError
from pareto.backends.handshake import ALONE
from pareto.backends.sealed import Sealed, Tampered
from pareto.errors import UserError
from pareto.hosts.connection import Unreachable
from pareto.messages import Count, Request
from pareto.plain_files import StoreError, content, refuse_shared
from pareto.validation import Bounds, Text

PORT = 7410
MOST_LINE_BYTES = 1 << 20
"""Of what is said on these connections themselves."""
_TOKEN = re.compile(r"[0-9a-f]{64}")
_BLOCK_BYTES = 256 << 10
_TICK_S = 0.2

FILE_NAME = re.compile(r"([0-9a-f]{64})\.(safetensors|py)")
"""A file is named by the SHA-256 of its content."""
Name = Annotated[str, Text(FILE_NAME.pattern, "name of a file")]
MOST_NAMES = 10_000
Stay = Annotated[str, Text("[0-9a-f]{32}", "name of a stay")]


@dataclass
class Terms:
    """What the driver may use, and where.

    stay: says whose a later connection is. interface: has the address on which `serve` listens. rpc: whether that may
    be measured.
    """

    stay: Stay
    hostname: str
    interface: str
    folder: str
    python: str
    device: str
    threads: Annotated[int, Bounds(1, 256)]
    rpc: bool


@dataclass
class Begin(Request[Terms], op="begin"):
    """A driver comes, whose code that travels has this digest."""

    code: str
    version: str


@dataclass
class Lacking(Request[list[str]], op="lacking"):
    """Which of these files are not there."""

    names: Annotated[list[Name], Bounds(0, MOST_NAMES)]


@dataclass
class LastWords(Request[str], op="last_words"):
    """What a program said on stderr before it ended. program: as `Start` reports it."""

    program: Count


@dataclass
class Start(Request[Count], op="start"):
    """Start a program. From its report on, the connection is the program's stdin and stdout."""

    stay: Stay
    module: str
    arguments: Annotated[list[str], Bounds(0, 20)]


@dataclass
class Put(Request[None], op="put"):
    """A file comes: from the report on its bytes, and then `Stored`."""

    stay: Stay
    name: Name
    size: Count


@dataclass
class Stored(Request[None], op="stored"):
    """Reported once the file is whole, and on disk."""


def new_token(path: Path) -> bool:
    """Write a new token into a file that is not there yet; returns whether it did. Raises UserError."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return False
    except OSError as error:
        raise UserError(f"--token-file {path}: {error.strerror}") from None
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(32) + "\n")
    return True


def token(path: Path) -> str:
    """The token in a file. Raises UserError, also where others than its owner may read it."""
    try:
        path.stat()
    except OSError as error:
        raise UserError(
            f"--token-file {path}: {error.strerror}: copy the file there that serve has written"
        ) from None
    refuse_shared(path, f"--token-file {path}")
    try:
        text = content(path, 1000).decode(errors="replace").strip()
    except StoreError as error:
        raise UserError(f"--token-file: {error}") from None
    if not _TOKEN.fullmatch(text):
        raise UserError(f"--token-file {path}: a token is 64 hexadecimal digits, as serve writes them")
    return text


def proof(token: str) -> str:
    """What the connecting end proves that it knows."""
    return _derived(token, b"pareto serve door").hex()


def seal(token: str) -> AesGcm:
    """What encrypts the connections."""
    return AesGcm(_derived(token, b"pareto serve key"))


def _derived(token: str, purpose: bytes) -> bytes:
    return hmac.digest(bytes.fromhex(token), purpose, "sha256")


class Channel:
    """An encrypted connection: a `session.Wire`. One thread may send while another receives."""

    def __init__(self, sealed: Sealed) -> None:
        self._sealed = sealed
        self._room = memoryview(bytearray(_BLOCK_BYTES))
        self._rest = b""
        self._closed = False
        self.address: str = sealed.beneath.getsockname()[0]
        self.peer: str = sealed.beneath.getpeername()[0]
        """This end's address, and the other's."""
        self.words: Callable[[], str] = str
        """What the program at the other end said before it ended."""
        sealed.beneath.settimeout(_TICK_S)

    def send(self, data: bytes) -> None:
        """Send all of it. Raises OSError."""
        view = memoryview(data)
        while view:
            # The same bytes come again after a pause: they are encrypted already.
            with contextlib.suppress(TimeoutError):
                view = view[self._sealed.sendmsg([view]) :]
            if self._closed:
                raise BrokenPipeError("the connection is closed")

    def receive(self, timeout_s: float | None = None, most: int = _BLOCK_BYTES) -> bytes:
        """Some bytes; empty at the end. Raises TimeoutError, OSError."""
        if self._rest:
            data, self._rest = self._rest[:most], self._rest[most:]
            return data
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            try:
                return bytes(self._room[: self._sealed.recv_into(self._room, most)])
            except TimeoutError:
                if self._closed:
                    return b""
                if deadline is not None and time.monotonic() > deadline:
                    raise TimeoutError("nothing came in time") from None

    def line(self, timeout_s: float) -> bytes:
        """The next line, which must be there by then; empty at the end. Raises TimeoutError, OSError."""
        deadline = time.monotonic() + timeout_s
        data = b""
        while b"\n" not in data:
            if len(data) > MOST_LINE_BYTES:
                raise Tampered("a line that is too long")
            part = self.receive(max(0.0, deadline - time.monotonic()))
            if not part:
                return b""
            data += part
        line, _, self._rest = data.partition(b"\n")
        return line

    def last_words(self) -> str:
        return self.words()

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._sealed.shutdown(socket.SHUT_RDWR)  # wakes a thread that receives
        self._sealed.close()


def opened(address: str, port: int, token: str) -> Channel:
    """A connection to `serve`, both ends of which have proven that they have the token. Raises Unreachable."""
    try:
        sock = handshake.connected(address, port, proof(token))
        try:
            return Channel(seal(token).sealed(sock, ALONE, server=False))
        except BaseException:
            sock.close()
            raise
    except handshake.Rejected as error:
        raise Unreachable(f"{address}:{port}: {error}") from None
    except ConnectionRefusedError:
        raise Unreachable(f"{address}:{port}: nothing listens there: start serve on that machine") from None
    except (OSError, EOFError, BackendError) as error:
        raise Unreachable(f"{address}:{port}: {getattr(error, 'strerror', None) or error}") from None
