"""A host's addresses, and which of them reach another host's: tried by sending, so that the fastest link is known."""

from __future__ import annotations

import json
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Interface

from pareto.hosts.connection import Connection, complete
from pareto.hosts.host import TestbedError, is_virtual
from pareto.remote.link.units import rate

MOST_PAIRS = 8
"""So many pairs of addresses are tried; each takes about a second."""
_ALIKE = 0.8
"""Links are as fast as each other from this share of the fastest one on."""
_WAIT_S = 5.0
_LIST = """
ip -j addr || exit 1
for each in /sys/class/net/*; do
    [ -e "$each/wireless" ] || [ -e "$each/phy80211" ] && air=1 || air=0
    echo "${each##*/} $air $(cat "$each/speed" 2>/dev/null || echo -1)"
done
echo "ssh $SSH_CONNECTION"
"""
_RECEIVE = """
import hmac, socket, sys, time
address, token = sys.stdin.readline().split()
listener = socket.socket()
try:
    listener.bind((address, 0))
except OSError as error:
    sys.exit(error.strerror or str(error))
listener.listen(1)
listener.settimeout(4)
print(listener.getsockname()[1], flush=True)
sender, _ = listener.accept()
listener.close()
sender.settimeout(2)
if not hmac.compare_digest(sender.recv(len(token)), token.encode()):
    sys.exit("a stranger connected")
start, count = time.monotonic(), 0
while time.monotonic() - start < 4:
    block = sender.recv(1 << 18)
    if not block:
        break
    count += len(block)
print(count, time.monotonic() - start)
"""
_SEND = """
import socket, sys, time
own, peer, port, token = sys.stdin.readline().split()
try:
    connection = socket.create_connection((peer, int(port)), 2, (own, 0))
except OSError as error:
    sys.exit(error.strerror or str(error))
block, end = bytes(1 << 16), time.monotonic() + 0.3
try:
    connection.sendall(token.encode())
    while time.monotonic() < end:
        connection.send(block)
except OSError:
    pass  # the receiver says what it got
"""


@dataclass(frozen=True)
class Address:
    """An IPv4 address of a host. mbps: the card's speed, -1: not told. has_ssh: SSH arrives at its interface."""

    interface: str
    network: IPv4Interface
    is_wireless: bool
    mbps: int
    has_ssh: bool

    def __str__(self) -> str:
        return str(self.network.ip)

    @property
    def words(self) -> str:
        return f"{self} ({self.interface})"


@dataclass(frozen=True)
class Pair:
    """Two hosts' addresses, and what was found by sending from one to the other: bit/s, or the fault."""

    own: Address
    other: Address
    bps: float = 0.0
    fault: str = ""

    def __str__(self) -> str:
        return f"{self.own.words} to {self.other.words}: {self.result}"

    @property
    def result(self) -> str:
        return self.fault or rate(self.bps, 3)


def list_addresses(connection: Connection) -> list[Address]:
    """A host's addresses but loopback's and containers', wired, fast ones first. Raises TestbedError, Unreachable."""
    outcome = connection.run(_LIST)
    if outcome.status != 0:
        raise TestbedError(f"its addresses cannot be listed: {outcome.words} (sudo apt-get install iproute2)")
    links, _, rest = outcome.out.partition("\n")
    cards = {name: fields for name, *fields in (line.split() for line in rest.splitlines())}
    ssh = cards.pop("ssh")
    ssh_address = ssh[2].partition("%")[0] if ssh else ""
    addresses = []
    for link in json.loads(links):
        name, own = link["ifname"], link.get("addr_info", [])
        air, mbps = cards.get(name, ("0", "-1"))
        card = air == "1", int(mbps), any(each["local"] == ssh_address for each in own)
        addresses += [
            Address(name, IPv4Interface(f"{each['local']}/{each['prefixlen']}"), *card)
            for each in own
            if each["family"] == "inet" and not is_virtual(name)
        ]
    if not addresses:
        raise TestbedError(
            "it has no IPv4 address but its own loopback's: give the interface of the link one"
        )
    return sorted(addresses, key=lambda each: (each.is_wireless, -each.mbps))


def choose(addresses: Sequence[Address], peer: str, peer_name: str) -> tuple[Address, str, bool]:
    """A host's address towards another one's, `peer`, by what is written down alone; why it, and whether the two are in
    one network. `peer` is empty while that is not known."""
    if peer:
        near = [each for each in addresses if IPv4Address(peer) in each.network.network]
        if near:
            others = ", ".join(each.interface for each in near[1:])
            before = f"; before {others}: wired and fast ones first" if others else ""
            return near[0], f"in one network with {peer_name}, {peer}{before}", True
    far = f"; none is in one network with {peer_name}, {peer}: check both" if peer else ""
    for each in addresses:
        if each.has_ssh:
            return each, f"where SSH arrives{far}", False
    why = f"the first of {len(addresses)}" if len(addresses) > 1 else "its only one"
    return addresses[0], why + far, False


def pairs(own: Sequence[Address], others: Sequence[Address]) -> list[Pair]:
    """The pairs that are in one network; where there is none, all of them: a router may join them."""
    every = [Pair(one, other) for one in own for other in others if one.network.ip != other.network.ip]
    near = [pair for pair in every if pair.own.network.network.overlaps(pair.other.network.network)]
    return (near or every)[:MOST_PAIRS]


def tried(pair: Pair, own: Connection, other: Connection) -> Pair:
    """The pair with what 0.3 s of sending from `own` to `other` shows. Raises Unreachable.

    The other host listens on its address of the pair for at most 4 s, and reads from who knows a token alone.
    """
    token = secrets.token_hex(16)
    receiver = other.start(_python(_RECEIVE), _WAIT_S)
    try:
        receiver.write(f"{pair.other} {token}\n".encode())
        # Its port comes in one write.
        if port := receiver.read(_WAIT_S):
            request = f"{pair.own} {pair.other} {int(port)} {token}\n"
            sent = own.run(_python(_SEND), [request.encode()], timeout_s=_WAIT_S)
            if sent.status != 0:
                return replace(pair, fault=sent.words)
        outcome = complete(receiver, (), _WAIT_S)
    except (TimeoutError, ValueError):
        return replace(pair, fault="the other host does not listen there")
    finally:
        receiver.kill()
    if outcome.status != 0:
        return replace(pair, fault=outcome.words)
    count, seconds = outcome.out.split()
    return replace(pair, bps=float(count) * 8 / max(float(seconds), 1e-6))


def best(reaching: Sequence[Pair], known: str) -> Pair:
    """The fastest pair; of those as fast as it one that SSH does not use, then one with the `known` address."""
    fastest = max(pair.bps for pair in reaching)
    alike = [pair for pair in reaching if pair.bps >= _ALIKE * fastest]
    return min(alike, key=lambda pair: (pair.own.has_ssh or pair.other.has_ssh, str(pair.other) != known))


def _python(program: str) -> str:
    return f"exec python3 -I -c {shlex.quote(program)}"
