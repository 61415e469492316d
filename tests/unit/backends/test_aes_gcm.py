"""AES-GCM over a connection: keys of its own, and records that are told apart by their number."""

from __future__ import annotations

import socket
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from pareto.backends.aes_gcm import RECORD, AesGcm, Records
from pareto.backends.handshake import Place
from pareto.backends.sealed import Tampered
from tests.unit.backends.seals import connected, ends

KEY = bytes(range(32))
OUT, BACK = bytes(32), bytes([1]) * 32


def test_records_are_what_the_description_says() -> None:
    """Read by the description alone: length, ciphertext with tag, numbered nonces, the length authenticated."""
    near, far = connected()
    with near, far:
        made, sent = Records(near, OUT, BACK), bytes(range(200)) * 400
        taken, stream = made._seal([memoryview(sent)])
        assert taken == len(sent)
        plain, number, cipher, data = b"", 0, AESGCM(OUT), bytes(stream)
        while data:
            length = int.from_bytes(data[:4], "big")
            nonce = bytes(4) + struct.pack("!Q", number)
            plain += cipher.decrypt(nonce, data[4 : 20 + length], data[:4])
            with pytest.raises(InvalidTag):
                cipher.decrypt(nonce, data[4 : 20 + length], b"\0\0\0\0")
            data, number = data[20 + length :], number + 1
        assert plain == sent
        assert number == -(-len(sent) // RECORD)


def test_each_connection_direction_and_place_has_a_key_of_its_own() -> None:
    seen = set()
    seal = AesGcm(KEY)
    for _ in range(2):
        with ends(seal, seal) as (client, server):
            assert isinstance(client, Records)
            assert isinstance(server, Records)
            for end in (client, server):
                _, stream = end._seal([memoryview(b"the same words")])
                seen.add(bytes(stream))
    assert len(seen) == 4


def test_connections_of_other_places_do_not_fit_together() -> None:
    """Who swaps two connections that go together gets neither of them through."""
    client, server = connected()
    with client, server, ThreadPoolExecutor(1) as pool:
        far = pool.submit(AesGcm(KEY).sealed, server, Place(bytes(8), 1, 2), server=True)
        with pytest.raises(Tampered):
            AesGcm(KEY).sealed(client, Place(bytes(8), 0, 2), server=False)
        assert isinstance(far.exception(), Tampered)


@pytest.mark.parametrize("length", [0, RECORD + 1, 1 << 31, (1 << 32) - 1])
def test_a_length_decides_nothing_but_a_fault(length: int) -> None:
    with ends(AesGcm(KEY), AesGcm(KEY)) as (near, far):
        near.beneath.sendall(struct.pack("!I", length) + bytes(100))
        with pytest.raises(Tampered, match=str(length)):
            far.recv_into(memoryview(bytearray(10)), 0, socket.MSG_WAITALL)
