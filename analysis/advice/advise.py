"""The point to use in a network, the runner-up, and how sure that is; and a sentence for each measured condition."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from pareto.analysis.advice import engines
from pareto.analysis.advice.observed import CELL, WORK, WORKLOAD, Observed, observe, workloads
from pareto.analysis.advice.predict import Ensemble, Validation, advisable, validate
from pareto.analysis.advice.ranking import TOSS_UP, Choice, Ranking, answer, ranking
from pareto.analysis.advice.rivals import Tried, with_bytes
from pareto.analysis.engines import without_engine, work_names
from pareto.analysis.fronts.cells import BOUNDS
from pareto.analysis.fronts.quality import LIMITS
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import in_flight
from pareto.analysis.points import CONDITION, NO_CODEC, competing, cuts, pooled
from pareto.analysis.prediction.network import Network, networks
from pareto.analysis.runs.manifest import input_type
from pareto.analysis.standing import stands
from pareto.analysis.statistics.noise import floors, over_engines
from pareto.analysis.wording import ALONE, EDGE, KEEP, SERVER, interval, more
from pareto.protocol.errors import UserError
from pareto.remote.link.units import percent, rate

MOST = 50
"""Sentences, and those of the rest of a workload: nobody reads more."""


class Answer(str):
    """An answer in a sentence. conditions: those that it answers (values of `CONDITION`, as text), first that of the
    engine that it chooses.
    """

    conditions: tuple[tuple[str, ...], ...]

    def __new__(cls, text: str, conditions: tuple[tuple[str, ...], ...] = ()) -> Answer:
        made = super().__new__(cls, text)
        made.conditions = conditions
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

    `objective`: `latency` (one request in flight) or `throughput`. `where`: a constraint (`analysis.fronts.where`) on
    latency_s and throughput_ips in that network, on what does not depend on it (edge_s, server_s, payload_bytes,
    edge_peak_rss_bytes, agreement, ...), and on the workload (`batch_size == 8`). `model` may be left out where there
    is one. A constraint on quality (`analysis.fronts.quality.LIMITS`: `agreement >= 0.99`) makes all codecs compete;
    without one, a codec must be chosen among several, so that none wins by its losses. All engines compete
    (`engine == "onnx"` chooses one), as the results of each are proven. struck_off: the cells that a search struck off
    (`analysis.runs.struck`). The same input and seed, the same advice.

    Raises `UserError`, one line: no valid trial, a chain of hosts, a model that is not there or none named among
    several, more than one workload that satisfies `where`, or none.
    """
    known, floor = networks(manifests), over_engines(floors(trials), trials)
    results: list[tuple[Observed, Ranking, Validation]] = []
    unfit: list[UserError] = []
    refused: list[UserError] = []
    over_codecs = bool(Where.parse(where).columns & LIMITS)
    for rows in workloads(of_model(with_bytes(trials), model), over_codecs=over_codecs, over_engines=True):
        try:
            observed = observe(advisable(rows, known), stages, known)
        except UserError as error:
            unfit.append(error)
            continue
        try:
            validation = validate(observed)
            at = next((name for name in observed.profiles if known[name].same(network)), "")
            ranked = ranking(
                Ensemble.of(observed, floor),
                network,
                objective,
                where,
                at,
                _left(rows[rows["netem"] == at]) if at else None,
                model_errors={name: validation.spread(name) for name in validation.errors},
                seed=seed,
                input_type=input_type(manifests, str(observed.cells["model"].iloc[0])),
                tried=Tried(
                    # Of another network all that is known is what its link takes.
                    rows[rows["netem"] == at] if at else rows.drop(columns=list(BOUNDS), errors="ignore"),
                    where,
                    network,
                    _struck(struck_off, _workload(rows), at),
                ),
            )
            results.append((observed, ranked, validation))
        except UserError as error:
            refused.append(error)
    if not results:
        raise (refused or unfit)[0]
    if len(results) > 1:
        raise UserError(_several([observed for observed, *_ in results]))
    observed, ranked, validation = results[0]
    measured = {name: known[name] for name in observed.profiles}
    beyond = _beyond(network, list(measured.values()))
    return Advice(
        title({**observed.cells.iloc[0].to_dict(), **({"codec": ""} if over_codecs else {})}),
        network,
        objective,
        where,
        measured,
        ranked,
        validation,
        beyond,
    )


