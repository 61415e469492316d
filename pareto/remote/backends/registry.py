"""The backends: what each is called, and which module has it.

A backend is called NAME[:VARIANT][:SEAL][:LABEL], as in `tcp`, `tcp:4`, `rpc:basic`, `tcp:4:tls:a`. A variant says how
it carries tensors, a seal (`tls`) that it encrypts them. A label says nothing: `tcp:a` and `tcp:b` are the same, for
seeing how far apart two measurements of one thing lie. A user's own is `path/to/file.py:Transport`, in rows
`file.Transport`; an installed package offers others by entry points. This module needs no torch: a request is checked
with it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from pareto.protocol.own import Kind

SEPARATOR = ":"
MOST_CONNECTIONS = 64
POLL = "poll"
IN_THE_CLEAR = "none"
TLS = "tls"
SECURE = (IN_THE_CLEAR, TLS)
CIPHER = "TLS_AES_256_GCM_SHA384"
"""The only one that TLS may choose."""


class NotSealed(ValueError):
    """A backend that sends in the clear only."""


RPC_CHANNELS, RPC_BASIC = ("mpt_uv", "basic"), "basic"
"""TensorPipe's channels. `mpt_uv`, a tensor over 16 connections, is PyTorch's own choice between two hosts. Left out
are those that need no network: shared memory (`shm`), another process' memory (`cma`); and InfiniBand's."""
RPC_THREADS, RPC_USUAL_THREADS = "threads=", 16
"""How many threads an agent has, and PyTorch's own choice."""
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
        rf"[2-9]|[1-5][0-9]|6[0-{MOST_CONNECTIONS % 10}]|{POLL}",
        f"tcp:N (over 2 to {MOST_CONNECTIONS} connections), tcp:{POLL} (looks for what comes before it waits)",
        encrypts=True,
    ),
    "rpc": Entry(
        "pareto.remote.backends.rpc",
        rf"{RPC_BASIC}|{RPC_THREADS}([1-9]|[1-5][0-9]|6[0-4])",
        f"rpc:{RPC_BASIC} (over one connection), rpc:{RPC_THREADS}N (1 to 64 threads in place of {RPC_USUAL_THREADS})",
        has_agent=True,
    ),
    "zmq": Entry("pareto.remote.backends.zmq", needs="pyzmq"),
    "gloo": Entry("pareto.remote.backends.gloo"),
}
"""A new backend is a module and an entry here."""
OWN = Kind("backend", "Transport", "pareto.backends", behind=r"(:\w+)?", taken=frozenset(BACKENDS))
TOLD: set[str] = set()
"""The names of users' own that this process was told of: a package that offers one is not on each host."""
_IS_OWN = Entry("")
_LABEL = r"([A-Za-z_][A-Za-z0-9_]{0,15})?"
_OWN_NAME = re.compile(r"[\w.-]+\.(?!py$)\w+")


def is_known(text: str) -> bool:
    """Whether a backend is one of these, a package's, or in a file that the text names; an own one's name is not."""
    return text.partition(SEPARATOR)[0] in BACKENDS or OWN.own(text) is not None


def entry(name: str) -> Entry | None:
    """The entry of a backend; None where there is none of this name."""
    if name in BACKENDS:
        return BACKENDS[name]
    return _IS_OWN if _OWN_NAME.fullmatch(name) or name in TOLD or OWN.own(name) else None


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
    def threads(self) -> int:
        """The number of threads of an rpc agent."""
        _, is_said, threads = self.variant.partition(RPC_THREADS)
        return int(threads) if is_said else RPC_USUAL_THREADS

    @property
    def agent(self) -> str:
        """The agent that it needs, by transport; empty where it needs none. A process has one at a time."""
        known = entry(self.name)
        return self.transport if known is not None and known.has_agent else ""


def parse(text: str) -> BackendName:
    """The parts of a backend's name. Raises ValueError, which says what there is."""
    if made := OWN.own(text):
        text = made.name + made.behind
    name, *more = text.split(SEPARATOR)
    if known := entry(name):
        variant = more.pop(0) if more and re.fullmatch(known.variants, more[0]) else ""
        seal = more.pop(0) if more and more[0] == TLS and known.encrypts else ""
        parsed = BackendName(name, variant, seal, more.pop(0) if more else "")
        # Another backend's variant is no label: rpc:4 would look like four connections.
        taken = parsed.label == TLS or any(
            re.fullmatch(each.variants, parsed.label) for each in BACKENDS.values()
        )
        if str(parsed) == text and re.fullmatch(_LABEL, parsed.label) and not taken:
            return parsed
    OWN.check_named(text)
    there_is = ", ".join(
        ", ".join(filter(None, (name, each.words, f"{name}:{TLS}" if each.encrypts else "")))
        for name, each in (BACKENDS | dict.fromkeys(OWN.others, _IS_OWN)).items()
    )
    raise ValueError(
        f"{text!r} is no backend: there are {there_is}, and your own, path/to/file.py:Transport; a label of up to 16 "
        "letters and digits gives one of them a second name (tcp:a, tcp:4:a)"
    )


def sealed(text: str, secure: str) -> str:
    """The backend that is like this one and encrypts so. Raises ValueError, which says why there is none; NotSealed."""
    if secure not in SECURE:
        raise ValueError(f"{secure!r} is no way to encrypt: use {', '.join(SECURE)}")
    name = parse(text)
    if secure in (IN_THE_CLEAR, name.seal):
        return text
    if (known := entry(name.name)) is None or not known.encrypts:
        raise NotSealed(
            f"{name.name} cannot encrypt: add {IN_THE_CLEAR}, or leave {name.name} out (--backend tcp)"
        )
    return str(name._replace(seal=secure))
