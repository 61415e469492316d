"""Tensors over torch.distributed.rpc on TensorPipe, held to the link.

Only the uv transport and the basic channel are allowed: TensorPipe's others (shared memory, cross-memory
attach) skip the link when both ends share a machine. The agents live for the run.

RPC has no authentication of its own and unpickles what it is sent. It is bound to the data address: run it on
a link that you trust.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import TCPStore, rpc  # type: ignore[attr-defined]
from torch.distributed.rendezvous import register_rendezvous_handler

from pareto.backends.base import BackendError, Layout, Reply, Stage, Tensors

CLIENT, SERVER = "edge", "server"
WORKER_THREADS = 4
INIT_TIMEOUT_S = 60.0
CALL_TIMEOUT_S = 300.0

_stage: Stage | None = None
_computing = threading.Lock()
_rendezvous: dict[str, Callable[[], Iterator[tuple[TCPStore, int, int]]]] = {}
"""How the next `join` meets its peer; torch lets a scheme's handler be registered only once."""


def listen(address: str) -> socket.socket:
    """The socket of the rendezvous store, on the data address only (TCPStore's own choice is every address)."""
    return socket.create_server((address, 0))


def join(name: str, address: str, port: int, interface: str, listener: socket.socket | None = None) -> None:
    """Start this process's agent; returns when both are there. Raises BackendError within a minute.

    `listener` is given on the side that hosts the store, the server.
    """
    os.environ["TP_SOCKET_IFNAME"] = interface
    os.environ["GLOO_SOCKET_IFNAME"] = interface
    rank = 0 if listener is not None else 1

    def rendezvous() -> Iterator[tuple[TCPStore, int, int]]:
        # The store takes a duplicate: it closes what it is given.
        fd = os.dup(listener.fileno()) if listener is not None else None
        store = TCPStore(
            address,
            port,
            2,
            is_master=rank == 0,
            timeout=timedelta(seconds=INIT_TIMEOUT_S),
            wait_for_workers=False,
            master_listen_fd=fd,
        )
        yield store, rank, 2

    if "pareto" not in _rendezvous:
        register_rendezvous_handler(  # type: ignore[no-untyped-call]
            "pareto", lambda url, **_: _rendezvous["pareto"]()
        )
    _rendezvous["pareto"] = rendezvous
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=WORKER_THREADS,
        rpc_timeout=CALL_TIMEOUT_S,
        init_method="pareto://",
        _transports=["uv"],
        _channels=["basic"],
    )
    try:
        rpc.init_rpc(  # type: ignore[no-untyped-call]
            name, rank=rank, world_size=2, rpc_backend_options=options
        )
    except RuntimeError as error:
        raise BackendError(f"rpc did not start: {str(error).splitlines()[0]}") from error


def leave() -> None:
    """End this process's agent, so that it can `join` again."""
    rpc.shutdown(graceful=False)


class RpcClient:
    """The edge's end; `join` comes first."""

    def __init__(self) -> None:
        self._fingerprint = bytes(8)
        self._in_flight: deque[tuple[int, Any]] = deque()

    def open(self, fingerprint: bytes, takes: Layout) -> None:
        self._fingerprint = fingerprint

    def send(self, request_id: int, tensors: Tensors) -> float:
        started = time.perf_counter()
        future = rpc.rpc_async(SERVER, _run, args=(self._fingerprint, tensors))
        self._in_flight.append((request_id, future))
        return time.perf_counter() - started

    def receive(self) -> Reply:
        request_id, future = self._in_flight.popleft()
        try:
            tensors, server_s = future.wait()
        except Exception as error:  # whatever the server raised, or a RuntimeError of the agent
            raise BackendError(f"rpc: {str(error).strip().splitlines()[-1]}") from error
        return Reply(request_id, tensors, server_s, 0.0)

    def warm(self, nbytes: int) -> None:
        try:
            rpc.rpc_sync(SERVER, _swallow, args=(torch.zeros(nbytes, dtype=torch.uint8),))
        except RuntimeError as error:
            raise BackendError(f"rpc: {error}") from error

    def close(self) -> None:
        self._in_flight.clear()


class RpcServer:
    """The server's end; `join` comes first."""

    def serve(self, stage: Stage) -> None:
        global _stage
        _stage = stage

    def close(self) -> None:
        global _stage
        _stage = None


def _run(fingerprint: bytes, tensors: Tensors) -> tuple[Tensors, float]:
    """Runs on the server, in one of the agent's threads; a stage computes one request at a time."""
    stage = _stage
    if stage is None or fingerprint != stage.fingerprint:
        raise BackendError("the request is for another model or point than the one served here")
    with _computing:
        return stage.run(tensors)


def _swallow(data: torch.Tensor) -> int:
    return data.numel()
