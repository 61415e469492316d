"""The control protocol's far end: one JSON object a line on stdin and stdout. The program ends with its stdin.

A request is ``{"id": 7, "op": "apply", ...}``; its reply is ``{"id": 7, "ok": true, "result": ...}`` or ``{"id": 7,
"ok": false, "error": "..."}``. Before the reply there may be lines ``{"so_far": ...}`` of the same request
(`send_so_far`). ``{"op": "ping"}`` keeps the program alive and gets no reply. Any other line ends the program, as end
of file does. Every program that the driver starts on a host speaks this. It needs the standard library only.
"""

from __future__ import annotations

import json
import os
import queue
import reprlib
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any, BinaryIO

from pareto.protocol.errors import BackendError, UserError

Handler = Callable[[dict[str, Any]], Any]

SILENCE_LIMIT_S = 30.0
"""A driver that said nothing for this long is gone, even if its TCP connection does not know yet."""
MAX_WAITING_BYTES = 64 << 20
"""The most bytes that came in and are not answered yet, a line that has not ended included: the longest line, which
sets two traces of as many steps as there may be, has half as much."""


class Refused(Exception):
    """A request that cannot be met, for a reason the user can act on."""


class ProtocolError(Exception):
    """Input that no driver sends: one line on what is wrong."""


def serve(
    handlers: Mapping[str, Handler],
    *,
    at_end: Callable[[], None] | None = None,
    silence_limit_s: float = SILENCE_LIMIT_S,
) -> None:
    """Answer requests on stdin until it ends, SIGTERM or SIGHUP comes, or the driver falls silent; never returns.

    `handlers` run in the main thread, one at a time, in order. `at_end` runs once, on every way out but a kill, in
    whichever thread sees the end first, possibly beside a handler: it must guard what it shares.
    """
    requests: queue.SimpleQueue[tuple[dict[str, Any], int]] = queue.SimpleQueue()
    global _replies
    _replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints goes to stderr
    ending = threading.Lock()
    taken_bytes = answered_bytes = 0

    def end() -> None:
        if not ending.acquire(blocking=False):
            return
        try:
            if at_end is not None:
                at_end()
        finally:
            os._exit(0)

    def read() -> None:
        nonlocal taken_bytes
        try:
            for line in _lines(sys.stdin.fileno(), silence_limit_s):
                request = parse(line)
                if request.get("op") == "ping":
                    continue
                taken_bytes += len(line)
                if taken_bytes - answered_bytes > MAX_WAITING_BYTES:
                    raise ProtocolError("more requests wait than are answered")
                requests.put((request, len(line)))
        except ProtocolError as error:
            print(error, file=sys.stderr)
        finally:
            end()

    def end_by_signal(number: int, _: object) -> None:
        os.write(2, f"ended by {signal.Signals(number).name}\n".encode())
        threading.Thread(target=end).start()

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides; Ctrl-C reaches us as end of file
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as `nohup` leaves SIGHUP
            signal.signal(number, end_by_signal)
    threading.Thread(target=read, name="control", daemon=True).start()
    try:
        while True:
            request, size = requests.get()
            reply = answer(handlers, request)
            answered_bytes += size
            _write(reply)
    except OSError:  # nobody reads the replies any more
        pass
    finally:
        end()
        threading.Event().wait()  # where another thread is ending: it exits


def parse(line: bytes) -> dict[str, Any]:
    """The request in a line. Raises ProtocolError."""
    with suppress(ValueError, RecursionError):
        if isinstance(request := json.loads(line), dict):
            return request
    raise ProtocolError(f"not a request on stdin: {line[:200]!r}")


def answer(handlers: Mapping[str, Handler], request: dict[str, Any]) -> bytes:
    """The line that replies to a request, whatever exception its handler raises."""
    op, number = request.pop("op", None), request.pop("id", None)
    handler = handlers.get(op) if isinstance(op, str) else None
    reply: dict[str, Any]
    try:
        if handler is None:
            raise Refused(f"unknown request {reprlib.repr(op)}")
        reply = {"ok": True, "result": handler(request)}
    except (Refused, UserError, BackendError) as refusal:  # of a user's file, another host or the link, too
        reply = {"ok": False, "error": str(refusal)}
    except Exception as error:
        traceback.print_exc()
        reply = {"ok": False, "error": f"{type(error).__name__}: {error}"}
    number = number if isinstance(number, int | str) else None
    return json.dumps({"id": number, **reply}, default=plain).encode() + b"\n"


def plain(value: Any) -> dict[str, Any]:
    """A dataclass as the dict that JSON has for it. Raises TypeError for anything else."""
    if not is_dataclass(value):
        raise TypeError(f"a {type(value).__name__} is not JSON")
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _lines(fd: int, silence_limit_s: float) -> Iterator[bytes]:
    """Lines from `fd` until end of file, or until nothing came for `silence_limit_s`. Raises ProtocolError."""
    parts: list[bytes] = []
    waiting_bytes = 0
    while select.select([fd], [], [], silence_limit_s)[0]:
        part = os.read(fd, 65536)
        if not part:
            return
        *ended, rest = part.split(b"\n")
        for line in ended:
            yield b"".join([*parts, line])
            parts, waiting_bytes = [], 0
        parts.append(rest)
        waiting_bytes += len(rest)
        if waiting_bytes > MAX_WAITING_BYTES:
            raise ProtocolError(f"a line of more than {MAX_WAITING_BYTES} bytes on stdin")
    print(f"nothing heard from the driver for {silence_limit_s:g} s", file=sys.stderr)


_replies: BinaryIO | None = None
"""Where `serve` writes; None in a program that does not serve."""


def send_so_far(report: object) -> None:
    """Report how far the request is that is being answered. Its handler has not returned yet: lines do not mix."""
    _write(json.dumps({"so_far": report}, default=plain).encode() + b"\n")


def _write(line: bytes) -> None:
    if _replies is not None:
        _replies.write(line)
        _replies.flush()
