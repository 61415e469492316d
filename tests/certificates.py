"""Certificates of a fleet, which a user makes by openssl."""

from __future__ import annotations

from pathlib import Path


def certificates(folder: Path) -> tuple[str, ...]:
    """The options that name a certificate, which is its own authority, and its key: files in that folder."""
    from distributed import Security

    made = Security.temporary()
    folder.mkdir()
    for name, text in (("lab.pem", made.tls_ca_file), ("lab-key.pem", made.tls_worker_key)):
        (folder / name).touch(0o600)
        (folder / name).write_text(text)
    authority, key = f"{folder}/lab.pem", f"{folder}/lab-key.pem"
    return ("--tls-ca-file", authority, "--tls-cert", authority, "--tls-key", key)
