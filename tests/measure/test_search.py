"""How often a search's front is the true one, and for which share of the time: the table of docs/search.md.

Run by `./pareto.sh test --deep tests/measure/test_search.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

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


@pytest.mark.parametrize("cells", [44, 400])
@pytest.mark.parametrize(("kind", "noise", "of"), NOISES)
@pytest.mark.timeout(0)
def test_the_share_of_true_fronts(
    printed: Callable[[str], None], cells: int, kind: str, noise: float, of: str
) -> None:
    results = [
        searched.repeat(
            seed,
            cells,
            noise,
            kind,
            ties=of == "ties",
            drift=0.3 if of == "drift" else 0.0,
            off=3.0 if of == "forecast" else 1.0,
            engine=of == "engine",
            default=of == "default",
        )
        for seed in range(REPEATS)
    ]
    means = [
        float(np.mean([getattr(each, name) for each in results]))
        for name in ("is_right", "all_right", "lost", "share", "trials")
    ]
    low, high = searched.CELLS
    size = f"{low:.0%} to {high:.0%}" if kind == "cells" else f"{noise:.0%}"
    printed(f"| {cells} | {size} | {kind} | {of} | " + " | ".join(f"{mean:.1%}" for mean in means) + " |")


@pytest.mark.parametrize("points", [22, 100])
@pytest.mark.parametrize(
    ("kind", "noise"), [(kind, size) for size in (0.03, 0.1) for kind in ("single", "common")]
)
@pytest.mark.timeout(0)
def test_the_share_of_true_fronts_with_codecs(
    printed: Callable[[str], None], points: int, kind: str, noise: float
) -> None:
    codecs = len(searched.CODECS)
    results = [searched.repeat(seed, 2 * points, noise, kind, codecs=codecs) for seed in range(CODED_REPEATS)]
    means = [
        float(np.mean([getattr(each, name) for each in results]))
        for name in ("is_right", "all_right", "lost", "share", "trials")
    ]
    cells = 2 * (codecs * (points - 1) + 1)
    printed(f"| {cells} | {noise:.0%} | {kind} | " + " | ".join(f"{mean:.1%}" for mean in means) + " |")