def title(row: Mapping[Any, Any], netem: str = "") -> str:
    """`mobilenet_v2 at wifi, batch size 8`: without what goes without saying."""
    name = f"{row['model']} at {netem}" if netem else row["model"]
    batch = f"batch size {row['batch_size']}" if row["batch_size"] != 1 else ""
    codec = f"codec {row['codec']}" if row["codec"] not in ("", "none") else ""
    parts = (name, batch, codec, in_flight(row["in_flight_asked"]), row["setup"])
    return ", ".join(str(part) for part in parts if part)


def sentence(advice: Advice) -> str:
    """The advice in one sentence."""
    ranked = advice.ranking
    how = f"measured at {ranked.profile}" if ranked.profile else "predicted"
    if advice.extrapolated:
        how += ", beyond what was measured"
    if not ranked.sure:
        how += f"; {ranked.unsure}"
    text = f"{advice.title} at {in_words(advice.network)}: {answer(ranked, advice.objective)} ({how})"
    if ranked.runner_up and ranked.sure != TOSS_UP:
        share = ranked.runner_up.behind(ranked.best, advice.objective)
        is_latency = advice.objective == "latency"
        behind = more(share, "longer", "as long") if is_latency else f"{percent(share)} less"
        text += f"; next is {ranked.runner_up.place}, {behind}"
    return text


def in_words(network: Network) -> str:
    """`80 ms and 20 Mbit/s`, and the way back if it is shaped."""
    out = f"{network.delay_s * 1e3:g} ms and {rate(network.rate_bps)}"
    if network == Network(network.delay_s, network.rate_bps):
        return out
    return f"{out} (back {network.delay_back_s * 1e3:g} ms and {rate(network.rate_back_bps)})"


def of_model(trials: pd.DataFrame, model: str) -> pd.DataFrame:
    """The trials of the model that is meant; all, where there is one. Raises UserError."""
    models = sorted(map(str, trials["model"].unique()))
    if not models:
        raise UserError("no trial has ended yet: nothing to advise from")
    meant = [name for name in models if not model or _plain(name) == _plain(model)]
    if not meant:
        raise UserError(f"no trials of model {model!r}; there are {', '.join(models)}")
    if len(meant) > 1:
        raise UserError(f"the runs have several models: choose one with --model ({', '.join(meant)})")
    return trials[trials["model"] == meant[0]]


def _plain(model: str) -> str:
    """The name as `--model` is read elsewhere: `mobilenetv2` is mobilenet_v2."""
    return model.lower().replace("_", "").replace("-", "")


def _several(candidates: Sequence[Observed]) -> str:
    rows = pd.DataFrame([observed.cells.iloc[0][WORKLOAD] for observed in candidates])
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


