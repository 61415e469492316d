"""A run's keys: new each time."""

from __future__ import annotations

from dataclasses import astuple

from cryptography import x509

from pareto.protocol.messages import NO_KEYS
from pareto.trial.run_keys import run_keys


def test_there_are_keys_where_something_is_encrypted() -> None:
    assert run_keys(["tcp", "tcp:4", "rpc"]) == NO_KEYS
    assert all(astuple(run_keys(["tcp", "tcp:4:tls"])))


def test_each_run_has_its_own() -> None:
    backends = ["tcp:tls", "tcp:4:tls"]
    assert not set(astuple(run_keys(backends))) & set(astuple(run_keys(backends)))


def test_the_certificate_holds_whatever_a_hosts_clock_shows() -> None:
    certificate = x509.load_pem_x509_certificate(run_keys(["tcp:tls"]).certificate.encode())
    assert certificate.not_valid_before_utc.year == 1970
    assert certificate.not_valid_after_utc.year == 9999
