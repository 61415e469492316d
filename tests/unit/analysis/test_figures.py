"""Every kind of figure of every shape of a front, in a report and in a notebook; and the looks and ticks of all."""

from __future__ import annotations

import io
import os
import re
import threading
import warnings
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.text import Text
from syrupy.assertion import SnapshotAssertion

from pareto.analysis import figures
from pareto.analysis.figures.drawing import MOST_WORDS, Drawing, Nothing, Told, conditions, left_out, save
from pareto.analysis.figures.drawing import save_all as all_saved
from pareto.analysis.figures.layout import fit_axis, label_points, printed
from pareto.analysis.figures.look import WIDTHS_IN, Look, drawn_as, evenly
from pareto.analysis.figures.shown import ASKED, KINDS, drawings, worth_showing
from pareto.analysis.figures.style import (
    ALARM,
    SMALL_PT,
    check_look,
    every_series,
    stage_look,
    styled,
)
from pareto.analysis.findings import Options, find
from pareto.analysis.naming import USUAL, levels
from pareto.analysis.runs.points import NONE
from pareto.protocol.errors import UserError
from tests import REPOSITORY
from tests.unit import drawn
from tests.unit.analysis.figure_runs import RUNS, Reported
from tests.unit.example_run import trials, write
from tests.unit.gating import gating
from tests.unit.refusals import refusal

Reports = Callable[[str], Reported]
PAGE = ("backends", "thousand", "chain", "codecs")
"""Runs that are drawn as wide as a page, so that with the others each kind is drawn in both widths."""


@cache
def example() -> pd.DataFrame:
    return figures.example()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "run", gating(RUNS, "no row", "all struck off", "one", "few", "thousand", "chain", "codecs", "loads")
)
def test_every_kind_of_every_shape_is_written_or_says_why_not(
    reported: Reports, run: str, kind: str, tmp_path: Path
) -> None:
    """Files, a caption that is short, all of it in the picture, legible; no text covers another one; no warning."""
    width = "page" if run in PAGE else "column"
    for drawing in [each for each in reported(run).drawings.values() if each.kind == kind][:1]:
        with warnings.catch_warnings(), drawn_as(Look(formats=("svg",), titles=run != "few")):
            warnings.simplefilter("error")
            try:
                figure, caption, data = drawing.drawn(width)
                written = save(drawing, tmp_path, (width,))
            except Nothing as reason:
                assert str(reason)
                return
        assert [path.suffix for path in written] == [".svg", ".csv", ".txt"]
        assert all(path.stat().st_size > 20 for path in written)
        assert 8 < len(caption.split()) <= MOST_WORDS
        assert len(data)
        drawn.rendered(figure)
        assert drawn.outside(figure) == drawn.overlapping(figure) == []
        assert figure.get_size_inches()[0] == WIDTHS_IN[width]
        assert min(axes.bbox.height for axes in figure.axes) / figure.dpi > 0.3, (
            "the head takes nothing from axes"
        )
        sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text()]
        assert min(sizes) >= SMALL_PT >= 6
        assert bool(figure.legends[0].get_title().get_text()) == (run != "few")


def test_each_figure_says_what_it_shows(reported: Reports, snapshot: SnapshotAssertion) -> None:
    """Of each kind one: legend, caption, columns."""
    told: dict[str, list[str]] = {}
    for run in ("backends", "chain", "codecs", "engines", "loads"):
        for drawing in reported(run).drawings.values():
            if drawing.kind not in told:
                try:
                    figure, caption, data = drawing.drawn()
                except Nothing:
                    continue
                told[drawing.kind] = [" | ".join(drawn.legend(figure)), caption, " ".join(map(str, data))]
    assert told.keys() == {*KINDS} - {"link-asked"}
    assert told == snapshot


def test_by_default_some_kinds_are_drawn_and_by_request_all(reported: Reports) -> None:
    found = reported("backends").found
    usual, every = ({each.kind for each in drawings(found, each=True, every=all_)} for all_ in (False, True))
    assert every - usual == {"paired", "paired-codecs", "accuracy", "energy", "utilization"} <= {*ASKED}
    assert {each.kind for each in drawings(reported("codecs").found, each=False)} == {"fronts", "best-map"}


def test_a_constraint_leaves_out_conditions_without_a_feasible_point(tmp_path: Path) -> None:
    more = trials(rounds=1, netem="wifi"), trials(rounds=1, netem="dead", status="failed")
    rows = [row for of_profile in (trials(rounds=1), *more) for row in of_profile[::5]]
    found = find([write(tmp_path, rows)], Options(where="netem == wifi"))
    assert set(worth_showing(found.front)["netem"]) == {"wifi", "dead"}
    assert {each.name[1] for each in drawings(found, each=True) if each.kind == "front"} == {"wifi"}


