"""The predicted front among all splits of a chain, without trying each, and beside it what simpler rules choose.

`front` is exact for the arithmetic of `analysis.prediction.formula`. Every split on the front has the least latency
among those whose slowest step (a host, or a direction of a link) is no slower than its own. So a dynamic programme
over units x hosts finds the least latency below a limit on the steps, and the limit falls from the slowest step of
one answer to the next: the epsilon-constraint method (Haimes, Lasdon & Wismer, "On a bicriterion formulation of the
problems of integrated system identification and system optimization", IEEE Trans. SMC 1, 1971).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations_with_replacement as combinations

import numpy as np
import pandas as pd

from pareto.analysis.fronts.where import Where
from pareto.analysis.model_profile import ModelProfile
from pareto.analysis.prediction.forecast import FIGURES, Case, Forecasts
from pareto.analysis.prediction.formula import Chain, at
from pareto.analysis.runs.points import NONE
from pareto.analysis.statistics.samples import Floats, Ints
from pareto.analysis.wording import EDGE, SERVER
from pareto.protocol.errors import UserError

FRONT = "front"
COLUMNS = (
    *("model", "netem", "batch_size", "codec", "in_flight_asked", "chosen_by"),
    *("backend", "point", "point_name", "payload_bytes", *FIGURES),
)
CONSTRAINED = list(COLUMNS[COLUMNS.index("backend") :])
"""The columns that a constraint may be on."""
MOST_SPLITS = 100_000
"""The most splits that are looked at one by one."""
_PASSES, _BALANCE, _COMMUNICATION = 20, 0.7, 0.3
"""The greedy rule's limit, and its weights."""


def predicted(
    profile: ModelProfile, backends: Sequence[str], case: Case, where: Where | None = None
) -> pd.DataFrame:
    """The splits that none dominates by the forecasts, least latency first; then one row for each of `RULES`.

    Columns `COLUMNS`: payload_bytes: of a request on the first link. Then the figures of a forecast. A rule gets the
    backend that suits its split best; one whose split the codec does not take has no row. where: the front is that of
    the splits that satisfy it, each of which is looked at; `feasible` says whether a row does. Raises UserError.
    """
    constrained = where if where is not None and where.text else None
    forecasts = {backend: Forecasts(profile, case, backend) for backend in backends}

    def rows(rule: Callable[[Chain], Ints], chosen_by: str) -> pd.DataFrame:
        made = (_rows(of, rule(of.chain), backend) for backend, of in forecasts.items())
        return pd.concat(made, ignore_index=True).assign(chosen_by=chosen_by)

    if constrained is None:
        every = rows(front, FRONT)
    else:
        if (count := splits_of(profile, case.hosts)) > MOST_SPLITS:
            raise UserError(
                f"a constraint is looked up for each split, and over {case.hosts} hosts there are {count}, more than "
                f"{MOST_SPLITS}: leave --where out"
            )
        every = rows(lambda chain: np.array([*combinations(range(chain.last + 1), chain.hosts - 1)]), FRONT)
        every = every[constrained.holds(every[CONSTRAINED]) & every["latency_s"].notna()]
        if every.empty:
            raise UserError(f"no split satisfies {constrained.text!r} here")
    best = pareto(every["latency_s"].to_numpy(), every["throughput_ips"].to_numpy())
    of_rules = (rows(rule, name).dropna(subset="latency_s") for name, rule in RULES.items())
    ahead = (of_rule.sort_values("latency_s", kind="stable").head(1) for of_rule in of_rules)
    result = pd.concat([every.iloc[best], *ahead], ignore_index=True)[[*COLUMNS]]
    return result.assign(feasible=constrained.holds(result[CONSTRAINED])) if constrained else result


def _rows(of: Forecasts, splits: Ints, backend: str) -> pd.DataFrame:
    """The forecasts of these splits (splits x links), in the columns of `predicted`."""
    profile, case = of.profile, of.case
    payload_bytes = case.batch_size * profile.payload_bytes[splits[:, 0]]
    names = [name for name, _ in profile.points]
    return pd.DataFrame(
        {
            "model": profile.model,
            "netem": case.netem,
            "batch_size": case.batch_size,
            "codec": case.codec,
            "in_flight_asked": case.in_flight,
            "backend": np.where(payload_bytes > 0, backend, NONE),
            "point": ["+".join(map(str, split)) for split in splits],
            "point_name": ["+".join(names[cut] for cut in split) for split in splits],
            "payload_bytes": payload_bytes,
            **of.of(splits),
        }
    )


def splits_of(profile: ModelProfile, hosts: int) -> int:
    """The number of ways to split the model over so many hosts."""
    return math.comb(len(profile.points) + hosts - 2, hosts - 1)


