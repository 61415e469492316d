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
SEALED = "tcp:tls", "tcp:4:tls"
"""Encrypted backends."""


@dataclass(frozen=True)
class Fault:
    """reason: what the report of it must name. within_s: how soon it should be noticed, and explained."""

    what: str
    whom: str
    then: str
    reason: str = ""
    when: str = "trial"
    backend: str = "tcp"
    within_s: float = 5.0

    def __str__(self) -> str:
        return f"{self.what}-{self.whom}-{self.when}-{self.backend}".replace(" ", "_")


def _testbed() -> Iterator[Fault]:
    """What the local testbed is made of."""
    builder, relay = "the builder", "the relay"
    for what, reason in (("SIGKILL", KILLED), ("SIGTERM", "ended by SIGTERM"), ("SIGHUP", "ended by SIGHUP")):
        yield Fault(what, builder, AGAIN, reason)
    yield Fault("SIGSTOP", builder, AGAIN, "did not answer in time", within_s=20)
    for when, backend in product(("load", "connect", "shape", "warm", "stage", "stats"), ("tcp", "rpc")):
        yield Fault("SIGKILL", builder, AGAIN, KILLED, when, backend)
    between = "the relay between edge and server"
    for when, backend in (("trial", "tcp"), ("trial", "rpc"), ("probe", "tcp")):
        yield Fault("SIGKILL", relay, AGAIN, f"{between} ended: {KILLED}", when, backend)
    for what in ("SIGTERM", "SIGHUP"):
        yield Fault(what, relay, AGAIN, f"{between} ended")
    yield Fault("SIGSTOP", relay, AGAIN, f"{between} is stopped")
    for host, backend in product(("edge", "server"), ("tcp", "rpc")):
        yield Fault("SIGKILL", f"the sshd of {host}", AGAIN, f"the sshd of {host} ended", backend=backend)
    yield Fault("SIGTERM", "the sshd of edge", AGAIN, "the sshd of edge ended")
    for what in ("SIGHUP", "SIGSTOP"):
        yield Fault(what, "the sshd of edge", HARMLESS)
    yield Fault("removed", "the namespace of edge", AGAIN, "the namespace pareto0-edge is gone")
    yield Fault("removed", "the namespace of the link", AGAIN, "the namespace pareto0-link0 is gone")
    yield Fault("removed", "the management interface", AGAIN, "the interface mgmt0 in pareto0-edge is gone")
    yield Fault("down", "the data interface", AGAIN, "the interface data0 in pareto0-edge is down")
    yield Fault("removed", "the data interface", AGAIN, "the interface data0 in pareto0-")
    yield Fault("removed", "the journal's folder", AGAIN, "/run/pareto/0")
    yield Fault("nothing for 10 s", "the link", HARMLESS, within_s=60)
    for backend, within_s in (("tcp", 90), ("rpc", 150)):
        yield Fault("nothing for good", "the link", FAILED, "edge", backend=backend, within_s=within_s)


def _workers() -> Iterator[Fault]:
    """What runs on the hosts."""
    moments = "load", "stage", "trial", "usage"
    for host, backend, when in product(("edge", "server"), ("tcp", "rpc"), moments):
        if (host, when) == ("edge", "usage"):  # only the others are asked
            continue
        within_s = 75 if (host, backend, when) == ("server", "rpc", "trial") else 5
        yield Fault("SIGKILL", f"the worker of {host}", FAILED, f"{host} ended", when, backend, within_s)
    for what in ("SIGTERM", "SIGHUP"):
        yield Fault(what, "the worker of server", FAILED, "server")
    silent = "edge did not answer in time"
    for host in ("server", "edge"):
        yield Fault("SIGSTOP", f"the worker of {host}", FAILED, silent, within_s=200)
    yield Fault("out of memory", "the worker of server", FAILED, "out of memory", when="load")
    yield Fault("SIGKILL", "the monitor of edge", FAILED, "edge ended")
    yield Fault("SIGSTOP", "the monitor of edge", FAILED, silent, within_s=60)


def _peers() -> Iterator[Fault]:
    """What a peer does on the tcp backend's connections; each in either direction, on one connection or several."""
    breaks = "{} in mid-header", "half a frame then {}"
    broken = [how.format(end) for how, end in product(breaks, ("reset", "closed"))]
    lying = "one byte less", "one byte more", "a length of 2^62"
    other = "another magic", "another version", "another kind", "another dtype", "another rank", "garbage"
    of_reply = "another number", "8 stages", "NaN seconds", "infinite seconds"
    for way, backend in product(("a request", "a reply"), ("tcp", "tcp:4")):
        for what in (*broken, *lying, *other, "twice"):
            yield Fault(what, way, FAILED, "edge: ", backend=backend, within_s=8)
        for what in of_reply if way == "a reply" else ("another fingerprint",):
            yield Fault(what, way, FAILED, "edge: ", backend=backend)
        for what in ("NaN", "a number a million times as large"):
            yield Fault(what, way, INVALID, "output differs", backend=backend)
        yield Fault("byte by byte", way, HARMLESS, backend=backend)
        yield Fault("half a frame then silence", way, FAILED, "edge", backend=backend, within_s=100)
    for backend in ("tcp", "tcp:4"):
        for what in ("closed", "reset"):
            yield Fault(what, "a handshake", HARMLESS, "", "connect", backend, 15)
        yield Fault("silence", "a handshake", FAILED, "timed out", "connect", backend, 15)  # not tried again
    for way, backend in product(("a request", "a reply"), SEALED):
        for what in ("one bit", "twice", "half a frame then closed"):
            yield Fault(what, way, FAILED, "edge: ", backend=backend, within_s=8)
    yield Fault("another nonce", "a handshake", FAILED, "edge: ", when="connect", within_s=15)


def _driver() -> Iterator[Fault]:
    """What happens to the command itself, once some trials are measured. reason: in what it says last; where it was
    killed it says nothing."""
    yield Fault("SIGKILL", "the driver", ENDED, within_s=20)
    for what in ("SIGTERM", "SIGHUP", "SIGINT"):
        yield Fault(what, "the driver", ENDED, "--resume", within_s=30)


TESTBED = tuple(_testbed())
WORKERS = tuple(_workers())
PEERS = tuple(_peers())
DRIVER = tuple(_driver())

GATE = (
    *("SIGKILL-the_builder-trial-tcp", "SIGHUP-the_sshd_of_edge-trial-tcp", "SIGKILL-the_relay-trial-tcp"),
    *("SIGKILL-the_sshd_of_edge-trial-tcp", "removed-the_namespace_of_edge-trial-tcp"),
    *("SIGKILL-the_monitor_of_edge-trial-tcp", "reset_in_mid-header-a_request-trial-tcp"),
    *("half_a_frame_then_closed-a_reply-trial-tcp", "twice-a_request-trial-tcp", "NaN-a_reply-trial-tcp"),
    *("one_byte_less-a_request-trial-tcp", "one_byte_more-a_reply-trial-tcp", "garbage-a_reply-trial-tcp"),
    *("NaN_seconds-a_reply-trial-tcp", "another_version-a_request-trial-tcp"),
    *("another_fingerprint-a_request-trial-tcp", "a_length_of_2^62-a_reply-trial-tcp:4"),
    *("byte_by_byte-a_request-trial-tcp:4", "one_bit-a_reply-trial-tcp:tls"),
    *("closed-a_handshake-connect-tcp", "another_nonce-a_handshake-connect-tcp"),
)
"""Those that each change meets: one of each outcome. The others are deep; a killed worker and a killed driver are in
tests/integration/test_sweep.py too, disks in tests/unit."""
