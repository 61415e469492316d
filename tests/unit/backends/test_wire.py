"""What goes over a tcp connection, byte by byte."""

from __future__ import annotations

import gc
import math
import socket
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from pareto.remote.backends import wire
from pareto.remote.backends.base import BYTES, MAX_S
from pareto.remote.backends.rpc import RpcClient
from pareto.remote.backends.wire import AHEAD, Line
from tests.unit.backends.builders import refusal


def header(
    version: int = wire.VERSION, kind: int = 1, tensors: int = 1, stages: int = 0, body: int = 16
) -> bytes:
    times = [0.0] * (wire.MAX_STAGES + 1)
    return wire.HEADER.pack(wire.MAGIC, version, kind, tensors, 1, bytes(8), stages, *times, body)


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n" + bytes(100), header(version=9), header(kind=77), header(stages=8)],
    ids=["another protocol", "another version", "unknown kind", "too many stages"],
)
def test_headers_are_checked(data: bytes, snapshot: SnapshotAssertion) -> None:
    assert refusal(wire.header, memoryview(data[: wire.HEADER.size])) == snapshot


@pytest.mark.parametrize("stages_s", [(), (0.5,), (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)])
def test_a_reply_tells_of_every_later_stage(stages_s: tuple[float, ...]) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        form = wire.form_of((torch.ones(4),))
        Line(theirs).send(wire.reply(form, 1 << 40, stages_s, 0.25))
        got = wire.header(Line(ours).head())
        assert got == wire.Header(
            wire.Kind.REPLY, 1 << 40, bytes(8), stages_s, 0.25, tensors=1, body_bytes=16
        )


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -math.inf, -1e-9, MAX_S + 1])
def test_seconds_that_cannot_be_are_refused(seconds: float, snapshot: SnapshotAssertion) -> None:
    form = wire.form_of((torch.ones(4),))
    for stages_s, serialize_s in (((0.1, seconds), 0.0), ((), seconds)):
        head = wire.reply(form, 1, stages_s, serialize_s)[: wire.HEADER.size]
        assert refusal(wire.header, memoryview(head)) == snapshot
    client = RpcClient("server")
    answered: Any = SimpleNamespace(wait=lambda: ((), (0.1, seconds), 0.0))
    client._in_flight.append((1, answered))
    assert refusal(client.receive)


def test_a_reply_tells_of_seven_later_stages_at_most(snapshot: SnapshotAssertion) -> None:
    assert refusal(wire.reply, wire.form_of((torch.ones(4),)), 1, (0.0,) * 8, 0.0) == snapshot


def test_bytes_whose_number_varies_are_as_many_as_were_expected_at_most() -> None:
    varying = wire.form(((BYTES, (10,)),))
    assert wire.cut(varying, memoryview(header(body=10))).nbytes == 10
    assert "at most 10" in refusal(wire.cut, varying, memoryview(header(body=11)))


def test_a_message_cut_short_is_not_a_quiet_end(snapshot: SnapshotAssertion) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(header()[:20])
        assert refusal(Line(ours).head) == snapshot
    ours, theirs = socket.socketpair()
    with ours:
        theirs.close()
        with pytest.raises(EOFError):
            Line(ours).head()


def test_messages_that_came_at_once_are_told_apart_and_none_is_lost() -> None:
    """Small ones and one greater than what is read ahead, each of two tensors, in one piece and byte by byte."""
    payloads = [
        (torch.rand(n), torch.arange(n, dtype=torch.int64)) for n in (3, 5, AHEAD // 8, 1, AHEAD // 64, 2)
    ]
    stream = b"".join(
        wire.reply(wire.form_of(payload), number, (), 0.0) + b"".join(map(bytes, wire.views(payload)))
        for number, payload in enumerate(payloads)
    )
    for step in (len(stream), 7919, 1):
        ours, theirs = socket.socketpair()
        with ours, theirs, ThreadPoolExecutor() as pool:
            pool.submit(lambda: [theirs.sendall(stream[i : i + step]) for i in range(0, len(stream), step)])  # noqa: B023
            line = Line(ours)
            for number, payload in enumerate(payloads):
                assert wire.header(line.head()).request_id == number
                form = wire.form_of(payload)
                got = wire.empty(form)
                line.body(form, wire.views(got))
                assert all(map(torch.equal, got, payload))


def test_only_the_number_of_a_request_is_open() -> None:
    form = wire.form_of((torch.ones(3),))
    like = wire.Likeness(b"thisone.", form)
    head = memoryview(like.numbered(1 << 50))[: wire.HEADER.size]
    assert like.number(head) == wire.header(head).request_id == 1 << 50
    other_size = wire.form_of((torch.ones(4),))
    for another in (wire.Likeness(b"another.", form), wire.Likeness(b"thisone.", other_size)):
        assert another.number(head) is None
    nothing = wire.Likeness(b"", form)
    assert nothing.number(memoryview(wire.Likeness(bytes(8), form).numbered(1))[: wire.HEADER.size]) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.uint8, torch.int16])
def test_a_view_is_the_tensors_own_memory(dtype: torch.dtype) -> None:
    tensor = torch.ones(2, 3, dtype=dtype)
    (view,) = wire.views((tensor,))
    assert len(view) == tensor.nbytes
    view[:] = bytes(len(view))
    assert not tensor.any()
    assert not bytes(wire.views((torch.empty(0, 4),))[0])


def test_views_of_any_length_leave_no_garbage() -> None:
    """With a codec that compresses each request has its own length, and garbage is not collected while it is timed."""
    gc.collect()
    for length in range(1, 200):
        wire.views((torch.empty(length),))
    assert gc.collect() < 10
