"""How often a search's front is the true one, and for which share of the time: the table of docs/search.md.

Run by `./pareto.sh test --deep tests/measure/test_search.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.measure.conftest import Printed
from tests.unit import searched

pytestmark = pytest.mark.deep
REPEATS, CODED_REPEATS = 200, 100
NOISES = (
    *(("single", 0.03, ""), ("common", 0.03, ""), ("single", 0.1, ""), ("common", 0.1, "")),
    *(("single", 0.1, "ties"), ("common", 0.1, "ties"), ("single", 0.1, "drift"), ("common", 0.1, "drift")),
    *(("single", 0.1, "forecast"), ("common", 0.1, "forecast")),
    *(("single", 0.03, "engine"), ("single", 0.1, "engine"), ("common", 0.1, "engine")),
    *((kind, size, "default") for size in (0.03, 0.1) for kind in ("single", "common")),
    *(("slowed", 0.1, "default"), ("cells", 0.1, "default"), ("single", 0.3, "default")),
    *(("tails", 0.1, ""), ("slowed", 0.1, ""), ("cells", 0.1, ""), ("single", 0.3, ""), ("common", 0.3, "")),
)


def means(seeds: int, *of: Any, **options: Any) -> str:
    """The cells of a table's row: what as many searches found on average."""
    results = [searched.repeat(seed, *of, **options) for seed in range(seeds)]
    names = ("is_right", "all_right", "lost", "share", "trials")
    found = (float(np.mean([getattr(each, name) for each in results])) for name in names)
    return " | ".join(f"{mean:.1%}" for mean in found)


@pytest.mark.parametrize("cells", [44, 400])
@pytest.mark.parametrize(("kind", "noise", "of"), NOISES)
@pytest.mark.timeout(0)
def test_the_share_of_true_fronts(printed: Printed, cells: int, kind: str, noise: float, of: str) -> None:
    options = {"drift": 0.3 if of == "drift" else 0.0, "off": 3.0 if of == "forecast" else 1.0}
    found = means(
        REPEATS, cells, noise, kind, **options, **{each: of == each for each in ("ties", "engine", "default")}
    )
    low, high = searched.CELLS
    size = f"{low:.0%} to {high:.0%}" if kind == "cells" else f"{noise:.0%}"
    printed(f"| {cells} | {size} | {kind} | {of} | {found} |")


@pytest.mark.parametrize("points", [22, 100])
@pytest.mark.parametrize("noise", [0.03, 0.1])
@pytest.mark.parametrize("kind", ["single", "common"])
@pytest.mark.timeout(0)
def test_the_share_of_true_fronts_with_codecs(printed: Printed, points: int, kind: str, noise: float) -> None:
    codecs = len(searched.CODECS)
    found = means(CODED_REPEATS, 2 * points, noise, kind, codecs=codecs)
    printed(f"| {2 * (codecs * (points - 1) + 1)} | {noise:.0%} | {kind} | {found} |")
