"""What the tests of what crosses a link share: stages, clients, and the words with which a call is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from pareto.protocol.errors import BackendError
from pareto.remote.backends.base import Layout, Tensors, fingerprint
from pareto.remote.backends.tcp import TcpClient, TcpServer

HERE = "127.0.0.1"
TOKEN = "a token"  # noqa: S105
TOOK_S = 0.125
NAME = fingerprint("weights", "graph", (3,), 1, 1)
Work = Callable[[Tensors], Tensors]


def refusal(
    call: Callable[..., object], *arguments: Any, by: type[Exception] = BackendError, **named: Any
) -> str:
    """The words with which it is refused."""
    with pytest.raises(by) as refused:
        call(*arguments, **named)
    return str(refused.value)


def each(work: Callable[[torch.Tensor], torch.Tensor]) -> Work:
    return lambda tensors: tuple(map(work, tensors))


doubled = each(lambda x: 2 * x)
cloned = each(torch.clone)


class Works:
    """A stage that does what it is told, and says that it took so long."""

    fingerprint = NAME

    def __init__(self, takes: Layout, work: Work, seconds: float = TOOK_S) -> None:
        self.takes = takes
        self.ran = 0
        self._work = work
        self._seconds = seconds

    def run(self, tensors: Tensors) -> tuple[Tensors, float]:
        self.ran += 1
        return self._work(tensors), self._seconds


def opened(server: TcpServer, stage: Works, gives: Layout, connections: int = 1) -> TcpClient:
    """A client of that stage."""
    server.serve(stage)
    client = TcpClient(HERE, server.port, TOKEN, str(connections))
    client.open(NAME, gives)
    return client
