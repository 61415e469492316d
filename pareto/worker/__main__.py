"""`python -m pareto.worker`: one device of a testbed, unprivileged, told what to do over `pareto.jsonlines`.

- `facts`: what this host is, and where it computes
- `load` model, weights, digest, data: the model, without its weights; inputs and its answers to them
- `listen` address, token (server): the ports of tcp and probe
- `connect` address, tcp, probe, token (edge): new connections to them
- `rendezvous` address (server): the port of a new rpc store
- `join_rpc` role, address, port, interface: both ends' rpc agents meet, anew if they had met
- `warm` backend, nbytes (edge): seconds that so much bulk took
- `stage` point, batch_size: hold this device's stage and no other; the server serves it from now on
- `trial` point, batch_size, backend, lengths of the phases, transfer_s, interface (edge): one trial
- `probe` bulk_out, bulk_back, more by name (edge): the link, measured; see `ProbeClient.measure`
- `usage` requests (server, optional): CPU share since the last call, memory; since `stage`: peak of memory, GPU time,
  and when it worked, also on the last so many requests

A figure that could not be had is None. Windows are from and to on this host's `time.monotonic`.
"""

from __future__ import annotations

import argparse
import socket
import sys
import time
from collections import deque
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from pareto.backends import rpc, wire
from pareto.backends.base import Client, Layout, Server, Tensors, fingerprint, layout
from pareto.backends.tcp import TcpClient, TcpServer
from pareto.jsonlines import Handler, Refused, serve
from pareto.worker import device, host, trial
from pareto.worker.device import Device, said_out_of_memory
from pareto.worker.phases import MAX_THROUGHPUT_REQUESTS, Length, NoLink
from pareto.worker.probe import ProbeClient, ProbeServer, Reading
from partitions import model as partitioned
from partitions import weights
from partitions.resident import ResidentStage
from partitions.stage import Stage


