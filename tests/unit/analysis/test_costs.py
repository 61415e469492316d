"""What a backend itself costs, from trials whose cost is known because it was put in; what a probe of a link may read,
by the verdict's own band; the stages of a chain, their medians, and how busy each step is."""

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
from pareto.analysis.tables.report import overhead_tables
from pareto.protocol.constants import GOODPUT
from pareto.protocol.errors import UserError
from pareto.remote.link.probe import Reading, Tolerance, judge, judge_rate, judge_rtt
from pareto.remote.link.profile import Direction, Profile
from tests.unit import example_chain
from tests.unit.example_codecs import trials as codecs
from tests.unit.example_run import PAYLOAD_KIB, loaded, trials, write
from tests.unit.refusals import refusal

A_S, B = {"tcp": 0.4e-3, "rpc": 1.0e-3}, {"tcp": 76e-9, "rpc": 75e-9}
PROFILE = {"edge_to_server": {"rate_bps": 5e6, "delay_s": 0.2}, "server_to_edge": {}, "bucket": None}
MANIFEST = {"profiles": {"200ms-5mbit": PROFILE}}


def ruled(noise: float = 0.0, seed: int = 0, backend: str = "") -> pd.DataFrame:
    """Trials with latency = bound + a + b x bytes + noise, which grows with the bytes and errs upwards."""
    data = loaded(3, ("tcp", "rpc"))
    data = data[data["backend"].eq(backend) | (not backend)]
    nbytes, of = data["payload_bytes"] + data["result_bytes"], data["backend"].astype(object)
    cost_s = (of.map(A_S) + of.map(B) * nbytes).where(data["payload_bytes"] > 0, 0.0)
    late_s = noise * (1e-4 + 2e-9 * nbytes) * np.random.default_rng(seed).lognormal(0, 1, len(data))
    return data.assign(latency_s=data["latency_bound_s"] + cost_s + late_s)


def costs(rows: pd.DataFrame, manifest: dict[str, Any] = MANIFEST) -> pd.DataFrame:
    return overhead(rows, pd.DataFrame(columns=[*STAGES.columns, "setup"]), manifest)


def printed(rows: pd.DataFrame) -> str:
    console = Console(width=80, color_system=None, record=True, file=io.StringIO())
    console.print(*overhead_tables(rows))
    return console.export_text()


def test_what_was_put_in_is_found() -> None:
    rows = costs(ruled()).set_index("backend")
    for backend, a_s in A_S.items():
        of = rows.loc[backend]
        assert [of[f"a{end}_s"] for end in ("", "_low", "_high")] == pytest.approx([a_s] * 3, rel=1e-6)
        per_byte = [of[f"b{end}_s_per_byte"] for end in ("", "_low", "_high")]
        assert per_byte == pytest.approx([B[backend]] * 3, rel=1e-6)
        assert of["residual_s"] == pytest.approx(0, abs=1e-12)
        assert (of["points"], of["payloads"]) == (21, len(set(PAYLOAD_KIB)) - 1)
    # With a codec the bytes are those that were sent. In these trials the bound leaves the link out: 8 bits a byte at
    # 10 Mbit/s and TCP's headers; and 10 ms of delay.
    rows = costs(codecs(codecs=("none", "int8"), rounds=3, noise=0.0), {})
    assert rows["b_s_per_byte"].to_numpy() == pytest.approx(8 / 10e6 / GOODPUT)
    assert rows["a_s"].to_numpy() == pytest.approx(0.010, rel=0.01)


def test_intervals_hold_the_truth_and_tell_the_backends_apart() -> None:
    held = []
    for seed in range(3):
        rows = costs(ruled(0.1, seed)).set_index("backend")
        assert rows.loc["tcp", "a_high_s"] < rows.loc["rpc", "a_low_s"]
        assert rows["residual_s"].between(1e-7, 1e-4).all()
        for backend, found in rows.iterrows():
            # The noise errs upwards: its median belongs to what the backend costs.
            a_s, b = A_S[str(backend)] + 0.1 * 1e-4, B[str(backend)] + 0.1 * 2e-9
            held += [found["a_low_s"] <= a_s <= found["a_high_s"]]
            held += [found["b_low_s_per_byte"] <= b <= found["b_high_s_per_byte"]]
    assert sum(held) >= 0.85 * len(held)


