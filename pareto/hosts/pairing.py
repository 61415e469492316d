"""`hosts add`: from an address and a password to a host of the testbed file that the user's keys get in to.

The password is asked for by OpenSSH (`ssh-copy-id`): no part of this program sees it.
"""

from __future__ import annotations

import getpass
import ipaddress
import json
import socket
import subprocess
import tempfile
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import paramiko

from pareto import COMMAND
from pareto.hosts import inventory, keys, login
from pareto.hosts.connection import Connection, NotAdmitted, Outcome, ThisMachine, Unreachable
from pareto.hosts.host import EDGE, MAX_HOSTS, MIDDLE, SERVER, TestbedError, is_virtual
from pareto.hosts.inventory import DEVICE, NAME, PARTS, THIS_MACHINE, HostEntry, Inventory
from pareto.hosts.keys import Keyring
from pareto.hosts.login import Login, shown
from pareto.hosts.ssh import SshConnection

_NEW_KEY = "id_ed25519"

_LIST_ADDRESSES = """
ip -j addr || exit 1
for each in /sys/class/net/*; do
    [ -e "$each/wireless" ] || [ -e "$each/phy80211" ] && air=1 || air=0
    echo "${each##*/} $air $(cat "$each/speed" 2>/dev/null || echo -1)"
done
echo "ssh $SSH_CONNECTION"
"""


@dataclass(frozen=True)
class Terminal:
    """How to talk with the user. Without a terminal to ask on, `confirm` and `ask` are None.

    confirm: whether the user says yes to a question. ask: what the user types unseen after a prompt.
    """

    say: Callable[[str], None]
    confirm: Callable[[str], bool] | None = None
    ask: Callable[[str], str] | None = None


def add(wanted: HostEntry, testbed: Path, terminal: Terminal) -> HostEntry:
    """Pair with a host and write it into the testbed file. Raises TestbedError with what stands in the way.

    wanted: what the user says about it; the name may be empty, and the addresses are chosen here.
    """
    file = inventory.load(testbed) if testbed.exists() else Inventory(testbed, ())
    wanted = _checked(wanted, file)
    try:
        with closing(_connected(wanted, terminal)) as connection:
            entry = _described(connection, wanted, file, terminal)
    except Unreachable as error:
        raise TestbedError(str(error)) from None
    try:
        inventory.add(testbed, entry)
    except TestbedError:
        terminal.say(f"to add it by hand, put this under hosts:\n{inventory.as_text(entry)}")
        raise
    terminal.say(f"written to {testbed}: {entry.name}, {entry.role}; each value can be changed there")
    terminal.say(f"next: {COMMAND} hosts setup --testbed {testbed}")
    return entry


def _checked(wanted: HostEntry, file: Inventory) -> HostEntry:
    """The same with the key's path in full. Raises TestbedError for what is wrong in any case."""
    if wanted.role not in PARTS:
        raise TestbedError(f"role {wanted.role!r}: use {EDGE}, {MIDDLE} or {SERVER}")
    if len(file.hosts) == MAX_HOSTS:
        raise TestbedError(f"{file.path} has {MAX_HOSTS} hosts, and a chain has no more")
    for host in file.hosts:
        if host.role == wanted.role != MIDDLE:
            raise TestbedError(
                f"{file.path} has {host.name} for the role {wanted.role}: take it out, or use another file"
            )
    _check_free(wanted.name, file)
    if wanted.name and not NAME.fullmatch(wanted.name):
        raise TestbedError(f"--name {wanted.name!r}: use letters, digits, dots and dashes")
    if not DEVICE.fullmatch(wanted.device):
        raise TestbedError(f"--device {wanted.device}: use cpu, or cuda:0 for the first GPU")
    if wanted.key is None:
        return wanted
    path = wanted.key.expanduser().absolute()
    return replace(wanted, key=path.with_suffix("") if path.suffix == ".pub" else path)


def _check_free(name: str, file: Inventory) -> None:
    if any(host.name == name for host in file.hosts):
        raise TestbedError(f"{file.path} has a host {name} already: give another --name")


