"""What is said of several testbeds, against the truth: it prints tables and judges none.

Run by `./pareto.sh test --deep tests/measure/test_testbeds.py`.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from pareto.analysis.fronts.front import front
from pareto.analysis.fronts.indicators import nondominated_in_each
from tests.measure.conftest import Printed
from tests.unit.calibration import BINS, table
from tests.unit.simulated_rounds import by_condition, trials

pytestmark = pytest.mark.deep

CONDITIONS, POINTS = 60, 12
NOISE = 0.01


def test_fronts_of_several_testbeds(printed: Printed) -> None:
    """A testbed is slower as a whole, by `factor`, and each point there by itself, by `own`; a tenth is invalid."""
    printed("\ntestbeds, rounds, factor, own; wrong on the front; intervals that hold; stated > true (n)")
    printed(" " * 42 + "  ".join(f"{low:.2f}-{high:.2f}     " for low, high in pairwise(BINS)))
    for testbeds, rounds in ((1, 6), (2, 6), (3, 12), (6, 12)):
        for factor, own in ((0.0, 0.0), (0.15, 0.0), (0.15, 0.02)):
            rng = np.random.default_rng(1)
            shape, bed = (CONDITIONS, rounds, POINTS), np.arange(rounds) % testbeds
            along = rng.uniform(0, 0.3, (CONDITIONS, POINTS))
            latency, rate = (np.exp(along + rng.normal(0, 0.05, along.shape)) for _ in range(2))
            slower = factor * rng.standard_normal((CONDITIONS, testbeds, 1))
            each = own * rng.standard_normal((2, CONDITIONS, testbeds, POINTS))
            taken = [
                np.exp(slower + each[n])[:, bed] * np.exp(NOISE * rng.standard_normal(shape)) for n in (0, 1)
            ]
            frame = trials(latency[:, None] * taken[0], rate[:, None] / taken[1])
            frame["testbed"] = bed[frame["round"]].astype(str)
            frame["status"] = np.where(rng.random(len(frame)) < 0.1, "invalid", "ok")
            rows = front(frame)
            rows = rows.assign(place=rows["point"].astype(int)).sort_values(["netem", "place"])
            true = nondominated_in_each(np.stack([latency, rate], axis=2), (False, True))
            here = latency * np.exp((slower + each[0]).mean(axis=1))
            low, high = (by_condition(rows, f"latency_{end}_s") for end in ("low", "high"))
            known = ~np.isnan(low)
            held = ((low <= here) & (here <= high))[known].mean() if known.any() else np.nan
            stated = by_condition(rows, "probability_all")
            wrong = (by_condition(rows, "on_front") != true).mean()
            bins = [f"{p:.2f}>{so:.2f} ({n:4})" if n >= 20 else " " * 17 for p, so, n in table(stated, true)]
            printed(
                f"{testbeds:2} {rounds:3} {factor:6.0%} {own:4.0%} {wrong:8.1%} {held:8.1%}      {' '.join(bins)}"
            )
