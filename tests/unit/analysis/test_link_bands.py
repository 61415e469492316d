"""What a link may measure: the band is the verdict's own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from analysis.costs import bands
from analysis.schema import LINKS, TEXT
from pareto.link.probe import GOODPUT, Reading, Tolerance, judge, judge_rate, judge_rtt
from pareto.link.profile import Direction, Profile

WIFI = Profile("wifi", Direction(0.001, 15e6), Direction(0.001, 30e6))
SLOW = Profile("slow", Direction(0.2, 5e6))
SHAKY = Profile("shaky", Direction(0.05, 20e6, jitter_s=0.01), Direction(0.05, jitter_s=0.005))
LOSSY = Profile("lossy", Direction(0.01, 8e6, loss=0.01))
TOLERANCE = Tolerance(0.1, 0.002, 0.1)
UDP_SHARE = 1472 / 1514


def manifest(*profiles: Profile, **sweep: Any) -> dict[str, Any]:
    records = {profile.name: profile.record() for profile in profiles}
    return {
        "profiles": records,
        "sweep": {"tolerance": 0.1, "rtt_floor": 0.002} | sweep,
        "testbed": "two hosts",
    }


def probe(
    profile: Profile, *, rtt: float = 1.0, rate: float = 1.0, run: str = "run", **more: Any
) -> dict[str, Any]:
    """A probe of a link that is off by these factors, with the harness's own verdict."""
    share = GOODPUT if profile.tcp_fills else UDP_SHARE
    out, back = (None if way.rate_bps is None else rate * share * way.rate_bps for way in profile.directions)
    reading = Reading(rtt * profile.rtt_s, out, back, payload_share=share)
    fault = judge(profile, reading, TOLERANCE)
    return {column: "" if column in TEXT else math.nan for column in LINKS.columns} | {
        "run": run, "netem": profile.name, "link": "edge-server", "verdict": "off" if fault else "ok", "reason": fault,
        "asked_rtt_s": profile.rtt_s, "asked_rate_bps": profile.edge_to_server.rate_bps or math.nan,
        "asked_rate_back_bps": profile.server_to_edge.rate_bps or math.nan,
        "rtt_s": reading.rtt_s, "rate_bps": out or math.nan, "rate_back_bps": back or math.nan,
    } | more  # fmt: skip


def probes(*rows: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(rows)


@pytest.mark.parametrize("profile", [WIFI, SLOW, SHAKY, LOSSY], ids=lambda profile: profile.name)
def test_the_band_is_what_the_verdict_allows(profile: Profile) -> None:
    factors = np.linspace(0.7, 1.3, 61)
    made = bands(probes(*(probe(profile, rtt=by, rate=by) for by in factors)), manifest(profile))
    share = GOODPUT if profile.tcp_fills else UDP_SHARE
    for row in made.to_dict("records"):
        within = row["rtt_least_s"] <= row["rtt_s"] <= row["rtt_most_s"]
        assert within == (not judge_rtt(profile, row["rtt_s"], TOLERANCE))
        within = row["rate_least_bps"] <= row["rate_bps"] <= row["rate_most_bps"]
        assert within == (not judge_rate("", profile.edge_to_server, row["rate_bps"], share, TOLERANCE))
    assert made["rate_back_most_bps"].isna().all() == (profile.server_to_edge.rate_bps is None)


def test_what_is_not_known_has_no_band() -> None:
    untold = bands(probes(probe(WIFI)), {})
    assert untold[["rtt_least_s", "rtt_most_s", "rate_least_bps"]].isna().all(axis=None)
    traced = bands(probes(probe(WIFI, position_s=3.0)), manifest(WIFI))
    assert traced[["rtt_most_s", "rate_most_bps", "rate_back_least_bps"]].isna().all(axis=None)
    assert traced["rate_payload_bps"].item() == pytest.approx(GOODPUT * 15e6)
    slow_start = bands(probes(probe(WIFI)), manifest(WIFI, slow_start_after_idle=True))
    assert slow_start["rate_payload_bps"].item() == pytest.approx(UDP_SHARE * 15e6)
