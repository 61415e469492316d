"""`hosts add`: from an address and a password to a host of the testbed file that keys get in to.

Each step is said. Passwords are asked for, used and forgotten: they are in no file, no argument and no message.
"""

from __future__ import annotations

import getpass
import socket
import subprocess
from base64 import b64encode
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path

import paramiko

from pareto.hosts import addresses, inventory_entry, keys, known_hosts, login, ssh
from pareto.hosts.host import EDGE, MAX_HOSTS, MIDDLE, SERVER, TestbedError
from pareto.hosts.inventory import DEVICE, NAME, PARTS, THIS_MACHINE, Inventory, Member
from pareto.hosts.keys import Keyring
from pareto.hosts.login import Login, shown
from pareto.hosts.way import Here, Unreachable, Way

_NEW_KEY = "id_ed25519"

# Like ssh-copy-id: the key from stdin, at the end, unless it is there; sshd takes no file that others can write to.
_PUT_OVER = """
umask 077
mkdir -p .ssh && chmod 700 .ssh && touch .ssh/authorized_keys && chmod 600 .ssh/authorized_keys || exit 1
key=$(cat)
grep -qF "$(echo "$key" | cut -d ' ' -f 2)" .ssh/authorized_keys && exit
[ -z "$(tail -c 1 .ssh/authorized_keys)" ] || echo >> .ssh/authorized_keys
echo "$key" >> .ssh/authorized_keys || exit 1
! command -v restorecon >/dev/null || restorecon -F .ssh .ssh/authorized_keys 2>/dev/null || :
"""


@dataclass(frozen=True)
class Terminal:
    """How the user is talked to. Without one to ask on, `confirm` and `ask` are None.

    confirm: whether the user says yes to a question. ask: what the user types unseen after a prompt.
    """

    say: Callable[[str], None]
    confirm: Callable[[str], bool] | None = None
    ask: Callable[[str], str] | None = None


@dataclass(frozen=True)
class Wanted:
    """What the user said of the new host. target: as for ssh, or `local`. key: a private key's file."""

    target: str
    role: str
    name: str = ""
    port: int | None = None
    user: str = ""
    key: Path | None = None
    device: str = "cpu"


def add(wanted: Wanted, testbed: Path, terminal: Terminal) -> Member:
    """Pair with a host and write it into the testbed file. Raises TestbedError with what stood in the way."""
    file = inventory_entry.read(testbed)
    wanted = _checked(wanted, file)
    try:
        if wanted.target == THIS_MACHINE:
            way: Way = Here()
        else:
            way = _paired(wanted, terminal)
        with closing(way):
            member = _described(way, wanted, file, terminal)
    except Unreachable as error:
        raise TestbedError(str(error)) from None
    try:
        inventory_entry.add(testbed, member)
    except TestbedError:
        terminal.say(f"to add it by hand, put this under hosts:\n{inventory_entry.entry(member)}")
        raise
    terminal.say(f"written to {testbed}: {member.name}, {member.role}; each value can be changed there")
    terminal.say(f"next: ./pareto.sh hosts setup --testbed {testbed}")
    return member


def _checked(wanted: Wanted, file: Inventory) -> Wanted:
    """Raises TestbedError for what can be known to be wrong before anything is asked or done."""
    if wanted.role not in PARTS:
        raise TestbedError(f"role {wanted.role!r}: use {EDGE}, {MIDDLE} or {SERVER}")
    if len(file.members) == MAX_HOSTS:
        raise TestbedError(f"{file.path} has {MAX_HOSTS} hosts, and a chain has no more")
    for member in file.members:
        if member.role == wanted.role != MIDDLE:
            raise TestbedError(
                f"{file.path} has {member.name} for the role {wanted.role}: take it out, or use another file"
            )
        if member.name == wanted.name:
            raise TestbedError(f"{file.path} has a host {wanted.name} already: give another --name")
    if wanted.name and not NAME.fullmatch(wanted.name):
        raise TestbedError(f"--name {wanted.name!r}: use letters, digits, dots and dashes")
    if not DEVICE.fullmatch(wanted.device):
        raise TestbedError(f"--device {wanted.device}: use cpu, or cuda:0 for the first GPU")
    if wanted.key is None:
        return wanted
    path = wanted.key.expanduser().absolute()
    return replace(wanted, key=path.with_suffix("") if path.suffix == ".pub" else path)


