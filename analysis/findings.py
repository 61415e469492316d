"""The findings on some runs: everything that tables, figures and the page are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from pareto.analysis.advice.answers import Answer, answers, of_codecs
from pareto.analysis.advice.observed import needed
from pareto.analysis.advice.rivals import lacking
from pareto.analysis.comparing import bjontegaard
from pareto.analysis.comparing.paired import COLUMNS, paired
from pareto.analysis.comparing.sentences import rates, sides, start_up, verdicts
from pareto.analysis.costs import allocators, overhead, tail_sentences, tails
from pareto.analysis.figures.look import UNCERTAINTIES, USUAL, WIDTHS_IN, Look
from pareto.analysis.fronts import answer, energy, load, quality
from pareto.analysis.fronts.cells import with_struck
from pareto.analysis.fronts.front import fronts
from pareto.analysis.fronts.objectives import DEFAULT, chosen
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import LETTERS, SIMULATED, count, some
from pareto.analysis.prediction import compared
from pareto.analysis.prediction.network import Network, networks
from pareto.analysis.runs import requests
from pareto.analysis.runs.load import Joined, Run, Runs, joined, links
from pareto.analysis.runs.manifest import common_profiles, within
from pareto.analysis.runs.points import BUT_CODEC, CONDITION, NO_CODEC
from pareto.analysis.runs.standing import competing, measured_again, sentences, status_words
from pareto.analysis.statistics import host_load, noise, stability, testbeds
from pareto.analysis.statistics.doubt import Doubt, cures
from pareto.analysis.wording import forms
from pareto.basics.escaping import short
from pareto.protocol.errors import UserError
from pareto.remote.link.units import percent

FIGURES = ("auto", "all", "none")
CHANCE = (
    "no top-1 is shown: the weights are random (--weights seeded), so classes are right by chance only; give "
    "--weights pretrained, or a file"
)


@dataclass(frozen=True)
class Options:
    """The choices for a report. Raises UserError for one that there is not.

    width: a name in `WIDTHS_IN`, or `both`. figures: `auto` draws the usual kinds, those of each condition only if
    there are few of these; `all` draws every kind. profiles: folders of model profiles whose forecasts are compared
    with what was measured. uncertainty: what fronts show of it (`analysis.figures.look.UNCERTAINTIES`).
    """

    objectives: tuple[str, ...] = DEFAULT
    where: str = ""
    width: str = "page"
    figures: str = "auto"
    profiles: tuple[Path, ...] = ()
    uncertainty: str = "box"
    look: Look = USUAL

    def __post_init__(self) -> None:
        chosen(self.objectives)
        Where.parse(self.where)
        known = {"width": (*WIDTHS_IN, "both"), "figures": FIGURES, "uncertainty": UNCERTAINTIES}
        for name, values in known.items():
            if (value := getattr(self, name)) not in values:
                raise UserError(f"--{name} {value}: one of {', '.join(values)}")

    @property
    def widths(self) -> tuple[str, ...]:
        return tuple(WIDTHS_IN) if self.width == "both" else (self.width,)


@dataclass
class Findings:
    """Frames, named after the functions that make them, and sentences of one line each.

    doubts: what makes figures unsure. verdicts: backends in pairs. codecs, engines: what each wins and costs. notes:
    what could not be shown, and what else to know; remarks: those that a reader of the table must know. files: what was
    written. undrawn: why figures are missing. progress: of `analysis.fronts.answer`. paired_codecs, paired_engines:
    each codec against none, each engine against eager.
    """

    runs: list[Run]
    trials: pd.DataFrame
    stages: pd.DataFrame
    links: pd.DataFrame
    front: pd.DataFrame
    hypervolumes: pd.DataFrame
    attainment: pd.DataFrame
    overhead: pd.DataFrame
    paired: pd.DataFrame
    drifts: pd.DataFrame
    objectives: tuple[str, ...]
    where: str = ""
    prediction: pd.DataFrame = field(default_factory=pd.DataFrame)
    answers: list[str] = field(default_factory=list)
    doubts: list[Doubt] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    codecs: list[str] = field(default_factory=list)
    engines: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    files: list[Path] = field(default_factory=list)
    undrawn: list[str] = field(default_factory=list)
    struck: pd.DataFrame = field(default_factory=pd.DataFrame)
    progress: pd.DataFrame = field(default_factory=partial(pd.DataFrame, columns=answer.COLUMNS))
    delta_rates: pd.DataFrame = field(default_factory=partial(pd.DataFrame, columns=bjontegaard.COLUMNS))
    paired_codecs: pd.DataFrame = field(default_factory=partial(pd.DataFrame, columns=COLUMNS["codec"]))
    paired_engines: pd.DataFrame = field(default_factory=partial(pd.DataFrame, columns=COLUMNS["engine"]))
    testbeds: pd.DataFrame = field(default_factory=partial(pd.DataFrame, columns=testbeds.COLUMNS))
    tails: pd.DataFrame = field(default_factory=partial(pd.DataFrame, columns=requests.COLUMNS))
    loads: pd.DataFrame = field(default_factory=partial(pd.DataFrame, columns=load.COLUMNS))
    rates: pd.DataFrame = field(default_factory=partial(pd.DataFrame, columns=load.SUSTAINED))

    @property
    def standing(self) -> str:
        """Whether the answers stand in spite of the doubts; empty without a doubt, or an answer."""
        answers = [each for each in self.answers if isinstance(each, Answer)]
        known = {each.conditions: each.sure for each in answers if each.conditions}
        if not self.doubts or not known:
            return ""
        open_at = [dict(zip(CONDITION, of[0], strict=True)) for of, sure in known.items() if not sure]
        stand = len(known) - len(open_at)
        if not open_at:
            return f"{'the answer stands' if stand == 1 else f'all {stand} answers stand'}: sure with all this in it"
        named = some([*dict.fromkeys(f"{of['model']} at {of['netem']}" for of in open_at)])
        return f"{stand or 'none'} of {count(len(known), 'answer')} stand{'s' * (stand == 1)}; open: {named}"

    @property
    def joined(self) -> Joined:
        """The runs and what was read of them."""
        return Joined(self.runs, self.trials, self.stages, [], self.struck)

    @property
    def answered(self) -> pd.DataFrame:
        """A row for each condition and answer that it has: `sure`, whether that point is the best with 95 % or more."""
        known = [each for each in self.answers if isinstance(each, Answer)]
        rows = [(*of, each.sure, str(each)) for each in known for of in each.conditions]
        return pd.DataFrame(rows, columns=[*CONDITION, "sure", "answer"])

    @property
    def warnings(self) -> list[str]:
        """Whether the answers stand, the doubts, and what to do, a line each."""
        return [*filter(None, [self.standing, *map(str, self.doubts), cures(self.doubts)])]

    @property
    def manifests(self) -> list[Mapping[str, Any]]:
        return [run.manifest for run in self.runs]

    @property
    def networks(self) -> dict[str, Network]:
        """The profiles that are one delay and rate, by name."""
        return networks(self.manifests, strict=False)

    @property
    def simulated(self) -> bool:
        """Whether the runs are simulated. Simulated runs are never joined with real ones."""
        return any(manifest.get(SIMULATED) for manifest in self.manifests)


def find(
    runs: Runs | Joined, options: Options | None = None, step: Callable[[str], None] = lambda words: None
) -> Findings:
    """Read and analyse some runs; nothing is written. step: gets what is done next.

    Raises UserError, also for an objective that no measured point has: its front would be empty without a word.
    """
    options = options or Options()
    objectives, where = options.objectives, options.where
    step("reading the rows")
    known = joined(runs)
    folders, manifests = [run.folder for run in known.runs], [run.manifest for run in known.runs]
    named = {name: run.manifest for run in known.runs for name in run.names}
    step("finding the fronts")
    trials, stages = energy.with_middle(known.trials, known.stages), known.stages
    chance = quality.right_by_chance(trials, named)
    if chance.any():
        trials = trials.assign(**{name: trials[name].mask(chance) for name in ("top1", "top1_images")})
    known_front, hypervolumes, attainment = fronts(trials, objectives, where)
    rows, gaps = lacking(known_front, trials, objectives, where, networks(manifests, strict=False))
    measured = rows[rows["rounds"] > 0]
    for each in chosen(objectives):
        if len(measured) and measured[each.column].isna().all():
            why = f" ({each.needs})" if each.needs else ""
            raise UserError(f"--objectives {each.name}: no point of these runs has it{why}: choose others")
    step("comparing backends")
    rivals, front = competing(trials), with_struck(energy.with_crossing(rows, trials), trials, known.struck)
    backends, drifts = paired(rivals), stability.drifts(rivals)
    step("finding where to cut, and from what link speed on elsewhere")
    # In the order of every table.
    ordered = competing(needed(trials)).sort_values("netem", kind="stable")
    in_order = replace(known, trials=ordered, stages=stages)
    profiles, unread = compared.profiles_of(folders, options.profiles)
    prediction = compared.compared(front, profiles, manifests)
    apart = testbeds.differences(trials)
    told_apart = list(testbeds.sentences(apart))
    is_doubt = bool((apart["difference_percent"].abs() > testbeds.NOTABLE).any())
    step("comparing codecs and engines")
    with_codecs, with_engines = paired(rivals, "codec"), paired(rivals, "engine")
    delta_rates = bjontegaard.delta_rates(rows)
    slowest = tails(rows, trials, folders)
    offered, sustained = load.loads(trials, folders), load.sustained(trials)
    one_machine = on_one_machine(manifests)
    remarks = [
        *[CHANCE] * bool(chance.any()),
        *unread,
        *compared.unused(profiles, manifests),
        *compared.sentences(prediction),
        *([] if is_doubt else told_apart),
    ]
    return Findings(
        runs=known.runs,
        trials=trials,
        stages=stages,
        links=links(folders),
        front=front,
        hypervolumes=hypervolumes,
        attainment=attainment,
        overhead=overhead(trials, stages, {"profiles": common_profiles(manifests)}),
        paired=backends,
        drifts=drifts,
        objectives=objectives,
        where=where,
        prediction=prediction,
        answers=[
            *load.sentences(offered),
            *load.rate_sentences(sustained),
            *answers(in_order, where, rows),
            *of_codecs(in_order),
        ],
        doubts=[
            *compared.faults(prediction),
            *gaps,
            *stability.doubts(rows, drifts),
            *host_load.on_one_core(manifests),
            *host_load.beyond(rows, manifests),
            *load.doubts(trials),
            *host_load.doubts(trials, stages, shared=one_machine),
            *(map(Doubt, told_apart) if is_doubt else ()),
        ],
        verdicts=[*verdicts(backends, known.struck)],
        codecs=[*verdicts(with_codecs), *quality.sentences(rows), *rates(delta_rates)],
        engines=[*verdicts(with_engines), *sides(with_engines), *quality.of_engines(rows), *start_up(stages)],
        notes=[
            *known.notes,
            *remarks,
            *energy.sentences(stages, manifests),
            *([energy.UNKNOWN] if energy.lacks_crossing(front) else ()),
            *tail_sentences(slowest),
            *allocators(trials, manifests),
            *sentences(trials),
            *measured_again(manifests),
            *noise.floor_sentences(noise.floors(known.trials)),
            *noise.spread_sentences(known.trials, folders),
            *_of_figures(rows, trials),
            *host_load.full_cores(trials, shared=one_machine),
        ],
        remarks=remarks,
        struck=known.struck,
        progress=answer.answers(trials, named),
        delta_rates=delta_rates,
        paired_codecs=with_codecs,
        paired_engines=with_engines,
        testbeds=apart,
        tails=slowest,
        loads=offered,
        rates=sustained,
    )


def on_one_machine(manifests: Iterable[Mapping[str, Any]]) -> bool:
    """Whether the hosts of a run share the machine that the harness runs on."""
    return any(within(manifest, "sweep", "testbed") == "local" for manifest in manifests)


def _of_figures(rows: pd.DataFrame, trials: pd.DataFrame) -> Iterator[str]:
    """Yield what there is to say of the figures of each condition."""
    if rows.empty:
        yield "no trial has ended yet: nothing to show"
    for key, shown in rows.groupby(BUT_CODEC, dropna=False):
        name = " ".join(figure_name(shown, rows))
        if shown[["latency_s", "throughput_ips"]].isna().any(axis=1).all():
            of = trials.groupby(BUT_CODEC).get_group(key)
            reasons = of.loc[of["reason"] != "", "reason"].value_counts()
            # A reason may be a traceback of many lines: a note is one.
            often = f"; most often: {short(reasons.index[0])}" if len(reasons) else ""
            yield f"{name}: no figures: {status_words(of)}{often}"
            continue
        charged = shown[shown["on_energy_front"].groupby(shown["codec"]).transform("any")]
        if charged["energy_of"].nunique() > 1:
            yield f"{name}: no energy figure: its codecs count different devices"
        yield from best_points(shown, name)


def figure_name(rows: pd.DataFrame, every: pd.DataFrame) -> tuple[str, ...]:
    """Model and profile; with the other parts of the condition that differ."""
    first = rows.iloc[0]
    several = [
        f"{letter}{first[name]}"
        for name, letter in LETTERS.items()
        if name in rows and rows[name].nunique() < every[name].nunique()
    ]
    return (str(first["model"]), str(first["netem"]), *several, *filter(None, [str(first["setup"])]))


def best_points(rows: pd.DataFrame, name: str) -> Iterator[str]:
    """Yield the best feasible points among the rows of one figure, what sets the throughput's bound there, and which
    step was busiest. Nothing where it is not known what sets the bound.
    """
    feasible = rows[rows["feasible"].astype(bool)]
    measured = feasible[(feasible["bound_by"] != "") & feasible["throughput_ips"].notna()]
    if measured.empty or feasible["latency_s"].isna().all():
        return
    most = measured.loc[measured["throughput_ips"].idxmax()]
    least = feasible.loc[feasible["latency_s"].idxmin()]
    same = least.name == most.name
    lowest = ", where latency is lowest, too" if same else ""
    text = f"{name}: by the medians, most images/s at {_placed(most)}{lowest}, {_held_back(most)}"
    yield text if same else f"{text}; lowest latency at {_placed(least)}, {_held_back(least)}"


def _held_back(row: pd.Series) -> str:
    """`bound by edge-server out (busiest: edge, 86 %)`, or `bound by edge (busy 86 %)`."""
    if not row["bound_by"]:
        return "whose throughput is not known"
    if not row.get("busiest"):
        return f"bound by {row['bound_by']}"
    busy = "busy" if row["busiest"] == row["bound_by"] else f"busiest: {row['busiest']},"
    return f"bound by {row['bound_by']} ({busy} {percent(row['busiest_utilization'])})"


def _placed(row: pd.Series) -> str:
    """The point, its backend and codec, and what that costs; where nothing crosses, the point alone."""
    if row["payload_bytes"] == 0:
        return f"point {row['point']} ({forms(row.to_dict() | {'engine': ''})['place']})"
    text = f"point {row['point']} over {row['backend']}"
    if row["codec"] == NO_CODEC:
        return text
    if row["output_error"] <= quality.SAME_OUTPUT:
        return f"{text} with {row['codec']}"
    word = quality.WORDS.get(str(row["accuracy_of"]), "accuracy")
    cost = quality.span(pd.Series([row["accuracy"]], dtype=float))
    return f"{text} with {row['codec']} ({word} {cost})"
