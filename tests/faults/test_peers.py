"""What a peer does on the tcp backend's connections: real workers, in this process, and a proxy between the two."""

from __future__ import annotations

import contextlib
import json
import queue
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pareto.hosts.host import EDGE, SERVER, Host
from pareto.hosts.parcels import Parcel
from pareto.models.prepare import Prepared
from pareto.partitions import allocator
from pareto.protocol import jsonlines
from pareto.protocol.messages import Connect, LoadModel, handlers
from pareto.remote.backends import wire
from pareto.remote.backends.registry import parse
from pareto.remote.worker import device
from pareto.remote.worker.worker import Worker, answers
from pareto.trial.workers import Workers
from tests.faults.harness import Harness, Struck, once, tiny_model
from tests.faults.hostile import (
    REPLY,
    REQUEST,
    WELCOME,
    Armed,
    Proxy,
    Reset,
    Silence,
    Tamper,
    half_a_frame,
    half_a_header,
    in_body,
    in_head,
    length,
    put,
)
from tests.faults.table import PEERS, Fault
from tests.unit.far_end import StandIn, bed_of

FAULTS = PEERS
WHAT = {"a request": REQUEST, "a reply": REPLY, "a handshake": WELCOME}
KIND, VERSION, NUMBER, FINGERPRINT, STAGES, SECONDS = 6, 4, 8, 16, 24, 32
"""Where in a header these are: the last, the first later stage's seconds."""
ENDS = {"reset": Reset, "closed": OSError, "silence": Silence}
CUTS = {"half a frame then {}": half_a_frame, "{} in mid-header": half_a_header, "{}": half_a_frame}
TAMPERS: dict[str, Tamper] = {
    **{name.format(end): tamper for name, tamper in CUTS.items() for end in ENDS},
    "byte by byte": lambda message: [bytes([byte]) for byte in message.all],
    "twice": lambda message: [message.all] * 2,
    "garbage": lambda message: in_head(0, bytes(range(7, 7 + len(message.head))))(message),
    "one byte less": length(-1),
    "one byte more": length(1),
    "a length of 2^62": length(1 << 62),
    "another magic": in_head(0, b"HTTP"),
    "another version": in_head(VERSION, struct.pack("!H", wire.VERSION + 1)),
    "another kind": in_head(KIND, b"\x7f"),
    "another number": in_head(NUMBER, b"\xff" * 8),
    "another fingerprint": in_head(FINGERPRINT, b"somebody"),
    "8 stages": in_head(STAGES, b"\x08"),
    "NaN seconds": in_head(SECONDS, struct.pack("!d", float("nan"))),
    "infinite seconds": in_head(SECONDS, struct.pack("!d", float("inf"))),
    "another dtype": in_body(0, b"\x02"),
    "another rank": in_body(1, b"\xc8"),
    "NaN": in_body(-4, struct.pack("<f", float("nan"))),
    "a number a million times as large": in_body(-4, struct.pack("<f", 1e6)),
    "one bit": lambda message: [put(message.all, -1, bytes([message.all[-1] ^ 1]))],
    "another nonce": lambda message: [b"?" * len(message.body)],
}
_tracing = threading.Lock()


class Here:
    """A `session.Command` to a worker in this process, which answers in a thread of its own."""

    def __init__(self, handlers: dict[str, jsonlines.Handler], end: Callable[[], None]) -> None:
        self._handlers = handlers
        self._end = end
        self._requests: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        threading.Thread(target=self._serve, daemon=True).start()

    def send(self, data: bytes) -> None:
        request = json.loads(data)
        if request["op"] != "ping":
            self._requests.put(request)

    def read(self, timeout_s: float) -> bytes:
        try:
            return self._replies.get(timeout=timeout_s)
        except queue.Empty:
            raise TimeoutError from None

    def close(self) -> None:
        self._requests.put(None)
        self._end()

    def last_words(self) -> str:
        return ""

    def _serve(self) -> None:
        while (request := self._requests.get()) is not None:
            self._replies.put(jsonlines.answer(self._handlers, request))


