"""What makes a trial's figures trustworthy, and what they are."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator
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
SOUND = {"edge-server": (Probed(GOOD, ""),) * 2}
EXACT = {"edge-server": (Probed(Reading(0.2, 5e6 * GOODPUT, None), ""),) * 2}
USAGE = {"cpu_percent": 5.0, "rss_bytes": 3 << 20, "retransmits": None}
CROSSING = Crossing("edge-server", PROFILE, 100_352, 4000)


@pytest.fixture(autouse=True)
def read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every row that a test makes, whatever its reason, goes to a run's folder, which a report reads."""
    store = Store.create(tmp_path, "run", {"sweep": {}})
    made, made_of = list[dict[str, Any]](), trial_row

    def written(cell: Cell, *arguments: Any, **named: Any) -> dict[str, Any]:
        row = made_of(cell, *arguments, **named)
        names = dict.fromkeys(("model", "point_name", "backend", "netem", "testbed"), "a")
        placed = {"point": "7", "batch_size": 1, "round": len(made) + 1, "in_flight_asked": "auto", **names}
        store.append_trial({name: each for name, each in (row | placed).items() if name != PASSING})
        made.append(row)
        return row

    monkeypatch.setattr(sys.modules[__name__], "trial_row", written)
    yield
    rows, _ = reading.read(store.folder, TRIALS)
    assert rows["status"].to_pylist() == [row["status"] for row in made]
    assert rows["reason"].to_pylist() == [row["reason"] for row in made]
    store.close()


def report(**changes: Any) -> dict[str, Any]:
    requests = {
        "started_s": [0.5 * i for i in range(6)], "finished_s": [0.5 * i + 0.4 for i in range(6)],
        "edge_s": [0.010] * 6, "serialize_s": [0.0005] * 6, "stages_s": [[0.015]] * 6,
    }  # fmt: skip
    reports: dict[str, Any] = {
        "latency_s": 0.4, "latency_p95_s": None, "loaded_latency_s": 0.6, "loaded_latency_p95_s": None,
        "edge_s": 0.010, "serialize_s": 0.0005, "stages_s": [0.015], "work_s": 0.025, "baseline_s": 0.009,
        "throughput_ips": 5.9, "sequential_ips": 2.36, "in_flight": 4, "payload_bytes": 100_352,
        "result_bytes": 4000, "max_abs_error": 0.0, "tolerance": 1e-4, "sent_bytes": 12 * 100_352 + 5_000,
        "received_bytes": 12 * 4000 + 500, "retransmits": 0, "cpu_percent": 3.0, "rss_bytes": 4 << 20,
        "requests": {"latency": requests, "throughput": copy.deepcopy(requests)},
    }  # fmt: skip
    if "throughput_ips" in changes:  # completions that no first result which was held up explains
        reports["requests"]["throughput"]["finished_s"] = [0.01 * i for i in range(1, 7)]
    return reports | changes


def with_stages(reports: dict[str, Any], stages_s: list[list[float]], **columns: Any) -> dict[str, Any]:
    """The same, where in both phases each request took these times on the hosts behind the edge."""
    phases = {phase: {**of, "stages_s": stages_s, **columns} for phase, of in reports["requests"].items()}
    return reports | {"requests": phases}


def judged(
    edge: dict[str, Any],
    samples: dict[str, Any] | None = None,
    *,
    server: dict[str, Any] = USAGE,
    probes: dict[str, tuple[Probed, Probed]] = SOUND,
    crossing: Crossing = CROSSING,
    **how: Any,
) -> dict[str, Any]:
    result = result_of({"edge": edge, "server": server})
    return trial_row(CELL, [crossing], result, probes, samples, **how)


def row(reports: dict[str, Any], before: Reading = GOOD, after: Reading = GOOD) -> dict[str, Any]:
    first, last = (Probed(reading, judge(PROFILE, reading)) for reading in (before, after))
    crossed = [CROSSING] if reports.get("stages_s") else []
    result = result_of({"edge": reports, "server": USAGE})
    return trial_row(CELL, crossed, result, {"edge-server": (first, last)})


def test_a_good_trial_is_ok_and_its_times_add_up() -> None:
    made = row(report())
    assert (made["status"], made["reason"]) == ("ok", "")
    parts = made["edge_s"] + made["serialize_s"] + made["server_s"] + made["network_s"]
    assert parts == pytest.approx(made["latency_s"])
    assert made["latency_bound_s"] == pytest.approx(0.009 + 0.015 + 0.2 + 100_352 * 8 / 5e6)
    assert made["throughput_bound_ips"] == pytest.approx(5e6 / (8 * 100_352))
    assert made["rtt_s"] == pytest.approx(0.2003)
    assert made["bound_by"] == "edge-server out"
    assert made["wire_bytes"] == made["payload_bytes"]
    assert made["middle_s"] is made["encode_s"] is made["decode_s"] is None
    assert "top1" not in made, "nobody worked it out"
    unproven = trial_row(CELL, [CROSSING], WrongOutput(3.0, 1e-4), SOUND)
    assert unproven["status"] == "invalid"
    assert "latency_s" not in unproven


FAST = Reading(0.2003, 4.85e6, 4.85e6)
"""Within what a link may be off; `GOOD` is slower than was asked for."""


