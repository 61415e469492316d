"""What makes a trial's figures trustworthy, and what they are."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.runs import reading
from pareto.analysis.schema import TRIALS
from pareto.hosts.host import SERVER
from pareto.protocol.trial_messages import Coded, WrongOutput
from pareto.remote.link.probe import GOODPUT, OWN, Probed, Reading, Tolerance, judge
from pareto.remote.link.profile import Direction, Profile
from pareto.sweep.bounds import Crossing
from pareto.sweep.cell import Cell
from pareto.sweep.options import SLOWED
from pareto.trial.codec_work import without_codecs
from pareto.trial.faults import PASSING, crossed_late
from pareto.trial.probes import own_profile
from pareto.trial.result import TrialResult, of_edge
from pareto.trial.rows import stage_rows, trial_row
from pareto.trial.store import Store
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
    """What the edge reports. columns: of the requests, in both phases."""
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


# What each figure counts for


def slowed_in(*phases: str, **changes: Any) -> dict[str, Any]:
    """What is reported where something else ran on the edge in these phases: 36 ms in place of 9."""
    reports = report(**(SLOW_EDGE if "latency" in phases else {}), **changes)
    took_s = {"latency": [0.036] * 6, "throughput": [0.009] * 4 + [0.036] * 2}
    for phase in phases:
        reports["requests"][phase]["edge_s"] = took_s[phase]
    return {"edge": reports}


def over_own_link(
    rtt_s: float, *rates: float | None, latency_s: float = 0.03, own: bool = True
) -> dict[str, Any]:
    """Over a link on which nothing is emulated, whose probes read otherwise than before the run."""
    link, seen = own_profile("none", Reading(0.0001, 15e9, 15e9)), Reading(rtt_s, *rates)
    probed = Probed(seen, judge(link, seen, OWN))
    assert probed.fault
    spans = {"started_s": SIX["started_s"], "finished_s": [each + latency_s for each in SIX["started_s"]]}
    short = {"edge_s": [1e-4] * 6, "serialize_s": [0.0] * 6, "stages_s": [[1e-4]] * 6}
    figures = {"edge_s": 1e-4, "stages_s": [1e-4], "work_s": 2e-4, "serialize_s": 0.0, "baseline_s": 1e-4}
    told = report(spans | short, latency_s=latency_s, throughput_ips=1.9, **figures)
    crossing = Crossing("edge-server", link, 100_352, 4000, own=own)
    return {"edge": told, "before": probed, "crossing": crossing}


def alone(takes_s: float) -> dict[str, Any]:
    """A stage of half a millisecond when it runs again and again, with nothing behind it."""
    stage = {"edge_s": takes_s, "baseline_s": 0.0005, "steady_s": 0.0005, "work_s": takes_s + 0.0005}
    columns = {"stages_s": [[]] * 6, "edge_s": [takes_s] * 6}
    return {"edge": report(columns, **stage, stages_s=[], latency_s=takes_s + 0.0005), "crossing": None}


PHASES = {"trial_window": (0.0, 4.0), "throughput_window": (2.0, 4.0)}
IN_PHASES = {"edge": report(**PHASES), "server": USAGE | PHASES}


def loaded(latency: float, throughput: float, **how: Any) -> dict[str, Any]:
    """On hosts of their own, on the server of which others take these shares of the two cores in the phases."""
    others_s = [0.0, 2 * latency, 2 * (latency + throughput)]
    return {**IN_PHASES, "samples": {"server": {"at_s": [0.0, 2.0, 4.0], "others_s": others_s}}, **how}


def on_one_machine(strangers_percent: float | None) -> dict[str, Any]:
    """The same, where all that its hosts do are others of each."""
    samples = {"server": {"at_s": [0.0, 4.0], "others_s": [0.0, 4.0]}}
    return {**IN_PHASES, "edge": report(**PHASES, strangers_percent=strangers_percent), "samples": samples}


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


def took(network_s: float, before: Probed = EXACT, **how: Any) -> dict[str, Any]:
    """Requests that cross in so many seconds, and one in a second more."""
    started_s = [2.0 * i for i in range(6)]
    finished_s = [2.0 * i + 0.0255 + network_s + (i == 3) for i in range(6)]
    edge = report({"started_s": started_s, "finished_s": finished_s}, latency_s=0.0255 + network_s)
    return {"edge": edge, "before": before, **how}


def crossed(slower: float, late_s: float = 0.0, **how: Any) -> dict[str, Any]:
    """Over a link that was right when it was probed, and is so much slower under load."""
    return took(0.2 + (1 + slower) * ON_WIRE_S + 0.001 + late_s, **how)


def coded(decode_s: float, encode_s: float, wire_bytes: int, requests: int = 12) -> Coded:
    return Coded([decode_s] * requests, [encode_s] * requests, [wire_bytes] * requests)


def coded_result(
    decode_s: float = 0.0,
    encode_s: float = 0.2,
    sent_bytes: int = 12 * 25_088 + 5_000,
    columns: Mapping[str, Any] | None = None,
    **edge: Any,
) -> TrialResult:
    """Of a codec that makes a quarter of the payload, and takes 1 ms to decode in the server's stage of 15 ms."""
    told = report(columns, sent_bytes=sent_bytes, coded=coded(decode_s, encode_s, 25_088), **edge)
    return result_of({"edge": told, "server": USAGE | {"coded": coded(0.001, 0.0, 0)}})


