"""`partitions --times`: each model's units on each device in a table, and a trace for Perfetto."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.live import Live
from rich.table import Table

from pareto import PROFILES
from pareto.analysis import as_json
from pareto.analysis.backend_cost import BackendCost
from pareto.analysis.model_profile import FACTS, CodecTimes, ModelProfile, UnitTimes
from pareto.analysis.schema import BACKENDS, CODECS, PROFILE
from pareto.basics import files
from pareto.basics.console import digits
from pareto.basics.console import table as console_table
from pareto.basics.escaping import say
from pareto.hosts.access import require_testbed
from pareto.models.prepare import Prepared, canonical, recipe
from pareto.partitions import model as partitioned
from pareto.predict.model_profiles import Kept, folder_of, names, on_testbed
from pareto.predict.model_times import STEADY_S, no_unit_energy
from pareto.protocol.errors import UserError
from pareto.simulated.unit_times import model_profile
from pareto.simulated.workers import Simulation
from pareto.simulated.world import load
from pareto.sweep.networks import links_of
from pareto.sweep.sweep import Sweep
from pareto.trial.start import testbed_of, unbroken
from pareto.trial.workers import Workers

OFF_LINE = 0.25
"""A backend's round trips that are farther off their line say that there is none."""
OFF = 0.05
"""More than this is a difference between the sum of the units and the stage run whole that a reader must know of."""


def run(
    out: Console, sweep: Sweep, folder: Path, *, fresh: bool, trace: Path | None, as_object: bool = False
) -> None:
    """Print the profile of each of a sweep's models, made now or used again, and what was written. folder: beneath
    which profiles are kept. trace: a file for all of them. as_object: also as JSON. Raises UserError, TestbedError."""
    if trace is not None and not trace.parent.is_dir():
        raise UserError(f"--trace {trace}: there is no folder {trace.parent}")
    kept = make_or_reuse(out, sweep, folder, fresh=fresh)
    for profile, place in kept.values():
        for batch_size in profile.batch_sizes:
            out.print(f"\n{profile.model}, batch size {batch_size}")
            out.print(table(profile, batch_size))
        for line in lines(profile):
            out.print(line, soft_wrap=True)
        out.print(f"{place}/: profile.csv, backends.csv, profile.json", soft_wrap=True)
    if as_object:
        say(as_json.text({"profiles": [as_mapping(profile, place) for profile, place in kept.values()]}))
    if trace is not None:
        with files.written(trace):
            files.write(trace, trace_events([profile for profile, _ in kept.values()]))
        out.print(f"{trace}: open it in https://ui.perfetto.dev", soft_wrap=True)


def as_mapping(profile: ModelProfile, place: Path) -> dict[str, Any]:
    """A profile as `--json` has it: what its files say, and what is printed of it."""
    tables = {"units": PROFILE, "backends": BACKENDS, "codecs": CODECS}
    paths = {name: place / table.file for name, table in tables.items()}
    told = {name: pd.read_csv(path) for name, path in paths.items() if path.is_file()}
    facts = json.loads((place / FACTS).read_text())
    return {**facts, "folder": str(place), **told, "notes": [*lines(profile)]}


def make_or_reuse(out: Console, sweep: Sweep, folder: Path = PROFILES, *, fresh: bool = False) -> Kept:
    """The profile of each of a sweep's models on its testbed, by full name; `on_testbed` says which are made anew.
    Raises UserError, TestbedError."""
    sweep = canonical(sweep)
    if sweep.simulated:
        return _simulated(sweep, folder)
    require_testbed(sweep.testbed, sweep.edge_cpu)
    links_of(sweep)
    for name in names(sweep):
        partitioned.describe(recipe(name, sweep))  # bad input must not cost a testbed
    prepared: dict[str, Prepared] = {}
    with closing(testbed_of(sweep, [])) as bed:
        sample_s = None if bed.is_local else sweep.sample
        how = sample_s, sweep.tcp, sweep.allocators[0], sweep.own_backends
        with closing(Workers(bed, prepared, sweep.transports, *how)) as workers:
            with unbroken(bed):
                workers.start()
            # A line on a terminal, drawn between measurements by this thread alone: the hosts may share this machine.
            with Live(console=out, auto_refresh=False, transient=True) as live:
                show = partial(live.update, refresh=True)
                return on_testbed(out, sweep, bed, workers, prepared, folder, fresh=fresh, show=show)