@pytest.mark.parametrize(("share", "status"), [(0.999, "invalid"), (1.0, "ok")])
@pytest.mark.parametrize("probed", [GOOD, FAST])
def test_no_latency_under_its_bound_counts(probed: Reading, share: float, status: str) -> None:
    """A link that was probed as slower than asked for may be as fast as that."""
    bounds_s = [row(report(), probed)[f"{by}latency_bound_s"] for by in ("", "probed_")]
    assert min(bounds_s) == bounds_s[probed is FAST]
    assert row(report(latency_s=share * min(bounds_s)), probed)["status"] == status


def test_a_first_result_that_was_held_up_makes_no_throughput_over_its_bound() -> None:
    """The time then counts from the beginning, but for the least that a first request takes."""
    reports = report(throughput_ips=7.0, throughput_window_requests=5, retransmits=9)
    fits_s, best = row(report())["latency_bound_s"], row(report())["throughput_bound_ips"]
    phase = reports["requests"]["throughput"]
    phase |= {"started_s": [0.0] * 6, "finished_s": [fits_s + 0.3 + number / 7 for number in range(6)]}
    made = row(reports)
    assert made["status"] == "ok"
    assert made["throughput_ips"] == pytest.approx(5 / (0.3 + 5 / 7))
    # No link is quicker than that: what remains over the bound says that it is wrong.
    phase["finished_s"] = [fits_s + number / (1.001 * best) for number in range(6)]
    assert row(reports)["status"] == "latency only"


def slowed_in(*phases: str, **changes: Any) -> dict[str, Any]:
    """What is reported where something else ran on the edge in these phases: 36 ms in place of 9."""
    reports = report(**changes)
    for phase in phases:
        reports["requests"][phase]["edge_s"] = (
            [0.036] * 6 if phase == "latency" else [0.009] * 4 + [0.036] * 2
        )
    return reports | (SLOW_EDGE if "latency" in phases else {})


SLOW_EDGE = {"edge_s": 0.036, "work_s": 0.051, "latency_s": 0.42}
OF_ONE_REPORT = {
    "wrong output": (report(max_abs_error=0.01), "invalid"),
    "output is no number": (report(max_abs_error=float("nan")), "invalid"),
    "output of another shape": (report(max_abs_error=float("inf")), "invalid"),
    "too little sent": (report(sent_bytes=12 * 100_352 - 1), "invalid"),
    "nobody counted what was sent": (report(sent_bytes=None), "invalid"),
    "too little received": (report(received_bytes=100), "invalid"),
    "faster than light": (report(latency_s=0.3), "invalid"),
    "more than fits, and of a wrong output": (report(throughput_ips=7.0, max_abs_error=0.01), "invalid"),
    "more than fits": (report(throughput_ips=7.0), "latency only"),
    "slowed in one phase": (slowed_in("latency"), "throughput only"),
    "slowed in both": (slowed_in("latency", "throughput") | {"steady_s": 0.037}, "invalid"),
    "a fault in each phase": (slowed_in("latency", throughput_ips=7.0), "invalid"),
    "a slowed stage is little of it": (report(edge_s=0.020, work_s=0.035, latency_s=0.42), "ok"),
    "a GPU that clocks down between requests": (report(**SLOW_EDGE, gpu_s=0.005), "ok"),
}


@pytest.mark.parametrize(("reports", "status"), OF_ONE_REPORT.values(), ids=OF_ONE_REPORT)
def test_each_figure_counts_only_if_it_can_be(
    reports: dict[str, Any], status: str, snapshot: SnapshotAssertion
) -> None:
    made = row(reports)
    assert (made["status"], made["reason"]) == (status, snapshot)
    assert made["latency_s"] is not None  # measured, also where it is not to be trusted


def test_a_row_has_what_is_known_of_its_split_and_connection() -> None:
    quality = {"agreement": 0.9, "agreement_images": 10, "output_error": 0.1}
    results = (result_of({"edge": report(max_abs_error=error), "server": USAGE}) for error in (0.0, 1.0))
    good, wrong = (trial_row(CELL, [CROSSING], replace(each, quality=quality), SOUND) for each in results)
    assert good.items() >= quality.items()
    assert not wrong.keys() & quality.keys()
    # What the kernel says of the connection stands in the row.
    names = [name for name in TRIALS.columns if name.startswith(("congestion", "tcp_"))]
    tcp = dict(zip(names, ("bbr", 1, 0, 209, 0.53, 0.2003, 4.6e6), strict=True))
    made = row(report(tcp=tcp))
    assert {name: made[name] for name in tcp} == tcp
    assert not set(tcp) & set(row(report(tcp={})))  # nothing crossed: empty
    # Every reason is told.
    made = row(report(max_abs_error=1.0, sent_bytes=0), Reading(0.5, 4.78e6, None), GOOD)
    assert made["reason"].count(";") == 2


@pytest.mark.parametrize(
    "off", [Reading(0.3, 4.78e6, None), Reading(0.2, 7e6, None), Reading(0.2, 3e6, None)]
)
def test_a_link_off_before_or_after_makes_the_trial_invalid(off: Reading) -> None:
    for when, readings in (("before", (off, GOOD)), ("after", (GOOD, off))):
        made = row(report(), *readings)
        assert made["status"] == "invalid"
        assert f" {when} the trial: " in made["reason"]


