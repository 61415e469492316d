"""Very many rounds, several together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.advice.observed import Observed, medians, observe, together
from tests.unit import simulated_network as world


def observed(**asked: Any) -> Observed:
    rows = world.trials(**asked)
    return observe(rows, world.stages(rows), asked.get("profiles") or world.PROFILES)


def test_very_many_rounds_are_drawn_several_together():
    rows = pd.concat(
        [world.trials(rounds=230), world.trials({"slow": world.PROFILES["slow"]}, rounds=3, run="b")]
    )
    rows.loc[(rows["round"] == 7) & (rows["point"] == "2"), "status"] = "failed"
    found = observe(rows, world.NO_STAGES, world.PROFILES)
    blocks = together(found)
    assert len(blocks.stratum) <= 103
    assert np.bincount(blocks.stratum).tolist()[1] == 3
    assert medians(blocks.latency_s) == pytest.approx(medians(found.latency_s), rel=0.005)
    first = np.array_split(np.arange(230), np.count_nonzero(blocks.stratum == 0))[0]
    assert blocks.latency_s[0, 0, 0] == pytest.approx(np.median(found.latency_s[first, 0, 0]))
    few = observed(rounds=5)
    assert together(few) is few