def _simulated(sweep: Sweep, folder: Path) -> Kept:
    """It takes no time, so none is used again."""
    simulation = Simulation(load(sweep.testbed))
    profiles = {}
    for name in names(sweep):
        outline = partitioned.outline(recipe(name, sweep))
        place = folder_of(folder, sweep, outline, simulation.world.record())
        profiles[name] = model_profile(simulation, name, sweep), place
        profiles[name][0].write(place, under=folder)
    return profiles


def table(profile: ModelProfile, batch_size: int) -> Table:
    """A row for each unit, and one for all of them: cost, and for each device time and rates."""
    devices = [times for times in profile.times if times.batch_size == batch_size]
    heads = ["", "unit", "MFLOP", "KiB\nmade"]
    for times in devices:
        heads += [f"{times.role}\nms", "\n±%", "GFLOP\n/s", "GB\n/s"]
        heads += ["mJ"] if len(times.units_energy_j) else []
    made = console_table(heads, ">~" + ">" * (len(heads) - 2), padding=(0, 1, 0, 0), collapse_padding=True)
    flops, nbytes, moved = (
        np.append(each, each.sum())
        for each in (profile.flops, profile.activation_bytes, profile.moved_bytes(batch_size))
    )
    last = len(profile.units)
    for unit, name in enumerate((*profile.units, "whole")):
        cells = [str(unit + 1), name, digits(flops[unit] / 1e6), digits(nbytes[unit] / 1024)]
        for times in devices:
            of_units = times.median_s, times.low_s, times.high_s
            median_s, low_s, high_s = (each[unit] for each in of_units) if unit < last else times.whole_s[:3]
            rates = [
                digits(work / median_s / 1e9) for work in (batch_size * flops[unit], moved[unit]) if median_s
            ]
            half = f"{50 * (high_s - low_s) / median_s:.0f}" if median_s else ""
            cells += [digits(1e3 * median_s), half, *(rates or ("", ""))]
            if len(times.units_energy_j):
                energy_j = times.units_energy_j[unit] if unit < last else times.energy_j
                cells.append(digits(1e3 * energy_j) if np.isfinite(energy_j) else "")
        if unit == last:
            made.add_section()
            cells[0] = ""
        made.add_row(*cells)
    return made


def lines(profile: ModelProfile) -> Iterator[str]:
    """Lines on each device, codec and backend; those that must be known begin with attention."""
    for times in profile.times:
        yield _of_device(profile, times)
        if abs(times.difference) > OFF:
            yield (
                f"attention: {times.role}, batch size {times.batch_size}: the units' times do not add up to the "
                f"stage's, by {times.difference:+.1%}: something else ran there, or units are too short for marks"
            )
    for coded in profile.codecs:
        yield _of_codec(coded)
    for cost in profile.backends:
        yield _of_backend(cost)
        if (residual := max(part.residual for part in cost.parts)) > OFF_LINE:
            yield (
                f"attention: {cost.backend} on {cost.link}: its round trips are {residual:.0%} off that line: "
                "predictions of what it adds are no better"
            )


