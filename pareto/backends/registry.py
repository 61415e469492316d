"""The backends: what each is called, and which module has it.

A backend is called NAME[:VARIANT][:LABEL], as in `tcp`, `tcp:4`, `rpc:basic`, `tcp:4:a`. A variant says how the backend
carries tensors. A label says nothing: `tcp:a` and `tcp:b` are the same under two names, for seeing how far apart two
measurements of one thing lie. This module needs no torch: a request is checked with it.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from pareto.backends.base import AgentBackend, Backend

SEPARATOR = ":"
MOST_CONNECTIONS = 64
RPC_CHANNELS = {"": ("mpt_uv", "basic"), "basic": ("basic",)}
"""TensorPipe's channels by variant. `mpt_uv`, a tensor over 16 connections, is PyTorch's own choice between two hosts.
Left out are those that need no network: shared memory (`shm`), another process' memory (`cma`); and InfiniBand's."""


class Entry(NamedTuple):
    """A backend. variants: the pattern that they match. words: how messages describe them.

    has_agent: whether each host has an agent, one per process, and all agents meet.
    """

    module: str
    variants: str
    words: str
    has_agent: bool = False


BACKENDS = {
    "tcp": Entry(
        "pareto.backends.tcp",
        rf"[2-9]|[1-5][0-9]|6[0-{MOST_CONNECTIONS % 10}]",
        f"tcp:N (over 2 to {MOST_CONNECTIONS} connections)",
    ),
    "rpc": Entry("pareto.backends.rpc", "basic", "rpc:basic (over one connection)", has_agent=True),
}
"""A new backend is a module and an entry here."""
_LABEL = r"([A-Za-z_][A-Za-z0-9_]{0,15})?"


class BackendName(NamedTuple):
    name: str
    variant: str = ""
    label: str = ""

    @property
    def transport(self) -> str:
        """What carries the tensors: the backend and its variant, without a label."""
        return SEPARATOR.join(filter(None, (self.name, self.variant)))

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
        parsed = BackendName(name, variant, more.pop(0) if more else "")
        # Another backend's variant is no label: rpc:4 would look like four connections.
        taken = any(re.fullmatch(entry.variants, parsed.label) for entry in BACKENDS.values())
        if SEPARATOR.join(filter(None, parsed)) == text and re.fullmatch(_LABEL, parsed.label) and not taken:
            return parsed
    there_is = ", ".join(f"{name}, {entry.words}" for name, entry in BACKENDS.items())
    raise ValueError(
        f"{text!r} is no backend: there are {there_is}; a label of up to 16 letters and digits gives one of them "
        "a second name (tcp:a, tcp:4:a)"
    )


def backend(name: str) -> Backend:
    """Import a backend's module."""
    return cast("Backend", import_module(BACKENDS[name].module))


def agents(name: str) -> AgentBackend:
    """Import the module of a backend that has agents."""
    return cast("AgentBackend", import_module(BACKENDS[name].module))
