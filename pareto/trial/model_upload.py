"""Files that each host gets of a model before it loads it: those that it needs and lacks, in one go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Console

from pareto.basics.console import LOGGED_S
from pareto.hosts.host import EDGE
from pareto.hosts.parcels import Parcel
from pareto.hosts.testbed import Remote, Testbed, on_each
from pareto.protocol import messages

if TYPE_CHECKING:
    from pareto.models.prepare import Artifact, Prepared

DRAWN_S = 0.5
"""How often a terminal says how far sending is."""


@dataclass(frozen=True)
class Loading:
    """The requests that load a model that is on the hosts, by role. is_whole: whether each host has all of it."""

    requests: dict[str, messages.LoadModel]
    is_whole: bool


class Sender:
    """The sending of models to the hosts of a testbed. sent_bytes: by role, what went over so far, but the program."""

    def __init__(self, testbed: Testbed) -> None:
        self.sent_bytes: dict[str, int] = {}
        self.took_s = 0.0
        self._testbed = testbed
        self._there: dict[str, Loading] = {}

    def forget(self) -> None:
        """Look anew what is on the hosts: they may have come back without their files, or found one damaged."""
        self._there.clear()

    def loading(self, prepared: Prepared, *, whole: bool) -> Loading:
        """The requests that load a model, which is sent first where it was not. Raises Unreachable."""
        there = self._there.get(prepared.name)
        if there is None or (whole and not there.is_whole):
            self.send([prepared], whole=whole)
        return self._there[prepared.name]

    def send(self, models: Iterable[Prepared], meter: Meter | None = None, *, whole: bool = False) -> None:
        """Send each host what it lacks to run its units at the models' splits, or if `whole` any units; all hosts at
        the same time. Raises Unreachable."""
        began, hosts = time.monotonic(), self._testbed.remotes
        needs: dict[str, dict[str, Parcel]] = {role: {} for role in hosts}
        there = {}
        for prepared in models:
            requests = {
                role: _request(prepared, needs[role], role, hosts[role].host.folder, units)
                for role, units in zip(hosts, _units(prepared, len(hosts), whole), strict=True)
            }
            there[prepared.name] = Loading(requests, whole)
        lacking = on_each({role: partial(_lacking, remote, needs[role]) for role, remote in hosts.items()})
        sizes = {role: sum(parcel.size for parcel in parcels) for role, parcels in lacking.items()}
        meter = meter or Meter(Console(quiet=True), lambda words: None)
        meter.begin(sizes)
        on_each(
            {
                role: partial(hosts[role].send, parcels, partial(meter.sent, role))
                for role, parcels in lacking.items()
                if parcels
            }
        )
        meter.end()
        self._there |= there
        self.sent_bytes = {role: self.sent_bytes.get(role, 0) + size for role, size in sizes.items()}
        self.took_s += time.monotonic() - began


def _units(prepared: Prepared, hosts: int, whole: bool) -> list[Container[int]]:
    """By the hosts' positions in the chain, the units that they run at any of the model's splits, or could run."""
    last = prepared.facts.last
    if whole or not prepared.splits:
        return [range(last)] * hosts
    return [
        {unit for cuts in prepared.splits for unit in range((0, *cuts)[position], (*cuts, last)[position])}
        for position in range(hosts)
    ]


def _request(
    prepared: Prepared, needs: dict[str, Parcel], role: str, folder: str, units: Container[int]
) -> messages.LoadModel:
    """The request that loads a model on a host; the files that the host needs are added to `needs`, by name."""

    def path(parcel: Parcel) -> str:
        needs[parcel.name] = parcel
        return f"{folder}/{parcel.name}"

    def file(artifact: Artifact, suffix: str = ".safetensors") -> str:
        return path(Parcel.of(artifact.path, f"{artifact.digest}{suffix}"))

    recipe, code = prepared.recipe, prepared.code
    return messages.LoadModel(
        asdict(recipe if code is None else replace(recipe, file=file(code, ".py"))),
        {
            path(Parcel(f"{shard.digest}.safetensors", shard.size, shard.blocks)): shard.digest
            for shard in prepared.shards
            if shard.unit in units
        },
        prepared.weights.digest,
        [file(data) for data in prepared.data.values()] if role == EDGE else [],
        [
            messages.OwnCodec(
                replace(codec.own, file=file(codec.code, ".py")),
                *(file(codec.weights), codec.weights.digest, codec.seed, codec.cuts),
            )
            for codec in prepared.codecs
        ],
        prepared.file_bytes,
    )


def _lacking(remote: Remote, needs: Mapping[str, Parcel]) -> list[Parcel]:
    lacking = remote.lacking(needs)
    return [parcel for name, parcel in needs.items() if name in lacking]


class Meter:
    """Says how far sending is: on a terminal by `show`, in a log by a line now and then, and at the end in a line."""

    def __init__(
        self, out: Console, show: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._out, self._show, self._now = out, show, now
        self._sizes: dict[str, int] = {}
        self._sent: dict[str, int] = {}
        self._said_s = now()
        self._lock = threading.Lock()

    def begin(self, sizes: Mapping[str, int]) -> None:
        """sizes: by role, the bytes that are to be sent."""
        self._sizes, self._sent = dict(sizes), dict.fromkeys(sizes, 0)
        if self._out.is_terminal and any(sizes.values()):
            self._show(self.words)

    def sent(self, role: str, nbytes: int) -> None:
        """So many bytes more; hosts may say so from threads of their own."""
        with self._lock:
            self._sent[role] += nbytes
            on_terminal = self._out.is_terminal
            if self._now() - self._said_s >= (DRAWN_S if on_terminal else LOGGED_S):
                self._said_s = self._now()
                (self._show if on_terminal else self._out.print)(self.words)

    def end(self) -> None:
        sent = ", ".join(f"{_mb(size)} MB to {role}" for role, size in self._sizes.items() if size)
        none = ", ".join(role for role, size in self._sizes.items() if not size)
        self._out.print(
            "; ".join([f"sent {sent}"] * bool(sent) + [f"nothing to send to {none}"] * bool(none))
        )

    @property
    def words(self) -> str:
        """`sending 212 of 528 MB to edge, 3.1 of 9.4 MB to server`; hosts that have all are left out."""
        sizes = self._sizes.items()
        each = (f"{_mb(self._sent[role])} of {_mb(size)} MB to {role}" for role, size in sizes if size)
        return f"sending {', '.join(each)}"


def _mb(nbytes: int) -> str:
    """Megabytes with a digit behind the point where there are few."""
    return f"{nbytes / 1e6:.0f}" if nbytes >= 10e6 else f"{nbytes / 1e6:.1f}"
