"""What a backend itself costs, from trials whose cost is known because it was put in.

What a link may measure: the band is the verdict's own.

The stages of a chain: as they are read, their stage_medians, and how busy each step is.
"""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.costs import TOO_FEW, bands, fit, overhead, stage_medians, steps
from pareto.analysis.findings import Options
from pareto.analysis.reporting import report
from pareto.analysis.runs.load import load, stages
from pareto.analysis.schema import LINKS, STAGES, TEXT
from pareto.analysis.tables.front import overhead_tables
from pareto.protocol.constants import GOODPUT
from pareto.protocol.errors import UserError
from pareto.remote.link.probe import Reading, Tolerance, judge, judge_rate, judge_rtt
from pareto.remote.link.profile import Direction, Profile
from tests.unit import example_chain
from tests.unit.example_codecs import trials as codecs
from tests.unit.example_run import PAYLOAD_KIB, trials, write

A_S, B = {"tcp": 0.4e-3, "rpc": 1.0e-3}, {"tcp": 76e-9, "rpc": 75e-9}
PROFILE = {"edge_to_server": {"rate_bps": 5e6, "delay_s": 0.2}, "server_to_edge": {}, "bucket": None}
MANIFEST = {"profiles": {"200ms-5mbit": PROFILE}}
LAST = str(len(PAYLOAD_KIB) - 1)


def ruled(noise: float = 0.0, seed: int = 0, **fixed: Any) -> list[dict[str, Any]]:
    """Trials with latency = bound + a + b x bytes + noise, which grows with the bytes and errs upwards."""
    rng = np.random.default_rng(seed)
    rows = trials(**fixed)
    for row in rows:
        nbytes = row["payload_bytes"] + row["result_bytes"]
        cost_s = A_S[row["backend"]] + B[row["backend"]] * nbytes if row["payload_bytes"] else 0.0
        late_s = noise * (1e-4 + 2e-9 * nbytes) * rng.lognormal(0, 1)
        row["latency_s"] = row["latency_bound_s"] + cost_s + late_s
    return rows


def analysed(
    folder: Path, rows: list[dict[str, Any]], manifest: dict[str, Any] | None = None
) -> pd.DataFrame:
    run = write(folder, rows)
    return overhead(load([run]), stages(run), MANIFEST if manifest is None else manifest)


def test_what_was_put_in_is_found(tmp_path: Path) -> None:
    rows = analysed(tmp_path, ruled()).set_index("backend")
    for backend in ("tcp", "rpc"):
        found = rows.loc[backend]
        for end in ("", "_low", "_high"):
            assert found[f"a{end}_s"] == pytest.approx(A_S[backend], rel=1e-6)
            assert found[f"b{end}_s_per_byte"] == pytest.approx(B[backend], rel=1e-6)
        assert found["residual_s"] == pytest.approx(0, abs=1e-12)
        assert (found["points"], found["payloads"]) == (21, len(set(PAYLOAD_KIB)) - 1)


def test_intervals_hold_the_truth_and_tell_the_backends_apart(tmp_path: Path) -> None:
    held = []
    for seed in range(3):
        rows = analysed(tmp_path / str(seed), ruled(0.1, seed)).set_index("backend")
        assert rows.loc["tcp", "a_high_s"] < rows.loc["rpc", "a_low_s"]
        assert rows["residual_s"].between(1e-7, 1e-4).all()
        for backend, found in rows.iterrows():
            # The noise errs upwards: its median belongs to what the backend costs.
            late_s, late_per_byte = 0.1 * 1e-4, 0.1 * 2e-9
            held.append(found["a_low_s"] <= A_S[str(backend)] + late_s <= found["a_high_s"])
            b = B[str(backend)] + late_per_byte
            held.append(found["b_low_s_per_byte"] <= b <= found["b_high_s_per_byte"])
    assert sum(held) >= 0.85 * len(held)


