"""How a figure is written, and what all figures share."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from matplotlib.figure import Figure
from syrupy.assertion import SnapshotAssertion

from analysis.figures.drawing import Drawing, conditions, left_out, save, save_all
from analysis.figures.style import blank


def rows(**columns: Any) -> pd.DataFrame:
    """Two points of the front."""
    told = {"model": "net", "netem": "wifi", "batch_size": 1, "codec": "none", "in_flight_asked": "auto"}
    told |= {
        "setup": "",
        "backend": "tcp",
        "on_fronts_of": "tcp",
        "point": ["0", "1"],
        "rounds": [6, 6],
        "excluded": [0, 0],
    }
    made = pd.DataFrame(told | columns)
    return made.assign(left_out=made["excluded"], trials=made["excluded"] + made["rounds"])


def drawing(excluded: int = 0) -> Drawing:
    data = rows(excluded=[excluded, 0], latency_s=[1 / 3, 2e-9])

    def draw(width: str) -> Figure:
        with blank(width, 2, data) as figure:
            figure.add_subplot().plot(data["latency_s"])
        return figure

    return Drawing("front", draw, data, "A sentence. Another.", ("my_net", "200ms/5mbit"))


@pytest.mark.parametrize("threads", [0, 1])
def test_drawings_on_several_cores_are_those_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    """A process with threads is never forked, and draws one after the other."""
    seen = tmp_path / "seen"
    seen.mkdir()

    def by(number: int) -> Drawing:
        made = drawing(number)

        def draw(width: str) -> Figure:
            (seen / str(os.getpid())).touch()
            return made.draw(width)

        return replace(made, name=(f"net{number}",), draw=draw)

    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    monkeypatch.setattr(threading, "active_count", lambda: 1 + threads)
    several = save_all(map(by, range(5)), tmp_path / "several", ("page",))
    assert (seen / str(os.getpid())).exists() == bool(threads)
    one = [path for number in range(5) for path in save(by(number), tmp_path / "one")]
    assert [path.name for path in several] == [path.name for path in one]
    assert [path.read_bytes() for path in several] == [path.read_bytes() for path in one]


def test_a_drawing_is_pictures_data_and_caption_twice_the_same(tmp_path: Path) -> None:
    first, again = (save(drawing(), tmp_path / name, ("page", "column")) for name in "ab")
    stem = "front-my-net-200ms-5mbit"
    ends = (".pdf", ".png", "-column.pdf", "-column.png", ".csv", ".txt")
    assert [path.name for path in first] == [f"{stem}{end}" for end in ends]
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in again]
    assert first[-1].read_text() == "A sentence. Another.\n"
    data = pd.read_csv(first[-2])
    assert data["latency_s"].tolist() == [0.333333333, 2e-9]
    assert b"\r" not in first[-2].read_bytes()
    assert b"Type3" not in first[0].read_bytes()


def test_one_codec_among_others_is_not_that_of_all() -> None:
    assert "codec" not in conditions(rows())
    assert "codec int8" in conditions(rows(codec="int8"))
    assert "codecs none, int8" in conditions(rows(codec=["int8", "none"]))


def test_no_trial_is_left_out_that_counts_for_one_figure() -> None:
    whole = rows()
    assert "alone" not in conditions(whole)
    assert "latency or throughput alone" in conditions(whole.assign(excluded=[0, 4]))


def test_only_trials_left_out_leave_a_word_in_the_picture(snapshot: SnapshotAssertion) -> None:
    assert drawing(excluded=0).draw("page").get_supxlabel() == ""
    assert drawing(excluded=3).draw("page").get_supxlabel() == snapshot
    assert left_out(rows()) == ""


def test_conditions_are_sentences(snapshot: SnapshotAssertion) -> None:
    several = rows(
        netem=["wifi", "lte"],
        rounds=[5, 1],
        excluded=[0, 2],
        codec=["none", "fp16"],
        in_flight_asked="4",
        setup="b",
    )
    assert [
        conditions(rows(), "lab: two hosts."),
        conditions(several),
        conditions(rows(rounds=[1, 1])),
        conditions(rows(rounds=[0, 0])),
    ] == snapshot
