"""Transports that are broken, each in one way, and one that is not: `pareto.testing` must tell them apart."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from pareto.protocol.errors import BackendError
from pareto.remote.backends.base import Layout, Reply, Stage, Tensors, bytes_of
from pareto.remote.backends.parts import PartLine, PartTransport


class Plain(PartLine):
    def give(self, parts: Sequence[memoryview]) -> None:
        self.sock.sendall(b"".join(parts))

    def take(self, view: memoryview) -> None:
        while view:
            came = self.sock.recv_into(view)
            if not came:
                raise EOFError
            view = view[came:]


class Whole(PartTransport):
    """It is not broken. Those that are wrap its client, or the stages of its server."""

    line = Plain

    def connect(self, *to: Any) -> Any:
        client = super().connect(*to)
        for name in ("open", "send", "receive"):
            if name in vars(type(self)):
                # Bound to this transport, it gets what it stands in for.
                setattr(client, name, _Instead(getattr(self, name), getattr(client, name)))
        return client

    def serve(self, *at: Any) -> Any:
        server = super().serve(*at)
        if "run" in vars(type(self)):
            serve = server.serve
            server.serve = lambda stage, onward=None: serve(_Staged(stage, self), onward)
        return server


class _Instead:
    def __init__(self, broken: Any, right: Any) -> None:
        self._broken, self._right = broken, right

    def __call__(self, *arguments: Any) -> Any:
        return self._broken(self._right, *arguments)


class _Staged:
    def __init__(self, stage: Stage, transport: Any) -> None:
        self.fingerprint, self.takes, self._stage, self._transport = (
            stage.fingerprint,
            stage.takes,
            stage,
            transport,
        )

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        result: tuple[Tensors, float] = self._transport.run(self._stage.run, tensors)
        return result


class Swaps(Whole):
    """The later one of two replies comes first."""

    sent = received = 0
    held: Reply | None = None

    def send(self, right: Any, number: int, tensors: Tensors) -> float:
        self.sent += 1
        return float(right(number, tensors))

    def receive(self, right: Any) -> Reply:
        self.received += 1
        if self.held is not None:
            held, self.held = self.held, None
            return held
        first: Reply = right()
        if self.sent > self.received:
            self.held, first = first, right()
        return first


class Overwrites(Whole):
    """Every reply has the same memory."""

    kept: Tensors = ()

    def receive(self, right: Any) -> Reply:
        reply: Reply = right()
        if [each.shape for each in self.kept] != [each.shape for each in reply.tensors]:
            self.kept = tuple(each.clone() for each in reply.tensors)
        for old, new in zip(self.kept, reply.tensors, strict=True):
            old.copy_(new)
        return reply._replace(tensors=self.kept)


class CutsOff(Whole):
    """All behind the first 2^20 bytes is zero."""

    def send(self, right: Any, number: int, tensors: Tensors) -> float:
        cut = tuple(each.clone() for each in tensors)
        for each in cut:
            each.reshape(-1).view(torch.uint8)[1 << 20 :] = 0
        return float(right(number, cut))


class Halves(Whole):
    """Numbers lose half of their bits."""

    def send(self, right: Any, number: int, tensors: Tensors) -> float:
        return float(right(number, tuple(each.half().to(each.dtype) for each in tensors)))


class Narrows(Whole):
    """It takes what has 8 bytes for what has 4."""

    def run(self, right: Any, tensors: Tensors) -> tuple[Tensors, float]:
        outputs, seconds = right(tensors)
        return tuple(each.float() if each.dtype is torch.float64 else each for each in outputs), seconds


class Flattens(Whole):
    """A reply's tensors have one dimension."""

    def receive(self, right: Any) -> Reply:
        reply: Reply = right()
        return reply._replace(tensors=tuple(each.reshape(-1) for each in reply.tensors))


class Forgets(Whole):
    """It sends later, from where tensors were."""

    def __init__(self) -> None:
        self._later = ThreadPoolExecutor(1)  # one after another: the order is right

    def send(self, right: Any, number: int, tensors: Tensors) -> float:
        where = [(bytes_of(each), each.shape, each.dtype) for each in tensors]

        def later() -> None:
            threading.Event().wait(0.02)
            right(
                number,
                tuple(torch.frombuffer(view, dtype=dtype).reshape(shape) for view, shape, dtype in where),
            )

        self._later.submit(later)
        return 0.0


