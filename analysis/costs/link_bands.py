"""What a probe of a link may have read at the least and at the most, from what was asked of the link."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from analysis.costs.overhead import GOODPUT

DATAGRAM_SHARE = 1472 / 1514
"""Payload in each byte on the wire where rates are taken by datagrams: MTU 1500, IPv4, UDP."""
_WAYS = {"rate_bps": "edge_to_server", "rate_back_bps": "server_to_edge"}
_IMPAIRED = ("loss", "duplicate", "reorder", "corrupt", "limit_bytes")


def bands(links: pd.DataFrame, manifest: Mapping[str, Any]) -> pd.DataFrame:
    """The probes of one run with what the verdict allows, as `pareto.link.probe` judges it.

    `links`: of `analysis.runs.links.load`. New columns: rtt_least_s and rtt_most_s (asked +- jitter +- tolerance, s);
    for `rate` and `rate_back` also payload_bps (asked, as payload, which is what a probe reads), least_bps and
    most_bps. NaN where nothing was asked, the manifest does not tell the tolerance, or a trace changes the link, so
    that what was asked at that moment is not in the file.
    """
    sweep, profiles = (_mapping(manifest.get(name)) for name in ("sweep", "profiles"))
    share, floor_s = (_number(sweep.get(name)) for name in ("tolerance", "rtt_floor"))
    rtt_share = _number(sweep.get("rtt_tolerance", sweep.get("tolerance")))  # once one option said both
    still = links["position_s"].isna()
    records = {netem: _mapping(profiles.get(netem)) for netem in links["netem"].unique()}
    jitter_s = links["netem"].map({netem: _jitter_s(record) for netem, record in records.items()})
    by_datagrams = links["netem"].map(
        {
            netem: bool(sweep.get("slow_start_after_idle")) or _tcp_falls_short(record)
            for netem, record in records.items()
        }
    )
    asked_s = links["asked_rtt_s"].where(still)
    allowed_s = np.maximum(rtt_share * asked_s, floor_s) + jitter_s
    made = links.assign(rtt_least_s=(asked_s - allowed_s).clip(lower=0), rtt_most_s=asked_s + allowed_s)
    payload_share = np.where(by_datagrams.astype(bool), DATAGRAM_SHARE, GOODPUT)
    for rate in _WAYS:
        name = rate.removesuffix("_bps")
        payload_bps = links[f"asked_{rate}"] * payload_share
        made[f"{name}_payload_bps"] = payload_bps
        made[f"{name}_least_bps"] = (payload_bps * (1 - share)).where(still)
        made[f"{name}_most_bps"] = (payload_bps * (1 + share)).where(still)
    return made


def _jitter_s(profile: Mapping[str, Any]) -> float:
    return sum(_number(_mapping(profile.get(way)).get("jitter_s", 0.0)) for way in _WAYS.values())


def _tcp_falls_short(profile: Mapping[str, Any]) -> bool:
    return any(_mapping(profile.get(way)).get(what) for way in _WAYS.values() for what in _IMPAIRED)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")
