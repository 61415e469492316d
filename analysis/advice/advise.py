"""The point to use in a network, the runner-up, and how sure that is; and a sentence for each measured condition."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from pareto.analysis.advice import engines
from pareto.analysis.advice.observed import CELL, OVER_ENGINES, WORK, WORKLOAD, observe, workloads
from pareto.analysis.advice.predict import Ensemble, Validation, advisable, validate
from pareto.analysis.advice.ranking import TOSS_UP, Ranking, answer, ranking
from pareto.analysis.advice.rivals import Tried, with_bytes
from pareto.analysis.fronts.cells import BOUNDS
from pareto.analysis.fronts.quality import LIMITS
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import unusual
from pareto.analysis.prediction.network import Network, networks
from pareto.analysis.runs.manifest import input_type
from pareto.analysis.runs.points import CONDITION, NO_CODEC, competing, cuts, pooled, work_names
from pareto.analysis.runs.standing import stands
from pareto.analysis.statistics.noise import floors
from pareto.analysis.wording import ALONE, EDGE, KEEP, SERVER, more
from pareto.protocol.errors import UserError
from pareto.remote.link.units import percent, rate

MOST = 50
"""Sentences, and those of the rest of a workload: nobody reads more."""

Conditions = tuple[tuple[str, ...], ...]
"""Values of `CONDITION`, as text, of some conditions."""


class Answer(str):
    """An answer in a sentence. conditions: those that it answers, first that of the engine that it chooses. sure: its
    point is the best with at least 95 %.
    """

    conditions: Conditions
    sure: bool

    def __new__(cls, text: str, conditions: Conditions = (), *, sure: bool = False) -> Answer:
        made = super().__new__(cls, text)
        made.conditions, made.sure = conditions, sure
        return made


@dataclass(frozen=True)
class Advice:
    """The advice for `network`. `title` names the workload, `measured` the profiles that it was measured at.

    extrapolated: the network lies beyond what the profiles span.
    """

    title: str
    network: Network
    objective: str
    where: str
    measured: Mapping[str, Network]
    ranking: Ranking
    validation: Validation
    extrapolated: bool

    def __str__(self) -> str:
        return sentence(self)


def advise(
    trials: pd.DataFrame,
    stages: pd.DataFrame,
    manifests: Sequence[Mapping[str, Any]],
    network: Network,
    *,
    objective: str = "latency",
    where: str = "",
    model: str = "",
    seed: int = 0,
    struck_off: pd.DataFrame | None = None,
) -> Advice:
    """The best point in a network, from the frames of `analysis.runs.load` and the manifests of those runs.

    `where`: a constraint (`analysis.fronts.where`) on latency_s and throughput_ips in that network, on what does not
    depend on it (edge_s, payload_bytes, agreement, ...), and on the workload (`batch_size == 8`). One on quality
    (`analysis.fronts.quality.LIMITS`) makes all codecs compete; else one must be chosen, so that none wins by its
    losses. All engines compete, as the results of each are proven. struck_off: of `runs.load.struck`. Raises
    `UserError`, one line.
    """
    known, floor = networks(manifests), floors(trials)
    found: list[tuple[pd.Series, Advice]] = []
    unfit: list[UserError] = []
    refused: list[UserError] = []
    over_codecs = bool(Where.parse(where).columns & LIMITS)
    for rows in workloads(of_model(with_bytes(trials), model), over_codecs=over_codecs, over_engines=True):
        try:
            observed = observe(advisable(rows, known), stages, known)
        except UserError as error:
            unfit.append(error)
            continue
        measured = {name: known[name] for name in observed.profiles}
        at = next((name for name, each in measured.items() if each.same(network)), "")
        here = rows[rows["netem"] == at]
        try:
            validation = validate(observed)
            ranked = ranking(
                Ensemble(observed, floor),
                network,
                objective,
                where,
                at,
                _left(here) if at else None,
                model_errors={name: validation.spread(name) for name in validation.errors},
                seed=seed,
                input_type=input_type(manifests, str(observed.cells["model"].iloc[0])),
                tried=Tried(
                    # Of another network all that is known is what its link takes.
                    here if at else rows.drop(columns=list(BOUNDS), errors="ignore"),
                    where,
                    network,
                    _struck(struck_off, _workload(rows), at),
                ),
            )
        except UserError as error:
            refused.append(error)
            continue
        first = _workload(rows)
        head = title({**first, "codec": NO_CODEC if over_codecs else first["codec"]})
        beyond = _beyond(network, list(measured.values()))
        found.append((first, Advice(head, network, objective, where, measured, ranked, validation, beyond)))
    if not found:
        raise (refused or unfit)[0]
    if len(found) > 1:
        raise UserError(_several([first for first, _ in found]))
    return found[0][1]


def title(row: Mapping[Any, Any], netem: str = "") -> str:
    """`mobilenet_v2 at wifi, batch size 8`: without what goes without saying."""
    name = f"{row['model']} at {netem}" if netem else row["model"]
    batch = f"batch size {row['batch_size']}" if row["batch_size"] != 1 else ""
    return ", ".join(str(part) for part in (name, batch, *unusual(row), row.get("setup")) if part)


def sentence(advice: Advice) -> str:
    """The advice in one sentence."""
    ranked, objective = advice.ranking, advice.objective
    how = f"measured at {ranked.profile}" if ranked.profile else "predicted"
    how += ", beyond what was measured" * advice.extrapolated
    if not ranked.sure:
        how += f"; {ranked.unsure}"
    text = f"{advice.title} at {in_words(advice.network)}: {answer(ranked, objective)} ({how})"
    if len(ranked.choices) == 1 or ranked.sure == TOSS_UP:
        return text
    second = ranked.choices[1]
    share = second.behind(ranked.best, objective)
    behind = more(share, "longer", "as long") if objective == "latency" else f"{percent(share)} less"
    return f"{text}; next is {second.place}, {behind}"


def in_words(network: Network) -> str:
    """`80 ms and 20 Mbit/s`, and the way back if it is shaped."""
    out = f"{network.delay_s * 1e3:g} ms and {rate(network.rate_bps)}"
    if network == Network(network.delay_s, network.rate_bps):
        return out
    return f"{out} (back {network.delay_back_s * 1e3:g} ms and {rate(network.rate_back_bps)})"


def of_model(trials: pd.DataFrame, model: str) -> pd.DataFrame:
    """The trials of the model that is meant; all, where there is one. Raises UserError."""

    def plain(name: str) -> str:
        return name.lower().replace("_", "").replace("-", "")

    models = sorted(map(str, trials["model"].unique()))
    if not models:
        raise UserError("no trial has ended yet: nothing to advise from")
    meant = [name for name in models if not model or plain(name) == plain(model)]
    if not meant:
        raise UserError(f"no trials of model {model!r}; there are {', '.join(models)}")
    if len(meant) > 1:
        raise UserError(f"the runs have several models: choose one with --model ({', '.join(meant)})")
    return trials[trials["model"] == meant[0]]


def _several(firsts: Sequence[pd.Series]) -> str:
    rows = pd.DataFrame(firsts)[WORKLOAD]
    column = next(name for name in WORKLOAD if rows[name].nunique() > 1)
    values = [repr(value) if isinstance(value, str) else str(value) for value in rows[column].unique()]
    text = (
        f'the runs have {column} {", ".join(values)}: choose one, such as --where "{column} == {values[0]}"'
    )
    return (
        f'{text}, or say what is accurate enough: --where "agreement >= 0.99"' if column == "codec" else text
    )


def _beyond(network: Network, measured: Sequence[Network]) -> bool:
    delays_s, rates_bps = zip(*((each.delay_s, each.rate_bps) for each in measured), strict=True)
    return not (
        min(delays_s) <= network.delay_s <= max(delays_s)
        and min(rates_bps) <= network.rate_bps <= max(rates_bps)
    )


_Said = tuple[pd.Series, str, Conditions, str, bool]
"""A workload's first row, the network, its conditions there, the answer for them, and whether it is sure."""


