"""What the privileged helper may be asked, declared: each request's fields, their types and bounds."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Annotated

from pareto.errors import UserError
from pareto.link.profile import Bucket, Direction
from pareto.link.schema import Bounds, Text, check
from pareto.link.trace import POSITION

INTERFACE = Annotated[str, Text("[!-.0-~]{1,15}", "interface's name")]
ADDRESS = Annotated[str, Text("[0-9A-Fa-f.:]{2,45}(%[!-.0-~]{1,15})?", "IP address")]
SEED = Annotated[int, Bounds(0, (1 << 64) - 1)]
MAX_PATIENCE_S = 120.0


@dataclass(frozen=True)
class Nothing:
    """A request that its name says."""

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class Apply(Nothing):
    """How an interface, which carries that data address of this host, is to be shaped."""

    interface: INTERFACE
    address: ADDRESS
    egress: Direction = field(default_factory=Direction)
    ingress: Direction = field(default_factory=Direction)
    bucket: Bucket | None = None
    peer: ADDRESS | None = None
    filtered: bool = False
    offset_s: POSITION = 0.0
    patience_s: Annotated[float, Bounds(0, MAX_PATIENCE_S, "s")] = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for address in (self.address, self.peer):
            if address is not None:
                parsed(address)

    @property
    def shaped(self) -> bool:
        return self.egress.shaped or self.ingress.shaped


@dataclass(frozen=True)
class Restart(Nothing):
    """The traces begin anew at a position."""

    position_s: POSITION


@dataclass(frozen=True)
class Seed(Nothing):
    """Chance begins anew in both directions."""

    interface: INTERFACE
    egress: SEED
    ingress: SEED


@dataclass(frozen=True)
class Stats(Nothing):
    """What was dropped on an interface, and where its traces are."""

    interface: INTERFACE


def parsed(address: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The address without its zone. Raises UserError."""
    try:
        return ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        raise UserError(f"{address!r} is no IP address") from None