def coded_row(sent_bytes: int = 12 * 25_088 + 5_000) -> dict[str, Any]:
    ended = {"finished_s": [each + 0.271 for each in SIX["started_s"]]}
    result = coded_result(0.0, 0.002, sent_bytes, ended, work_s=0.027, latency_s=0.271)
    result = replace(result, edge=without_codecs(result.edge, [result.hosts["server"].usage]))
    return trial_row(CELL, [CROSSING], result, {"edge-server": (SOUND, SOUND)})


SLOW_EDGE = {"edge_s": 0.036, "work_s": 0.051, "latency_s": 0.42}
SLOW = slowed_in("latency", "throughput")
LITTLE = {"edge_s": 0.020, "work_s": 0.035, "latency_s": 0.42}
SLOW_SERVER = of(stages_s=[0.05], work_s=0.06, latency_s=0.42) | {"server": USAGE | {"baseline_s": 0.015}}
TOO_LONG = report()
TOO_LONG["requests"]["latency"]["stages_s"] = [[0.015]] * 5 + [[0.4]]
ROUNDED = report()
ROUNDED["requests"]["latency"]["stages_s"] = [[0.4 - 0.010 - 0.0005 + 1e-9]] * 6
OFF = {"delay": Reading(0.3, 4.78e6, None), "more": Reading(0.2, 7e6, None), "less": Reading(0.2, 3e6, None)}
VERDICTS: dict[str, tuple[str, dict[str, Any]]] = {
    "good": ("ok", {}),
    "wrong output": ("invalid", of(max_abs_error=0.01)),
    "output is no number": ("invalid", of(max_abs_error=float("nan"))),
    "output of another shape": ("invalid", of(max_abs_error=float("inf"))),
    "too little sent": ("invalid", of(sent_bytes=12 * 100_352 - 1)),
    "nobody counted what was sent": ("invalid", of(sent_bytes=None)),
    "too little received": ("invalid", of(received_bytes=100)),
    "faster than light": ("invalid", of(latency_s=0.3)),
    "more than fits, and of a wrong output": ("invalid", of(throughput_ips=7.0, max_abs_error=0.01)),
    "more than fits": ("latency only", of(throughput_ips=7.0)),
    "every reason is told": ("invalid", of(max_abs_error=1.0, sent_bytes=0) | {"before": OFF["delay"], "after": GOOD}),
    "slowed in one phase": ("throughput only", slowed_in("latency")),
    "slowed in both": ("invalid", slowed_in("latency", "throughput", steady_s=0.037)),
    "a fault in each phase": ("invalid", slowed_in("latency", throughput_ips=7.0)),
    "slowed by less than what was asked for": ("ok", SLOW | {"slowed": 4.1}),
    "slowed by more than what was asked for": ("throughput only", SLOW | {"slowed": 3.9}),
    "a slowed stage is little of it": ("ok", of(**LITTLE)),
    "a GPU that clocks down between requests": ("ok", of(**SLOW_EDGE, gpu_s=0.005)),
    "the server is slowed": ("throughput only", SLOW_SERVER),
    "a short stage on a core that was idle": ("ok", alone(0.0011)),
    "a short stage that takes too long": ("invalid", alone(0.0025)),
    "a request shorter than its parts": ("invalid", {"edge": TOO_LONG}),
    "as long as its parts, rounded": ("ok", {"edge": ROUNDED}),
    **{f"{how} before": ("invalid", {"before": off, "after": GOOD}) for how, off in OFF.items()},
    **{f"{how} after": ("invalid", {"after": off}) for how, off in OFF.items()},
    "own link, faster": ("ok", over_own_link(0.001, 32e9, 32e9)),
    "own link, slower": ("ok", over_own_link(0.001, 5e9, 5e9)),
    "own link, most of a short latency": ("invalid", over_own_link(0.001, 32e9, 32e9, latency_s=0.0005)),
    "own link, far slower": ("invalid", over_own_link(0.001, 0.2e9, 5e9)),
    "own link, far slower back": ("invalid", over_own_link(0.001, 5e9, 0.01e9)),
    "own link, no rate": ("invalid", over_own_link(0.001, None, 15e9)),
    "own link, its delay": ("invalid", over_own_link(0.004, 32e9, 32e9)),
    "a profile promises its rate": ("invalid", over_own_link(0.001, 32e9, 32e9, own=False)),
    "others, a little": ("ok", loaded(0.1, 0.1)),
    "others in both phases": ("invalid", loaded(0.5, 0.5)),
    "others in the throughput phase": ("latency only", loaded(0.0, 0.5)),
    "others in the latency phase": ("throughput only", loaded(0.5, 0.0)),
    "others, as many as may be": ("ok", loaded(0.5, 0.5, others=0.5)),
    "others where nothing is computed": (
        "ok",
        loaded(0.5, 0.5, edge=report({"stages_s": [[]] * 6}, **PHASES, stages_s=[]), crossing=None),
    ),
    "few strangers on one machine": ("ok", on_one_machine(19.0)),
    "strangers on one machine": ("invalid", on_one_machine(34.0)),
    "strangers that nobody counted": ("ok", on_one_machine(None)),
    "throttled": ("invalid", throttled(0, 4, 0, 0, 0, steady_from_s=0.5)),
    "the server throttled": ("invalid", throttled(0, 4, 0, 0, 0, role="server", steady_from_s=0.5)),
    "throttled in the throughput phase": ("latency only", throttled(0, 0, 0, 4, 0)),
    "throttled between two samples": ("latency only", throttled(0, 0, 0, 0x40000, 0x40000)),
    "throttled in the latency phase, maybe": ("invalid", throttled(0, 0, 4, 0, 0)),
    "throttled in the latency phase": ("invalid", throttled(0, 4, 0, 0, 0)),
    "throttled outside the trial": ("ok", throttled(4, 0, 0, 0, 4)),
    "as fast under load": ("ok", crossed(0.0)),
    "2 % slower under load": ("ok", crossed(0.02)),
    "8 % slower under load": ("invalid", crossed(0.08)),
    "15 % slower under load": ("invalid", crossed(0.15)),
    "rpc may need the time for itself": ("ok", crossed(0.15, cell=replace(CELL, backend="rpc"))),
    "a lossy link may need it": ("ok", crossed(0.15, crossing=replace(CROSSING, filled=False))),
    "8 % slower, which it may be": ("ok", crossed(0.08, tolerance=Tolerance(rate_fraction=0.08))),
    "20 ms later": ("invalid", crossed(0.0, 0.02)),
    "20 ms later, which it may be": ("ok", crossed(0.0, 0.02, tolerance=Tolerance(rtt_floor_s=0.02))),
    "late, as over the idle link": ("ok", took(0.4, idle_s=0.4)),
    "later than over the idle link": ("invalid", took(0.4, idle_s=0.35)),
    "far later than over the idle link": ("invalid", took(0.4, idle_s=0.3)),
}  # fmt: skip


