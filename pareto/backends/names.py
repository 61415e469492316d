"""How a backend is called: NAME[:VARIANT][:LABEL], as in `tcp`, `tcp:4`, `rpc:basic`, `tcp:4:a`. All are declared here.

A variant says how the backend carries tensors. A label says nothing: `tcp:a` and `tcp:b` are the same under two names,
for seeing how far apart two measurements of one thing lie. Needs no torch: whoever checks what was asked reads this.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SEPARATOR = ":"
MOST_CONNECTIONS = 64
RPC_CHANNELS = {"": ("mpt_uv", "basic"), "basic": ("basic",)}
"""TensorPipe's channels by variant. `mpt_uv`, a tensor over 16 connections, is PyTorch's own choice between two hosts.
Left out are those that need no network: shared memory (`shm`), another process' memory (`cma`); and InfiniBand's."""
VARIANTS = {
    "tcp": (
        rf"[2-9]|[1-5][0-9]|6[0-{MOST_CONNECTIONS % 10}]",
        f"tcp:N (over 2 to {MOST_CONNECTIONS} connections)",
    ),
    "rpc": ("basic", "rpc:basic (over one connection)"),
}
"""Of each backend: what its variants match, and how a message tells of them."""
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
        """Of tcp: on how many a tensor goes."""
        return int(self.variant or 1)

    @property
    def agent(self) -> str:
        """The rpc agent that it needs, by transport; empty where it needs none. A process has one at a time."""
        return self.transport if self.name == "rpc" else ""


def parse(text: str) -> BackendName:
    """Raises ValueError for a name that no backend has, which says what there is."""
    name, *more = text.split(SEPARATOR)
    if name in VARIANTS:
        variant = more.pop(0) if more and re.fullmatch(VARIANTS[name][0], more[0]) else ""
        found = BackendName(name, variant, more.pop(0) if more else "")
        # Another backend's variant is no label: rpc:4 would look like four connections.
        taken = any(re.fullmatch(pattern, found.label) for pattern, _ in VARIANTS.values())
        if SEPARATOR.join(filter(None, found)) == text and re.fullmatch(_LABEL, found.label) and not taken:
            return found
    there_is = ", ".join(f"{name}, {words}" for name, (_, words) in VARIANTS.items())
    raise ValueError(
        f"{text!r} is no backend: there are {there_is}; a label of up to 16 letters and digits gives one of them "
        "a second name (tcp:a, tcp:4:a)"
    )