def _connected(wanted: HostEntry, terminal: Terminal) -> Connection:
    """A connection by a key of the user's, which is put over where none is. Raises TestbedError, Unreachable."""
    if wanted.is_this_machine:
        return ThisMachine()
    who, keyring = _resolved(wanted), Keyring(terminal.ask)
    try:
        connection = SshConnection(who, keyring)
    except NotAdmitted as refused:
        if terminal.confirm is None:
            raise TestbedError(f"{refused}; there is no terminal to do that on") from None
    else:
        terminal.say(f"{who}: logged in with a key of yours")
        return connection
    _put_over(who, wanted.ssh, _public_key(who, keyring, terminal), terminal)
    connection = SshConnection(_resolved(wanted), keyring)  # the key may be a new one
    terminal.say(f"{who}: logged in with it")
    return connection


def _resolved(wanted: HostEntry) -> Login:
    return login.resolve(
        wanted.name or wanted.ssh, wanted.ssh, port=wanted.port, user=wanted.user, key=wanted.key
    )


def _put_over(who: Login, target: str, public: str, terminal: Terminal) -> None:
    """Append a line to the host's authorized_keys; ssh asks for the password. Raises TestbedError."""
    terminal.say(
        f"{who}: ssh-copy-id asks for the password once; where it asks whether the host's key is its own, compare that "
        "with the host's screen: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub"
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "key.pub")
        file.write_text(f"{public}\n")
        # "ask": that nobody is in between is the user's to say, whatever the configuration would accept by itself.
        options = ["StrictHostKeyChecking=ask", f'UserKnownHostsFile="{who.known_hosts[0]}"']
        argv = ["ssh-copy-id", "-f", "-i", str(file), *login.configuration_file(), "-p", str(who.port)]
        argv += [word for option in options for word in ("-o", option)]
        who.known_hosts[0].parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            done = subprocess.run(  # noqa: S603
                [*argv, f"{who.user}@{target.rpartition('@')[2]}"],
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            raise TestbedError(
                "no ssh-copy-id on this machine: install it (on Debian or Ubuntu: apt-get install openssh-client)"
            ) from None
    if done.returncode != 0:
        words = Outcome(done.returncode, done.stdout, done.stderr).words
        raise TestbedError(f"{who}: your key was not put over: {words}")
    terminal.say(f"{who}: your key is in ~/.ssh/authorized_keys there")


def _public_key(who: Login, keyring: Keyring, terminal: Terminal) -> str:
    """The line for authorized_keys: of a key in a file, else of one in the agent, else of one made now."""
    for path in sorted(who.identities, key=lambda path: path.name != _NEW_KEY):
        if (half := keys.public_half(path)) is not None:
            terminal.say(f"{who}: puts over {shown(path)}")
            return _line(half)
    if not who.identities:
        with closing(keyring.offers(who)) as offers:
            for offer in offers:
                terminal.say(f"{who}: puts over {offer.words}")
                return _line(offer.key.asbytes())
    path = Path.home() / ".ssh" / _NEW_KEY
    if path.exists():
        raise TestbedError(
            f"{who}: {shown(path)} is there and no key to log in with: name another with --key"
        )
    if terminal.confirm is None or not terminal.confirm(f"you have no key; make {shown(path)}?"):
        raise TestbedError(f"{who}: no key to put over: make one with ssh-keygen -t ed25519, then again")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)]
    made = subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)  # noqa: S603
    if made.returncode != 0:
        raise TestbedError(f"{shown(path)} was not made: {made.stderr.strip() or made.stdout.strip()}")
    terminal.say(f"made {shown(path)}, without a passphrase (ssh-keygen -p gives it one)")
    return path.with_name(f"{path.name}.pub").read_text().strip()


def _line(public: bytes) -> str:
    """authorized_keys' form of a public key as it goes over the wire, whose first field is its type."""
    kind = paramiko.Message(public).get_text()
    return f"{kind} {b64encode(public).decode()} {getpass.getuser()}@{socket.gethostname()}"


