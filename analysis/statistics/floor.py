"""The noise floor: what identical treatments differ by though they were measured alike, and no number of rounds shows.

Each cell of a run has its own connections and its own place in memory, for as long as its processes live, and these are
the same in all of its rounds. Where one treatment is measured under several names (a point where nothing crosses, under
each backend; `tcp:a` and `tcp:b`), what they differ by beyond their rounds' spread is that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from analysis.keys import CONDITION
from analysis.naming import count, transport
from analysis.statistics.median import Floats

OF = ["model", "setup"]
MEASURES = {"latency_s": "latency", "throughput_ips": "throughput"}


@dataclass(frozen=True)
class Floor:
    """Of one model in one setup. shares: by column, the standard deviation of a cell's figure as a share of it.

    comparisons: how many identical treatments were compared with another.
    """

    shares: Mapping[str, float] = field(default_factory=dict)
    comparisons: int = 0

    def of(self, columns: Sequence[str]) -> Floats:
        """Of these columns; 0 where it is not known."""
        return np.array([self.shares.get(column, 0.0) for column in columns])


Floors = Mapping[tuple[str, str], Floor]
UNKNOWN = Floor()


def floors(trials: pd.DataFrame, columns: Sequence[str] = tuple(MEASURES)) -> Floors:
    """By model and setup, from trials as they were measured: not those of points that are pooled already.

    The variance between the means over rounds of what is identical, less what the rounds' own spread makes of it; both
    of logarithms, and without what a round's trials share (a random effect in an analysis of variance; Searle, Casella
    & McCulloch, "Variance Components", 1992). Nothing where no treatment was measured twice.
    """
    wanted = [column for column in columns if column in trials]
    needed = dict.fromkeys([*CONDITION, "run", "round", "backend", "point", "payload_bytes", *wanted])
    ok = trials.loc[trials["status"] == "ok", [name for name in needed if name in trials]]
    crosses = ok["payload_bytes"] > 0 if "payload_bytes" in ok else pd.Series(True, index=ok.index)
    ok = ok.assign(treatment=ok["backend"].astype(str).map(transport).where(crosses, ""))
    found = {}
    for key, of_model in ok.groupby(OF, observed=True):
        pairs = list(_compared(of_model, wanted))
        if pairs:
            freedom = sum(n for n, _ in pairs)
            beyond = sum(n * excess for n, excess in pairs) / freedom
            shares = dict(zip(wanted, np.sqrt(np.maximum(0.0, np.nan_to_num(beyond))), strict=True))
            found[str(key[0]), str(key[1])] = Floor(shares, int(freedom))
    return found


def _compared(ok: pd.DataFrame, columns: Sequence[str]) -> Iterator[tuple[int, Floats]]:
    """Of each treatment with several names: how many more than one, and the excess variance of each column."""
    same = ["run", *CONDITION, "point", "treatment"]
    several = ok[ok.groupby(same, observed=True)["backend"].transform("nunique") > 1]
    for _, rows in several.groupby(same, observed=True):
        tables = [rows.pivot_table(values=name, index="round", columns="backend") for name in columns]
        excess = [_excess(table.dropna().to_numpy(dtype=float)) for table in tables]
        names = int(rows["backend"].nunique())
        if any(np.isfinite(excess)):
            yield names - 1, np.array(excess)


def _excess(values: Floats) -> float:
    """Of rounds x names: the variance between names' means, less what rounds explain; NaN with fewer than 2 rounds."""
    if values.shape[0] < 2 or values.shape[1] < 2 or not (values > 0).all():
        return np.nan
    logs = np.log(values)
    logs -= logs.mean(axis=1, keepdims=True)
    means = logs.mean(axis=0)
    rounds, names = logs.shape
    between = float((means**2).sum()) / (names - 1)
    within = float(((logs - means) ** 2).sum()) / ((rounds - 1) * (names - 1))
    return float(between - within / rounds)


def sentences(known: Floors) -> Iterator[str]:
    """A line for each model and setup that has identical treatments."""
    for (model, setup), floor in known.items():
        shown = {word: floor.shares[column] for column, word in MEASURES.items() if column in floor.shares}
        of = f"{model}, {setup}" if setup else model
        again = count(floor.comparisons, "comparison")
        if any(share >= 0.0005 for share in shown.values()):
            each = ", ".join(f"{100 * share:.2g} % in {word}" for word, share in shown.items())
            yield (
                f"noise floor of {of}: {each}: identical treatments differ by so much beyond what their rounds explain "
                f"({again}); it is in every probability, and no verdict is given that it would overturn"
            )
        else:
            yield f"noise floor of {of}: identical treatments differ by no more than their rounds explain ({again})"
