"""The benchmark from beginning to end: places, tables as they come, a file with everything."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live

from pareto.bench import table
from pareto.bench.asked import Asked
from pareto.bench.effort import Effort, efforts, needs_s
from pareto.bench.measuring import Sample, Stay
from pareto.bench.place import Place, names, visit
from pareto.bench.summary import Overhead, Row, overheads, rows
from pareto.hosts.host import TestbedError
from pareto.hosts.local_testbed import require_local
from pareto.hosts.way import FAULTS
from pareto.link.profile import Profile
from pareto.screen import duration

START_S = 6.0
"""Of two programs, until they have torch and are connected; and of a testbed."""
VERSION = 1
"""Of the file's form."""
REDRAW_S = 1.0


def run(out: Console, asked: Asked, folder: Path) -> Path:
    """Measure, print, and write `bench-transport-<date>-<time>.json` into `folder`; its path. Raises TestbedError.

    Nothing is written where it does not come to its end.
    """
    require_local()
    make(folder)
    began = datetime.now().astimezone()
    load = os.getloadavg()
    estimate_s = sum(_estimate_s(asked, profile) for _, profile in names(asked))
    sizes = ", ".join(table.size(nbytes) for nbytes in asked.sizes)
    out.print(
        f"{', '.join(way.label for way in asked.ways)} with {sizes}, {asked.rounds} rounds", markup=False
    )
    out.print(f"about {duration(estimate_s)}; load average before: {load[0]:.2f} on {os.cpu_count()} cores\n")
    table.explain(out, [way.family for way in asked.ways], busy=asked.busy)
    visited = _Visits(out, asked)
    try:
        visit(asked, visited.measure)
    except FAULTS as fault:
        raise TestbedError(f"the benchmark broke off: {fault}") from fault
    record = {
        "benchmark": "transport",
        "version": VERSION,
        "started_at": began.isoformat(timespec="seconds"),
        "wall_s": round((datetime.now().astimezone() - began).total_seconds(), 1),
        "settings": _settings(asked),
        "machine": _machine(load),
        "places": visited.places,
        "samples": [asdict(sample) for sample in visited.samples],
        "rows": [asdict(row) for row in visited.rows],
        "overheads": [asdict(one) for one in visited.overheads],
    }
    path = folder / f"bench-transport-{began:%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


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


class _Visits:
    """What the places told so far."""

    def __init__(self, out: Console, asked: Asked) -> None:
        self._out = out
        self._asked = asked
        self.samples: list[Sample] = []
        self.rows: list[Row] = []
        self.overheads: list[Overhead] = []
        self.places: list[dict[str, Any]] = []

    def measure(self, place: Place) -> None:
        chosen = efforts(self._asked, place.profile)
        self._out.print(f"\n{place.name}: {place.words}", markup=False)
        for line in _left_out(self._asked, place.profile, chosen):
            self._out.print(line, markup=False)
        if not chosen:
            return
        began = time.monotonic()
        with closing(Stay(place, self._asked, chosen)) as stay, _Progress(self._out, place.name) as progress:
            came = list(stay.samples(progress.told))
            facts = stay.facts()
        self.samples += came
        self.places.append(
            {
                "name": place.name,
                "words": place.words,
                "profile": place.profile.record() if place.profile else None,
                "in_force": place.in_force,
                "sizes": [asdict(effort) for effort in chosen],
                "ends": facts,
                "wall_s": round(time.monotonic() - began, 1),
            }
        )
        self._out.print()
        told = rows(came, self._asked.ways)
        lines = overheads(told)
        self.rows += told
        self.overheads += lines
        if place.profile is not None and (line := table.link(told, place.profile)):
            self._out.print(f"{line}\n", markup=False)
        table.place(self._out, told, lines)


class _Progress:
    """A line on a terminal. Drawn between samples alone, by nobody beside them: the ends share this machine."""

    def __init__(self, out: Console, name: str) -> None:
        self._name = name
        self._live = Live(console=out, auto_refresh=False, transient=True) if out.is_terminal else None
        self._drawn = -REDRAW_S

    def __enter__(self) -> _Progress:
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def told(self, number: int, rounds: int) -> None:
        if self._live and time.monotonic() - self._drawn > REDRAW_S:
            self._live.update(f"{self._name}: round {number} of {rounds}", refresh=True)
            self._drawn = time.monotonic()


def _estimate_s(asked: Asked, profile: Profile | None) -> float:
    return START_S + sum(effort.estimate_s(asked) for effort in efforts(asked, profile))


def _left_out(asked: Asked, profile: Profile | None, chosen: Sequence[Effort]) -> list[str]:
    """What is not measured there, or less often, and why."""
    kept = {effort.nbytes for effort in chosen}
    lines = [
        f"left out: {table.size(nbytes)}, which alone takes this link {needs_s(profile, nbytes):.1f} s"
        for nbytes in asked.sizes
        if nbytes not in kept
    ]
    for effort in chosen:
        fewer = f"{effort.rounds} rounds" if effort.rounds < asked.rounds else ""
        words = ", ".join(filter(None, (fewer, "" if effort.streamed else "no stream")))
        if words:
            lines.append(f"{table.size(effort.nbytes)}, {effort.link_s:.2g} s on this link: {words}")
    return lines


def _settings(asked: Asked) -> dict[str, Any]:
    return {
        "places": asked.places,
        "netem": [profile.name for profile in asked.profiles],
        "ways": [asdict(way) | {"label": way.label} for way in asked.ways],
        "sizes": asked.sizes,
        "rounds": asked.rounds,
        "seed": asked.seed,
        "busy": asked.busy,
        "quick": asked.quick,
    }


def _machine(load_before: Sequence[float]) -> dict[str, Any]:
    """Of the driver, which is on the same machine; the hosts' own facts are with each place."""
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "load_before": list(load_before),
        "load_after": list(os.getloadavg()),
    }
