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
from pareto.remote.backends.tls import AT_ONCE, Tampered, TlsSocket, pieces
from tests import REPOSITORY
from tests.program import wait_until
from tests.unit.backends.builders import HERE, NAME, TOKEN, Works, cloned, refusal
from tests.unit.backends.seals import Change, Proxy, connected, ends, other_seal, seal

pytestmark = pytest.mark.usefixtures("one_thread")

HELLO = 4096
"""More than all that crosses one way before the first request."""


def send(end: TlsSocket, data: bytes) -> None:
    wire.Line(end).send(data[:100], [memoryview(data)[100:]])


def take(end: TlsSocket, count: int) -> bytes:
    room = memoryview(bytearray(count))
    came = end.recv_into(room, 0, socket.MSG_WAITALL)
    return bytes(room[:came])


@pytest.mark.parametrize("sizes", [(1,), (3, 0, 70_000, 5), (16_384, 16_384), (600_000, 2), (0,)])
def test_pieces_are_all_bytes_in_order(sizes: tuple[int, ...]) -> None:
    chance = random.Random(1)  # noqa: S311
    parts = [memoryview(chance.randbytes(size)) for size in sizes]
    made = [bytes(piece) for piece in pieces(parts)]
    assert b"".join(made) == b"".join(parts)[:AT_ONCE]
    assert all(len(piece) == 16_384 for piece in made[:-1])


@pytest.mark.parametrize("size", [1, 100, 16_384, 65_536, 65_637, 1_000_001])
def test_what_is_sent_arrives_both_ways_at_once(size: int) -> None:
    there, back = random.Random(1).randbytes(size), random.Random(2).randbytes(size)  # noqa: S311
    with ends(seal(), seal()) as (client, server), ThreadPoolExecutor() as pool:
        sending = [pool.submit(send, client, there), pool.submit(send, server, back)]
        coming = [pool.submit(take, server, size), pool.submit(take, client, size)]
        assert [each.result() for each in coming] == [there, back]
        assert [each.result() for each in sending] == [None, None]
        client.shutdown(socket.SHUT_WR)
        assert take(server, 1) == b""


def test_nothing_crosses_in_the_clear_and_nothing_twice_alike() -> None:
    secret, seen, later = b"the same words again and again " * 8000, list[bytes](), list[bytes]()

    def watch(data: bytes, before: int) -> bytes:
        seen.append(data)
        later.extend([data] if before > HELLO else [])
        return data

    payload = (torch.frombuffer(bytearray(secret), dtype=torch.uint8),)
    with served(payload) as server, closing(Proxy(server.port, watch, watch)) as proxy:
        for number in range(2):
            with client(proxy.port, payload) as ours:
                ours.send(number, payload)
                assert torch.equal(ours.receive().tensors[0], payload[0])
    crossed = b"".join(seen)
    assert len(crossed) > 4 * len(secret)
    assert b"again and again" not in crossed
    assert wire.MAGIC not in crossed
    blocks = [part[begin : begin + 16] for part in later for begin in range(0, len(part) - 16, 7)]
    assert len(blocks) > 1000
    assert len(set(blocks)) == len(blocks)


@contextmanager
def served(payload: Tensors) -> Iterator[TcpServer]:
    with closing(TcpServer(HERE, TOKEN, seal())) as server:
        server.serve(Works(layout(payload), cloned))
        yield server


@contextmanager
def client(port: int, payload: Tensors, connections: int = 1) -> Iterator[TcpClient]:
    with closing(TcpClient(HERE, port, TOKEN, str(connections), seal())) as made:
        made.open(NAME, layout(payload))
        yield made