def test_partial_runs(tmp_path: Path) -> None:
    """Little measured, no manifest, and two batch sizes, which are in the names."""
    little = trials(rounds=1, latency_bound_s="", edge_s="", payload_bytes="", point_name="")[::9]
    run = write(tmp_path, [row | {"batch_size": size} for size in (1, 8) for row in little])
    (run / "manifest.json").unlink()
    made = {each.stem(): each for each in drawings(find([run]), each=True)}
    for kind in ("front", "attribution"):
        for size in (1, 8):
            made[f"{kind}-mobilenetv2-200ms-5mbit-b{size}"].drawn("column")


PANELS = {
    "front": ("few", 1), "fronts": ("codecs", 2), "attribution": ("few", 1), "energy": ("one", 2), "paired": ("few", 2),
    "payload": ("few", 2), "utilization": ("chain", 2), "tail": ("backends", 2),
}  # fmt: skip
"""Of which run each is drawn, and how many panels it has."""


@pytest.mark.parametrize("name", gating(PANELS, "fronts", "payload", "utilization", "tail"))
def test_trials_become_figures_also_on_axes_of_the_caller(reported: Reports, name: str) -> None:
    """As a notebook has them: from trials (and stages, or the run's folder) alone."""
    run, count = PANELS[name]
    found = reported(run).found
    beside = {"utilization": [found.stages], "tail": [found.runs[0].folder]}.get(name, [])
    draw = partial(getattr(figures, name), found.trials, *beside, title="My own")
    figure = draw(width="column")
    assert (figure.get_size_inches()[0], len(figure.axes)) == (3.4, count)
    assert figure.legends[0].get_title().get_text() == "My own"
    whole = Figure(figsize=(9, 3), layout="constrained")
    axes = list(whole.subplots(1, count, squeeze=False)[0])
    before = matplotlib.rcParams["font.size"]
    assert draw(ax=axes) is axes
    assert whole.axes == axes, "nothing is added to the caller's figure"
    assert whole.get_size_inches().tolist() == [9, 3], "nor does it change its size"
    assert isinstance(whole.get_layout_engine(), ConstrainedLayoutEngine), "nor its layout"
    assert axes[0].get_title(loc="left") == "My own"
    assert axes[0].get_legend()
    assert matplotlib.rcParams["font.size"] == before
    with pytest.raises(UserError, match=f"has {count} panel"):
        draw(ax=[*axes, axes[0]])


def test_a_figure_saved_in_a_notebook_has_truetype_fonts() -> None:
    made = io.BytesIO()
    figures.front(example(), width="column").savefig(made, format="pdf")
    assert b"/Type3" not in made.getvalue()
    assert b"/CIDFontType2" in made.getvalue() or b"/TrueType" in made.getvalue()


