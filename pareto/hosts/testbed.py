"""A testbed as the driver sees it: a chain of hosts within reach, and the links between neighbours to shape.

On a host files go over once, by their content's hash; programs start there and talk JSON lines.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pareto.hosts import parcels
from pareto.hosts.connection import ANSWER_S, Connection, Unreachable
from pareto.hosts.host import End, Host, TestbedError
from pareto.hosts.session import Session
from pareto.hosts.setup import privileged
from pareto.hosts.shapers import NetemShaper, Shaper, Starts

RETURN_TIMEOUT_S = 60.0
"""How long a host that is lost is waited for: a small device needs most of a minute to boot."""
RETRY_S = 1.0
CHECK_S = 5.0
"""How often hosts are asked, while one measures, whether they have their data link."""


class Remote:
    """A host and the connection to it. Its methods raise Unreachable."""

    def __init__(self, host: Host, connection: Connection) -> None:
        self.host = host
        self.connection = connection
        self.ship = partial(parcels.ship, connection, host.folder)
        self.lacking = partial(parcels.lacking, connection, host.folder)
        self.send = partial(parcels.send, connection, host.folder)
        self._code = ""

    def bring_code(self) -> None:
        """Put the code that travels onto the host, unless it is there."""
        if not self._code:
            self._code = parcels.ship_code(self.connection, self.host.folder)

    def start(self, module: str, *arguments: str) -> Session:
        """Start `python -m module` in the shipped code; its stderr goes to a log beside it."""
        self.bring_code()
        environment = [
            f"OMP_NUM_THREADS={self.host.threads}",
            "PYTHONDONTWRITEBYTECODE=1",
            f"TORCHINDUCTOR_CACHE_DIR={self.host.folder}/inductor",
            f"TP_SOCKET_IFNAME={self.host.data_interface}",
            f"GLOO_SOCKET_IFNAME={self.host.data_interface}",
        ]
        argv = shlex.join(["env", *environment, self.host.python, "-m", module, *arguments])
        return self._open(f"cd {shlex.quote(self._code)} && {argv}", module)

    def start_privileged(self, *, as_root: bool) -> Session:
        """Start the program that shapes the link; `as_root` where the connection is root's own."""
        module = "pareto.remote.link"
        return self.start(module) if as_root else self._open(privileged.COMMAND, module)

    def renew(self) -> None:
        """Make sure that the host answers, logging in again where it does not."""
        self.connection.renew()
        self._code = ""  # it may come back without its files

    def loss(self) -> str:
        """Why the host does not answer, or is cut off from the data link; empty where neither is so."""
        file = f"/sys/class/net/{self.host.data_interface}/carrier"
        try:
            carrier = self.connection.run(f"cat {shlex.quote(file)}", timeout_s=ANSWER_S).out.strip()
        except Unreachable as fault:
            return str(fault)
        return f"{self.host.name}: no carrier on {self.host.data_interface}" if carrier == "0" else ""

    def _open(self, command: str, module: str) -> Session:
        log = f"{self.host.folder}/{module}.log"
        # The shell stays, to say in the log what the program itself no longer can.
        words = '"killed by signal $((status - 128))$([ $status -ne 137 ] || echo ": out of memory?")"'
        killed = f"[ $status -le 128 ] || echo {words} >>{shlex.quote(log)}"
        script = f"{{ {command}; }} 2>{shlex.quote(log)}; status=$?; {killed}"
        return Session(self.host.name, self.connection.open(script, log))


K = TypeVar("K")
T = TypeVar("T")


def on_each(calls: Mapping[K, Callable[[], T]], within_s: float | None = None) -> dict[K, T]:
    """The result of each call, in their order; all are made at the same time, in threads.

    When all have ended, or that time is up, raises the error of the first of them that failed; what is not done then is
    left out. An interruption does not wait for them: no thread keeps the process from ending.
    """
    futures: dict[K, Future[T]] = {key: Future() for key in calls}

    def make(key: K) -> None:
        try:
            futures[key].set_result(calls[key]())
        except BaseException as error:
            futures[key].set_exception(error)

    for key in calls:
        threading.Thread(target=make, args=(key,), name="on each", daemon=True).start()
    wait(futures.values(), within_s)
    return {key: future.result() for key, future in futures.items() if future.done()}


@dataclass(frozen=True)
class Link:
    """The link that joins two neighbours; `near` is on the edge's side."""

    near: End
    far: End
    shaper: Shaper

    @property
    def name(self) -> str:
        return f"{self.near.role}-{self.far.role}"


def shaped_links(
    ends: Iterable[tuple[End, End]],
    shaping: Iterable[Sequence[str]],
    starts: Starts,
    undo: ExitStack,
    *,
    filtered: bool,
) -> tuple[Link, ...]:
    """The links with these ends, each shaped by netem on hosts of these roles, if any. Raises TestbedError, FAULTS."""
    links: tuple[Link, ...] = ()
    for (near, far), roles in zip(ends, shaping, strict=True):
        by = {role: starts[role] for role in roles}
        shaper = NetemShaper(near, far, by, filtered=filtered) if by else Shaper()
        undo.callback(shaper.close)
        links += (Link(near, far, shaper),)
    return links


@dataclass
class Testbed:
    """`remotes` by role, in the order of the chain; `links[i]` joins the hosts i and i + 1.

    is_local: hosts and links are made on this machine. Then a link is nothing but what its profile says, and the
    machine's sensors cannot tell the hosts apart.
    """

    remotes: dict[str, Remote]
    links: tuple[Link, ...]
    label: str
    facts: dict[str, Any]
    is_local: bool
    undo: ExitStack
    watch_strangers: Callable[[], Callable[[], float]] | None = None
    """Where the hosts are this machine: begins to watch the programs that are none of the run's; what it returns says
    how many percent of the hosts' cores they have taken since."""
    hold: Callable[[], None] = lambda: None
    """Holds for this driver what it does not hold (any more). Raises TestbedError where another driver has it."""
    watch_links: Callable[[], Callable[[], str]] = lambda: str
    """Begins to watch the hosts' data links; what it returns says which was lost since, empty where none was. Both
    raise FAULTS."""
    _cut_off: Callable[[], str] = str
    _checked_s: float = 0.0
    _loss: str = ""

    def lost(self) -> str:
        """Words on what happened to it after a fault; empty where all parts are there. Takes up to some seconds."""
        return next(filter(None, (remote.loss() for remote in self.remotes.values())), self._loss)

    def watch(self) -> None:
        """From now on `check` notices a data link that is lost, if only for a moment. Raises FAULTS."""
        self._loss, self._cut_off, self._checked_s = "", self.watch_links(), time.monotonic()

    def check(self, every_s: float = CHECK_S) -> None:
        """Raise Unreachable where a data link was lost; looks at most once in that time. Raises FAULTS."""
        if time.monotonic() < self._checked_s + every_s:
            return
        self._loss, self._checked_s = self._cut_off(), time.monotonic()
        if self._loss:
            raise Unreachable(self._loss)

    def revive(self) -> None:
        """Log in again where a host was lost, waiting for it. Raises Unreachable."""
        deadline = time.monotonic() + RETURN_TIMEOUT_S
        for remote in self.remotes.values():
            while True:
                try:
                    remote.renew()
                    if words := remote.loss():
                        raise Unreachable(words)
                    break
                except Unreachable:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(RETRY_S)
        try:
            self.hold()
        except TestbedError as error:
            raise Unreachable(str(error)) from error
        self._loss = ""
        for link in self.links:
            link.shaper.revive()

    def close(self) -> None:
        """Put everything back and log out."""
        self.undo.close()
