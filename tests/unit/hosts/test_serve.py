"""What `serve` decides before it starts anything, and the word that it prints and `hosts add --key -` reads.

With a driver it is tested between two namespaces.
"""

from __future__ import annotations

import io
import os
import socket
import stat
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from syrupy.assertion import SnapshotAssertion

from pareto.hosts.local import rights, sshd
from pareto.hosts.setup import invitation, serve
from pareto.hosts.setup.invitation import Invitation
from pareto.hosts.ssh import keys
from pareto.protocol.errors import UserError
from tests.program import command
from tests.unit.example_host import ExampleHost, has
from tests.unit.refusals import refusal


@pytest.mark.parametrize("locked", [False, True])
@pytest.mark.parametrize("uid", [0, 1000])
def test_the_server_lets_in_one_user_by_one_key_and_forwards_nothing(
    monkeypatch: pytest.MonkeyPatch, snapshot: SnapshotAssertion, uid: int, locked: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setattr(sshd, "is_locked", lambda user: locked)
    text = serve.configuration(Path("/run/user/1000/its folder"), "192.0.2.1", 7410, "ann")
    assert f"UsePAM {'yes' if uid == 0 and locked else 'no'}\n" in text
    assert text.replace("UsePAM yes", "UsePAM no") == snapshot


def test_places_that_are_none(host: ExampleHost, snapshot: SnapshotAssertion) -> None:
    """A place is free and this machine's; of several addresses one is to be named."""
    texts = ["nowhere", *(f"1.2.3.4:{port}" for port in ("0", "65536", "x", "")), "::1", "127.1"]
    texts += ["0.0.0.0", "0.0.0.0:22"]  # noqa: S104
    assert {text: refusal(UserError, serve.place, text) for text in texts} == snapshot
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UserError, match=f"--listen 127.0.0.1:{port}: Address already in use$"):
            serve.place(f"127.0.0.1:{port}")
    with pytest.raises(UserError, match=r"--listen 192.0.2.1: Cannot assign requested address$"):
        serve.place("192.0.2.1")
    address, port = serve.place("127.0.0.1")
    assert (address, port > 0) == ("127.0.0.1", True)
    has(host, lo="127.0.0.1/8", eth0="192.168.7.2/24", wlan0="192.168.1.20/24")
    with pytest.raises(UserError, match=r"192.168.7.2 \(eth0\), 192.168.1.20 \(wlan0\)$"):
        serve.place("")


def test_what_is_missing_is_said_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rights, "sshd", lambda: None)
    with pytest.raises(UserError, match="no sshd on this machine: install it"):
        serve.serve("127.0.0.1", lambda _: None)
    monkeypatch.setattr(rights, "sshd", lambda: "/usr/sbin/sshd")
    monkeypatch.setattr(os, "geteuid", lambda: 4_000_000)
    with pytest.raises(UserError, match="the user 4000000 has no account here"):
        serve.serve("127.0.0.1", lambda _: None)


HOST, GUEST = (Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in (1, 2))
PYTHON = "/home/ann/a clone/.venv/bin/python"
INVITED = Invitation(HOST.public_key(), GUEST, PYTHON)


def test_what_is_read_is_what_was_printed() -> None:
    assert INVITED.text.replace("-", "").replace("_", "").rstrip("=").isalnum()
    read = invitation.parse(f"  {INVITED.text}\n")
    assert invitation.public_line(read.host_key) == invitation.public_line(HOST.public_key())
    assert read.python == PYTHON
    assert read.guest_key.private_bytes_raw() == GUEST.private_bytes_raw()


def flipped(text: str) -> str:
    data = bytearray(urlsafe_b64decode(text))
    data[10] ^= 1
    return urlsafe_b64encode(data).decode()


WRONG: dict[str, Callable[[str], str]] = {
    "nothing": lambda _: "",
    "a word": lambda _: "word",
    "its end is missing": lambda text: text[:-8],
    "its beginning is missing": lambda text: text[4:],
    "one bit": flipped,
    "the whole line": lambda text: f"echo {text} | ./pareto.sh hosts add",
    "another alphabet": lambda _: "é" * 40,
    "a path of no host": lambda _: Invitation(HOST.public_key(), GUEST, "python3").text,
    "no path": lambda _: Invitation(HOST.public_key(), GUEST, "").text,
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_no_invitation(wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{WRONG[wrong](INVITED.text)}\n"))
    to = ("--role", "server", "--testbed", str(tmp_path / "lab.yaml"))
    done = command("hosts", "add", "ann@192.0.2.1", *to, "--key", "-")
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert line.startswith("error: --key -: ")
    assert not list(tmp_path.iterdir())


def test_the_key_is_its_owners_and_the_one_before_stays_if_no_host_is_added(tmp_path: Path) -> None:
    path = tmp_path / "lab" / "key.pem"
    other = Invitation(GUEST.public_key(), HOST, PYTHON)

    def is_kept(key: Ed25519PrivateKey) -> bool:
        return keys.load(path).get_base64() == invitation.public_line(key.public_key()).split()[1]

    with pytest.raises(UserError, match="no"), invitation.kept(INVITED, path):
        raise UserError("no")
    assert not path.exists()
    with invitation.kept(INVITED, path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert is_kept(GUEST)
    with pytest.raises(UserError, match="no"), invitation.kept(other, path):
        assert is_kept(HOST)
        raise UserError("no")
    assert is_kept(GUEST)
    with invitation.kept(other, path):
        pass
    assert [each.name for each in path.parent.iterdir()] == ["key.pem"]
    (tmp_path / "file").touch()
    cannot = pytest.raises(UserError, match="the key cannot be kept")
    with cannot, invitation.kept(INVITED, tmp_path / "file/key"):
        pass
