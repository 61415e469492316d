"""Two runs against each other, over what both have: points, fronts, settings.

Rounds of two runs do not belong together: nothing slowed the third of one and the third of the other. So cells are
paired and rounds are not: two samples are compared (`rank_sum` and `shifts` of `analysis.statistics.significance`).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from pareto.analysis.comparing.sentences import conclusions
from pareto.analysis.fronts import indicators
from pareto.analysis.fronts.draws import Draws, prepared
from pareto.analysis.fronts.energy import with_middle
from pareto.analysis.fronts.front import front, probabilities
from pareto.analysis.fronts.objectives import DEFAULT
from pareto.analysis.naming import SIMULATED, USUAL, cell_names, cell_title, condition_title, count, listed
from pareto.analysis.runs import comparable, standing
from pareto.analysis.runs.load import Joined, Runs, joined
from pareto.analysis.runs.manifest import sessions
from pareto.analysis.runs.points import CELL, CONDITION, NONE, TRIAL, sorted_cells
from pareto.analysis.runs.standing import competing, stands
from pareto.analysis.runs.treatments import backend_of, in_every_codec, pooled
from pareto.analysis.statistics import significance
from pareto.analysis.statistics.samples import LEAST_VALUES
from pareto.protocol.errors import UserError

COLUMNS = [
    *(*CELL, "point_name", "first_rounds", "other_rounds"),
    *("first_latency_s", "other_latency_s", "latency_difference_s", "latency_low_s", "latency_high_s"),
    *("latency_difference_percent", "latency_low_percent", "latency_high_percent"),
    *("latency_p_value", "latency_p_corrected", "latency_significant"),
    *("first_throughput_ips", "other_throughput_ips"),
    *("throughput_difference_percent", "throughput_low_percent", "throughput_high_percent"),
    *("throughput_p_value", "throughput_p_corrected", "throughput_significant"),
    *("tests", "rounds_needed", "note"),
]
CHANGES = ["enter", "may_enter", "leave", "may_leave", "stay", "may_stay"]
OF_FRONTS = [
    *(*CONDITION, "objectives", "points", "reference", "first_hypervolume", "other_hypervolume"),
    *("hypervolume_ratio", "ratio_low", "ratio_high", *CHANGES, "note"),
]
RESAMPLES = 1000
SURE = 0.95
_WORDS = {"netem": "profile", "batch_size": "batch size", "in_flight_asked": "requests in flight"}
_WORDS |= {"prefetch_asked": "prefetch"}
"""Columns that are called otherwise."""
DOUBTFUL = "attention: "
_MOST_CONDITIONS = 3
"""Conditions that a line names; of more it tells the number."""
APART = (
    "A and B were measured at different times: significant says that the runs differ, not why. How much two runs of "
    "the same settings differ, only such two can tell; in turns within one run, both sides share what passes."
)


@dataclass(frozen=True)
class Comparison:
    """Run B against run A: `names` are their folders. Sentences are one line each.

    differences: a row for each cell that both have. fronts: a row for each condition (`changes`). settings: what the
    manifests differ in, doubts first. only_first, only_second: what is not compared, as the other run lacks it.
    sentences: the conclusion, one a condition. notes: what a reader must know to judge it.
    """

    names: tuple[str, str]
    differences: pd.DataFrame
    fronts: pd.DataFrame
    settings: list[str]
    only_first: list[str]
    only_second: list[str]
    sentences: list[str]
    notes: list[str]

    def __str__(self) -> str:
        return "\n".join(self.sentences)


def compare(
    a: Runs | Joined, b: Runs | Joined, objectives: Sequence[str] = DEFAULT, where: str = ""
) -> Comparison:
    """Compare two runs, of what `analysis.load` takes, over the cells that have valid trials in both; by the fronts in
    `objectives` among the points that satisfy `where`. Raises `UserError` for what can't be read, or has no such cell.
    """
    both_runs = [joined(given) for given in (a, b)]
    for given, known in zip((a, b), both_runs, strict=True):
        if len(known.runs) > 1:
            which = "these are" if isinstance(given, Joined) else f"{given}:"
            raise UserError(f"{which} {len(known.runs)} runs; compare one run with one")
    runs, loaded = [known.runs[0] for known in both_runs], [known.trials for known in both_runs]
    made_up = [bool(trials["setup"].str.startswith(SIMULATED).any()) for trials in loaded]
    # What each run has one of, and the other another one of, is what they are compared in.
    same = {
        name: USUAL[name]
        for name in ("engine", "prefetch_asked", "allocator")
        if all(trials[name].nunique() == 1 for trials in loaded)
    }
    same["setup"] = SIMULATED if all(made_up) else f"{'AB'[made_up[1]]} {SIMULATED}" if any(made_up) else ""
    if "energy" in objectives or "energy" in where:
        loaded = [with_middle(known.trials, known.stages) for known in both_runs]
    sides = [competing(trials.assign(**same)) for trials in loaded]
    cells = _cells([known.struck for known in both_runs], sides, same)
    both = cells[(cells["A"] > 0) & (cells["B"] > 0)]
    if both.empty:
        raise UserError(f"{runs[0].folder} and {runs[1].folder}: {_nothing_shared(cells)}")
    first, other = (each[_among(each.assign(backend=backend_of(each)), both)] for each in sides)
    rows, fronts = differences(first, other), changes(first, other, objectives, where)
    notes = [f"differences are of all points; fronts of those where {where}"] if where else []
    for one, two, trials in (("A", "B", sides[1]), ("B", "A", sides[0])):
        if len(off := cells[cells[one].isna() & cells[f"{one}_struck"]]):
            points = front(trials, objectives, where)
            best = points[points["on_front"].astype(bool) & _among(points, off)].to_dict("records")
            notes.append(
                f"{one}: its search struck off {count(len(off), 'cell')}, which cannot be compared: "
                f"{'; '.join(map(cell_title, best)) or 'none of them'} on the front of {two}, by the medians of all "
                "that it measured"
            )
    return Comparison(
        (str(runs[0].folder), str(runs[1].folder)),
        rows,
        fronts,
        settings(runs[0].manifest, runs[1].manifest, set(both["model"]), set(both["netem"])),
        list(_only(cells, "A", "B")),
        list(_only(cells, "B", "A")),
        list(conclusions(rows, fronts)),
        [*notes, *_notes(first, other)],
    )


def _cells(
    struck: Sequence[pd.DataFrame], sides: Sequence[pd.DataFrame], same: Mapping[str, str]
) -> pd.DataFrame:
    """One row a cell of either run, points by their cuts: how many of its trials count (`A`, `B`; NaN where the run has
    none), and whether the run's search struck it off (`A_struck`, `B_struck`)."""
    parts = []
    for name, of_search, trials in zip("AB", struck, sides, strict=True):
        rows = pooled(trials)
        valid = rows.assign(**{name: stands(rows)}).groupby(CELL, dropna=False, observed=True)[name].sum()
        off = of_search.assign(**same, **{f"{name}_struck": True})
        off["backend"] = off["backend"].where(off["payload_bytes"] > 0, NONE)
        parts += [valid.reset_index(), *([off[[*CELL, f"{name}_struck"]]] if len(off) else [])]
    cells = pd.concat(parts).groupby(CELL, dropna=False).first().reset_index()
    cells = cells.reindex(columns=[*CELL, "A", "B", "A_struck", "B_struck"])
    return sorted_cells(cells.assign(**{name: cells[name].eq(True) for name in ("A_struck", "B_struck")}))


