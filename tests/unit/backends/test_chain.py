"""Three hosts in a row, each a process, over each backend: that their work overlaps, and what happens in a fault."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import astuple
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from tests.program import wait_until
from tests.unit import chain_host
from tests.unit.backends.builders import keys
from tests.unit.chain_host import INPUTS, LINKED
from tests.unit.forked import Forked, context

ROLES = ("edge", "middle1", "server")
ADDRESSES = dict(zip(ROLES, ("127.0.0.1", "127.0.0.2", "127.0.0.3"), strict=True))
BEHIND = dict(itertools.pairwise(ROLES))
MANY = 2000
each_backend = pytest.mark.parametrize("backend", [*LINKED, "rpc"])


def results(reply: dict[str, Any]) -> list[Any]:
    assert reply["ok"], reply
    return sorted(reply["result"]["outputs"])


def plus(added: int, tensors: int = 1) -> list[Any]:
    return [[which, [which + added] * tensors] for which in range(INPUTS)]


class Chain(ExitStack):
    def __init__(self) -> None:
        super().__init__()
        self._barrier = context.Barrier(len(ROLES))
        self.hosts: dict[str, Forked] = {}
        self._ports: dict[str, dict[str, int]] = {}
        self._keys = astuple(keys())
        for role in ROLES:
            self.start(role)
        self.connect()

    def start(self, role: str) -> None:
        self.hosts[role] = self.enter_context(closing(Forked(chain_host.serve, self._barrier)))
        if role != "edge":
            self._ports[role] = self.hosts[role].result("listen", address=ADDRESSES[role], keys=self._keys)

    def reconnect(self) -> None:
        for role, behind in BEHIND.items():
            ports = self._ports[behind]
            self.hosts[role].result("connect", address=ADDRESSES[behind], ports=ports, keys=self._keys)

    def connect(self) -> None:
        self.reconnect()
        where = {"hosts": ROLES, "port": self.hosts["server"].result("rendezvous")}
        with ThreadPoolExecutor() as pool:  # they wait for each other
            list(pool.map(lambda role: self.hosts[role].result("join", role=role, **where), ROLES))

    def stage(
        self,
        backend: str,
        seconds: float = 0.0,
        kinds: tuple[str, str] = ("adds", "adds"),
        graph: str = "graph",
        end: int = 2,
        **more: int,
    ) -> None:
        """graph: that the middle asks the server for. end: position of the last host that takes part. more: results,
        width; meeting: each of so many requests is worked on while all hosts are at work."""
        fields: dict[str, Any] = {"results": 1, "width": 8, "meeting": 0, **more}
        fields |= {"backend": backend, "seconds": seconds}
        for position, role in enumerate(ROLES[: end + 1]):
            fields["onward"] = None if position == end else graph if position == 1 else "graph"
            self.hosts[role].result("stage", position=position, kind=kinds[max(0, position - 1)], **fields)

    def run(self, backend: str, *, requests: int = 12, depth: int = 6, width: int = 8) -> Any:
        return self.hosts["edge"].reply("run", backend=backend, requests=requests, depth=depth, width=width)

    def heals(self, backend: str) -> None:
        self.stage(backend)
        assert results(self.run(backend)) == plus(2)


@pytest.fixture(scope="module")
def chain() -> Iterator[Chain]:
    with Chain() as chain:
        yield chain


@each_backend
def test_the_stages_of_a_chain_overlap(chain: Chain, backend: str) -> None:
    """No host gets through with a request before the two others are at work as well."""
    made = 12 + 1 + 6  # steady, the first, and those that drain the steps
    chain.stage(backend, meeting=made)
    reply = chain.run(backend, requests=12, depth=6)
    assert results(reply) == plus(2)
    answered = zip(*reply["result"]["stages_s"], strict=True)
    for role, seconds in zip(BEHIND.values(), answered, strict=True):
        # An agent's threads may begin with two requests in either order, so the order is not compared.
        assert sorted(seconds) == sorted(chain.hosts[role].result("took"))
        assert len(seconds) == made


@each_backend
@pytest.mark.timeout(60)
def test_many_requests_in_flight_come_through(chain: Chain, backend: str) -> None:
    """More than there are threads and buffers; several results; over a host that only passes on."""
    chain.stage(backend, kinds=("idle", "adds"), results=3)
    assert results(chain.run(backend, requests=320, depth=64)) == plus(1, tensors=3)
    assert len(chain.hosts["middle1"].result("took")) == 320 + 1 + 64


@each_backend
@pytest.mark.deep
@pytest.mark.timeout(180)
def test_memory_is_flat_over_thousands_of_requests(chain: Chain, backend: str) -> None:
    """20 kB each: what is kept of a tenth of them would show."""
    chain.stage(backend, width=5000)
    chain.run(backend, requests=500, depth=16, width=5000)
    before = {role: host.result("resident_bytes") for role, host in chain.hosts.items()}
    assert results(chain.run(backend, requests=MANY, depth=16, width=5000)) == plus(2)
    grown = {role: host.result("resident_bytes") - before[role] for role, host in chain.hosts.items()}
    assert max(grown.values()) < MANY * 20_000 / 10, grown


@each_backend
def test_a_chain_is_warmed_and_can_end_before_its_last_host(chain: Chain, backend: str) -> None:
    for role in BEHIND:
        chain.hosts[role].result("warm", backend=backend, nbytes=100_000)
    chain.heals(backend)
    chain.stage(backend, end=1)
    reply = chain.run(backend)
    assert results(reply) == plus(1)
    assert {len(stages) for stages in reply["result"]["stages_s"]} == {1}


@each_backend
@pytest.mark.parametrize("role", ["middle1", "server"])
@pytest.mark.timeout(60)
def test_a_fault_reaches_the_edge(chain: Chain, backend: str, role: str, snapshot: SnapshotAssertion) -> None:
    errors = []
    for requests, depth in ((2, 2), (100, 64)):  # a fault when all is sent, and in the middle of sending
        kinds = ("at fault", "adds") if role == "middle1" else ("adds", "at fault")
        chain.stage(backend, kinds=kinds)
        errors.append(chain.run(backend, requests=requests, depth=depth)["error"])
        chain.connect()
    assert errors == snapshot
    chain.heals(backend)


@each_backend
@pytest.mark.timeout(60)
def test_another_model_further_on_is_refused(chain: Chain, backend: str, snapshot: SnapshotAssertion) -> None:
    """After a fault the hosts behind still work on what was sent."""
    chain.stage(backend, graph="another")
    assert chain.run(backend, requests=100, depth=64)["error"] == snapshot
    chain.connect()
    chain.stage(backend, 0.01, kinds=("at fault", "adds"))
    assert not chain.run(backend, requests=100, depth=64)["ok"]
    chain.connect()
    chain.heals(backend)


@pytest.mark.parametrize("role", ["middle1", "server"])
@pytest.mark.timeout(120)
def test_a_host_that_dies_ends_the_trial_and_another_takes_its_place(role: str) -> None:
    with Chain() as chain, ThreadPoolExecutor() as pool:
        for backend in ("rpc", "tcp"):
            chain.stage(backend, 0.005)
            running = pool.submit(chain.run, backend, requests=100_000, depth=16)
            assert wait_until(lambda: len(chain.hosts[role].result("took")) >= 10, 60)
            chain.hosts[role].process.kill()
            reply = running.result(60)
            assert not reply["ok"]
            if role == "server":  # the middle says so, and of whom
                middle, server = {"tcp": ("127.0.0.2", "127.0.0.3"), "rpc": ("middle1", "server")}[backend]
                _, _, said = reply["error"].partition(f"{middle} says: ")
                assert server in said
            chain.start(role)
            chain.reconnect()  # but for rpc: processes that met before do not meet a new one
        chain.heals("tcp")


@each_backend
@pytest.mark.parametrize("role", ["middle1", "server"])
@pytest.mark.timeout(120)
def test_a_reset_ends_the_trial_and_the_next_connect_heals(chain: Chain, backend: str, role: str) -> None:
    """In the middle of a phase, with tensors on their way; no trial waits for a time-out."""
    width = 100_000
    chain.stage(backend, 0.002, width=width)
    with ThreadPoolExecutor() as pool:
        running = pool.submit(chain.run, backend, requests=100_000, depth=16, width=width)
        assert wait_until(lambda: len(chain.hosts[role].result("took")) >= 10, 60)
        assert chain.hosts[role].result("reset")
        reply = running.result(30)
    assert not reply["ok"]
    ended = r"reset by peer|Broken pipe|closed (the|one of several) connections?|not connected"
    assert re.search(ended, reply["error"])
    assert "tensorpipe" not in reply["error"]
    chain.connect()
    chain.heals(backend)
