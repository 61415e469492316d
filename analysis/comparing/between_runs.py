"""Two runs against each other, over what both have: points, fronts, settings.

Rounds of two runs do not belong together: the third of one was measured hours from the third of the other, and nothing
slowed both. So cells are paired and rounds are not: two samples are compared (`rank_sum` and `shifts` of
`analysis.statistics.significance`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from pareto.analysis.comparing import sentences
from pareto.analysis.comparing.changes import changes
from pareto.analysis.comparing.settings import differences as settings_that_differ
from pareto.analysis.fronts.energy import with_middle
from pareto.analysis.fronts.front import front
from pareto.analysis.fronts.objectives import DEFAULT
from pareto.analysis.naming import SIMULATED, USUAL, cell_title, condition_title, count
from pareto.analysis.runs import standing
from pareto.analysis.runs.load import Runs, folders, load, stages, struck
from pareto.analysis.runs.manifest import manifest
from pareto.analysis.runs.points import (
    CELL,
    CONDITION,
    NONE,
    TRIAL,
    competing,
    controls,
    cuts,
    pooled,
    sorted_cells,
)
from pareto.analysis.runs.standing import stands
from pareto.analysis.statistics import significance
from pareto.analysis.statistics.samples import Floats
from pareto.protocol.errors import UserError

COLUMNS = [
    *CELL,
    *("point_name", "first_rounds", "other_rounds"),
    *("first_latency_s", "other_latency_s", "latency_difference_s", "latency_low_s", "latency_high_s"),
    *("latency_difference_percent", "latency_low_percent", "latency_high_percent"),
    *("latency_p_value", "latency_p_corrected", "latency_significant"),
    *("first_throughput_ips", "other_throughput_ips"),
    *("throughput_difference_percent", "throughput_low_percent", "throughput_high_percent"),
    *("throughput_p_value", "throughput_p_corrected", "throughput_significant"),
    *("tests", "rounds_needed", "note"),
]
WORDS = {
    "model": "model",
    "netem": "profile",
    "batch_size": "batch size",
    "codec": "codec",
    "engine": "engine",
    "in_flight_asked": "requests in flight",
    "prefetch_asked": "prefetch",
    "allocator": "allocator",
    "backend": "backend",
}
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


def compare(a: Runs, b: Runs, objectives: Sequence[str] = DEFAULT, where: str = "") -> Comparison:
    """Compare two runs, of what `analysis.load` takes, over the cells that have valid trials in both.

    Where a run has several engines, a cell is compared with that of the same engine. Fronts are those in `objectives`
    among the points that satisfy `where`. Raises `UserError` if a folder, objectives or constraint can't be read, or
    the runs share no cell.
    """
    runs = _run(a), _run(b)
    loaded = [load([run]) for run in runs]
    one, two = (bool(each["setup"].str.startswith(SIMULATED).any()) for each in loaded)
    setup = f"{'' if one and two else 'A ' if one else 'B '}{SIMULATED}" if one or two else ""
    # What each run has one of, and the other another one of, is what they are compared in.
    factors = ("engine", "prefetch_asked", "allocator")
    single = [name for name in factors if all(trials[name].nunique() == 1 for trials in loaded)]

    def with_setup(rows: pd.DataFrame) -> pd.DataFrame:
        return rows.assign(setup=setup, **{name: USUAL[name] for name in single})

    if "energy" in objectives or "energy" in where:
        loaded = [with_middle(trials, stages(run)) for run, trials in zip(runs, loaded, strict=True)]
    sides = [competing(with_setup(trials)) for trials in loaded]
    cells = [_cells(pooled(trials)) for trials in sides]
    struck_off = []
    for run, known in zip(runs, cells, strict=True):
        off = with_setup(struck([run]))
        off = off.assign(backend=off["backend"].where(off["payload_bytes"] > 0, NONE))
        struck_off.append(off[~_among(off, known)].drop_duplicates(CELL))
    both = _both(*cells)
    if both.empty:
        raise UserError(f"{runs[0]} and {runs[1]}: {_nothing_shared(*cells)}")
    same = [_of_cells(trials, both) for trials in sides]
    points, fronts = differences(*same), changes(same[0], same[1], objectives, where)
    notes = [f"differences are of all points; fronts of those where {where}"] if where else []
    for names, off, other in (("AB", struck_off[0], sides[1]), ("BA", struck_off[1], sides[0])):
        if len(off):
            rows = front(other, objectives, where, resamples=1)
            best = rows[rows["on_front"].astype(bool) & _among(rows, off)]
            there = (
                f"{'; '.join(map(cell_title, best.to_dict('records')))} on"
                if len(best)
                else "none of them on"
            )
            notes.append(
                f"{names[0]}: its search struck off {count(len(off), 'cell')}, which cannot be compared: {there} the "
                f"front of {names[1]}, by the medians of all that it measured"
            )
    return Comparison(
        (str(runs[0]), str(runs[1])),
        points,
        fronts,
        settings_that_differ(manifest(runs[0]), manifest(runs[1]), set(both["model"]), set(both["netem"])),
        list(_only(cells[0], cells[1], struck_off[1])),
        list(_only(cells[1], cells[0], struck_off[0])),
        list(sentences.conclusions(points, fronts)),
        [*notes, *_notes(*same)],
    )


def _run(given: Runs) -> Path:
    """The folder of the one run that is meant. Raises UserError."""
    one, *others = folders(given)
    if others:
        raise UserError(f"{given}: {len(others) + 1} runs; compare one run with one")
    return one


def _among(rows: pd.DataFrame, cells: pd.DataFrame) -> pd.Series:
    """Whether the cell of each row is one of these."""
    keys = (pd.MultiIndex.from_frame(each[CELL].astype("str")) for each in (rows, cells))
    return pd.Series(next(keys).isin(next(keys)), rows.index)


def _of_cells(trials: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """The trials of these cells; those of one without a backend as they were measured, under each."""
    of = trials.assign(backend=trials["backend"].where(~controls(trials), NONE))
    there = of[CELL].merge(cells[CELL], on=CELL, how="left", indicator=True)["_merge"].eq("both")
    return trials[there.to_numpy()].reset_index(drop=True)


def differences(first: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """One row for each cell with valid trials in both frames of trials; differences are other - first.

    results/README.md has the columns, under compare.csv. A difference is the median of those between every round of the
    one and every round of the other (Hodges & Lehmann). p-values: `rank_sum`, by Holm for both measures of every cell;
    `note` says where too few rounds can make no cell significant among so many tests.
    """
    sides = [trials[stands(trials)] for trials in map(pooled, (first, other))]
    rows = _both(*(_cells(side) for side in sides))
    ones, twos = (_tables(side, rows) for side in sides)
    for name, tables in (("first_rounds", ones), ("other_rounds", twos)):
        rows[name] = standing.fewest(*(significance.rounds(tables[each]) for each in significance.MEASURES))
    rows[["latency_difference_s", "latency_low_s", "latency_high_s"]] = np.transpose(
        significance.shifts(ones["latency"], twos["latency"])
    )
    for measure, column in significance.MEASURES.items():
        one, two = ones[measure], twos[measure]
        rows[f"first_{column}"], rows[f"other_{column}"] = (
            significance.medians(one),
            significance.medians(two),
        )
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = [np.where(values > 0, np.log(values), np.nan) for values in (one, two)]
        percents = [f"{measure}_{end}_percent" for end in ("difference", "low", "high")]
        rows[percents] = 100 * np.expm1(np.transpose(significance.shifts(*logs)))
        rows[f"{measure}_p_value"] = significance.rank_sum(one, two)
    tests = significance.correct(rows)
    for measure in significance.MEASURES:
        rows[f"{measure}_significant"] = rows[f"{measure}_p_corrected"] <= significance.ALPHA
    rows["rounds_needed"] = needed = significance.rounds_needed(tests)
    enough = significance.can_tell(rows["first_rounds"].to_numpy(), rows["other_rounds"].to_numpy(), tests)
    rows["note"] = np.where(enough, "", f"too few rounds: needs {needed} in each run")
    return rows.reindex(columns=COLUMNS)


def _tables(trials: pd.DataFrame, rows: pd.DataFrame) -> dict[str, Floats]:
    """Each measure's rounds: a row a cell, in the order of `rows`, a column a round."""
    merged = trials.merge(rows[CELL].assign(place=range(len(rows))), on=CELL)
    return {
        name: significance.padded(merged[column].to_numpy(), merged["place"].to_numpy(), len(rows))
        for name, column in significance.MEASURES.items()
    }


