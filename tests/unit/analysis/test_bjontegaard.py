"""The delta rate of two codecs against curves whose areas are known by hand."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.comparing import bjontegaard
from pareto.analysis.comparing.bjontegaard import COLUMNS, best, delta_rate, delta_rates, family
from pareto.analysis.comparing.sentences import rates as sentences
from pareto.analysis.fronts.front import front
from tests.unit.example_codecs import trials

WIRE, SAME = [1000.0, 2000.0, 4000.0, 8000.0], [0.80, 0.85, 0.90, 0.95]
BETWEEN = [2000, 2000 * 2 ** (2 / 3), 2000 * 2 ** (4 / 3), 8000]


@pytest.mark.parametrize(
    ("wire", "accuracy", "share"),
    [
        *(([factor * nbytes for nbytes in WIRE], SAME, factor - 1) for factor in (0.5, 1.0, 2.0)),
        # The logarithm of the rate is a straight line in the accuracy: rate doubles every 0.05. The other one's is
        # shifted by 0.05 and starts at 0.85, so that at equal accuracy it sends half as much.
        (WIRE, [0.85, 0.90, 0.95, 1.0], -0.5),
        # Twice as much at the lower end, as much at the upper one, a straight line between.
        (BETWEEN, SAME, math.sqrt(2) - 1),
        (WIRE, [0.96, 0.97, 0.98, 0.99], math.nan),
        (WIRE[:3], SAME[:3], math.nan),
        # Points that are beaten, or not known, are not on the curve.
        ([*WIRE, 9000, 3000, math.nan], [*SAME, 0.9, 0.80, 0.99], 0),
    ],
)
def test_delta_rates_of_curves_whose_areas_are_known(
    wire: list[float], accuracy: list[float], share: float
) -> None:
    other = np.array([wire, accuracy], dtype=float)
    found, low, high = delta_rate(np.array([WIRE, SAME]), other)
    assert found == pytest.approx(share, nan_ok=True, abs=1e-12)
    if not math.isnan(share):
        assert (low, high) == (accuracy[0], 0.95)
        np.testing.assert_allclose(best(*other)[1], accuracy[:4])


@pytest.mark.parametrize(
    ("codec", "of"),
    [
        ("jpeg:90", "jpeg"), ("int8+zstd:3", "int8+zstd"), ("int8:channel", "int8:channel"),
        ("blosc2:blosclz:9:shuffle", "blosc2:blosclz:shuffle"), ("zstd:3+fp16", "zstd+fp16"), ("uint4", "uint4"),
    ],
)  # fmt: skip
def test_levels_are_one_family(codec: str, of: str) -> None:
    assert family(codec) == of


@cache
def pictures(of_webp: tuple[float, ...] = tuple(SAME)) -> pd.DataFrame:
    """A front of picture codecs at point 0, four levels each; `webp` sends 30 % less than `jpeg`."""
    parts, one = [], trials(codecs=("none",), rounds=1, noise=0.0)
    one = one[one["point"] == "0"].assign(agreement_images=1000, output_error=0.1)
    for kind, values, size in (("jpeg", SAME, 1000), ("webp", of_webp, 700)):
        for level, value in zip((30, 50, 70, 90), values, strict=True):
            nbytes = size * 2 ** (level / 20)
            parts.append(one.assign(codec=f"{kind}:{level}", agreement=value, wire_bytes=nbytes))
    return front(pd.concat(parts, ignore_index=True), resamples=1)


def test_codecs_of_several_levels_are_compared(
    snapshot: SnapshotAssertion, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates = delta_rates(pictures())
    assert list(rates.columns) == COLUMNS
    (row,) = rates.to_dict("records")
    assert (row["first"], row["other"], row["first_points"]) == ("jpeg", "webp", 4)
    assert row["rate_percent"] == pytest.approx(-30, abs=0.1)
    assert row["rate_low_percent"] < -30 < row["rate_high_percent"] < 0
    wider = delta_rates(pictures().assign(accuracy_images=100)).iloc[0]
    # A tenth of the images: an interval about three times as wide, or none where curves no longer meet.
    width, of_wider = (each["rate_high_percent"] - each["rate_low_percent"] for each in (row, wider))
    assert not of_wider < 2 * width
    apart = delta_rates(pictures((0.96, 0.97, 0.98, 0.99)))
    unknown = delta_rates(pictures().assign(accuracy_images=math.nan))
    assert math.isnan(apart.iloc[0]["rate_percent"]) and math.isnan(unknown.iloc[0]["rate_low_percent"])
    assert delta_rates(front(trials(rounds=1))).empty, "lossless codecs and single levels have no curve"
    assert [line for rates in (rates, apart, unknown) for line in sentences(rates)] == snapshot
    # What a codec leaves as it is at point 0, where another one is at work, says nothing of it.
    monkeypatch.setattr(bjontegaard, "DRAWN", 20)
    plain = {"codec": "webp:1", "codec_at_work": "none", "wire_bytes_per_image": 1.0, "accuracy": 1.0}
    rows = pictures()
    both = pd.concat([rows, rows[rows["codec"] == "webp:30"].assign(**plain)], ignore_index=True)
    pd.testing.assert_frame_equal(delta_rates(both), delta_rates(rows))
