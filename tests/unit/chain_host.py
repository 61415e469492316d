"""`python -m tests.unit.chain_host`: a host of a chain whose stages add 1 and sleep, told what to do over `jsonlines`.

Everything between the stages is real: both backends, the measuring loops, a process a host.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch import Tensor

from pareto.backends import rpc
from pareto.backends.base import Client, Layout, Tensors, fingerprint, layout
from pareto.backends.tcp import TcpClient, TcpServer
from pareto.jsonlines import serve
from pareto.worker import host, phases

TOKEN = "a token"  # noqa: S105
INPUTS = 4


def inputs(width: int) -> list[Tensor]:
    return [torch.full((1, width), float(i)) for i in range(INPUTS)]


class AddingOne:
    """Takes `seconds` for it, and gives `results` tensors for one; `at_fault` fails instead, `idle` passes on."""

    def __init__(self, name: bytes, takes: Layout, seconds: float, results: int, kind: str) -> None:
        self.fingerprint = name
        self.takes = takes
        self.served = 0
        self._seconds = seconds
        self._results = results
        self._kind = kind

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        began = time.perf_counter()
        time.sleep(self._seconds)
        self.served += 1
        if self._kind == "at fault" and self.served == 3:
            raise ValueError("no such layer")
        outputs = tensors if self._kind == "idle" else (tensors[0] + 1,) * self._results
        return outputs, time.perf_counter() - began


class ChainHost:
    """Each public method answers one request."""

    def __init__(self) -> None:
        self._servers: dict[str, Any] = {}
        self._clients: dict[str, Client] = {}
        self._store: Any = None
        self._stage: AddingOne | None = None
        self._joined = False

    def listen(self, request: dict[str, Any]) -> int:
        tcp = TcpServer(request["address"], TOKEN)
        self._servers = {"tcp": tcp, "rpc": rpc.RpcServer()}
        return tcp.port

    def connect(self, request: dict[str, Any]) -> None:
        if "tcp" in self._clients:
            self._clients["tcp"].close()
        self._clients["tcp"] = TcpClient(request["address"], request["port"], TOKEN)

    def rendezvous(self, request: dict[str, Any]) -> int:
        self._store = rpc.listen("127.0.0.1")
        return int(self._store.getsockname()[1])

    def join(self, request: dict[str, Any]) -> None:
        if self._joined:
            rpc.leave()
        role, hosts = request["role"], request["hosts"]
        rpc.join(role, hosts, "127.0.0.1", request["port"], "lo", self._store)
        self._joined = True
        if role != hosts[-1]:
            self._clients["rpc"] = rpc.RpcClient(hosts[hosts.index(role) + 1])

    def stage(self, request: dict[str, Any]) -> None:
        """onward: the graph that the next host is said to serve; None at the end of the chain."""
        backend, position, results = request["backend"], request["position"], request["results"]
        takes = layout(inputs(request["width"])[:1])
        onward = None
        if request["onward"] is not None:
            onward = self._clients[backend]
            name = fingerprint("weights", request["onward"], (1, 2), position + 1, 1)
            onward.open(name, takes * results)
        if position > 0:
            name = fingerprint("weights", "graph", (1, 2), position, 1)
            last = request["onward"] is None
            gives = results if last else 1
            self._stage = AddingOne(name, takes, request["seconds"], gives, request["kind"])
            self._servers[backend].serve(self._stage, onward)

    def served(self, request: dict[str, Any]) -> int:
        return self._stage.served if self._stage else 0

    def resident_bytes(self, request: dict[str, Any]) -> int:
        return host.resident_bytes()

    def warm(self, request: dict[str, Any]) -> None:
        self._clients[request["backend"]].warm(request["nbytes"])

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """A throughput phase: images a second, and what came back, `[[input, result tensors], ...]`."""

        def compute(tensors: Tensors) -> Tensors:
            time.sleep(request["seconds"])
            return tensors

        length = phases.Length(request["requests"], 0.0)
        client = self._clients[request["backend"]]
        phase = phases.throughput(client, compute, inputs(request["width"]), length, 1.0, request["depth"])
        return {
            "rate": phases.rate(phase, 1),
            "stages_s": [sample.stages_s for sample in phase.samples],
            "outputs": [
                [which, [tensor.mean().item() for tensor in tensors]] for which, tensors in phase.outputs
            ],
        }


if __name__ == "__main__":
    torch.set_num_threads(1)
    served = ChainHost()
    serve({name: getattr(served, name) for name in dir(ChainHost) if not name.startswith("_")})