def test_one_outlier_decides_nothing_and_no_cost_is_less_than_nothing(snapshot: SnapshotAssertion) -> None:
    """A line that falls, and one that begins below 0: noise, not a byte or a request that saves time."""
    nbytes = np.array([5, 30, 50, 75, 100, 250, 300, 600, 800, 1600]) * 1e3
    bent = fit(nbytes, 1e-3 + 70e-9 * nbytes + np.where(nbytes == 1.6e6, 0.05, 0))
    assert (bent["a_s"], bent["b_s_per_byte"]) == pytest.approx((1e-3, 70e-9))
    late_s = 1e-3 * np.array([1, 3, 2, 5, 2, 4, 1, 3, 2, 1])
    falling, beneath = fit(nbytes, late_s), fit(nbytes, 70e-9 * nbytes - 5e-3)
    assert fit(nbytes, late_s) == falling, "the same input, the same result"
    assert (falling["a_s"], falling["b_s_per_byte"], falling["b_low_s_per_byte"]) == (2e-3, 0, 0)
    assert (beneath["a_s"], beneath["a_low_s"], beneath["b_s_per_byte"]) == (0, 0, pytest.approx(70e-9))
    rows = ruled(backend="tcp")
    made = costs(rows.assign(latency_s=rows["latency_bound_s"] + 5e-3 - 1e-9 * rows["payload_bytes"]))
    assert math.isnan(made.loc[0, "b_s_per_byte"]) and made.loc[0, "a_s"] > 0
    text = printed(made)
    assert (made.loc[0, "note"], text[text.index("tcp") :]) == snapshot


@pytest.mark.parametrize(
    ("points", "payloads", "has_line", "has_interval"),
    [("034", 2, False, False), ("0125", 4, True, False), ("01256", 4, True, True)],
)
def test_few_payloads(points: str, payloads: int, has_line: bool, has_interval: bool) -> None:
    rows = ruled(backend="tcp")
    rows = rows[rows["point"].isin([*points])]
    (row,) = costs(rows).to_dict("records")
    assert row["payloads"] == payloads
    assert (not math.isnan(row["a_s"]), not math.isnan(row["b_low_s_per_byte"])) == (has_line, has_interval)
    assert (row["note"] == TOO_FEW) != has_line
    assert 0.9 < row["latency_efficiency"] < 1, "needs no line"
    for unknown in ("result_bytes", "latency_bound_s"):
        (row,) = costs(rows.assign(**{unknown: math.nan})).to_dict("records")
        assert (row["note"], math.isnan(row["a_s"])) == (TOO_FEW, True)


