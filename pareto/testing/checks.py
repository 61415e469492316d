"""The checks: each is a sentence about a backend, and a function of a `Pair` that raises where it does not hold."""

from __future__ import annotations

import functools
import os
import signal
import threading
import time
from collections.abc import Callable

import torch

from pareto.protocol.constants import DTYPES
from pareto.protocol.errors import BackendError
from pareto.remote.backends.base import Tensors, identical, layout
from pareto.remote.worker import host
from pareto.testing.ends import INTERFACE, TOOK_S, Fault, Pair

CHECKS: dict[str, Callable[[Pair], None]] = {}
"""By what a backend must do."""
MANY, LARGE = 64, 64 << 20
GROWTH = 64 << 20
"""Bytes: more than allocators keep, and less than what leaks if every fourth payload does."""


def must(words: str) -> Callable[[Callable[[Pair], None]], Callable[[Pair], None]]:
    def noted(check: Callable[[Pair], None]) -> Callable[[Pair], None]:
        CHECKS[words] = check
        return check

    return noted


def numbered(number: int, count: int) -> Tensors:
    """A payload that is told by every element."""
    return (torch.full((count,), float(number)),)


def same(got: Tensors, sent: Tensors, what: str) -> None:
    """Raises Fault unless what came is what was sent, bit for bit."""
    if layout(got) != layout(sent):
        raise Fault(f"{what}: {layout(sent)} comes back as {layout(got)}")
    if not identical(got, sent):
        raise Fault(f"{what}: other bytes come back")


def refused(call: Callable[[], object], what: str) -> str:
    """The words with which a call is refused. Raises Fault where it is not."""
    try:
        call()
    except BackendError as error:
        return str(error)
    raise Fault(f"{what} is not refused")


@must("payloads of 1 B to 64 MB come as they were sent")
def sizes(pair: Pair) -> None:
    for count in (1, 3, 1000, (1 << 14) - 1, (1 << 16) + 1, 1 << 20, LARGE):
        sent = (torch.arange(count, dtype=torch.int32).view(torch.uint8)[:count].clone(),)
        pair.serve(sent)
        same(pair.asked(count, sent), sent, f"{count} B")


@must("tensors of each dtype come as they were sent")
def dtypes(pair: Pair) -> None:
    for name in DTYPES:
        dtype = getattr(torch, name)
        sent = ((torch.arange(600).reshape(20, 30) % 2).to(dtype),)
        pair.serve(sent)
        same(pair.asked(1, sent), sent, name)


@must("several tensors, scalars and empty ones come in their order")
def several(pair: Pair) -> None:
    sent = (
        torch.rand(2, 3),
        torch.tensor(7),
        torch.empty(0, 4),
        torch.rand(300, 300),
        torch.ones(1, 1, 1, 5),
    )
    pair.serve(sent)
    same(pair.asked(1, sent), sent, "five tensors")


@must("a reply stays as it is, whatever comes after it")
def kept(pair: Pair) -> None:
    for count in (3, 100_000):
        pair.serve(numbered(0, count))
        replies = [pair.asked(number, numbered(number, count)) for number in range(8)]
        for number, reply in enumerate(replies):
            same(reply, numbered(number, count), f"reply {number} of {4 * count} B, looked at after 8")


def streamed(pair: Pair, count: int, requests: int, in_flight: int, sent: Callable[[], object]) -> None:
    """Send requests of so many floats while another thread receives, and look at each reply. sent: is called after
    each. Raises Fault, BackendError."""
    faults: list[BaseException] = []
    free, asked = threading.Semaphore(in_flight), threading.Semaphore(0)

    def receive() -> None:
        try:
            for number in range(requests):
                asked.acquire()
                same(
                    pair.reply(number).tensors, numbered(number, count), f"request {number} of {4 * count} B"
                )
                free.release()
        except BaseException as fault:
            faults.append(fault)
            free.release(requests)

    thread = threading.Thread(target=receive, daemon=True)
    thread.start()
    for number in range(requests):
        free.acquire()
        if faults:
            break
        pair.client.send(number, numbered(number, count))
        asked.release()
        sent()
    thread.join()
    if faults:
        raise faults[0]


@must("a request is sent whole though its sender lets go of it")
def let_go(pair: Pair) -> None:
    for count in (10, 200_000):
        pair.serve(numbered(0, count), "slow")
        # In the memory that is free now, if the backend does not keep it.
        streamed(pair, count, 8, 8, functools.partial(torch.full, (count,), -1.0))


@must("replies come in the order of requests, with many in flight")
def order(pair: Pair) -> None:
    pair.serve(numbered(0, 75_000))
    streamed(pair, 75_000, 3 * MANY, MANY, lambda: None)


