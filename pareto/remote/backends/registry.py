"""The backends: what each is called, and which module has it.

A backend is called NAME[:VARIANT][:SEAL][:LABEL], as in `tcp`, `tcp:4`, `rpc:basic`, `tcp:4:tls:a`. A variant says how
it carries tensors, a seal (`tls`) that it encrypts them. A label says nothing: `tcp:a` and `tcp:b` are the same, for
seeing how far apart two measurements of one thing lie. This module needs no torch: a request is checked with it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SEPARATOR = ":"
MOST_CONNECTIONS = 64
IN_THE_CLEAR = "none"
TLS = "tls"
SECURE = (IN_THE_CLEAR, TLS)
CIPHER = "TLS_AES_256_GCM_SHA384"
"""The only one that TLS may choose."""


class NotSealed(ValueError):
    """A backend that sends in the clear only."""


RPC_CHANNELS = {"": ("mpt_uv", "basic"), "basic": ("basic",)}
"""TensorPipe's channels by variant. `mpt_uv`, a tensor over 16 connections, is PyTorch's own choice between two hosts.
Left out are those that need no network: shared memory (`shm`), another process' memory (`cma`); and InfiniBand's."""


NO_VARIANT = "(?!)"


class Entry(NamedTuple):
    """A backend. variants: the pattern that they match. words: how messages describe them. has_agent: whether each host
    has an agent, one per process, and all agents meet. encrypts: whether it can. needs: the package that it imports."""

    module: str
    variants: str = NO_VARIANT
    words: str = ""
    has_agent: bool = False
    encrypts: bool = False
    needs: str = ""


BACKENDS = {
    "tcp": Entry(
        "pareto.remote.backends.tcp",
        rf"[2-9]|[1-5][0-9]|6[0-{MOST_CONNECTIONS % 10}]",
        f"tcp:N (over 2 to {MOST_CONNECTIONS} connections)",
        encrypts=True,
    ),
    "rpc": Entry("pareto.remote.backends.rpc", "basic", "rpc:basic (over one connection)", has_agent=True),
    "zmq": Entry("pareto.remote.backends.zmq", needs="pyzmq"),
    "gloo": Entry("pareto.remote.backends.gloo"),
}
"""A new backend is a module and an entry here."""
_LABEL = r"([A-Za-z_][A-Za-z0-9_]{0,15})?"


class BackendName(NamedTuple):
    name: str
    variant: str = ""
    seal: str = ""
    label: str = ""

    def __str__(self) -> str:
        return SEPARATOR.join(filter(None, self))

    @property
    def transport(self) -> str:
        """The carrier of the tensors: the backend, its variant and how it encrypts, without a label."""
        return str(self._replace(label=""))

    @property
    def server(self) -> str:
        """Whose port its clients connect to: all variants share one, and each way to encrypt has its own."""
        return str(BackendName(self.name, seal=self.seal))

    @property
    def secure(self) -> str:
        """How it encrypts, as the column `secure` has it."""
        return self.seal or IN_THE_CLEAR

    @property
    def connections(self) -> int:
        """The number of connections that tcp spreads a tensor over."""
        return int(self.variant or 1)

    @property
    def agent(self) -> str:
        """The agent that it needs, by transport; empty where it needs none. A process has one at a time."""
        return self.transport if BACKENDS[self.name].has_agent else ""


def parse(text: str) -> BackendName:
    """The parts of a backend's name. Raises ValueError, which says what there is."""
    name, *more = text.split(SEPARATOR)
    if name in BACKENDS:
        variant = more.pop(0) if more and re.fullmatch(BACKENDS[name].variants, more[0]) else ""
        seal = more.pop(0) if more and more[0] == TLS and BACKENDS[name].encrypts else ""
        parsed = BackendName(name, variant, seal, more.pop(0) if more else "")
        # Another backend's variant is no label: rpc:4 would look like four connections.
        taken = parsed.label == TLS or any(
            re.fullmatch(entry.variants, parsed.label) for entry in BACKENDS.values()
        )
        if str(parsed) == text and re.fullmatch(_LABEL, parsed.label) and not taken:
            return parsed
    there_is = ", ".join(
        ", ".join((name, entry.words, *([f"{name}:{TLS}"] if entry.encrypts else [])))
        for name, entry in BACKENDS.items()
    )
    raise ValueError(
        f"{text!r} is no backend: there are {there_is}; a label of up to 16 letters and digits gives one of them "
        "a second name (tcp:a, tcp:4:a)"
    )


def sealed(text: str, secure: str) -> str:
    """The backend that is like this one and encrypts so. Raises ValueError, which says why there is none; NotSealed."""
    if secure not in SECURE:
        raise ValueError(f"{secure!r} is no way to encrypt: use {', '.join(SECURE)}")
    name = parse(text)
    if secure in (IN_THE_CLEAR, name.seal):
        return text
    if not BACKENDS[name.name].encrypts:
        raise NotSealed(
            f"{name.name} cannot encrypt: add {IN_THE_CLEAR}, or leave {name.name} out (--backend tcp)"
        )
    return str(name._replace(seal=secure))