def answers(
    trials: pd.DataFrame,
    stages: pd.DataFrame,
    manifests: Sequence[Mapping[str, Any]],
    *,
    where: str = "",
    front: pd.DataFrame | None = None,
    struck_off: pd.DataFrame | None = None,
) -> list[str]:
    """The point of least latency: an `Answer` for each workload and profile, in the order of the trials.

    Frames as in `advise`.
    Engines compete with each other, and the answer names one; a second sentence says what each is best at
    (`analysis.advice.engines`). Figures are measured. From what rate on another point pays is predicted from all
    profiles of the workload, at this profile's delay; it is left out where the link is not one delay and rate, where
    runs mean different links by one name, and in chains. `may`: the rounds do not agree that it does, or are too few
    for an interval. `probably`: that point is the best with less than 95 % (`analysis.advice.ranking`); below 80 % the
    contenders are named.

    Only points that satisfy `where` count (in the columns that `analysis.advice.advise` knows), or, with `front`, those
    that are feasible there: the frame of `analysis.fronts.front.front` for the same `where`, which knows every column.
    struck_off: the cells that a search struck off, whose trials are not among these (`analysis.runs.struck`).
    """
    known, floor = networks(manifests, strict=False), over_engines(floors(trials), trials)
    said: list[_Said] = []
    for rows in workloads(with_bytes(trials), over_engines=True):
        if len(said) >= MOST:
            break
        ok = rows[stands(rows, "latency") & rows["latency_s"].notna()]
        ensemble = Ensemble.of(observe(ok, stages, known), floor) if len(ok) else None
        images = input_type(manifests, str(rows["model"].iloc[0]))
        first = _workload(rows)
        for netem in rows["netem"].unique():
            if ensemble is None or netem not in ensemble.observed.places:
                said.append((first, netem, _of(rows, netem), "no valid trial"))
                continue
            network = None if _is_chain(ensemble.observed) else known.get(netem)
            among = None if front is None else _feasible(front[front["netem"] == netem], rows)
            try:
                ranked = ranking(
                    ensemble,
                    network,
                    "latency",
                    where if front is None else "",
                    netem,
                    among,
                    input_type=images,
                    tried=Tried(
                        rows[rows["netem"] == netem], where, network, _struck(struck_off, first, netem)
                    ),
                )
            except UserError as error:
                said.append((first, netem, _of(rows, netem), str(error)))
            else:
                by_engine = engines.sentence(ensemble, rows, network, netem, among, where)
                keep = ALONE.get(netem, KEEP)
                texts = filter(None, (_sentence(ranked, network), by_engine))
                of = _of(rows, netem, ranked.best.engine)
                said += [(first, netem, of, text.replace(KEEP, keep)) for text in texts]
    lines = _lines(said)
    conditions = trials[CONDITION].assign(setup=without_engine(trials)).drop_duplicates()
    left = len(conditions) - len({(*row[WORKLOAD], netem) for row, netem, *_ in said})
    return [*lines, f"and {left} more conditions: report on fewer runs to see them"] if left > 0 else lines


def _workload(rows: pd.DataFrame) -> pd.Series:
    """The first of a workload's rows; with several engines its setup is that without them."""
    first = rows.iloc[0]
    if (rows[WORK] == "").all():
        return first
    return pd.concat([first.drop("setup"), pd.Series({"setup": without_engine(rows.head(1)).iloc[0]})])


def _plain_first(codec: str) -> tuple[bool, str]:
    return codec != NO_CODEC, codec


_Said = tuple[pd.Series, str, tuple[tuple[str, ...], ...], str]
"""A workload's first row, the network, the conditions that it has there, and the answer for them."""


def _of(rows: pd.DataFrame, netem: str, engine: str = "") -> tuple[tuple[str, ...], ...]:
    """The conditions of a workload's rows in one network, those of that engine first."""
    there = rows.loc[rows["netem"] == netem, [*CONDITION, WORK]].astype("str").drop_duplicates()
    there = there.sort_values(WORK, key=lambda works: works != engine, kind="stable")
    return tuple(dict.fromkeys(there[CONDITION].itertuples(index=False, name=None)))


def _lines(said: Sequence[_Said]) -> list[str]:
    """A line for each answer; codecs with the same answer in the same profile share one, where the first of them is."""
    alike: dict[tuple[str, str], list[_Said]] = {}
    for row, netem, of, text in said:
        head = title(row.to_dict() | {"codec": ""}, netem)
        alike.setdefault((head, text), []).append((row, netem, of, text))
    lines: list[str] = []
    for (head, text), same in alike.items():
        if len(same) == 1:
            head = title(*same[0][:2])
        else:
            codecs = sorted((str(row["codec"]) or NO_CODEC for row, *_ in same), key=_plain_first)
            head += f", codecs {', '.join(codecs)}"
        lines.append(Answer(f"{head}: {text}", tuple(key for _, _, of, _ in same for key in of)))
    return lines


