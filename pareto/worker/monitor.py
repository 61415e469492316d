"""`python -m pareto.worker.monitor`: samples this device while a worker runs. It needs no torch.

A process of its own, so that sampling never holds the lock of the worker's interpreter.

- `begin` pid, interval_s, gpu: watch that process and sample, from anew if it did already; `gpu` is a GPU's
  UUID or null. Gives `sensors`: for each field that this device can measure, where it comes from
- `latest`: the last sample's fields, or null
- `collect`: `columns`, the samples since the last `collect`, and before them the last one of that
- `idle` seconds: wait so long; `power_w` meanwhile and `power_w_by_source`, null where there was no sensor
  or where fewer than two samples were taken
- `cost`: what this program itself takes since `begin`: `cpu_percent` of one core, `samples`, and
  `late_p99_s`, how far behind their time they were, or null

The fields are those of `pareto.worker.sensors.instruments.Sample`. A field that is not measured is null.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from pareto.jsonlines import Refused, serve
from pareto.worker.sensors.instruments import FIELDS, Instruments, Sample
from pareto.worker.sensors.sampling import Sampler


@dataclass(frozen=True)
class _Session:
    """What lasts from one `begin` to the next."""

    instruments: Instruments
    sampler: Sampler
    begun_s: float
    own_cpu_s: float


class Monitor:
    """Each public method but `stop` answers one request."""

    def __init__(self, sysfs: Path) -> None:
        self._sysfs = sysfs
        self._session: _Session | None = None

    def begin(self, request: dict[str, Any]) -> dict[str, Any]:
        interval_s = request["interval_s"]
        if not 0 < interval_s < math.inf:
            raise Refused(f"interval_s must be above 0, not {interval_s!r}")
        self.stop()
        try:
            instruments = Instruments(request["pid"], request["gpu"], self._sysfs)
        except psutil.NoSuchProcess:
            raise Refused(f"no process {request['pid']} to watch") from None
        begun_s, own_cpu_s = time.monotonic(), _own_cpu_s()  # what looking for sensors took is not sampling
        sampler = Sampler(instruments.sample, interval_s)
        self._session = _Session(instruments, sampler, begun_s, own_cpu_s)
        return {"sensors": instruments.sensors}

    def latest(self, request: dict[str, Any]) -> dict[str, Any] | None:
        if self._session is None:
            return None
        sample = self._session.sampler.latest()
        return {field: getattr(sample, field) for field in FIELDS}

    def collect(self, request: dict[str, Any]) -> dict[str, Any]:
        samples = self._begun().sampler.collect()
        return {"columns": {field: [getattr(x, field) for x in samples] for field in FIELDS}}

    def idle(self, request: dict[str, Any]) -> dict[str, Any]:
        session = self._begun()
        from_s = time.monotonic()
        time.sleep(request["seconds"])
        meanwhile = [x for x in session.sampler.waiting() if x.at_s >= from_s]
        by_source = {
            name: _mean_power_w(meanwhile, place) for place, name in enumerate(session.instruments.sources)
        }
        powers = [x for x in by_source.values() if x is not None]
        complete = powers and len(powers) == len(by_source)
        return {"power_w": sum(powers) if complete else None, "power_w_by_source": by_source}

    def cost(self, request: dict[str, Any]) -> dict[str, Any]:
        session = self._begun()
        lasted_s = time.monotonic() - session.begun_s
        return {
            "cpu_percent": (_own_cpu_s() - session.own_cpu_s) / lasted_s * 100,
            "samples": session.sampler.taken(),
            "late_p99_s": session.sampler.late_p99_s(),
        }

    def stop(self) -> None:
        """Also at the end of the program, so that no `vcgencmd` outlives it."""
        session, self._session = self._session, None
        if session is not None:
            session.sampler.stop()

    def _begun(self) -> _Session:
        if self._session is None:
            raise Refused("nothing is watched yet")
        return self._session


def _mean_power_w(samples: list[Sample], place: int) -> float | None:
    """By energy over time, which for a counter is exact whatever happens between two samples."""
    energies = [x.energy_by_source_j[place] for x in samples]
    if len(energies) < 2 or None in energies:
        return None
    first_j, last_j = energies[0], energies[-1]
    assert first_j is not None  # noqa: S101  (for mypy, which does not follow `None in`)
    assert last_j is not None  # noqa: S101
    return (last_j - first_j) / (samples[-1].at_s - samples[0].at_s)


def _own_cpu_s() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def main() -> None:
    arguments = argparse.ArgumentParser(prog="pareto.worker.monitor")
    arguments.add_argument("--sysfs", type=Path, default=Path("/"), help=argparse.SUPPRESS)
    monitor = Monitor(arguments.parse_args().sysfs)
    serve(
        {name: getattr(monitor, name) for name in ("begin", "latest", "collect", "idle", "cost")},
        at_end=monitor.stop,
    )


if __name__ == "__main__":
    main()
