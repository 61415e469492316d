"""The word that `serve` prints and `hosts add --key -` reads: how a host is known that lets its guest in.

It has the host's own key, the guest's private one, and the host's Python, which has the packages that a worker needs.
Both keys were made for this once, and are good for nothing when `serve` has ended.
"""

from __future__ import annotations

import binascii
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from pareto.protocol.errors import UserError

_KEY_BYTES = 32
_CHECK_BYTES = 4
_FAULT = "--key -: this is not the word that serve prints between echo and |: copy its whole line"


@dataclass(frozen=True)
class Invitation:
    """host_key: its public half. guest_key: the private one to log in with. python: an absolute path there."""

    host_key: Ed25519PublicKey
    guest_key: Ed25519PrivateKey
    python: str

    @property
    def text(self) -> str:
        """One word, which a shell takes as it is."""
        keys = self.host_key.public_bytes_raw() + self.guest_key.private_bytes_raw()
        content = keys + os.fsencode(self.python)
        return urlsafe_b64encode(_check(content) + content).decode()


def parse(text: str) -> Invitation:
    """The invitation in what somebody pasted. Raises UserError."""
    try:
        data = urlsafe_b64decode(text.strip().encode("ascii"))
    except (ValueError, binascii.Error):
        raise UserError(_FAULT) from None
    check, content = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
    keys, python = content[: 2 * _KEY_BYTES], os.fsdecode(content[2 * _KEY_BYTES :])
    if check != _check(content) or len(keys) < 2 * _KEY_BYTES or not Path(python).is_absolute():
        raise UserError(_FAULT)
    return Invitation(
        Ed25519PublicKey.from_public_bytes(keys[:_KEY_BYTES]),
        Ed25519PrivateKey.from_private_bytes(keys[_KEY_BYTES:]),
        python,
    )


@contextmanager
def kept(invitation: Invitation, path: Path) -> Iterator[None]:
    """The guest's key in a file of its owner's alone; the one of an invitation before is there again where something is
    raised meanwhile. Raises UserError."""
    before = path.with_suffix(f".before{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            path.replace(before)
        write_key(path, invitation.guest_key)
    except OSError as error:
        raise UserError(f"the key cannot be kept: {path}: {error.strerror}") from None
    try:
        yield
    except BaseException:
        path.unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            before.replace(path)
        raise
    before.unlink(missing_ok=True)


def write_key(path: Path, key: Ed25519PrivateKey) -> None:
    """Write a private key into a new file. Raises OSError."""
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(pem)


def public_line(key: Ed25519PublicKey) -> str:
    """A public key in OpenSSH's one-line form."""
    return key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _check(content: bytes) -> bytes:
    """The first bytes of a digest: a word that was not copied whole is noticed."""
    return sha256(content).digest()[:_CHECK_BYTES]
