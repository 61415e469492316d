"""A testbed by hand, without SSH: the edge is this machine, and the server is a host that runs `serve`."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path

from pareto import __version__
from pareto.hosts import channel, serving, shipping
from pareto.hosts.channel import Begin, Channel, Lacking, LastWords, Put, Start, Stored, Terms
from pareto.hosts.connection import ANSWER_S, FAULTS, Command, Connection, ThisMachine, Unreachable
from pareto.hosts.host import EDGE, SERVER, End, Host, TestbedError, to_stderr
from pareto.hosts.leases import Say, held
from pareto.hosts.session import Heartbeat, Session
from pareto.hosts.shaping import Shaper
from pareto.hosts.shipping import Parcel
from pareto.hosts.testbed import Link, Remote, Testbed
from pareto.messages import R, Request

EDGE_FOLDER = ".pareto"


class Served(Connection):
    """A host that runs `serve`. There are no commands on it, but its programs."""

    def __init__(self, address: str, port: int, token: str, heartbeat: Heartbeat) -> None:
        """Raises Unreachable."""
        self._to = address, port, token
        self._heartbeat = heartbeat
        self._code = shipping.code()[1]
        self._asking = threading.Lock()
        self._leads: tuple[Session, Channel] | None = None
        self.terms = self._begin()

    def __str__(self) -> str:
        address, port, _ = self._to
        return f"{address}:{port}"

    @property
    def own_address(self) -> str:
        """This machine's, towards the host. Raises Unreachable."""
        return self._leading()[1].address

    def start(self, command: str, timeout_s: float) -> Command:
        raise Unreachable(f"{self}: it serves programs of its own, and no commands")

    def program(self, module: str, arguments: Sequence[str]) -> Session:
        """Start a program there. Raises Unreachable."""
        session, wire, number = self._opened(Start(self.terms.stay, module, list(arguments)))
        wire.words = partial(self._words_of, number)
        return session

    def lacking(self, names: Collection[str]) -> set[str]:
        """Which of these files are not there. Raises Unreachable."""
        lacking: list[str] = self._ask(Lacking(list(names)))
        return set(lacking).intersection(names)

    def send(self, parcels: Sequence[Parcel], sent: Callable[[int], None] = lambda nbytes: None) -> None:
        """Put files there, one after another; `sent` hears of each block's bytes. Raises Unreachable."""
        try:
            wire = channel.opened(*self._to)
            try:
                session = Session(SERVER, wire)
                for parcel in parcels:
                    session.ask(Put(self.terms.stay, parcel.name, parcel.size))
                    for block in parcel.blocks():
                        wire.send(block)
                        sent(len(block))
                    session.ask(Stored(), shipping.TRANSFER_TIMEOUT_S)
            finally:
                wire.close()
        except (*FAULTS, OSError) as fault:
            raise Unreachable(str(fault)) from None

    def loss(self) -> str:
        return self._words_of(0)  # no program has this number

    def renew(self) -> None:
        if self.loss():
            self.close()
            self.terms = self._begin()

    def close(self) -> None:
        if self._leads is not None:
            (session, _), self._leads = self._leads, None
            self._heartbeat.remove(session)
            session.close()

    def _begin(self) -> Terms:
        session, wire, terms = self._opened(Begin(self._code, __version__))
        self._leads = session, wire
        self._heartbeat.add(session)
        return terms

    def _opened(self, request: Request[R]) -> tuple[Session, Channel, R]:
        """A new connection, and the report on what its first line asks. Raises Unreachable."""
        wire = channel.opened(*self._to)
        session = Session(SERVER, wire)
        try:
            return session, wire, session.ask(request)
        except FAULTS as fault:
            wire.close()
            raise Unreachable(str(fault)) from None

    def _words_of(self, program: int) -> str:
        try:
            return self._ask(LastWords(program))
        except Unreachable as error:
            return str(error)

    def _ask(self, request: Request[R]) -> R:
        """Raises Unreachable."""
        try:
            with self._asking:
                return self._leading()[0].ask(request, ANSWER_S)
        except FAULTS as fault:
            raise Unreachable(str(fault)) from None

    def _leading(self) -> tuple[Session, Channel]:
        if self._leads is None:
            raise Unreachable(f"{self}: the connection is closed")
        return self._leads


class ServedRemote(Remote):
    """The host that runs `serve`."""

    def __init__(self, host: Host, served: Served) -> None:
        super().__init__(host, served)
        self._served = served

    def ship(self, data: bytes | Path, name: str) -> str:
        if self.lacking([name]):
            self._served.send([Parcel.of(data, name)])
        return f"{self.host.folder}/{name}"

    def lacking(self, names: Collection[str]) -> set[str]:
        return self._served.lacking(names)

    def send(self, parcels: Sequence[Parcel], sent: Callable[[int], None]) -> None:
        self._served.send(parcels, sent)

    def bring_code(self) -> None:
        """It is there: `serve` has compared it."""

    def start(self, module: str, *arguments: str) -> Session:
        return self._served.program(module, arguments)

    def loss(self) -> str:
        return self._served.loss()

    def start_privileged(self, *, as_root: bool) -> Session:
        raise Unreachable(f"{self._served}: its link is not shaped")


def open_served(
    address: str,
    port: int,
    token_file: Path,
    *,
    threads: int,
    rpc: bool,
    wait_s: float = 0.0,
    say: Say = to_stderr,
) -> Testbed:
    """The testbed of this machine and the one that serves there. Raises TestbedError.

    threads: the edge's. rpc: whether the sweep measures it. wait_s, say: see `HostLeases`.
    """
    token = channel.token(token_file)
    with ExitStack() as undo:
        heartbeat = Heartbeat()
        undo.callback(heartbeat.stop)
        try:
            served = Served(address, port, token, heartbeat)
            undo.callback(served.close)
            own = served.own_address
            edge = ThisMachine()
            folder = shipping.absolute(edge, EDGE_FOLDER)
        except Unreachable as error:
            raise TestbedError(f"the server cannot be reached: {error}") from None
        terms = served.terms
        if rpc and not terms.rpc:
            raise TestbedError(
                "rpc runs what comes from the network, and serve was started without --rpc: "
                "give --backend tcp, or have it started with --rpc"
            )
        near, far = End(EDGE, own, serving.interface(own)), End(SERVER, address, terms.interface)
        of_server = terms.folder, terms.python, terms.device, terms.threads
        remotes: dict[str, Remote] = {
            EDGE: Remote(Host("edge", own, near.interface, folder, sys.executable, threads=threads), edge),
            SERVER: ServedRemote(Host("server", address, far.interface, *of_server), served),
        }
        names = {EDGE: "this machine", SERVER: terms.hostname}
        shown = ("data_address", "data_interface", "device")
        facts = {
            "kind": "served",
            "shaper": "none",
            "hosts": {
                role: {"name": names[role], **{key: getattr(remote.host, key) for key in shown}}
                for role, remote in remotes.items()
            },
            "links": [{"near": asdict(near), "far": asdict(far)}],
        }
        label = f"by hand: edge this machine (cpu), server {terms.hostname} ({terms.device})"
        links = (Link(near, far, Shaper()),)
        leases = held(remotes, heartbeat, wait_s, say, undo)
        return Testbed(
            remotes,
            links,
            heartbeat,
            label,
            facts,
            is_local=False,
            undo=undo.pop_all(),
            hold=leases.take,
            watch_links=leases.watch_links,
        )