def _described(connection: Connection, wanted: HostEntry, file: Inventory, terminal: Terminal) -> HostEntry:
    """The new host as the file will have it. Raises TestbedError, Unreachable."""
    name = wanted.name or _name(connection, wanted)
    _check_free(name, file)
    before, after = _neighbours(wanted.role, file)
    peer, peer_name = "", ""
    if before is not None:
        peer, peer_name = before.next_address or before.data_address, before.name
    elif after is not None:
        peer, peer_name = after.data_address, after.name
    addresses = list_addresses(connection)
    own, why, _ = choose(addresses, peer, peer_name)
    terminal.say(f"{name}: data address {own} on {own.interface} ({why})")
    entry = replace(wanted, name=name, data_address=str(own), data_interface=own.interface)
    if wanted.role != MIDDLE or after is None:
        return entry
    onward, why, reaches = choose(addresses, after.data_address, after.name)
    if not reaches or onward == own:
        return entry
    terminal.say(f"{name}: next address {onward} on {onward.interface} ({why})")
    return replace(entry, next_address=str(onward), next_interface=onward.interface)


def _neighbours(role: str, file: Inventory) -> tuple[HostEntry | None, HostEntry | None]:
    """Between which of the file's hosts a new one will be; a middle one is the last of the middle ones."""
    later = PARTS[PARTS.index(role) + 1 :]
    hosts = sorted(file.hosts, key=lambda host: PARTS.index(host.role))
    before = [host for host in hosts if host.role not in later]
    after = [host for host in hosts if host.role in later]
    return before[-1] if before else None, after[0] if after else None


def _name(connection: Connection, wanted: HostEntry) -> str:
    """The host's name in its target, unless that is an address; else what the host calls itself."""
    target = wanted.ssh.rpartition("@")[2].partition(".")[0]
    for name in (target, connection.run("uname -n").out.strip().partition(".")[0]):
        if NAME.fullmatch(name) and not name.isdigit() and name != THIS_MACHINE:
            return name
    return wanted.role


@dataclass(frozen=True)
class Address:
    """An IPv4 address of a host. mbps: the network card's speed; -1 where the card does not tell it. has_ssh: SSH
    arrives at its interface."""

    interface: str
    network: ipaddress.IPv4Interface
    is_wireless: bool
    mbps: int
    has_ssh: bool

    def __str__(self) -> str:
        return str(self.network.ip)


def choose(addresses: list[Address], peer: str, peer_name: str) -> tuple[Address, str, bool]:
    """A host's address towards another one's, `peer`, which is empty while that is not known; why it was chosen, and
    whether the two are in one network."""
    if peer:
        near = [each for each in addresses if ipaddress.IPv4Address(peer) in each.network.network]
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


def list_addresses(connection: Connection) -> list[Address]:
    """A host's addresses but those of its loopback and its containers, wired and fast ones first.

    Raises TestbedError where there is none, Unreachable.
    """
    outcome = connection.run(_LIST_ADDRESSES)
    if outcome.status != 0:
        raise TestbedError(f"its addresses cannot be listed: {outcome.words} (sudo apt-get install iproute2)")
    links, _, rest = outcome.out.partition("\n")
    cards = {name: fields for name, *fields in (line.split() for line in rest.splitlines())}
    ssh = cards.pop("ssh")
    ssh_address = ssh[2].partition("%")[0] if ssh else ""
    addresses = []
    for link in json.loads(links):
        own: list[dict[str, Any]] = link.get("addr_info", [])
        is_wireless, mbps = cards.get(link["ifname"], ("0", "-1"))
        has_ssh = any(each["local"] == ssh_address for each in own)
        for each in own:
            if each["family"] == "inet" and not is_virtual(link["ifname"]):
                network = ipaddress.IPv4Interface(f"{each['local']}/{each['prefixlen']}")
                addresses.append(Address(link["ifname"], network, is_wireless == "1", int(mbps), has_ssh))
    if not addresses:
        raise TestbedError(
            "it has no IPv4 address but its own loopback's: give the interface of the link one"
        )
    return sorted(addresses, key=lambda each: (each.is_wireless, -each.mbps))
