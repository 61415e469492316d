"""The word that `serve` prints and `hosts add --key -` reads."""

from __future__ import annotations

import io
import stat
import sys
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pareto.hosts.setup import invitation
from pareto.hosts.setup.invitation import Invitation
from pareto.hosts.ssh import keys
from pareto.protocol.errors import UserError
from tests.program import command

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
def test_what_is_no_invitation_is_one_line(
    wrong: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{WRONG[wrong](INVITED.text)}\n"))
    to = ("--role", "server", "--testbed", str(tmp_path / "lab.yaml"))
    done = command("hosts", "add", "ann@192.0.2.1", *to, "--key", "-")
    assert done.code == 2
    (line,) = done.err.splitlines()
    assert line.startswith("error: --key -: ")
    assert not list(tmp_path.iterdir())


def test_the_key_is_its_owners_alone_and_the_one_before_stays_if_the_host_is_not_added(
    tmp_path: Path,
) -> None:
    path = tmp_path / "lab" / "key.pem"
    with pytest.raises(UserError, match="no"), invitation.kept(INVITED, path):
        raise UserError("no")
    assert not path.exists()
    with invitation.kept(INVITED, path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert keys.load(path).get_base64() == invitation.public_line(GUEST.public_key()).split()[1]
    other = Invitation(GUEST.public_key(), HOST, PYTHON)
    with pytest.raises(UserError, match="no"), invitation.kept(other, path):
        assert keys.load(path).get_base64() == invitation.public_line(HOST.public_key()).split()[1]
        raise UserError("no")
    assert keys.load(path).get_base64() == invitation.public_line(GUEST.public_key()).split()[1]
    with invitation.kept(other, path):
        pass
    assert [each.name for each in path.parent.iterdir()] == ["key.pem"]
    (tmp_path / "file").touch()
    with (
        pytest.raises(UserError, match="the key cannot be kept"),
        invitation.kept(INVITED, tmp_path / "file/key"),
    ):
        pass