def _among(rows: pd.DataFrame, others: pd.DataFrame, key: list[str] = CELL) -> pd.Series:
    """Whether the cell of each row, or what else `key` says, is one of these."""
    found = rows[key].merge(others[key].drop_duplicates(), on=key, how="left", indicator="there")
    return found["there"].eq("both").set_axis(rows.index)


def differences(first: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """One row for each cell with valid trials in both frames of trials; differences are other - first. p-values are
    corrected by Holm for both measures of every cell. results/README.md has the columns, under compare.csv.
    """
    sides = [trials[stands(trials)] for trials in map(pooled, (first, other))]
    names = sides[0].groupby(CELL, dropna=False, observed=True)["point_name"].max().reset_index()
    rows = sorted_cells(names[_among(names, sides[1])])
    cells, counts, ends = rows[CELL].assign(place=range(len(rows))), [], ("difference", "low", "high")
    placed = [side.merge(cells, on=CELL) for side in sides]
    for measure, column in significance.MEASURES.items():
        both = [significance.padded(of[column], of["place"], len(rows)) for of in placed]
        counts.append([significance.rounds(table) for table in both])
        rows[f"first_{column}"], rows[f"other_{column}"] = map(significance.medians, both)
        if measure == "latency":
            rows[[f"latency_{end}_s" for end in ends]] = np.transpose(significance.shifts(*both))
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = [np.where(values > 0, np.log(values), np.nan) for values in both]
        ratios = np.expm1(np.transpose(significance.shifts(*logs)))
        rows[[f"{measure}_{end}_percent" for end in ends]] = 100 * ratios
        rows[f"{measure}_p_value"] = significance.rank_sum(*both)
    rows["first_rounds"], rows["other_rounds"] = (standing.fewest(*of) for of in zip(*counts, strict=True))
    p_values = rows[[f"{measure}_p_value" for measure in significance.MEASURES]].to_numpy(dtype=float)
    corrected = significance.holm(p_values.ravel()).reshape(p_values.shape)
    rows[[f"{measure}_p_corrected" for measure in significance.MEASURES]] = corrected
    rows[[f"{measure}_significant" for measure in significance.MEASURES]] = corrected <= significance.ALPHA
    rows["tests"] = tests = int(np.count_nonzero(~np.isnan(p_values)))
    rows["rounds_needed"] = needed = significance.rounds_needed(tests)
    enough = significance.can_tell(rows["first_rounds"].to_numpy(), rows["other_rounds"].to_numpy(), tests)
    rows["note"] = np.where(enough, "", f"too few rounds: needs {needed} in each run")
    return rows.reindex(columns=COLUMNS)


def changes(
    first: pd.DataFrame, other: pd.DataFrame, objectives: Sequence[str] = DEFAULT, where: str = ""
) -> pd.DataFrame:
    """One row a condition, from the trials of two runs that have valid trials of the same cells.

    results/README.md has the columns, under compare-fronts.csv. The interval of the hypervolumes' ratio is by
    resampling whole rounds, of each run by itself. A point enters, leaves or stays that has a probability of at least
    95 % in one run and at most 5 % in the other (to stay: of at least 95 % in both), and may do so if only the medians
    say it. Raises `UserError` for objectives or a constraint that can't be read.
    """
    # What stands for a codec that the other run lacks competes with nothing there.
    every = [in_every_codec(trials) for trials in (first, other)]
    named = [trials.assign(backend=backend_of(trials)) for trials in every]
    shared = [of[_among(*both)] for of, both in zip(every, (named, named[::-1]), strict=True)]
    sides = (prepared(of, objectives, where, RESAMPLES, seed)[1] for seed, of in enumerate(shared))
    return pd.DataFrame([_change(both) for both in zip(*sides, strict=True)], columns=OF_FRONTS)


def _change(sides: Sequence[Draws]) -> dict[Hashable, Any]:
    rows, objectives = sides[0].rows, sides[0].objectives
    on_front = [indicators.nondominated(*side.medians.T, maximise=side.maximise) for side in sides]
    row: dict[Hashable, Any] = rows.iloc[0][CONDITION].to_dict() | dict.fromkeys(CHANGES, "")
    row |= {"objectives": ", ".join(each.name for each in objectives), "points": len(rows), "reference": ""}
    devices = [str(side.rows["energy_of"].iloc[0]) or "nothing" for side in sides]
    if devices[0] != devices[1] and any("energy" in each.name for each in objectives):
        return row | {"note": f"energy is of other devices: {devices[0]} in A, {devices[1]} in B"}
    if empty := [name for name, on in zip("AB", on_front, strict=True) if not on.any()]:
        return row | {"note": f"no point on the front of {' or '.join(empty)}"}
    every = np.concatenate([side.medians for side in sides])
    reference, row["reference"] = indicators.reference_for(every, objectives, {})
    volumes = [indicators.volume(side.medians, reference, objectives) for side in sides]
    row["first_hypervolume"], row["other_hypervolume"] = volumes
    chances = [probabilities(side)[1] for side in sides]
    is_sure = np.logical_and(  # NaN, where no probability holds, is never sure
        *(np.where(on, p >= SURE, p <= 1 - SURE) for on, p in zip(on_front, chances, strict=True))
    )
    (was, now), names = on_front, cell_names(rows).to_numpy()
    for change, moved in (("enter", ~was & now), ("leave", was & ~now), ("stay", was & now)):
        row[change], row[f"may_{change}"] = ("; ".join(names[moved & sure]) for sure in (is_sure, ~is_sure))
    if not all(volumes):
        # As where no point sends anything, and the objective is less payload.
        return row | {"note": "no volume: an objective is 0 everywhere"}
    row["hypervolume_ratio"] = volumes[1] / volumes[0]
    in_each = [indicators.nondominated_in_each(side.admitted, side.maximise) for side in sides]
    both = zip(sides, in_each, strict=True)
    rounds = min(side.rounds_of_front(np.arange(len(rows)), drawn) for side, drawn in both)
    if rounds < LEAST_VALUES:
        return row | {"note": f"too few rounds for an interval: {rounds:.0f}, it needs {LEAST_VALUES}"}
    many = min(len(side.values) for side in sides)  # of more rounds fewer resamples are made
    drawn = [indicators.volumes_of_each(side.admitted[:many], reference, objectives) for side in sides]
    if not np.all(drawn):
        # A ratio to nothing is no number, and without these resamples it would seem that there always is a front.
        always_feasible = all(side.feasible.any(axis=1).all() for side in sides)
        return row | {"note": f"some resamples have no {'volume' if always_feasible else 'feasible point'}"}
    ends = indicators.without_bias(np.log(drawn[1]) - np.log(drawn[0]), np.log(row["hypervolume_ratio"]))
    row["ratio_low"], row["ratio_high"] = np.exp(ends)
    return row | {"note": ""}


def settings(
    first: Mapping[str, Any], other: Mapping[str, Any], models: Collection[str], networks: Collection[str]
) -> list[str]:
    """The differences of two manifests, A and B, a line each, about the models and networks that both runs have. Lines
    that begin with `DOUBTFUL` come first: something else was measured, such as other weights. A fact that only
    one of them records is no difference.
    """
    both = {"A": first, "B": other}
    if missing := [name for name, each in both.items() if not each]:
        has = f"{listed(missing)} {'have' if len(missing) > 1 else 'has'} no manifest that can be read"
        return [f"{DOUBTFUL}{has}: what else differs is not known"]
    made = partial(comparable.made, models=sorted(models), netems=sorted(networks))
    measured, otherwise = [], []
    for name, each in both.items():
        facts = made(each) | comparable.measured(each) | comparable.asked(each)
        measured.append((name, comparable.recorded(facts)))
        facts = comparable.chosen(each) | made(each, exactly=True) | comparable.remarks(each)
        otherwise.append((name, comparable.recorded(facts)))
    doubts, rest = (comparable.differing([facts for _, facts in sides]) for sides in (measured, otherwise))
    silent = listed(name for name, each in both.items() if not comparable.roles(sessions(each)))
    return [
        *(f"{DOUBTFUL}{line}" for line in comparable.told(doubts, measured)),
        *([f"{silent}: nothing recorded of the hosts"] if silent else []),
        *comparable.told([fact for fact in rest if fact not in doubts], otherwise),
    ]


def _notes(first: pd.DataFrame, other: pd.DataFrame) -> Iterator[str]:
    for name, trials in (("A", first), ("B", other)):
        if out := int((~stands(trials)).sum()):
            yield f"{name}: {out} of {len(trials)} trials are not valid and do not count"
        yield from (f"{name}: {line}" for line in standing.sentences(trials))
    again = 0
    if set(first["run"].unique()) & set(other["run"].unique()):  # as in a copy of a run
        same = [*TRIAL, "started_at", "latency_s"]
        again = len(first[same].merge(other[same].drop_duplicates(), on=same))
    copied = f"{count(again, 'trial')} of A {'are' if again > 1 else 'is'} in B too: that these agree shows nothing"
    yield copied if again else APART


def _only(cells: pd.DataFrame, one: str, two: str) -> Iterator[str]:
    """Lines on what only one of two runs has: models, profiles, ..., conditions, points (cells: of `_cells`). Nothing
    that follows from a line is repeated: of a profile that the other run lacks no points are listed.
    """
    these, those = (cells[cells[name].notna()] for name in (one, two))
    rest = these
    for column in (name for name in CELL if name not in ("setup", "point")):
        # No backend, as nothing crosses, is known to every run.
        known, word = {*those[column], *([NONE] if column == "backend" else [])}, _WORDS.get(column, column)
        if left := [str(value) for value in these[column].unique() if value not in known]:
            yield f"{word}{'s' if len(left) > 1 and not word.endswith('flight') else ''} {', '.join(left)}"
        rest = rest[rest[column].isin(known)]
    is_there = _among(rest, those, CONDITION)
    yield from map(condition_title, rest[~is_there].drop_duplicates(CONDITION).to_dict("records"))
    rest = rest[is_there & (rest[one] > 0) & ~(rest[two] > 0)]
    why = np.where(rest[two].notna(), " without a valid trial in the other run", "")
    why = np.where(rest[f"{two}_struck"] & rest[two].isna(), " struck off by the other run's search", why)
    lines: dict[str, list[str]] = {}
    for _, rows in rest.assign(why=why).groupby([*CONDITION, "backend", "why"], observed=True, sort=False):
        row = rows.iloc[0]
        over = f" over {row['backend']}" if row["backend"] != NONE else ""
        points = f"point{'s' if len(rows) > 1 else ''} {numbers(rows['point'])}{over}{row['why']}"
        lines.setdefault(points, []).append(condition_title(row))
    for points, of in lines.items():
        yield f"{points}: {'; '.join(of) if len(of) <= _MOST_CONDITIONS else f'{len(of)} conditions'}"


def numbers(points: Iterable[str]) -> str:
    """`3, 5 to 9, 12` of points in the order of their cuts; those with several cuts each for itself."""
    spans: list[list[str]] = []
    for point in points:
        last = spans[-1][-1] if spans else "+"
        if "+" not in last and point == str(int(last) + 1):
            spans[-1].append(point)
        else:
            spans.append([point])
    return ", ".join(f"{span[0]} to {span[-1]}" if len(span) > 2 else ", ".join(span) for span in spans)


def _nothing_shared(cells: pd.DataFrame) -> str:
    """Why two runs cannot be compared, in one line."""
    for column in (name for name in CELL if name not in ("setup", "point")):
        first, other = ([*cells.loc[cells[name].notna(), column].unique()] for name in "AB")
        if not {*first} & {*other}:
            has = (", ".join(str(one) for one in side if one != NONE) or NONE for side in (first, other))
            return f"the runs have no {_WORDS.get(column, column)} in common: {' in A, '.join(has)} in B"
    return "the runs have no point in common that has a valid trial in both"