class KeepsItsFirstStage(Whole):
    """A connection has one stage for life."""

    def serve(self, *at: Any) -> Any:
        server = super().serve(*at)
        serve = server.serve

        def once(stage: Stage, onward: Any = None) -> None:
            if server.served is None:
                serve(stage, onward)

        server.serve = once
        return server


class Timeless(Whole):
    """It does not tell how long stages took."""

    def receive(self, right: Any) -> Reply:
        reply: Reply = right()
        return reply._replace(stages_s=(0.0,))


class Silent(Whole):
    """A stage's fault becomes zeros."""

    def run(self, right: Any, tensors: Tensors) -> tuple[Tensors, float]:
        try:
            result: tuple[Tensors, float] = right(tensors)
        except ValueError:
            return tuple(map(torch.zeros_like, tensors)), 0.0
        return result


class TakesAny(Whole):
    """Whatever a request is for, it is answered."""

    def open(self, right: Any, fingerprint: bytes, takes: Layout) -> None:
        right(b"a stage.", takes)

    def serve(self, *at: Any) -> Any:
        server = super().serve(*at)
        serve = server.serve

        def renamed(stage: Any, onward: Any = None) -> None:
            stage.fingerprint = b"a stage."
            serve(stage, onward)

        server.serve = renamed
        return server


class Believes(Whole):
    """It makes of each fault what was expected."""

    takes: Layout = ()

    def open(self, right: Any, fingerprint: bytes, takes: Layout) -> None:
        self.takes = takes
        right(fingerprint, takes)

    def receive(self, right: Any) -> Reply:
        try:
            reply: Reply = right()
        except BackendError:
            made = tuple(torch.zeros(shape, dtype=getattr(torch, dtype)) for dtype, shape in self.takes)
            return Reply(1, made, (0.125,), 0.0)
        return reply


class OpenDoor(Whole):
    """It lets in whoever comes."""

    def connect(self, address: str, port: int, token: str, *more: Any) -> Any:
        return super().connect(address, port, "anybody", *more)

    def serve(self, address: str, token: str, *more: Any) -> Any:
        return super().serve(address, "anybody", *more)


class Waits(Plain):
    """It waits for who is gone."""

    def take(self, view: memoryview) -> None:
        try:
            super().take(view)
        except (OSError, EOFError):
            threading.Event().wait()


class Deaf(Whole):
    line = Waits


class Hurried(Plain):
    """It gives a peer 0.05 s."""

    def give(self, parts: Sequence[memoryview]) -> None:
        self.sock.settimeout(0.05)
        super().give(parts)


class Impatient(Whole):
    line = Hurried


class Leaks(Whole):
    """It keeps what it was given."""

    kept: list[Tensors] = []  # noqa: RUF012

    def run(self, right: Any, tensors: Tensors) -> tuple[Tensors, float]:
        self.kept.append(tuple(each.clone() for each in tensors))
        result: tuple[Tensors, float] = right(tensors)
        return result


class ByMemory(Plain):
    """Large parts lie in memory that both ends see."""

    given = taken = 0

    def _place(self, number: int, sender: int) -> Path:
        ports = sorted((self.sock.getsockname()[1], self.sock.getpeername()[1]))
        return Path("/dev/shm") / f"pareto-test-{ports[0]}-{ports[1]}-{sender}-{number}"  # noqa: S108

    def give(self, parts: Sequence[memoryview]) -> None:
        for part in parts:
            if len(part) > 1 << 16:
                self.given += 1
                self._place(self.given, self.sock.getsockname()[1]).write_bytes(part)
                self.sock.sendall(b".")
            else:
                self.sock.sendall(part)

    def take(self, view: memoryview) -> None:
        if len(view) <= 1 << 16:
            super().take(view)
            return
        super().take(memoryview(bytearray(1)))
        self.taken += 1
        place = self._place(self.taken, self.sock.getpeername()[1])
        view[:] = place.read_bytes()
        place.unlink()


class Shared(Whole):
    line = ByMemory


class Slow(Whole):
    """Not broken: it takes a while."""

    def send(self, right: Any, number: int, tensors: Tensors) -> float:
        threading.Event().wait(0.001)
        return float(right(number, tensors))
