"""The ends of backends, by their names: the modules that have them, and a host's servers."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from pareto.protocol.messages import Keys
from pareto.remote.backends.base import Backend, Server
from pareto.remote.backends.registry import BACKENDS, TLS, BackendName
from pareto.remote.backends.tls import Tls


def backend(name: str) -> Backend:
    """Import a backend's module."""
    return cast(Backend, import_module(BACKENDS[name].module))


def seal(keys: Keys) -> Tls | None:
    """The encryption by these keys; None where there are none."""
    return Tls(keys.certificate, keys.private_key) if keys.certificate else None


def servers(address: str, token: str, keys: Keys) -> dict[str, Server]:
    """A server of each backend, and with keys one more of each that encrypts, by `BackendName.server`.

    Raises BackendError.
    """
    made = {name: backend(name).serve(address, token) for name in BACKENDS}
    if (way := seal(keys)) is not None:
        for name, entry in BACKENDS.items():
            if entry.encrypts:
                made[BackendName(name, seal=TLS).server] = backend(name).serve(address, token, way)
    return made
