"""The findings on some runs: everything that tables, figures and the page are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from pareto.analysis import allocators, tails
from pareto.analysis.advice import codecs
from pareto.analysis.advice.advise import Answer, answers
from pareto.analysis.advice.lacking import lacking
from pareto.analysis.advice.observed import needed
from pareto.analysis.comparing import bjontegaard, by_engine
from pareto.analysis.comparing.paired import COLUMNS, paired
from pareto.analysis.comparing.sentences import verdicts
from pareto.analysis.costs import overhead
from pareto.analysis.figures.look import USUAL, WIDTHS_IN, Look
from pareto.analysis.figures.marks import UNCERTAINTIES
from pareto.analysis.fronts import answer, energy, quality
from pareto.analysis.fronts.cells import cells
from pareto.analysis.fronts.front import fronts
from pareto.analysis.fronts.objectives import DEFAULT, chosen
from pareto.analysis.fronts.where import Where
from pareto.analysis.naming import LETTERS, SIMULATED, count, some
from pareto.analysis.prediction import compared
from pareto.analysis.prediction.network import Network, networks
from pareto.analysis.runs import requests
from pareto.analysis.runs.load import Joined, Run, Runs, joined, links
from pareto.analysis.runs.manifest import common_profiles, within
from pareto.analysis.runs.points import (
    BUT_CODEC,
    CELL,
    CONDITION,
    MEASURED,
    NONE,
    SETTLED,
    competing,
    is_struck,
    order,
    pooled,
    sorted_cells,
)
from pareto.analysis.runs.standing import measured_again, sentences, status_words
from pareto.analysis.statistics import host_load, noise, stability, testbeds
from pareto.analysis.statistics.doubt import Doubt, cures
from pareto.analysis.wording import place
from pareto.basics.escaping import short
from pareto.protocol.errors import UserError
from pareto.remote.link.units import percent

BOUNDS = {"least_latency_s": "latency_s", "most_throughput_ips": "throughput_ips"}
"""Columns beside the front: the bound of a cell without a trial."""
FIGURES = ("auto", "all", "none")
CHANCE = (
    "no top-1 is shown: the weights are random (--weights seeded), so classes are right by chance only; give "
    "--weights pretrained, or a file"
)


@dataclass(frozen=True)
class Options:
    """The choices for a report. figures: `auto` draws the usual kinds, those of each condition only if there are few of
    these; `all` draws every kind. profiles: folders of model profiles whose forecasts are compared with what was
    measured. uncertainty: what fronts show of it (`analysis.figures.marks.UNCERTAINTIES`). look: that of figures.
    """

    objectives: tuple[str, ...] = DEFAULT
    where: str = ""
    widths: tuple[str, ...] = ("page",)
    figures: str = "auto"
    profiles: tuple[Path, ...] = ()
    uncertainty: str = "box"
    look: Look = USUAL

    @classmethod
    def checked(
        cls,
        objectives: Sequence[str],
        where: str,
        width: str,
        figures: str,
        profiles: Sequence[Path] = (),
        uncertainty: str = "box",
        look: Look = USUAL,
    ) -> Options:
        """Options from the texts of the command line. Raises UserError."""
        names = tuple(name.strip() for name in objectives if name.strip())
        chosen(names)
        Where.parse(where)
        if width not in (*WIDTHS_IN, "both"):
            raise UserError(f"--width {width}: one of {', '.join(WIDTHS_IN)}, both")
        if figures not in FIGURES:
            raise UserError(f"--figures {figures}: one of {', '.join(FIGURES)}")
        if uncertainty not in UNCERTAINTIES:
            raise UserError(f"--uncertainty {uncertainty}: one of {', '.join(UNCERTAINTIES)}")
        widths = tuple(WIDTHS_IN) if width == "both" else (width,)
        return cls(names, where, widths, figures, tuple(profiles), uncertainty, look)


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
    progress: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=answer.COLUMNS))
    delta_rates: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=bjontegaard.COLUMNS))
    paired_codecs: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=COLUMNS["codec"]))
    paired_engines: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=COLUMNS["engine"]))
    testbeds: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=testbeds.COLUMNS))
    tails: pd.DataFrame = field(default_factory=lambda: pd.DataFrame(columns=requests.COLUMNS))

    @property
    def standing(self) -> str:
        """Whether the answers stand in spite of the doubts; empty without a doubt, or an answer."""
        known = {
            each.conditions: each.sure
            for each in self.answers
            if isinstance(each, Answer) and each.conditions
        }
        if not self.doubts or not known:
            return ""
        open_at = [dict(zip(CONDITION, of[0], strict=True)) for of, sure in known.items() if not sure]
        stand = len(known) - len(open_at)
        if not open_at:
            return f"{'the answer stands' if stand == 1 else f'all {stand} answers stand'}: sure with all this in it"
        named = some([*dict.fromkeys(f"{of['model']} at {of['netem']}" for of in open_at)])
        return f"{stand or 'none'} of {count(len(known), 'answer')} stand{'s' * (stand == 1)}; open: {named}"

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
    def on_one_machine(self) -> bool:
        """Whether the hosts of a run share the machine that the harness runs on."""
        return any(within(manifest, "sweep", "testbed") == "local" for manifest in self.manifests)

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
    """Read and analyse some runs; nothing is written. step: gets what is done next. Raises UserError."""
    options = options or Options()
    step("reading the rows")
    known = joined(runs)
    findings, rows = _fronts(known, options, step)
    step("finding where to cut, and from what link speed on elsewhere")
    _answer(findings, rows)
    _predict(findings, options.profiles)
    _doubt(findings, rows)
    _compare_testbeds(findings)
    step("comparing codecs and engines")
    _compare_codecs(findings, rows)
    _compare_engines(findings, rows)
    _note(findings, rows, known.trials)
    return findings


def _fronts(known: Joined, options: Options, step: Callable[[str], None]) -> tuple[Findings, pd.DataFrame]:
    """The findings so far: fronts, and backends in pairs; and the front without what was struck off.

    Raise UserError for an objective that no measured point has: its front would be empty without a word.
    """
    step("finding the fronts")
    trials = energy.with_middle(known.trials, known.stages)
    manifests = {name: run.manifest for run in known.runs for name in run.names}
    chance = quality.right_by_chance(trials, manifests)
    if chance.any():
        trials = trials.assign(**{name: trials[name].mask(chance) for name in ("top1", "top1_images")})
    made = fronts(trials, options.objectives, options.where)
    of_names = networks((run.manifest for run in known.runs), strict=False)
    rows, gaps = lacking(made.front, trials, options.objectives, options.where, of_names)
    measured = rows[rows["rounds"] > 0]
    for each in chosen(options.objectives):
        if len(measured) and measured[each.column].isna().all():
            why = f" ({each.needs})" if each.needs else ""
            raise UserError(f"--objectives {each.name}: no point of these runs has it{why}: choose others")
    step("comparing backends")
    rivals = competing(trials)
    pairs = paired(rivals)
    findings = Findings(
        runs=known.runs,
        trials=trials,
        stages=known.stages,
        links=links([run.folder for run in known.runs]),
        front=with_struck(rows, trials, known.struck),
        struck=known.struck,
        progress=answer.answers(trials, manifests),
        hypervolumes=made.hypervolumes,
        attainment=made.attainment,
        overhead=overhead(
            trials, known.stages, {"profiles": common_profiles(run.manifest for run in known.runs)}
        ),
        paired=pairs,
        verdicts=[*verdicts(pairs, known.struck)],
        drifts=stability.drifts(rivals),
        objectives=options.objectives,
        where=options.where,
        doubts=gaps,
        notes=[*known.notes, *[CHANCE] * bool(chance.any())],
        remarks=[CHANCE] * bool(chance.any()),
    )
    return findings, rows


def _answer(findings: Findings, rows: pd.DataFrame) -> None:
    """Answers: where to cut, and what codecs change in that."""
    of, struck = findings, findings.struck
    ordered = competing(needed(of.trials)).sort_values("netem", kind="stable")  # as in every table
    of.answers += answers(ordered, of.stages, of.manifests, where=of.where, front=rows, struck_off=struck)
    of.answers += codecs.sentences(ordered, of.stages, of.manifests, struck)


def _predict(findings: Findings, named: Sequence[Path]) -> None:
    """Forecasts of model profiles beside what was measured, and the profiles that say nothing."""
    profiles, unread = compared.profiles_of([run.folder for run in findings.runs], named)
    findings.prediction = compared.compared(findings.front, profiles, findings.manifests)
    told = [*unread, *compared.unused(profiles, findings.manifests), *compared.sentences(findings.prediction)]
    findings.notes += told
    findings.remarks += told


def _doubt(findings: Findings, rows: pd.DataFrame) -> None:
    """Doubts of figures, beside those of points that lack one."""
    findings.doubts[:0] = compared.faults(findings.prediction)
    findings.doubts += [
        *stability.doubts(rows, findings.drifts),
        *host_load.on_one_core(findings.manifests),
        *host_load.beyond(rows, findings.manifests),
        *host_load.doubts(findings.trials, findings.stages, shared=findings.on_one_machine),
    ]


def _compare_testbeds(findings: Findings) -> None:
    """Testbeds: how far they are apart, which is a doubt if that is much."""
    findings.testbeds = testbeds.differences(findings.trials)
    told = list(testbeds.sentences(findings.testbeds))
    if (findings.testbeds["difference_percent"].abs() > testbeds.NOTABLE).any():
        findings.doubts += map(Doubt, told)
    else:
        findings.notes += told
        findings.remarks += told


def _compare_codecs(findings: Findings, rows: pd.DataFrame) -> None:
    """Codecs: their wins in time, costs in accuracy and savings in bytes."""
    findings.delta_rates = bjontegaard.delta_rates(rows)
    findings.paired_codecs = paired(competing(findings.trials), "codec")
    findings.codecs += [
        *verdicts(findings.paired_codecs),
        *quality.sentences(rows),
        *bjontegaard.sentences(findings.delta_rates),
    ]


def _compare_engines(findings: Findings, rows: pd.DataFrame) -> None:
    """Engines: their wins, on which host, and how long they take to start."""
    rivals = competing(findings.trials)
    findings.paired_engines = paired(rivals, "engine")
    findings.engines += [
        *verdicts(findings.paired_engines),
        *by_engine.sides(findings.paired_engines),
        *quality.of_engines(rows),
        *by_engine.start_up(findings.stages),
    ]


def _note(findings: Findings, rows: pd.DataFrame, measured: pd.DataFrame) -> None:
    """Notes on the trials (`measured`: as read), and on each figure."""
    trials = findings.trials
    findings.tails = tails.tails(rows, trials, [run.folder for run in findings.runs])
    findings.notes += [
        *tails.sentences(findings.tails),
        *allocators.sentences(trials, findings.manifests),
        *sentences(trials),
        *measured_again(findings.manifests),
        *noise.floor_sentences(noise.floors(measured)),
        *noise.spread_sentences(measured, [run.folder for run in findings.runs]),
    ]
    if rows.empty:
        findings.notes.append("no trial has ended yet: nothing to show")
    for key, shown in rows.groupby(BUT_CODEC, dropna=False):
        name = " ".join(figure_name(shown, rows))
        if shown[["latency_s", "throughput_ips"]].isna().any(axis=1).all():
            findings.notes.append(nothing_valid(trials.groupby(BUT_CODEC).get_group(key), name))
        else:
            findings.notes += energies_of_different_devices(shown, name)
            findings.notes += best_points(shown, name)
    findings.notes += host_load.full_cores(trials, shared=findings.on_one_machine)


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
        return f"point {row['point']} ({place(row.to_dict() | {'engine': ''})})"
    text = f"point {row['point']} over {row['backend']}"
    if row["codec"] in ("", "none"):
        return text
    if row["output_error"] <= quality.SAME_OUTPUT:
        return f"{text} with {row['codec']}"
    word = quality.WORDS.get(str(row["accuracy_of"]), "accuracy")
    cost = quality.span(pd.Series([row["accuracy"]], dtype=float))
    return f"{text} with {row['codec']} ({word} {cost})"


def nothing_valid(trials: pd.DataFrame, name: str) -> str:
    """The reason why there is nothing to draw: how many trials have which status, and the most frequent reason."""
    text = status_words(trials)
    reasons = trials.loc[trials["reason"] != "", "reason"].value_counts()
    # A reason may be a traceback of many lines: a note is one.
    often = f"; most often: {short(reasons.index[0])}" if len(reasons) else ""
    return f"{name}: no figures: {text}{often}"


def energies_of_different_devices(rows: pd.DataFrame, name: str) -> Iterator[str]:
    """Yield why there is no figure of the energy of some rows, although some was measured."""
    charged = rows[rows["on_energy_front"].groupby(rows["codec"]).transform("any")]
    if charged["energy_of"].nunique() > 1:
        yield f"{name}: no energy figure: its codecs count different devices"


def with_struck(front: pd.DataFrame, trials: pd.DataFrame, struck_off: pd.DataFrame) -> pd.DataFrame:
    """The rows of a front, and one for each cell that was struck off: on no front, with what was measured of it.

    Further columns: `SETTLED`, and `BOUNDS` of cells without a trial. A cell that another run has on its front, or
    among what that dominates, keeps that row. As it is where nothing was struck off.
    """
    if struck_off.empty:
        return front
    bounds = struck_off["how"].eq("physics")
    named = struck_off.assign(
        backend=struck_off["backend"].where(struck_off["payload_bytes"] > 0, NONE),
        **{SETTLED: struck_off["how"]},
        **{column: struck_off[of].where(bounds) for column, of in BOUNDS.items()},
    ).drop_duplicates(CELL)[[*CELL, "point_name", SETTLED, *BOUNDS]]
    measured = cells(pooled(trials[is_struck(trials)])).drop(columns="point_name")
    rows = named.merge(measured, on=CELL, how="left")
    rows = rows.merge(front[CELL].assign(there=True), on=CELL, how="left")
    rows = rows[rows["there"].isna()].drop(columns="there")
    counts = ["rounds", "excluded", "trials", "left_out"]
    rows[counts] = rows[counts].fillna(0).astype("int64")
    empty = {"bool": False, "str": ""}
    for name in (name for name in front if name not in rows):
        rows[name] = empty.get(str(front[name].dtype), float("nan"))
    rows["feasible"] = True
    for name in front.select_dtypes("str"):
        rows[name] = rows[name].fillna("").astype("str")
    both = pd.concat([front.assign(**{SETTLED: MEASURED}), rows], ignore_index=True)
    both["point_order"] = order(both["point"])
    return sorted_cells(both)[[*front.columns, SETTLED, *BOUNDS]]
