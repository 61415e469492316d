"""TLS over a connection: version 1.3, one cipher, both ends pinned to one certificate, no tickets.

What crosses arrives, and what was touched on its way never does.
"""

from __future__ import annotations

import itertools
import random
import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import torch
from syrupy.assertion import SnapshotAssertion

from pareto.protocol.errors import BackendError
from pareto.remote.backends import handshake, wire
from pareto.remote.backends.base import Tensors, layout
from pareto.remote.backends.registry import CIPHER
from pareto.remote.backends.stripes import Stripes
from pareto.remote.backends.tcp import TcpClient, TcpServer
from pareto.remote.backends.tls import Tampered, TlsSocket
from tests import REPOSITORY
from tests.program import wait_until
from tests.unit.backends import builders
from tests.unit.backends.builders import HERE, NAME, TOKEN, Change, Proxy, Works, refusal, requests_for, seal
from tests.unit.backends.test_fuzzed import spoiled

pytestmark = pytest.mark.usefixtures("one_thread")

HELLO = 4096
"""More than all that crosses one way before the first request."""
Ends = tuple[TlsSocket, TlsSocket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    with builders.ends() as made:
        yield made


def take(end: TlsSocket, count: int) -> bytes:
    room = memoryview(bytearray(count))
    return bytes(room[: end.recv_into(room, 0, socket.MSG_WAITALL)])


@pytest.mark.parametrize("size", [1, 100, 16_384, 65_536, 65_637, 1_000_001])
def test_what_is_sent_arrives_both_ways_at_once(ends: Ends, size: int) -> None:
    there, back = random.Random(1).randbytes(size), random.Random(2).randbytes(size)  # noqa: S311
    client, server = ends

    def send(end: TlsSocket, data: bytes) -> None:
        wire.Line(end).send(data[:100], [memoryview(data)[100:]])

    with ThreadPoolExecutor() as pool:
        sending = [pool.submit(send, client, there), pool.submit(send, server, back)]
        coming = [pool.submit(take, server, size), pool.submit(take, client, size)]
        assert [each.result() for each in coming] == [there, back]
        assert [each.result() for each in sending] == [None, None]
        client.shutdown(socket.SHUT_WR)
        assert take(server, 1) == b""


@contextmanager
def served(payload: Tensors) -> Iterator[TcpServer]:
    with closing(TcpServer(HERE, TOKEN, seal())) as server:
        server.serve(Works(layout(payload), builders.cloned))
        yield server


@contextmanager
def between(
    payload: Tensors, out: Change | None, back: Change | None, connections: int = 1
) -> Iterator[tuple[TcpClient, Proxy]]:
    """A client whose requests, which are like this payload, cross a proxy and come back as they are."""
    with (
        served(payload) as server,
        closing(Proxy(server.port, out, back)) as proxy,
        closing(TcpClient(HERE, proxy.port, TOKEN, str(connections), seal())) as client,
    ):
        client.open(NAME, layout(payload))
        yield client, proxy


def test_nothing_crosses_in_the_clear_and_nothing_twice_alike() -> None:
    secret, seen, later = b"the same words again and again " * 8000, list[bytes](), list[bytes]()

    def watch(data: bytes, before: int) -> bytes:
        seen.append(data)
        later.extend([data] if before > HELLO else [])
        return data

    payload = (torch.frombuffer(bytearray(secret), dtype=torch.uint8),)
    for number in range(2):
        with between(payload, watch, watch) as (ours, _):
            ours.send(number, payload)
            assert torch.equal(ours.receive().tensors[0], payload[0])
    crossed = b"".join(seen)
    assert len(crossed) > 4 * len(secret)
    assert b"again and again" not in crossed and wire.MAGIC not in crossed
    blocks = [part[begin : begin + 16] for part in later for begin in range(0, len(part) - 16, 7)]
    assert len(blocks) > 1000
    assert len(set(blocks)) == len(blocks)


def flipped(data: bytes, before: int) -> bytes:
    """One bit of what crosses after the handshake."""
    at = HELLO + 40_000 - before
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] if 0 <= at < len(data) else data


