"""Who is let in to a fleet: certificates, and a scheduler that answers nobody else."""

from __future__ import annotations

import select
import socket
import ssl
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

pytest.importorskip("distributed")

from pareto.errors import UserError
from pareto.fleet import certificates, cluster


def test_certificates_are_their_owners_alone_and_are_never_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    certificates.write_certificates(folder)
    files = sorted(path.name for path in folder.iterdir())
    assert files == sorted((certificates.AUTHORITY, certificates.CERTIFICATE, certificates.KEY))
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    with pytest.raises(UserError, match="already"):
        certificates.write_certificates(folder)
    with pytest.raises(UserError, match="is a file"):
        certificates.write_certificates(folder / certificates.KEY)
    with pytest.raises(UserError, match="--certificates"):
        certificates.pems(tmp_path)
    (folder / certificates.AUTHORITY).write_bytes(b"\xff garbage")
    with pytest.raises(UserError, match=r"authority\.pem is not text"):
        certificates.pems(folder)


def test_a_scheduler_takes_those_with_the_certificate_and_nobody_else(tmp_path: Path) -> None:
    cluster.require()
    from distributed import Client

    for name in ("ours", "theirs"):
        certificates.write_certificates(tmp_path / name)
    ours, theirs = (certificates.pems(tmp_path / name) for name in ("ours", "theirs"))
    before = set(psutil.Process().net_connections("inet"))
    with cluster.own(ours) as client:
        address = client.scheduler.address
        listening = {
            each.laddr
            for each in set(psutil.Process().net_connections("inet")) - before
            if each.status == psutil.CONN_LISTEN
        }
        assert {ip for ip, _ in listening} == {cluster.LOOPBACK}
        assert address.startswith("tls://127.0.0.1")
        for texts, at in ((theirs, address), ({}, address.replace("tls", "tcp"))):
            with pytest.raises(OSError) as refused:
                Client(at, security=certificates.security(texts), set_as_default=False, timeout=1)
            with pytest.raises(OSError) as kept_out:
                cluster.Joined(at, texts, ["lab@host"]).start()
            words = "other certificates" if texts else "tls://"
            assert all(words in cluster.why(each.value) for each in (refused, kept_out))
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


@pytest.mark.parametrize(("seconds", "most"), [(0.1, 256), (1000.0, 2)], ids=["late", "many"])
def test_silent_strangers_are_turned_away(monkeypatch: pytest.MonkeyPatch, seconds: float, most: int) -> None:
    monkeypatch.setattr(cluster, "ADMIT_S", seconds)
    monkeypatch.setattr(cluster, "MOST_WAITING", most)
    cluster.require()
    with cluster.own(certificates.own_pems()) as client, ExitStack() as undo:
        host, port = client.scheduler.address.removeprefix("tls://").split(":")
        silent = [
            undo.enter_context(socket.create_connection((host, int(port)), 60)) for _ in range(most % 256 + 1)
        ]
        assert not select.select(silent, [], [], 60)[0][0].recv(1)
        assert client.scheduler_info()["workers"] == {}, "those with certificates are served meanwhile"


def test_the_dashboard_answers_at_the_address_that_is_shown() -> None:
    cluster.require()
    with cluster.own(certificates.own_pems()) as client:
        shown = cluster.dashboard(client)
        assert bool(shown) == cluster.has_dashboard()
        if shown:
            with urlopen(shown, timeout=30) as answer:  # noqa: S310
                assert b"<title>Dask" in answer.read()


def test_a_member_listens_where_it_reaches_the_scheduler_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.require()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    pems, path = certificates.own_pems(), list(sys.path)
    with cluster.own(pems) as client:
        address, before = client.scheduler.address, set(psutil.Process().net_connections("inet"))
        names = ("lab@host", "lab@host-2")
        first, second, third = (cluster.Joined(address, pems, names) for _ in range(3))
        try:
            first.start()
            second.start()
            assert (first.name, second.name) == names
            with pytest.raises(ValueError, match="there already"):
                third.start()
            now = set(psutil.Process().net_connections("inet")) - before
            listening = {each.laddr[0] for each in now if each.status == psutil.CONN_LISTEN}
            assert listening == {cluster.LOOPBACK}
            assert not list(tmp_path.iterdir())
            assert sys.path == path
        finally:
            first.close()
            second.close()
