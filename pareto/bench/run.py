"""The benchmark from beginning to end: places, rounds, a table for each place, a file with everything.

The programs at both ends are `pareto.worker.bench`. Places are visited one after another; in each, every round has
every size and way once, in an order shuffled from the seed, so that a machine that gets slower does so for all.
"""

from __future__ import annotations

import json
import os
import platform
import secrets
import tempfile
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from statistics import fmean, median
from typing import Any

from rich.console import Console
from rich.live import Live

from pareto.backends import registry
from pareto.bench import table
from pareto.bench.request import FLOOR, LOOPBACK, NETEM, Effort, Request, efforts, link_seconds
from pareto.bench.table import Sample
from pareto.console import duration
from pareto.hosts.connection import FAULTS
from pareto.hosts.host import EDGE, SERVER, TestbedError
from pareto.hosts.inventory import THIS_MACHINE
from pareto.hosts.local_testbed import open_local, require_local
from pareto.hosts.session import Heartbeat, Programs
from pareto.hosts.testbed import Remote, Testbed, open_testbed
from pareto.jsonlines import plain
from pareto.link.probe import Tolerance
from pareto.link.profile import Profile, describe
from pareto.messages import Connect, GetFacts, JoinAgents, OpenRendezvous
from pareto.run_keys import run_keys
from pareto.worker.bench import Expect, GetTaken, ListenFor, Taken, Timed, TimePayloads

PROGRAM = "pareto.worker.bench"
FIRST_TRIPS, QUICK_S = 5, 0.1
START_S = 6.0
"""For the estimate: until two programs have torch and are connected."""
TIMEOUT_S = 120.0
REDRAW_S = 1.0
VERSION = 2
"""Of the file's form."""

_LINK = Tolerance(rtt_fraction=0.10, rtt_floor_s=0.002)
"""How far the floor's round trip, which holds what two ordinary programs take, may be off the link's."""


@dataclass(frozen=True)
class Place:
    """Where the two ends run. profile: None where nothing shapes the link. in_force: what the shaper read back.

    far_core: the core that the far end moves to; None where it is on its own already.
    """

    name: str
    words: str
    near: Remote
    far: Remote
    address: str
    near_interface: str
    far_interface: str
    heartbeat: Heartbeat
    far_core: int | None = None
    profile: Profile | None = None
    in_force: dict[str, Any] | None = None


def places(request: Request) -> Generator[Place, None, None]:
    """Each place, built while it is the current one. Raises TestbedError, FAULTS."""
    bare = [name for name in request.places if name != NETEM]
    if bare:
        with closing(open_local(shaper="none")) as bed:
            for name in bare:
                words = "two namespaces joined by a veth pair, nothing in between"
                yield _loopback(bed) if name == LOOPBACK else _across(bed, name, words)
    if request.profiles:
        with closing(open_testbed(THIS_MACHINE, request.profiles, shape_at="both")) as bed:
            for profile in request.profiles:
                in_force = bed.links[0].shaper.apply(profile)
                words = f"{describe(profile)}; shaped by {bed.facts['shaper']}"
                yield _across(bed, profile.name, words, profile=profile, in_force=in_force)


def _loopback(bed: Testbed) -> Place:
    """Two programs on one host would share its core, so the far one moves to the other host's."""
    edge, server = bed.remotes[EDGE], bed.remotes[SERVER]
    core = server.host.core if server.host.core != edge.host.core else None
    cores = "sharing a core" if core is None else f"on cores {edge.host.core} and {core}"
    words = f"two processes on one host, {cores}, over 127.0.0.1"
    return Place(LOOPBACK, words, edge, edge, "127.0.0.1", "lo", "lo", bed.heartbeat, core)


def _across(bed: Testbed, name: str, words: str, **shaping: Any) -> Place:
    (link,) = bed.links
    near, far = bed.remotes[link.near.role], bed.remotes[link.far.role]
    ends = (link.far.address, link.near.interface, link.far.interface)
    return Place(name, words, near, far, *ends, bed.heartbeat, **shaping)