def flip(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def flipped(data: bytes, before: int) -> bytes:
    """One bit of what crosses after the handshake."""
    return flip(data, HELLO + 40_000 - before) if before <= HELLO + 40_000 < before + len(data) else data


def left_out(data: bytes, before: int) -> bytes:
    return data[:100] + data[1100:] if before > HELLO else data


def twice() -> Change:
    seen: list[bytes] = []

    def change(data: bytes, before: int) -> bytes:
        if before > HELLO and not seen:
            seen.append(data)
            return data + data
        return data

    return change


def swapped(data: bytes, before: int) -> bytes:
    half = len(data) // 2
    return data[half:] + data[:half] if before > HELLO else data


CHANGES: dict[str, Callable[[], Change]] = {
    "flipped": lambda: flipped,
    "left out": lambda: left_out,
    "twice": twice,
    "swapped": lambda: swapped,
}


@pytest.mark.parametrize("connections", [1, 3])
@pytest.mark.parametrize("way", CHANGES)
@pytest.mark.parametrize("towards", ["server", "edge"])
def test_tampering_ends_in_a_fault_and_never_in_a_result(
    connections: int, way: str, towards: str, snapshot: SnapshotAssertion
) -> None:
    """Towards the server it tells the edge, or hangs up; in no case do other tensors come than were sent."""
    change = CHANGES[way]()
    changes = (change, None) if towards == "server" else (None, change)
    payload = (torch.randint(0, 255, (300_000,), dtype=torch.uint8),)

    def ask(ours: TcpClient) -> None:
        for number in range(4):
            ours.send(number, payload)
            assert torch.equal(ours.receive().tensors[0], payload[0])

    with (
        served(payload) as server,
        closing(Proxy(server.port, *changes)) as proxy,
        client(proxy.port, payload, connections) as ours,
    ):
        fault = refusal(ask, ours)
    assert "\n" not in fault
    if connections == 1 and way == "flipped":
        assert fault == snapshot


def test_a_cut_connection_is_no_result() -> None:
    payload = (torch.ones(30_000),)

    def cut(data: bytes, before: int) -> bytes:
        if before > HELLO:
            raise OSError
        return data

    with (
        served(payload) as server,
        closing(Proxy(server.port, None, cut)) as proxy,
        client(proxy.port, payload) as ours,
    ):
        ours.send(0, payload)
        proxy.close()
        with pytest.raises(BackendError):
            ours.receive()


def test_after_a_fault_nothing_is_handed_out() -> None:
    with ends(seal(), seal()) as (near, far):
        near.beneath.sendall(bytes([23, 3, 3, 0, 40]) + bytes(200))  # what looks like a record of either
        near.sendmsg([memoryview(b"right")])
        for _ in range(2):
            with pytest.raises(Tampered):
                take(far, 5)


def test_another_runs_keys_are_turned_away(snapshot: SnapshotAssertion) -> None:
    with served((torch.ones(3),)) as server:
        words = refusal(TcpClient, HERE, server.port, TOKEN, "", other_seal())
    assert words.replace(str(server.port), "PORT") == snapshot


def test_who_has_the_token_and_no_keys_gets_no_answer() -> None:
    """A plain client at an encrypting server, as a man in the middle who passes on a handshake would be."""
    payload = (torch.ones(3),)
    with served(payload) as server, handshake.connected(HERE, server.port, TOKEN) as sock:
        sock.settimeout(30)
        like = wire.Likeness(NAME, wire.form(layout(payload)))
        sock.sendall(like.numbered(0) + bytes(12))
        sock.shutdown(socket.SHUT_WR)
        while came := sock.recv(1000):
            assert wire.MAGIC not in came
    stage, _ = server.served or (None, None)
    assert isinstance(stage, Works)
    assert not stage.ran


def test_a_client_that_encrypts_learns_that_the_server_does_not() -> None:
    """TLS says more at first than a header has; for the rest of a shorter hello a server waits until time is up."""
    with closing(TcpServer(HERE, TOKEN)) as server:
        assert refusal(TcpClient, HERE, server.port, TOKEN, "", seal())


def test_fuzzed_records(cases: int) -> None:
    """What comes of a stream that was changed anywhere is its beginning, and then a fault or the end."""
    for case in range(cases // 50):
        chance = random.Random(f"sealed {case}")  # noqa: S311
        sent = [chance.randbytes(chance.choice((1, 50, 3000, 20_000))) for _ in range(chance.randrange(1, 5))]
        with ends(seal(), seal()) as (near, far):
            records = [sealed_bytes(near, data) for data in sent]
            stream = spoiled(records, chance)
            near.beneath.settimeout(30)
            for begin in range(0, len(stream), 7000):
                near.beneath.sendall(stream[begin : begin + 7000])
            near.beneath.shutdown(socket.SHUT_WR)
            whole, got = b"".join(sent), bytearray()
            try:
                while part := take_some(far, chance):
                    got += part
            except Tampered as fault:
                assert "\n" not in str(fault)
            assert whole.startswith(got), f"case {case}"
            if stream == b"".join(records):
                assert whole == got, f"case {case}"


def sealed_bytes(end: TlsSocket, data: bytes) -> bytes:
    taken, out = end._seal([memoryview(data)])
    assert taken == len(data)
    return bytes(out)


def take_some(end: TlsSocket, chance: random.Random) -> bytes:
    room = memoryview(bytearray(chance.choice((1, 100, 16_384, 70_000))))
    return bytes(room[: end.recv_into(room)])


def spoiled(records: list[bytes], chance: random.Random) -> bytes:
    way, which = chance.randrange(7), chance.randrange(len(records))
    data, each = b"".join(records), list(records)
    at = chance.randrange(len(data))
    if way == 0:
        each.insert(chance.randrange(len(each) + 1), each[which])
    elif way == 1:
        del each[which]
    elif way == 2:
        chance.shuffle(each)
    else:
        flipped = bytes([data[at] ^ chance.randrange(1, 256)]) + data[at + 1 :]
        added = chance.randbytes(chance.randrange(1, 40)) + data[at:]
        return data[:at] + (data[at:], flipped, b"", added)[way - 3]
    return b"".join(each)


@pytest.mark.timeout(30)
def test_stripes_begin_with_what_came_with_the_handshake() -> None:
    """It is decrypted, or waits to be: the kernel, which is asked what has come, knows nothing of it."""
    with ends(seal(), seal()) as (near, far):
        near.sendmsg([memoryview(b"ok")])
        head = wire.message(wire.Kind.WARM, 0)
        Stripes([near]).send(head)
        assert wait_until(lambda: len(far.beneath.recv(1 << 16, socket.MSG_PEEK)) >= len(head) + 2 * 20)
        assert take(far, 2) == b"ok"
        assert Stripes([far]).head() == head


def test_a_socket_that_does_not_block_loses_nothing() -> None:
    """Stripes: what was encrypted and did not leave yet is sent when the same parts come again."""
    data = random.Random(3).randbytes(3_000_000)  # noqa: S311
    with ends(seal(), seal()) as (near, far):
        for end in (near, far):
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


def test_it_is_tls_1_3_with_the_cipher_that_the_documents_name() -> None:
    with ends(seal(), seal()) as made:
        for end in made:
            assert end._tls.version() == "TLSv1.3"
            assert (end._tls.cipher() or ("",))[0] == CIPHER
            assert not end._tls.compression()
        assert CIPHER in (REPOSITORY / "docs" / "security.md").read_text()


def test_after_the_handshake_nothing_crosses_but_what_is_sent() -> None:
    """A session ticket would be read, and charged, with the first reply."""
    with ends(seal(), seal()) as (client, server):
        client.beneath.setblocking(False)
        with pytest.raises(BlockingIOError):
            client.beneath.recv(1)
        server.sendmsg([memoryview(b"a")])
        client.beneath.setblocking(True)
        assert len(client.beneath.recv(1000)) == 5 + 1 + 1 + 16


def stranger(shown: str) -> ssl.SSLContext:
    if shown == "another":
        context = other_seal()._contexts[False]
    else:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    if shown == "an older version":
        context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


@pytest.mark.parametrize("shown", ["none", "another", "an older version"])
def test_a_client_without_the_runs_certificate_and_version_is_turned_away(shown: str) -> None:
    client, server = connected()
    with client, server, ThreadPoolExecutor(1) as pool:
        far = pool.submit(seal().sealed, server, server=True)
        with (
            pytest.raises(OSError, match=r"(?i)ALERT|EOF|reset|version"),
            stranger(shown).wrap_socket(client) as ours,
        ):
            ours.recv(1)
        with pytest.raises(BackendError, match="no TLS"):
            far.result()


def test_the_private_key_is_on_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with ends(seal(), seal()) as (client, _):
        assert not list(tmp_path.iterdir())
        assert client.fileno() >= 0


def test_what_cannot_be_sent_after_a_fault_is_said_in_words() -> None:
    """A host prints it, and OpenSSL's words would be `EOF occurred in violation of protocol (_ssl.c:2427)`."""
    with ends(seal(), seal()) as (client, server):
        client._tls.write(b"abc")
        changed = bytearray(client._out.read())
        changed[-1] ^= 1
        client.beneath.sendall(changed)
        with pytest.raises(Tampered):
            server.recv_into(memoryview(bytearray(3)))
        with pytest.raises(BrokenPipeError) as refused:
            server.sendmsg([memoryview(b"a")])
        assert refused.value.strerror == "its TLS has ended"
