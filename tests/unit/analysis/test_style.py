"""What all figures share: widths, colours, marks, looks, ticks; and what a user may choose of them."""

from __future__ import annotations

import io
import os
import re
from itertools import pairwise
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from pareto.analysis import figures
from pareto.analysis.figures.drawing import Told
from pareto.analysis.figures.layout import Printed, entry, fit_axis, label_points, panels, printed
from pareto.analysis.figures.look import WIDTHS_IN, Look, drawn_as
from pareto.analysis.figures.style import (
    ALARM,
    SMALL_PT,
    check_look,
    evenly,
    every_series,
    stage_look,
    styled,
)
from pareto.analysis.naming import levels
from pareto.analysis.runs.points import NONE
from pareto.protocol.errors import UserError
from tests import REPOSITORY
from tests.unit import drawn
from tests.unit.analysis.test_figures import rows

LONG = "efficientnet_v2_large_with_a_head_of_my_own at congested-cafe-wifi+very-slow-lte-uplink"


@pytest.mark.parametrize("titles", [True, False])
@pytest.mark.parametrize("width", WIDTHS_IN)
def test_a_figure_is_as_wide_as_its_column_and_legible_there(width: str, titles: bool) -> None:
    def draw(on: Printed) -> Told:
        (axes,) = panels(on, 1, 1, 2.0)
        for number in range(6):
            entry(axes, f"backend:{'x' * (5 * number)}", marker="o")
        return Told(LONG, ["A sentence"], pd.DataFrame(), rows(excluded=[1, 0]))

    with drawn_as(Look(titles=titles)):
        figure = drawn.rendered(printed(draw, width)[0])
    assert figure.get_size_inches()[0] == WIDTHS_IN[width]
    assert min(text.get_fontsize() for text in figure.findobj(Text) if text.get_text()) >= SMALL_PT >= 6
    assert drawn.outside(figure) == drawn.overlapping(figure) == []
    assert len(drawn.legend(figure)) == 6
    assert LONG.split()[0] in figure.legends[0].get_title().get_text().replace("\n", "") or not titles
    assert figure.axes[0].bbox.height / figure.dpi > 1, "the head takes nothing from the axes"
    assert figure.get_supxlabel().startswith("1 of ")


def test_settings_of_the_caller_come_back_and_change_no_figure() -> None:
    wild = {"text.usetex": True, "font.size": 30, "axes.facecolor": "red"}
    with matplotlib.rc_context(wild):
        with styled("column"):
            assert all(matplotlib.rcParams[name] != value for name, value in wild.items())
            assert matplotlib.rcParams["font.size"] == 7
        assert {name: matplotlib.rcParams[name] for name in wild} == wild


def test_backends_and_codecs_are_told_apart_by_more_than_colour() -> None:
    assert [one.label for one in every_series(rows(backend=["rpc", "tcp"]))] == ["tcp", "rpc"]
    names = ["none", "fp16", "int8", "int8+zstd:3", "jpeg:90", "lz4"]
    every = pd.concat([rows(codec=codec, backend=["tcp", "rpc"]) for codec in names], ignore_index=True)
    looks = every_series(every)
    assert [one.codec for one in looks[:6]] == levels(names) == names
    for one, other in zip(looks[:6], looks[6:], strict=True):
        assert (one.backend, other.backend) == ("tcp", "rpc")
        assert one.colour == other.colour, "a codec's"
        assert one.marker != other.marker, "never colour alone"
    for column in zip(*((one.colour, one.marker, str(one.line)) for one in looks[:6]), strict=True):
        assert len(set(column)) == 6
    assert every_series(rows(backend=NONE)) == ()


def test_evenly() -> None:
    every = [evenly([1, 2, 3], 3), *(evenly(range(9), most) for most in (3, 1, 0))]
    assert every == [[1, 2, 3], [0, 4, 8], [0], []]


def test_a_colour_says_one_thing() -> None:
    of_hosts = {stage_look(role)[0] for role in ("edge", "server")}
    of_backends = {one.colour for one in every_series(rows(backend=["tcp", "rpc"]))}
    of_codecs = {one.colour for one in every_series(rows(codec=["none", "fp16"]))}
    assert len(of_hosts | {ALARM} | of_backends | of_codecs) == 7


