"""A host of a testbed, whichever kind the testbed is."""

from __future__ import annotations

from dataclasses import dataclass

EDGE, SERVER = "edge", "server"
ROLES = (EDGE, SERVER)


class TestbedError(Exception):
    """The testbed cannot be had; says what is missing and what to do about it."""

    __test__ = False  # not a test, whatever pytest makes of the name


@dataclass(frozen=True)
class Host:
    """folder: where code, weights and logs go, absolute. python: the interpreter that has the worker's packages."""

    name: str
    data_address: str
    data_interface: str
    folder: str
    python: str
    device: str = "cpu"
    threads: int = 1
    core: int | None = None
    cpu_share: float = 1.0
