"""`python -m pareto.worker`: one device of a testbed, unprivileged, told what to do over `pareto.jsonlines`.

- `facts`: what this host is, and where it computes
- `load` recipe, weights, digest, data: the model, without its weights; on the edge, inputs and its answers to them
- `listen` address, token (all but the edge): the ports of tcp and probe, for the host before
- `connect` address, tcp, probe, token, backends (all but the last): new connections to the host behind, tcp's as far
  as these backends ask for them
- `rendezvous` address (last): the port of a new rpc store
- `join_rpc` backend, role, hosts, address, port, interface: all hosts' rpc agents meet, anew if they had met
- `warm` backend, nbytes (all but the last): seconds that so much bulk took to the host behind
- `stage` cuts, position, batch_size, backend, interface: hold this device's stage and no other; serve it from now on.
  `position` counts hosts from the edge, which is 0; `interface` leads to the host behind, None on the last one
- `baseline` cuts, position, batch_size, backend: seconds that a run of the stage takes when nothing else is asked of
  this host; None: it runs no unit
- `trial` cuts, batch_size, backend, lengths of the phases, transfer_s, in_flight, interface, peer (edge): one trial.
  `peer` is the address of the host behind: the report has under `tcp` what the kernel says of the connection to it
- `probe` bulk_out, bulk_back, more by name (all but the last): the link behind, measured; see `ProbeClient.measure`
- `usage` requests, steady (optional; all but the edge): CPU share since the last call, memory; since `stage`: peak of
  memory, GPU time, bytes on the interface, and when it worked, also on the first `steady` of the last so many requests

A figure that could not be had is None. Windows are from and to on this host's `time.monotonic`.
"""

from __future__ import annotations

import argparse
import gc
import socket
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from pareto.backends import names, rpc, wire
from pareto.backends.base import BackendError, Client, Layout, Server, Tensors, fingerprint
from pareto.backends.tcp import TcpClient, TcpServer
from pareto.jsonlines import Handler, Refused, serve
from pareto.worker import connections, device, host, trial
from pareto.worker.baseline import baseline_s
from pareto.worker.device import Device, said_out_of_memory
from pareto.worker.phases import Length, NoLink
from pareto.worker.probe import ProbeClient, ProbeServer, Reading
from pareto.worker.served import NO_REQUEST, Runs, ServedStage
from partitions import model as partitioned
from partitions import weights
from partitions.graph import TensorSpec
from partitions.recipe import Recipe
from partitions.resident import ResidentStage
from partitions.stage import Stage


@dataclass(frozen=True)
class _Split:
    """How the chain is to work: `cuts[i]` units of the model run before its link i."""

    cuts: tuple[int, ...]
    batch_size: int
    backend: str

    @classmethod
    def of(cls, request: dict[str, Any]) -> _Split:
        return cls(tuple(request["cuts"]), request["batch_size"], request["backend"])

    def bounds(self, position: int, model: partitioned.Outline) -> tuple[int, int]:
        """The points between which the host at `position` computes."""
        points = (0, *self.cuts, len(model.points) - 1)
        return points[position], points[position + 1]

    def reaches(self, position: int, model: partitioned.Outline) -> bool:
        """Whether the host at `position` takes part: its predecessors leave something to do."""
        return position <= len(self.cuts) and (
            position == 0 or self.cuts[position - 1] < len(model.points) - 1
        )

    def __str__(self) -> str:
        cuts = "+".join(map(str, self.cuts))
        return f"point {cuts} at batch size {self.batch_size} over {self.backend}"


