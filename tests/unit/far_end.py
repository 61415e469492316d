"""Stand-ins for what is on other hosts: programs that answer a session, and hosts that start some."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pareto.hosts.connection import ChildProcess
from pareto.hosts.host import EDGE, SERVER, End, Host
from pareto.hosts.parcels import Parcel
from pareto.hosts.session import Session
from pareto.hosts.shapers import Shaper
from pareto.hosts.testbed import Link, Remote, Testbed
from pareto.protocol.jsonlines import Refused, plain
from pareto.remote.link.profile import Profile

HOSTS = {
    EDGE: Host("pi", "192.168.7.2", "eth0", "/home/pi/.pareto", "python3"),
    SERVER: Host("gpu", "192.168.7.1", "enp3s0", "/home/ada/.pareto", "python3", "cuda:1", 4),
}

Answer = Callable[[dict[str, Any]], Any]


class Clock:
    """In place of `time`: it goes on by what is slept, and as the test says."""

    def __init__(self, now_s: float = 0.0) -> None:
        self.now_s = now_s

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class FarEnd:
    """A `session.Command` to a program that answers at once, or when it was waited for `late` times.

    `asked` is what it was asked, without the ids.
    """

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self.asked: list[dict[str, Any]] = []
        self.dead = self.closed = False
        self.late = 0
        self._answers = answers
        self._replies = b""

    def send(self, data: bytes) -> None:
        if self.dead:
            raise BrokenPipeError
        request = json.loads(data)
        if (number := request.pop("id", None)) is None:
            return
        self.asked.append(request)
        try:
            reply = {"ok": True, "result": self._answers[request["op"]](request)}
        except Refused as refusal:
            reply = {"ok": False, "error": str(refusal)}
        self._replies += json.dumps({"id": number, **reply}, default=plain).encode() + b"\n"

    def read(self, timeout_s: float) -> bytes:
        if (self.late or not self._replies) and not self.dead:
            self.late = max(0, self.late - 1)
            raise TimeoutError
        replies, self._replies = self._replies, b""
        return replies

    def close(self) -> None:
        self.closed = self.dead = True

    def last_words(self) -> str:
        return "it was killed" if self.dead else ""

    def of(self, op: str) -> list[dict[str, Any]]:
        """The requests of one kind, without their name."""
        of = [request for request in self.asked if request["op"] == op]
        return [{key: value for key, value in request.items() if key != "op"} for request in of]


@dataclass
class StandIn:
    """In place of a `Remote`: its programs are what `make` makes of a module's name."""

    host: Host
    make: Callable[[str], FarEnd | ChildProcess]
    started: list[Session] = field(default_factory=list)
    arguments: list[tuple[str, ...]] = field(default_factory=list)
    wires: list[Any] = field(default_factory=list)
    has: dict[str, bytes] = field(default_factory=dict)
    """The files that were sent to it, by name."""

    def start(self, module: str, *arguments: str) -> Session:
        self.wires.append(self.make(module))
        self.arguments.append(arguments)
        self.started.append(Session(self.host.name, self.wires[-1]))
        return self.started[-1]

    def ship(self, data: bytes | Path, name: str) -> str:
        return f"{self.host.folder}/{name}"

    def lacking(self, names: Collection[str]) -> set[str]:
        return set(names).difference(self.has)

    def send(self, parcels: Sequence[Parcel], sent: Callable[[int], None]) -> None:
        for parcel in parcels:
            self.has[parcel.name] = b"".join(parcel.blocks())
            sent(parcel.size)

    def bring_code(self) -> None: ...

    def renew(self) -> None: ...

    def loss(self) -> str:
        return ""


class FakeShaper(Shaper):
    """Notes what was put on the link."""

    def __init__(self) -> None:
        self.applied: list[Profile] = []

    def apply(self, profile: Profile) -> dict[str, Any]:
        self.applied.append(profile)
        return {"shaper": "none"}


def silent() -> dict[str, StandIn]:
    """Hosts that are asked nothing."""
    return {role: StandIn(host, lambda _: FarEnd({})) for role, host in HOSTS.items()}


def bed_of(remotes: dict[str, StandIn], *, is_local: bool = False, shaper: Shaper | None = None) -> Testbed:
    """The hosts in their order, with `shaper` on every link."""
    ends = [End(role, it.host.data_address, it.host.data_interface) for role, it in remotes.items()]
    links = tuple(Link(near, far, shaper or Shaper()) for near, far in itertools.pairwise(ends))
    of_roles = {role: cast(Remote, remote) for role, remote in remotes.items()}
    return Testbed(of_roles, links, "stand-ins", {}, is_local, ExitStack())
