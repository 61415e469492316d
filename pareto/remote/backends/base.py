"""The one protocol that every backend implements and every measuring loop is written against.

A `Client` sends payloads to the next host's `Server`, which runs its stage on each and returns the result. Both outlive
a cell: a connection that was opened and warmed is kept for the run, and `Server.serve` changes the stage under it.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import queue
import socket
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from typing import NamedTuple, Protocol, cast

import torch
from torch import Tensor

from pareto.protocol.errors import BackendError, UserError
from pareto.protocol.messages import MAX_S, JoinAgents, Keys
from pareto.protocol.own import Own
from pareto.remote.backends.registry import BACKENDS, OWN, TOLD, parse
from pareto.remote.backends.tls import Tls

Tensors = tuple[Tensor, ...]
Layout = tuple[tuple[str, tuple[int, ...]], ...]
"""dtype name and shape of each tensor of a message, batch dimension included."""
BYTES = "bytes"
"""In place of a dtype: the message is one tensor of uint8, of any length up to its one dimension."""

_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.restype = ctypes.py_object
_view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_WRITABLE = 0x200
"""PyBUF_WRITE."""


def bytes_of(tensor: Tensor) -> memoryview:
    """A tensor's bytes, without a copy; only to be used while the tensor lives. Raises BackendError for one that is not
    contiguous in host memory."""
    if not (tensor.is_contiguous() and tensor.is_cpu):
        raise BackendError("only contiguous tensors in host memory can be sent")
    # By its address: through numpy, which knows no bfloat16, it takes four times as long; and a ctypes array has a type
    # of its own for each length, which stays until garbage is collected.
    return _at(tensor.data_ptr(), tensor.nbytes)


@functools.lru_cache(maxsize=64)
def _at(address: int, nbytes: int) -> memoryview:
    """The memory there; another tensor that lies there later has the same view."""
    view: memoryview = _view(address, nbytes, _WRITABLE)
    return view


def nbytes(tensors: Sequence[Tensor]) -> int:
    """The bytes of all tensors together."""
    return sum(tensor.nbytes for tensor in tensors)


def batches(tensors: Mapping[str, Tensor], name: str) -> tuple[Tensors, ...]:
    """The batches of a file that has the first tensor of all of them as `name0`, the second one as `name1`, ..."""
    numbered = itertools.takewhile(tensors.__contains__, (f"{name}{number}" for number in itertools.count()))
    return tuple(zip(*(tensors[each] for each in numbered), strict=True))


def check_seconds(seconds: Sequence[float]) -> None:
    """Raises BackendError for what a peer cannot have measured: NaN, negative, infinite, absurd."""
    for each in seconds:
        if not 0.0 <= each <= MAX_S:
            raise BackendError(f"the peer says that something took {each:g} s")


class Reply(NamedTuple):
    """A result, and what the later hosts' own clocks say about it.

    stages_s: how long each stage computed, in the order of the chain. serialize_s: how long threads computed to turn
    tensors into bytes; for rpc, whose answer is serialized after it is made, those of requests only. decode_s: how long
    it took here to decode a result that came encoded.
    """

    request_id: int
    tensors: Tensors
    stages_s: tuple[float, ...]
    serialize_s: float
    decode_s: float = 0.0


def check_order(reply: Reply, number: int) -> None:
    """Raises BackendError for another request's reply."""
    if reply.request_id != number:
        raise BackendError(f"the reply to request {reply.request_id} came in place of {number}")


class Stage(Protocol):
    """A served stage: what it is, what it takes, and the work itself."""

    fingerprint: bytes
    takes: Layout

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        """The outputs, and how long computing them took in seconds."""


class Client(Protocol):
    """The sending end. One thread may `send` while another `receive`s. copies: whether tensors may change as soon as
    `send` returns."""

    copies: bool

    def open(self, fingerprint: bytes, takes: Layout) -> None:
        """From now on, talk to the stage `fingerprint`, whose results have the layout `takes`."""

    def send(self, request_id: int, tensors: Tensors) -> float:
        """Send a request; returns how long this thread computed to turn tensors into bytes, without waiting. The
        tensors must stay as they are until the reply is there, unless it `copies`."""

    def receive(self) -> Reply:
        """The next reply, in the order of sending. Raises BackendError. Its tensors are the caller's: no later reply
        overwrites them."""

    def warm(self, nbytes: int) -> None:
        """Send `nbytes` that the server throws away, and wait: opens the congestion window."""

    def close(self) -> None: ...