@must("a connection outlives its stage: another one has other tensors")
def stages(pair: Pair) -> None:
    pair.client.warm(1_000_000)
    for number, count in enumerate((4, 100_000, 5)):
        sent = numbered(number, count)
        pair.serve(sent)
        same(pair.asked(number, sent), sent, f"stage {number}")
    pair.client.warm(1000)


@must("a reply tells how long its stage took")
def seconds(pair: Pair) -> None:
    pair.serve(numbered(0, 100))
    for number in range(20):
        pair.client.send(number, numbered(number, 100))
        reply = pair.reply(number)
        if tuple(reply.stages_s) != (TOOK_S,) or not 0 <= reply.serialize_s < 1:
            told = f"{reply.stages_s} and {reply.serialize_s} s of serializing"
            raise Fault(f"a stage that took {TOOK_S} s is told as {told}")


@must("a stage's fault reaches who asked, in its words")
def fault(pair: Pair) -> None:
    pair.serve(numbered(0, 100), "fails")
    if "no such layer" not in (words := refused(lambda: pair.asked(1, numbered(1, 100)), "a stage's fault")):
        raise Fault(f"a stage fails by 'no such layer', and who asked reads {words!r}")


@must("a request for another stage is refused")
def another(pair: Pair) -> None:
    pair.serve(numbered(0, 100))
    pair.client.open(b"another.", layout(numbered(0, 100)))
    refused(lambda: pair.asked(1, numbered(1, 100)), "a request for another stage than the one served")


@must("a reply of another form is refused, or comes as it is")
def lies(pair: Pair) -> None:
    pair.serve(numbered(0, 100), "lies")
    try:
        got = pair.asked(1, numbered(1, 100))
    except BackendError:
        return
    same(got, (torch.zeros(7, dtype=torch.int16),), "a reply of another form")


@must("who does not know the run's token is turned away")
def token(pair: Pair) -> None:
    if not pair.name.agent:  # agents meet on a link that is trusted
        name = pair.serve(numbered(0, 100))

        def ask() -> None:
            stranger = pair.connected("another token")
            stranger.open(name, layout(numbered(0, 100)))
            stranger.send(1, numbered(1, 100))
            stranger.receive()

        refused(ask, "who has another token")


@must("the end of the far host is noticed")
def dies(pair: Pair) -> None:
    pair.serve(numbered(0, 100_000), "slow")
    for number in range(3):
        pair.client.send(number, numbered(number, 100_000))
    os.kill(pair.pid, signal.SIGKILL)

    def ask() -> None:
        for number in range(3, 3 + MANY):
            pair.client.receive()
            pair.client.send(number, numbered(number, 100_000))

    refused(ask, "the end of the far host")


@must("a far host that stalls, and one that takes little at a time, get all of it")
def stalls(pair: Pair) -> None:
    count = 4 << 20
    pair.serve(numbered(0, count))
    tensors, began = numbered(1, count), threading.Event()

    def send() -> None:
        began.set()
        pair.client.send(1, tensors)

    thread = threading.Thread(target=send, daemon=True)
    for stopped_s in (0.3, *[0.01] * 20):
        os.kill(pair.pid, signal.SIGSTOP)
        if not thread.ident:
            thread.start()
            began.wait()
        time.sleep(stopped_s)
        os.kill(pair.pid, signal.SIGCONT)
        time.sleep(0.001)
    thread.join()
    same(pair.reply(1).tensors, tensors, "16 MB to a host that stalls")


@must("memory does not grow with the requests")
def memory(pair: Pair) -> None:
    sent = numbered(1, 1 << 18)
    pair.serve(sent, "sums", gives=(torch.zeros(1, dtype=torch.float64),))
    at = []
    for number in range(400):
        pair.asked(number, sent)
        if number in (100, 399):
            at.append(host.resident_bytes() + host.resident_bytes(pair.pid))
    if (grown := at[1] - at[0]) > GROWTH:
        raise Fault(f"300 requests of 1 MB leave {grown / 1e6:.0f} MB behind")


@must("a payload crosses the link, by the interface's counter")
def crosses(pair: Pair) -> None:
    sent = (torch.randint(0, 255, (LARGE,), dtype=torch.uint8),)
    pair.serve(sent, "sums", gives=(torch.zeros(1, dtype=torch.float64),))
    before = host.interface_bytes(INTERFACE)[1]
    pair.asked(1, sent)
    crossed = host.interface_bytes(INTERFACE)[1] - before
    if crossed < LARGE:
        raise Fault(f"of a payload of {LARGE} bytes {crossed} crossed the interface")
