"""How a figure is written, and what all figures share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from syrupy.assertion import SnapshotAssertion

from analysis.figures.drawing import Drawing, conditions, save
from analysis.figures.style import (
    blank,
    footnote,
    left_out,
    styled,
)


def rows(**columns: Any) -> pd.DataFrame:
    """Two points of the front."""
    told = {"model": "net", "netem": "wifi", "batch_size": 1, "codec": "none", "in_flight_asked": "auto"}
    told |= {"setup": "", "backend": "tcp", "point": ["0", "1"], "rounds": [6, 6], "excluded": [0, 0]}
    return pd.DataFrame(told | columns)


def drawing(excluded: int = 0) -> Drawing:
    data = rows(excluded=[excluded, 0], latency_s=[1 / 3, 2e-9])

    def draw(width: str) -> Figure:
        with styled(width):
            figure = blank(width, 2)
            figure.add_subplot().plot(data["latency_s"])
            footnote(figure, data)
        return figure

    return Drawing("front", ("my_net", "200ms/5mbit"), draw, data, "A sentence. Another.")


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