class Ends:
    """Both ends of some ways, connected, in one program each. Raises FAULTS, TestbedError."""

    def __init__(self, place: Place, ways: Sequence[str]) -> None:
        self._interface = place.near_interface
        core = () if place.far_core is None else ("--core", str(place.far_core))
        self._ends = Programs(place.heartbeat)
        with ExitStack() as undo:
            undo.callback(self.close)
            self._near = self._ends["near"] = place.near.start(PROGRAM)
            self._far = self._ends["far"] = place.far.start(PROGRAM, *core)
            facts = self._ends.ask_all(dict.fromkeys(self._ends, GetFacts()), TIMEOUT_S)
            self.facts = {end: plain(each) for end, each in facts.items()}
            """What each end says of the host that it is on."""
            self._connect(place, ways)
            undo.pop_all()

    def trips(self, way: str, nbytes: int, count: int, *, kept: bool = False) -> list[float]:
        """The seconds of `count` round trips. kept: also compare the last payload with what was sent."""
        self._far.ask(Expect(way, nbytes, count, kept))
        trips = self._near.ask(TimePayloads(way, nbytes, count, self._interface), TIMEOUT_S)
        self._arrived(way, nbytes, count, trips.sent_bytes)
        return trips.seconds

    def stream(self, way: str, nbytes: int, count: int, in_flight: int) -> tuple[Timed, Taken]:
        """What both ends report on `count` payloads one after another."""
        self._far.ask(Expect(way, nbytes, count))
        stream = self._near.ask(TimePayloads(way, nbytes, count, self._interface, in_flight), TIMEOUT_S)
        return stream, self._arrived(way, nbytes, count, stream.sent_bytes)

    def close(self) -> None:
        self._ends.close()

    def _arrived(self, way: str, nbytes: int, count: int, sent_bytes: int) -> Taken:
        """What came at the far end. Raises TestbedError unless it is every payload, over the interface."""
        taken = self._far.ask(GetTaken())
        if taken.count != count:
            raise TestbedError(f"{way}: {taken.count} of {count} payloads came")
        if taken.same is False:
            raise TestbedError(f"{way}: what came is not what was sent")
        if sent_bytes < nbytes * count:
            raise TestbedError(
                f"{way}: only {sent_bytes} of {nbytes * count} bytes crossed {self._interface}"
            )
        return taken

    def _connect(self, place: Place, ways: Sequence[str]) -> None:
        to, keys = (place.address, secrets.token_hex(16)), run_keys(filter(_is_backend, ways))
        ports = self._far.ask(ListenFor(*to, list(ways), keys), TIMEOUT_S)
        self._near.ask(Connect(*to, ports, list(ways), keys), TIMEOUT_S)
        for way in filter(_needs_agent, ways):
            at = place.address, self._far.ask(OpenRendezvous(place.address))
            interfaces = {"near": place.near_interface, "far": place.far_interface}
            joining = {
                end: JoinAgents(way, end, list(interfaces), *at, interface)
                for end, interface in interfaces.items()
            }
            self._ends.ask_all(joining, TIMEOUT_S)


def _is_backend(way: str) -> bool:
    return way.partition(registry.SEPARATOR)[0] in registry.BACKENDS


def _needs_agent(way: str) -> bool:
    return _is_backend(way) and bool(registry.parse(way).agent)


def connected(undo: ExitStack, place: Place, ways: Sequence[str]) -> dict[str, Ends]:
    """By way, the two ends that have it, connected until `undo` ends."""
    # A process has one agent, of rpc: the other ways that need one have two programs of their own.
    others = [way for way in ways if _needs_agent(way)][1:]
    ends: dict[str, Ends] = {}
    for group in ([way for way in ways if way not in others], *([way] for way in others)):
        both = Ends(place, group)
        undo.callback(both.close)
        ends |= dict.fromkeys(group, both)
    return ends


def measure(
    out: Console, place: Place, request: Request, chosen: Sequence[Effort]
) -> tuple[list[Sample], dict[str, Any]]:
    """All samples of a place, and what its ends say of their hosts."""
    # A line on a terminal, drawn between samples by this thread alone: the ends share this machine.
    with ExitStack() as undo, Live(console=out, auto_refresh=False, transient=True) as live:
        ends = connected(undo, place, request.ways)
        # Large first: what they do to a connection, its window above all, is done before anything is timed.
        counts = {
            (effort, way): _first(ends[way], effort, way)
            for effort in reversed(chosen)
            for way in request.ways
        }
        order, samples = Random(f"{request.seed} {place.name}"), list[Sample]()  # noqa: S311
        began, drawn, rounds = time.monotonic(), 0.0, max(effort.rounds for effort in chosen)
        for number in range(1, rounds + 1):
            now = [effort for effort in chosen if number <= effort.rounds]
            for effort in order.sample(now, len(now)):
                for way in order.sample(request.ways, len(request.ways)):
                    if time.monotonic() - drawn > REDRAW_S:
                        live.update(f"{place.name}: round {number} of {rounds}", refresh=True)
                        drawn = time.monotonic()
                    started_s = round(time.monotonic() - began, 3)
                    trips, payloads = counts[effort, way]
                    trips_s = ends[way].trips(way, effort.nbytes, trips)
                    stream: tuple[Any, ...] = ()
                    if payloads:
                        near, far = ends[way].stream(way, effort.nbytes, payloads, effort.in_flight)
                        stream = (payloads, *near.seconds, near.cpu_s, far.cpu_s, near.sent_bytes)
                    named = (place.name, effort.nbytes, way, number, started_s)
                    samples.append(Sample(*named, trips, median(trips_s), fmean(trips_s), *stream))
        return samples, ends[request.ways[0]].facts


