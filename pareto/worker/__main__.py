"""`python -m pareto.worker`: one device of a testbed, unprivileged, told what to do over `pareto.jsonlines`.

- `facts`: what this host is
- `load` model, weights, digest, data: the model, whole; inputs and its answers to them
- `listen` address, token (server): the ports of tcp and probe
- `connect` address, tcp, probe, token (edge): new connections to them
- `rendezvous` address (server): the port of a new rpc store
- `join_rpc` role, address, port, interface: both ends' rpc agents meet, anew if they had met
- `warm` backend, nbytes (edge): seconds that so much bulk took
- `stage` point, batch_size: cut this device's stage; the server serves it from now on
- `trial` point, batch_size, backend, lengths of the phases, transfer_s, interface (edge): one trial
- `probe` bulk_out, bulk_back, more by name (edge): the link, measured; see `ProbeClient.measure`
- `usage`: CPU share since the last call, memory
"""

from __future__ import annotations

import argparse
import socket
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from pareto.backends import rpc, wire
from pareto.backends.base import Client, Layout, Server, Tensors, fingerprint, layout
from pareto.backends.tcp import TcpClient, TcpServer
from pareto.jsonlines import Refused, serve
from pareto.worker import host, trial
from pareto.worker.phases import Length, NoLink
from pareto.worker.probe import ProbeClient, ProbeServer, Reading
from partitions import model as partitioned
from partitions import weights
from partitions.stage import Stage


class ServedStage:
    """The last stage of a split, as a server runs it."""

    def __init__(self, module: torch.nn.Module, name: bytes, takes: Layout, gives: Layout) -> None:
        self.fingerprint = name
        self.takes = takes
        self.gives = gives
        self._module = module

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        with torch.inference_mode():
            started = time.perf_counter()
            outputs = self._module(tensors)
            return outputs, time.perf_counter() - started


class Worker:
    """What this device has loaded and is connected to; each public method answers one request."""

    def __init__(self) -> None:
        self._digest = ""
        self._model: partitioned.PartitionedModel | None = None
        self._stages: dict[tuple[int, int], Stage] = {}
        self._data: dict[int, trial.Data] = {}
        self._servers: list[Server] = []
        self._clients: dict[str, Client] = {}
        self._probe: ProbeClient | None = None
        self._rpc_store: socket.socket | None = None
        self._rpc_joined = False
        self._since = (time.perf_counter(), time.process_time())

    def facts(self, request: dict[str, Any]) -> dict[str, Any]:
        return host.facts()

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        path = Path(request["weights"])
        if weights.file_digest(path) != request["digest"]:
            raise Refused(f"{path.name} arrived damaged")
        self._model = None  # let go of the old one first: a small device cannot hold two
        self._stages.clear()
        self._data.clear()
        self._model = partitioned.load(request["model"], path)
        self._digest = request["digest"]
        for data_path in request["data"]:
            tensors = load_file(data_path)
            data = trial.Data(tuple(tensors["inputs"]), tuple(tensors["references"]))
            self._data[data.inputs[0].shape[0]] = data
        return {"graph_digest": self._model.graph_digest, "rss_bytes": host.resident_bytes()}

    def listen(self, request: dict[str, Any]) -> dict[str, int]:
        address, token = request["address"], request["token"]
        tcp, probe = TcpServer(address, token), ProbeServer(address, token)
        self._servers = [tcp, rpc.RpcServer()]
        return {"tcp": tcp.port, "probe": probe.port}

    def connect(self, request: dict[str, Any]) -> None:
        address, token = request["address"], request["token"]
        if self._probe is not None:
            self._probe.close()
            self._clients["tcp"].close()
        self._clients["tcp"] = TcpClient(address, request["tcp"], token)
        self._probe = ProbeClient(address, request["probe"], token)

    def rendezvous(self, request: dict[str, Any]) -> int:
        self._rpc_store = rpc.listen(request["address"])
        return int(self._rpc_store.getsockname()[1])

    def join_rpc(self, request: dict[str, Any]) -> None:
        if self._rpc_joined:
            rpc.leave()
        rpc.join(request["role"], request["address"], request["port"], request["interface"], self._rpc_store)
        self._rpc_joined = True
        self._clients["rpc"] = rpc.RpcClient()

    def warm(self, request: dict[str, Any]) -> float:
        started = time.perf_counter()
        self._clients[request["backend"]].warm(request["nbytes"])
        return time.perf_counter() - started

    def stage(self, request: dict[str, Any]) -> None:
        point, batch_size = request["point"], request["batch_size"]
        model = self._loaded()
        data = self._data[batch_size]
        if not self._servers:
            _warm_up(self._cut(0, point), tuple(data.inputs[:1]))
            return
        last = len(model.points) - 1
        takes = tuple((spec.dtype, (batch_size, *spec.shape[1:])) for spec in model.points[point].payload)
        module = self._cut(point, last)
        gives = layout(data.references[:1])
        served = ServedStage(module, self._fingerprint(point, batch_size), takes, gives)
        if point < last:
            _warm_up(module, tuple(tensor.zero_() for tensor in wire.empty(takes)))
        for server in self._servers:
            server.serve(served)

    def trial(self, request: dict[str, Any]) -> dict[str, Any]:
        point, batch_size = request["point"], request["batch_size"]
        data = self._data[batch_size]
        crosses = point < len(self._loaded().points) - 1
        client: Client = self._clients[request["backend"]] if crosses else NoLink()
        client.open(self._fingerprint(point, batch_size), layout(data.references[:1]))
        with torch.inference_mode():
            return trial.run(
                client,
                self._cut(0, point),
                data,
                warmup_requests=request["warmup_requests"],
                latency=Length(**request["latency"]),
                throughput=Length(**request["throughput"]),
                transfer_s=request["transfer_s"],
                interface=request["interface"],
            )

    def probe(self, request: dict[str, Any]) -> Reading:
        if self._probe is None:
            raise Refused("not connected")
        return self._probe.measure(**request)

    def usage(self, request: dict[str, Any]) -> dict[str, float]:
        clock, cpu = self._since
        self._since = (time.perf_counter(), time.process_time())
        elapsed = self._since[0] - clock
        return {
            "cpu_percent": 100 * (self._since[1] - cpu) / elapsed,
            "rss_bytes": host.resident_bytes(),
        }

    def _cut(self, start: int, end: int) -> Stage:
        """A stage, kept once cut: it shares its weights with the model."""
        key = (start, end)
        if key not in self._stages:
            self._stages[key] = self._loaded().stage(start, end)
        return self._stages[key]

    def _loaded(self) -> partitioned.PartitionedModel:
        if self._model is None:
            raise Refused("no model is loaded")
        return self._model

    def _fingerprint(self, point: int, batch_size: int) -> bytes:
        return fingerprint(self._digest, self._loaded().graph_digest, point, batch_size)


def _warm_up(stage: Stage, tensors: Tensors) -> None:
    """Compute once for nothing: first calls allocate memory and choose kernels."""
    with torch.inference_mode():
        stage(tensors)


def main() -> None:
    parser = argparse.ArgumentParser(prog="pareto.worker")
    parser.add_argument("--threads", type=int, default=1)
    torch.set_num_threads(parser.parse_args().threads)
    worker = Worker()
    serve({name: getattr(worker, name) for name in dir(Worker) if not name.startswith("_")})


if __name__ == "__main__":
    main()
