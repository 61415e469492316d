"""A veth between the guest and a namespace, and numbered datagrams over it that the kernel stamps on arrival."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from pyroute2 import IPRoute, netns

from pareto.remote.link import __main__ as link_program
from tests.program import Program, ended

REPO = Path(__file__).resolve().parents[2]
HERE, PEER, OTHER = "10.77.0.1", "10.77.0.2", "10.77.0.3"  # both last ones are the peer's
PORT = 7000
HEADERS = 42  # Ethernet, IPv4, UDP

_TIMESTAMPS, _NO_CHECK, _RECEIVE_BUFFER = 35, 11, 33  # SO_TIMESTAMPNS, SO_NO_CHECK, SO_RCVBUFFORCE
_NAMESPACE = "pareto-test-peer"
_MACS = {"data0": "02:00:00:00:00:01", "data1": "02:00:00:00:00:02"}


@contextmanager
def veth() -> Iterator[None]:
    """data0 here, data1 in the namespace; no ARP, no IPv6."""
    netns.create(_NAMESPACE)
    try:
        with IPRoute() as ip:
            ip.link("add", ifname="data0", kind="veth", peer={"ifname": "data1", "net_ns_fd": _NAMESPACE})
        Path("/proc/sys/net/ipv6/conf/data0/disable_ipv6").write_text("1")
        _up("data0", [HERE], [PEER, OTHER, "10.77.0.9"], _MACS["data1"])
        with in_peer():
            Path("/proc/sys/net/ipv6/conf/data1/disable_ipv6").write_text("1")
            _up("data1", [PEER, OTHER], [HERE], _MACS["data0"])
        yield
    finally:
        with IPRoute() as ip:
            for index in ip.link_lookup(ifname="data0"):
                ip.link("del", index=index)
        netns.remove(_NAMESPACE)


def _up(interface: str, addresses: list[str], neighbours: list[str], mac: str) -> None:
    with IPRoute() as ip:
        index = ip.link_lookup(ifname=interface)[0]
        ip.link("set", index=index, address=_MACS[interface])
        for address in addresses:
            ip.addr("add", index=index, address=address, prefixlen=24)
        ip.link("set", index=index, state="up")
        for neighbour in neighbours:
            ip.neigh("add", dst=neighbour, lladdr=mac, ifindex=index, state=128)  # permanent


@contextmanager
def in_peer() -> Iterator[None]:
    netns.pushns(_NAMESPACE)
    try:
        yield
    finally:
        netns.popns()


@dataclass(frozen=True)
class Arrival:
    number: int
    delay_s: float
    at_s: float
    intact: bool


def datagrams(
    count: int,
    every_s: float,
    *,
    size: int = 1514,
    to: str = PEER,
    back: bool = False,
    wait_s: float = 0.3,
    enough: int | None = None,
) -> list[Arrival]:
    """Send that many, of so many bytes on the wire, to the peer (or from it: `back`); what arrived, in its order.

    Until there are `enough`, or none comes any more.
    """
    if back:
        with in_peer():
            sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        receiver, to = _receiver(HERE), HERE
    else:
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with in_peer():
            receiver = _receiver(to)
    sender.setsockopt(socket.SOL_SOCKET, _NO_CHECK, 1)
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 << 20)
    filling = bytes(size - HEADERS - 4)
    sent = []
    with sender, receiver:
        begin = time.perf_counter()
        for number in range(count):
            time.sleep(max(0.0, begin + number * every_s - time.perf_counter()))
            sent.append(time.time())
            sender.sendto(struct.pack("!I", number) + filling, (to, PORT))
        return list(itertools.islice(_arrivals(receiver, sent, filling, wait_s), enough))


def _receiver(address: str) -> socket.socket:
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind((address, PORT))
    receiver.setsockopt(socket.SOL_SOCKET, _TIMESTAMPS, 1)
    receiver.setsockopt(socket.SOL_SOCKET, _RECEIVE_BUFFER, 128 << 20)
    return receiver


def _arrivals(receiver: socket.socket, sent: list[float], filling: bytes, wait_s: float) -> Iterator[Arrival]:
    receiver.settimeout(wait_s)
    while True:
        try:
            data, control, _, _ = receiver.recvmsg(2048, 64)
        except TimeoutError:
            return
        seconds, nanoseconds = struct.unpack("=qq", control[0][2])
        at_s = seconds + nanoseconds / 1e9
        (number,) = struct.unpack("!I", data[:4])
        if number < len(sent):
            yield Arrival(number, at_s - sent[number], at_s - sent[0], data[4:] == filling)


class Helper(Program):
    """The privileged helper, as `python -m pareto.remote.link`, but for the imports, which take an emulated processor
    five seconds: a copy of this process. `ssh`: as if by an SSH session of that client.
    """

    ask = Program.result

    def __init__(self, ssh: str = "") -> None:
        self.process = subprocess.Popen(
            ["pareto.remote.link"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            preexec_fn=lambda: _be_a_helper(ssh),
        )
        self._writing, self._closed = threading.Lock(), threading.Event()
        # As a driver does: a test of another helper may take a slow guest longer than a driver may be silent.
        threading.Thread(target=self._ping, daemon=True).start()

    def _ping(self) -> None:
        assert self.process.stdin is not None
        while not self._closed.wait(5.0):
            with self._writing, suppress(OSError, ValueError):  # it has ended
                self.process.stdin.write(b'{"op": "ping"}\n')
                self.process.stdin.flush()

    def reply(self, op: str, **fields: Any) -> dict[str, Any]:
        with self._writing:
            return super().reply(op, **fields)

    def close(self) -> int:
        self._closed.set()
        with self._writing:
            return super().close()

    def apply(self, **fields: Any) -> dict[str, Any]:
        return self.ask("apply", interface="data0", address=HERE, **fields)

    @property
    def worker(self) -> psutil.Process:
        """The process that shapes. `process` guards it."""
        (worker,) = psutil.Process(self.process.pid).children()
        return worker

    def kill(self) -> None:
        """Both processes, neither of which lives to see it of the other."""
        worker = self.worker
        self.process.send_signal(signal.SIGSTOP)
        worker.kill()
        self.process.kill()
        assert ended([worker])
        self.close()


def _be_a_helper(ssh: str) -> None:
    """In a child of this process, in place of another program: never returns."""
    # Others' ends of pipes, and with them that of Popen, which waits for the other program to begin.
    os.closerange(3, 1 << 16)
    if ssh:
        os.environ["SSH_CONNECTION"] = f"{ssh} 5555 {HERE} 22"
    # Not those that pytest has put in their place.
    sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1)  # noqa: SIM115
    sys.argv = ["pareto.remote.link"]
    link_program.main()


def shown(interface: str = "data0") -> list[tuple[str, str, bytes]]:
    """Kind, handle and options of an interface's qdiscs that somebody set."""
    from pareto.remote.link import qdisc

    with qdisc.TrafficControl() as control:
        nodes = control.qdiscs(qdisc.index_of(interface))
        return [(node.kind, f"{node.handle >> 16:x}:", node.options) for node in nodes if node.handle]


def delay_s(**where: Any) -> float:
    """Median of what a few packets take."""
    return statistics.median(arrival.delay_s for arrival in datagrams(5, 0.005, size=100, enough=5, **where))


def tc(command: str) -> None:
    """iproute2's own, as somebody else would set a qdisc."""
    if shutil.which("tc") is None:
        pytest.skip("sets qdiscs as somebody else does: needs iproute2")
    done = subprocess.run(["tc", *command.split()], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
