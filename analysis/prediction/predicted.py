"""The predicted front among all splits of a chain, and beside it the splits that simpler rules choose."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from pareto.analysis.fronts.where import Where
from pareto.analysis.model_profile import ModelProfile
from pareto.analysis.prediction import choose, forecast
from pareto.analysis.prediction.forecast import AUTO, Forecast, Slack
from pareto.analysis.prediction.network import Network
from pareto.analysis.runs.points import NONE
from pareto.analysis.statistics.samples import Ints
from pareto.analysis.wording import EDGE, SERVER
from pareto.protocol.errors import UserError

FRONT, GREEDY, EVEN = "front", "greedy", "even"
RULES = (GREEDY, EVEN, SERVER, EDGE)
"""The rules that the front is compared with, in the order of the table."""
FIGURES = tuple(Forecast.__annotations__)
COLUMNS = (
    *("model", "netem", "batch_size", "codec", "in_flight_asked", "chosen_by"),
    *("backend", "point", "point_name", "payload_bytes", *FIGURES),
)
CONSTRAINED = list(COLUMNS[COLUMNS.index("backend") :])
"""The columns that a constraint may be on."""
MOST_SPLITS = 100_000
"""The most splits that are looked at one by one."""


@dataclass(frozen=True)
class Case:
    """The case in which all splits are compared: the links, and how they are used.

    usual, at_best: each link as it is, and with the least delay and the greatest rate that it has at any time.
    codec: what payloads go through.
    """

    netem: str
    usual: Sequence[Network]
    at_best: Sequence[Network]
    batch_size: int = 1
    in_flight: str = AUTO
    slack: Slack = field(default_factory=Slack)
    codec: str = forecast.NONE

    @property
    def hosts(self) -> int:
        return len(self.usual) + 1


def predicted(
    profile: ModelProfile, backends: Sequence[str], case: Case, where: Where | None = None
) -> pd.DataFrame:
    """The splits that none dominates by the forecasts, least latency first; then one row for each of `RULES`.

    Columns `COLUMNS`: payload_bytes: of a request on the first link. Then the figures of a `Forecast`. A rule gets the
    backend that suits its split best; one whose split the codec does not take has no row. where: the front is that of
    the splits that satisfy it, each of which is looked at; `feasible` says whether a row does. Raises UserError.
    """
    constrained = where if where is not None and where.text else None
    chains = {
        backend: forecast.chain(profile, case.usual, backend, case.batch_size, case.in_flight, case.codec)
        for backend in backends
    }
    if constrained is None:
        fronts = [_rows(profile, choose.front(chain), backend, case) for backend, chain in chains.items()]
        every = pd.concat(fronts, ignore_index=True)
    else:
        every = at(profile, _all_splits(profile, case.hosts), backends, case)
        every = every[constrained.holds(every[CONSTRAINED]) & every["latency_s"].notna()]
        if every.empty:
            raise UserError(f"no split satisfies {constrained.text!r} here")
    best = choose.pareto(every["latency_s"].to_numpy(), every["throughput_ips"].to_numpy())
    rows = [every.iloc[best].assign(chosen_by=FRONT)]
    whole = np.ones((1, case.hosts - 1), dtype=np.int64)
    chosen: dict[str, Callable[[choose.Chain], Ints]] = {
        GREEDY: choose.greedy,
        EVEN: choose.even,
        SERVER: lambda _: 0 * whole,
        EDGE: lambda chain: chain.last * whole,
    }
    for rule in RULES:
        tried = [_rows(profile, chosen[rule](chain), backend, case) for backend, chain in chains.items()]
        of_rule = pd.concat(tried, ignore_index=True).assign(chosen_by=rule)
        rows.append(of_rule.dropna(subset="latency_s").sort_values("latency_s", kind="stable").head(1))
    result = pd.concat(rows, ignore_index=True)[list(COLUMNS)]
    if constrained is None:
        return result
    return result.assign(feasible=constrained.holds(result[CONSTRAINED]))


def at(profile: ModelProfile, splits: Ints, backends: Iterable[str], case: Case) -> pd.DataFrame:
    """The forecasts of these splits (splits x links) over each backend, in the columns of `predicted`."""
    return pd.concat([_rows(profile, splits, backend, case) for backend in backends], ignore_index=True)


def splits_of(profile: ModelProfile, hosts: int) -> int:
    """The number of ways to split the model over so many hosts."""
    return math.comb(len(profile.points) + hosts - 2, hosts - 1)


def _all_splits(profile: ModelProfile, hosts: int) -> Ints:
    """All ways to split the model over so many hosts, splits x links. Raises UserError if they are too many."""
    if (splits := splits_of(profile, hosts)) > MOST_SPLITS:
        raise UserError(
            f"a constraint is looked up for each split, and over {hosts} hosts there are {splits}, more than "
            f"{MOST_SPLITS}: leave --where out"
        )
    return np.array([*itertools.combinations_with_replacement(range(len(profile.points)), hosts - 1)])


def behind(row: Mapping[str, float], front: pd.DataFrame) -> tuple[float, float]:
    """The shares by which a split takes longer, and lacks images a second, beside one of the front that dominates it.

    The one of the least latency counts where several do; 0 and 0 where none does.
    """
    better = front[
        (front["latency_s"] <= row["latency_s"]) & (front["throughput_ips"] >= row["throughput_ips"])
    ]
    if better.empty:
        return 0.0, 0.0
    first = better.iloc[0]
    return row["latency_s"] / first["latency_s"] - 1, 1 - row["throughput_ips"] / first["throughput_ips"]


def _rows(profile: ModelProfile, splits: Ints, backend: str, case: Case) -> pd.DataFrame:
    said = forecast.of(
        profile, splits, case.usual, backend, case.batch_size, case.in_flight,
        at_best=case.at_best, slack=case.slack, codec=case.codec,
    )  # fmt: skip
    payload_bytes = case.batch_size * profile.payload_bytes[splits[:, 0]]
    names = [name for name, _ in profile.points]
    return pd.DataFrame(
        {
            "model": profile.model,
            "netem": case.netem,
            "batch_size": case.batch_size,
            "codec": case.codec,
            "in_flight_asked": case.in_flight,
            "chosen_by": "",
            "backend": np.where(payload_bytes > 0, backend, NONE),
            "point": ["+".join(map(str, split)) for split in splits],
            "point_name": ["+".join(names[cut] for cut in split) for split in splits],
            "payload_bytes": payload_bytes,
            **vars(said),
        }
    )
