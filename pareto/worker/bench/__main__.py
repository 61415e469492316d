"""`python -m pareto.worker.bench`: one end of `bench transport`, told what to do over `pareto.jsonlines`.

The near end sends and measures, the far end takes and answers. A way is floor, naive, asyncio, tcp or rpc; of the last
two also a variant, such as tcp:4.

- `facts`: what this host is
- `listen` address, token, ways (far): the port of each way
- `connect` address, token, ports by way (near): a connection of each
- `rendezvous` address (far): the port of a new rpc store
- `join_rpc` way, name, hosts, address, port, interface, threads: both agents meet
- `expect` way, nbytes, count, kept (far): get ready, and count processor time from here
- `taken` (far): of the last order: processor time since, payloads that came, whether the last was as it should be
- `trips` way, nbytes, count, interface (near): seconds of so many round trips; bytes that the interface sent
- `stream` way, nbytes, count, in_flight, interface (near): so many in a row; bytes that the interface sent
- `busy` share: hold the interpreter's lock for that share of the time

Processor time is of the whole process, both in the kernel and out of it, in seconds.
"""

from __future__ import annotations

import argparse
import gc
import os
import socket
import statistics
import sys
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from pareto.backends import names, rpc
from pareto.backends.tcp import TcpClient, TcpServer
from pareto.jsonlines import Refused, serve
from pareto.worker import host
from pareto.worker.bench.backends import ClientNear, ServerFar
from pareto.worker.bench.busy import Busy
from pareto.worker.bench.event_loop import LoopFar, LoopNear
from pareto.worker.bench.sockets import FloorFar, FloorNear, NaiveFar, NaiveNear
from pareto.worker.bench.way import Far, Near, Order, payload

_FAR = {"floor": FloorFar, "naive": NaiveFar, "asyncio": LoopFar}
_NEAR: dict[str, Callable[[str, int, str], Near]] = {
    "floor": FloorNear,
    "naive": NaiveNear,
    "asyncio": LoopNear,
}


class End:
    """One end of every way; each public method answers one request."""

    def __init__(self) -> None:
        self._near: dict[str, Near] = {}
        self._far: dict[str, Far] = {}
        self._ordered: tuple[Far, Order, float] | None = None
        self._rpc_store: socket.socket | None = None
        self._busy: Busy | None = None

    def facts(self, request: dict[str, Any]) -> dict[str, Any]:
        return {**host.facts(), "switch_interval_s": sys.getswitchinterval()}

    def listen(self, request: dict[str, Any]) -> dict[str, int]:
        address, token = request["address"], request["token"]
        ports = {}
        for way in request["ways"]:
            family = way.partition(names.SEPARATOR)[0]
            if family == "tcp":
                server = TcpServer(address, token)
                self._far[way], ports[way] = ServerFar(server), server.port
            elif family == "rpc":
                self._far[way] = ServerFar(rpc.RpcServer())
            else:
                listener = _FAR[way](address, token)
                self._far[way], ports[way] = listener, listener.port
        return ports

    def connect(self, request: dict[str, Any]) -> None:
        address, token = request["address"], request["token"]
        for way, port in request["ports"].items():
            if way.partition(names.SEPARATOR)[0] == "tcp":
                connections = names.parse(way).connections
                self._near[way] = ClientNear(TcpClient(address, port, token, connections))
            else:
                self._near[way] = _NEAR[way](address, port, token)

    def rendezvous(self, request: dict[str, Any]) -> int:
        self._rpc_store = rpc.listen(request["address"])
        return int(self._rpc_store.getsockname()[1])

    def join_rpc(self, request: dict[str, Any]) -> None:
        way, name, hosts = request["way"], request["name"], request["hosts"]
        rpc.join(
            name,
            hosts,
            request["address"],
            request["port"],
            request["interface"],
            self._rpc_store,
            variant=names.parse(way).variant,
            threads=request["threads"],
        )
        for behind in hosts[hosts.index(name) + 1 :]:
            self._near[way] = ClientNear(rpc.RpcClient(behind))

    def expect(self, request: dict[str, Any]) -> None:
        order = Order(**{key: request[key] for key in ("nbytes", "count", "kept")})
        far = self._far[request["way"]]
        gc.collect()
        far.expect(order)
        self._ordered = far, order, time.process_time()

    def taken(self, request: dict[str, Any]) -> dict[str, Any]:
        now = time.process_time()
        if self._ordered is None:
            raise Refused("nothing was expected")
        far, order, since = self._ordered
        count, last = far.taken()
        same = torch.equal(last, _payload(order.nbytes)) if last is not None else None
        return {"cpu_s": now - since, "count": count, "same": same}

    def trips(self, request: dict[str, Any]) -> dict[str, Any]:
        near, interface = self._begun(request), request["interface"]
        _, before = host.interface_bytes(interface)
        seconds = near.trips(request["count"])
        _, after = host.interface_bytes(interface)
        return {
            "median_s": statistics.median(seconds),
            "mean_s": statistics.fmean(seconds),
            "sent_bytes": after - before,
        }

    def stream(self, request: dict[str, Any]) -> dict[str, Any]:
        near, interface = self._begun(request), request["interface"]
        _, before = host.interface_bytes(interface)
        cpu, started = time.process_time(), time.perf_counter()
        near.stream(request["count"], request["in_flight"])
        seconds, cpu_s = time.perf_counter() - started, time.process_time() - cpu
        return {"seconds": seconds, "cpu_s": cpu_s, "sent_bytes": host.interface_bytes(interface)[1] - before}

    def busy(self, request: dict[str, Any]) -> None:
        if self._busy is None:
            self._busy = Busy()
        self._busy.set(request["share"])

    def _begun(self, request: dict[str, Any]) -> Near:
        near = self._near[request["way"]]
        near.begin(_payload(request["nbytes"]))
        gc.collect()
        return near


@cache
def _payload(nbytes: int) -> Tensor:
    return payload(nbytes)


def main() -> None:
    parser = argparse.ArgumentParser(prog="pareto.worker.bench")
    parser.add_argument("--core", type=int, help="run on this core, if that is allowed")
    core = parser.parse_args().core
    if core is not None:
        try:
            os.sched_setaffinity(0, {core})
        except OSError as error:
            print(f"core {core}: {error}", file=sys.stderr)  # `facts` tells where it runs instead
    torch.set_num_threads(1)
    end = End()
    # What is there now stays: looking through it each time would take longer than many a sample.
    gc.collect()
    gc.freeze()
    gc.disable()
    serve({name: getattr(end, name) for name in dir(End) if not name.startswith("_")})


if __name__ == "__main__":
    main()