class Runs:
    """When a served stage worked. Times are on this host's `time.monotonic`."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._ended: deque[float] = deque(maxlen=2 * MAX_THROUGHPUT_REQUESTS)

    def note(self, began: float, ended: float) -> None:
        if self._began is None:
            self._began = began
        self._ended.append(ended)

    def windows(self, requests: int) -> dict[str, Any]:
        """From the first run to the last; and from the end of the first to that of the last of the last `requests`
        runs, with the number of ends after the first. None: it did not run, or not so often.
        """
        last = list(self._ended)[-requests:] if 2 <= requests <= len(self._ended) else None
        return {
            "trial_window": (self._began, self._ended[-1]) if self._ended else None,
            "throughput_window": (last[0], last[-1]) if last else None,
            "throughput_window_requests": len(last) - 1 if last else None,
        }


class ServedStage:
    """The last stage of a split, as a server runs it: whatever stage is resident, under this fingerprint.

    So it keeps no weights when it is no longer served; threads of the backends hold on to it till the next request.
    """

    def __init__(
        self,
        device: Device,
        resident: ResidentStage,
        runs: Runs,
        name: bytes,
        takes: Layout = (),
        gives: Layout = (),
    ) -> None:
        self.fingerprint = name
        self.takes = takes
        self.gives = gives
        self._device = device
        self._resident = resident
        self._runs = runs

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        began = time.perf_counter()
        outputs = self._device.run(self._resident.stage, tensors)
        ended = time.perf_counter()
        self._runs.note(began, ended)
        return outputs, ended - began


_NO_REQUEST = b""
"""A fingerprint that no request has: they are of 8 bytes."""


class Worker:
    """What this device has loaded and is connected to; each public method answers one request."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._digest = ""
        self._model: partitioned.Outline | None = None
        self._resident: ResidentStage | None = None
        self._staged: tuple[int, int] | None = None
        self._data: dict[int, trial.Data] = {}
        self._servers: list[Server] = []
        self._runs = Runs()
        self._clients: dict[str, Client] = {}
        self._probe: ProbeClient | None = None
        self._rpc_store: socket.socket | None = None
        self._rpc_joined = False
        self._since = (time.perf_counter(), time.process_time())
        self._peak = host.PeakMemory()

    def facts(self, request: dict[str, Any]) -> dict[str, Any]:
        return {**host.facts(), **self._device.facts()}

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        path = Path(request["weights"])
        if weights.file_digest(path) != request["digest"]:
            path.unlink()  # else it would pass for sent for ever
            raise Refused(f"{path.name} arrived damaged")
        if self._resident is not None:
            self._hold(self._resident, 0, 0)  # let go of the old one first: a small device cannot hold two
        self._model = self._resident = None
        self._data.clear()
        model = partitioned.outline(request["model"])
        self._resident = ResidentStage(model, path, self._device.name)
        self._model = model
        self._digest = request["digest"]
        for data_path in request["data"]:
            # copied out of the file's mapping, in which they lie at odd addresses
            tensors = {key: tensor.clone() for key, tensor in load_file(data_path).items()}
            data = trial.Data(tuple(tensors["inputs"]), tuple(tensors["references"]))
            self._data[data.inputs[0].shape[0]] = data
        return {"graph_digest": model.graph_digest, "rss_bytes": host.resident_bytes()}

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

    def stage(self, request: dict[str, Any]) -> dict[str, float]:
        point, batch_size = request["point"], request["batch_size"]
        model, resident = self._loaded()
        data = self._data[batch_size]
        last = len(model.points) - 1
        run_s = 0.0
        if not self._servers:
            self._hold(resident, 0, point)
            run_s = self._warm_up(resident.stage, tuple(data.inputs[:1]))
        else:
            self._hold(resident, point, last)
            takes = tuple((spec.dtype, (batch_size, *spec.shape[1:])) for spec in model.points[point].payload)
            if point < last:
                run_s = self._warm_up(resident.stage, tuple(tensor.zero_() for tensor in wire.empty(takes)))
            self._runs = Runs()
            name, gives = self._fingerprint(point, batch_size), layout(data.references[:1])
            self._serve(ServedStage(self._device, resident, self._runs, name, takes, gives))
        self._staged = (point, batch_size)
        self._device.forget()
        self._peak.begin()
        return {"weights_bytes": resident.nbytes, "rss_bytes": host.resident_bytes(), "run_s": run_s}

    def trial(self, request: dict[str, Any]) -> dict[str, Any]:
        point, batch_size = request["point"], request["batch_size"]
        model, resident = self._loaded()
        if self._staged != (point, batch_size):
            raise Refused(f"point {point} at batch size {batch_size} is not what was staged")
        data = self._data[batch_size]
        crosses = point < len(model.points) - 1
        client: Client = self._clients[request["backend"]] if crosses else NoLink()
        client.open(self._fingerprint(point, batch_size), layout(data.references[:1]))
        return trial.run(
            client,
            self._device,
            resident.stage,
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

    def usage(self, request: dict[str, Any]) -> dict[str, Any]:
        clock, cpu = self._since
        self._since = (time.perf_counter(), time.process_time())
        elapsed = self._since[0] - clock
        return {
            "cpu_percent": 100 * (self._since[1] - cpu) / elapsed,
            "rss_bytes": host.resident_bytes(),
            "peak_rss_bytes": self._peak.nbytes(),
            "gpu_s": self._device.gpu_s(),
            **self._runs.windows(request.get("requests", 0)),
        }

    def _hold(self, resident: ResidentStage, start: int, end: int) -> None:
        """Have another stage in memory; until it is served, none is, also where this fails."""
        self._staged = None
        self._serve(ServedStage(self._device, resident, Runs(), _NO_REQUEST))
        resident.change(start, end)

    def _serve(self, stage: ServedStage) -> None:
        for server in self._servers:
            server.serve(stage)

    def _warm_up(self, stage: Stage, tensors: Tensors) -> float:
        """Compute for nothing: first calls allocate memory and choose kernels. Seconds that the last one took."""
        for _ in range(self._device.warm_ups):
            started = time.perf_counter()
            self._device.run(stage, tensors)
        return time.perf_counter() - started

    def _loaded(self) -> tuple[partitioned.Outline, ResidentStage]:
        if self._model is None or self._resident is None:
            raise Refused("no model is loaded")
        return self._model, self._resident

    def _fingerprint(self, point: int, batch_size: int) -> bytes:
        return fingerprint(self._digest, self._loaded()[0].graph_digest, point, batch_size)


def _answering(handler: Handler) -> Handler:
    def answer(request: dict[str, Any]) -> Any:
        with said_out_of_memory():
            return handler(request)

    return answer


def main() -> None:
    parser = argparse.ArgumentParser(prog="pareto.worker")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu, or cuda:N")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    try:
        worker = Worker(device.named(arguments.device))
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        sys.exit(2)
    names = [name for name in dir(Worker) if not name.startswith("_")]
    serve({name: _answering(getattr(worker, name)) for name in names})


if __name__ == "__main__":
    main()
