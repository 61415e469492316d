"""The keys that a run encrypts its connections with: the driver makes them, SSH carries them, no disk has them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone

from pareto.protocol.messages import NO_KEYS, Keys
from pareto.remote.backends import registry

_ALWAYS = datetime(1970, 1, 2, tzinfo=timezone.utc), datetime(9999, 12, 31, tzinfo=timezone.utc)
"""A small device may not know the date; what counts is that the certificate is the run's."""


def run_keys(backends: Iterable[str]) -> Keys:
    """A new self-signed certificate with its private key (ECDSA, P-256), as PEM, if one of these backends encrypts."""
    if not any(registry.parse(backend).seal for backend in backends):
        return NO_KEYS
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    private_key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "a run of pareto")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private_key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_ALWAYS[0])
        .not_valid_after(_ALWAYS[1])
        .sign(private_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return Keys(certificate.public_bytes(pem).decode(), private_key.private_bytes(pem, *form).decode())
