"""The driver's end of the control protocol (`pareto.protocol.jsonlines`): requests to one program, and its replies.

Whatever the program sends: what a session returns is JSON of bounded size that was requested, its texts can be shown,
and a program that sends anything else is as good as lost.
"""

from __future__ import annotations

import functools
import itertools
import json
import math
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakSet

from pareto.basics.escaping import short, terminal
from pareto.protocol.jsonlines import plain
from pareto.protocol.messages import Request
from pareto.protocol.trial_messages import Progress
from pareto.protocol.validation import read

BLOCK_BYTES = 1 << 18
HEARTBEAT_S = 5.0
MEANWHILE_S = 1.0
MOST_LINE_BYTES = 16 << 20
"""The most bytes of a reply. The longest, of a trial's sensors or of its requests, has one or two MB."""
MOST_DEPTH = 32
"""The most levels of values within values in a reply."""
MOST_WORDS = 1000
"""Letters of what a program says is wrong."""


class SessionError(Exception):
    """The program answered a request with an error."""


class SessionLost(Exception):
    """The program or the connection to it is gone, or it sends nonsense; no more requests can be made."""


R = TypeVar("R")
_CONSTANTS = {"Infinity": math.inf}
"""Some figures may be infinite (`messages.LineRate`); none may be NaN."""
_open: WeakSet[Session] = WeakSet()
_opening = threading.Lock()


@dataclass(frozen=True)
class Pending(Generic[R]):
    """The number of a request that was sent, whose report is an R."""

    number: int


class Command(Protocol):
    """A running command, whose streams block. last_words: those on its stderr, if they can be had."""

    last_words: Callable[[], str] = str

    def write(self, block: bytes) -> int:
        """Give the command input; returns how many bytes it took, 0 where it takes no more."""

    def send(self, data: bytes, moved: Callable[[], None] = lambda: None) -> None:
        """Give the command all of it; `moved` is called after each part. Raises BrokenPipeError."""
        view = memoryview(data)
        while view:
            if (count := self.write(bytes(view[:BLOCK_BYTES]))) == 0:
                raise BrokenPipeError("the connection is lost")
            moved()
            view = view[count:]

    def end_input(self) -> None: ...

    def read(self, timeout_s: float | None = None) -> bytes:
        """Some bytes of stdout; empty at its end. Raises TimeoutError."""

    def read_errors(self) -> bytes:
        """Some bytes of stderr; empty at its end."""

    def wait(self, timeout_s: float) -> int | None:
        """The exit status; None where the command still runs after `timeout_s`. Raises Unreachable."""

    def close(self) -> None:
        """Let the command end by the end of its input; on this machine it is waited for."""

    def kill(self) -> None:
        """End the command where it still runs, so that no other method blocks any more."""


