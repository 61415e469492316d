"""Requests of the driver to the privileged helper (`python -m pareto.remote.link`), and the helper's reports."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Annotated, Any

from pareto.protocol.errors import UserError
from pareto.protocol.messages import Count, Finite, Request
from pareto.protocol.validation import Bounds, Text
from pareto.remote.link.profile import Bucket, Direction
from pareto.remote.link.trace import POSITION

_INTERFACE = Annotated[str, Text("[!-.0-~]{1,15}", "interface's name")]
_ADDRESS = Annotated[str, Text("[0-9A-Fa-f.:]{2,45}(%[!-.0-~]{1,15})?", "IP address")]
_SEED = Annotated[int, Bounds(0, (1 << 64) - 1)]
_MAX_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Supported(Request[bool], op="supported"):
    """Whether the kernel has sch_netem."""


@dataclass(frozen=True)
class Apply(Request[dict[str, Any]], op="apply"):
    """How an interface is to be shaped, which must carry `address`, this host's data address.

    egress, ingress: what leaves and what arrives; with nothing to shape everything of ours is taken off. bucket: for
    netem+tbf. filtered: only what goes to `peer`, the other host, is shaped, which is done unasked where SSH leaves
    through the interface. offset_s: where traces begin. patience_s: how long to wait for another helper that still has
    the interface. The report is what is in force, read back from the kernel, as `Interface.apply` has it.
    """

    interface: _INTERFACE
    address: _ADDRESS
    egress: Direction = field(default_factory=Direction)
    ingress: Direction = field(default_factory=Direction)
    bucket: Bucket | None = None
    peer: _ADDRESS | None = None
    filtered: bool = False
    offset_s: POSITION = 0.0
    patience_s: Annotated[float, Bounds(0, _MAX_PATIENCE_S, unit="s")] = 0.0

    def __post_init__(self) -> None:
        for address in (self.address, self.peer):
            if address is not None:
                parse(address)

    @property
    def shaped(self) -> bool:
        return self.egress.shaped or self.ingress.shaped


@dataclass(frozen=True)
class Restart(Request[dict[str, Any]], op="restart"):
    """The interface's traces begin anew at a position."""

    interface: _INTERFACE
    position_s: POSITION


@dataclass(frozen=True)
class Seed(Request[bool], op="seed"):
    """Chance begins anew in both directions; whether it now follows the seeds: kernels before 6.6 take none."""

    interface: _INTERFACE
    egress: _SEED
    ingress: _SEED


@dataclass(frozen=True)
class Counts:
    """Packets dropped since the qdiscs were put on, those included that netem is to lose; where the traces are."""

    dropped: Count
    position_s: Finite | None


@dataclass(frozen=True)
class Stats(Request[Counts], op="stats"):
    """The counts of an interface."""

    interface: _INTERFACE


@dataclass(frozen=True)
class Restore(Request[dict[str, list[str]]], op="restore"):
    """Put every interface back as it was; reports what is left because it is somebody else's."""


def parse(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address without its zone. Raises UserError."""
    try:
        return ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        raise UserError(f"{address!r} is no IP address") from None
