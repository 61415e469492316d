"""The faults, as data: what happens to whom, when, and what must come of it.

`when` is a request of the control protocol: the fault strikes once it was sent. Within `trial` it strikes while the
payload crosses. `then` is what becomes of the trial that was in flight:

- AGAIN: the testbed is built again, and the trial done again; its row is measured.
- FAILED: its row says why, and the next trial is measured. A resume does it again.
- HARMLESS: nothing is noticed.
- INVALID: it is measured, and its row says why it does not count.
- ENDED: the run ends, without a traceback; what it measured is kept, and a resume does the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

AGAIN, FAILED, HARMLESS, INVALID, ENDED = "again", "failed", "harmless", "invalid", "ended"
KILLED = "killed by signal 9"
SEALED = "tcp:tls", "tcp:aes-gcm", "tcp:4:tls", "tcp:4:aes-gcm"
"""Encrypted backends."""


@dataclass(frozen=True)
class Fault:
    """reason: what the report of it must name. within_s: how soon it is noticed, and explained.

    slow: only with --all-faults.
    """

    what: str
    whom: str
    then: str
    reason: str = ""
    when: str = "trial"
    backend: str = "tcp"
    within_s: float = 5.0
    slow: bool = False

    def __str__(self) -> str:
        return f"{self.what}-{self.whom}-{self.when}-{self.backend}".replace(" ", "_")


def _testbed() -> Iterator[Fault]:
    """What the local testbed is made of."""
    builder, relay = "the builder", "the relay"
    for what, reason in (("SIGKILL", KILLED), ("SIGTERM", "ended by SIGTERM"), ("SIGHUP", "ended by SIGHUP")):
        yield Fault(what, builder, AGAIN, reason, slow=what != "SIGKILL")
    yield Fault("SIGSTOP", builder, AGAIN, "did not answer in time", within_s=20, slow=True)
    for when, backend in product(("load", "connect", "shape", "warm", "stage", "stats"), ("tcp", "rpc")):
        yield Fault("SIGKILL", builder, AGAIN, KILLED, when, backend, slow=True)
    between = "the relay between edge and server"
    yield Fault("SIGKILL", relay, AGAIN, f"{between} ended: {KILLED}")
    yield Fault("SIGKILL", relay, AGAIN, f"{between} ended: {KILLED}", backend="rpc", slow=True)
    yield Fault("SIGKILL", relay, AGAIN, f"{between} ended: {KILLED}", when="probe", slow=True)
    yield Fault("SIGTERM", relay, AGAIN, f"{between} ended", slow=True)
    yield Fault("SIGHUP", relay, AGAIN, f"{between} ended", slow=True)
    yield Fault("SIGSTOP", relay, AGAIN, f"{between} is stopped")
    for host, backend in product(("edge", "server"), ("tcp", "rpc")):
        slow = (host, backend) != ("edge", "rpc")
        reason = f"the sshd of {host} ended"
        yield Fault("SIGKILL", f"the sshd of {host}", AGAIN, reason, backend=backend, slow=slow)
    yield Fault("SIGTERM", "the sshd of edge", AGAIN, "the sshd of edge ended", slow=True)
    yield Fault("SIGHUP", "the sshd of edge", HARMLESS, slow=True)
    yield Fault("SIGSTOP", "the sshd of edge", HARMLESS, slow=True)
    yield Fault("removed", "the namespace of edge", AGAIN, "the namespace pareto0-edge is gone")
    yield Fault(
        "removed", "the namespace of the link", AGAIN, "the namespace pareto0-link0 is gone", slow=True
    )
    yield Fault("removed", "the management interface", AGAIN, "the interface mgmt0 in pareto0-edge is gone")
    yield Fault("down", "the data interface", AGAIN, "the interface data0 in pareto0-edge is down")
    yield Fault("removed", "the data interface", AGAIN, "the interface data0 in pareto0-", slow=True)
    yield Fault("removed", "the journal's folder", AGAIN, "/run/pareto/0", slow=True)
    yield Fault("nothing for 10 s", "the link", HARMLESS, slow=True, within_s=60)
    for backend, within_s in (("tcp", 90), ("rpc", 150)):
        yield Fault(
            "nothing for good", "the link", FAILED, "edge", backend=backend, within_s=within_s, slow=True
        )


def _workers() -> Iterator[Fault]:
    """What runs on the hosts."""
    for host, backend, when in product(
        ("edge", "server"), ("tcp", "rpc"), ("load", "stage", "trial", "usage")
    ):
        quick = ("edge", "rpc", "trial"), ("server", "tcp", "trial")
        if (host, when) == ("edge", "usage"):  # only the others are asked
            continue
        slow = (host, backend, when) not in quick
        within_s = 75 if (host, backend, when) == ("server", "rpc", "trial") else 5
        yield Fault(
            "SIGKILL",
            f"the worker of {host}",
            FAILED,
            f"{host} ended",
            when,
            backend,
            within_s=within_s,
            slow=slow,
        )
    for what in ("SIGTERM", "SIGHUP"):
        yield Fault(what, "the worker of server", FAILED, "server", slow=True)
    yield Fault(
        "SIGSTOP", "the worker of server", FAILED, "edge did not answer in time", within_s=200, slow=True
    )
    yield Fault(
        "SIGSTOP", "the worker of edge", FAILED, "edge did not answer in time", within_s=200, slow=True
    )
    yield Fault("out of memory", "the worker of server", FAILED, "out of memory", when="load", slow=True)
    yield Fault("SIGKILL", "the monitor of edge", FAILED, "edge ended", slow=False)
    yield Fault(
        "SIGSTOP", "the monitor of edge", FAILED, "edge did not answer in time", within_s=60, slow=True
    )


def _peers() -> Iterator[Fault]:
    """What a peer does on the tcp backend's connections; each in either direction, on one connection or several."""
    broken = (
        "reset in mid-header",
        "closed in mid-header",
        "half a frame then reset",
        "half a frame then closed",
    )
    lying = "one byte less", "one byte more", "a length of 2^62"
    other = "another magic", "another version", "another kind", "another dtype", "another rank", "garbage"
    of_reply = "another number", "8 stages", "NaN seconds", "infinite seconds"
    for way, backend in product(("a request", "a reply"), ("tcp", "tcp:4")):
        for what in (*broken, *lying, *other, "twice"):
            slow = backend == "tcp:4" and what not in (*broken, "garbage")
            yield Fault(what, way, FAILED, "edge: ", backend=backend, within_s=8, slow=slow)
        for what in of_reply if way == "a reply" else ("another fingerprint",):
            yield Fault(what, way, FAILED, "edge: ", backend=backend, within_s=5, slow=backend == "tcp:4")
        for what in ("NaN", "a number a million times as large"):
            yield Fault(what, way, INVALID, "output differs", backend=backend)
        yield Fault("byte by byte", way, HARMLESS, backend=backend)
        within_s = 100
        yield Fault(
            "half a frame then silence", way, FAILED, "edge", backend=backend, within_s=within_s, slow=True
        )
    for what, backend in product(
        ("closed", "reset", "silence"), ("tcp", "tcp:4")
    ):  # silence is not tried again
        then, slow = (FAILED if what == "silence" else HARMLESS), what == "silence" or backend == "tcp:4"
        yield Fault(
            what, "a handshake", then, "timed out" if then == FAILED else "", "connect", backend, 15, slow
        )
    for way, backend in product(("a request", "a reply"), SEALED):
        for what in ("one bit", "twice", "half a frame then closed"):
            slow = backend != SEALED[0] and what != "one bit"
            yield Fault(what, way, FAILED, "edge: ", backend=backend, within_s=8, slow=slow)
    yield Fault("another nonce", "a handshake", FAILED, "edge: ", when="connect", within_s=15)


def _driver() -> Iterator[Fault]:
    """What happens to the command itself, or to the folder that it writes to, once some trials are measured.

    reason: in what it says last; where it was killed it says nothing.
    """
    yield Fault("SIGKILL", "the driver", ENDED, within_s=20, slow=True)
    for what in ("SIGTERM", "SIGHUP", "SIGINT"):
        yield Fault(what, "the driver", ENDED, "--resume", within_s=30, slow=what != "SIGTERM")
    yield Fault("full", "the disk", ENDED, "No space left", within_s=30, slow=True)
    yield Fault("read-only", "the disk", ENDED, "Read-only", within_s=30, slow=True)
    yield Fault("removed", "the run's folder", ENDED, "", within_s=60, slow=True)
    yield Fault("a second", "driver", HARMLESS, slow=True)


TESTBED = tuple(_testbed())
WORKERS = tuple(_workers())
PEERS = tuple(_peers())
DRIVER = tuple(_driver())