def answers(
    trials: pd.DataFrame,
    stages: pd.DataFrame,
    manifests: Sequence[Mapping[str, Any]],
    *,
    where: str = "",
    front: pd.DataFrame | None = None,
    struck_off: pd.DataFrame | None = None,
) -> list[Answer]:
    """The point of least latency: an `Answer` for each workload and profile, in the order of the trials.

    Frames as in `advise`. Engines compete, and the answer names one; a second sentence says what each is best at
    (`analysis.advice.engines`). Figures are measured. From what rate on another point pays is predicted from all
    profiles of the workload, at this profile's delay, where the link is one of one delay and rate. `may`: the rounds do
    not agree that it does, or are too few for an interval. front: that of `analysis.fronts.front.front` for the same
    `where`, which knows every column; only its feasible points count.
    """
    known, floor = networks(manifests, strict=False), floors(trials)
    said: list[_Said] = []
    for rows in workloads(with_bytes(trials), over_engines=True):
        if len(said) >= MOST:
            break
        ok = rows[stands(rows, "latency") & rows["latency_s"].notna()]
        ensemble = Ensemble(observe(ok, stages, known), floor) if len(ok) else None
        is_chain = any(len(cuts(point)) > 1 for point in ok["point"].unique())
        images, first = input_type(manifests, str(rows["model"].iloc[0])), _workload(rows)
        for netem in rows["netem"].unique():
            here = rows[rows["netem"] == netem]
            if ensemble is None or netem not in set(ok["netem"]):
                said.append((first, netem, _conditions(here), "no valid trial", False))
                continue
            network = None if is_chain else known.get(netem)
            among = None if front is None else _feasible(front[front["netem"] == netem], rows)
            asked = where if front is None else ""
            tried = Tried(here, where, network, _struck(struck_off, first, netem))
            try:
                ranked = ranking(
                    ensemble, network, "latency", asked, netem, among, input_type=images, tried=tried
                )
            except UserError as error:
                said.append((first, netem, _conditions(here), str(error), False))
                continue
            by_engine = engines.sentence(ensemble, rows, network, netem, among, where)
            of, keep = _conditions(here, ranked.best.engine), ALONE.get(netem, KEEP)
            said += [
                (first, netem, of, text.replace(KEEP, keep), ranked.sure == "sure")
                for text in (_sentence(ranked, network), by_engine)
                if text
            ]
    lines = _lines(said)
    conditions = trials[[*OVER_ENGINES, "netem"]].drop_duplicates()
    left = len(conditions) - len({(*row[OVER_ENGINES], netem) for row, netem, *_ in said})
    if left > 0:
        lines.append(Answer(f"and {left} more conditions: report on fewer runs to see them"))
    return lines


