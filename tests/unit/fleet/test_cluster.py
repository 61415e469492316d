"""Who is let in to a fleet: a scheduler that answers nobody else."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import psutil
import pytest

pytest.importorskip("distributed")

from pareto.driver.fleet import cluster, member
from pareto.protocol.errors import UserError
from tests.certificates import certificates
from tests.program import command
from tests.unit.simulated.worlds import sweep

NAMED = ("tls_ca_file", "tls_cert", "tls_key")


def listening() -> set[tuple[str, int]]:
    """Where this process listens."""
    found = psutil.Process().net_connections("inet")
    return {(each.laddr.ip, each.laddr.port) for each in found if each.status == psutil.CONN_LISTEN}


def test_a_runs_own_scheduler_is_on_loopback_and_lets_in_nobody_without_its_certificate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "CONNECT_S", 1.0)
    monkeypatch.setattr(member, "CONNECT_S", 1.0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    cluster.require()
    before = listening()
    with cluster.opened(sweep()) as (client, _):
        address, ours = client.scheduler.address, listening() - before
        assert address.startswith("tls://127.0.0.1:")
        assert {host for host, _ in ours} == {"127.0.0.1"}
        stranger = tuple(map(Path, certificates(tmp_path / "other")[1::2]))
        let_in = cluster.security("--scheduler", address, (stranger[0], stranger[1], stranger[2]))
        with pytest.raises(UserError, match=address):
            member.join(address, let_in, "simulated", "stranger", print)
        joined = sweep().model_copy(update={"cluster": address, **dict(zip(NAMED, stranger, strict=True))})
        with pytest.raises(UserError, match="certificate"), cluster.opened(joined):
            pass
        port = int(address.rpartition(":")[2])
        anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
        with (
            socket.create_connection(("127.0.0.1", port), 10) as plain,
            pytest.raises((ssl.SSLError, ConnectionError)),
            anybody.wrap_socket(plain) as sock,
        ):
            if not sock.recv(1):  # in TLS 1.3 the refusal comes with the first message
                raise ConnectionError
        for _, other in ours - {("127.0.0.1", port)}:
            for page in ("info/main/workers.html", "status", "json/counts.json", "metrics"):
                with pytest.raises(HTTPError, match="404"):
                    urlopen(f"http://127.0.0.1:{other}/{page}", timeout=30)
        assert client.scheduler_info()["workers"] == {}
    assert [path.name for path in tmp_path.iterdir()] == ["other"]


def test_dasks_own_settings_name_a_certificate_too(tmp_path: Path) -> None:
    import dask

    _, authority, _, certificate, _, key = certificates(tmp_path / "lab")
    with pytest.raises(UserError, match="--tls-cert"):
        cluster.security("--scheduler", "tls://lab:8786", (None, None, None))
    named = {"ca-file": authority, "worker.cert": certificate, "worker.key": key}
    with dask.config.set({f"distributed.comm.tls.{name}": value for name, value in named.items()}):
        made = cluster.security("--scheduler", "tls://lab:8786", (None, None, None))
    assert made.tls_ca_file == authority
    assert made.require_encryption


@pytest.mark.parametrize(
    "words",
    [
        "fleet join --scheduler tls://127.0.0.1:1 --testbed simulated",
        "run --model alexnet --netem lte --cluster tls://127.0.0.1:1 --testbed simulated",
    ],
)
def test_a_key_that_others_can_read_is_refused(tmp_path: Path, words: str) -> None:
    files = certificates(tmp_path / "keys")
    (tmp_path / "keys" / "lab-key.pem").chmod(0o640)
    done = command(*words.split(), *files)
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert f"chmod 600 {tmp_path}/keys/lab-key.pem" in line