FASTER, SLOWER = Reading(0.001, 32e9, 32e9), Reading(0.001, 5e9, 5e9)
SEEN = {
    "faster": (FASTER, 0.03, "ok"),
    "slower": (SLOWER, 0.03, "ok"),
    "most of a short latency": (FASTER, 0.0005, "invalid"),
    "far slower": (Reading(0.001, 0.2e9, 5e9), 0.03, "invalid"),
    "far slower back": (Reading(0.001, 5e9, 0.01e9), 0.03, "invalid"),
    "no rate": (Reading(0.001, None, 15e9), 0.03, "invalid"),
    "its delay": (Reading(0.004, 32e9, 32e9), 0.03, "invalid"),
}


@pytest.mark.parametrize(("seen", "latency_s", "status"), SEEN.values(), ids=SEEN)
def test_a_real_links_rate_may_vary_where_the_figures_hardly_do(
    seen: Reading, latency_s: float, status: str
) -> None:
    link = own_profile("none", Reading(0.0001, 15e9, 15e9))
    probed = Probed(seen, judge(link, seen, OWN))
    assert probed.fault
    short = {"edge_s": 1e-4, "stages_s": [1e-4], "work_s": 2e-4, "serialize_s": 0.0, "baseline_s": 1e-4}
    told = report(latency_s=latency_s, throughput_ips=1.9, **short)
    spans = {"started_s": [0.5 * i for i in range(6)], "finished_s": [0.5 * i + latency_s for i in range(6)]}
    told = with_stages(told, [[1e-4]] * 6, **spans, edge_s=[1e-4] * 6, serialize_s=[0.0] * 6)
    crossing = Crossing("edge-server", link, 100_352, 4000, own=True)
    probes = {"edge-server": (probed, probed)}
    made = judged(told, probes=probes, crossing=crossing)
    assert made["status"] == status, made["reason"]
    made = judged(told, probes=probes, crossing=replace(crossing, own=False))
    assert made["status"] == "invalid", "a profile promises its rate"


@pytest.mark.parametrize(("takes_s", "status"), [(0.0011, "ok"), (0.0025, "invalid")])
def test_a_short_stage_may_take_longer_on_a_core_that_was_idle(takes_s: float, status: str) -> None:
    """Half a millisecond alone, when it runs again and again."""
    stage = {"edge_s": takes_s, "baseline_s": 0.0005, "steady_s": 0.0005, "work_s": takes_s + 0.0005}
    reports = report(**stage, stages_s=[], latency_s=takes_s + 0.0005)
    assert row(with_stages(reports, [[]] * 6, edge_s=[takes_s] * 6))["status"] == status


PHASES = {"trial_window": (0.0, 4.0), "throughput_window": (2.0, 4.0)}


def loaded(latency: float, throughput: float, **how: Any) -> dict[str, Any]:
    """A trial on hosts of their own, on the server of which others take these shares of the cores in the phases."""
    others_s = [0.0, 2 * latency, 2 * (latency + throughput)]
    samples = {"server": {"at_s": [0.0, 2.0, 4.0], "others_s": others_s}}
    return judged(report(**PHASES), samples, server={**USAGE, **PHASES}, **how)


@pytest.mark.parametrize(
    ("latency", "throughput", "status"),
    [(0.1, 0.1, "ok"), (0.5, 0.5, "invalid"), (0.0, 0.5, "latency only"), (0.5, 0.0, "throughput only")],
)
def test_other_programs_on_a_host_spoil_the_figures_of_the_phases_that_they_disturb(
    latency: float, throughput: float, status: str
) -> None:
    made = loaded(latency, throughput)
    assert made["status"] == status
    whole = (latency + throughput) / 2
    assert made["server_others_percent"] == pytest.approx(100 * whole)
    if status != "ok":
        assert made["reason"].startswith(f"on the server, other programs used {whole:.1%} of the cores")
        assert loaded(latency, throughput, others=0.5)["status"] == "ok"


def test_where_nothing_crosses_or_is_computed_nothing_is_invented() -> None:
    nothing = {"payload_bytes": 0, "result_bytes": 0, "sent_bytes": 0}
    alone = report(stages_s=[], work_s=0.010, baseline_s=None, latency_s=0.0101, **nothing)
    made = row(with_stages(alone, [[]] * 6))
    assert made["status"] == "ok"
    assert made["server_s"] is made["network_s"] is made["serialize_s"] is None
    assert made["latency_bound_s"] == 0.010
    assert made["bound_by"] == "edge"
    # Other programs on a host that computes nothing disturb nothing.
    result = result_of(
        {"edge": with_stages(report(**PHASES, stages_s=[]), [[]] * 6), "server": {**USAGE, **PHASES}}
    )
    assert trial_row(CELL, [], result, {}, ALL_TAKEN)["status"] == "ok"


ALL_TAKEN = {"server": {"at_s": [0.0, 4.0], "others_s": [0.0, 4.0]}}


@pytest.mark.parametrize(("percent", "status"), [(19.0, "ok"), (34.0, "invalid"), (None, "ok")])
def test_on_one_machine_only_programs_that_are_none_of_the_runs_are_others(
    percent: float | None, status: str, snapshot: SnapshotAssertion
) -> None:
    reports = {"edge": report(**PHASES, strangers_percent=percent), "server": {**USAGE, **PHASES}}
    result = replace(result_of(reports), is_local=True)
    made = trial_row(CELL, [CROSSING], result, SOUND, ALL_TAKEN)
    assert (made["status"], made["reason"]) == (status, snapshot)


