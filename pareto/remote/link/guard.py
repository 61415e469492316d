"""Runs a program that must put things back as two processes: one works, the other guards it.

The worker reads its requests from a pipe that the guard fills from stdin, and understands none of it. At end of file,
after too long a silence, at SIGTERM or SIGHUP the guard closes the pipe, at which the worker ends by itself, or is
killed. However it ended, the guard then puts back what it left. A guard that is killed closes the pipe as well: what is
left needs both to be killed at once, and is put back by the next program of the kind.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from typing import NoReturn

from pareto.protocol.jsonlines import SILENCE_LIMIT_S

GRACE_S = 5.0
"""How long the worker may take to put back what it changed: a few requests to the kernel."""

_ENDING = (signal.SIGTERM, signal.SIGHUP)


def run(
    work: Callable[[], object],
    put_back: Callable[[], Sequence[str]],
    *,
    silence_limit_s: float = SILENCE_LIMIT_S,
    grace_s: float = GRACE_S,
) -> NoReturn:
    """Run `work` in a child process, and then `put_back` in this one; print what it did. Never returns. Must be called
    while there is only one thread. `work` must end at the end of its stdin."""
    wake, woken = os.pipe()
    os.set_blocking(wake, False)
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the worker
    ended = False

    def end(number: int, _: object) -> None:
        nonlocal ended
        ended = True
        _say(f"ended by {signal.Signals(number).name}")

    for number in _ENDING:
        if signal.getsignal(number) != signal.SIG_IGN:  # as `nohup` leaves SIGHUP
            signal.signal(number, end)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # wakes the poll
    requests, pipe = os.pipe()
    child = os.fork()
    if child == 0:
        _be_the_worker(work, requests, (wake, woken, pipe))
    os.close(requests)
    try:
        _pass_on(pipe, wake, child, silence_limit_s, grace_s, lambda: ended)
    except Exception:
        _say(traceback.format_exc())
    os.close(pipe)
    code = _wait(child, wake, grace_s)
    if code is None:
        os.kill(child, signal.SIGKILL)
        os.waitid(os.P_PID, child, os.WEXITED)
    for line in put_back():
        _say(line)
    # Last, for it is what a driver shows.
    if code is None:
        _say(f"what works hung at its end for {grace_s:g} s, and was killed")
    elif code:
        _say(
            "what works was "
            + (f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}")
        )
    os._exit(1 if code is None or code else 0)


def _be_the_worker(work: Callable[[], object], requests: int, others: Sequence[int]) -> NoReturn:
    try:
        # Who kills the guard's process group does not mean to kill whoever puts back.
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in _ENDING:
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, signal.SIG_DFL)
        os.dup2(requests, 0)
        for descriptor in (requests, *others):
            os.close(descriptor)
        work()
    except BaseException:
        _say(traceback.format_exc())
    finally:
        os._exit(1)


def _pass_on(
    pipe: int, wake: int, child: int, silence_limit_s: float, grace_s: float, ended: Callable[[], bool]
) -> None:
    """Copy stdin into the pipe until the driver is gone or silent, or the worker has ended. Never blocks: what is
    not read yet stays in stdin."""
    os.set_blocking(pipe, False)
    waiting = b""
    deadline_s = time.monotonic() + silence_limit_s
    hung_up = False
    while not ended() and _runs(child):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            _say(f"nothing heard from the driver for {silence_limit_s:g} s")
            return
        poll = select.poll()
        poll.register(wake, select.POLLIN)
        poll.register(pipe, select.POLLOUT if waiting else 0)
        if not (waiting and hung_up):
            # That the other end is closed shows before all is read that it said.
            poll.register(0, select.POLLRDHUP | (0 if waiting else select.POLLIN))
        events = dict(poll.poll(left_s * 1000 + 1))
        _drain(wake)
        try:
            if waiting and pipe in events:
                waiting = waiting[os.write(pipe, waiting) :]
            elif not waiting and 0 in events:
                waiting = os.read(0, 65536)
                if not waiting:
                    return
                deadline_s = time.monotonic() + silence_limit_s
            elif 0 in events:
                hung_up = True
                deadline_s = time.monotonic() + min(silence_limit_s, grace_s)
            elif pipe in events:
                return
        except OSError:  # either end is gone
            return


def _wait(child: int, wake: int, limit_s: float) -> int | None:
    """The child's exit code, the negative signal that ended it, or None if it has not ended in time."""
    deadline_s = time.monotonic() + limit_s
    poll = select.poll()
    poll.register(wake, select.POLLIN)
    while _runs(child):
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            return None
        poll.poll(left_s * 1000 + 1)
        _drain(wake)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _runs(child: int) -> bool:
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None


def _say(text: str) -> None:
    """Print on stderr; that nobody reads it any more is no error."""
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode(errors="replace"))


def _drain(wake: int) -> None:
    with contextlib.suppress(BlockingIOError):
        while os.read(wake, 512):
            pass
