"""The page of two runs beside each other, as text; `tests/integration/test_page.py` has it in a browser."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pareto.analysis.comparing.between_runs import Comparison, compare
from pareto.analysis.figures.marks import FILLS
from pareto.analysis.page import comparison as page
from pareto.basics.files import StoreError
from tests.unit.example_run import trials
from tests.unit.example_run import write as write_run

EVIL = '</script ><img src=x onerror="alert(1)">'


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


def test_both_runs_have_their_points_and_fronts(compared: Comparison, tmp_path: Path) -> None:
    text = page.write(compared, tmp_path).read_text(encoding="utf-8")
    assert text == page.html(compared)
    assert "<img" not in text
    data = json.loads(re.findall(r'<script type="application/json"[^>]*>(.*?)</script>', text)[0])
    (chart,) = data["charts"]
    assert chart["answer"] == 0
    rows = compared.differences
    tcp = rows[rows["backend"] == "tcp"]
    front = compared.fronts.iloc[0]
    for side, column, moved in (("A", "first", "leave"), ("B", "other", "enter")):
        points = next(each["points"] for each in chart["sides"] if each["name"] == side)
        assert [point[0] for point in points[: len(tcp)]] == pytest.approx(
            tcp[f"{column}_latency_s"] * 1e3, rel=1e-5
        )
        assert [point[1] for point in points[: len(tcp)]] == pytest.approx(
            tcp[f"{column}_throughput_ips"], rel=1e-5
        )
        sure, unsure = (
            sum(len(list(filter(None, str(front[f"{may}{name}"]).split("; ")))) for name in ("stay", moved))
            for may in ("", "may_")
        )
        assert sum(point[8] == FILLS["front"] for point in points) == sure
        assert sum(point[8] == FILLS["unsure"] for point in points) == unsure
        assert sure + unsure > 0


def test_a_link_in_its_place_is_not_followed(compared: Comparison, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("kept")
    (tmp_path / page.FILE).symlink_to(target)
    with pytest.raises(StoreError, match=page.FILE):
        page.write(compared, tmp_path)
    assert target.read_text() == "kept"