@pytest.mark.parametrize("length_s", [0.2, 2.0])
@pytest.mark.parametrize("probed", [GOOD, FAST])
def test_a_throughput_just_over_its_bound_was_no_steady_state(probed: Reading, length_s: float) -> None:
    """Also where a phase was short, and its figure is of few requests."""
    most = max(row(report(), probed)[f"{by}throughput_bound_ips"] for by in ("", "probed_"))
    for share, status in ((1.0, "ok"), (1.001, "latency only")):
        reports = report(throughput_ips=share * most, throughput_window=[3.0, 3.0 + length_s])
        assert row(reports, probed)["status"] == status


def test_the_network_time_is_the_median_of_what_remains_of_each_request(snapshot: SnapshotAssertion) -> None:
    """Two kinds of requests, long on one host each: of medians taken apart less than nothing would remain."""
    reports = report()
    long, short = [0.2] * 4 + [0.01] * 2, [0.01] * 2 + [0.2] * 4
    reports["requests"]["latency"] |= {"edge_s": long, "stages_s": [[seconds] for seconds in short]}
    reports |= {"edge_s": 0.2, "stages_s": [0.2], "latency_s": 0.4}
    made = row(reports)
    assert made["latency_s"] - made["edge_s"] - made["server_s"] - made["serialize_s"] < 0
    assert made["network_s"] == pytest.approx(0.4 - 0.01 - 0.2 - 0.0005)
    # A request shorter than its parts makes the trial invalid.
    reports = report()
    reports["requests"]["latency"]["stages_s"] = [[0.015]] * 5 + [[0.4]]
    made = row(reports)
    assert (made["status"], made["reason"]) == ("invalid", snapshot)
    reports["requests"]["latency"]["stages_s"] = [[0.4 - 0.010 - 0.0005 + 1e-9]] * 6  # sums round
    assert row(reports)["status"] == "ok"


STEADY = {"throughput_window": (1.0, 3.0), "throughput_window_requests": 10}


SECOND_LINK = Profile("50ms-1mbit", Direction(0.05, 1e6))
CHAIN = [CROSSING, Crossing("middle1-server", SECOND_LINK, 8000, 4000)]
SECOND = {"sent_bytes": 10**6, "received_bytes": 10**6, "retransmits": 3}


def chain_row(second: dict[str, Any] = SECOND, off: str = "") -> dict[str, Any]:
    """A trial of three hosts; `off`: what is wrong with the second link after it."""
    edge = report(stages_s=[0.02, 0.015], work_s=0.045, latency_s=0.6)
    edge = with_stages(edge, [[0.02, 0.015]] * 6, finished_s=[0.5 * i + 0.6 for i in range(6)])
    reports = {"edge": edge, "middle1": {**USAGE, **second}, "server": USAGE}
    second_link = Probed(Reading(0.05, 0.95e6, None), ""), Probed(GOOD, off)
    readings = {"edge-middle1": (Probed(GOOD, ""), Probed(GOOD, "")), "middle1-server": second_link}
    cell = Cell(CELL.model, (7, 9), "features.6+features.8", "tcp", "x", 1)
    return trial_row(cell, CHAIN, result_of(reports), readings)


def test_a_chains_times_add_up_over_all_of_it(snapshot: SnapshotAssertion) -> None:
    made = chain_row()
    assert (made["status"], made["reason"]) == ("ok", "")
    assert (made["middle_s"], made["server_s"]) == (0.02, 0.015)
    work_s = 0.010 + 0.0005 + 0.02 + 0.015
    assert made["network_s"] == pytest.approx(0.6 - work_s)
    links_s = 0.2 + 100_352 * 8 / 5e6 + 0.05 + 8000 * 8 / 1e6
    assert made["latency_bound_s"] == pytest.approx(0.009 + 0.02 + 0.015 + links_s)
    assert (made["rtt_s"], made["rate_bps"]) == (pytest.approx(0.2003 + (0.05 + 0.2003) / 2), 2.865e6)
    assert made["retransmits"] == 3
    # The middle's time is the median of what its hosts took together.
    edge = with_stages(report(stages_s=[0.105, 0.055, 0.0]), [[0.2, 0.01, 0.0]] * 3 + [[0.01, 0.1, 0.0]] * 3)
    result = result_of({"edge": edge, **dict.fromkeys(("middle1", "middle2", "server"), USAGE | SECOND)})
    rest = [Crossing(name, Profile("x"), 1, 1) for name in ("middle1-middle2", "middle2-server")]
    probes = {"edge-middle1": (Probed(GOOD, ""),) * 2}
    made = trial_row(Cell(CELL.model, (1, 2, 3), "", "tcp", "x", 1), [CROSSING, *rest], result, probes)
    assert made["middle_s"] == pytest.approx((0.21 + 0.11) / 2)
    # A chain whose last hosts have nothing to do.
    edge = with_stages(report(stages_s=[0.3], work_s=0.31, latency_s=0.7, throughput_ips=3.0), [[0.3]] * 6)
    edge["requests"]["throughput"]["finished_s"] = report()["requests"]["throughput"]["finished_s"]
    result = result_of({"edge": edge, "middle1": USAGE, "server": USAGE})
    probes = {
        "edge-middle1": (Probed(GOOD, ""),) * 2,
        "middle1-server": (Probed(GOOD, "RTT"), Probed(GOOD, "")),
    }
    made = trial_row(Cell(CELL.model, (7, 21), "", "tcp", "x", 1), CHAIN[:1], result, probes)
    assert (made["middle_s"], made["server_s"], made["bound_by"]) == (0.3, None, "middle1")
    assert made["reason"] == snapshot