def _of_device(profile: ModelProfile, times: UnitTimes) -> str:
    whole_s = times.whole_s[0]
    several = "s" if times.threads > 1 else ""
    share = f", {times.cpu:.0%} of a core" if times.cpu < 1 else ""
    words = [
        f"{times.role} ({times.device}, {times.threads} thread{several}{share}), batch size {times.batch_size}: "
        f"{1e3 * whole_s:.2f} ms, the sum of the units {times.difference:+.1%}"
    ]
    facts = profile.hosts.get(times.role, {})
    for key, unit, amount in (
        ("peak_flops", "GFLOP/s", times.batch_size * profile.flops.sum()),
        ("peak_bytes_s", "GB/s", profile.moved_bytes(times.batch_size).sum()),
    ):
        if facts.get(key) and whole_s:
            words.append(f"{digits(amount / whole_s / 1e9)} of {digits(facts[key] / 1e9)} {unit}")
    if len(times.peak_bytes):
        words.append(f"{times.peak_bytes.max() / 2**20:.0f} MiB at most")
    if np.isfinite(times.energy_j):
        words.append(f"{digits(times.energy_j)} J a run")
        if len(times.units_energy_j) and times.energy_j > 0:
            words[-1] += f", the units by themselves {times.units_energy_j.sum() / times.energy_j - 1:+.0%}"
        elif "energy_unit_s" in facts and (why := no_unit_energy(facts, len(profile.units))):
            words.append(f"no J a unit: {why}")
    elif isinstance(least_s := facts.get("energy_least_s"), float) and least_s > STEADY_S:
        words.append(f"no J: its meter must be read for {least_s:.3g} s")
    return ", ".join(words)


def _of_codec(times: CodecTimes) -> str:
    """`int8 on the server, batch size 1: encodes in 0.17 to 0.41 ms, decodes in ..., sends 25 to 26 % of a payload`."""
    words = []
    for verb, seconds in (("encodes", times.encode_s), ("decodes", times.decode_s)):
        if np.isfinite(seconds).any():
            least_ms, most_ms = 1e3 * np.nanmin(seconds), 1e3 * np.nanmax(seconds)
            words.append(f"{verb} in {digits(least_ms)} to {digits(most_ms)} ms")
    shares = 100 * times.wire_bytes / times.payload_bytes
    words.append(f"sends {digits(np.nanmin(shares))} to {digits(np.nanmax(shares))} % of a payload")
    return f"{times.codec} on the {times.role}, batch size {times.batch_size}: {', '.join(words)}"


def _of_backend(cost: BackendCost) -> str:
    parts = [
        f"{1e3 * part.fixed_s:.3f} ms a request and {1e9 * part.per_byte_s:.3f} ns a byte beyond the link, "
        f"{part.residual:.0%} off in the mean"
        for part in cost.parts
    ]
    return f"{cost.backend} on {cost.link}: {'; where a link slows it '.join(parts)}"


def trace_events(profiles: Sequence[ModelProfile]) -> str:
    """The profiles as trace events in JSON: a process a model, a row a device, a slice a unit at its median.
    https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU is the format."""
    events: list[dict[str, Any]] = []
    for pid, profile in enumerate(profiles, start=1):
        rows = {0: ("process_name", profile.model)}
        for tid, times in enumerate(profile.times, start=1):
            rows[tid] = "thread_name", f"{times.role} ({times.device}), batch size {times.batch_size}"
            took_us = 1e6 * times.median_s
            starts_us = np.cumsum(took_us) - took_us
            for unit, name in enumerate(profile.units):
                about = {
                    "flops": profile.flops[unit] * times.batch_size,
                    "parameters": profile.parameters[unit],
                    "activation_bytes": profile.activation_bytes[unit] * times.batch_size,
                    "low_us": 1e6 * times.low_s[unit],
                    "high_us": 1e6 * times.high_s[unit],
                }
                place = {"name": name, "ph": "X", "pid": pid, "tid": tid, "ts": float(starts_us[unit])}
                args = {key: float(value) for key, value in about.items()}
                events.append({**place, "dur": float(took_us[unit]), "args": args})
        events += [
            {"name": what, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}
            for tid, (what, name) in rows.items()
        ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"}) + "\n"
