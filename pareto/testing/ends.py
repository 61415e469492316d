"""The two ends of a backend, each a process of its own over loopback: the near end runs a check, the far one serves."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from tempfile import NamedTemporaryFile
from typing import Any

import torch

from pareto.protocol.errors import BackendError, UserError
from pareto.protocol.messages import JoinAgents, Keys
from pareto.remote.backends import base, registry
from pareto.remote.backends.base import Client, Layout, Tensors, layout
from pareto.remote.backends.tls import Tls
from pareto.trial.run_keys import run_keys

MOST_S = 60.0
"""A check that takes longer hangs."""
HERE, INTERFACE, TOKEN, ROLES = "127.0.0.1", "lo", "a run's token", ["near", "far"]
TOOK_S = 0.125
"""Seconds that each stage says it took."""
_FORKED = multiprocessing.get_context("forkserver")
_FORKED.set_forkserver_preload([__name__])


class Fault(Exception):
    """A backend's fault, in words."""


class Stage:
    """A stage that does what its kind says."""

    def __init__(self, kind: str, takes: Layout, name: bytes) -> None:
        self.fingerprint, self.takes, self._kind = name, takes, kind

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        if self._kind == "fails":
            raise ValueError("no such layer")
        if self._kind == "slow":
            time.sleep(0.05)
        if self._kind == "sums":
            return (torch.stack([each.double().sum() for each in tensors]),), TOOK_S
        if self._kind == "lies":
            return (torch.zeros(7, dtype=torch.int16),), TOOK_S
        return tuple(each.clone() for each in tensors), TOOK_S


class Pair:
    """A client of the backend, and the far end, which serves what it is told. pid: of the far end."""

    def __init__(self, backend: str, keys: Keys, far: Connection) -> None:
        self.name, self._far, self._seal = _loaded(backend), far, Tls.of(keys)
        self._stages = itertools.count()
        self.pid, self._port, rendezvous = far.recv()
        self.client: Client
        if self.name.agent:
            joined = base.backend(self.name.name).join(_meeting(self.name, "near", rendezvous), None)
            assert joined is not None  # noqa: S101
            self.client = joined
        else:
            self.client = self.connected(TOKEN)

    def connected(self, token: str) -> Client:
        """One more client. Raises BackendError."""
        to_seal = (self._seal,) if self.name.seal else ()
        return base.backend(self.name.name).connect(HERE, self._port, token, self.name.variant, *to_seal)

    def serve(self, takes: Tensors, kind: str = "", gives: Tensors | None = None) -> bytes:
        """The name of a new stage: the far end serves it, for such tensors, and the client expects what it gives, the
        same by default."""
        name = b"stage%03d" % next(self._stages)
        self._far.send((kind, layout(takes), name))
        self._far.recv()
        self.client.open(name, layout(takes if gives is None else gives))
        return name

    def asked(self, number: int, tensors: Tensors) -> Tensors:
        """The reply to one request, alone. Raises BackendError; Fault for another request's."""
        self.client.send(number, tensors)
        return self.reply(number).tensors

    def reply(self, number: int) -> base.Reply:
        got = self.client.receive()
        if got.request_id != number:
            raise Fault(f"the reply to request {got.request_id} came in place of {number}")
        return got


def _loaded(text: str) -> registry.BackendName:
    """A backend's name, once this process has it. Raises ValueError, UserError."""
    warnings.filterwarnings("ignore", "You are using a Backend")  # torch's, of its own rendezvous
    if own := registry.OWN.own(text):
        base.load_own([own])
    return registry.parse(text)


def _meeting(name: registry.BackendName, role: str, port: int) -> JoinAgents:
    return JoinAgents(name.transport, role, ROLES, HERE, port, INTERFACE)


def _begin(log: str) -> None:
    """Begin a process, whose libraries write into a file: connections that end are their daily news."""
    torch.set_num_threads(1)
    os.dup2(os.open(log, os.O_WRONLY | os.O_APPEND), 2)


def _far(pipe: Connection, log: str, text: str, keys: Keys) -> None:
    _begin(log)
    name = _loaded(text)
    server = base.servers(HERE, TOKEN, keys, [text])[name.server]
    listener = socket.create_server((HERE, 0))
    pipe.send((os.getpid(), server.port, listener.getsockname()[1]))
    if name.agent:
        base.backend(name.name).join(_meeting(name, "far", 0), listener)
    while True:
        try:
            kind, takes, stage = pipe.recv()
        except EOFError:
            os._exit(0)  # whatever a library still does
        server.serve(Stage(kind, takes, stage))
        pipe.send(None)


def _near(
    pipe: Connection, log: str, far: Connection, text: str, keys: Keys, check: Callable[[Pair], None]
) -> None:
    _begin(log)
    try:
        check(Pair(text, keys, far))
        pipe.send("")
    except Fault as fault:
        pipe.send(str(fault))
    except (BackendError, UserError) as fault:
        pipe.send(f"it is refused: {fault}")
    except BaseException as fault:
        pipe.send(f"{type(fault).__name__}: {fault}")
    os._exit(0)


def verdict(backend: str, check: Callable[[Pair], None]) -> str:
    """A backend's fault by a check, in words, with what its processes wrote last; empty where there is none."""
    keys = run_keys([backend])
    near, ours = _FORKED.Pipe()
    there, here = _FORKED.Pipe()
    with (
        NamedTemporaryFile() as log,
        _process(_far, there, log.name, backend, keys),
        _process(_near, ours, log.name, here, backend, keys, check),
    ):
        for end in (ours, here, there):
            end.close()
        try:
            fault = near.recv() if near.poll(MOST_S) else f"it hangs: nothing came of it in {MOST_S:g} s"
        except EOFError:
            fault = "the process that it runs in ends"
        return "\n".join([fault, *log.read().decode(errors="replace").splitlines()[-3:]]) if fault else ""


@contextmanager
def _process(target: Callable[..., None], *arguments: Any) -> Iterator[None]:
    process = _FORKED.Process(target=target, args=arguments, daemon=True)
    process.start()
    try:
        yield
    finally:
        with suppress(ProcessLookupError):  # it may have ended by itself
            process.kill()
        process.join()
