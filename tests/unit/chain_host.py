"""A host of a chain whose stages add 1 and sleep, told what to do over `jsonlines`.

Everything between the stages is real: both backends, the measuring loops, a process a host.
"""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import sys
import threading
from importlib.util import find_spec
from multiprocessing.synchronize import Barrier
from typing import Any

import torch

from pareto.protocol import jsonlines
from pareto.protocol.messages import JoinAgents, Keys
from pareto.remote.backends import base, registry, rpc, tls
from pareto.remote.backends.base import Client, Layout, Tensors, fingerprint, layout
from pareto.remote.worker import connections, host, phases

TOKEN = "a token"  # noqa: S105
INPUTS = 4
LINKED = ("tcp", "tcp:5", "tcp:poll", "tcp:tls", "tcp:5:tls", *(["zmq"] if find_spec("zmq") else []), "gloo")
"""Its variants to which each host connects."""
_LIBC = ctypes.CDLL(None)


def inputs(width: int) -> list[Tensors]:
    return [(torch.full((1, width), float(i)),) for i in range(INPUTS)]


class Meeting:
    """Request n reaches the server, n + 1 the middle and n + 2 the edge: nobody goes on before all three are at it."""

    def __init__(self, barrier: Barrier, position: int, requests: int) -> None:
        self._barrier, self._came = barrier, 0
        self._first, self._end = 2 - position, requests - position

    def attend(self) -> None:
        if self._first <= self._came < self._end:
            self._barrier.wait(60)
        self._came += 1


class AddingOne:
    """Takes `seconds` or more for it, and gives `results` tensors for one; `at fault` fails, `idle` passes on."""

    def __init__(
        self, name: bytes, takes: Layout, seconds: float, results: int, kind: str, meeting: Meeting
    ) -> None:
        self.fingerprint, self.takes = name, takes
        self.took: list[float] = []
        self._seconds, self._results, self._kind, self._meeting = seconds, results, kind, meeting

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        threading.Event().wait(self._seconds)
        self._meeting.attend()
        self.took.append(1 + len(self.took) / 1024)  # a number of its own for each, which comes back as it is
        if self._kind == "at fault" and len(self.took) == 3:
            raise ValueError("no such layer")
        return tensors if self._kind == "idle" else (tensors[0] + 1,) * self._results, self.took[-1]


class ChainHost:
    """Each public method answers one request."""

    def __init__(self, barrier: Barrier) -> None:
        self._barrier = barrier
        self._meeting = Meeting(barrier, 0, 0)
        self._servers: dict[str, Any] = {}
        self._clients: dict[str, Client] = {}
        self._store: Any = None
        self._stage: AddingOne | None = None
        self._joined = False

    def listen(self, request: dict[str, Any]) -> dict[str, int | None]:
        """keys: as `pareto.protocol.messages.Keys`."""
        self._servers = base.servers(request["address"], TOKEN, Keys(*request["keys"]), [*LINKED, "rpc"])
        return {name: server.port for name, server in self._servers.items()}

    def connect(self, request: dict[str, Any]) -> None:
        """ports: as `listen` reports them."""
        seal = tls.Tls.of(Keys(*request["keys"]))
        for backend in LINKED:
            if backend in self._clients:
                self._clients[backend].close()
            name = registry.parse(backend)
            to = request["address"], request["ports"][name.server], TOKEN, name.variant
            self._clients[backend] = base.backend(name.name).connect(*to, seal if name.seal else None)

    def rendezvous(self, request: dict[str, Any]) -> int:
        self._store = socket.create_server(("127.0.0.1", 0))
        return int(self._store.getsockname()[1])

    def join(self, request: dict[str, Any]) -> None:
        if self._joined:
            rpc.leave()
        role, hosts = request["role"], request["hosts"]
        client = rpc.join(JoinAgents("rpc", role, hosts, "127.0.0.1", request["port"], "lo"), self._store)
        self._joined = True
        if client is not None:
            self._clients["rpc"] = client

    def stage(self, request: dict[str, Any]) -> None:
        """onward: the graph that the next host is said to serve; None at the end of the chain.

        meeting: of so many requests, each is worked on while all hosts are at work; of 0 none.
        """
        backend, position, results = request["backend"], request["position"], request["results"]
        self._meeting = Meeting(self._barrier, position, request["meeting"])
        takes = layout(inputs(request["width"])[0])
        onward = None
        if request["onward"] is not None:
            onward = self._clients[backend]
            name = fingerprint("weights", request["onward"], (1, 2), position + 1, 1)
            onward.open(name, takes * results)
        if position > 0:
            name = fingerprint("weights", "graph", (1, 2), position, 1)
            last = request["onward"] is None
            gives = results if last else 1
            self._stage = AddingOne(name, takes, request["seconds"], gives, request["kind"], self._meeting)
            self._servers[registry.parse(backend).server].serve(self._stage, onward)

    def took(self, request: dict[str, Any]) -> list[float]:
        """Seconds that the stage took for each request."""
        return self._stage.took if self._stage else []

    def resident_bytes(self, request: dict[str, Any]) -> int:
        return host.resident_bytes()

    def reset(self, request: dict[str, Any]) -> int:
        """Break every connection to the other hosts, as a router does that forgets them; how many there were."""
        broken = 0
        for _, sock in connections._sockets():
            if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                continue
            with contextlib.suppress(OSError):
                sock.getpeername()
                # To connect to no family is to disconnect: the other end gets a reset (connect(2)).
                _LIBC.connect(sock.fileno(), struct.pack("=H14x", socket.AF_UNSPEC), 16)
                broken += 1
        return broken

    def warm(self, request: dict[str, Any]) -> None:
        self._clients[request["backend"]].warm(request["nbytes"])

    def crowded(self, request: dict[str, Any]) -> list[float]:
        """The serialize times of some requests, one in flight, while another thread lets go of the interpreter every
        `seconds` only."""
        over = threading.Event()

        def spin() -> None:
            while not over.is_set():
                pass

        usual = sys.getswitchinterval()
        sys.setswitchinterval(request["seconds"])
        spinning = threading.Thread(target=spin)
        spinning.start()
        try:
            client = self._clients[request["backend"]]
            edge = phases.Edge(client, lambda tensors: tensors, inputs(8))
            phase = phases.latency(edge, phases.Length(5, 0.0))
        finally:
            over.set()
            spinning.join()
            sys.setswitchinterval(usual)
        return [sample.serialize_s for sample in phase.samples]

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """A throughput phase: images a second, and what came back, `[[input, result tensors], ...]`."""

        def compute(tensors: Tensors) -> Tensors:
            self._meeting.attend()
            return tensors

        length = phases.Length(request["requests"], 0.0)
        edge = phases.Edge(self._clients[request["backend"]], compute, inputs(request["width"]))
        phase = phases.throughput(edge, length, 1.0, request["depth"])
        outputs = [[which, [tensor.mean().item() for tensor in tensors]] for which, tensors in phase.outputs]
        stages_s = [sample.stages_s for sample in phase.samples]
        return {"rate": phases.rate(phase, 1), "stages_s": stages_s, "outputs": outputs}


def serve(barrier: Barrier) -> None:
    """barrier: of three, for meetings."""
    torch.set_num_threads(1)
    host = ChainHost(barrier)
    handlers = {name: getattr(host, name) for name in dir(ChainHost) if not name.startswith("_")}
    jsonlines.serve(handlers, silence_limit_s=600)