@pytest.mark.parametrize(("status", "how"), VERDICTS.values(), ids=VERDICTS)
def test_each_figure_counts_only_if_it_can_be(
    status: str, how: dict[str, Any], tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    made = row(**how)
    assert (made["status"], made["reason"]) == (status, "" if status == "ok" else snapshot)
    assert made["latency_s"] is not None  # measured, also where it is not to be trusted
    # A report reads the same back from the run's folder.
    names = dict.fromkeys(("model", "point_name", "backend", "netem", "testbed"), "a")
    placed = {"point": "7", "batch_size": 1, "round": 1, "in_flight_asked": "auto", **names}
    with closing(Store.create(tmp_path, "run", {"sweep": {}})) as store:
        store.append_trial({name: each for name, each in (made | placed).items() if name != PASSING})
        (back,) = reading.read(store.folder, TRIALS)[0].to_pylist()
    assert (back["status"], back["reason"]) == (made["status"], made["reason"])


# At the bounds


@pytest.mark.parametrize("probed", [GOOD, FAST])
def test_no_latency_under_its_bound_counts(probed: Reading) -> None:
    """A link that was probed as slower than asked for may be as fast as that."""
    bounds_s = [row(before=probed)[f"{by}latency_bound_s"] for by in ("", "probed_")]
    assert min(bounds_s) == bounds_s[probed is FAST]
    for share, status in ((0.999, "invalid"), (1.0, "ok")):
        assert row(report(latency_s=share * min(bounds_s)), probed)["status"] == status


@pytest.mark.parametrize("probed", [GOOD, FAST])
def test_a_throughput_just_over_its_bound_was_no_steady_state(probed: Reading) -> None:
    """Also where a phase was short, and its figure is of few requests."""
    most = max(row(before=probed)[f"{by}throughput_bound_ips"] for by in ("", "probed_"))
    for length_s in (0.2, 2.0):
        for share, status in ((1.0, "ok"), (1.001, "latency only")):
            reports = report(throughput_ips=share * most, throughput_window=[3.0, 3.0 + length_s])
            assert row(reports, probed)["status"] == status


def test_a_first_result_that_was_held_up_makes_no_throughput_over_its_bound() -> None:
    """The time then counts from the beginning, but for the least that a first request takes."""
    reports = report(throughput_ips=7.0, throughput_window_requests=5, retransmits=9)
    fits_s, best = (row()[name] for name in ("latency_bound_s", "throughput_bound_ips"))
    phase = reports["requests"]["throughput"]
    phase |= {"started_s": [0.0] * 6, "finished_s": [fits_s + 0.3 + number / 7 for number in range(6)]}
    made = row(reports)
    assert made["status"] == "ok"
    assert made["throughput_ips"] == pytest.approx(5 / (0.3 + 5 / 7))
    # No link is quicker than that: what remains over the bound says that it is wrong.
    phase["finished_s"] = [fits_s + number / (1.001 * best) for number in range(6)]
    assert row(reports)["status"] == "latency only"


def test_stages_are_bound_by_what_they_take_alone() -> None:
    made, usual = row(**slowed_in("latency", "throughput", steady_s=0.037)), row()
    assert made["edge_slowdown"] == pytest.approx(36 / 9)
    assert row(**SLOW_SERVER)["server_slowdown"] == pytest.approx(50 / 15)
    assert row(report(**LITTLE))["edge_slowdown"] > SLOWED
    for bound in ("latency_bound_s", "throughput_bound_ips"):
        assert made[bound] == usual[bound]
    # Where one stage is slow when the other is fast, no request needs both medians: 30 ms of work here, not 35.
    link_s, slow = CROSSING.least_s, {"baseline_s": 0.020, "edge_s": 0.020, "work_s": 0.030}
    fine = row(report(**slow, latency_s=link_s + 0.031))
    assert fine["latency_bound_s"] == pytest.approx(link_s + 0.030)
    assert fine["status"] == "ok", fine["reason"]


def test_a_link_is_judged_as_it_was_probed_and_by_what_it_carried() -> None:
    for slower in (0.0, 0.02, 0.08, 0.15):
        assert row(**crossed(slower))["loaded_rate_bps"] == pytest.approx(
            5e6 * GOODPUT / (1 + slower), rel=0.01
        )
    # A small file is there sooner than a large one: that makes no link faster. A short transfer tells none.
    sizes = [60_000, 100_352, 140_000, 100_352, 100_352, 100_352]
    edge = took(0.2)["edge"]
    for number, nbytes in enumerate(sizes):
        edge["requests"]["latency"]["finished_s"][number] += nbytes / 100_352 * ON_WIRE_S
    made = row(edge | {"coded": Coded([0.0] * 12, [0.0] * 12, [*sizes, *sizes])}, EXACT)
    assert made["loaded_rate_bps"] == pytest.approx(5e6 * GOODPUT, rel=0.01)
    short = replace(CROSSING, payload_bytes=10_000)
    assert row(**took(0.5, SOUND, crossing=short))["loaded_rate_bps"] is None
    # 1.5 % faster than asked is within the probe's tolerance: the latency of such a link is no fault.
    slow, fast = (
        row(**took(0.2 + ON_WIRE_S * GOODPUT / 1.015, Probed(Reading(0.2, 5e6 * share * GOODPUT, None), "")))
        for share in (1.0, 1.015)
    )
    assert slow["latency_bound_s"] == fast["latency_bound_s"]
    assert slow["probed_latency_bound_s"] == pytest.approx(slow["latency_bound_s"], rel=1e-6)
    probed_s = 0.2 + 0.025 + ON_WIRE_S * GOODPUT / 1.015
    assert fast["probed_latency_bound_s"] == pytest.approx(probed_s, abs=0.002)
    assert fast["probed_throughput_bound_ips"] == pytest.approx(1.015 * fast["throughput_bound_ips"])
    # Only where requests cross late is the idle link asked about the same bytes: a large result on its way back, or a
    # host that waits for its share of a core, is not the link's fault.
    for network_s, late in ((0.4, True), (0.201 + ON_WIRE_S, False)):
        result = result_of({"edge": took(network_s)["edge"], "server": USAGE})
        assert crossed_late(CELL, [CROSSING], result, {"edge-server": (EXACT, EXACT)}, Tolerance()) is late


def test_no_later_host_is_quicker_than_it_can_be() -> None:
    """30 requests at 10 ms at the least, which it ended within 0.32 s: 100 images/s of one each cannot be."""
    fast = report(throughput_ips=101.0, throughput_window_requests=30)
    told = result_of({"edge": fast, "server": USAGE})
    usage = replace(
        told.hosts[SERVER].usage, throughput_window=(5.0, 5.32), throughput_window_requests=30, steady_s=0.01
    )
    assert of_edge(told.edge, [usage], 1).throughput_ips == pytest.approx(30 / 0.32)
    slow = replace(told.edge, throughput_ips=99.0)
    assert of_edge(slow, [usage], 1) == slow
    assert of_edge(told.edge, [replace(usage, throughput_window_requests=29)], 1) == told.edge


# What stands in a row


def test_a_good_trial_is_ok_and_its_times_add_up(snapshot: SnapshotAssertion) -> None:
    made = row()
    assert (made["status"], made["reason"]) == ("ok", "")
    parts = made["edge_s"] + made["serialize_s"] + made["server_s"] + made["network_s"]
    assert parts == pytest.approx(made["latency_s"])
    assert made["latency_bound_s"] == pytest.approx(0.009 + 0.015 + 0.2 + 100_352 * 8 / 5e6)
    assert made["throughput_bound_ips"] == pytest.approx(5e6 / (8 * 100_352))
    assert made == snapshot
    # Where nothing crosses nothing is invented.
    nothing = {"payload_bytes": 0, "result_bytes": 0, "sent_bytes": 0, "stages_s": [], "baseline_s": None}
    alone = row(report({"stages_s": [[]] * 6}, **nothing, work_s=0.010, latency_s=0.0101), crossing=None)
    assert alone["status"] == "ok"
    assert alone["server_s"] is alone["network_s"] is alone["serialize_s"] is None
    assert (alone["latency_bound_s"], alone["bound_by"]) == (0.010, "edge")
    # An output that is wrong has no figures.
    unproven = trial_row(CELL, [CROSSING], WrongOutput(3.0, 1e-4), {"edge-server": (SOUND, SOUND)})
    assert unproven["status"] == "invalid"
    assert "latency_s" not in unproven
    # A codec's cost is known of right results.
    quality = {"agreement": 0.9, "agreement_images": 10, "output_error": 0.1}
    results = (result_of({"edge": report(max_abs_error=error), "server": USAGE}) for error in (0.0, 1.0))
    good, wrong = (trial_row(CELL, [CROSSING], replace(each, quality=quality), {}) for each in results)
    assert good.items() >= quality.items()
    assert not wrong.keys() & quality.keys()
    # The kernel's words on the connection, if any was used.
    names = [name for name in TRIALS.columns if name.startswith(("congestion", "tcp_"))]
    tcp = dict(zip(names, ("bbr", 1, 0, 209, 0.53, 0.2003, 4.6e6), strict=True))
    assert row(report(tcp=tcp)).items() >= tcp.items()
    assert not set(tcp) & set(row(report(tcp={})))


def test_the_network_time_is_the_median_of_what_remains_of_each_request() -> None:
    """Two kinds of requests, long on one host each: of medians taken apart less than nothing would remain."""
    reports = report(edge_s=0.2, stages_s=[0.2], latency_s=0.4)
    long, short = [0.2] * 4 + [0.01] * 2, [0.01] * 2 + [0.2] * 4
    reports["requests"]["latency"] |= {"edge_s": long, "stages_s": [[seconds] for seconds in short]}
    made = row(reports)
    assert made["latency_s"] - made["edge_s"] - made["server_s"] - made["serialize_s"] < 0
    assert made["network_s"] == pytest.approx(0.4 - 0.01 - 0.2 - 0.0005)


SECOND = {"sent_bytes": 10**6, "received_bytes": 10**6, "retransmits": 3}
CHAIN = [CROSSING, Crossing("middle1-server", Profile("50ms-1mbit", Direction(0.05, 1e6)), 8000, 4000)]


def chain_row(
    edge: dict[str, Any], second: dict[str, Any] = SECOND, before: str = "", after: str = "", used: int = 2
) -> dict[str, Any]:
    """A trial of three hosts, of which so many links are crossed. before, after: what is wrong with the second link."""
    reports = {"edge": edge, "middle1": {**USAGE, **second}, "server": USAGE}
    second_link = Probed(Reading(0.05, 0.95e6, None), before), Probed(GOOD, after)
    cell = replace(CELL, cuts=(7, 9), point_name="features.6+features.8")
    probes = {"edge-middle1": (SOUND, SOUND), "middle1-server": second_link}
    return trial_row(cell, CHAIN[:used], result_of(reports), probes)


def test_a_chains_times_add_up_over_all_of_it_and_what_is_off_is_named(snapshot: SnapshotAssertion) -> None:
    columns = {"stages_s": [[0.02, 0.015]] * 6, "finished_s": [each + 0.6 for each in SIX["started_s"]]}
    edge = report(columns, stages_s=[0.02, 0.015], work_s=0.045, latency_s=0.6)
    made = chain_row(edge)
    assert (made["status"], made["reason"]) == ("ok", "")
    assert (made["middle_s"], made["server_s"]) == (0.02, 0.015)
    work_s = 0.010 + 0.0005 + 0.02 + 0.015
    assert made["network_s"] == pytest.approx(0.6 - work_s)
    links_s = 0.2 + 100_352 * 8 / 5e6 + 0.05 + 8000 * 8 / 1e6
    assert made["latency_bound_s"] == pytest.approx(0.009 + 0.02 + 0.015 + links_s)
    assert (made["rtt_s"], made["rate_bps"]) == (pytest.approx(0.2003 + (0.05 + 0.2003) / 2), 2.865e6)
    assert made["retransmits"] == 3
    # The middle's time is the median of what its hosts took together.
    long = report({"stages_s": [[0.2, 0.01, 0.0]] * 3 + [[0.01, 0.1, 0.0]] * 3}, stages_s=[0.105, 0.055, 0.0])
    result = result_of({"edge": long, **dict.fromkeys(("middle1", "middle2", "server"), USAGE | SECOND)})
    rest = [Crossing(name, Profile("x"), 1, 1) for name in ("middle1-middle2", "middle2-server")]
    made = trial_row(replace(CELL, cuts=(1, 2, 3)), [CROSSING, *rest], result, {})
    assert made["middle_s"] == pytest.approx((0.21 + 0.11) / 2)
    # A chain whose last hosts have nothing to do.
    short = report(
        SIX | {"stages_s": [[0.3]] * 6}, stages_s=[0.3], work_s=0.31, latency_s=0.7, throughput_ips=3.0
    )
    made = chain_row(short, before="RTT", used=1)
    assert (made["middle_s"], made["server_s"], made["bound_by"]) == (0.3, None, "middle1")
    lacking = chain_row(edge, {**SECOND, "sent_bytes": 12 * 8000 - 1})["reason"]
    off = chain_row(edge, after="RTT 300 ms, asked 50 ms")["reason"]
    assert "middle1" in lacking and "middle1-server" in off
    assert [made["reason"], lacking, off] == snapshot


def test_the_sensors_columns_are_each_hosts_own() -> None:
    hotter = {**SENSED, "temperature_c": [70.0] * 5, "energy_j": [30.0 * i for i in range(5)]}
    made = row(**sensed({"edge": SENSED, "server": hotter}))
    assert (made["status"], made["reason"]) == ("ok", "")
    columns = ("temperature_c", "energy_j", "throttled")
    assert [made[f"edge_{name}"] for name in columns] == [43.0, pytest.approx(12.0 / 6), "0x0"]
    assert [made[f"server_{name}"] for name in columns] == [70.0, pytest.approx(90.0 / 6), "0x0"]
    assert row(**throttled(0, 4, 0, 0, 0, role="server"))["server_throttled"] == "0x4"
    batches = row(**sensed({"edge": SENSED}), cell=replace(CELL, batch_size=4))
    assert batches["edge_energy_j"] == pytest.approx(12.0 / (6 * 4)), "an image's, not a request's"
    busy = loaded(0.0, 0.5)
    busy["samples"]["server"] |= {"waited_s": [0.0, 0.5, 1.0], "steal_s": [0.0, 0.1, 0.2]}
    shares = [row(**busy)[f"server_{what}_percent"] for what in ("others", "wait", "steal")]
    assert shares == pytest.approx([25, 25, 5])
    without = row(**sensed({}))
    assert without["status"] == "ok"
    assert {key for key in without if key.startswith("edge_")} == {
        f"edge_{name}" for name in ["s", "cpu_percent", "rss_bytes", "peak_rss_bytes", "gpu_s", "slowdown"]
    }
    assert (without["edge_peak_rss_bytes"], without["server_peak_rss_bytes"]) == (9 << 20, 9 << 20)


def test_the_busiest_step_is_not_what_sets_the_bound_and_a_full_core_is_named() -> None:
    """5 requests a second keep the link busy for 80 % of the time, and the edge for 90 %."""
    steady = {"throughput_window": (1.0, 3.0), "throughput_window_requests": 10}
    reports = report(**steady, throughput_busy_s=1.8, throughput_ips=5.0)
    usage = {**USAGE, **steady, "throughput_busy_s": 0.2}
    made = row(reports, server=usage)
    assert (made["bound_by"], made["busiest"]) == ("edge-server out", "edge")
    assert made["busiest_utilization"] == pytest.approx(0.9)
    made, share = (
        row(reports | {"throughput_busy_s": 1.4}, server=usage),
        pytest.approx(5 * 8 * 100_352 / 5e6),
    )
    assert (made["busiest"], made["busiest_utilization"]) == ("edge-server out", share)
    unknown = row(report(**steady, throughput_busy_s=1.8))
    assert unknown["busiest"] is unknown["busiest_utilization"] is None, "of the server"
    # A full core is named where the throughput falls short.
    full, idle = ({**SENSED, "busy_s": [share * second for second in range(5)]} for share in (1.0, 0.5))
    most = row()["throughput_bound_ips"]
    for reached, samples, named in (
        (0.8, {"edge": full, "server": idle}, "edge"),
        (0.8, {"edge": full, "server": full}, "edge, server"),
        (0.8, {"edge": idle, "server": idle}, ""),
        (0.95, {"edge": full, "server": full}, ""),
        (0.8, {}, None),
        (0.8, {"edge": SENSED}, None),
    ):
        assert row(**sensed(samples, throughput_ips=reached * most))["full_cores"] == named


# Each host of a chain


SPLIT_CELL = Cell("m", (3, 7), "a+b", "tcp", "x", 2)
SPLIT_CROSSINGS = [
    Crossing("edge-middle1", Profile("x", Direction(0.1, 8e6), Direction(0.0, 4e6)), 1_000_000, 500_000),
    Crossing("middle1-server", Profile("y"), 2000, 500_000),
]


def split_result(stages_s: list[list[float]] | None = None, **edge: Any) -> TrialResult:
    columns = {"started_s": [0.0, 1.0], "stages_s": [[0.2, 0.3], [0.25, 0.35]]}
    if stages_s is not None:
        edge, columns = {"stages_s": stages_s[0], **edge}, {"stages_s": stages_s}
    usage = {"throughput_window": [10.0, 14.0], "throughput_window_requests": 8, "weights_bytes": 5}
    report = {
        **{"edge_s": 0.1, "stages_s": [0.2, 0.3], "work_s": 0.6, "baseline_s": 0.09, **usage},
        **{"throughput_busy_s": 1.0, "requests": {"latency": columns, "throughput": columns}, **edge},
    }
    middle = {**usage, "throughput_busy_s": 4.5, "baseline_s": 0.21, "steady_s": 0.19}
    return result_of({"edge": report, "middle1": middle, "server": {"rss_bytes": 6}})


def test_each_host_has_its_units_its_time_and_its_link(snapshot: SnapshotAssertion) -> None:
    """Where it does not compute is a bubble; two clocks of one host may differ by a hair."""
    assert [*stage_rows(SPLIT_CELL, SPLIT_CROSSINGS, split_result(), {})] == snapshot(name="stages")
    without_work = split_result([[], []])
    assert [row["host"] for row in stage_rows(SPLIT_CELL, [], without_work, {})] == ["edge"]
    # Requests have the server's time apart, where they come to it.
    columns = [split_result(stages_s).request_columns() for stages_s in (None, [[0.2], [0.25]])]
    assert columns == snapshot(name="requests")
    # The bound has what stages take alone where that is less.
    assert split_result().work_s == pytest.approx(0.09 + 0.21 + 0.3)
    assert split_result(work_s=0.5).work_s == 0.5
    # All on the server: the edge passes an input on each 50 ms, as fast as the link takes them.
    assert split_result(edge_s=1e-5, baseline_s=None, steady_s=0.05).best_s["edge"] == 1e-5


def test_a_codecs_time_is_in_its_hosts_step_and_of_an_edge_that_decodes_ahead_the_slower_one_counts() -> None:
    for decode_s, best_s in ((0.0, 0.209), (0.3, 0.3), (0.1, 0.209)):
        in_line, ahead = (coded_result(decode_s, prefetch=prefetch) for prefetch in (0, 2))
        assert in_line.best_s["edge"] == pytest.approx(0.209 + decode_s)
        assert ahead.best_s["edge"] == pytest.approx(best_s)
        assert ahead.best_s["server"] == in_line.best_s["server"] == pytest.approx(0.016)
        assert ahead.work_s == in_line.work_s


def test_a_codecs_times_and_bytes_are_its_own(snapshot: SnapshotAssertion) -> None:
    made = coded_row()
    assert made["reason"] == ""
    parts = ("edge_s", "encode_s", "serialize_s", "decode_s", "server_s", "network_s")
    assert sum(made[name] for name in parts) == pytest.approx(made["latency_s"])
    # The baseline of the edge, the server's stage, and both ends of the codec; then the link with what was sent.
    assert made["latency_bound_s"] == pytest.approx(0.009 + 0.014 + 0.003 + 0.2 + 25_088 * 8 / 5e6)
    assert made["throughput_bound_ips"] == pytest.approx(5e6 / (8 * 25_088))
    # The interface must carry what the codec says.
    wrong = [coded_row(sent_bytes) for sent_bytes in (12 * 25_088 - 1, 12 * 100_352)]
    assert [(each["status"], each["reason"]) for each in wrong] == snapshot
    # Each host and request says what its codec did; the server sends nothing on.
    result, figures = coded_result(encode_s=0.002), ("encode_s", "decode_s", "wire_bytes")
    assert [made, *stage_rows(CELL, [CROSSING], result, {}), result.request_columns()] == snapshot
    plain = result_of({"edge": report(), "server": USAGE})
    assert not {*figures} & plain.request_columns()["latency"].keys()
    assert all(row[name] is None for row in stage_rows(CELL, [CROSSING], plain, {}) for name in figures)