@pytest.mark.parametrize(
    ("chained", "named"),
    [
        ({"second": {**SECOND, "sent_bytes": 12 * 8000 - 1}}, "middle1"),
        ({"off": "RTT 300 ms, asked 50 ms"}, "middle1-server"),
    ],
    ids=["bytes", "link"],
)
def test_what_was_off_in_a_chain_is_named(
    chained: dict[str, Any], named: str, snapshot: SnapshotAssertion
) -> None:
    made = chain_row(**chained)
    assert named in made["reason"]
    assert made["reason"] == snapshot


SENSED: dict[str, list[Any]] = {
    "at_s": [0.0, 1.0, 2.0, 3.0, 4.0], "energy_j": [0.0, 4.0, 8.0, 12.0, 16.0], "throttled": [0] * 5,
    "temperature_c": [40.0, 41.0, 42.0, 43.0, 60.0],
}  # fmt: skip
WINDOWS = {
    "trial_window": [0.5, 3.5],
    "throughput_window": [0.5, 3.5],
    "throughput_window_requests": 6,
    "peak_rss_bytes": 9 << 20,
}


def sensed_row(samples: dict[str, Any], cell: Cell = CELL) -> dict[str, Any]:
    reports = {"edge": report(**WINDOWS), "server": {**USAGE, **WINDOWS}}
    return trial_row(cell, [CROSSING], result_of(reports), SOUND, samples)


def test_the_sensors_columns_are_each_hosts_own() -> None:
    hotter = {**SENSED, "temperature_c": [70.0] * 5, "energy_j": [30.0 * i for i in range(5)]}
    made = sensed_row({"edge": SENSED, "server": hotter})
    assert (made["status"], made["reason"]) == ("ok", "")
    assert (made["edge_temperature_c"], made["server_temperature_c"]) == (43.0, 70.0)
    assert made["edge_energy_j"] == pytest.approx(12.0 / 6)
    assert made["server_energy_j"] == pytest.approx(90.0 / 6)
    assert made["edge_throttled"] == made["server_throttled"] == "0x0"
    batches = sensed_row({"edge": SENSED}, replace(CELL, batch_size=4))
    assert batches["edge_energy_j"] == pytest.approx(12.0 / (6 * 4)), "an image's, not a request's"
    without = sensed_row({})
    assert without["status"] == "ok"
    assert {key for key in without if key.startswith("edge_")} == {
        f"edge_{name}" for name in ["s", "cpu_percent", "rss_bytes", "peak_rss_bytes", "gpu_s", "slowdown"]
    }
    assert (without["edge_peak_rss_bytes"], without["server_peak_rss_bytes"]) == (9 << 20, 9 << 20)


def test_the_busiest_step_is_not_what_sets_the_bound_and_a_full_core_is_named() -> None:
    """5 requests a second keep the link busy for 80 % of the time, and the edge for 90 %."""
    reports = report(**STEADY, throughput_busy_s=1.8, throughput_ips=5.0)
    usage = {**USAGE, **STEADY, "throughput_busy_s": 0.2}
    made = judged(reports, server=usage)
    assert (made["bound_by"], made["busiest"]) == ("edge-server out", "edge")
    assert made["busiest_utilization"] == pytest.approx(0.9)
    reports["throughput_busy_s"] = 1.4
    made, share = judged(reports, server=usage), pytest.approx(5 * 8 * 100_352 / 5e6)
    assert (made["busiest"], made["busiest_utilization"]) == ("edge-server out", share)
    unknown = row(report(**STEADY, throughput_busy_s=1.8))
    assert unknown["busiest"] is unknown["busiest_utilization"] is None, "of the server"
    # A full core is named where the throughput falls short.
    full = {**SENSED, "busy_s": [0.0, 1.0, 2.0, 3.0, 4.0]}
    idle = {**SENSED, "busy_s": [0.0, 0.5, 1.0, 1.5, 2.0]}
    most = sensed_row({})["throughput_bound_ips"]

    def named(throughput_ips: float, samples: dict[str, Any]) -> Any:
        edge = report(**WINDOWS, throughput_ips=throughput_ips)
        return judged(edge, samples, server={**USAGE, **WINDOWS})["full_cores"]

    assert named(0.8 * most, {"edge": full, "server": idle}) == "edge"
    assert named(0.8 * most, {"edge": full, "server": full}) == "edge, server"
    assert named(0.8 * most, {"edge": idle, "server": idle}) == ""
    assert named(0.95 * most, {"edge": full, "server": full}) == ""
    assert named(0.8 * most, {}) is named(0.8 * most, {"edge": SENSED}) is None