@pytest.mark.parametrize("scheme", [0, 1])
def test_no_two_backends_have_one_colour_on_the_page(scheme: int) -> None:
    style = (REPOSITORY / "analysis" / "page" / "page.css").read_text()
    colours = [found[scheme] for found in re.findall(r"--s\d: light-dark\((#\w+), (#\w+)\)", style)]
    assert len(set(colours)) == len(colours) == 7


@pytest.mark.parametrize("decades", [0.3, 1.5, 6, 12])
@pytest.mark.parametrize("width_in", [1.2, 3, 6])
def test_numbers_at_a_logarithmic_axis_never_touch(decades: float, width_in: float) -> None:
    with styled("column"):
        figure = Figure(figsize=(width_in, width_in))
        axes = figure.add_subplot()
        for name in ("x", "y"):
            fit_axis(axes, name, 0.003 * np.logspace(0, decades, 20), logarithmic=True)
    figure.draw_without_rendering()
    for axis, side in ((axes.xaxis, 0), (axes.yaxis, 1)):
        texts = [text for text in axis.get_ticklabels() if text.get_text()]
        shown = sorted(tuple(text.get_window_extent().get_points()[:, side]) for text in texts)
        assert len(shown) >= 2
        assert all(one[1] <= other[0] for one, other in pairwise(shown))


@pytest.mark.parametrize(
    ("count", "first", "last"), [(5, "0\nunit", "4\nunit"), (30, "0", "29"), (300, "0", "280")]
)
def test_points_are_named_where_names_fit_and_numbered_where_they_do_not(
    count: int, first: str, last: str
) -> None:
    with styled("page"):
        axes = Figure(figsize=(7, 2)).add_subplot()
        label_points(axes, pd.Series(["unit"] * count, index=map(str, range(count))))
    texts = [label for label in axes.get_xticklabels() if label.get_text()]
    assert (texts[0].get_text(), texts[-1].get_text()) == (first, last)
    axes.figure.draw_without_rendering()
    assert all(one.x1 < other.x0 for one, other in pairwise(text.get_window_extent() for text in texts))


def test_a_style_file_and_a_font_change_the_look(tmp_path: Path) -> None:
    style = tmp_path / "own.mplstyle"
    style.write_text('axes.titlesize: 14\npdf.fonttype: 3\naxes.edgecolor: "#ff0000"  # red\n')
    with drawn_as(Look.checked("pdf", "auto", "DejaVu Serif", style)):
        figure = figures.front(figures.example())
    title = figure.legends[0].get_title()
    assert (title.get_fontsize(), title.get_fontfamily()[0]) == (14, "DejaVu Serif")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"formats": "pdf,gif"}, "--format pdf,gif: "), ({"formats": ""}, "--format"),
        ({"title": "no"}, "--title no: "), ({"font": "DejaVu Sams"}, "DejaVu Sans"),
        ({"style": "axes.linwidth: 2"}, "axes.linwidth"), ({"style": "axes.linewidth: wide"}, "wide"),
        ({"style": "axes.linewidth 2"}, "axes.linewidth"), ({"style": "font.size: 7\nfont.size: 8"}, "twice"),
        ({"style": "text.usetex: True"}, "text.usetex"), ({"style": "\xff"}, "own.mplstyle"),
        ({"style": Path("none.mplstyle")}, "none.mplstyle"), ({"style": Path(os.devnull)}, "not a file"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(
    tmp_path: Path, given: dict[str, str | Path], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    style, path = given.get("style"), tmp_path / "own.mplstyle"
    if isinstance(style, str):
        path.write_text(f"{style}\n", encoding="latin-1")
    usual = {"formats": "pdf", "title": "auto", "font": "", "style": None} | given
    usual["style"] = path if isinstance(style, str) else style
    with pytest.raises(UserError) as refused:
        check_look(Look.checked(**usual))  # type: ignore[arg-type]
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert capsys.readouterr().err == "", "nothing beside it"


def test_a_figure_saved_in_a_notebook_has_truetype_fonts() -> None:
    made = io.BytesIO()
    figures.front(figures.example(), width="column").savefig(made, format="pdf")
    assert b"/Type3" not in made.getvalue()
    assert b"/CIDFontType2" in made.getvalue() or b"/TrueType" in made.getvalue()
