"""The reports of a trial of two hosts, and the row that is made of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pareto.remote.link.probe import GOODPUT, Probed, Reading, judge
from pareto.remote.link.profile import Direction, Profile
from pareto.sweep.bounds import Crossing
from pareto.sweep.cell import Cell
from pareto.trial.rows import trial_row
from tests.unit.reported import result_of

PROFILE = Profile("200ms-5mbit", Direction(0.2, 5e6), Direction(0.0, None))
CELL = Cell("mobilenet_v2", (7,), "features.6", "tcp", PROFILE.name, 1)
GOOD = Reading(0.2003, 4.78e6, None)
FAST = Reading(0.2003, 4.85e6, 4.85e6)
"""Within what a link may be off; `GOOD` is slower than was asked for."""
SOUND, EXACT = (Probed(reading, "") for reading in (GOOD, Reading(0.2, 5e6 * GOODPUT, None)))
USAGE = {"cpu_percent": 5.0, "rss_bytes": 3 << 20, "retransmits": None}
CROSSING = Crossing("edge-server", PROFILE, 100_352, 4000)
ON_WIRE_S = 8 * 100_352 / (5e6 * GOODPUT)
SIX = {"started_s": [0.5 * i for i in range(6)], "finished_s": [0.5 * i + 0.4 for i in range(6)]}


def report(columns: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """The edge's report. columns: of the requests, in both phases."""
    phase = {**SIX, "edge_s": [0.010] * 6, "serialize_s": [0.0005] * 6, "stages_s": [[0.015]] * 6}
    # Completions that no first result which was held up explains.
    quick = {"finished_s": [0.01 * i for i in range(1, 7)]} if "throughput_ips" in changes else {}
    return {
        "latency_s": 0.4, "latency_p95_s": None, "loaded_latency_s": 0.6, "loaded_latency_p95_s": None,
        "edge_s": 0.010, "serialize_s": 0.0005, "stages_s": [0.015], "work_s": 0.025, "baseline_s": 0.009,
        "throughput_ips": 5.9, "sequential_ips": 2.36, "in_flight": 4, "payload_bytes": 100_352,
        "result_bytes": 4000, "max_abs_error": 0.0, "tolerance": 1e-4, "sent_bytes": 12 * 100_352 + 5_000,
        "received_bytes": 12 * 4000 + 500, "retransmits": 0, "cpu_percent": 3.0, "rss_bytes": 4 << 20,
        "requests": {"latency": phase | (columns or {}), "throughput": phase | quick | (columns or {})},
    } | changes  # fmt: skip


def of(columns: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    return {"edge": report(columns, **changes)}


def row(
    edge: dict[str, Any] | None = None,
    before: Probed | Reading = GOOD,
    after: Probed | Reading | None = None,
    *,
    server: dict[str, Any] = USAGE,
    crossing: Crossing | None = CROSSING,
    cell: Cell = CELL,
    **how: Any,
) -> dict[str, Any]:
    """A trial of two hosts; the link reads the same after it unless another reading is given."""
    probes = tuple(
        each if isinstance(each, Probed) else Probed(each, judge(PROFILE, each))
        for each in (before, after or before)
    )
    result = result_of({"edge": edge or report(), "server": server})
    return trial_row(cell, [crossing] if crossing else [], result, {"edge-server": probes}, **how)


PHASES = {"trial_window": (0.0, 4.0), "throughput_window": (2.0, 4.0)}
IN_PHASES = {"edge": report(**PHASES), "server": USAGE | PHASES}


def loaded(latency: float, throughput: float, **how: Any) -> dict[str, Any]:
    """On hosts of their own, on the server of which others take these shares of the two cores in the phases."""
    others_s = [0.0, 2 * latency, 2 * (latency + throughput)]
    return {**IN_PHASES, "samples": {"server": {"at_s": [0.0, 2.0, 4.0], "others_s": others_s}}, **how}


SENSED: dict[str, list[Any]] = {
    "at_s": [0.0, 1.0, 2.0, 3.0, 4.0], "energy_j": [0.0, 4.0, 8.0, 12.0, 16.0], "throttled": [0] * 5,
    "temperature_c": [40.0, 41.0, 42.0, 43.0, 60.0],
}  # fmt: skip
WINDOWS = {
    "trial_window": [0.5, 3.5], "throughput_window": [0.5, 3.5], "throughput_window_requests": 6,
    "peak_rss_bytes": 9 << 20,
}  # fmt: skip


def sensed(samples: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {"edge": report(**WINDOWS | changes), "server": USAGE | WINDOWS, "samples": samples}


def throttled(*flags: int, role: str = "edge", steady_from_s: float = 1.5) -> dict[str, Any]:
    """The throughput phase's steady part begins at 1.5 s: the sample at 2 s is the first that knows of it."""
    samples = {"edge": SENSED, "server": SENSED, role: {**SENSED, "throttled": list(flags)}}
    return sensed(samples, throughput_window=[steady_from_s, 3.5])