def test_only_valid_trials_that_cross_count(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rows = ruled(0.5)
    spoilt, alone = (rows["round"] < 2) & (rows["point"] == "3"), rows["payload_bytes"] == 0
    marked = rows.assign(
        latency_s=rows["latency_s"].mask(spoilt | alone, 99.0), status=rows["status"].mask(spoilt, "invalid")
    )
    pd.testing.assert_frame_equal(costs(marked), costs(rows[~spoilt]))
    run = write(tmp_path / "run", [row for row in trials() if not row["payload_bytes"]])
    made = report(run, options=Options(figures="none"))
    assert made.overhead.empty and not (run / "overhead.csv").exists()
    assert made.verdicts == snapshot


def test_tcps_own_headers_are_those_of_each_profiles_rate() -> None:
    """A backend that loses what headers cost, and nothing else, is at all of TCP's goodput."""
    rates_bps = {"slow": 5e6, "fast": 50e6, "unknown": None}
    data, rows = ruled(backend="tcp"), []
    for netem, rate_bps in rates_bps.items():
        headers_s = 8 * data["payload_bytes"] / (rate_bps or 5e6) * (1 / GOODPUT - 1)
        rows.append(data.assign(netem=netem, latency_s=data["latency_bound_s"] + headers_s))
    profiles = {netem: {"edge_to_server": {"rate_bps": rate_bps}} for netem, rate_bps in rates_bps.items()}
    found = costs(pd.concat(rows), {"profiles": profiles}).set_index("netem")
    per_byte = [8 / rate_bps * (1 / GOODPUT - 1) for rate_bps in (5e6, 50e6)]
    known = found.loc[["slow", "fast"]]
    for of_bytes in ("headers_s_per_byte", "b_s_per_byte"):
        assert known[of_bytes].tolist() == pytest.approx(per_byte)
    assert known["goodput_efficiency"].tolist() == pytest.approx([1, 1])
    assert found.loc["slow", "latency_efficiency"] < 0.99
    assert math.isnan(found.loc["unknown", "headers_s_per_byte"])


@pytest.mark.parametrize(
    "profile",
    [
        None,
        PROFILE | {"bucket": {"burst_bytes": 32768}},
        PROFILE | {"edge_to_server": {"rate_bps": 5e6, "trace": {"name": "train"}}},
        PROFILE | {"edge_to_server": {"rate_bps": 5e6, "reorder": 0.1}},
        PROFILE | {"edge_to_server": {"delay_s": 0.2}},
    ],
)
def test_goodput_is_left_out_where_the_rate_is_not_one_number(profile: dict[str, Any] | None) -> None:
    rows = costs(ruled(), {"profiles": {"200ms-5mbit": profile}} if profile else {})
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
    (found,) = overhead(load([run]), stages(run), {"profiles": {"wifi": PROFILE}}).to_dict("records")
    assert found["points"] == 5, "those that cross both links"
    assert (found["a_s"], found["b_s_per_byte"]) == pytest.approx((1e-3, 30e-9), rel=1e-3)
    assert math.isnan(found["goodput_efficiency"])


def test_the_table_fits_80_columns_and_depths_and_labels_are_apart(snapshot: SnapshotAssertion) -> None:
    rows = ruled(0.5)
    long = printed(costs(rows.assign(backend=rows["backend"].astype("str") + ":" + "abcdefgh" * 2)))
    few = printed(costs(ruled().head(2)))
    own = ruled(backend="tcp")
    each = [(depth, f"tcp:{name}") for depth in ("4", "auto") for name in "ab"]
    found = costs(pd.concat([own.assign(in_flight_asked=depth, backend=name) for depth, name in each[::-1]]))
    assert list(zip(found["in_flight_asked"], found["backend"], strict=True)) == each
    text = printed(found)
    assert max(len(line) for line in (long + few + text).splitlines()) <= 80
    assert text.count("4 in flight") == 1
    assert text.count("latency over its bound") == 1, "what the columns mean is told once for all tables"
    assert [long, few] == snapshot


WIFI = Profile("wifi", Direction(0.001, 15e6), Direction(0.001, 30e6))
SLOW = Profile("slow", Direction(0.2, 5e6))
SHAKY = Profile("shaky", Direction(0.05, 20e6, jitter_s=0.01), Direction(0.05, jitter_s=0.005))
LOSSY = Profile("lossy", Direction(0.01, 8e6, loss=0.01))
TOLERANCE = Tolerance(0.1, 0.002, 0.1)
UDP_SHARE = 1472 / 1514


def manifest(*profiles: Profile, **sweep: Any) -> dict[str, Any]:
    records = {profile.name: profile.record() for profile in profiles}
    allowed = {"tolerance": 0.1, "rtt_tolerance": 0.1, "rtt_floor": 0.002}
    return {"profiles": records, "sweep": allowed | sweep, "testbed": "two hosts"}


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
    rows = [probe(profile, rtt=by, rate=by) for by in np.linspace(0.7, 1.3, 61)]
    made = bands(probes(*rows), manifest(profile))
    share, out = GOODPUT if profile.tcp_fills else UDP_SHARE, profile.edge_to_server
    for row in made.to_dict("records"):
        within = row["rtt_least_s"] <= row["rtt_s"] <= row["rtt_most_s"]
        assert within == (not judge_rtt(profile, row["rtt_s"], TOLERANCE))
        within = row["rate_least_bps"] <= row["rate_bps"] <= row["rate_most_bps"]
        assert within == (not judge_rate("", out, row["rate_bps"], share, TOLERANCE))
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
    rows = rows[rows["backend"] == "tcp"]
    found = steps(rows, staged).sort_values(["point", "place"])
    by_point = {point: group.set_index("step") for point, group in found.groupby("point")}
    links = [f"{link} {way}" for link in ("edge-middle1", "middle1-server") for way in ("out", "back")]
    assert list(by_point["3+12"].index) == ["edge", *links[:2], "middle1", *links[2:], "server"]
    assert list(by_point["3+21"].index)[-1] == "middle1", "no more hosts take part"
    for point, of_point in by_point.items():
        row = rows[rows["point"] == point].iloc[0]
        assert of_point["share"].idxmax() == row["bound_by"]
        assert of_point["share"].max() == pytest.approx(1, abs=0.03)
        hosts = of_point[of_point["idle_s"].notna()]
        np.testing.assert_allclose(hosts["idle_s"], (1 - hosts["share"]) / row["throughput_ips"], atol=1e-6)
    eight = steps(rows.assign(batch_size=8), staged.assign(batch_size=8)).sort_values(["point", "place"])
    of_links = [each["share"].to_numpy()[found["idle_s"].isna().to_numpy()] for each in (eight, found)]
    np.testing.assert_allclose(of_links[0], of_links[1] / 8, err_msg="a link's counts requests, not images")


def test_the_stages_of_a_chain(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    rows, staged = example_chain.trials([(3, 10), (3, 21)], backends=["tcp"])
    staged[0]["throttled"] = "0x4"
    run = example_chain.write(tmp_path, rows, staged)
    frame = stages(run)
    assert list(frame.columns) == [*STAGES.columns, "setup"]
    hosts = [("3+10", "edge"), ("3+10", "middle1"), ("3+10", "server"), ("3+21", "edge"), ("3+21", "middle1")]
    assert list(zip(frame["point"], frame["host"], strict=True)) == hosts
    assert frame["throttled"].tolist() == ["0x4", "", "", "", ""]
    assert frame["payload_bytes"].isna().tolist() == [False, False, True, False, True], (
        "the last sends nothing"
    )
    trials_of = load([run])
    trials_of.loc[trials_of["point"] == "3+21", "status"] = "invalid"
    medians = stage_medians(frame, trials_of)
    assert medians["host"].tolist() == ["edge", "middle1", "server"], "of valid trials alone"
    assert medians["utilization"].tolist() == frame["utilization"].tolist()[:3]
    (run / "stages.csv").write_text("run,model\n")
    assert refusal(UserError, stages, run) == snapshot
    (run / "stages.csv").unlink()
    assert stages(run).empty