def _first(ends: Ends, effort: Effort, way: str) -> tuple[int, int]:
    """How many trips and payloads make a sample, from first calls, which count for nothing else."""
    (trip_s,) = ends.trips(way, effort.nbytes, 1, kept=True)
    if trip_s < QUICK_S:
        trip_s = median(ends.trips(way, effort.nbytes, FIRST_TRIPS))
    if not effort.streamed:
        return effort.trips(trip_s), 0
    few = effort.payloads(trip_s)
    stream, _ = ends.stream(way, effort.nbytes, few, effort.in_flight)
    return effort.trips(trip_s), effort.payloads(stream.seconds[0] / few)


def run(out: Console, request: Request, folder: Path) -> Path:
    """Measure, print, and write `bench-transport-<date>-<time>.json` into `folder`; its path. Raises TestbedError.

    Nothing is written where it does not come to its end.
    """
    require_local()
    make(folder)
    began, load = datetime.now().astimezone(), os.getloadavg()
    links = [*(None for name in request.places if name != NETEM), *request.profiles]
    estimate_s = sum(
        START_S + sum(effort.estimate_s(len(request.ways)) for effort in efforts(request, profile))
        for profile in links
    )
    sizes = ", ".join(table.size(nbytes) for nbytes in request.sizes)
    out.print(f"{', '.join(request.ways)} with {sizes}, {request.rounds} rounds", markup=False)
    out.print(f"about {duration(estimate_s)}; load average before: {load[0]:.2f} on {os.cpu_count()} cores\n")
    table.explain(out, [way.partition(registry.SEPARATOR)[0] for way in request.ways])
    visited, samples, rows = list[dict[str, Any]](), list[Sample](), list[table.Row]()
    try:
        with closing(places(request)) as visits:
            for place in visits:
                chosen = efforts(request, place.profile)
                out.print(f"\n{place.name}: {place.words}", markup=False)
                for line in _left_out(request, place.profile, chosen):
                    out.print(line, markup=False)
                if not chosen:
                    continue
                started = time.monotonic()
                measured, facts = measure(out, place, request, chosen)
                wall_s = round(time.monotonic() - started, 1)
                visited.append(
                    {
                        "name": place.name,
                        "words": place.words,
                        "profile": place.profile.record() if place.profile else None,
                        "in_force": place.in_force or {},
                        "sizes": [asdict(effort) for effort in chosen],
                        "ends": facts,
                        "wall_s": wall_s,
                    }
                )
                figures = table.rows(measured, request.ways)
                samples, rows = samples + measured, rows + figures
                out.print()
                if line := link(figures, place.profile):
                    out.print(f"{line}\n", markup=False)
                out.print(table.table(figures))
    except FAULTS as fault:
        raise TestbedError(f"the benchmark broke off: {fault}") from fault
    record = {
        "benchmark": "transport",
        "version": VERSION,
        "started_at": began.isoformat(timespec="seconds"),
        "wall_s": round((datetime.now().astimezone() - began).total_seconds(), 1),
        "settings": {
            "netem": [profile.name for profile in request.profiles],
            **{name: value for name, value in vars(request).items() if name != "profiles"},
        },
        "machine": {
            "kernel": platform.release(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load_before": load,
            "load_after": os.getloadavg(),
        },
        "places": visited,
        "samples": [asdict(sample) for sample in samples],
        "rows": rows,
    }
    path = folder / f"bench-transport-{began:%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def link(rows: Sequence[table.Row], profile: Profile | None) -> str:
    """Whether a shaped link is as it should be, by the floor's smallest round trip; '' where that is not known."""
    floor = next((row for row in rows if row["way"] == FLOOR), None)
    if profile is None or floor is None:
        return ""
    took_s, wanted_s = floor["trip_s"]["median"], link_seconds(profile, floor["nbytes"])
    off = abs(took_s - wanted_s) > _LINK.rtt_s(wanted_s)
    verdict = " - the link is off, trust nothing of this place" if off else ""
    size, took, wanted = table.size(floor["nbytes"]), *map(table.duration, (took_s, wanted_s))
    return f"the link: {took} for {size} and an answer, asked {wanted}{verdict}"


def make(folder: Path) -> None:
    """Have a folder that can be written, and know it before minutes of measuring. Raises TestbedError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise TestbedError(
            f"cannot write results to {folder}: {error.strerror} (choose another --out)"
        ) from None


def _left_out(request: Request, profile: Profile | None, chosen: Sequence[Effort]) -> Iterator[str]:
    """What is not measured on a link, or less often, and why."""
    kept = {effort.nbytes for effort in chosen}
    for nbytes in request.sizes:
        if nbytes not in kept:
            link_s = link_seconds(profile, nbytes)
            yield f"left out: {table.size(nbytes)}, which alone takes this link {link_s:.1f} s"
    for effort in chosen:
        fewer = f"{effort.rounds} rounds" if effort.rounds < request.rounds else ""
        words = ", ".join(filter(None, (fewer, "" if effort.streamed else "no stream")))
        if words:
            yield f"{table.size(effort.nbytes)}, {effort.link_s:.2g} s on this link: {words}"
