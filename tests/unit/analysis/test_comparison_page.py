"""The page of two runs beside each other, as text."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from pareto.analysis.comparing.between_runs import Comparison, compare
from pareto.analysis.figures.marks import FILLS
from pareto.analysis.page import comparison as page
from pareto.basics.files import StoreError
from tests.unit.analysis.test_page import EVIL, Read
from tests.unit.example_run import trials
from tests.unit.example_run import write as write_run


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    """B takes a tenth less at odd points; the name of a point is markup."""
    folder = tmp_path_factory.mktemp("runs")
    rows = [trials(rounds=8, seed=seed, run=run, noise=0.02) for seed, run in ((1, "a"), (2, "b"))]
    for row in [*rows[0], *rows[1]]:
        row["point_name"] = EVIL if row["point"] == 3 else row["point_name"]
    for row in rows[1]:
        row["latency_s"] *= 0.9 if row["point"] % 2 else 1
    return compare(*(write_run(folder / name, of) for name, of in zip("ab", rows, strict=True)))


def test_both_runs_have_their_points_and_fronts_on_the_same_axes(
    compared: Comparison, tmp_path: Path
) -> None:
    text = page.write(compared, tmp_path).read_text(encoding="utf-8")
    assert text == page.html(compared)
    seen = Read(text)
    assert "img" not in seen.texts
    assert seen.texts["td"].count(EVIL) == 2
    assert [each["data-of"] for each in seen.of("li")[:1]] == ["0"]
    sides = re.findall(r"<figure.*?</figure>", text, re.DOTALL)
    places = [re.findall(r' x="([\d.]+)%"', side) for side in sides]
    assert places[0] != places[1]
    ticks = [re.findall(r'<text class="tick".*?</text>', side) for side in sides]
    assert ticks[0] == ticks[1] and len(ticks[0]) > 6
    rows, front = compared.differences, compared.fronts.iloc[0]
    for side, moved in zip(sides, ("leave", "enter"), strict=True):
        fill = np.array(re.findall(r'<a href="#p\d+".*? fill-opacity="([\d.]+)"', side), dtype=float)
        assert len(fill) == len(rows)
        sure, unsure = (
            sum(len(list(filter(None, str(front[f"{may}{name}"]).split("; ")))) for name in ("stay", moved))
            for may in ("", "may_")
        )
        assert (fill == FILLS["front"]).sum() == sure
        assert (fill == FILLS["unsure"]).sum() == unsure
        assert sure + unsure > 0


def test_a_link_in_its_place_is_not_followed(compared: Comparison, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("kept")
    (tmp_path / page.FILE).symlink_to(target)
    with pytest.raises(StoreError, match=page.FILE):
        page.write(compared, tmp_path)
    assert target.read_text() == "kept"
