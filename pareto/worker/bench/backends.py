"""`tcp` and `rpc`: the project's backends as a sweep uses them, with a stage that computes nothing."""

from __future__ import annotations

import torch
from torch import Tensor

from pareto.backends.base import BackendError, Client, Layout, Server, Tensors, layout
from pareto.worker.bench.way import ANSWER, Order, timed

_RESULT = (torch.frombuffer(bytearray(ANSWER), dtype=torch.float32),)


class ClientNear:
    """One thread, which sends as long as it may and then waits for an answer for each payload more."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._tensors: Tensors = ()

    def begin(self, payload: Tensor) -> None:
        self._tensors = (payload,)
        self._client.open(_fingerprint(payload.nbytes), layout(_RESULT))

    def trips(self, count: int) -> list[float]:
        return timed(self._trip, count)

    def stream(self, count: int, in_flight: int) -> None:
        for number in range(count):
            if number >= in_flight:
                self._client.receive()
            self._client.send(number, self._tensors)
        for _ in range(min(count, in_flight)):
            self._client.receive()

    def close(self) -> None:
        self._client.close()

    def _trip(self) -> None:
        self._client.send(0, self._tensors)
        (result,) = self._client.receive().tensors
        if result.nbytes != len(ANSWER):
            raise BackendError(f"an answer of {result.nbytes} bytes came in place of {len(ANSWER)}")


class ServerFar:
    """A server whose stage takes what is expected and makes the same four bytes of it."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stage = _Answering(0)

    def expect(self, order: Order) -> None:
        if order.nbytes != self._stage.nbytes:
            self._stage = _Answering(order.nbytes)
            self._server.serve(self._stage)
        self._stage.begin(order)

    def taken(self) -> tuple[int, Tensor | None]:
        return self._stage.count, self._stage.last

    def close(self) -> None:
        self._server.close()


class _Answering:
    """A `Stage`. It counts, and keeps the last payload's tensor where that is wanted."""

    def __init__(self, nbytes: int) -> None:
        self.fingerprint = _fingerprint(nbytes)
        self.takes: Layout = (("uint8", (nbytes,)),)
        self.nbytes = nbytes
        self.begin(Order(nbytes, 0))

    def begin(self, order: Order) -> None:
        self.count = 0
        self.last: Tensor | None = None
        self._kept = order.kept

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        self.count += 1
        if self._kept:
            self.last = tensors[0].clone()  # its memory is used again
        return _RESULT, 0.0


def _fingerprint(nbytes: int) -> bytes:
    return nbytes.to_bytes(8, "big")
