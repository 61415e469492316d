"""What makes a trial's figures trustworthy."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.runs import reading
from pareto.analysis.schema import TRIALS
from pareto.hosts.host import SERVER
from pareto.protocol.trial_messages import Coded
from pareto.remote.link.probe import GOODPUT, OWN, Probed, Reading, Tolerance, judge
from pareto.sweep.bounds import Crossing
from pareto.sweep.options import SLOWED
from pareto.trial.faults import PASSING, crossed_late
from pareto.trial.probes import own_profile
from pareto.trial.result import of_edge
from pareto.trial.store import Store
from tests.unit.example_trial import (
    CELL,
    CROSSING,
    EXACT,
    FAST,
    GOOD,
    IN_PHASES,
    ON_WIRE_S,
    PHASES,
    SIX,
    SOUND,
    USAGE,
    loaded,
    of,
    report,
    row,
    throttled,
)
from tests.unit.reported import result_of

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


def on_one_machine(strangers_percent: float | None) -> dict[str, Any]:
    """The same, where all that its hosts do are others of each."""
    samples = {"server": {"at_s": [0.0, 4.0], "others_s": [0.0, 4.0]}}
    return {**IN_PHASES, "edge": report(**PHASES, strangers_percent=strangers_percent), "samples": samples}


def took(network_s: float, before: Probed = EXACT, **how: Any) -> dict[str, Any]:
    """Requests that cross in so many seconds, and one in a second more."""
    started_s = [2.0 * i for i in range(6)]
    finished_s = [2.0 * i + 0.0255 + network_s + (i == 3) for i in range(6)]
    edge = report({"started_s": started_s, "finished_s": finished_s}, latency_s=0.0255 + network_s)
    return {"edge": edge, "before": before, **how}


def crossed(slower: float, late_s: float = 0.0, **how: Any) -> dict[str, Any]:
    """Over a link that was right when it was probed, and is so much slower under load."""
    return took(0.2 + (1 + slower) * ON_WIRE_S + 0.001 + late_s, **how)


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