@pytest.mark.parametrize("role", ["edge", "server"])
def test_a_device_that_was_held_back_makes_the_trial_invalid(role: str, snapshot: SnapshotAssertion) -> None:
    samples = {"edge": SENSED, "server": SENSED}
    made = sensed_row({**samples, role: {**SENSED, "throttled": [0, 0x4, 0, 0, 0]}})
    assert made["status"] == "invalid"
    assert role in made["reason"]
    assert made["reason"] == snapshot
    assert made[f"{role}_throttled"] == "0x4"
    assert made["latency_s"] is not None


@pytest.mark.parametrize(
    ("throttled", "status"),
    [
        ([0, 0, 0, 0x4, 0], "latency only"),
        ([0, 0, 0, 0x40000, 0x40000], "latency only"),  # it came up between two samples
        ([0, 0, 0x4, 0, 0], "invalid"),  # it may have come up in the latency phase
        ([0, 0x4, 0, 0, 0], "invalid"),
        ([0x4, 0, 0, 0, 0x4], "ok"),  # outside the trial
    ],
)
def test_a_device_that_was_held_back_after_the_latency_phase_leaves_the_latency(
    throttled: list[int], status: str
) -> None:
    """The throughput phase's steady part begins at 1.5 s, so that the sample at 2 s is the first that knows of it."""
    edge, samples = report(**WINDOWS), {"edge": {**SENSED, "throttled": throttled}}
    made = judged(edge | {"throughput_window": [1.5, 3.5]}, samples, server=USAGE | WINDOWS)
    assert made["status"] == status


def test_stages_are_judged_and_bound_by_what_they_take_alone() -> None:
    slow = slowed_in("latency", "throughput")
    made, usual = row(slow | {"steady_s": 0.037}), row(report())
    assert made["edge_slowdown"] == pytest.approx(36 / 9)
    assert row(report(edge_s=0.020, work_s=0.035, latency_s=0.42))["edge_slowdown"] > SLOWED
    for bound in ("latency_bound_s", "throughput_bound_ips"):
        assert made[bound] == usual[bound]
    for slowed, status in ((4.1, "ok"), (3.9, "throughput only")):
        assert judged(slow, slowed=slowed)["status"] == status, "as was asked for"
    # The server is judged as the edge is.
    edge = report(stages_s=[0.05], work_s=0.06, latency_s=0.42)
    made = judged(edge, server={**USAGE, "baseline_s": 0.015})
    assert made["status"] == "throughput only"
    assert "the server's stage" in made["reason"]
    assert made["server_slowdown"] == pytest.approx(50 / 15)
    # Where one stage is slow when the other is fast, no request needs both medians: 30 ms of work here, not 35.
    link_s = CROSSING.least_s
    fine = row(
        report(baseline_s=0.020, edge_s=0.020, stages_s=[0.015], work_s=0.030, latency_s=link_s + 0.031)
    )
    assert fine["latency_bound_s"] == pytest.approx(link_s + 0.030)
    assert fine["status"] == "ok", fine["reason"]


def took(network_s: float) -> dict[str, Any]:
    """Requests that cross in so many seconds, and one in a second more."""
    started_s = [2.0 * i for i in range(6)]
    finished_s = [2.0 * i + 0.0255 + network_s + (i == 3) for i in range(6)]
    reports = report(latency_s=0.0255 + network_s)
    return with_stages(reports, [[0.015]] * 6, started_s=started_s, finished_s=finished_s)


ON_WIRE_S = 8 * 100_352 / (5e6 * GOODPUT)


@pytest.mark.parametrize(
    ("backend", "slower", "invalid"),
    [*(("tcp", slower, slower > 0.05) for slower in (0.0, 0.02, 0.08, 0.15)), ("rpc", 0.15, False)],
)
def test_a_link_that_is_right_when_probed_and_slow_under_load(
    backend: str, slower: float, invalid: bool, snapshot: SnapshotAssertion
) -> None:
    result = result_of({"edge": took(0.2 + (1 + slower) * ON_WIRE_S + 0.001), "server": USAGE})
    it = replace(CELL, backend=backend)
    made = trial_row(it, [CROSSING], result, EXACT)
    assert (made["status"] == "invalid") is invalid, made["reason"]
    assert made["loaded_rate_bps"] == pytest.approx(5e6 * GOODPUT / (1 + slower), rel=0.01)
    if invalid:
        assert "during the trial" in made["reason"]
        assert made["reason"] == snapshot
    lossy = replace(CROSSING, filled=False)
    assert "during the trial" not in trial_row(it, [lossy], result, EXACT)["reason"]


@pytest.mark.parametrize(("idle_s", "invalid"), [(0.40, False), (0.35, True), (0.3, True)])
def test_requests_that_cross_late_are_held_against_the_same_bytes_over_the_idle_link(
    idle_s: float, invalid: bool, snapshot: SnapshotAssertion
) -> None:
    """A large result on its way back, or a host that waits for its share of a core, is not the link's fault."""
    result, in_time = (
        result_of({"edge": took(network_s), "server": USAGE}) for network_s in (0.4, 0.201 + ON_WIRE_S)
    )
    assert crossed_late(CELL, [CROSSING], result, EXACT, Tolerance())
    assert not crossed_late(CELL, [CROSSING], in_time, EXACT, Tolerance())
    made = trial_row(CELL, [CROSSING], result, EXACT, idle_s=idle_s)
    assert (made["status"] == "invalid") is invalid, made["reason"]
    assert made["reason"] == snapshot


