"""`hosts add`: from an address and a password to a host of the testbed file that the user's keys get in to.

The password is asked for by OpenSSH (`ssh-copy-id`): no part of this program sees it.
"""

from __future__ import annotations

import getpass
import socket
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import paramiko

from pareto import COMMAND
from pareto.hosts import inventory
from pareto.hosts.connection import Connection, NotAdmitted, Outcome, ThisMachine, Unreachable
from pareto.hosts.host import DEVICE, EDGE, MAX_HOSTS, MIDDLE, SERVER, TestbedError, not_installed
from pareto.hosts.inventory import NAME, PARTS, THIS_MACHINE, HostEntry, Inventory
from pareto.hosts.setup.hosts import Connect
from pareto.hosts.ssh import keys, login
from pareto.hosts.ssh.addresses import Address, Pair, best, choose, list_addresses, pairs, tried
from pareto.hosts.ssh.connection import SshConnection
from pareto.hosts.ssh.keys import Keyring
from pareto.hosts.ssh.login import Login, shown

_NEW_KEY = "id_ed25519"


@dataclass(frozen=True)
class Terminal:
    """How to talk with the user. confirm: asks for a yes; ask: for what is typed unseen; None without a terminal."""

    say: Callable[[str], None]
    confirm: Callable[[str], bool] | None = None
    ask: Callable[[str], str] | None = None


def add(wanted: HostEntry, testbed: Path, terminal: Terminal, connect: Connect) -> HostEntry:
    """Pair with a host and write it into the testbed file. Raises TestbedError with what stands in the way.

    wanted: what the user says about it; the name may be empty, and addresses that are empty are chosen here. With a
    host key it is one that serves: where the file has it from an invitation before, only what is new is changed.
    connect: logs in to hosts that are in the file already.
    """
    inventory.require_one(testbed)
    file = inventory.load(testbed) if testbed.exists() else Inventory(testbed, ())
    invited = [host for host in file.hosts if wanted.host_key and host.host_key]
    in_role = [host for host in invited if host.role == wanted.role != MIDDLE and not wanted.name]
    # The one whose place this one has, as its entry is of an invitation that is over.
    before = next((host for host in invited if host.name == wanted.name or host in in_role), None)
    wanted = _checked(wanted, file if before is None else Inventory(testbed, ()))
    try:
        if before is not None:  # its addresses stay
            said = ("ssh", "port", "user", "key", "host_key", "python")
            entry = replace(before, **{key: getattr(wanted, key) for key in said})
            _connected(entry, terminal).close()
            inventory.change(testbed, entry)
            terminal.say(f"written to {testbed}: how {entry.name} is reached now")
            return entry
        with closing(_connected(wanted, terminal)) as connection:
            wanted = replace(wanted, name=wanted.name or _name(connection, wanted))
            _check_free(wanted.name, file)
            meeting = _Meeting(wanted, connection, file, terminal, connect)
            entry = meeting.placed()
    except Unreachable as error:
        raise TestbedError(str(error)) from None
    try:
        for neighbour in meeting.changed:
            inventory.change(testbed, neighbour)
        inventory.add(testbed, entry)
    except TestbedError:
        terminal.say(f"to add it by hand, put this under hosts:\n{inventory.as_text(entry)}")
        raise
    terminal.say(f"written to {testbed}: {entry.name}, {entry.role}; each value can be changed there")
    terminal.say(f"next: {COMMAND} hosts setup --testbed {testbed}")
    return entry


def _checked(wanted: HostEntry, file: Inventory) -> HostEntry:
    """The same with the key's path in full, and this machine's Python. Raises TestbedError for what is always wrong."""
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
    if wanted.is_this_machine:  # what runs this has what a worker needs
        return replace(wanted, python=sys.executable)
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
    named = replace(wanted, name=wanted.name or wanted.ssh)
    who, keyring = login.resolve(named), Keyring(terminal.ask)
    try:
        connection = SshConnection(who, keyring)
        terminal.say(f"{who}: logged in with a key of yours")
        return connection
    except NotAdmitted as refused:
        words = f"{refused}; there is no terminal to do that on" if terminal.confirm is None else ""
        if wanted.host_key:
            words = f"{who} does not take the key: does the serve that printed it still run?"
        if words:
            raise TestbedError(words) from None
    _put_over(who, wanted.ssh, _public_key(who, keyring, terminal), terminal)
    connection = SshConnection(login.resolve(named), keyring)  # the key may be a new one
    terminal.say(f"{who}: logged in with it")
    return connection


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
        options = ["-o", "StrictHostKeyChecking=ask", "-o", f'UserKnownHostsFile="{who.known_hosts[0]}"']
        argv = ["ssh-copy-id", "-f", "-i", str(file), *login.configuration_file(), "-p", str(who.port)]
        argv += [*options, f"{who.user}@{target.rpartition('@')[2]}"]
        who.known_hosts[0].parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False)  # noqa: S603
        except FileNotFoundError:
            raise not_installed("ssh-copy-id", "openssh-client") from None
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
            for key, named in offers:
                terminal.say(f"{who}: puts over {named}")
                return _line(key.asbytes())
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