def behind(row: Mapping[str, float], front: pd.DataFrame) -> tuple[float, float]:
    """The shares by which a split takes longer, and lacks images a second, beside one of the front that dominates it.

    The one of the least latency counts where several do; 0 and 0 where none does.
    """
    latency_s, throughput_ips = row["latency_s"], row["throughput_ips"]
    better = front[(front["latency_s"] <= latency_s) & (front["throughput_ips"] >= throughput_ips)]
    if better.empty:
        return 0.0, 0.0
    first = better.iloc[0]
    return latency_s / first["latency_s"] - 1, 1 - throughput_ips / first["throughput_ips"]


def front(chain: Chain) -> Ints:
    """The splits that no other dominates, least latency first (splits x links); one of those with equal figures."""
    found: list[Ints] = []
    stages_s, carried_s = chain.segments_s.copy(), chain.carried_s.copy()
    steps_s = chain.segments_s.copy()
    steps_s[:-1] += chain.near_s[:, None, :]
    steps_s[1:] += chain.far_s[:, :, None]
    while (split := _least_latency(stages_s, carried_s)) is not None:
        found.append(split)
        one = split[None]
        limit = max(chain.steps_s(one).max(), at(chain.occupied_s, one).max())
        # From here on more latency only means longer waits.
        if chain.crosses[split[0]] and chain.latency_s(one)[0] / chain.in_flight >= limit:
            break
        stages_s[steps_s >= limit] = np.inf
        carried_s[chain.occupied_s >= limit] = np.inf
    splits = np.array(found, dtype=np.int64).reshape(len(found), chain.hosts - 1)
    return splits[pareto(chain.latency_s(splits), chain.throughput_ips(splits))]


def _least_latency(stages_s: Floats, carried_s: Floats) -> Ints | None:
    """The split of the least latency, by stages (hosts x points x points) and links (links x points); None: inf."""
    latency_s = stages_s[0, 0]  # of the units before each point
    before: list[Ints] = []
    for of_link_s, of_host_s in zip(carried_s, stages_s[1:], strict=True):
        through_s = (latency_s + of_link_s)[:, None] + of_host_s
        before.append(through_s.argmin(axis=0))
        latency_s = through_s.min(axis=0)
    if not np.isfinite(latency_s[-1]):
        return None
    split = [len(latency_s) - 1]
    for places in reversed(before):
        split.append(int(places[split[-1]]))
    return np.array(split[:0:-1], dtype=np.int64)


def pareto(latency_s: Floats, throughput_ips: Floats) -> Ints:
    """The places of the points that none dominates, least latency first; of equal ones the first."""
    order = np.lexsort((-throughput_ips, latency_s))
    best = np.maximum.accumulate(throughput_ips[order])
    ahead = np.concatenate([[True], best[1:] > best[:-1]]) if len(order) else np.empty(0, dtype=bool)
    return np.asarray(order[ahead])


def even(chain: Chain) -> Ints:
    """The split that gives every host as many units as any other, up to rounding: one row."""
    share = np.arange(1, chain.hosts) / chain.hosts
    return np.rint(share * chain.last).astype(np.int64)[None]


def greedy(chain: Chain) -> Ints:
    """The split that the greedy rule of ParetoPipe finds: one row.

    From points spread evenly, one cut after another moves to the best place near it, as long as that helps: within a
    tenth of the points either way, none onto another or onto an end, at most 20 times each. Best is the least
    0.7 x the coefficient of variation of the stages' times + 0.3 x the seconds that payloads need one way. The rule's
    weights and limits are its authors' (Masud, Foley, Durga Rajarajan & Lama, "Where to Split?", arXiv 2601.08025, and
    its repository, `profiling/intelligent_splitter.py`). They take one device's times for all; here each stage has its
    own host's.
    """
    links, inner = chain.hosts - 1, chain.last - 1
    if inner < links:
        return even(chain)
    reach, step = max(1, inner // 10), inner // (links + 1)
    split = np.array([max(1, 1 + number * step) for number in range(1, links + 1)])
    if len(set(split)) < links or split[-1] > inner:
        split = np.arange(1, links + 1)
    for _ in range(_PASSES):
        before = split.copy()
        for link in range(links):
            others = np.delete(split, link)
            near = np.arange(max(1, split[link] - reach), min(inner, split[link] + reach) + 1)
            near = near[~np.isin(near, others)]
            tried = np.repeat(split[None], len(near), axis=0)
            tried[:, link] = near
            tried.sort(axis=1)
            split = tried[int(_greedy_score(chain, tried).argmin())]
        if (split == before).all():
            break
    return split[None]


def _greedy_score(chain: Chain, splits: Ints) -> Floats:
    stages_s = chain.stages_s(splits)
    mean_s = stages_s.mean(axis=1)
    varied = stages_s.std(axis=1) / np.where(mean_s > 0, mean_s, 1.0)
    return np.asarray(_BALANCE * varied + _COMMUNICATION * at(chain.sent_s, splits).sum(axis=1))


RULES: dict[str, Callable[[Chain], Ints]] = {
    "greedy": greedy,
    "even": even,
    SERVER: lambda chain: 0 * even(chain),
    EDGE: lambda chain: 0 * even(chain) + chain.last,
}
"""The rules that the front is compared with, in the order of the table."""
