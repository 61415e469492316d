"""What each point sends and where it computes, drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from analysis import costs
from analysis.figures.payload_figure import payload_data, payload_drawing
from analysis.figures.style import codec_looks
from analysis.fronts.front import front
from analysis.points import order
from analysis.runs.load import load
from analysis.runs.load import stages as load_stages
from tests.unit import drawn, example_chain
from tests.unit.example_codecs import trials as codecs
from tests.unit.example_run import PAYLOAD_KIB, trials, write

NO_STAGES = pd.DataFrame()


def fronted(folder: Path, rows: list[dict[str, Any]]) -> pd.DataFrame:
    return front(load(write(folder, rows)), resamples=20)


def told(points: list[dict[str, Any]]) -> dict[str, Any]:
    """A manifest that describes the model's points."""
    return {"models": {"mobilenetv2": {"points": points}}, "testbed": "two hosts"}


@pytest.mark.parametrize("width", ["page", "column"])
def test_dots_of_the_payload_and_the_edges_share(tmp_path: Path, width: str) -> None:
    rows = fronted(tmp_path, trials())
    found = payload_drawing(rows, NO_STAGES, {"testbed": "two hosts", "pareto": "9.8.7"})
    assert found is not None
    assert found.kind == "payload"
    assert "two hosts. Made by pareto 9.8.7" in found.caption
    assert found.data["payload_bytes"].tolist() == [int(1024 * kib) for kib in PAYLOAD_KIB]
    assert found.data["input_bytes"].eq(588 * 1024).all()
    figure = drawn.rendered(found.draw(width))
    above, below = figure.axes
    assert above.get_yscale() == "log"
    dots = drawn.marks(above, marker="o")
    assert dots[:21, 1] == pytest.approx(PAYLOAD_KIB[:-1], abs=0.001)
    assert dots[:21, 0] == pytest.approx(range(21))
    assert not above.patches, "a bar on a logarithmic axis would have no length"
    assert below.get_ylim()[0] == 0, "a share is never below 0"
    low, high = above.get_ylim()
    assert low < min(PAYLOAD_KIB[:-1])
    assert max(PAYLOAD_KIB) < high
    assert {588.0} < {float(line.get_ydata()[0]) for line in above.get_lines()}, "the input"
    shares = drawn.marks(below, marker="o")[:, 1]
    of_tcp, of_rpc = (
        rows[rows["backend"].isin([backend, ""])].sort_values("point", key=order).set_index("point")
        for backend in ("tcp", "rpc")
    )
    edge_s, server_s = (
        (of_tcp[column].fillna(0) + of_rpc[column].fillna(0)) / 2 for column in ("edge_s", "server_s")
    )
    assert shares == pytest.approx((edge_s / (edge_s + server_s)).to_numpy())
    assert (shares[0], shares[-1]) == (0, 1)
    assert drawn.outside(figure) == []
    assert drawn.overlapping(figure) == []
    assert "two hosts" in found.caption


