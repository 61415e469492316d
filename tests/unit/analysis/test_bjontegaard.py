"""The delta rate of two codecs against curves whose areas are known by hand."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pandas as pd
import pytest
from syrupy.assertion import SnapshotAssertion

from pareto.analysis.comparing import bjontegaard
from pareto.analysis.comparing.bjontegaard import COLUMNS, Curve, delta_rate, delta_rates, family, sentences
from pareto.analysis.fronts.front import front
from tests.unit.example_codecs import trials


def curve(wire: list[float], accuracy: list[float], images: float = 1000) -> Curve:
    return Curve(np.array(wire), np.array(accuracy), np.full(len(wire), images))


FIRST = curve([1000, 2000, 4000, 8000], [0.80, 0.85, 0.90, 0.95])


def test_delta_rates_of_curves_whose_areas_are_known() -> None:
    same = list(FIRST.accuracy)
    for factor in (0.5, 1.0, 2.0):
        other = curve([factor * wire for wire in FIRST.wire], same)
        assert delta_rate(FIRST, other) == pytest.approx((factor - 1, 0.80, 0.95))
    # The logarithm of the rate is a straight line in the accuracy: rate doubles every 0.05. The other one's is shifted
    # by 0.05 and starts at 0.85, so that at equal accuracy it sends half as much.
    shifted = curve([1000, 2000, 4000, 8000], [0.85, 0.90, 0.95, 1.0])
    assert delta_rate(FIRST, shifted) == pytest.approx((-0.5, 0.85, 0.95))
    # Twice as much at the lower end, as much at the upper one, a straight line between: the mean factor is sqrt(2).
    nearing = curve([2000, 2000 * 2 ** (2 / 3), 2000 * 2 ** (4 / 3), 8000], same)
    assert delta_rate(FIRST, nearing)[0] == pytest.approx(math.sqrt(2) - 1)
    above, short = (
        curve([1000, 2000, 4000, 8000], [0.96, 0.97, 0.98, 0.99]),
        curve([1000, 2000, 4000], same[:3]),
    )
    assert math.isnan(delta_rate(FIRST, above)[0])
    assert math.isnan(delta_rate(FIRST, short)[0])


def test_points_that_are_beaten_are_not_on_the_curve() -> None:
    worse = curve([*FIRST.wire, 9000, 3000], [*FIRST.accuracy, 0.9, 0.80])
    np.testing.assert_allclose(worse.best()[1], FIRST.accuracy)
    assert delta_rate(FIRST, worse)[0] == pytest.approx(0, abs=1e-12)
    unknown = Curve(np.append(FIRST.wire, np.nan), np.append(FIRST.accuracy, 0.99), np.full(5, 1000.0))
    assert len(unknown.best()[0]) == 4


@pytest.mark.parametrize(
    ("codec", "of"),
    [
        ("jpeg:90", "jpeg"), ("int8+zstd:3", "int8+zstd"), ("int8:channel", "int8:channel"),
        ("blosc2:blosclz:9:shuffle", "blosc2:blosclz:shuffle"), ("zstd:3+fp16", "zstd+fp16"), ("uint4", "uint4"),
    ],
)  # fmt: skip
def test_levels_are_one_family(codec: str, of: str) -> None:
    assert family(codec) == of


SAME = (0.8, 0.85, 0.9, 0.95)


@cache
def pictures(of_webp: tuple[float, ...] = SAME) -> pd.DataFrame:
    """A front of picture codecs at point 0, four levels each; `webp` sends 30 % less than `jpeg`."""
    parts = []
    for kind, values, size in (("jpeg", SAME, 1.0), ("webp", of_webp, 0.7)):
        for level, value in zip((30, 50, 70, 90), values, strict=True):
            one = trials(codecs=("none",), rounds=1, noise=0.0)
            one = one[one["point"] == "0"].assign(
                codec=f"{kind}:{level}", agreement=value, agreement_images=1000, output_error=0.1
            )
            parts.append(one.assign(wire_bytes=size * 1000 * 2 ** (level / 20)))
    return front(pd.concat(parts, ignore_index=True), resamples=1)


def test_codecs_of_several_levels_are_compared(snapshot: SnapshotAssertion) -> None:
    rates = delta_rates(pictures())
    assert list(rates.columns) == COLUMNS
    (row,) = rates.to_dict("records")
    assert (row["first"], row["other"], row["first_points"]) == ("jpeg", "webp", 4)
    assert row["rate_percent"] == pytest.approx(-30, abs=0.1)
    assert row["rate_low_percent"] < -30 < row["rate_high_percent"] < 0
    wider = delta_rates(pictures().assign(accuracy_images=100)).iloc[0]
    # A tenth of the images: an interval about three times as wide, or none where curves no longer meet.
    assert not wider["rate_high_percent"] - wider["rate_low_percent"] < 2 * (
        row["rate_high_percent"] - row["rate_low_percent"]
    )
    apart = delta_rates(pictures((0.96, 0.97, 0.98, 0.99)))
    assert math.isnan(apart.iloc[0]["rate_percent"])
    unknown = delta_rates(pictures().assign(accuracy_images=math.nan))
    assert math.isnan(unknown.iloc[0]["rate_low_percent"])
    assert delta_rates(front(trials(rounds=1))).empty, "lossless codecs and single levels have no curve"
    lines = [line for rates in (rates, apart, unknown) for line in sentences(rates)]
    assert lines == snapshot


def test_a_point_where_another_codec_is_at_work_is_not_on_the_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    """What int8 leaves as it is at point 0 says nothing of int8."""
    monkeypatch.setattr(bjontegaard, "DRAWN", 20)
    rows = pictures()
    plain = rows[rows["codec"] == "webp:30"].assign(
        codec="webp:1", codec_at_work="none", wire_bytes_per_image=1.0, accuracy=1.0
    )
    pd.testing.assert_frame_equal(delta_rates(pd.concat([rows, plain], ignore_index=True)), delta_rates(rows))
