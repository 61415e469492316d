"""The best point of each measured network, beside the one that the measured stages and arithmetic predict for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from pareto.analysis.advice.predict import Predictor
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.points import cuts

SAME, CLOSE, OTHER = "same", "close", "other"
"""A prediction names the point measured best; another whose interval overlaps or is not known; another."""
COLUMNS = [
    *("netem", "delay_s", "rate_bps", "objective", "point", "backend", "measured", "low", "high"),
    *("predicted_point", "predicted_backend", "measured_there", "behind_percent", "prediction"),
]
_MEASURES = {
    "latency": ("latency_s", "latency_low_s", "latency_high_s"),
    "throughput": ("throughput_ips", "throughput_low_ips", "throughput_high_ips"),
}


def best(
    rows: pd.DataFrame, known: Mapping[str, Network], predictor: Predictor | None = None
) -> pd.DataFrame:
    """One row a profile and objective (`latency`, `throughput`), of one model, batch size, codec and depth.

    `rows`: of `analysis.fronts.front.front`, of two hosts; profiles that are not in `known` are left out, as are points
    that are not `feasible`. Columns `COLUMNS`:

    - delay_s: what the profile adds to a round trip, both ways. rate_bps: edge to server, inf without a limit.
    - point, backend: the best median; backend is empty where nothing crosses, as all do the same there. measured, low,
      high: that median (s or images/s) and its 95 % interval, NaN where there is none.
    - predicted_point, predicted_backend: the best at that network by `predictor`; empty without one. measured_there:
      what was measured at that point, NaN if it was not; behind_percent: how much worse that is than the best.
    - prediction: `SAME`, `CLOSE` or `OTHER`; empty without a predictor.
    """
    if any(len(cuts(point)) > 1 for point in rows["point"].unique()):
        return pd.DataFrame(columns=COLUMNS)
    made = []
    for netem, of_profile in rows[rows["feasible"].astype(bool)].groupby("netem", sort=False):
        network = known.get(str(netem))
        for objective, (column, low, high) in _MEASURES.items():
            measured = of_profile.dropna(subset=[column])
            if network is None or measured.empty:
                continue
            worse = measured[column] if objective == "latency" else 1 / measured[column]
            first = measured.loc[worse.idxmin()]
            row: dict[str, Any] = {"netem": netem, "delay_s": network.delay_s + network.delay_back_s}
            row |= {"rate_bps": network.rate_bps, "objective": objective, "measured": first[column]}
            row |= {name: first[name] for name in ("point", "backend")} | {
                "low": first[low],
                "high": first[high],
            }
            row |= dict.fromkeys(("predicted_point", "predicted_backend", "prediction"), "")
            made.append(row)
            if predictor is None:
                continue
            cell = predictor.cells.iloc[int(predictor.cost(objective, **vars(network)).argmin())]
            row |= {f"predicted_{name}": cell[name] for name in ("point", "backend")} | {"prediction": OTHER}
            there = measured[(measured[["point", "backend"]] == cell[["point", "backend"]]).all(axis=1)]
            for name, other in there.head(1).iterrows():
                apart = other[low] > first[high] if objective == "latency" else other[high] < first[low]
                row["measured_there"] = other[column]
                row["behind_percent"] = 100 * (worse[name] / worse[first.name] - 1)
                row["prediction"] = SAME if name == first.name else OTHER if apart else CLOSE
    return pd.DataFrame(made, columns=COLUMNS)
