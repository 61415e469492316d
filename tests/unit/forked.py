"""A host of a test's own: a process forked from one that has imported torch, which takes seconds."""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import socket
import sys
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

# Where a preload fails, each process imports what it needs by itself.
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(
    ["tests.unit.chain_host", "tests.unit.watched_worker", "tests.unit.simulated.worlds", "distributed"]
)


class Forked:
    """Runs `serve`, which speaks JSON lines, with these arguments; used like `tests.program.Program`."""

    def __init__(self, serve: Callable[..., None], *arguments: Any) -> None:
        self.process, self._sock = forked(serve, *arguments)
        self._replies = self._sock.makefile("rb")

    def reply(self, op: str, **fields: Any) -> dict[str, Any]:
        """All of the answer, also where the request is refused."""
        self._sock.sendall(json.dumps({"id": 1, "op": op, **fields}).encode() + b"\n")
        reply: dict[str, Any] = json.loads(self._replies.readline())
        return reply

    def result(self, op: str, **fields: Any) -> Any:
        """What was asked for. Raises AssertionError where it is refused."""
        reply = self.reply(op, **fields)
        assert reply["ok"], reply
        return reply["result"]

    def close(self) -> None:
        """End of file, as when the driver dies."""
        self._replies.close()
        self._sock.close()
        self.process.join(60)
        self.process.kill()
        self.process.join()


def forked(serve: Callable[..., None], *arguments: Any) -> tuple[BaseProcess, socket.socket]:
    """A process of its own, and the other end of its stdin and stdout."""
    ours, theirs = socket.socketpair()
    process = context.Process(target=_serve, args=(theirs, serve, *arguments), daemon=True)
    with theirs:
        process.start()
    return process, ours


def run_main(module: str, *arguments: str) -> None:
    """As `python -m module arguments...`."""
    sys.argv = [module, *arguments]
    importlib.import_module(module).main()


def _serve(control: socket.socket, serve: Callable[..., None], *arguments: Any) -> None:
    for standard in (0, 1):
        os.dup2(control.fileno(), standard)
    control.close()
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    serve(*arguments)