class NoLink:
    """The client of the last point: the edge has the whole model, nothing crosses."""

    copies = False

    def __init__(self) -> None:
        self._done: queue.SimpleQueue[tuple[int, Tensors]] = queue.SimpleQueue()

    def open(self, fingerprint: bytes, takes: object) -> None: ...

    def send(self, request_id: int, tensors: Tensors) -> float:
        self._done.put((request_id, tensors))
        return 0.0

    def receive(self) -> Reply:
        request_id, tensors = self._done.get()
        return Reply(request_id, tensors, (), 0.0)

    def warm(self, nbytes: int) -> None: ...

    def close(self) -> None: ...


class Server(Protocol):
    @property
    def port(self) -> int | None:
        """The port that clients connect to; None where hosts meet by agents."""

    def serve(self, stage: Stage, onward: Client | None = None) -> None:
        """Answer requests with `stage` from now on. No request may be in flight. With `onward`, what the stage makes of
        a request goes on to the next host, whose result is the answer."""

    def close(self) -> None: ...


class Backend(Protocol):
    """A backend's module. In place of `connect` it has `join` and `leave` where each host has an agent, and all agents
    meet before there are clients. seal: encrypts every connection; only where the registry says that the backend can.
    """

    def serve(self, address: str, token: str, seal: Tls | None = None) -> Server:
        """Make this host's server, which lets in whoever knows the token."""

    def connect(self, address: str, port: int, token: str, variant: str, seal: Tls | None = None) -> Client:
        """Connect a client to the server at this port. Raises BackendError."""

    def join(self, request: JoinAgents, listener: socket.socket | None) -> Client | None:
        """Start this host's agent and return when those of all hosts are there. Raises BackendError. They meet at a
        port whose `listener` the last host has; every other one gets a client of the host behind it."""

    def leave(self) -> None:
        """End the agent, so that it can `join` again. Requests that have come are answered before."""


_own: dict[str, Backend] = {}
"""A user's own, by name, as this process was told."""


def load_own(backends: Iterable[Own]) -> None:
    """Make a user's own backends, which have this name from now on. Raises UserError."""
    _own.update((each.name, _made(each)) for each in backends)
    TOLD.update(_own)


@functools.cache
def _made(own: Own) -> Backend:
    """The backend that a user's file makes, once: a host calls the file by its digest."""
    from pareto.partitions import user_file

    make = user_file.maker(own, OWN.what)
    with own.guarded("()"):
        made: Backend = make()
    for method in ("serve", "connect"):
        if not callable(getattr(made, method, None)):
            raise UserError(f"{own.typed}: {own.attribute} has no method {method}")
    return made


def backend(name: str) -> Backend:
    """A backend by its name. Raises BackendError where this host does not have it."""
    if (known := BACKENDS.get(name)) is not None:
        try:
            return cast(Backend, import_module(known.module))
        except ModuleNotFoundError as error:
            raise BackendError(
                f"{name} needs the package {known.needs or error.name}, which this host lacks: install it"
            ) from None
    if name not in _own:
        raise BackendError(f"this host was told of no backend {name}")
    return _own[name]


def servers(address: str, token: str, keys: Keys, backends: Iterable[str]) -> dict[str, Server]:
    """A server for each of these backends, by `BackendName.server`. Raises BackendError."""
    seal, names = Tls.of(keys), map(parse, backends)
    each = {name.server: name for name in names}
    return {
        server: backend(name.name).serve(address, token, *((seal,) if name.seal else ()))
        for server, name in each.items()
    }


def fingerprint(
    model_digest: str,
    graph_digest: str,
    cuts: Sequence[int],
    position: int,
    batch_size: int,
    codec: str = "none",
    engine: str = "eager",
) -> bytes:
    """The 8 bytes that name a stage; each request carries them, so that two different models never talk. cuts: the
    points at which the model is cut. position: of the host in the chain, the edge's is 0."""
    named = f"{model_digest} {graph_digest} {list(cuts)} {position} {batch_size} {codec} {engine}"
    return sha256(named.encode()).digest()[:8]


def layout(tensors: Sequence[Tensor]) -> Layout:
    return tuple([(dtype_name(tensor.dtype), tuple(tensor.shape)) for tensor in tensors])


def identical(tensors: Tensors, others: Tensors) -> bool:
    """Whether these are the same tensors bit for bit: a NaN is itself, and -0 is not 0."""
    return layout(tensors) == layout(others) and all(
        torch.equal(one.reshape(-1).view(torch.uint8), two.reshape(-1).view(torch.uint8))
        for one, two in zip(tensors, others, strict=True)
    )


@functools.cache
def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
