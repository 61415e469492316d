"""What figures draw is what was measured: each mark, bar and line where its figure says it belongs."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from syrupy.assertion import SnapshotAssertion

from pareto.analysis import figures
from pareto.analysis.comparing.paired import ALL, paired
from pareto.analysis.costs import steps
from pareto.analysis.figures import point_figures
from pareto.analysis.figures import reading_figures as reading
from pareto.analysis.figures.drawing import Nothing
from pareto.analysis.figures.point_figures import INTERVAL, RANGE, SIGNIFICANT, paired_data, payload_data
from pareto.analysis.fronts.front import front
from pareto.analysis.runs.load import load
from pareto.analysis.runs.points import NONE, order
from pareto.protocol.errors import UserError
from pareto.remote.link.probe import GOODPUT
from pareto.remote.link.profile import Direction, Profile
from tests.unit import drawn, example_chain
from tests.unit.analysis.figure_runs import Reported, keep_requests, made
from tests.unit.analysis.test_costs import LOSSY, SLOW, WIFI, manifest, probe, probes
from tests.unit.analysis.test_figures import example
from tests.unit.example_codecs import trials as codecs
from tests.unit.example_run import PAYLOAD_KIB, trials, write
from tests.unit.gating import gating

Reports = Callable[[str], Reported]
SOME = (0, 3, 5, 12, 21)


# Where the time of a request goes, and how busy hosts are.


def heights(axes: Axes) -> np.ndarray:
    return np.array([[bar.get_height() for bar in part] for part in axes.containers])


def centres(axes: Axes) -> np.ndarray:
    return np.array([bar.get_x() + bar.get_width() / 2 for bar in axes.containers[0]])


def marks_beneath(axes: Axes) -> list[tuple[str, int]]:
    """The marks of backends and codecs under the bars, and of how many each is."""
    lines = [line for line in axes.lines if set(np.asarray(line.get_ydata()).tolist()) == {-0.03}]
    return [(line.get_marker(), len(line.get_xdata())) for line in lines]


@pytest.mark.parametrize("links", [1, 3])
def test_bars_hold_every_host_and_add_up_to_the_latency(links: int) -> None:
    rows, staged = example_chain.analysed(example_chain.splits(links, (3, 12)))
    figure, _, _ = made(point_figures.attribution, rows=rows, stages=staged)
    hosts = ["edge", *(f"middle{number}" for number in range(1, links)), "server"]
    parts = drawn.legend(figure)
    assert parts[:2] == ["tcp", "rpc"]
    assert [part.split()[0] for part in parts if part.split()[0] in hosts] == hosts
    latencies = [rows.loc[rows["backend"] == backend, "latency_s"] for backend in ("tcp", "rpc")]
    np.testing.assert_allclose(heights(figure.axes[0]).sum(axis=0), 1e3 * pd.concat(latencies), rtol=1e-4)
    unknown = drawn.legend(made(point_figures.attribution, rows=rows)[0])
    assert sum(part.startswith("middle") for part in unknown) == (links > 1), "one part, if times are unknown"


@pytest.mark.parametrize("points", [range(22), SOME])
def test_backends_stand_side_by_side_and_the_lowest_latency_is_named(points: Any) -> None:
    rows, _ = example_chain.analysed(example_chain.splits(1, points))
    (axes,) = drawn.rendered(made(point_figures.attribution, rows=rows)[0]).axes
    named = rows.drop_duplicates("point").sort_values("point", key=order)["point"].tolist()
    assert np.bincount(centres(axes).round().astype(int)).tolist() == [2] * (len(named) - 1) + [1]
    best, (text,) = rows.loc[rows["latency_s"].idxmin()], axes.texts
    assert round(text.xy[0]) == named.index(best["point"])
    assert text.get_text() == f"{1e3 * best['latency_s']:.3g}"
    assert marks_beneath(axes) == [("o", len(named) - 1), ("s", len(named) - 1)]


def test_of_many_bars_those_that_matter_are_drawn() -> None:
    rows, _ = example_chain.analysed(example_chain.splits(2, range(0, 22, 3)))
    assert 2 * rows["point"].nunique() > point_figures.MOST_BARS
    _, caption, data = made(point_figures.attribution, rows=rows)
    wanted = {*rows.loc[rows["on_backend_front"], "point"], "0+0", "0+21", "21+21"}
    assert set(data["point"]) == wanted
    assert f"Shown: {len(wanted)} of {rows['point'].nunique()} points" in caption


def test_codecs_stand_side_by_side_where_they_have_cells_and_their_times_are_parts() -> None:
    data = codecs(codecs=("none", "int8", "uint4"), rounds=1, backends=("tcp", "rpc"))
    data = data[(data["codec"] != "uint4") | (data["point"] == "0")]
    coded = data["codec"].eq("int8") & data["payload_bytes"].gt(0)
    coding = {"encode_s": np.where(coded, 0.004, np.nan), "decode_s": np.where(coded, 0.002, np.nan)}
    figure, _, written = made(point_figures.attribution, rows=front(data.assign(**coding)))
    at, entries = centres(figure.axes[0]), drawn.legend(figure)
    assert np.bincount(at.round().astype(int)).tolist() == [6, 4, 4, 4, 1], "all on the edge once"
    assert [at[at.round() == point].mean() for point in range(5)] == pytest.approx(range(5))
    assert entries[:6] == [
        f"{backend} {codec}" for backend in ("tcp", "rpc") for codec in ("none", "int8", "uint4")
    ]
    assert "no valid trial" not in entries, "a cell that there is not lacks no trial"
    assert {"encode", "decode"} <= {*entries}
    assert len({marker for marker, _ in marks_beneath(figure.axes[0])}) == 6
    of_int8 = written[(written["codec"] == "int8") & (written["backend"] != NONE)]
    assert of_int8[["encode_s", "decode_s"]].drop_duplicates().to_numpy().tolist() == [[0.004, 0.002]]


def test_a_bar_is_as_high_as_the_latency_and_reaches_its_bound() -> None:
    """Parts whose medians do not add up: with a quota of the processor each is often short, and seldom all at once."""
    rows = example().assign(edge_s=0.4 * example()["edge_s"], network_s=0.5 * example()["network_s"])
    axes = made(point_figures.attribution, rows=rows)[0].axes[0]
    np.testing.assert_allclose(sorted(heights(axes).sum(axis=0)), sorted(1e3 * rows["latency_s"]), rtol=1e-6)


def test_how_busy_every_step_is_and_which_sets_the_bound() -> None:
    rows, staged = example_chain.analysed(example_chain.splits(2, SOME))
    staged.loc[(staged["host"] == "server") & (staged["backend"] == "tcp"), "utilization"] = np.nan
    figure, _, _ = made(point_figures.utilization, rows=rows, stages=staged)
    for axes, backend in zip(figure.axes, ("tcp", "rpc"), strict=True):
        points = rows[rows["on_fronts_of"].str.contains(backend) & rows["on_backend_front"]]
        points = points.sort_values("latency_s")
        assert [text.get_text().split("\n")[0] for text in axes.get_xticklabels()] == points["point"].tolist()
        lines = [text.get_text() for text in axes.get_yticklabels()]
        assert lines == ["edge", "edge → middle1", "middle1", "middle1 → server", "server"]
        named = {"edge": "edge", "middle1": "middle1", "edge-middle1 out": "edge → middle1"}
        at = {(patch.get_x(), lines[patch.get_y()]) for patch in axes.patches}
        assert at == {(place, named[step]) for place, step in enumerate(points["bound_by"])}
        texts = {text.get_position(): text.get_text() for text in axes.texts}
        share = steps(points.iloc[:1], staged).set_index("step").loc["edge", "share"]
        assert texts[0.5, 0.5] == f"{100 * share:.0f} %"
        assert (backend == "tcp") == ("not measured" in texts.values()), "not measured is not idle"


def test_a_way_back_that_matters_has_a_line() -> None:
    rows, staged = example_chain.analysed([(3, 12)], bound_by="edge-middle1 back")
    staged.loc[staged["host"] == "edge", "return_s"] = 0.1
    figure, _, _ = made(point_figures.utilization, rows=rows, stages=staged)
    assert "edge ← middle1" in [text.get_text() for text in figure.axes[0].get_yticklabels()]


# What crosses, and where it is computed.


def test_dots_of_the_payload_the_edges_share_and_the_flops(reported: Reports) -> None:
    rows = reported("backends").found.front
    figure, _, data = reported("backends").drawn("payload")
    assert data["payload_bytes"].tolist() == [int(1024 * kib) for kib in PAYLOAD_KIB]
    assert data["input_bytes"].eq(588 * 1024).all()
    above, below = figure.axes
    assert drawn.marks(above, marker="o")[:21, 1] == pytest.approx(PAYLOAD_KIB[:-1], abs=0.001)
    low, high = above.get_ylim()
    assert low < min(PAYLOAD_KIB[:-1]) and max(PAYLOAD_KIB) < high
    assert 588.0 in {float(line.get_ydata()[0]) for line in above.get_lines()}, "the input"
    sides = [rows[rows["backend"].isin([name, NONE])].set_index("point") for name in ("tcp", "rpc")]
    edge_s, server_s = (sum(side[name].fillna(0) for side in sides) for name in ("edge_s", "server_s"))
    shares = drawn.marks(below, marker="o")[:, 1]
    assert shares == pytest.approx((edge_s / (edge_s + server_s))[data["point"]].to_numpy())
    assert (shares[0], shares[-1], below.get_ylim()[0]) == (0, 1, 0)
    assert data["flops_share"].tolist() == pytest.approx(np.arange(22) / 21)
    assert "FLOPs on the edge" in drawn.legend(figure)


def test_what_is_not_known_of_a_payload(reported: Reports) -> None:
    rows = reported("backends").found.front
    few = rows[rows["point"].isin(["7", "8"])].assign(batch_size=4)
    assert "input" not in drawn.legend(made(point_figures.payload, rows=few)[0])
    points: list[dict[str, int]] = [{"payload_bytes": 602112}, {"edge_flops": 1}]
    known = payload_data(few, None, {"models": {"mobilenetv2": {"points": points}}})
    assert known["input_bytes"].eq(4 * 602112).all(), "the manifest knows it, too"
    assert known["flops_share"].isna().all(), "of older runs it knows no FLOPs"
    with pytest.raises(Nothing):
        payload_data(rows.assign(payload_bytes=np.nan))
    shares = payload_data(rows.assign(server_s=np.nan))["share"]
    assert shares.isna().tolist() == [True] * 21 + [False], "nothing crosses at the last"


def test_a_chain_has_each_link(reported: Reports) -> None:
    staged = reported("chain").found.stages
    data = reported("chain").drawn("payload")[2].set_index("point")
    for near, far in example_chain.splits(2, (0, 4, 9, 21)):
        row = data.loc[f"{near}+{far}"]
        assert row["payload1_bytes"] == int(1024 * PAYLOAD_KIB[near])
        assert row["payload2_bytes"] == (0 if near == 21 else int(1024 * PAYLOAD_KIB[far]))
        assert 0 <= row["share1"] <= row["share2"] <= 1
    assert data.loc["21+21", ["share1", "share2"]].tolist() == [1, 1]
    by_backend = staged[staged["point"] == "4+9"].groupby(["host", "backend"])["compute_s"].median()
    cell = by_backend.groupby("host").mean()
    assert data.loc["4+9", "share2"] == pytest.approx((cell["edge"] + cell["middle1"]) / cell.sum())


def test_what_codecs_send_is_marked(slow: pd.DataFrame) -> None:
    rows = slow[(slow["codec"] != "uint4") | (slow["point"] == "1")]
    figure, _, data = made(point_figures.payload, rows=rows)
    assert data["wire_bytes_int8"].tolist()[:4] == [150_000, 200_000, 100_000, 25_000]
    assert data["wire_bytes_uint4"].dropna().tolist() == [100_000]
    assert "wire_bytes_none" not in data
    assert {"sent by int8", "sent by uint4"} <= set(drawn.legend(figure))
    assert 100_000 / 1024 in drawn.marks(figure.axes[0])[:, 1]


# One backend, codec or engine against another.


def test_every_pair_in_order_with_its_interval(reported: Reports) -> None:
    compared = reported("backends").found.paired
    points = compared[compared["point"] != ALL].set_index("point")
    figure, _, data = reported("backends").drawn("paired", "column")
    assert data["point"].tolist() == [str(point) for point in range(21)]
    kept = ["latency_difference_s", "latency_low_s", "latency_high_s", "throughput_high_percent"]
    pd.testing.assert_frame_equal(data.set_index("point")[kept], points.loc[data["point"], kept])
    above, below = figure.axes
    upper, lower = drawn.marks(above, marker="o"), drawn.marks(below, marker="o")
    assert upper[:, 0].tolist() == lower[:, 0].tolist() == list(range(21))
    scale = 1e3 if "(ms)" in above.get_ylabel() else 1
    assert upper[:, 1] == pytest.approx(scale * data["latency_difference_s"])
    assert lower[:, 1] == pytest.approx(data["throughput_difference_percent"])
    assert above.get_ylim()[0] < 0 < above.get_ylim()[1], "zero is there to compare with"
    assert data["latency_mark"].eq(SIGNIFICANT).tolist() == data["latency_significant"].tolist()
    assert set(data["throughput_mark"]) == {INTERVAL}


def test_few_rounds_have_a_range_and_a_test_only_where_it_could_find_something(reported: Reports) -> None:
    measured = reported("backends").found.trials[lambda trials: trials["round"] < 3]
    assert len(drawn.marks(figures.paired(measured).axes[0], filled=True, marker="o")) == 0
    data = paired_data(paired(measured), measured).set_index("point")
    assert set(data["latency_mark"]) == set(data["throughput_mark"]) == {RANGE}
    both = measured.pivot(index=["round", "point"], columns="backend", values=["latency_s", "throughput_ips"])
    of_7 = both.xs("7", level="point")
    latency_s = of_7["latency_s"]["rpc"] - of_7["latency_s"]["tcp"]
    percent = 100 * (of_7["throughput_ips"]["rpc"] / of_7["throughput_ips"]["tcp"] - 1)
    ends = data.loc["7", ["latency_low_s", "latency_high_s", "throughput_low_percent"]]
    assert ends.tolist() == pytest.approx([latency_s.min(), latency_s.max(), percent.min()])
    data, compared = reported("few").drawn("paired")[2], reported("few").found.paired
    told = compared[compared["point"] != ALL].set_index(["first", "other", "point"])["latency_significant"]
    marks = data.set_index(["first", "other", "point"])["latency_mark"]
    assert marks.to_dict() == {at: SIGNIFICANT if told[at] else INTERVAL for at in marks.index}


def test_three_backends_make_three_pairs_and_what_does_not_count_is_told(reported: Reports) -> None:
    figure, caption, data = reported("few").drawn("paired", "column")
    assert drawn.legend(figure)[:3] == ["tcp:b − tcp:a", "rpc − tcp:a", "rpc − tcp:b"]  # noqa: RUF001
    places = [drawn.marks(figure.axes[0], filled=filled)[:, 0] for filled in (False, True)]
    assert len(np.unique(np.concatenate(places))) == 6, "none hides another"
    assert "1 of 90 trials" in caption
    assert any("1 of 90 trials" in text for text in drawn.texts(figure))
    assert data["latency_high_s"].max() < 5


def test_nothing_to_compare_and_no_throughput(reported: Reports) -> None:
    measured = reported("backends").found.trials[lambda trials: trials["point"].isin(["3", "7"])]
    apart = (measured["backend"] == "rpc") == (measured["round"] % 2 == 1)
    for rows in (measured[measured["backend"] == "tcp"], measured[apart], measured.assign(status="failed")):
        with pytest.raises(Nothing):
            paired_data(paired(rows), rows)
    dry = measured.assign(throughput_ips=np.nan)
    assert paired_data(paired(dry), dry)["throughput_low_percent"].isna().all()


def test_codecs_and_engines_against_their_base_in_percent(reported: Reports) -> None:
    figure, _, data = reported("codecs").drawn("paired-codecs-small-slow")
    assert len(data) == 4 * 4
    assert set(data["latency_difference_percent"]) <= set(drawn.marks(figure.axes[0])[:, 1])
    assert "(%)" in figure.axes[0].get_ylabel()
    engines, caption, data = reported("engines").drawn("paired-engines")
    assert (len(data), data["point_name"].ne("").all()) == (2 * 5, True)
    assert caption.startswith("Engines against eager")
    assert {"compile", "onnx"} <= set(drawn.legend(engines))


# How often a request takes long.


def test_lines_are_the_share_of_requests_that_take_longer(reported: Reports) -> None:
    figure, _, data = reported("backends").drawn("tail")
    assert set(data["phase"]) == {reading.ALONE, reading.LOADED}
    assert set(data.loc[data["percentile"] != "", "percentile"]) == {"p50", "p90", "p95", "p99"}
    # Point 20 over tcp: of seven rounds; what came before all were on their way, at 0.1 ms, is none of the load's.
    own = data[(data["point"] == "20") & (data["backend"] == "tcp")]
    alone, loaded = (own[own["phase"] == of_phase] for of_phase in (reading.ALONE, reading.LOADED))
    assert own["requests"].eq(700).all()
    np.testing.assert_allclose(10 * alone["latency_s"], loaded["latency_s"])
    at = np.log(alone["latency_s"].to_numpy())
    normal = [0.5 * math.erfc((each + 3) / 0.3 / math.sqrt(2)) for each in at]
    np.testing.assert_allclose(alone["share_slower"], normal, atol=0.05)
    assert (alone["latency_s"].diff().dropna() >= 0).all()
    assert [axes.get_yscale() for axes in figure.axes] == ["log", "log"]
    # Where nothing crosses the requests under every backend count, in a line of its own.
    own = data[(data["point"] == "21") & (data["phase"] == reading.ALONE)]
    assert own["backend"].eq(NONE).all() and own["requests"].eq(2 * 700).all()
    assert any("nothing crosses" in text for text in drawn.legend(figure))


def test_requests_that_are_few_missing_or_cannot_be_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [row for row in trials(rounds=2, backends=("tcp",)) if row["point"] == 7]
    run = write(tmp_path / "run", rows)
    measured = load(run)
    points = front(measured)
    with pytest.raises(UserError):
        figures.tail(measured, run)
    for row in rows:
        keep_requests(run, row, np.linspace(0.1, 0.2, 45))
    data = reading.tail_data(points, measured, [run])
    assert set(data["percentile"]) == {"", "p50", "p90"}, "a percentile that cannot be stated has no mark"
    for file in (run / "requests").iterdir():
        file.write_bytes(b"nothing")
    with pytest.raises(Nothing):  # it costs this figure alone
        made(reading.tail, rows=points, trials=measured, runs=[run])
    assert "not a file of requests" in caplog.text


def test_each_cell_has_one_line_and_no_codec_comes_first(slow: pd.DataFrame) -> None:
    chosen = reading.chosen_points(slow)
    assert not chosen.duplicated(["backend", "point", "codec_at_work"]).any()
    assert chosen.loc[chosen["backend"] != NONE, "codec"].iloc[0] == "none"


# Probes of the link over what was asked: the band is the verdict's own.


def linked(rows: pd.DataFrame, width: str = "page", *profiles: Profile) -> tuple[Any, str, pd.DataFrame]:
    ((_, probed),) = reading.parts(rows, {"run": manifest(*(profiles or [SLOW]))})
    figure, caption, data = made(reading.link, width, probes=probed)
    return drawn.rendered(figure), caption, data


@pytest.mark.parametrize("width", gating(["page", "column"], "column"))
def test_asked_line_band_and_dots(width: str, snapshot: SnapshotAssertion) -> None:
    rows = probes(probe(WIFI), probe(SLOW), probe(WIFI, rtt=1.5), probe(SLOW), probe(WIFI, rate=1.02))
    figure, caption, _ = linked(rows, width, WIFI, SLOW)
    slow_rtt, _, slow_back, rtt, out, back = figure.axes  # in the order of every table
    dots = drawn.marks(rtt, marker="o")
    assert dots[:, 0].tolist() == [1, 3, 5], "in the order of the run, beside the other profile's"
    assert dots[:, 1] == pytest.approx([2, 3, 2])
    for axes, rate in ((out, 15), (back, 30)):
        assert drawn.marks(axes, marker="o")[:, 1] == pytest.approx(np.array([1, 1, 1.02]) * rate * GOODPUT)
    (band,) = slow_rtt.patches
    edges = band.get_extents().transformed(slow_rtt.transData.inverted()).intervaly
    assert edges == pytest.approx([180, 220])
    assert [line.get_ydata()[0] for line in slow_rtt.get_lines() if line.get_marker() == "None"] == [200]
    assert not slow_back.axison and not slow_back.texts, "none was asked"
    assert drawn.outside(figure) == drawn.overlapping(figure) == []
    heads = [axes.get_title(loc="left") for axes in figure.axes]
    assert [drawn.legend(figure), heads, drawn.sentences(caption)] == snapshot


def test_a_probe_that_is_off_is_marked_where_it_is_and_does_not_flatten_the_others() -> None:
    rows = probes(probe(SLOW), probe(SLOW, rtt=1.15), probe(SLOW, rate=0.85), probe(SLOW))
    assert rows["verdict"].tolist() == ["ok", "off", "off", "ok"]
    figure, _, _ = linked(rows, "column")
    rtt, out = figure.axes
    assert drawn.marks(rtt, marker="X").tolist() == [[2, pytest.approx(230)]]
    assert drawn.marks(rtt, marker="o")[:, 0].tolist() == [1, 3, 4]
    assert drawn.marks(out, marker="X")[:, 0].tolist() == [3]
    assert any("2 of 4" in text for text in drawn.texts(figure))
    lost = probe(SLOW) | {"rtt_s": math.nan, "verdict": "off", "reason": "no echo came back"}
    figure, _, _ = linked(probes(probe(SLOW), probe(SLOW, rtt=30), probe(SLOW, rate=0.01), lost))
    rtt, out = figure.axes
    assert rtt.get_ylim()[1] < 300
    assert drawn.marks(rtt, marker="^").tolist() == [[2, rtt.get_ylim()[1]]]
    assert drawn.marks(out, marker="v").tolist() == [[3, out.get_ylim()[0]]]
    assert drawn.marks(rtt, marker="X").tolist() == [[4, rtt.get_ylim()[0]]], "no echo: nowhere, and off"
    assert {"off", "beyond the panel"} <= {*drawn.legend(figure)}


def test_many_probes_are_thinned_and_runs_and_many_profiles_have_drawings_of_their_own() -> None:
    count, rows_most = 2 * reading.MOST_DOTS + 10, reading.MOST_ROWS
    rows = pd.concat([probes(probe(SLOW))] * count + [probes(probe(SLOW, rtt=1.15))] * 3, ignore_index=True)
    rtt = linked(rows)[0].axes[0]
    assert reading.MOST_DOTS / 2 < len(drawn.marks(rtt, marker="o")) <= reading.MOST_DOTS
    assert len(drawn.marks(rtt, marker="X")) == 3
    profiles = [Profile(f"p{number}", Direction(0.01 * number, 1e6)) for number in range(1, rows_most + 2)]
    rows = probes(*(probe(profile) for profile in profiles), probe(WIFI, run="other"))
    found = list(reading.parts(rows, {"run": manifest(*profiles)}))
    assert [(name, len(probed)) for name, probed in found] == [
        (("run", "1"), 6),
        (("run", "2"), 1),
        (("other",), 1),
    ]
    assert found[1][1]["probe"].tolist() == [rows_most + 1], "its number in the run"
    assert found[2][1]["rtt_most_s"].isna().all(), "its manifest is not there"
    assert "tolerance" not in drawn.legend(made(reading.link, probes=found[2][1])[0])
    assert [*reading.parts(pd.DataFrame(), {}), *reading.parts(rows.iloc[:0], {})] == []


def test_a_chain_names_its_links_and_a_trace_has_no_band(snapshot: SnapshotAssertion) -> None:
    rows = probes(
        probe(WIFI, link="edge-middle1"), probe(SLOW, link="middle1-server"),
        *(probe(LOSSY, position_s=float(at), rtt=1 + at / 10, loss=0.02, asked_loss=0.01) for at in range(4)),
    )  # fmt: skip
    figure, caption, _ = linked(rows, "page", WIFI, SLOW, LOSSY)
    for link in ("edge-middle1", "middle1-server"):
        assert any(link in text for text in drawn.texts(figure))
    assert not figure.axes[0].patches, "lossy is the first of the profiles"
    assert drawn.sentences(caption) == snapshot
