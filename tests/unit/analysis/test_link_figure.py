"""Every probe over what was asked: the band is the verdict's own, and what is off is where it belongs."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from analysis.figures.link_figure import (
    MOST_DOTS,
    MOST_ROWS,
    link_asked_data,
    link_asked_drawings,
    link_asked_figure,
)
from pareto.link.probe import GOODPUT
from pareto.link.profile import Direction, Profile
from tests.unit import drawn
from tests.unit.analysis.test_costs import LOSSY, SLOW, WIFI, manifest, probe, probes


@pytest.mark.parametrize("width", ["page", "column"])
def test_asked_line_band_and_dots(width: str) -> None:
    rows = probes(probe(WIFI), probe(SLOW), probe(WIFI, rtt=1.5), probe(SLOW), probe(WIFI, rate=1.02))
    (found,) = link_asked_drawings(rows, {"run": manifest(WIFI, SLOW)})
    assert (found.kind, found.name) == ("link-asked", ())
    figure = drawn.rendered(found.draw(width))
    slow_rtt, _, slow_back, rtt, out, back = figure.axes  # in the order of every table
    dots = drawn.marks(rtt, marker="o")
    assert dots[:, 0].tolist() == [1, 3, 5], "in the order of the run, beside the other profile's"
    assert dots[:, 1] == pytest.approx([2, 3, 2])
    assert drawn.marks(out, marker="o")[:, 1] == pytest.approx(np.array([1, 1, 1.02]) * 15 * GOODPUT)
    assert drawn.marks(back, marker="o")[:, 1] == pytest.approx(np.array([1, 1, 1.02]) * 30 * GOODPUT)
    (band,) = slow_rtt.patches
    assert band.get_extents().transformed(slow_rtt.transData.inverted()).intervaly == pytest.approx(
        [180, 220]
    )
    assert [line.get_ydata()[0] for line in slow_rtt.get_lines() if line.get_marker() == "None"] == [200]
    assert not slow_back.axison and not slow_back.texts, "none was asked"
    assert drawn.outside(figure) == []
    assert drawn.overlapping(figure) == []
    assert "two hosts" in found.caption


def test_its_caption_says_what_made_the_run() -> None:
    told = {**manifest(SLOW), "pareto": "9.8.7"}
    (found,) = link_asked_drawings(probes(probe(SLOW)), {"run": told})
    assert "Made by pareto 9.8.7" in found.caption


def test_all_its_words(snapshot: SnapshotAssertion) -> None:
    rows = probes(probe(WIFI), probe(SLOW), probe(WIFI, rtt=1.5), probe(SLOW), probe(WIFI, rate=1.02))
    (found,) = link_asked_drawings(rows, {"run": manifest(WIFI, SLOW)})
    figure = found.draw("page")
    heads = [axes.get_title(loc="left") for axes in figure.axes]
    assert [drawn.legend(figure), heads, drawn.sentences(found.caption)] == snapshot


def test_a_probe_that_is_off_is_marked_where_it_is(snapshot: SnapshotAssertion) -> None:
    rows = probes(probe(SLOW), probe(SLOW, rtt=1.15), probe(SLOW, rate=0.85), probe(SLOW))
    assert rows["verdict"].tolist() == ["ok", "off", "off", "ok"]
    (found,) = link_asked_drawings(rows, {"run": manifest(SLOW)})
    figure = drawn.rendered(found.draw("column"))
    rtt, out = figure.axes
    assert drawn.marks(rtt, marker="X").tolist() == [[2, pytest.approx(230)]]
    assert drawn.marks(rtt, marker="o")[:, 0].tolist() == [1, 3, 4]
    assert drawn.marks(out, marker="X")[:, 0].tolist() == [3]
    assert any("2 of 4" in text for text in drawn.texts(figure))
    assert [drawn.legend(figure), drawn.sentences(found.caption)] == snapshot


def test_one_that_is_far_off_does_not_flatten_the_others() -> None:
    lost = probe(SLOW) | {"rtt_s": math.nan, "verdict": "off", "reason": "no echo came back"}
    rows = probes(probe(SLOW), probe(SLOW, rtt=30), probe(SLOW, rate=0.01), lost)
    figure = drawn.rendered(link_asked_figure(link_asked_data(rows, manifest(SLOW))))
    rtt, out = figure.axes
    assert rtt.get_ylim()[1] < 300
    assert drawn.marks(rtt, marker="^").tolist() == [[2, rtt.get_ylim()[1]]]
    assert drawn.marks(out, marker="v").tolist() == [[3, out.get_ylim()[0]]]
    assert drawn.marks(rtt, marker="X").tolist() == [[4, rtt.get_ylim()[0]]], "no echo: nowhere, and off"


def test_many_probes_are_thinned_and_all_that_are_off_are_kept() -> None:
    count = 2 * MOST_DOTS + 10
    rows = pd.concat([probes(probe(SLOW))] * count + [probes(probe(SLOW, rtt=1.15))] * 3, ignore_index=True)
    figure = link_asked_figure(link_asked_data(rows, manifest(SLOW)))
    assert MOST_DOTS / 2 < len(drawn.marks(figure.axes[0], marker="o")) <= MOST_DOTS
    assert len(drawn.marks(figure.axes[0], marker="X")) == 3


def test_runs_and_many_profiles_have_drawings_of_their_own() -> None:
    profiles = [Profile(f"p{number}", Direction(0.01 * number, 1e6)) for number in range(1, MOST_ROWS + 2)]
    rows = probes(*(probe(profile) for profile in profiles), probe(WIFI, run="other"))
    found = link_asked_drawings(rows, {"run": manifest(*profiles)})
    assert [drawing.name for drawing in found] == [("run", "1"), ("run", "2"), ("other",)]
    assert [len(drawing.data) for drawing in found] == [MOST_ROWS, 1, 1]
    assert found[1].data["probe"].tolist() == [MOST_ROWS + 1], "its number in the run"
    assert found[2].data["rtt_most_s"].isna().all(), "its manifest is not there"
    assert "tolerance" not in drawn.legend(drawn.rendered(found[2].draw("page")))


def test_a_chain_names_its_links_and_a_trace_has_no_band(snapshot: SnapshotAssertion) -> None:
    rows = probes(
        probe(WIFI, link="edge-middle1"), probe(SLOW, link="middle1-server"),
        *(probe(LOSSY, position_s=float(at), rtt=1 + at / 10, loss=0.02, asked_loss=0.01) for at in range(4)),
    )  # fmt: skip
    (found,) = link_asked_drawings(rows, {"run": manifest(WIFI, SLOW, LOSSY)})
    figure = drawn.rendered(found.draw("page"))
    assert {"edge-middle1", "middle1-server"} <= set(re.findall(r"\w+-\w+", " ".join(drawn.texts(figure))))
    assert not figure.axes[0].patches, "lossy is the first of the profiles"
    assert drawn.sentences(found.caption) == snapshot


def test_no_probes() -> None:
    assert link_asked_drawings(pd.DataFrame(), {}) == []
    assert link_asked_drawings(probes(probe(WIFI)).iloc[:0], {}) == []
