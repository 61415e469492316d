"""A host of a testbed, whichever kind the testbed is."""

from __future__ import annotations

from dataclasses import dataclass

from pareto.errors import UserError

EDGE, SERVER = "edge", "server"
ROLES = (EDGE, SERVER)
MIDDLE = "middle"
MAX_HOSTS = 8


def chain(hosts: int) -> tuple[str, ...]:
    """The roles of so many hosts, from the edge on: edge, middle1, middle2, ..., server."""
    return (EDGE, *(f"{MIDDLE}{number}" for number in range(1, hosts - 1)), SERVER)


class TestbedError(UserError):
    """The testbed cannot be had; says what is missing and what to do about it."""

    __test__ = False  # not a test, whatever pytest makes of the name


@dataclass(frozen=True)
class End:
    """Where a link meets a host."""

    role: str
    address: str
    interface: str


@dataclass(frozen=True)
class Host:
    """data_address: its own, on the link towards the edge; of the edge, on its only link. data_interface: which has it.
    folder: where code, weights and logs go, absolute. python: the interpreter that has the worker's packages."""

    name: str
    data_address: str
    data_interface: str
    folder: str
    python: str
    device: str = "cpu"
    threads: int = 1
    core: int | None = None
    cpu_share: float = 1.0