def _feasible(front: pd.DataFrame, rows: pd.DataFrame) -> set[tuple[str, ...]]:
    """The cells (`CELL`) of a workload's rows that satisfy the report's constraint. front: of one profile."""
    own = front.merge(rows[WORKLOAD].drop_duplicates(), on=WORKLOAD)
    if several := (rows[WORK] != "").any():
        named = dict(zip(rows["setup"], rows["engine"], strict=True))
        own = own.assign(engine=own["setup"].map(named))
    return _cells(own[own["feasible"].astype(bool)], work_names(own) if several else None)


def _cells(rows: pd.DataFrame, engine: pd.Series | None) -> set[tuple[str, ...]]:
    """`CELL` of each row. engine: what runs its units, with several engines."""
    return set(rows.assign(engine="" if engine is None else engine)[CELL].itertuples(index=False, name=None))


def _left(rows: pd.DataFrame) -> set[tuple[str, ...]]:
    """The cells (`CELL`) of a condition that no search struck off. In other networks they may be best."""
    left = pooled(competing(rows))
    return _cells(left, left[WORK])


def _struck(struck_off: pd.DataFrame | None, like: pd.Series, netem: str) -> pd.DataFrame:
    """A workload's cells that a search struck off in one network; in all, where `netem` is empty."""
    if struck_off is None:
        return pd.DataFrame()
    if like[WORK]:
        struck_off = struck_off.assign(setup=without_engine(struck_off))
    of = struck_off[(struck_off[WORKLOAD] == like[WORKLOAD]).all(axis=1)]
    return of[of["netem"] == netem] if netem else of.assign(how="")  # their bounds are of other networks


def _is_chain(observed: Observed) -> bool:
    return any(len(cuts(point)) > 1 for point in observed.cells["point"])


def _sentence(ranked: Ranking, network: Network | None) -> str:
    text = answer(ranked, "latency")
    if not ranked.sure:
        text += f" ({ranked.unsure})"
    if ranked.sure == TOSS_UP:
        return text
    text += _gain(ranked)
    if network is None or ranked.rivals or len(ranked.choices) == 1:
        return text
    return f"{text}; {_elsewhere(ranked)}"


def _gain(ranked: Ranking) -> str:
    """`, 12 % less than all on the edge and 40 % less than all on the server`: what cutting there is worth."""
    if _kind(ranked.best) == EDGE:
        return ""
    gains = []
    for kind in (EDGE, SERVER):
        whole = next((choice for choice in ranked.choices if _kind(choice) == kind), None)
        if whole is not None and kind != _kind(ranked.best):
            gains.append(f"{percent(1 - ranked.best.latency_s / whole.latency_s)} less than {kind}")
    return f", {' and '.join(gains)}" if gains else ""


def _elsewhere(ranked: Ranking) -> str:
    """The rates from which on another point pays."""
    parts = []
    measured = "the points measured here"
    is_unsure = "rate" in ranked.unsure_along
    for switch in ranked.crossovers:
        if switch.along != "rate":
            continue
        other = ranked.by_cell[switch.cell]
        what = "a split" if _kind(ranked.best) == EDGE and _kind(other) == "" else other.doing
        at = f"from {rate(switch.at)} on" if switch.upwards else f"below {rate(switch.at)}"
        pays = "may pay" if math.isnan(switch.low) else "pays"
        span = interval(switch.low, switch.high, rate)
        parts.append(f"{what} {pays} {at}{span}{', extrapolated' if switch.extrapolated else ''}")
    if parts:
        return f"predicted{f' among {measured}' * is_unsure}: {', '.join(parts)}"
    what = "a split" if _kind(ranked.best) == EDGE else "another point"
    what = f"another of {measured}" if is_unsure else what
    return f"at this delay no link speed makes {what} faster (predicted)"


def _kind(choice: Choice) -> str:
    """The words for the host that has the whole model, `EDGE` or `SERVER`; empty text for a cut."""
    return next((kind for kind in (EDGE, SERVER) if choice.place.startswith(kind)), "")