def _notes(first: pd.DataFrame, other: pd.DataFrame) -> Iterator[str]:
    for name, trials in (("A", first), ("B", other)):
        if out := int((~stands(trials)).sum()):
            yield f"{name}: {out} of {len(trials)} trials are not valid and do not count"
        yield from (f"{name}: {line}" for line in standing.sentences(trials))
    again = 0
    if set(first["run"].unique()) & set(other["run"].unique()):  # as in a copy of a run
        same = [*TRIAL, "started_at", "latency_s"]
        again = len(first[same].merge(other[same].drop_duplicates(), on=same))
    if again:
        yield f"{count(again, 'trial')} of A {'are' if again > 1 else 'is'} in B too: that these agree shows nothing"
    else:
        yield APART


def _cells(trials: pd.DataFrame) -> pd.DataFrame:
    """One row a cell, points by their cuts: `point_name`, and under `valid` how many of its trials count."""
    grouped = trials.assign(valid=stands(trials)).groupby(CELL, dropna=False, observed=True)
    return sorted_cells(grouped.agg(point_name=("point_name", "max"), valid=("valid", "sum")).reset_index())


def _both(first: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """The cells (rows of `_cells`) that have a valid trial in both runs; `point_name` is the first's."""
    return first[first["valid"] > 0].drop(columns="valid").merge(other.loc[other["valid"] > 0, CELL], on=CELL)


def _only(these: pd.DataFrame, those: pd.DataFrame, struck_off: pd.DataFrame) -> Iterator[str]:
    """Lines on what only the first of two runs has (frames of `_cells`): models, profiles, ..., conditions, points.

    Nothing that follows from a line is repeated: of a profile that the other run lacks no points are listed. A line of
    points may be of many conditions. struck_off: what the other run's search struck off.
    """
    rest = these
    for column, word in WORDS.items():
        # No backend, as nothing crosses, is known to every run.
        known = {*those[column], *([NONE] if column == "backend" else [])}
        if left := [str(value) or "none" for value in these[column].unique() if value not in known]:
            yield f"{word}{'s' if len(left) > 1 and not word.endswith('flight') else ''} {', '.join(left)}"
        rest = rest[rest[column].isin(known)]
    rest = rest.merge(those[CONDITION].drop_duplicates(), on=CONDITION, how="left", indicator="there")
    lacking = rest[rest["there"] == "left_only"].drop_duplicates(CONDITION)
    yield from map(condition_title, lacking.to_dict("records"))
    rest = rest[(rest["there"] == "both") & (rest["valid"] > 0)]
    rest = rest.merge(those[[*CELL, "valid"]], on=CELL, how="left", suffixes=("", "_there"))
    rest = rest[~(rest["valid_there"] > 0)]
    why = rest["valid_there"].notna().map({True: " without a valid trial in the other run", False: ""})
    rest = rest.assign(why=why.mask(_among(rest, struck_off), " struck off by the other run's search"))
    lines: dict[str, list[str]] = {}
    for _, rows in rest.groupby([*CONDITION, "backend", "why"], observed=True, sort=False):
        row = rows.iloc[0]
        over = f" over {row['backend']}" if row["backend"] != NONE else ""
        points = f"point{'s' if len(rows) > 1 else ''} {numbers(rows['point'])}{over}{row['why']}"
        lines.setdefault(points, []).append(condition_title(row))
    for points, of in lines.items():
        yield f"{points}: {'; '.join(of) if len(of) <= _MOST_CONDITIONS else f'{len(of)} conditions'}"


def numbers(points: Iterable[str]) -> str:
    """`3, 5 to 9, 12`; points with several cuts each for itself."""
    spans: list[list[str]] = []
    for point in sorted(points, key=cuts):
        last = spans[-1][-1] if spans else "+"
        if "+" not in last and point == str(int(last) + 1):
            spans[-1].append(point)
        else:
            spans.append([point])
    return ", ".join(f"{span[0]} to {span[-1]}" if len(span) > 2 else ", ".join(span) for span in spans)


def _nothing_shared(first: pd.DataFrame, other: pd.DataFrame) -> str:
    """Why two runs cannot be compared, in one line."""
    for column, word in WORDS.items():
        if not set(first[column]) & set(other[column]):
            has = (
                ", ".join(str(value) for value in side[column].unique() if value != NONE) or NONE
                for side in (first, other)
            )
            return f"the runs have no {word} in common: {' in A, '.join(has)} in B"
    return "the runs have no point in common that has a valid trial in both"