BOTH = pd.concat([example(), example().assign(netem="lte")])
REFUSED: dict[str, tuple[Callable[..., Any], pd.DataFrame, dict[str, Any]]] = {
    "several profiles": (figures.front, BOTH, {}),
    "several models": (figures.fronts, pd.concat([BOTH, BOTH.assign(model="other")]), {}),
    "nothing valid": (figures.front, example().assign(latency_s=float("nan"), rounds=0), {}),
    "no energy": (figures.energy, example(), {}),
    "one codec": (figures.accuracy, example(), {}),
    "no chain": (figures.utilization, example(), {}),
    "no such backend": (figures.attribution, example(), {"backend": "mpi"}),
    "no such width": (figures.front, example(), {"width": "poster"}),
    "no such uncertainty": (figures.front, example(), {"uncertainty": "doubt"}),
    "a band of a front": (figures.front, example(), {"uncertainty": "band"}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_input_is_one_line(what: str, snapshot: SnapshotAssertion, reported: Reports) -> None:
    draw, rows, asked = REFUSED[what]
    if what == "no chain":
        found = reported("few").found
        rows, asked = found.trials, {"stages": found.stages}
    assert refusal(UserError, draw, rows, **asked) == snapshot


def rows(**columns: Any) -> pd.DataFrame:
    """Two points of the front."""
    told = {"model": "net", "netem": "wifi", "batch_size": 1, **USUAL, "setup": "", "backend": "tcp"}
    told |= {"on_fronts_of": "tcp", "point": ["0", "1"], "rounds": [6, 6], "excluded": [0, 0]}
    made = pd.DataFrame(told | columns)
    return made.assign(left_out=made["excluded"], trials=made["excluded"] + made["rounds"])


def drawing(name: str = "my_net", seen: list[int] | None = None, fault: Exception | None = None) -> Drawing:
    data = rows(latency_s=[1 / 3, 2e-9])

    def draw(on: Any) -> Told:
        if fault:
            raise fault
        on.add_subplot(title=name).plot(data["latency_s"])
        if seen is not None:
            seen.append(os.getpid())
        return Told("", ["A sentence", "Another"], data)

    return Drawing("front", partial(printed, draw), (name, "200ms/5mbit"))


def test_drawings_on_several_cores_are_those_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with threads is never forked, and draws one after the other."""
    seen, faults = list[int](), (Nothing("for no reason"), ValueError("negative\nheight"))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    steps, said, made = list[str](), list[str](), []
    every = [
        *(drawing(f"net{each}", seen) for each in range(2)),
        *(drawing("net0", None, it) for it in faults),
    ]
    for threads in (0, 1):
        monkeypatch.setattr(threading, "active_count", lambda threads=threads: 1 + threads)
        made.append(all_saved(every, tmp_path / str(threads), ("page",), said.append, steps.append))
        assert seen == [os.getpid()] * 2 * threads
    several, one = ([(path.name, path.read_bytes()) for path in files] for files in made)
    assert several == one
    assert steps == [f"drawing {number} of 4 figures" for number in range(1, 5)] * 2
    # Nothing to show is no fault.
    assert said == 2 * ["the figure front-net0-200ms-5mbit cannot be drawn: ValueError: negative height"]


def test_a_drawing_is_pictures_data_and_caption_twice_the_same(tmp_path: Path) -> None:
    with drawn_as(Look(formats=("pdf", "png", "svg"))):
        first, again = (save(drawing(), tmp_path / name, ("page", "column")) for name in "ab")
    stem, formats = "front-my-net-200ms-5mbit", (".pdf", ".png", ".svg")
    ends = (*formats, *(f"-column{end}" for end in formats), ".csv", ".txt")
    assert [path.name for path in first] == [f"{stem}{end}" for end in ends]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert first[-1].read_text() == "A sentence. Another.\n"
    assert pd.read_csv(first[-2])["latency_s"].tolist() == [0.333333333, 2e-9]
    assert b"\r" not in first[-2].read_bytes()
    assert b"Type3" not in first[0].read_bytes()


def test_conditions_are_sentences_and_captions_short(snapshot: SnapshotAssertion) -> None:
    several = rows(
        netem=["wifi", "lte"], rounds=[5, 1], excluded=[0, 2], codec=["none", "fp16"], in_flight_asked="4"
    )
    every = (
        several.assign(setup="b"), rows(rounds=[1, 1]), rows(rounds=[0, 0]), rows(codec="int8"),
        rows().assign(excluded=[0, 4]),
    )  # fmt: skip
    assert [conditions(rows(), "lab: two hosts."), *map(conditions, every), left_out(several)] == snapshot
    assert left_out(rows()) == ""
    words = " ".join(["three"] * 58)
    assert Told("", ["One two", words, "four", ""], rows()).caption() == f"One two. {words}."


# Looks, ticks, and what a user may choose of them.


def test_settings_of_the_caller_come_back_and_change_no_figure() -> None:
    wild = {"text.usetex": True, "font.size": 30, "axes.facecolor": "red"}
    with matplotlib.rc_context(wild):
        with styled("column"):
            assert all(matplotlib.rcParams[name] != value for name, value in wild.items())
            assert matplotlib.rcParams["font.size"] == 7
        assert {name: matplotlib.rcParams[name] for name in wild} == wild


def test_backends_and_codecs_are_told_apart_by_more_than_colour() -> None:
    backends = every_series(rows(backend=["rpc", "tcp"]))
    assert [one.label for one in backends] == ["tcp", "rpc"]
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
    of_hosts = {stage_look(role)[0] for role in ("edge", "server")}
    assert len(of_hosts | {ALARM} | {one.colour for one in (*backends, *looks[:2])}) == 7, (
        "a colour says one thing"
    )


@pytest.mark.parametrize("scheme", [0, 1])
def test_no_two_backends_have_one_colour_on_the_page(scheme: int) -> None:
    style = (REPOSITORY / "analysis" / "page" / "page.css").read_text()
    colours = [found[scheme] for found in re.findall(r"--s\d: light-dark\((#\w+), (#\w+)\)", style)]
    assert len(set(colours)) == len(colours) == 7


def test_evenly() -> None:
    every = [evenly([1, 2, 3], 3), *(evenly(range(9), most) for most in (3, 1, 0))]
    assert every == [[1, 2, 3], [0, 4, 8], [0], []]


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
        figure = figures.front(example())
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
def test_a_look_that_there_is_not_is_one_line(
    tmp_path: Path, given: dict[str, str | Path], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    style, path = given.get("style"), tmp_path / "own.mplstyle"
    if isinstance(style, str):
        path.write_text(f"{style}\n", encoding="latin-1")
    usual = {"formats": "pdf", "title": "auto", "font": "", "style": None} | given
    usual["style"] = path if isinstance(style, str) else style
    assert words in refusal(UserError, lambda: check_look(Look.checked(**usual)))  # type: ignore[arg-type]
    assert capsys.readouterr().err == "", "nothing beside it"
