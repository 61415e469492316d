"""Tensors over torch.distributed.rpc on TensorPipe, held to the link.

It uses the uv transport, and the channels that cross a network (`RPC_CHANNELS`): TensorPipe's others skip
the link when both ends share a machine. An agent has its channels for life, and is known by its host's role.

A request never keeps one of the agent's threads waiting, but for a quick stage: it goes into this host's `Pipeline` and
is answered from there. So any number can be in flight.

RPC has no authentication of its own and unpickles what it is sent: run it on a link that you trust.
"""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import TCPStore, rpc  # type: ignore[attr-defined]
from torch.distributed.rendezvous import register_rendezvous_handler

from pareto.protocol.errors import BackendError
from pareto.protocol.messages import JoinAgents
from pareto.remote.backends.base import Client, Layout, Reply, Stage, Tensors, check_seconds
from pareto.remote.backends.conversation import ANOTHER
from pareto.remote.backends.pipeline import Pipeline, Work
from pareto.remote.backends.registry import RPC_BASIC, RPC_CHANNELS, parse

INIT_TIMEOUT_S = 60.0
CALL_TIMEOUT_S = 300.0
ENDED = "EOF: ", "ENOTCONN: ", "EPIPE: "
"""How libuv begins its words for a connection that the other end has closed."""

_server: RpcServer | None = None
"""Who answers the requests that this process' agent gets."""
_Met = Iterator[tuple[TCPStore, int, int]]
_rendezvous: list[Callable[[], _Met]] = []
"""How the last `join` meets its peers; torch lets a scheme's handler be registered only once."""
register_rendezvous_handler("pareto", lambda url, **_: _rendezvous[-1]())  # type: ignore[no-untyped-call]


def join(request: JoinAgents, listener: socket.socket | None) -> RpcClient | None:
    """As in the protocol, within a minute. torch counts meetings: processes that met before cannot meet a new one."""
    role, hosts = request.role, request.hosts
    os.environ["TP_SOCKET_IFNAME"] = request.interface
    os.environ["GLOO_SOCKET_IFNAME"] = request.interface
    rank, world = len(hosts) - 1 - hosts.index(role), len(hosts)

    def rendezvous() -> _Met:
        # A socket on the data address, for TCPStore's own choice is every address; a duplicate, for it closes it.
        fd = os.dup(listener.fileno()) if listener is not None else None
        store = TCPStore(
            request.address,
            request.port,
            world,
            is_master=rank == 0,
            timeout=timedelta(seconds=INIT_TIMEOUT_S),
            wait_for_workers=False,
            master_listen_fd=fd,
        )
        yield store, rank, world

    _rendezvous[:] = [rendezvous]
    backend = parse(request.backend)
    options = rpc.TensorPipeRpcBackendOptions(
        num_worker_threads=backend.threads,
        rpc_timeout=CALL_TIMEOUT_S,
        init_method="pareto://",
        _transports=["uv"],
        _channels=[RPC_BASIC] if backend.variant == RPC_BASIC else list(RPC_CHANNELS),
    )
    try:
        rpc.init_rpc(  # type: ignore[no-untyped-call]
            role, rank=rank, world_size=world, rpc_backend_options=options
        )
    except RuntimeError as error:
        raise BackendError(f"rpc did not start: {str(error).splitlines()[0]}") from error
    return RpcClient(hosts[hosts.index(role) + 1]) if rank else None


def leave() -> None:
    if _server is not None:
        _server.finish()
    rpc.shutdown(graceful=False)


class RpcClient:
    """The end towards the next host, by its role; `join` comes first."""

    copies = False

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._fingerprint = bytes(8)
        self._in_flight: deque[tuple[int, Any]] = deque()

    def open(self, fingerprint: bytes, takes: Layout) -> None:
        self._fingerprint = fingerprint

    def send(self, request_id: int, tensors: Tensors) -> float:
        """As in the protocol. The call may keep this thread waiting while the request is already on its way: by the
        clock, that wait would be counted both here and on the link."""
        started = time.thread_time()
        try:
            future = rpc.rpc_async(self._peer, _run, args=(self._fingerprint, request_id, _alone(tensors)))
        except RuntimeError as error:
            raise self._fault(error) from error
        self._in_flight.append((request_id, future))
        return time.thread_time() - started

    def receive(self) -> Reply:
        request_id, future = self._in_flight.popleft()
        try:
            answer: _Answer = future.wait()
        except RuntimeError as error:  # the agent's
            raise self._fault(error) from error
        if isinstance(answer, str):
            raise BackendError(f"{self._peer} says: {answer}")
        tensors, stages_s, serialize_s = answer
        check_seconds([*stages_s, serialize_s])
        return Reply(request_id, tensors, stages_s, serialize_s)

    def warm(self, nbytes: int) -> None:
        try:
            rpc.rpc_sync(self._peer, len, args=(torch.zeros(nbytes, dtype=torch.uint8),))
        except RuntimeError as error:
            raise self._fault(error) from error

    def close(self) -> None:
        self._in_flight.clear()

    def _fault(self, error: Exception) -> BackendError:
        words, _, _ = str(error).strip().splitlines()[-1].partition(" (this error originated at")
        if words.startswith(ENDED):
            words = "it closed the connection"
        return BackendError(f"rpc to {self._peer}: {words}")


class RpcServer:
    """The end towards the previous host, one in a process; `join` comes first."""

    port = None

    def __init__(self, address: str = "", token: str = "") -> None:
        """As all servers are made; but this one answers whoever reaches the agent."""
        global _server
        self.served: tuple[Stage, Client | None] | None = None
        self.pipeline = Pipeline("rpc")
        _server = self

    def serve(self, stage: Stage, onward: Client | None = None) -> None:
        self.served = (stage, onward)

    def finish(self) -> None:
        """Answer everything that has come: an answer through an agent that is gone would crash the process."""
        self.served = None
        ending, self.pipeline = self.pipeline, Pipeline("rpc")
        ending.close()

    def close(self) -> None:
        global _server
        _server = None
        self.pipeline.close()


_Answer = tuple[Tensors, tuple[float, ...], float] | str
"""A result, each stage's seconds and those spent serialising. Or what went wrong: futures do not carry exceptions."""


@rpc.functions.async_execution  # type: ignore[untyped-decorator]
def _run(fingerprint: bytes, number: int, tensors: Tensors) -> torch.futures.Future[_Answer]:
    """Runs in one of the agent's threads, and is over long before its future has a value."""
    answered: torch.futures.Future[_Answer] = torch.futures.Future()
    if _server is None:
        answered.set_result("nothing is served here")
        return answered
    served = _server.served
    if served is None or fingerprint != served[0].fingerprint:
        answered.set_result(ANOTHER)
        return answered

    _server.pipeline.put(_Called(*served, answered), number, tensors)
    return answered


class _Called(Work):
    """The way of the payload of one call, whose memory is not used again."""

    def __init__(self, stage: Stage, onward: Client | None, answered: torch.futures.Future[_Answer]) -> None:
        super().__init__(stage, onward)
        self._answered = answered

    def answer(self, number: int, result: Tensors, stages_s: tuple[float, ...], serialize_s: float) -> None:
        self._answered.set_result((_alone(result), stages_s, serialize_s))

    def fail(self, text: str) -> None:
        if not self._answered.done():
            self._answered.set_result(text)


def _alone(tensors: Tensors) -> Tensors:
    """The tensors, each in memory of its own: all memory that a tensor is a part of would be sent with it."""
    return tuple(
        [each if each.untyped_storage().nbytes() == each.nbytes else each.clone() for each in tensors]
    )


serve = RpcServer
