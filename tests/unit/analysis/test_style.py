"""What all figures share: widths, colours, marks, looks."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import patch

import matplotlib
import pandas as pd
import pytest
from matplotlib.lines import Line2D
from matplotlib.text import Text

from pareto.analysis.figures.heads import head
from pareto.analysis.figures.look import WIDTHS_IN
from pareto.analysis.figures.style import (
    ALARM,
    SMALL_PT,
    blank,
    codec_looks,
    evenly,
    looks,
    save,
    series,
    stage_look,
    styled,
)
from pareto.protocol.errors import UserError
from tests import REPOSITORY
from tests.unit.analysis.test_figures import rows


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


def test_what_a_matplotlibrc_says_changes_no_figure() -> None:
    wild = {"text.usetex": True, "font.size": 30, "axes.facecolor": "red"}
    with matplotlib.rc_context(wild), styled():
        assert all(matplotlib.rcParams[name] != value for name, value in wild.items())


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


def test_evenly() -> None:
    assert evenly([1, 2, 3], 3) == [1, 2, 3]
    assert evenly(range(9), 3) == [0, 4, 8]
    assert evenly(range(9), 1) == [0]
    assert evenly(range(9), 0) == []


def test_a_colour_says_one_thing() -> None:
    of_hosts = {stage_look(role)[0] for role in ("edge", "server")}
    backends = ["tcp", "rpc", "tcp:2", "tcp:4"]
    many = pd.concat([rows(backend=name, on_fronts_of="", on_backend_front=True) for name in backends])
    of_backends = {one.colour for one in series(many)}
    assert len(of_hosts | {ALARM} | of_backends) == 3 + len(backends)
    codecs = ["none", "fp16", "int8", "int8+zstd:3", "jpeg:90", "lz4", "uint4", "zstd:3"]
    of_codecs = {look.colour for look in looks(codecs, ["none"]).values()}
    first_two = {one.colour for one in series(many[many["backend"].isin(["tcp", "rpc"])])}
    assert len(of_hosts | {ALARM} | first_two | of_codecs) == 5 + len(codecs)


@pytest.mark.parametrize("scheme", [0, 1])
def test_no_backend_has_a_hosts_colour_on_the_page(scheme: int) -> None:
    style = (REPOSITORY / "analysis" / "page" / "page.css").read_text()
    colours = {
        name: re.findall(rf"--{name}: (#\w+);", style)[scheme]
        for name in (*(f"s{number}" for number in range(7)), "edge", "middle", "server")
    }
    assert len(set(colours.values())) == len(colours)


def test_a_figure_is_laid_out_once_for_all_its_formats(tmp_path: Path) -> None:
    with blank("column", 2.0) as figure:
        figure.add_subplot()
    engine = figure.get_layout_engine()
    assert engine is not None
    with patch.object(engine, "execute", wraps=engine.execute) as laid_out:
        written = save(figure, tmp_path / "plain", ("png", "pdf"))
    assert [path.name for path in written] == ["plain.png", "plain.pdf"]
    assert laid_out.call_count == 1