def test_a_link_is_judged_as_it_was_probed_and_may_be_off_by_more_where_its_readings_may() -> None:
    """A small file is there sooner than a large one: that makes no link faster. A short transfer tells none."""
    sizes = [60_000, 100_352, 140_000, 100_352, 100_352, 100_352]
    edge = took(0.2)
    phase = edge["requests"]["latency"]
    phase["finished_s"] = [
        finished_s + nbytes / 100_352 * ON_WIRE_S
        for finished_s, nbytes in zip(phase["finished_s"], sizes, strict=True)
    ]
    made = judged(edge | {"coded": Coded([0.0] * 12, [0.0] * 12, [*sizes, *sizes])}, probes=EXACT)
    assert made["loaded_rate_bps"] == pytest.approx(5e6 * GOODPUT, rel=0.01)
    short = replace(CROSSING, payload_bytes=10_000)
    assert judged(took(0.5), crossing=short)["loaded_rate_bps"] is None
    # A link is judged as it was probed and may be off by more where its readings may.
    for slower, late_s, tolerance in (
        (0.08, 0.0, Tolerance(rate_fraction=0.08)),
        (0.0, 0.02, Tolerance(rtt_floor_s=0.02)),
    ):
        edge = took(0.2 + (1 + slower) * ON_WIRE_S + 0.001 + late_s)
        assert "during the trial" in judged(edge, probes=EXACT)["reason"]
        assert not judged(edge, probes=EXACT, tolerance=tolerance)["reason"]
    # 1.5 % faster than asked is within the probe's tolerance: the latency of such a link is no fault.
    edge = took(0.2 + ON_WIRE_S * GOODPUT / 1.015)
    slow, fast = (Probed(Reading(0.2, 5e6 * share * GOODPUT, None), "") for share in (1.0, 1.015))
    rows = [judged(edge, probes={"edge-server": (it, it)}) for it in (slow, fast)]
    assert rows[0]["latency_bound_s"] == rows[1]["latency_bound_s"]
    assert rows[0]["probed_latency_bound_s"] == pytest.approx(rows[0]["latency_bound_s"], rel=1e-6)
    assert rows[1]["probed_latency_bound_s"] == pytest.approx(
        0.2 + 0.025 + ON_WIRE_S * GOODPUT / 1.015, abs=0.002
    )
    assert rows[1]["probed_throughput_bound_ips"] == pytest.approx(1.015 * rows[1]["throughput_bound_ips"])


SPLIT_CELL = Cell("m", (3, 7), "a+b", "tcp", "x", 2)
SPLIT_CROSSINGS = [
    Crossing("edge-middle1", Profile("x", Direction(0.1, 8e6), Direction(0.0, 4e6)), 1_000_000, 500_000),
    Crossing("middle1-server", Profile("y"), 2000, 500_000),
]


def split_result(**edge: Any) -> TrialResult:
    columns = {"started_s": [0.0, 1.0], "stages_s": [[0.2, 0.3], [0.25, 0.35]]}
    report = {
        **{"edge_s": 0.1, "stages_s": [0.2, 0.3], "work_s": 0.6, "baseline_s": 0.09},
        **{"requests": {"latency": columns, "throughput": columns}, **edge},
    }
    usage = {"throughput_window": [10.0, 14.0], "throughput_window_requests": 8, "weights_bytes": 5}
    middle = {"throughput_busy_s": 4.5, "baseline_s": 0.21, "steady_s": 0.19}
    hosts = {"edge": {**report, **usage, "throughput_busy_s": 1.0}, "middle1": {**usage, **middle}}
    return result_of({**hosts, "server": {"rss_bytes": 6}})


def test_what_is_not_computing_is_a_bubble() -> None:
    edge, middle, _ = stage_rows(SPLIT_CELL, SPLIT_CROSSINGS, split_result(), {})
    assert (edge["utilization"], edge["bubble_s"]) == (0.25, pytest.approx(3.0 / 8))
    # Two clocks of one host may differ by a hair.
    assert (middle["utilization"], middle["bubble_s"]) == (1.0, 0.0)


def test_each_host_has_its_units_its_time_and_its_link() -> None:
    rows = [*stage_rows(SPLIT_CELL, SPLIT_CROSSINGS, split_result(), {})]

    def columns(*names: str) -> list[tuple[Any, ...]]:
        return [tuple(row[name] for name in names) for row in rows]

    assert columns("host", "first_unit", "last_unit") == [
        ("edge", 0, 3),
        ("middle1", 3, 7),
        ("server", 7, None),
    ]
    assert columns("compute_s", "best_s", "slowdown") == [
        (0.1, 0.09, 0.1 / 0.09),
        (0.2, 0.19, 0.2 / 0.21),
        (0.3, 0.3, None),  # it told of neither
    ]
    assert columns("payload_bytes", "transfer_s", "return_s") == [
        (1_000_000, 1.0, 1.0),
        (2000, 0.0, 0.0),
        (None, None, None),
    ]
    assert rows[-1]["utilization"] is None
    assert rows[-1]["rss_bytes"] == 6
    without_work = split_result(stages_s=[], requests={"latency": {"stages_s": [[], []]}})
    assert [row["host"] for row in stage_rows(SPLIT_CELL, [], without_work, {})] == ["edge"]
    # Requests have the server's time apart.
    phase = split_result().request_columns()["throughput"]
    assert phase["started_s"] == [0.0, 1.0]
    assert (phase["middle_s"], phase["server_s"]) == ([[0.2], [0.25]], [0.3, 0.35])
    assert "stages_s" not in phase
    ends = split_result(stages_s=[0.2], requests={"latency": {"stages_s": [[0.2], [0.25]]}})
    phase = ends.request_columns()["latency"]
    assert (phase["middle_s"], phase["server_s"]) == ([[0.2], [0.25]], [None, None]), "before the server"
    # The bound has what stages take alone where that is less.
    assert split_result().work_s == pytest.approx(0.09 + 0.21 + 0.3)
    assert split_result(work_s=0.5).work_s == 0.5
    # All on the server: the edge passes an input on each 50 ms, as fast as the link takes them.
    assert split_result(edge_s=1e-5, baseline_s=None, steady_s=0.05).best_s["edge"] == 1e-5


