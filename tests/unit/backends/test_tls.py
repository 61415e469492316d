"""TLS over a connection: version 1.3 with one cipher, both ends pinned to one certificate, no tickets."""

from __future__ import annotations

import ssl
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pareto.backends.base import BackendError
from pareto.backends.handshake import ALONE
from pareto.backends.sealed import Tampered
from pareto.backends.tls import CIPHER, Tls, TlsSocket
from pareto.run_keys import run_keys
from tests import REPOSITORY
from tests.unit.backends.seals import connected, ends, keys


def seal() -> Tls:
    return Tls(keys().certificate, keys().private_key)


def test_it_is_tls_1_3_with_the_cipher_that_the_documents_name() -> None:
    with ends(seal(), seal()) as made:
        for end in made:
            assert isinstance(end, TlsSocket)
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


@pytest.mark.parametrize("shown", ["none", "another"])
def test_a_client_without_the_runs_certificate_is_turned_away(shown: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if shown == "another":
        other = run_keys(["tcp:tls"])
        context = Tls(other.certificate, other.private_key)._contexts[False]
        context.verify_mode = ssl.CERT_NONE
    client, server = connected()
    with client, server, ThreadPoolExecutor(1) as pool:
        far = pool.submit(seal().sealed, server, ALONE, server=True)
        with context.wrap_socket(client) as ours:
            with pytest.raises(BackendError, match="no TLS"):
                far.result()
            with pytest.raises(OSError, match=r"ALERT|EOF|reset"):
                ours.recv(1)


def test_older_versions_are_turned_away() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    client, server = connected()
    with client, server, ThreadPoolExecutor(1) as pool:
        far = pool.submit(seal().sealed, server, ALONE, server=True)
        with pytest.raises(ssl.SSLError):
            context.wrap_socket(client)
        assert isinstance(far.exception(), BackendError)


def test_the_private_key_is_on_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with ends(seal(), seal()) as (client, _):
        assert not list(tmp_path.iterdir())
        assert client.fileno() >= 0


def test_what_cannot_be_sent_after_a_fault_is_said_in_words() -> None:
    """A host prints it, and OpenSSL's words would be `EOF occurred in violation of protocol (_ssl.c:2427)`."""
    with ends(seal(), seal()) as (client, server):
        assert isinstance(client, TlsSocket)
        client._tls.write(b"abc")
        changed = bytearray(client._out.read())
        changed[-1] ^= 1
        client.beneath.sendall(changed)
        with pytest.raises(Tampered):
            server.recv_into(memoryview(bytearray(3)))
        with pytest.raises(BrokenPipeError) as refused:
            server.sendmsg([memoryview(b"a")])
        assert refused.value.strerror == "its TLS has ended"
