"""Every figure of every kind of run, looked at as a reader does; and `analysis.figures` as a notebook uses it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib
import pandas as pd
import pytest
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from syrupy.assertion import SnapshotAssertion

from pareto.analysis import figures
from pareto.analysis.figures.drawing import Drawing, conditions, save, save_all
from pareto.analysis.figures.kinds import drawings
from pareto.analysis.figures.look import left_out
from pareto.analysis.figures.shown import worth_showing
from pareto.analysis.figures.style import blank
from pareto.analysis.findings import Options, find
from pareto.protocol.errors import UserError
from tests.unit import drawn, example_chain
from tests.unit.analysis.figure_runs import RUNS, Reported
from tests.unit.example_run import trials, write
from tests.unit.gating import gating

Reports = Callable[[str], Reported]
PAGE = ("backends", "one", "chain", "codecs")
"""Runs that are drawn as wide as a page, so that with the others each figure is drawn in both widths."""
SHOWN = ("backends", "chain", "codecs")
"""Runs that have a figure of every kind together, but for pairs of engines, which are drawn as those of codecs."""


@cache
def example() -> pd.DataFrame:
    return figures.example()


@pytest.mark.parametrize("run", gating(RUNS, *SHOWN))
def test_every_figure_is_whole_legible_and_says_what_it_shows(
    reported: Reports, run: str, snapshot: SnapshotAssertion
) -> None:
    """Nothing leaves the picture, no text covers another one. Of each kind that the run has, its first figure."""
    made, legends, captions, columns = reported(run), {}, {}, {}
    for drawing in {each.kind: each for each in reversed(made.drawings.values())}.values():
        figure = drawn.rendered(drawing.draw("page" if run in PAGE else "column"))
        assert drawn.outside(figure) == [], drawing.kind
        assert drawn.overlapping(figure) == [], drawing.kind
        legends[drawing.kind] = " | ".join(drawn.legend(figure))
        captions[drawing.kind] = drawn.sentences(drawing.caption)
        columns[drawing.kind] = " ".join(map(str, drawing.data))
    often = Counter(sentence for caption in captions.values() for sentence in caption)
    usual = [sentence for sentence, count in often.items() if 2 * count > len(captions)]
    own = {kind: [line for line in caption if line not in usual] for kind, caption in captions.items()}
    told = {kind: [legends[kind], *own[kind], columns[kind]] for kind in own}
    assert {"names": " ".join(sorted(made.drawings)), "in most captions": sorted(usual), **told} == snapshot


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
    made = {"-".join((each.kind, *each.name)) for each in drawings(find([run], Options()), each=True)}
    kinds, names = ("front", "attribution"), ("-b1", "-b8")
    assert {f"{kind}-mobilenetv2-200ms-5mbit{name}" for kind in kinds for name in names} <= made


def test_the_package_costs_nothing_until_it_draws() -> None:
    code = (
        "import sys, pareto.analysis.figures; print({'matplotlib', 'pandas', 'moocore'} & set(sys.modules))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"


PANELS = {
    "front": ("few", 1), "fronts": ("codecs", 2), "attribution": ("few", 1), "bound": ("few", 2), "energy": ("one", 4),
    "paired": ("few", 2), "payload": ("few", 2), "cuts": ("chain", 3), "utilization": ("chain", 2),
    "tail": ("backends", 2), "pipelining": ("one", 1),
}  # fmt: skip
"""Of which run each is drawn, and how many panels it has."""


@pytest.mark.parametrize(
    "name", gating(PANELS, "fronts", "attribution", "paired", "cuts", "utilization", "tail")
)
def test_trials_become_figures(reported: Reports, name: str) -> None:
    """As a notebook has them: from trials (and stages, or the run's folder) alone."""
    run, panels = PANELS[name]
    found = reported(run).found
    beside = {"utilization": [found.stages], "tail": [found.runs[0].folder]}.get(name, [])
    figure = getattr(figures, name)(found.trials, *beside, width="column")
    assert isinstance(figure, Figure)
    assert figure.get_size_inches()[0] == 3.4
    assert len(figure.axes) == panels


def test_axes_of_the_caller_are_drawn_on_and_come_back() -> None:
    for draw in (figures.front, figures.bound, lambda df, ax: figures.attribution(df, ax, backend="rpc")):
        whole = Figure(figsize=(5, 3), layout="constrained")
        left, right = whole.subplots(1, 2)
        before = matplotlib.rcParams["font.size"]
        assert draw(example(), ax=left) is left
        assert left.lines and not right.lines
        assert whole.axes == [left, right], "nothing is added to the caller's figure"
        assert whole.get_size_inches().tolist() == [5, 3], "nor does it change its size"
        assert isinstance(whole.get_layout_engine(), ConstrainedLayoutEngine), "nor its layout"
        assert matplotlib.rcParams["font.size"] == before
        assert draw != figures.front or all(text.get_text().isdigit() for text in left.texts), "narrow axes"


BOTH = pd.concat([example(), example().assign(netem="lte")])
REFUSED: dict[str, tuple[Callable[..., Any], pd.DataFrame, dict[str, Any]]] = {
    "several profiles": (figures.front, BOTH, {}),
    "several profiles, bars": (figures.attribution, BOTH, {}),
    "several models": (figures.fronts, pd.concat([BOTH, BOTH.assign(model="other")]), {}),
    "nothing valid": (figures.front, example().assign(latency_s=float("nan"), rounds=0), {}),
    "no energy": (figures.energy, example(), {}),
    "one cut": (figures.cuts, example(), {}),
    "no bound": (figures.bound, example().assign(latency_bound_s=float("nan")), {"measure": "latency"}),
    "no such measure": (figures.bound, example(), {"measure": "weight"}),
    "no such backend": (figures.attribution, example(), {"backend": "mpi"}),
    "no such width": (figures.front, example(), {"width": "poster"}),
    "no gain": (figures.pipelining, example(), {}),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_input_is_one_line(what: str, snapshot: SnapshotAssertion) -> None:
    draw, rows, asked = REFUSED[what]
    with pytest.raises(UserError) as caught:
        draw(rows, **({"ax": Figure().add_subplot()} if "measure" in asked else {}), **asked)
    assert "\n" not in str(caught.value)
    assert str(caught.value) == snapshot


def rows(**columns: Any) -> pd.DataFrame:
    """Two points of the front."""
    told = {
        "model": "net",
        "netem": "wifi",
        "batch_size": 1,
        "codec": "none",
        "in_flight_asked": "auto",
        "setup": "",
    }
    told |= {
        "backend": "tcp",
        "on_fronts_of": "tcp",
        "point": ["0", "1"],
        "rounds": [6, 6],
        "excluded": [0, 0],
    }
    made = pd.DataFrame(told | columns)
    return made.assign(left_out=made["excluded"], trials=made["excluded"] + made["rounds"])  # fmt: skip


def drawing(excluded: int = 0) -> Drawing:
    data = rows(excluded=[excluded, 0], latency_s=[1 / 3, 2e-9])

    def draw(width: str) -> Figure:
        with blank(width, 2, data) as figure:
            figure.add_subplot().plot(data["latency_s"])
        return figure

    return Drawing("front", draw, data, "A sentence. Another.", ("my_net", "200ms/5mbit"))


def test_drawings_on_several_cores_are_those_of_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process with threads is never forked, and draws one after the other."""
    seen: list[int] = []

    def by(number: int) -> Drawing:
        made = drawing(number)

        def draw(width: str) -> Figure:
            seen.append(os.getpid())
            return made.draw(width)

        return replace(made, name=(f"net{number}",), draw=draw)

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    steps, made = list[str](), []
    for threads in (0, 1):
        monkeypatch.setattr(threading, "active_count", lambda threads=threads: 1 + threads)
        made.append(save_all(map(by, range(2)), tmp_path / str(threads), ("page",), step=steps.append))
        assert seen == [os.getpid()] * 2 * threads
    several, one = ([(path.name, path.read_bytes()) for path in files] for files in made)
    assert several == one
    assert steps == ["drawing 1 of 2 figures", "drawing 2 of 2 figures"] * 2
    assert [name for name, _ in one if name.endswith("pdf")] == [f"front-net{each}.pdf" for each in range(2)]


def test_a_drawing_is_pictures_data_and_caption_twice_the_same(tmp_path: Path) -> None:
    first, again = (save(drawing(), tmp_path / name, ("page", "column")) for name in "ab")
    stem = "front-my-net-200ms-5mbit"
    ends = (".pdf", ".png", "-column.pdf", "-column.png", ".csv", ".txt")
    assert [path.name for path in first] == [f"{stem}{end}" for end in ends]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert first[-1].read_text() == "A sentence. Another.\n"
    assert pd.read_csv(first[-2])["latency_s"].tolist() == [0.333333333, 2e-9]
    assert b"\r" not in first[-2].read_bytes()
    assert b"Type3" not in first[0].read_bytes()


def test_conditions_are_sentences(snapshot: SnapshotAssertion) -> None:
    several = rows(
        netem=["wifi", "lte"], rounds=[5, 1], excluded=[0, 2], codec=["none", "fp16"], in_flight_asked="4"
    )
    whole = rows()
    assert [
        conditions(whole, "lab: two hosts."),
        conditions(several.assign(setup="b")),
        conditions(rows(rounds=[1, 1])),
        conditions(rows(rounds=[0, 0])),
        conditions(rows(codec="int8")),
        conditions(whole.assign(excluded=[0, 4])),
        drawing(excluded=3).draw("page").get_supxlabel(),
    ] == snapshot
    assert drawing(excluded=0).draw("page").get_supxlabel() == left_out(whole) == ""  # fmt: skip


def test_two_hosts_have_no_map_of_two_cuts(tmp_path: Path) -> None:
    made, staged = example_chain.trials([(3,), (5,)], backends=["tcp"])
    found = find([example_chain.write(tmp_path, made, staged)], Options())
    kinds = {each.kind for each in drawings(found, each=True)}
    assert {"front", "attribution", "utilization"} <= kinds
    assert "cuts" not in kinds