def _paired(wanted: Wanted, terminal: Terminal) -> Way:
    """A way to the host by the user's key, which is put over where it was not. Raises TestbedError, Unreachable."""
    who = _resolved(wanted)
    keyring = Keyring.own(terminal.ask)
    _know(who, keyring, terminal)
    try:
        way: Way = ssh.Ssh(who, keyring)
        terminal.say(f"{who}: logged in with a key of yours")
        return way
    except Unreachable:
        terminal.say(f"{who}: no key of yours gets in yet")
    public = _public_key(who, keyring, terminal)
    if terminal.ask is None:
        raise TestbedError(
            f"{who}: no terminal to ask for the password on: ssh-copy-id {who.ssh}, then again"
        )
    password = terminal.ask(f"password of {who.user}@{who.address}, once: ")
    with closing(ssh.with_password(who, password, keyring)) as way:
        outcome = way.run(_PUT_OVER, BytesIO(f"{public}\n".encode()))
    if outcome.status != 0:
        raise TestbedError(f"{who}: your key could not be put over: {outcome.words}")
    terminal.say(f"{who}: your key is in ~/.ssh/authorized_keys there")
    way = ssh.Ssh(_resolved(wanted), keyring)  # the key may be a new one
    terminal.say(f"{who}: logged in with it")
    return way


def _resolved(wanted: Wanted) -> Login:
    return login.resolve(
        wanted.name or wanted.target, wanted.target, port=wanted.port, user=wanted.user, key=wanted.key
    )


def _know(who: Login, keyring: Keyring, terminal: Terminal) -> None:
    """See to it that the host's key is known. Raises TestbedError, Unreachable where it is another than it was."""
    key = ssh.fetch_host_key(who, keyring)
    words = f"{key.get_name()} {known_hosts.fingerprint(key)}"
    entries = known_hosts.known(who)
    if any(not entry.revoked for entry in entries):
        known_hosts.check(who, key, entries)
        terminal.say(f"{who}: its host key is known: {words}")
        return
    if terminal.confirm is None:
        known_hosts.check(who, key, entries)  # raises, with the command that adds it
        return
    terminal.say(f"{who} shows the host key {words}")
    terminal.say(f"its own screen would say so: ssh-keygen -lf /etc/ssh/ssh_host_{_kind(key)}_key.pub")
    if not terminal.confirm("is that the host's own key?"):
        raise TestbedError(f"{who}: its host key was not confirmed; nothing was changed")
    try:
        known_hosts.add(who, key)
    except OSError as error:
        raise TestbedError(f"{who}: cannot note its host key: {error}") from None
    terminal.say(f"noted in {shown(who.known_hosts[0])}")


def _kind(key: paramiko.PKey) -> str:
    return str(key.algorithm_name).lower()


def _public_key(who: Login, keyring: Keyring, terminal: Terminal) -> str:
    """The line for authorized_keys: of a key in a file, else of one in the agent, else of one made now."""
    ours_first = sorted(who.identities, key=lambda path: path.name != _NEW_KEY)
    for path in ours_first:
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
    half = keys.public_half(path)
    assert half is not None  # noqa: S101  (ssh-keygen has just written it)
    return _line(half)


def _line(public: bytes) -> str:
    """authorized_keys' form of a public key as it goes over the wire, whose first field is its type."""
    kind = paramiko.Message(public).get_text()
    return f"{kind} {b64encode(public).decode()} {getpass.getuser()}@{socket.gethostname()}"


def _described(way: Way, wanted: Wanted, file: Inventory, terminal: Terminal) -> Member:
    """The new host as the file will have it. Raises TestbedError, Unreachable."""
    name = wanted.name or _name(way, wanted)
    for member in file.members:
        if member.name == name:
            raise TestbedError(f"{file.path} has a host {name} already: give another --name")
    before, after = _neighbours(wanted.role, file)
    if before is not None:
        choice = addresses.choose(way, before.next_address or before.data_address, before.name)
    else:
        choice = addresses.choose(way, after.data_address if after else "", after.name if after else "")
    address = choice.address
    terminal.say(f"{name}: data address {address} on {address.interface} ({choice.why})")
    onward = None
    if wanted.role == MIDDLE and after is not None:
        following = addresses.choose(way, after.data_address, after.name)
        if following.reaches and following.address != address:
            onward = following.address
            terminal.say(f"{name}: next address {onward} on {onward.interface} ({following.why})")
    return Member(
        name,
        wanted.role,
        wanted.target,
        str(address),
        address.interface,
        wanted.port,
        wanted.user,
        wanted.key,
        wanted.device,
        next_address=str(onward) if onward else "",
        next_interface=onward.interface if onward else "",
    )


def _neighbours(role: str, file: Inventory) -> tuple[Member | None, Member | None]:
    """Between whom a new host will be, of those that the file has so far: a middle one is the last of them."""
    later = PARTS[PARTS.index(role) + 1 :]
    members = sorted(file.members, key=lambda member: PARTS.index(member.role))
    before = [member for member in members if member.role not in later]
    after = [member for member in members if member.role in later]
    return before[-1] if before else None, after[0] if after else None


def _name(way: Way, wanted: Wanted) -> str:
    """What the host is called in its target, unless that is an address; else what it calls itself."""
    target = wanted.target.rpartition("@")[2].partition(".")[0]
    for name in (target, way.run("uname -n").out.strip().partition(".")[0]):
        if NAME.fullmatch(name) and not name.isdigit() and name != THIS_MACHINE:
            return name
    return wanted.role
