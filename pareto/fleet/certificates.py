"""Who is let in to a fleet: who has its certificates, which one command makes.

dask unpickles what comes, so whoever is let in may run code on every member. That is why even a run's own scheduler,
which listens on loopback alone, speaks only to those that have the run's own certificate, and one beyond loopback only
to those that have the certificate of `fleet certificates`.
"""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from analysis import files
from pareto import COMMAND
from pareto.errors import UserError
from pareto.plain_files import refuse_shared

if TYPE_CHECKING:
    from distributed import Security

MAKE = f"{COMMAND} fleet certificates DIR"
AUTHORITY, CERTIFICATE, KEY = "authority.pem", "member.pem", "member-key.pem"
"""The files of `fleet certificates`."""
LASTS_DAYS = 825


def write_certificates(folder: Path) -> None:
    """Write the one certificate of a fleet, what it is signed by, and its key, which only their owner may read.

    The authority's own key is kept nowhere: for another certificate, all are made anew. Raises UserError.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    def named(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

    authority, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(timezone.utc)

    def signed(subject: str, owner: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> bytes:
        limits = x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None)
        builder = x509.CertificateBuilder(named("pareto fleet"), named(subject), owner.public_key())
        made = (
            builder.serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=LASTS_DAYS))
            .add_extension(limits, critical=True)
            .sign(authority, hashes.SHA256())
        )
        return made.public_bytes(serialization.Encoding.PEM)

    texts = {
        AUTHORITY: signed("pareto fleet", authority, is_authority=True),
        CERTIFICATE: signed("pareto fleet member", key, is_authority=False),
        KEY: key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    }
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in texts.items():
            file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(file, "wb") as out:
                out.write(text)
    except FileExistsError:
        if not folder.is_dir():
            raise UserError(f"{folder} is a file: name a folder for the certificates") from None
        raise UserError(f"{folder} has certificates already: name another folder, or remove them") from None
    except OSError as error:
        raise UserError(f"cannot write certificates to {folder}: {error.strerror}") from None


def pems(folder: Path) -> dict[str, str]:
    """The texts in a folder of certificates, by file. Raises UserError, also where others can read the key."""
    texts: dict[str, str] = {}
    for name in (AUTHORITY, CERTIFICATE, KEY):
        try:
            texts[name] = files.text(folder / name, "certificate")
        except UserError as error:
            raise UserError(f"--certificates {folder}: {error}: name a folder that {MAKE} wrote") from None
        if "-----BEGIN " not in texts[name]:
            raise UserError(f"--certificates {folder}: {name} is none: name a folder that {MAKE} wrote")
    refuse_shared(folder / KEY, f"--certificates: {KEY}")
    return texts


def security(texts: dict[str, str]) -> Security:
    """Who is let in: who has these certificates (`pems`); without them anybody, which no address here allows."""
    from distributed import Security

    if not texts:
        return Security(require_encryption=False)
    certificate = _in_memory(texts[CERTIFICATE] + texts[KEY])
    sides = ("client", "scheduler", "worker")
    return Security(
        require_encryption=True,
        tls_ca_file=texts[AUTHORITY],
        **{f"tls_{side}_{what}": certificate for side in sides for what in ("cert", "key")},
    )


@cache
def _in_memory(text: str) -> str:
    """A path at which this process alone reads a text: dask would write a key to a file, which a kill leaves there."""
    fd = os.memfd_create("certificate")
    os.write(fd, text.encode())
    return f"/proc/self/fd/{fd}"


def own_pems() -> dict[str, str]:
    """Certificates of one run, which are in memory only."""
    from distributed import Security

    made = Security.temporary()
    return {AUTHORITY: made.tls_ca_file, CERTIFICATE: made.tls_client_cert, KEY: made.tls_client_key}
