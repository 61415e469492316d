"""A run's keys: of what it uses, new each time."""

from __future__ import annotations

from dataclasses import astuple

from cryptography import x509

from pareto.messages import NO_KEYS
from pareto.run_keys import run_keys


def test_there_are_keys_of_what_is_used_only() -> None:
    assert run_keys(["tcp", "tcp:4", "rpc"]) == NO_KEYS
    tls, frames = run_keys(["tcp", "tcp:4:tls"]), run_keys(["tcp:aes-gcm:a"])
    assert [bool(each) for each in astuple(tls)] == [False, True, True]
    assert [bool(each) for each in astuple(frames)] == [True, False, False]
    assert len(bytes.fromhex(frames.aes_gcm)) == 32


def test_each_run_has_its_own() -> None:
    backends = ["tcp:tls", "tcp:aes-gcm"]
    assert not set(astuple(run_keys(backends))) & set(astuple(run_keys(backends)))


def test_the_certificate_holds_whatever_a_hosts_clock_shows() -> None:
    certificate = x509.load_pem_x509_certificate(run_keys(["tcp:tls"]).certificate.encode())
    assert certificate.not_valid_before_utc.year == 1970
    assert certificate.not_valid_after_utc.year == 9999
