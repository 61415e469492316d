"""The control protocol's far end: one JSON object a line on stdin and stdout, life tied to stdin.

A request is ``{"id": 7, "op": "apply", ...}``; its reply is ``{"id": 7, "ok": true, "result": ...}`` or
``{"id": 7, "ok": false, "error": "..."}``. ``{"op": "ping"}`` keeps the program alive and gets no reply.

Every program the driver starts on a host speaks this: worker, link helper, relay, testbed. It travels to the
hosts with them and needs the standard library only.
"""

from __future__ import annotations

import json
import os
import queue
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

Handler = Callable[[dict[str, Any]], Any]

SILENCE_LIMIT_S = 30.0
"""A driver that said nothing for this long is gone, even if its TCP connection does not know yet."""


class Refused(Exception):
    """A request that cannot be met, for a reason the user can act on: reported without a traceback."""


def serve(
    handlers: Mapping[str, Handler],
    *,
    at_end: Callable[[], None] | None = None,
    silence_limit_s: float = SILENCE_LIMIT_S,
) -> None:
    """Answer requests on stdin until it ends, SIGTERM or SIGHUP comes, or the driver falls silent; never returns.

    `handlers` run in the main thread, one at a time, in order. `at_end` runs once, in whichever thread sees
    the end first, possibly beside a handler: it must guard what it shares.
    """
    requests: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    replies = _private_stdout()
    ending = threading.Lock()

    def end() -> None:
        if not ending.acquire(blocking=False):
            return
        try:
            if at_end is not None:
                at_end()
        finally:
            os._exit(0)

    def read() -> None:
        try:
            for line in _lines(sys.stdin.fileno(), silence_limit_s):
                request = json.loads(line)
                if request.get("op") != "ping":
                    requests.put(request)
        except ValueError:
            print(f"not a JSON line on stdin: {line!r:.200}", file=sys.stderr)
        finally:
            end()

    def end_by_signal(number: int, _: object) -> None:
        os.write(2, f"ended by {signal.Signals(number).name}\n".encode())
        threading.Thread(target=end).start()

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides; Ctrl-C reaches us as end of file
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end_by_signal)
    threading.Thread(target=read, name="control", daemon=True).start()
    while True:
        request = requests.get()
        reply = json.dumps({"id": request.get("id"), **_answer(handlers, request)})
        try:
            _write_all(replies, reply.encode() + b"\n")
        except OSError:
            end()


def _answer(handlers: Mapping[str, Handler], request: dict[str, Any]) -> dict[str, Any]:
    op = request.pop("op", None)
    request.pop("id", None)
    handler = handlers.get(op or "")
    if handler is None:
        return {"ok": False, "error": f"unknown request {op!r}"}
    try:
        return {"ok": True, "result": handler(request)}
    except Refused as refusal:
        return {"ok": False, "error": str(refusal)}
    except Exception as error:
        traceback.print_exc()
        return {"ok": False, "error": f"{type(error).__name__}: {error}"}


def _lines(fd: int, silence_limit_s: float) -> Any:
    """Lines from `fd` until end of file, or until nothing came for `silence_limit_s`."""
    pending = b""
    while select.select([fd], [], [], silence_limit_s)[0]:
        part = os.read(fd, 65536)
        if not part:
            return
        *lines, pending = (pending + part).split(b"\n")
        yield from lines
    print(f"nothing heard from the driver for {silence_limit_s:g} s", file=sys.stderr)


def _private_stdout() -> int:
    """Keep stdout for replies; whatever a library prints goes to stderr."""
    replies = os.dup(1)
    os.dup2(2, 1)
    return replies


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