class Worker:
    """What this device has loaded and is connected to; each public method answers one request."""

    def __init__(self, device: Device, congestion: str | None = None) -> None:
        """`congestion`: the congestion control of every connection; None: what the routes or this host say."""
        self._device = device
        self._congestion = congestion
        self._digest = ""
        self._model: partitioned.Outline | None = None
        self._resident: ResidentStage | None = None
        self._staged: _Split | None = None
        self._data: dict[int, trial.Data] = {}
        self._servers: dict[str, Server] = {}
        self._runs = Runs()
        self._clients: dict[str, Client] = {}
        self._probe: ProbeClient | None = None
        self._rpc_store: socket.socket | None = None
        self._rpc_joined = False
        self._since = (time.perf_counter(), time.process_time())
        self._peak = host.PeakMemory()
        self._interface: str | None = None
        self._before: host.Counters | None = None

    def facts(self, request: dict[str, Any]) -> dict[str, Any]:
        told = {**host.facts(), **self._device.facts()}
        return told | ({"congestion_control": self._congestion} if self._congestion else {})

    def load(self, request: dict[str, Any]) -> dict[str, Any]:
        path = Path(request["weights"])
        if weights.file_digest(path) != request["digest"]:
            path.unlink()  # else it would pass for sent for ever
            raise Refused(f"{path.name} arrived damaged")
        if self._resident is not None:
            self._hold(self._resident, 0, 0)  # let go of the old one first: a small device cannot hold two
        self._model = self._resident = None
        self._data.clear()
        gc.collect()  # graphs and their modules refer to each other
        model = partitioned.outline(Recipe.of_dict(request["recipe"]))
        self._resident = ResidentStage(model, path, self._device.name)
        self._model = model
        self._digest = request["digest"]
        for data_path in request["data"]:
            # copied out of the file's mapping, in which they lie at odd addresses
            data = trial.Data.of({key: tensor.clone() for key, tensor in load_file(data_path).items()})
            self._data[data.inputs[0].shape[0]] = data
        return {"graph_digest": model.graph_digest, "rss_bytes": host.resident_bytes()}

    def listen(self, request: dict[str, Any]) -> dict[str, int]:
        address, token = request["address"], request["token"]
        tcp, probe = TcpServer(address, token), ProbeServer(address, token)
        self._servers = {"tcp": tcp, "rpc": rpc.RpcServer()}
        self._set_congestion()
        return {"tcp": tcp.port, "probe": probe.port}

    def connect(self, request: dict[str, Any]) -> None:
        address, token = request["address"], request["token"]
        if self._probe is not None:
            self._probe.close()
        for client in self._clients.values():
            client.close()
        self._clients = {
            backend: TcpClient(address, request["tcp"], token, names.parse(backend).connections)
            for backend in request["backends"]
            if names.parse(backend).name == "tcp"
        }
        self._probe = ProbeClient(address, request["probe"], token)
        self._set_congestion()

    def rendezvous(self, request: dict[str, Any]) -> int:
        self._rpc_store = rpc.listen(request["address"])
        return int(self._rpc_store.getsockname()[1])

    def join_rpc(self, request: dict[str, Any]) -> None:
        if self._rpc_joined:
            rpc.leave()
        role, hosts, backend = request["role"], request["hosts"], request["backend"]
        rpc.join(
            role,
            hosts,
            request["address"],
            request["port"],
            request["interface"],
            self._rpc_store,
            variant=names.parse(backend).variant,
        )
        self._rpc_joined = True
        self._set_congestion()
        for behind in hosts[hosts.index(role) + 1 :][:1]:
            self._clients[backend] = rpc.RpcClient(behind)

    def warm(self, request: dict[str, Any]) -> float:
        started = time.perf_counter()
        self._clients[request["backend"]].warm(request["nbytes"])
        took_s = time.perf_counter() - started
        self._set_congestion()  # rpc connects at its first request
        return took_s

    def stage(self, request: dict[str, Any]) -> dict[str, float]:
        split, position = _Split.of(request), request["position"]
        model, resident = self._loaded()
        start, end = split.bounds(position, model)
        self._hold(resident, start, end)
        gc.collect()  # between trials: in a request it would be charged to that
        takes = _layout(model.points[start].payload, split.batch_size)
        run_s = self._warm_up(resident.stage, self._example(takes, split.batch_size)) if start < end else 0.0
        self._runs = Runs()
        if position > 0 and split.reaches(position, model):
            served = ServedStage(
                self._device, resident, self._runs, self._fingerprint(split, position), takes
            )
            self._servers[names.parse(split.backend).name].serve(served, self._onward(split, position))
        self._staged = split
        self._device.forget()
        self._peak.begin()
        self._interface = request["interface"]
        self._before = host.counters(self._interface) if self._interface else None
        return {"weights_bytes": resident.nbytes, "rss_bytes": host.resident_bytes(), "run_s": run_s}

    def baseline(self, request: dict[str, Any]) -> float | None:
        model, resident = self._loaded()
        split, position = _Split.of(request), request["position"]
        start, end = split.bounds(position, model)
        if start == end:
            return None
        example = self._example(_layout(model.points[start].payload, split.batch_size), split.batch_size)
        seconds = baseline_s(lambda: self._device.run(resident.stage, example))
        self._device.forget()
        return seconds

    def trial(self, request: dict[str, Any]) -> dict[str, Any]:
        split = _Split.of(request)
        _, resident = self._loaded()
        if self._staged != split:
            raise Refused(f"{split} is not what was staged")
        onward = self._onward(split, 0)
        before = connections.to(request["peer"])
        report = trial.run(
            onward or NoLink(),
            self._device,
            resident.stage,
            self._data[split.batch_size],
            warmup_requests=request["warmup_requests"],
            latency=Length(**request["latency"]),
            throughput=Length(**request["throughput"]),
            transfer_s=request["transfer_s"],
            in_flight=request["in_flight"],
            interface=request["interface"],
        )
        # Looked at where nothing is timed: the retransmissions are those of the warm-up's few requests, too.
        told = connections.carried(before, connections.to(request["peer"])) if onward is not None else {}
        return {**report, "tcp": told}

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
            **self._runs.windows(request.get("requests", 0), request.get("steady", 0)),
            **self._traffic(),
        }

    def _hold(self, resident: ResidentStage, start: int, end: int) -> None:
        """Have another stage in memory; until it is served, none is, also where this fails."""
        self._staged = None
        for server in self._servers.values():
            server.serve(ServedStage(self._device, resident, Runs(), NO_REQUEST))
        resident.change(start, end)

    def _onward(self, split: _Split, position: int) -> Client | None:
        """To the host behind, for what leaves this one; None where the result is complete here."""
        model, _ = self._loaded()
        if not split.reaches(position + 1, model):
            return None
        client = self._clients[split.backend]
        client.open(self._fingerprint(split, position + 1), _layout(model.results, split.batch_size))
        return client

    def _traffic(self) -> dict[str, int | None]:
        """On the interface towards the host behind, since `stage`."""
        names = ("sent_bytes", "received_bytes", "retransmits")
        if self._interface is None or self._before is None:
            return dict.fromkeys(names)
        now = host.counters(self._interface)
        return {name: getattr(now, name) - getattr(self._before, name) for name in names}

    def _set_congestion(self) -> None:
        if self._congestion is not None:
            connections.set_congestion(self._congestion)

    def _warm_up(self, stage: Stage, tensors: Tensors) -> float:
        """Compute for nothing: first calls allocate memory and choose kernels. Seconds that the last one took."""
        for _ in range(self._device.warm_ups):
            started = time.perf_counter()
            self._device.run(stage, tensors)
        return time.perf_counter() - started

    def _example(self, takes: Layout, batch_size: int) -> Tensors:
        """Something for the stage to compute with: on the edge an input, elsewhere zeros."""
        data = self._data.get(batch_size)
        return (data.inputs[0],) if data else tuple(it.zero_() for it in wire.empty(wire.form(takes)))

    def _loaded(self) -> tuple[partitioned.Outline, ResidentStage]:
        if self._model is None or self._resident is None:
            raise Refused("no model is loaded")
        return self._model, self._resident

    def _fingerprint(self, split: _Split, position: int) -> bytes:
        graph_digest = self._loaded()[0].graph_digest
        return fingerprint(self._digest, graph_digest, split.cuts, position, split.batch_size)


def _layout(specs: Sequence[TensorSpec], batch_size: int) -> Layout:
    return tuple((spec.dtype, spec.at(batch_size)) for spec in specs)


def _answering(handler: Handler) -> Handler:
    def answer(request: dict[str, Any]) -> Any:
        try:
            with said_out_of_memory():
                return handler(request)
        except BackendError as error:  # another host's or the link's fault: no traceback of this one
            raise Refused(str(error)) from error

    return answer


def main() -> None:
    parser = argparse.ArgumentParser(prog="pareto.worker")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cpu, or cuda:N")
    parser.add_argument("--congestion", help="the congestion control of every connection")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    gc.collect()
    gc.freeze()  # what is imported stays: it need not be looked through before each trial
    gc.disable()
    try:
        if arguments.congestion is not None:
            connections.require_congestion(arguments.congestion)
        worker = Worker(device.named(arguments.device), arguments.congestion)
    except Refused as refusal:
        print(refusal, file=sys.stderr)
        sys.exit(2)
    names = [name for name in dir(Worker) if not name.startswith("_")]
    serve({name: _answering(getattr(worker, name)) for name in names})


if __name__ == "__main__":
    main()
