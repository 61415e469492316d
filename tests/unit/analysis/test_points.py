"""Points and steps by their names."""

from __future__ import annotations

import pandas as pd
import pytest

from analysis.points import short_step, undivided


@pytest.mark.parametrize(
    ("points", "found"),
    [
        (["0", "1", "7"], ["0", "7"]),
        (["0+0", "0+3", "0+7", "3+3", "3+7", "7+7"], ["0+0", "0+7", "7+7"]),
        (["0+0", "0+3", "3+3"], ["0+0"]),
    ],
    ids=["two hosts", "three hosts", "the last point was not asked for"],
)
def test_points_that_leave_the_model_to_one_host(points: list[str], found: list[str]) -> None:
    payloads = [0 if set(point.split("+")) == {"7"} else 9 for point in points]
    rows = pd.DataFrame({"point": points, "payload_bytes": payloads})
    assert rows.loc[undivided(rows), "point"].tolist() == found


@pytest.mark.parametrize(
    ("step", "links", "short"),
    [
        ("edge", 1, "edge"),
        ("edge-server out", 1, "link out"),
        ("edge-middle1 back", 2, "link 1 back"),
        ("middle2-server out", 3, "link 3 out"),
        ("middle1", 2, "middle1"),
    ],
)
def test_steps_by_their_short_names(step: str, links: int, short: str) -> None:
    assert short_step(step, links + 1) == short