def halves_swapped(data: bytes, before: int) -> bytes:
    return data[len(data) // 2 :] + data[: len(data) // 2] if before > HELLO else data


def twice() -> Change:
    seen: list[bytes] = []

    def change(data: bytes, before: int) -> bytes:
        if before > HELLO and not seen:
            seen.append(data)
            return data + data
        return data

    return change


CHANGES: dict[str, Callable[[], Change]] = {
    "flipped": lambda: flipped,
    "left out": lambda: lambda data, before: data[:100] + data[1100:] if before > HELLO else data,
    "twice": twice,
    "swapped": lambda: halves_swapped,
}


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("way", CHANGES)
@pytest.mark.parametrize("towards", ["server", "edge"])
def test_tampering_ends_in_a_fault(
    connections: int, way: str, towards: str, snapshot: SnapshotAssertion
) -> None:
    """Towards the server it tells the edge, or hangs up; in no case do other tensors come than were sent."""
    change = CHANGES[way]()
    payload = (torch.randint(0, 255, (300_000,), dtype=torch.uint8),)

    def ask(ours: TcpClient) -> None:
        for number in range(4):
            ours.send(number, payload)
            assert torch.equal(ours.receive().tensors[0], payload[0])

    out, back = (change, None) if towards == "server" else (None, change)
    with between(payload, out, back, connections) as (ours, _):
        fault = refusal(ask, ours)
    assert "\n" not in fault
    if connections == 1 and way == "flipped":
        assert fault == snapshot


def test_a_cut_connection_is_no_result() -> None:
    def cut(data: bytes, before: int) -> bytes:
        if before > HELLO:
            raise OSError
        return data

    payload = (torch.ones(30_000),)
    with between(payload, None, cut) as (ours, proxy):
        ours.send(0, payload)
        proxy.close()
        refusal(ours.receive)


def test_after_a_fault_nothing_is_handed_out_and_what_cannot_be_sent_is_said_in_words(ends: Ends) -> None:
    """A host prints it, and OpenSSL's words would be `EOF occurred in violation of protocol (_ssl.c:2427)`."""
    near, far = ends
    near.beneath.sendall(bytes([23, 3, 3, 0, 40]) + bytes(200))  # what looks like a record of either
    near.sendmsg([memoryview(b"right")])
    for _ in range(2):
        with pytest.raises(Tampered):
            take(far, 5)
    with pytest.raises(BrokenPipeError) as refused:
        far.sendmsg([memoryview(b"a")])
    assert refused.value.strerror == "its TLS has ended"


def test_other_keys_or_none_are_turned_away(snapshot: SnapshotAssertion) -> None:
    """TLS says more at first than a header has; for the rest of a shorter hello a server waits until time is up."""
    with served((torch.ones(3),)) as server:
        assert refusal(TcpClient, HERE, server.port, TOKEN, "", builders.other_seal()) == snapshot
    with closing(TcpServer(HERE, TOKEN)) as server:
        assert refusal(TcpClient, HERE, server.port, TOKEN, "", seal())


def test_who_has_the_token_and_no_keys_gets_no_answer() -> None:
    """A plain client at an encrypting server, as a man in the middle who passes on a handshake would be."""
    payload = (torch.ones(3),)
    with served(payload) as server, handshake.connected(HERE, server.port, TOKEN) as sock:
        sock.settimeout(30)
        sock.sendall(requests_for(NAME, wire.form(layout(payload))).numbered(0) + bytes(12))
        sock.shutdown(socket.SHUT_WR)
        while came := sock.recv(1000):
            assert wire.MAGIC not in came
    stage, _ = server.served or (None, None)
    assert isinstance(stage, Works)
    assert not stage.ran


def test_fuzzed_records(cases: int) -> None:
    """What comes of a stream that was changed anywhere is its beginning, and then a fault or the end."""
    for case in range(cases // 50):
        chance = random.Random(f"sealed {case}")  # noqa: S311
        sent = [chance.randbytes(chance.choice((1, 50, 3000, 20_000))) for _ in range(chance.randrange(1, 5))]
        with builders.ends() as (near, far):
            sealed = [near._seal([memoryview(data)]) for data in sent]
            assert [taken for taken, _ in sealed] == [*map(len, sent)]
            records = [bytes(out) for _, out in sealed]
            stream = spoiled(records, chance)
            near.beneath.settimeout(30)
            for begin in range(0, len(stream), 7000):
                near.beneath.sendall(stream[begin : begin + 7000])
            near.beneath.shutdown(socket.SHUT_WR)
            whole, got = b"".join(sent), bytearray()
            try:
                room = memoryview(bytearray(chance.choice((1, 100, 16_384, 70_000))))
                while came := far.recv_into(room):
                    got += room[:came]
            except Tampered as fault:
                assert "\n" not in str(fault)
            assert whole.startswith(got), f"case {case}"
            if stream == b"".join(records):
                assert whole == got, f"case {case}"


@pytest.mark.timeout(30)
def test_stripes_begin_with_what_came_with_the_handshake(ends: Ends) -> None:
    """It is decrypted, or waits to be: the kernel, which is asked what has come, knows nothing of it."""
    near, far = ends
    near.sendmsg([memoryview(b"ok")])
    head = wire.message(wire.Kind.WARM, 0)
    Stripes([near]).send(head)
    assert wait_until(lambda: len(far.beneath.recv(1 << 16, socket.MSG_PEEK)) >= len(head) + 2 * 20)
    assert take(far, 2) == b"ok"
    assert Stripes([far]).head() == head


def test_a_socket_that_does_not_block_loses_nothing(ends: Ends) -> None:
    """Stripes: what was encrypted and did not leave yet is sent when the same parts come again."""
    data = random.Random(3).randbytes(3_000_000)  # noqa: S311
    near, far = ends
    for end in ends:
        end.setblocking(False)
    left, got, waits = memoryview(data), bytearray(), itertools.count()
    while len(got) < len(data):
        try:
            left = left[near.sendmsg([left[:16_000]]) :] if left else left
        except BlockingIOError:
            next(waits)
        for _ in range(2 if next(waits) % 3 == 0 else 0):
            room = [memoryview(bytearray(10)), memoryview(bytearray(30_000))]
            try:
                came = far.recvmsg_into(room)[0]
            except BlockingIOError:
                break
            got += b"".join(room)[:came]
    assert got == data


def test_it_is_tls_1_3_with_the_documents_cipher_and_no_key_on_disk_nor_ticket_on_the_way(
    ends: Ends, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session ticket would be read, and charged, with the first reply."""
    for end in ends:
        assert end._tls.version() == "TLSv1.3"
        assert (end._tls.cipher() or ("",))[0] == CIPHER
        assert not end._tls.compression()
    assert CIPHER in (REPOSITORY / "docs" / "security.md").read_text()
    client, server = ends
    client.beneath.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.beneath.recv(1)
    server.sendmsg([memoryview(b"a")])
    client.beneath.setblocking(True)
    assert len(client.beneath.recv(1000)) == 5 + 1 + 1 + 16
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with builders.ends():
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shown", ["none", "another", "an older version"])
def test_a_client_without_the_runs_certificate_and_version_is_turned_away(shown: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if shown == "another":
        context = builders.other_seal()._contexts[False]
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if shown == "an older version":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    client, server = builders.connected()
    with client, server, ThreadPoolExecutor(1) as pool:
        far = pool.submit(seal().sealed, server, server=True)
        with (
            pytest.raises(OSError, match=r"(?i)ALERT|EOF|reset|version"),
            context.wrap_socket(client) as ours,
        ):
            ours.recv(1)
        with pytest.raises(BackendError, match="no TLS"):
            far.result()
