"""The parts of every testbed, whichever kind it is: hosts in roles, the ends of links, and how TCP behaves."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pareto.basics.escaping import say
from pareto.protocol.errors import UserError
from pareto.protocol.own import Own

EDGE, SERVER = "edge", "server"
ROLES = (EDGE, SERVER)
MIDDLE = "middle"
MAX_HOSTS = 8
CPU = "cpu"
DEVICE = re.compile(rf"{CPU}|cuda:\d+")
"""Where a host computes."""


def chain(hosts: int) -> tuple[str, ...]:
    """The roles of so many hosts, from the edge on: edge, middle1, middle2, ..., server."""
    return (EDGE, *(f"{MIDDLE}{number}" for number in range(1, hosts - 1)), SERVER)


def devices(text: str, roles: Sequence[str]) -> dict[str, str]:
    """By role, where it computes: `cuda:0` for all, `server=cuda:0,...` for some, else on the CPU. Raises UserError."""
    named: dict[str, str] = {}
    for part in text.split(","):
        role, joined, device = part.strip().rpartition("=")
        if not DEVICE.fullmatch(device) or (not joined and "," in text):
            raise UserError(
                f"--device {text!r}: use {CPU}, or cuda:0 for the first GPU, or say it for each host: server=cuda:0"
            )
        if joined and (role not in roles or role in named):
            fault = "is named twice" if role in named else f"is no host: there are {', '.join(roles)}"
            raise UserError(f"--device {text!r}: {role!r} {fault}")
        named |= {role: device} if joined else dict.fromkeys(roles, device)
    return {role: named.get(role, CPU) for role in roles}


def gpus_in_words(text: str, roles: Sequence[str], alone: str = "") -> str:
    """`, server on cuda:0`: what `devices` says of hosts on a GPU; of the only one, where it is `alone`."""
    named = devices(text, roles).items()
    return "".join(f", {role} on {device}" for role, device in named if device != CPU and alone in ("", role))


class TestbedError(UserError):
    """The testbed cannot be had; says what is missing and what to do about it."""


def not_installed(program: str, package: str) -> TestbedError:
    return TestbedError(
        f"no {program} on this machine: install it (on Debian or Ubuntu: apt-get install {package})"
    )


def is_virtual(interface: str) -> bool:
    """Whether an interface joins containers or virtual machines, which leads to no other host."""
    return interface == "lo" or interface.startswith(_VIRTUAL)


_VIRTUAL = ("docker", "br-", "veth", "virbr", "cni", "flannel", "lxcbr", "lxdbr", "podman", "ifb", "dummy")


Say = Callable[[str], None]
to_stderr = partial(say, aside=True)
"""Says a line to the user, where stdout is for results."""


@dataclass(frozen=True)
class End:
    """Where a link meets a host."""

    role: str
    address: str
    interface: str


@dataclass(frozen=True)
class Host:
    """data_address: its own, on the link towards the edge; of the edge, on its only link. data_interface: which has it.
    folder: where code, weights and logs go, absolute. python: the interpreter that has the worker's packages. meter: a
    user's own, of its energy."""

    name: str
    data_address: str
    data_interface: str
    folder: str
    python: str
    device: str = CPU
    threads: int = 1
    core: int | None = None
    meter: Own | None = None


@dataclass(frozen=True)
class TcpSettings:
    """For every connection, so for both backends alike. The defaults cost what is measured least.

    congestion: None is the testbed's own (cubic on the local one, each host's on real ones). initial_window: in
    segments; from Linux's ten a long link takes seconds to warm up, and many more would fill the shaper's queue at once
    and look like a time-out. slow_start_after_idle: the window falls back to the first one after a pause.
    """

    congestion: str | None = None
    initial_window: int = 100
    slow_start_after_idle: bool = False

    @property
    def fills(self) -> bool:
        """Whether bulk that follows a pause runs at the link's rate from its first byte on."""
        return not self.slow_start_after_idle
