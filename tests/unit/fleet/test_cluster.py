"""Who is let in to a fleet: certificates, and a scheduler that answers nobody else."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import psutil
import pytest

pytest.importorskip("distributed")

from pareto.errors import UserError
from pareto.fleet import cluster


def test_certificates_are_their_owners_alone_and_are_never_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    cluster.write_certificates(folder)
    files = sorted(path.name for path in folder.iterdir())
    assert files == sorted((cluster.AUTHORITY, cluster.CERTIFICATE, cluster.KEY))
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    with pytest.raises(UserError, match="already"):
        cluster.write_certificates(folder)
    with pytest.raises(UserError, match="--certificates"):
        cluster.pems(tmp_path)


def test_a_scheduler_takes_those_with_the_certificate_and_nobody_else(tmp_path: Path) -> None:
    cluster.require()
    from distributed import Client

    for name in ("ours", "theirs"):
        cluster.write_certificates(tmp_path / name)
    ours, theirs = (cluster.pems(tmp_path / name) for name in ("ours", "theirs"))
    before = set(psutil.Process().net_connections("inet"))
    with cluster.own(ours) as client:
        address = client.scheduler.address
        listening = {
            each.laddr
            for each in set(psutil.Process().net_connections("inet")) - before
            if each.status == psutil.CONN_LISTEN
        }
        assert [ip for ip, _ in listening] == [cluster.LOOPBACK]
        assert address.startswith("tls://127.0.0.1")
        for texts, at in ((theirs, address), ({}, address.replace("tls", "tcp"))):
            with pytest.raises(OSError):
                Client(at, security=cluster.security(texts), set_as_default=False, timeout=1)
        host, port = address.removeprefix("tls://").split(":")
        anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection((host, int(port)), 10) as plain,
            pytest.raises((ssl.SSLError, ConnectionError)),
            anybody.wrap_socket(plain) as sock,
        ):
            if not sock.recv(1):  # in TLS 1.3 the refusal comes with the first message
                raise ConnectionError
        assert client.submit(lambda: 1, workers=[], pure=False).status == "pending"