class Session:
    """Requests to one program, answered in order. While it is open the program hears at an interval that we live."""

    def __init__(self, name: str, program: Command) -> None:
        self.name = name
        self._program = program
        self._ids = itertools.count(1)
        self._pending = b""
        self._unanswered: dict[int, tuple[str, Any]] = {}
        """By number, of each request that has no reply yet: its operation, and the type of its report."""
        self._replies: dict[int, tuple[str, Any, dict[str, Any]]] = {}
        self.progress: Progress | None = None
        """The program's last report on the request that it is answering."""
        self._writing = threading.Lock()
        self._loss: SessionLost | None = None
        with _opening:
            _open.add(self)
        _heartbeat()

    def ask(self, request: Request[R], timeout_s: float = 30.0) -> R:
        """The report on a request. Raises SessionError, SessionLost, TimeoutError."""
        return self.report(self.post(request), timeout_s)

    def post(self, request: Request[R]) -> Pending[R]:
        """Send a request; what is returned goes to `report`."""
        return self.send(request.op, request.report, **plain(request))

    def request(self, op: str, timeout_s: float = 30.0, **fields: Any) -> Any:
        """As `ask`, of a program whose requests are not declared in `messages`: the reply as it came."""
        return self.report(self.send(op, **fields), timeout_s)

    def send(self, op: str, report: Any = Any, /, **fields: Any) -> Pending[Any]:
        """As `post`, of such a program. report: its type."""
        number = next(self._ids)
        self.progress = None
        self._unanswered[number] = op, report
        self._write({"id": number, "op": op, **fields})
        return Pending(number)

    def report(
        self, pending: Pending[R], timeout_s: float = 30.0, meanwhile: Callable[[], None] | None = None
    ) -> R:
        """The report on a request that was sent; `meanwhile` is called about once a second until it is there."""
        now = time.monotonic()
        deadline, next_s = now + timeout_s, now + MEANWHILE_S
        while pending.number not in self._replies:
            self.check()
            if meanwhile is None or deadline < next_s:
                self._read(deadline)
                continue
            with suppress(TimeoutError):
                self._read(next_s)
            if time.monotonic() >= next_s and pending.number not in self._replies:
                meanwhile()
                next_s = time.monotonic() + MEANWHILE_S
        op, kind, reply = self._replies.pop(pending.number)
        if not reply["ok"]:
            raise SessionError(f"{self.name}: {short(reply['error'], MOST_WORDS)}")
        try:
            report: R = read(kind, reply["result"])
        except ValueError as error:
            raise SessionError(f"{self.name}: its report on {op} cannot be: {error}") from None
        return report

    def ping(self) -> None:
        """Tell the program that the driver lives; a lost session is noticed by the next request."""
        try:
            self._write({"op": "ping"})
        except SessionLost as lost:
            self._loss = lost

    def check(self) -> None:
        """Raise SessionLost if the session is known to be lost."""
        if self._loss is not None:
            raise self._loss

    def close(self) -> None:
        with _opening:
            _open.discard(self)
        self._program.close()

    def _write(self, message: dict[str, Any]) -> None:
        with self._writing:
            try:
                self._program.send(json.dumps(message, default=plain).encode() + b"\n")
            except OSError as error:
                raise self._lost() from error

    def _read(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"{self.name} did not answer in time")
        try:
            part = self._program.read(left)
        except TimeoutError:
            raise TimeoutError(f"{self.name} did not answer in time") from None
        except OSError as error:
            raise self._lost() from error
        if not part:
            raise self._lost()
        *lines, self._pending = (self._pending + part).split(b"\n")
        try:
            if max(map(len, (*lines, self._pending))) > MOST_LINE_BYTES:
                raise ValueError(f"a line of more than {MOST_LINE_BYTES >> 20} MB")
            for line in lines:
                number, reply = _parsed(line)
                if number is None:
                    self.progress = read(Progress, reply)
                    continue
                if number not in self._unanswered:
                    raise ValueError(f"a reply to no request: {_excerpt(line)}")
                self._replies[number] = (*self._unanswered.pop(number), reply)
        except ValueError as error:
            self._pending = b""
            self._replies.clear()
            self._loss = SessionLost(f"{self.name} sends what is no reply: {error}")
            raise self._loss from None

    def _lost(self) -> SessionLost:
        words = self._program.last_words().strip().splitlines()
        return SessionLost(f"{self.name} ended" + (f": {short(words[-1], MOST_WORDS)}" if words else ""))


def _parsed(line: bytes) -> tuple[int | None, dict[str, Any]]:
    """A reply and its request's number; without one, a report before the reply. Raises ValueError, in one line."""
    try:
        reply = _shown(json.loads(line, parse_constant=_CONSTANTS.__getitem__))
    except (KeyError, ValueError, RecursionError):
        raise ValueError(_excerpt(line)) from None
    match reply:
        case {"id": int(number), "ok": True, "result": _} | {"id": int(number), "ok": False, "error": str()}:
            if not isinstance(number, bool):
                return number, reply
        case {"so_far": dict(report)}:
            return None, report
    raise ValueError(_excerpt(line))


def _excerpt(line: bytes) -> str:
    return short(line[:100].decode(errors="replace"))


def _shown(value: Any, depth: int = 0) -> Any:
    """The same value, with texts made safe for a terminal. Raises ValueError where it is nested too deep."""
    if depth > MOST_DEPTH:
        raise ValueError
    if isinstance(value, str):
        return terminal(value)
    if isinstance(value, list):
        return [_shown(part, depth + 1) for part in value]
    if isinstance(value, dict):
        return {terminal(key): _shown(part, depth + 1) for key, part in value.items()}
    return value


def ping_all() -> None:
    """Ping every session that is open."""
    with _opening:
        sessions = list(_open)
    for session in sessions:
        session.ping()


@functools.cache
def _heartbeat() -> None:
    """Start the thread that pings every session at an interval."""

    def beat() -> None:
        while not threading.Event().wait(HEARTBEAT_S):
            ping_all()

    threading.Thread(target=beat, name="heartbeat", daemon=True).start()


class Programs(dict[str, Session]):
    """One program on each of several hosts, by role: asked together, ended together."""

    def ask_all(self, requests: Mapping[str, Request[R]], timeout_s: float = 30.0) -> dict[str, R]:
        """By role, the reports of these programs, asked at the same time."""
        pending = {role: self[role].post(request) for role, request in requests.items()}
        return {role: self[role].report(each, timeout_s) for role, each in pending.items()}

    def close(self) -> None:
        """End all of them; others may be started in their place."""
        while self:
            self.popitem()[1].close()