def test_with_a_codec_the_bytes_are_those_that_were_sent() -> None:
    data = codecs(codecs=("none", "int8"), rounds=3, noise=0.0)
    rows = overhead(data, pd.DataFrame(columns=[*STAGES.columns, "setup"]), {}).set_index("codec")
    # In these trials the bound leaves the link out: 8 bits a byte at 10 Mbit/s and TCP's headers; and 10 ms of delay.
    per_byte = 8 / 10e6 / GOODPUT
    assert rows.loc["none", "b_s_per_byte"] == pytest.approx(per_byte)
    assert rows.loc["int8", "b_s_per_byte"] == pytest.approx(per_byte)
    assert rows["a_s"].to_list() == pytest.approx([0.010, 0.010], rel=0.01)


def test_one_outlier_decides_nothing_and_no_cost_is_less_than_nothing(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """A line that falls, and one that begins below 0: noise, not a byte or a request that saves time."""
    nbytes = np.array([5, 30, 50, 75, 100, 250, 300, 600, 800, 1600]) * 1e3
    bent = fit(nbytes, 1e-3 + 70e-9 * nbytes + np.where(nbytes == 1.6e6, 0.05, 0))
    assert (bent.a_s, bent.b_s_per_byte) == pytest.approx((1e-3, 70e-9))
    late_s = 1e-3 * np.array([1, 3, 2, 5, 2, 4, 1, 3, 2, 1])
    falling = fit(nbytes, late_s)
    assert fit(nbytes, late_s) == falling, "the same input, the same result"
    assert (falling.a_s, falling.b_s_per_byte, falling.b_low_s_per_byte) == (2e-3, 0, 0)
    beneath = fit(nbytes, 70e-9 * nbytes - 5e-3)
    assert (beneath.a_s, beneath.a_low_s, beneath.b_s_per_byte) == (0, 0, pytest.approx(70e-9))
    rows = ruled(backends=("tcp",))
    for row in rows:
        row["latency_s"] = row["latency_bound_s"] + 5e-3 - 1e-9 * row["payload_bytes"]
    made = analysed(tmp_path, rows)
    assert math.isnan(made.loc[0, "b_s_per_byte"]) and made.loc[0, "a_s"] > 0
    text = printed(made)
    assert (made.loc[0, "note"], text[text.index("tcp") :]) == snapshot


@pytest.mark.parametrize(
    ("points", "payloads", "has_line", "has_interval"),
    [([0, 3, 4], 2, False, False), ([0, 1, 2, 5], 4, True, False), ([0, 1, 2, 5, 6], 4, True, True)],
)
def test_few_payloads(
    tmp_path: Path, points: list[int], payloads: int, has_line: bool, has_interval: bool
) -> None:
    chosen = [row for row in ruled(backends=("tcp",)) if row["point"] in points]
    (row,) = analysed(tmp_path, chosen).to_dict("records")
    assert row["payloads"] == payloads
    assert (not math.isnan(row["a_s"]), not math.isnan(row["b_low_s_per_byte"])) == (has_line, has_interval)
    assert (row["note"] == TOO_FEW) != has_line
    assert 0.9 < row["latency_efficiency"] < 1, "needs no line"


def test_only_valid_trials_that_cross_count(tmp_path: Path) -> None:
    rows = ruled(0.5)
    clean = analysed(tmp_path / "clean", [row for row in rows if row["round"] == 2 or row["point"] != 3])
    for row in rows:
        if row["round"] < 2 and row["point"] == 3:
            row |= {"status": "invalid", "latency_s": 99.0, "reason": "link off"}
        if not row["payload_bytes"]:
            row["latency_s"] = 99.0
    pd.testing.assert_frame_equal(analysed(tmp_path / "marked", rows), clean)


def test_nothing_crosses_or_was_not_measured(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    run = write(tmp_path / "run", [row for row in ruled() if str(row["point"]) == LAST])
    made = report(run, options=Options(figures="none"))
    assert made.overhead.empty
    assert not (run / "overhead.csv").exists()
    assert made.verdicts == snapshot
    for unknown in ("result_bytes", "latency_bound_s"):
        rows = [row | {unknown: ""} for row in ruled(backends=("tcp",))]
        (row,) = analysed(tmp_path / unknown, rows).to_dict("records")
        assert (row["note"], math.isnan(row["a_s"])) == (TOO_FEW, True)


def test_tcps_own_headers_are_those_of_each_profiles_rate(tmp_path: Path) -> None:
    """A backend that loses what headers cost, and nothing else, is at all of TCP's goodput."""
    rates_bps = {"slow": 5e6, "fast": 50e6, "unknown": None}
    rows = [row for netem in rates_bps for row in trials(backends=("tcp",), netem=netem)]
    for row in rows:
        rate_bps = rates_bps[row["netem"]] or 5e6
        row["latency_s"] = row["latency_bound_s"] + 8 * row["payload_bytes"] / rate_bps * (1 / GOODPUT - 1)
    profiles = {netem: {"edge_to_server": {"rate_bps": rate_bps}} for netem, rate_bps in rates_bps.items()}
    found = analysed(tmp_path, rows, {"profiles": profiles}).set_index("netem")
    for netem, rate_bps in (("slow", 5e6), ("fast", 50e6)):
        assert found.loc[netem, "headers_s_per_byte"] == pytest.approx(8 / rate_bps * (1 / GOODPUT - 1))
        assert found.loc[netem, "b_s_per_byte"] == pytest.approx(found.loc[netem, "headers_s_per_byte"])
        assert found.loc[netem, "goodput_efficiency"] == pytest.approx(1)
    assert found.loc["slow", "latency_efficiency"] < 0.99
    assert math.isnan(found.loc["unknown", "headers_s_per_byte"])


def both(way: dict[str, Any]) -> dict[str, Any]:
    return {"profiles": {"200ms-5mbit": PROFILE | {"edge_to_server": way}}}


def test_goodput_is_left_out_where_the_rate_is_not_one_number(tmp_path: Path) -> None:
    manifests: list[dict[str, Any]] = [
        {},
        {"profiles": []},
        {"profiles": {"200ms-5mbit": PROFILE | {"bucket": {"burst_bytes": 32768}}}},
        both({"rate_bps": 5e6, "trace": {"name": "train"}}),
        both({"rate_bps": 5e6, "reorder": 0.1}),
        both({"delay_s": 0.2}),
    ]
    run = write(tmp_path, ruled())
    for manifest in manifests:
        rows = overhead(load([run]), stages(run), manifest)
        assert rows[["goodput_efficiency", "headers_s_per_byte"]].isna().all(axis=None)
        assert rows["latency_efficiency"].notna().all()
        assert "TCP" not in printed(rows)


def test_a_chain_by_the_bytes_on_all_links(tmp_path: Path) -> None:
    splits = [(3, 5), (5, 5), (1, 12), (0, 2), (2, 19), (3, 21), (21, 21)]
    rows, staged = example_chain.trials(splits, backends=["tcp"])
    sent = {"+".join(map(str, cuts)): sum(int(1024 * PAYLOAD_KIB[cut]) for cut in cuts) for cuts in splits}
    for row in rows:
        nbytes = sent[row["point"]] + 2 * example_chain.RESULT_BYTES
        row["latency_s"] = row["latency_bound_s"] + 1e-3 + 30e-9 * nbytes
    run = example_chain.write(tmp_path, rows, staged)
    manifest = {"profiles": {"wifi": PROFILE}}
    (found,) = overhead(load([run]), stages(run), manifest).to_dict("records")
    assert found["points"] == 5, "those that cross both links"
    assert found["a_s"] == pytest.approx(1e-3, rel=1e-3)
    assert found["b_s_per_byte"] == pytest.approx(30e-9, rel=1e-3)
    assert math.isnan(found["goodput_efficiency"])


def test_depths_and_labels_are_apart(tmp_path: Path) -> None:
    rows = ruled(backends=("tcp",))
    labelled = [
        row | {"backend": f"tcp:{name}", "in_flight_asked": depth} for row in rows for name in "ba"
        for depth in ("", "4")
    ]  # fmt: skip
    found = analysed(tmp_path, labelled)
    assert list(zip(found["in_flight_asked"], found["backend"], strict=True)) == [
        ("4", "tcp:a"), ("4", "tcp:b"), ("auto", "tcp:a"), ("auto", "tcp:b"),
    ]  # fmt: skip
    text = printed(found)
    assert text.count("4 in flight") == 1
    meaning = printed(found[found["in_flight_asked"] == "auto"]).splitlines()[-4:]
    assert text.count(meaning[0]) == 1, "what the columns mean is told once for all tables"


def printed(rows: pd.DataFrame) -> str:
    console = Console(width=80, color_system=None, record=True, file=io.StringIO())
    console.print(*overhead_tables(rows))
    return console.export_text()


def test_the_table_fits_80_columns(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    long = [row | {"backend": f"{row['backend']}:{'abcdefgh' * 2}"} for row in ruled(0.5)]
    for folder, rows in (("plain", ruled(0.5)), ("long", long)):
        text = printed(analysed(tmp_path / folder, rows))
        assert max(map(len, text.splitlines())) <= 80
        lines = [line.split() for line in text.splitlines()]
        tcp, rpc = (
            next(line for line in lines if line[:1] and line[0].startswith(it)) for it in ("tcp", "rpc")
        )
        assert lines.index(tcp) < lines.index(rpc)
        assert (tcp[1], float(tcp[2]), tcp[3].count("..")) == ("21", pytest.approx(0.45, abs=0.2), 1)
        assert "-:" not in text
    assert printed(analysed(tmp_path / "few", ruled()[:2])) == snapshot, "too few payloads"


WIFI = Profile("wifi", Direction(0.001, 15e6), Direction(0.001, 30e6))
SLOW = Profile("slow", Direction(0.2, 5e6))
SHAKY = Profile("shaky", Direction(0.05, 20e6, jitter_s=0.01), Direction(0.05, jitter_s=0.005))
LOSSY = Profile("lossy", Direction(0.01, 8e6, loss=0.01))
TOLERANCE = Tolerance(0.1, 0.002, 0.1)
UDP_SHARE = 1472 / 1514


def manifest(*profiles: Profile, **sweep: Any) -> dict[str, Any]:
    records = {profile.name: profile.record() for profile in profiles}
    return {
        "profiles": records,
        "sweep": {"tolerance": 0.1, "rtt_tolerance": 0.1, "rtt_floor": 0.002} | sweep,
        "testbed": "two hosts",
    }


def probe(
    profile: Profile, *, rtt: float = 1.0, rate: float = 1.0, run: str = "run", **more: Any
) -> dict[str, Any]:
    """A probe of a link that is off by these factors, with the harness's own verdict."""
    share = GOODPUT if profile.tcp_fills else UDP_SHARE
    out, back = (None if way.rate_bps is None else rate * share * way.rate_bps for way in profile.directions)
    reading = Reading(rtt * profile.rtt_s, out, back, payload_share=share)
    fault = judge(profile, reading, TOLERANCE)
    return {column: "" if column in TEXT else math.nan for column in LINKS.columns} | {
        "run": run, "netem": profile.name, "link": "edge-server", "verdict": "off" if fault else "ok", "reason": fault,
        "asked_rtt_s": profile.rtt_s, "asked_rate_bps": profile.edge_to_server.rate_bps or math.nan,
        "asked_rate_back_bps": profile.server_to_edge.rate_bps or math.nan,
        "rtt_s": reading.rtt_s, "rate_bps": out or math.nan, "rate_back_bps": back or math.nan,
    } | more  # fmt: skip


def probes(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(rows)


@pytest.mark.parametrize("profile", [WIFI, SLOW, SHAKY, LOSSY], ids=lambda profile: profile.name)
def test_the_band_is_what_the_verdict_allows(profile: Profile) -> None:
    factors = np.linspace(0.7, 1.3, 61)
    made = bands(probes(*(probe(profile, rtt=by, rate=by) for by in factors)), manifest(profile))
    share = GOODPUT if profile.tcp_fills else UDP_SHARE
    for row in made.to_dict("records"):
        within = row["rtt_least_s"] <= row["rtt_s"] <= row["rtt_most_s"]
        assert within == (not judge_rtt(profile, row["rtt_s"], TOLERANCE))
        within = row["rate_least_bps"] <= row["rate_bps"] <= row["rate_most_bps"]
        assert within == (not judge_rate("", profile.edge_to_server, row["rate_bps"], share, TOLERANCE))
    assert made["rate_back_most_bps"].isna().all() == (profile.server_to_edge.rate_bps is None)


def test_what_is_not_known_has_no_band() -> None:
    untold = bands(probes(probe(WIFI)), {})
    assert untold[["rtt_least_s", "rtt_most_s", "rate_least_bps"]].isna().all(axis=None)
    traced = bands(probes(probe(WIFI, position_s=3.0)), manifest(WIFI))
    assert traced[["rtt_most_s", "rate_most_bps", "rate_back_least_bps"]].isna().all(axis=None)
    assert traced["rate_payload_bps"].item() == pytest.approx(GOODPUT * 15e6)
    slow_start = bands(probes(probe(WIFI)), manifest(WIFI, slow_start_after_idle=True))
    assert slow_start["rate_payload_bps"].item() == pytest.approx(UDP_SHARE * 15e6)


def test_steps_of_a_chain() -> None:
    """The bottleneck is busy all the time, and the next host's bubble is the rest of it."""
    rows, staged = example_chain.analysed([(3, 12), (3, 21), (5, 5)])
    found = steps(rows[rows["backend"] == "tcp"], staged).sort_values(["point", "place"])
    by_point = {point: group.set_index("step") for point, group in found.groupby("point")}
    assert list(by_point["3+12"].index) == [
        "edge",
        *(f"edge-middle1 {way}" for way in ("out", "back")),
        "middle1",
        *(f"middle1-server {way}" for way in ("out", "back")),
        "server",
    ]
    assert list(by_point["3+21"].index)[-1] == "middle1", "no more hosts take part"
    for _, row in rows[rows["backend"] == "tcp"].iterrows():
        of_point = by_point[row["point"]]
        assert of_point["share"].idxmax() == row["bound_by"]
        assert of_point.loc[row["bound_by"], "share"] == pytest.approx(1, abs=0.03)
        hosts = of_point[of_point["idle_s"].notna()]
        np.testing.assert_allclose(hosts["idle_s"], (1 - hosts["share"]) / row["throughput_ips"], atol=1e-6)
    eight = steps(rows.assign(batch_size=8), staged.assign(batch_size=8))
    links = found["idle_s"].isna().to_numpy()
    assert links.any(), "their share counts requests, not images"
    again = eight[eight["backend"] == "tcp"].sort_values(["point", "place"])
    np.testing.assert_allclose(again["share"].to_numpy()[links], found["share"].to_numpy()[links] / 8)


def test_the_stages_of_a_chain(tmp_path: Path) -> None:
    rows, staged = example_chain.trials([(3, 10), (3, 21)], backends=["tcp"])
    staged[0]["throttled"] = "0x4"
    run = example_chain.write(tmp_path, rows, staged)
    frame = stages(run)
    assert list(frame.columns) == [*STAGES.columns, "setup"]
    assert frame["point"].tolist() == ["3+10"] * 3 + ["3+21"] * 2
    assert frame["host"].tolist() == ["edge", "middle1", "server", "edge", "middle1"]
    assert frame["position"].dtype == np.int64
    assert frame["throttled"][0] == "0x4"
    assert frame["payload_bytes"].isna().tolist() == [False, False, True, False, True], (
        "the last sends nothing"
    )
    assert frame["utilization"].between(0, 1).all()
    trials_of = load([run])
    trials_of.loc[trials_of["point"] == "3+21", "status"] = "invalid"
    medians = stage_medians(frame, trials_of)
    assert medians["host"].tolist() == ["edge", "middle1", "server"], "of valid trials alone"
    assert medians["utilization"].tolist() == frame["utilization"].tolist()[:3]


def test_a_run_without_stages_has_none(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    assert stages(write(tmp_path, trials(rounds=1))).empty
    (tmp_path / "stages.csv").write_text("run,model\n")
    with pytest.raises(UserError) as refused:
        stages(tmp_path)
    assert str(refused.value) == snapshot
