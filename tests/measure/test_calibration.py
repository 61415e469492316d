"""How often what is stated with a probability is so. It prints a table and judges none.

Run by `./pareto.sh test --deep tests/measure/test_calibration.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from tests.measure.conftest import Printed
from tests.unit.calibration import BINS, World, best, table, two, whole

pytestmark = pytest.mark.deep

SIZES, GAPS, ROUNDS = (0.02, 0.05, 0.10, 0.30), (0.05, 0.10, 0.30), (3, 6, 10, 20)
TAILS = ("lognormal", "heavy", "outliers")


@pytest.mark.parametrize("study", [two, whole, best])
def test_stated_against_true(printed: Printed, study: Callable[..., tuple[np.ndarray, np.ndarray]]) -> None:
    printed(
        f"\n{study.__name__}: noise, gap, rounds, tails, common; stated > true (n), and the share with none"
    )
    printed(" " * 34 + "  ".join(f"{low:.2f}-{high:.2f}     " for low, high in pairwise(BINS)))
    conditions = 40 if study is whole else 400
    for world in worlds():
        stated, true = study(world, conditions, seed=1)
        cells = [f"{p:.2f}>{so:.2f} ({n:4})" if n >= 20 else " " * 17 for p, so, n in table(stated, true)]
        kind = "uneven" if world.uneven else world.kind
        name = f"{world.size:4.0%} {world.gap:4.0%} {world.rounds:2} {kind:9} {world.common:g}"
        printed(f"{name:28}" + " ".join(cells) + f"  none {np.isnan(stated).mean():.0%}")


def worlds() -> list[World]:
    grid = [World(size, gap, rounds) for size in SIZES for gap in GAPS for rounds in ROUNDS]
    tails = [World(0.1, gap, 6, kind) for gap in GAPS for kind in TAILS[1:]]
    uneven = [World(size, gap, 6, uneven=1.0) for size in SIZES[:3] for gap in GAPS]
    return [*grid, *tails, *uneven, *(World(0.02, gap, 6, common=10) for gap in GAPS)]
