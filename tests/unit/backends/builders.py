"""What the tests of what crosses a link share: stages, clients, seals, a proxy, and the words of a refusal."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import astuple
from functools import cache
from typing import Any

import pytest
import torch

from pareto.protocol.errors import BackendError
from pareto.protocol.messages import Keys
from pareto.remote.backends import wire
from pareto.remote.backends.base import Layout, Tensors, fingerprint
from pareto.remote.backends.tcp import TcpClient, TcpServer
from pareto.remote.backends.tls import Tls, TlsSocket
from pareto.trial.run_keys import run_keys

HERE = "127.0.0.1"
TOKEN = "a token"  # noqa: S105
TOOK_S = 0.125
NAME = fingerprint("weights", "graph", (3,), 1, 1)
Work = Callable[[Tensors], Tensors]


def refusal(
    call: Callable[..., object], *arguments: Any, by: type[Exception] = BackendError, **named: Any
) -> str:
    """The words with which it is refused."""
    with pytest.raises(by) as refused:
        call(*arguments, **named)
    return str(refused.value)


def requests_for(name: bytes, form: wire.Form) -> wire.Likeness:
    return wire.Likeness(wire.Kind.REQUEST, form, name)


def reply(form: wire.Form, number: int, stages_s: tuple[float, ...], serialize_s: float) -> bytes:
    """The bytes of a reply up to its body."""
    return wire.Likeness(wire.Kind.REPLY, form).told(number, stages_s, serialize_s)


def each(work: Callable[[torch.Tensor], torch.Tensor]) -> Work:
    return lambda tensors: tuple(map(work, tensors))


doubled = each(lambda x: 2 * x)
cloned = each(torch.clone)


class Works:
    """A stage that does what it is told, and says that it took so long."""

    def __init__(self, takes: Layout, work: Work, seconds: float = TOOK_S, fingerprint: bytes = NAME) -> None:
        self.takes, self.fingerprint = takes, fingerprint
        self.ran = 0
        self._work, self._seconds = work, seconds

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        self.ran += 1
        return self._work(tensors), self._seconds


def opened(server: TcpServer, stage: Works, gives: Layout, connections: int = 1) -> TcpClient:
    """A client of that stage."""
    server.serve(stage)
    client = TcpClient(HERE, server.port, TOKEN, str(connections))
    client.open(stage.fingerprint, gives)
    return client


@cache
def keys() -> Keys:
    """One run's."""
    return run_keys(["tcp:tls"])


@cache
def seal() -> Tls:
    return Tls(*astuple(keys()))


def other_seal() -> Tls:
    """The seal of another run."""
    return Tls(*astuple(run_keys(["tcp:tls"])))


def connected() -> tuple[socket.socket, socket.socket]:
    """Both ends of a connection: the client's, and the server's."""
    with socket.create_server((HERE, 0)) as listener:
        return socket.create_connection(listener.getsockname()), listener.accept()[0]


@contextmanager
def ends() -> Iterator[tuple[TlsSocket, TlsSocket]]:
    """Both ends of an encrypted connection: the client's, and the server's."""
    client, server = connected()
    with client, server, ThreadPoolExecutor(1) as pool:
        shaking = pool.submit(seal().sealed, server, server=True)
        try:
            made = seal().sealed(client, server=False)
        finally:
            shaking.exception()
        yield made, shaking.result()


Change = Callable[[bytes, int], bytes]
"""What becomes of data that crosses a proxy; the number is how many bytes crossed before."""


class Proxy:
    """Passes on what crosses each connection to a port, changed on the way to it, and on the way back."""

    def __init__(self, port: int, out: Change | None = None, back: Change | None = None) -> None:
        self._to = port
        self._changes = out, back
        self._listener = socket.create_server((HERE, 0))
        self.port: int = self._listener.getsockname()[1]
        self._socks: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for sock in self._socks:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near = self._listener.accept()[0]
                far = socket.create_connection((HERE, self._to))
                self._socks += near, far
                for source, target, change in ((near, far, self._changes[0]), (far, near, self._changes[1])):
                    threading.Thread(target=_pass, args=(source, target, change), daemon=True).start()


def _pass(source: socket.socket, target: socket.socket, change: Change | None) -> None:
    passed = 0
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data if change is None else change(data, passed))
            passed += len(data)
        target.shutdown(socket.SHUT_WR)