def coded(decode_s: float, encode_s: float, wire_bytes: int, requests: int = 12) -> Coded:
    return Coded([decode_s] * requests, [encode_s] * requests, [wire_bytes] * requests)


def coded_result(decode_s: float = 0.0, encode_s: float = 0.2, **edge: Any) -> TrialResult:
    """Of a codec that makes a quarter of the payload."""
    of_edge = report(sent_bytes=12 * 25_088 + 5_000, coded=coded(decode_s, encode_s, 25_088), **edge)
    return result_of({"edge": of_edge, "server": USAGE | {"coded": coded(0.001, 0.0, 0)}})


def coded_row(sent_bytes: int = 12 * 25_088 + 5_000) -> dict[str, Any]:
    """A trial whose codec makes a quarter of the payload: the server's stage of 15 ms has 1 ms of decoding in it."""
    edge = report(sent_bytes=sent_bytes, coded=coded(0.0, 0.002, 25_088), work_s=0.027, latency_s=0.271)
    for phase in edge["requests"].values():
        phase["finished_s"] = [0.5 * i + 0.271 for i in range(6)]
    result = result_of({"edge": edge, "server": USAGE | {"coded": coded(0.001, 0.0, 0)}})
    result = replace(result, edge=without_codecs(result.edge, [result.hosts["server"].usage]))
    probed = Probed(GOOD, judge(PROFILE, GOOD))
    return trial_row(CELL, [CROSSING], result, {"edge-server": (probed, probed)})


@pytest.mark.parametrize(("decode_s", "best_s"), [(0.0, 0.209), (0.3, 0.3), (0.1, 0.209)])
def test_a_codecs_time_is_in_its_hosts_step_and_of_an_edge_that_decodes_ahead_the_slower_one_counts(
    decode_s: float, best_s: float
) -> None:
    in_line, ahead = (coded_result(decode_s, prefetch=prefetch) for prefetch in (0, 2))
    assert in_line.best_s["edge"] == pytest.approx(0.209 + decode_s)
    assert ahead.best_s["edge"] == pytest.approx(best_s)
    assert ahead.best_s["server"] == in_line.best_s["server"] == pytest.approx(0.016)
    assert ahead.work_s == in_line.work_s


@pytest.mark.parametrize("sent_bytes", [12 * 25_088 - 1, 12 * 100_352])
def test_the_interface_must_carry_what_the_codec_says(sent_bytes: int, snapshot: SnapshotAssertion) -> None:
    made = coded_row(sent_bytes)
    assert made["status"] == "invalid"
    assert made["reason"] == snapshot


def test_a_codecs_times_and_bytes_are_its_own() -> None:
    made = coded_row()
    assert made["reason"] == ""
    assert (made["payload_bytes"], made["wire_bytes"]) == (100_352, 25_088)
    assert (made["encode_s"], made["decode_s"]) == (0.002, 0.001)
    assert made["server_s"] == pytest.approx(0.014)
    parts = sum(
        made[name] for name in ("edge_s", "encode_s", "serialize_s", "decode_s", "server_s", "network_s")
    )
    assert parts == pytest.approx(made["latency_s"])
    # The baseline of the edge, the server's stage, and both ends of the codec; then the link with what was sent.
    assert made["latency_bound_s"] == pytest.approx(0.009 + 0.014 + 0.003 + 0.2 + 25_088 * 8 / 5e6)
    assert made["throughput_bound_ips"] == pytest.approx(5e6 / (8 * 25_088))
    # Each host and request says what its codec did.
    result = coded_result(encode_s=0.002)
    figures = ("encode_s", "decode_s", "wire_bytes")
    first, last = stage_rows(CELL, [CROSSING], result, {})
    assert [first[name] for name in figures] == [0.002, 0.0, 25_088]
    assert [last[name] for name in figures] == [0.0, 0.001, None], "the server sends nothing on"
    for phase in result.request_columns().values():
        assert [phase[name] for name in figures] == [[0.002] * 6, [0.001] * 6, [25_088] * 6]
    plain = result_of({"edge": report(), "server": USAGE})
    assert not {*figures} & plain.request_columns()["latency"].keys()
    assert all(row[name] is None for row in stage_rows(CELL, [CROSSING], plain, {}) for name in figures)


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