def test_all_its_words(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    found = payload_drawing(fronted(tmp_path, trials()), NO_STAGES, {"testbed": "two hosts"})
    assert found is not None
    assert [drawn.legend(found.draw("page")), drawn.sentences(found.caption)] == snapshot


def test_flops_are_drawn_where_the_manifest_tells_them(tmp_path: Path) -> None:
    rows = fronted(tmp_path, [row for row in trials() if row["point"] in (0, 7, 21)])
    points = [{"payload_bytes": int(1024 * kib), "edge_flops": 100 * n} for n, kib in enumerate(PAYLOAD_KIB)]
    found = payload_drawing(rows, NO_STAGES, told(points))
    assert found is not None
    assert found.data["flops_share"].tolist() == pytest.approx([0, 7 / 21, 1])
    figure = drawn.rendered(found.draw("page"))
    assert drawn.marks(figure.axes[1], marker="D")[:, 1] == pytest.approx([0, 7 / 21, 1])
    assert "FLOPs" in found.caption
    for point in points[:1]:
        del point["edge_flops"]
    older = payload_drawing(rows, NO_STAGES, told(points))
    assert older is not None
    assert older.data["flops_share"].isna().all()
    assert set(drawn.legend(figure)) - set(drawn.legend(older.draw("page"))) == {"FLOPs on the edge"}
    assert "FLOPs" not in older.caption


def test_the_input_is_known_by_the_manifest_too(tmp_path: Path) -> None:
    few = [row | {"batch_size": 4} for row in trials() if row["point"] in (7, 8)]
    rows = fronted(tmp_path, few)
    manifest = told([{"payload_bytes": 602112}, {"payload_bytes": 1605632}])
    assert payload_data(rows, NO_STAGES, manifest)["input_bytes"].eq(4 * 602112).all()
    unknown = payload_drawing(rows, NO_STAGES, {})
    assert unknown is not None
    assert "input" not in drawn.legend(drawn.rendered(unknown.draw("column")))


def test_what_was_not_measured_is_not_known(tmp_path: Path) -> None:
    assert payload_drawing(fronted(tmp_path / "older", trials(payload_bytes="")), NO_STAGES) is None
    no_server = fronted(tmp_path / "server", trials(server_s=""))
    found = payload_drawing(no_server, NO_STAGES)
    assert found is not None
    assert found.data["share"].isna().tolist() == [True] * 21 + [False], "nothing crosses at the last"
    drawn.rendered(found.draw("page"))


def test_a_chain_has_each_link(tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    splits = example_chain.splits(2, (0, 4, 9, 21))
    run = example_chain.write(tmp_path, *example_chain.trials(splits, rounds=2))
    measured = load(run)
    medians = costs.stage_medians(load_stages([run]), measured)
    rows = front(measured, resamples=20)
    found = payload_drawing(rows, medians)
    assert found is not None
    data = found.data.set_index("point")
    for near, far in splits:
        row = data.loc[f"{near}+{far}"]
        assert row["payload1_bytes"] == int(1024 * PAYLOAD_KIB[near])
        assert row["payload2_bytes"] == (0 if near == 21 else int(1024 * PAYLOAD_KIB[far]))
        assert 0 <= row["share1"] <= row["share2"] <= 1
    assert data.loc["21+21", ["share1", "share2"]].tolist() == [1, 1]
    cell = medians[medians["point"] == "4+9"].groupby("host")["compute_s"].mean()
    assert data.loc["4+9", "share2"] == pytest.approx((cell["edge"] + cell["middle1"]) / cell.sum())
    figure = drawn.rendered(found.draw("column"))
    assert drawn.legend(figure) == snapshot
    assert drawn.outside(figure) == []


def test_many_points(tmp_path: Path) -> None:
    run = example_chain.write(
        tmp_path, *example_chain.trials(example_chain.splits(2, range(12)), backends=("tcp",))
    )
    measured = load(run)
    found = payload_drawing(front(measured, resamples=20), costs.stage_medians(load_stages([run]), measured))
    assert found is not None
    assert len(found.data) == 78
    figure = drawn.rendered(found.draw("column"))
    steps = figure.axes[0].get_lines()[0]
    assert steps.get_ydata() == pytest.approx(found.data["payload1_bytes"].to_numpy() / 1024)
    one = payload_drawing(
        fronted(tmp_path / "one", [row for row in trials() if row["point"] == 3]), NO_STAGES
    )
    assert one is not None
    assert drawn.outside(drawn.rendered(one.draw("column"))) == []


def test_what_codecs_send_is_marked() -> None:
    data = codecs(codecs=("none", "int8", "uint4"), rounds=1)
    rows = front(data[(data["codec"] != "uint4") | (data["point"] == "1")])
    found = payload_drawing(rows, NO_STAGES)
    assert found is not None
    assert found.data["wire_bytes_int8"].tolist()[:4] == [150_000, 200_000, 100_000, 25_000]
    assert found.data["wire_bytes_uint4"].dropna().tolist() == [100_000]
    assert "wire_bytes_none" not in found.data
    assert "what each codec sends" in found.caption
    figure = drawn.rendered(found.draw("column"))
    assert {"sent by int8", "sent by uint4"} <= set(drawn.legend(figure))
    looks = codec_looks(rows)
    sent = drawn.marks(figure.axes[0], marker=looks["uint4"].marker)[:, 1]
    assert sent[~np.isnan(sent)].tolist() == [100_000 / 1024]
    assert drawn.outside(figure) == []