def _workload(rows: pd.DataFrame) -> pd.Series:
    """The first of a workload's rows, of no engine where there are several."""
    first = rows.iloc[0]
    return first if (rows[WORK] == "").all() else pd.Series({**first, "engine": ""})


def _conditions(rows: pd.DataFrame, engine: str = "") -> Conditions:
    """The conditions of these rows, those of that engine first."""
    there = rows[[*CONDITION, WORK]].astype("str").drop_duplicates()
    there = there.sort_values(WORK, key=lambda works: works != engine, kind="stable")
    return tuple(dict.fromkeys(there[CONDITION].itertuples(index=False, name=None)))


def _lines(said: Sequence[_Said]) -> list[Answer]:
    """An answer for each; codecs with the same one in the same profile share it, where the first of them is."""
    alike: dict[tuple[str, str], list[_Said]] = {}
    for each in said:
        row, netem, _, text, _ = each
        alike.setdefault((title(row.to_dict() | {"codec": ""}, netem), text), []).append(each)
    lines = []
    for (head, text), same in alike.items():
        if len(same) == 1:
            head = title(*same[0][:2])
        else:
            codecs = {str(row["codec"]) or NO_CODEC for row, *_ in same}
            head += f", codecs {', '.join(sorted(codecs, key=lambda name: (name != NO_CODEC, name)))}"
        conditions = tuple(key for _, _, of, *_ in same for key in of)
        lines.append(Answer(f"{head}: {text}", conditions, sure=all(sure for *_, sure in same)))
    return lines


def _feasible(front: pd.DataFrame, rows: pd.DataFrame) -> set[tuple[str, ...]]:
    """The cells (`CELL`) of a workload's rows that satisfy the report's constraint. front: of one profile."""
    own = front.merge(rows[WORKLOAD].drop_duplicates(), on=WORKLOAD)
    own = own[own["feasible"].astype(bool)]
    own = own.assign(engine=work_names(own) if (rows[WORK] != "").any() else "")
    return set(own[CELL].itertuples(index=False, name=None))


def _left(rows: pd.DataFrame) -> set[tuple[str, ...]]:
    """The cells (`CELL`) of a condition that no search struck off. In other networks they may be best."""
    left = pooled(competing(rows))
    return set(left.assign(engine=left[WORK])[CELL].itertuples(index=False, name=None))


def _struck(struck_off: pd.DataFrame | None, like: pd.Series, netem: str) -> pd.DataFrame:
    """A workload's cells that a search struck off in one network; in all, where `netem` is empty."""
    if struck_off is None:
        return pd.DataFrame()
    by = WORKLOAD if like["engine"] else OVER_ENGINES
    of = struck_off[(struck_off[by] == like[by]).all(axis=1)]
    return of[of["netem"] == netem] if netem else of.assign(how="")  # their bounds are of other networks


def _sentence(ranked: Ranking, network: Network | None) -> str:
    """The answer; what cutting there is worth beside the whole model on a host; and where another point pays."""
    text = answer(ranked, "latency")
    if not ranked.sure:
        text += f" ({ranked.unsure})"
    if ranked.sure == TOSS_UP:
        return text
    best, gains = ranked.best, []
    if best.end != EDGE:
        for end in (EDGE, SERVER):
            whole = next((choice for choice in ranked.choices if choice.end == end), None)
            if whole is not None and end != best.end:
                gains.append(f"{percent(1 - best.latency_s / whole.latency_s)} less than {end}")
    text += f", {' and '.join(gains)}" if gains else ""
    if network is None or ranked.rivals or len(ranked.choices) == 1:
        return text
    parts, is_unsure = list(_paying(ranked)), "rate" in ranked.unsure_along
    if parts:
        among = " among the points measured here" if is_unsure else ""
        return f"{text}; predicted{among}: {', '.join(parts)}"
    what = "a split" if best.end == EDGE else "another point"
    what = "another of the points measured here" if is_unsure else what
    return f"{text}; at this delay no link speed makes {what} faster (predicted)"


def _paying(ranked: Ranking) -> Iterator[str]:
    """The rates from which on another point pays."""
    for switch in ranked.crossovers:
        if switch.along != "rate":
            continue
        other = ranked.by_cell[switch.cell]
        what = "a split" if ranked.best.end == EDGE and not other.end else other.doing
        yield f"{what} {'may pay' if math.isnan(switch.low) else 'pays'} {switch.when(rate)}"
