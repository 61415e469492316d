"""What stands in a trial's row, and in those of its hosts; and what codecs did in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.schema import TRIALS
from pareto.protocol.trial_messages import Coded, WrongOutput
from pareto.remote.link.probe import Probed, Reading
from pareto.remote.link.profile import Direction, Profile
from pareto.sweep.bounds import Crossing
from pareto.sweep.cell import Cell
from pareto.trial.codec_work import CodecWork, too_many_bytes, without_codecs
from pareto.trial.result import TrialResult
from pareto.trial.rows import stage_rows, trial_row
from tests.unit.example_trial import (
    CELL,
    CROSSING,
    GOOD,
    SENSED,
    SIX,
    SOUND,
    USAGE,
    loaded,
    report,
    row,
    sensed,
    throttled,
)
from tests.unit.reported import result_of


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
    rows = [*stage_rows(SPLIT_CELL, SPLIT_CROSSINGS, split_result(), {})]
    known = [{name: value for name, value in row.items() if value is not None} for row in rows]
    assert known == snapshot(name="stages")
    without_work = split_result([[], []])
    assert [row["host"] for row in stage_rows(SPLIT_CELL, [], without_work, {})] == ["edge"]
    # Requests have the server's time apart, where they come to it.
    nothing = {name: [0.0, 0.0] for name in ("edge_s", "serialize_s", "finished_s")}
    for stages_s, started_s, server_s in (
        (None, [0.0, 1.0], [0.3, 0.35]),
        ([[0.2], [0.25]], [0.0, 0.0], [None, None]),
    ):
        told = {**nothing, "started_s": started_s, "middle_s": [[0.2], [0.25]], "server_s": server_s}
        assert split_result(stages_s).request_columns() == {"latency": told, "throughput": told}
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


def changes(made: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    assert made.keys() == before.keys()
    return {name: value for name, value in made.items() if value != before[name]}


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
    # Each host and request says what its codec did; the server sends nothing on. All else is as without a codec.
    coded, plain = coded_result(encode_s=0.002), result_of({"edge": report(), "server": USAGE})
    with_codec, without = ([*stage_rows(CELL, [CROSSING], each, {})] for each in (coded, plain))
    assert [*map(changes, with_codec, without), changes(made, row())] == snapshot
    figures = {"encode_s": [0.002] * 6, "decode_s": [0.001] * 6, "wire_bytes": [25_088] * 6}
    columns = {phase: each | figures for phase, each in plain.request_columns().items()}
    assert coded.request_columns() == columns
    assert not figures.keys() & plain.request_columns()["latency"].keys()
    assert all(stage[name] is None for stage in without for name in figures)


# What codecs did in a trial: by request, by host, and of all of them

WORK = CodecWork(
    {
        "edge": Coded([0.0] * 5, [0.002, 0.004, 0.003, 0.001, 0.001], [100, 300, 200, 90, 110]),
        "middle1": Coded([0.001] * 5, [0.0, 0.001, 0.002, 0.0, 0.0], [50, 50, 50, 70, 70]),
        "server": Coded([0.001, 0.001, 0.004, 0.001, 0.001], [0.0] * 5, [0] * 5),
    },
    first=3,
)
NONE = CodecWork({}, first=3)


def test_times_are_of_all_hosts_together_request_by_request() -> None:
    assert WORK.times_s("encode_s") == pytest.approx([0.002, 0.005, 0.005, 0.001, 0.001])
    assert WORK.trial_columns() == {"encode_s": pytest.approx(0.005), "decode_s": pytest.approx(0.002)}
    assert WORK.alone([1.0, 1.0, 1.0]) == pytest.approx([0.996, 0.993, 0.99])
    # A bound has the least of both phases, each of which has its own requests.
    assert WORK.least_s == pytest.approx({"edge": 0.001, "middle1": 0.001, "server": 0.001})
    bytes_of = {role: (WORK.wire_bytes(role), WORK.least_wire_bytes(role)) for role in ("edge", "middle1")}
    assert bytes_of == {"edge": (200, 100), "middle1": (50, 50)}
    first, later = WORK.request_columns("edge", slice(3)), WORK.request_columns("edge", slice(3, None))
    assert (first["wire_bytes"], later["wire_bytes"]) == ([100, 300, 200], [90, 110])
    assert later["decode_s"] == pytest.approx([0.002, 0.002])
    sending = {"encode_s": 0.001, "decode_s": 0.001, "wire_bytes": 50}
    assert WORK.stage_columns("middle1", sends=True) == sending
    assert WORK.stage_columns("server", sends=False)["wire_bytes"] is None


def test_without_a_codec_nothing_is_said() -> None:
    assert NONE.trial_columns() == {"encode_s": None, "decode_s": None}
    assert NONE.request_columns("edge", slice(3)) == {}
    assert NONE.alone([1.0, 2.0]) == [1.0, 2.0]
    assert set(NONE.stage_columns("edge", sends=True).values()) == {None}
    assert NONE.wire_bytes("edge") is NONE.least_wire_bytes("edge") is None
    assert not list(too_many_bytes("server's data interface sent", 10**9, []))


def test_requests_of_the_warm_up_have_crossed_a_later_hosts_link_too() -> None:
    """It counts from when it got its stage on: 27 requests, of which 17 are timed."""
    wire, sent_bytes = [12_500] * 17, 27 * 13_200 + 30_000
    assert list(too_many_bytes("middle1", sent_bytes, wire))
    assert not list(too_many_bytes("middle1", sent_bytes, wire, warm_ups=10))
    assert list(too_many_bytes("middle1", 27 * 4 * 12_500, wire, warm_ups=10))


def test_a_result_that_comes_back_encoded_counts_apart() -> None:
    """The last host encodes it, the edge decodes it, in a thread of its own: a request's latency has it, no step of
    the edge's has both."""
    assert WORK.results == ("", [])
    back = CodecWork(
        {
            "edge": Coded([0.0] * 6, [0.002] * 6, [100] * 6, [0.01, 0.02, 0.03] * 2),
            "server": Coded([0.001] * 6, [0.004] * 6, [70, 80, 90] * 2),
        },
        first=3,
        closed=6,
    )
    assert back.results == ("server", [70, 80, 90] * 2)
    assert (back.wire_bytes("server"), back.least_wire_bytes("server")) == (80, 80)
    assert back.times_s("decode_s")[:3] == pytest.approx([0.011, 0.021, 0.031])
    assert back.stage_columns("edge", sends=True)["decode_s"] == pytest.approx(0.02)
    assert back.least_s == pytest.approx({"edge": 0.002, "server": 0.005})
    assert back.least_result_s == pytest.approx(0.02)
    assert back.alone([1.0, 1.0, 1.0]) == pytest.approx([0.983, 0.973, 0.963])