class Pair(StandIn):
    """One of two hosts that are this process. `proxied`: makes the way to a server's port, that of the backend."""

    def __init__(self, role: str, folder: Path, backend: str, proxied: Callable[[int], int]) -> None:
        super().__init__(Host(role, "127.0.0.1", "lo", str(folder), ""), lambda module: self._worker())
        self._way = parse(backend).server
        self._proxied = proxied

    def send(self, parcels: Sequence[Parcel], sent: Callable[[int], None]) -> None:
        super().send(parcels, sent)
        for parcel in parcels:
            Path(self.host.folder, parcel.name).write_bytes(self.has[parcel.name])

    def _worker(self) -> Any:
        worker = Worker(device.named("cpu"))

        def load(request: LoadModel) -> str:
            with _tracing:  # torch traces one graph at a time in a process
                return worker.load(request)

        def connect(request: Connect) -> None:
            ports = {**request.ports, self._way: self._proxied(request.ports[self._way])}
            worker.connect(replace(request, ports=ports))

        def end() -> None:
            for one in (*worker._servers.values(), *worker._clients.values(), worker.prober._client):
                if one is not None:
                    with contextlib.suppress(OSError):
                        one.close()

        return Here(handlers({**answers(worker), LoadModel: load, Connect: connect}), end)


class Bench:
    """The harness on two workers of this process, with a proxy on the way of the one backend."""

    def __init__(self, out: Path, backend: str, prepared: Prepared) -> None:
        folder = out / "host"
        folder.mkdir()
        self._name = parse(backend)
        self.proxy: Proxy | None = None
        self.armed: Armed | None = None
        self._bed = bed_of({role: Pair(role, folder, backend, self._proxied) for role in (EDGE, SERVER)})
        self._workers = Workers(self._bed, {prepared.name: prepared}, (backend,))
        self.harness = Harness(out, prepared, self._workers)

    def arm(self, armed: Armed) -> None:
        if self.proxy is not None and armed.what != WELCOME:
            self.proxy.armed = armed
        else:
            self.armed = armed

    def close(self) -> None:
        self._workers.close()
        if self.proxy is not None:
            self.proxy.close()
        self._bed.close()

    def _proxied(self, port: int) -> int:
        if self.proxy is not None:
            self.proxy.close()
        self.proxy = Proxy(port, striped=self._name.variant.isdecimal(), sealed=bool(self._name.seal))
        self.proxy.armed, self.armed = self.armed, None
        return self.proxy.port


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Bench]]:
    """One for each backend, made when a fault of it is tried."""
    made: dict[str, Bench] = {}
    prepared = tiny_model()

    def of(backend: str) -> Bench:
        if backend not in made:
            bench = Bench(tmp_path_factory.mktemp("results"), backend, prepared)
            made[backend] = undo.enter_context(closing(bench))
        return made[backend]

    with pytest.MonkeyPatch.context() as here, ExitStack() as undo:
        # As a worker's program has it: these hosts are this process.
        here.setattr(allocator, "in_force", allocator.TUNED)
        yield of
        for bench in made.values():
            bench.harness.resume()


def test_fault(
    benches: Callable[[str], Bench], fault: Fault, note: Callable[[Fault, str, float | None], None]
) -> None:
    bench = benches(fault.backend)
    threads = threading.active_count()
    if fault.when == "connect":
        bench.harness.runner._restart()
    end = next((how for word, how in ENDS.items() if word in fault.what.split()), None)

    def arm(struck: Struck) -> None:
        bench.arm(Armed(WHAT[fault.whom], TAMPERS[fault.what], end, once(lambda: None, struck)))

    row, struck = bench.harness.suffer(fault, arm)
    assert threading.active_count() <= threads + 40  # none is left behind by the hundred
    note(fault, row["reason"], struck.noticed_s)