@dataclass(frozen=True)
class _Meeting:
    """Where a new host meets those of the file; `changed`: these with another address, where the user wants that."""

    wanted: HostEntry
    connection: Connection
    file: Inventory
    terminal: Terminal
    connect: Connect
    changed: list[HostEntry] = field(default_factory=list)

    def placed(self) -> HostEntry:
        """The new host with its addresses. Raises TestbedError, Unreachable."""
        wanted, place, say = self.wanted, PARTS.index(self.wanted.role), self.terminal.say
        # One in the middle is the last of the middle ones.
        earlier, later = (
            [host for part in parts for host in self.file.hosts if host.role == part]
            for parts in (PARTS[: place + 1], PARTS[place + 1 :])
        )
        before, after = earlier[-1] if earlier else None, later[0] if later else None
        addresses = list_addresses(self.connection)
        own = [each for each in addresses if wanted.data_address in ("", str(each))]
        if not own:
            there = ", ".join(each.words for each in addresses)
            raise TestbedError(f"--data-address {wanted.data_address}: {wanted.name} has {there}")
        address, why, _ = self.link(own, before or after, is_next=before is None)
        say(f"{wanted.name}: data address {address} on {address.interface} ({why})")
        entry = replace(wanted, data_address=str(address), data_interface=address.interface)
        if wanted.role == MIDDLE and before is not None and after is not None:
            onward, why, reaches = self.link(addresses, after, is_next=True)
            if reaches and onward != address:
                say(f"{wanted.name}: next address {onward} on {onward.interface} ({why})")
                entry = replace(entry, next_address=str(onward), next_interface=onward.interface)
        return entry

    def link(
        self, own: list[Address], neighbour: HostEntry | None, *, is_next: bool
    ) -> tuple[Address, str, bool]:
        """The new host's address towards a neighbour, why it, and whether the two are joined there. is_next: whether
        the neighbour comes after the new host. Raises TestbedError, Unreachable."""
        if neighbour is None:
            return choose(own, "", "")
        known = neighbour.data_address if is_next else neighbour.next_address or neighbour.data_address
        reaching = self._reaching(own, neighbour)
        pair = best(reaching, known) if reaching else None
        if pair and str(pair.other) != known:
            if self._wants(neighbour, known, pair):
                self.changed.append(_moved(neighbour, pair.other, towards_next=not is_next))
            else:
                as_known = [each for each in reaching if str(each.other) == known]
                pair = best(as_known, known) if as_known else None
        if pair is None:
            return choose(own, known, neighbour.name)
        return pair.own, f"reaches {neighbour.name}, {pair.other}: {pair.result}", True

    def _reaching(self, own: list[Address], neighbour: HostEntry) -> list[Pair]:
        """The pairs of addresses by which the hosts reach each other; empty where that cannot be tried."""
        say = self.terminal.say
        results = []
        try:
            with closing(self.connect(neighbour)) as other:
                for pair in pairs(own, list_addresses(other)):
                    results.append(tried(pair, self.connection, other))
                    say(f"{self.wanted.name} to {neighbour.name}: {results[-1]}")
        except (Unreachable, TestbedError) as error:
            say(f"not tried whether {self.wanted.name} reaches {neighbour.name}: {error}")
            return []
        return [pair for pair in results if not pair.fault]

    def _wants(self, neighbour: HostEntry, known: str, pair: Pair) -> bool:
        """Whether the user wants the neighbour's address changed to that of the pair."""
        if self.terminal.confirm is not None:
            change = f"{neighbour.name}'s address in {self.file.path} from {known} to {pair.other.words}"
            return self.terminal.confirm(f"{pair.result} that way: change {change}?")
        self.terminal.say(
            f"{pair.result} that way: for it, write {pair.other.words} for {neighbour.name} and {pair.own.words} "
            f"for {self.wanted.name} into {self.file.path}"
        )
        return False


def _moved(host: HostEntry, to: Address, *, towards_next: bool) -> HostEntry:
    """The host with another address towards one of its neighbours."""
    address, interface = str(to), to.interface
    if not (towards_next and host.role == MIDDLE):
        return replace(host, data_address=address, data_interface=interface)
    if address == host.data_address:
        address = interface = ""
    return replace(host, next_address=address, next_interface=interface)


def _name(connection: Connection, wanted: HostEntry) -> str:
    """The host's name in its target, unless that is an address; else what the host calls itself."""
    target = wanted.ssh.rpartition("@")[2].partition(".")[0]
    for name in (target, connection.run("uname -n").out.strip().partition(".")[0]):
        if NAME.fullmatch(name) and not name.isdigit() and name != THIS_MACHINE:
            return name
    return wanted.role
