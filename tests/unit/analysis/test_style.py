"""What all figures share: widths, heads, legends, axes, looks."""

from __future__ import annotations

import matplotlib
import pandas as pd
import pytest
from matplotlib.lines import Line2D
from matplotlib.text import Text

from analysis.figures.drawing import WIDTHS_IN
from analysis.figures.style import (
    SMALL_PT,
    blank,
    codec_looks,
    evenly,
    figure_head,
    grow,
    head,
    series,
    stage_look,
    styled,
    wrapped,
)
from pareto.errors import UserError
from tests.unit.analysis.test_drawing import rows


@pytest.mark.parametrize("width", WIDTHS_IN)
def test_a_figure_is_as_wide_as_its_column_and_legible_there(width: str) -> None:
    with blank(width, 2, rows(excluded=[1, 0])) as figure:
        axes = figure.add_subplot()
        head(axes, "A title", [Line2D([], [], label="entry")])
    figure.draw_without_rendering()
    assert figure.get_size_inches()[0] == WIDTHS_IN[width]
    sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text()]
    assert min(sizes) >= SMALL_PT >= 6


def test_an_unknown_width_is_refused() -> None:
    with pytest.raises(UserError, match=r"'poster'.*column, page"):
        styled("poster")


def test_settings_of_the_caller_come_back() -> None:
    before = matplotlib.rcParams["font.size"], matplotlib.rcParams["legend.frameon"]
    with styled("column"):
        assert matplotlib.rcParams["font.size"] == 7
    assert (matplotlib.rcParams["font.size"], matplotlib.rcParams["legend.frameon"]) == before


LONG = "efficientnet_v2_large_with_a_head_of_my_own at congested-cafe-wifi+very-slow-lte-uplink"


def test_a_long_title_is_folded_between_parts_of_names() -> None:
    lines = wrapped(LONG, 150, size_pt=7.5).split("\n")
    assert max(map(len, lines)) <= 150 / (0.64 * 7.5)
    assert "".join(lines).replace(" ", "") == LONG.replace(" ", "")
    assert all(line.endswith(("_", "-", "+", "at", "own", "uplink")) for line in lines), lines


@pytest.mark.parametrize("width", WIDTHS_IN)
@pytest.mark.parametrize("panels", [1, 2])
def test_title_and_legend_stay_within_the_figure(width: str, panels: int) -> None:
    entries = [Line2D([], [], label=f"backend:{'x' * (5 * number)}") for number in range(6)]
    with blank(width, 1.5) as figure:
        axes = figure.subplots(1, panels, squeeze=False)[0]
        axes[0].set_ylabel("throughput\n(images/s)")
        grow(figure, figure_head(figure, LONG, entries) if panels > 1 else head(axes[0], LONG, entries))
    figure.draw_without_rendering()
    legend = figure.legends[0] if panels > 1 else axes[0].get_legend()
    assert len(legend.get_texts()) == 6
    boxes = [legend.get_window_extent(), *([axes[0].title.get_window_extent()] if panels == 1 else [])]
    boxes += [] if panels > 1 else [axes[0]._left_title.get_window_extent()]
    for box in boxes:
        assert figure.bbox.x0 <= box.x0 and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1 + 1
        assert all(box.y0 >= each.bbox.y1 - 1 for each in axes)
    # The head takes nothing from the axes.
    assert axes[0].bbox.height / figure.dpi > 0.8
    assert axes[0].bbox.width * panels / figure.dpi > 0.6 * WIDTHS_IN[width]
    assert len(figure.legends) <= 1, "those that did not fit are gone"


def test_a_backend_looks_the_same_in_every_panel() -> None:
    both = rows(backend=["tcp", "rpc"], on_fronts_of="", on_backend_front=True)
    whole = {one.label: one for one in series(both)}
    (alone,) = series(both[both["backend"] == "rpc"], among=both)
    assert (alone.label, alone.colour, alone.marker, alone.line) == (
        "rpc",
        whole["rpc"].colour,
        whole["rpc"].marker,
        whole["rpc"].line,
    )
    looks = [(one.colour, one.marker, str(one.line)) for one in whole.values()]
    assert all(len(set(column)) == 2 for column in zip(*looks, strict=True)), "never colour alone"
    codecs = rows(codec=["none", "fp16"], on_fronts_of="", on_backend_front=True)
    assert [one.label for one in series(codecs)] == ["tcp none", "tcp fp16"]


def test_a_codec_has_its_colour_in_every_figure_and_its_mark_with_the_first_backend() -> None:
    names = ["none", "fp16", "int8", "int8+zstd:3", "jpeg:90", "lz4", "uint4", "zstd:3"]
    fixed = {"on_fronts_of": "", "on_backend_front": True}
    every = [rows(codec=codec, backend=["tcp", "rpc"], **fixed) for codec in names]
    both = pd.concat(every, ignore_index=True)
    looks = codec_looks(both)
    assert list(looks) == names
    drawn = {(one.backend, one.codec): one for one in series(both)}
    for codec, look in looks.items():
        assert (drawn["tcp", codec].colour, drawn["tcp", codec].marker) == (look.colour, look.marker)
        assert drawn["rpc", codec].colour == look.colour
        assert drawn["rpc", codec].marker != look.marker, "never colour alone"
    for column in zip(*((look.colour, look.marker, str(look.line)) for look in looks.values()), strict=True):
        assert len(set(column)) == 8


@pytest.mark.parametrize("letters", [60, 98, 102])
def test_a_wide_legend_does_not_narrow_the_axes(letters: int) -> None:
    with blank("page", 2) as figure:
        axes = figure.add_subplot()
        head(axes, "A title", [Line2D([], [], label="x" * letters)])
    figure.draw_without_rendering()
    assert axes.bbox.x1 > 0.98 * figure.bbox.x1


def test_evenly() -> None:
    assert evenly([1, 2, 3], 3) == [1, 2, 3]
    assert evenly(range(9), 3) == [0, 4, 8]
    assert evenly(range(9), 1) == [0]
    assert evenly(range(9), 0) == []


def test_a_colour_says_one_thing() -> None:
    of_hosts = {stage_look(role)[0] for role in ("edge", "server")}
    backends = rows(backend=["tcp", "rpc"], on_fronts_of="", on_backend_front=True)
    of_backends = {one.colour for one in series(backends)}
    of_codecs = {look.colour for look in codec_looks(rows(codec=["none", "int8"])).values()}
    assert len(of_hosts | of_backends | of_codecs) == 6
