"""What is said of several testbeds, against the truth: it prints tables and judges none.

Run by `./pareto.sh test --deep tests/measure/test_testbeds.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest

from analysis.fronts.front import front
from analysis.fronts.indicators import nondominated_in_each
from analysis.statistics.samples import Floats
from analysis.statistics.testbeds import between
from tests.unit.calibration import BINS, table
from tests.unit.simulated_rounds import by_condition, trials

pytestmark = pytest.mark.deep

TIMES, CONDITIONS, POINTS = 1000, 60, 12
NOISE = 0.01
ROUNDS = ((3, 3), (6, 6), (6, 5, 4, 3), (3,) * 8)


def noises(rng: np.random.Generator, kind: str, shape: tuple[int, ...]) -> Floats:
    """Noise of standard deviation 1: normal, heavy tailed, or skewed."""
    if kind == "heavy":
        return rng.standard_t(3, shape) / np.sqrt(3)
    return rng.exponential(1, shape) - 1 if kind == "skewed" else rng.standard_normal(shape)


def test_whether_they_agree(printed: Callable[[str], None]) -> None:
    printed(
        "\nrounds; noise; called different if alike; intervals that hold, of the spread and of all differences"
    )
    for rounds in ROUNDS:
        for kind in ("normal", "heavy", "skewed"):
            rng, place = np.random.default_rng(1), np.repeat(np.arange(len(rounds)), rounds)
            named = place.astype(str).astype(object)
            counts = np.zeros(3)
            for _ in range(TIMES):
                effects = 2 * NOISE * rng.standard_normal(len(rounds))
                noise = NOISE * noises(rng, kind, place.shape)
                known, alike = between(effects[place] + noise, named), between(noise, named)
                assert known is not None
                assert alike is not None
                _, low, high = known.spread
                truths = [effect - np.delete(effects, n).mean() for n, effect in enumerate(effects)]
                ends = zip(truths, known.differences(), strict=True)
                holds = all(least <= true <= most for true, (_, least, most) in ends)
                counts += (alike.p_value <= 0.05, low <= 2 * NOISE <= high, holds)
            shares = "  ".join(f"{share:6.1%}" for share in counts / TIMES)
            printed(f"{'+'.join(map(str, rounds)):16} {kind:7} {shares}")


def test_fronts_of_several_testbeds(printed: Callable[[str], None]) -> None:
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
            rows = front(frame, resamples=1)
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
