"""Two runs against each other, over what both have: points, fronts, settings.

Rounds of two runs do not belong together: the third of one was measured hours from the third of the other, and nothing
slowed both. So cells are paired and rounds are not: two samples are compared (`rank_sum` and
`shifts` of `analysis.statistics.significance`). That also needs fewer rounds than pairs made up by number: 7 instead of
11 of each for 44 tests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.comparing import front_changes, sentences
from analysis.comparing.settings import differences as settings_that_differ
from analysis.fronts.energy import with_middle
from analysis.fronts.objectives import DEFAULT
from analysis.naming import condition_title, count
from analysis.points import CELL, CONDITION, NONE, TRIAL, controls, cuts, pooled, sorted_cells
from analysis.runs.load import load, stages
from analysis.runs.manifest import manifest
from analysis.runs.setups import SIMULATED
from analysis.statistics.samples import Floats
from analysis.statistics.significance import (
    ALPHA,
    MEASURES,
    can_tell,
    correct,
    medians,
    padded,
    rank_sum,
    rounds,
    rounds_needed,
    shifts,
)
from pareto.errors import UserError

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
TOO_FEW = "too few rounds"
WORDS = {
    "model": "model",
    "netem": "profile",
    "batch_size": "batch size",
    "codec": "codec",
    "in_flight_asked": "requests in flight",
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

    differences: a row for each cell that both have (`differences`). fronts: a row for each condition
    (`analysis.comparing.front_changes.changes`). settings: what the manifests differ in, doubts first. only_first,
    only_second: what is not compared, as the other run lacks it. sentences: the conclusion, one a condition. notes:
    what a reader must know to judge it.
    """

    names: tuple[str, str]
    differences: pd.DataFrame
    fronts: pd.DataFrame
    settings: list[str]
    only_first: list[str]
    only_second: list[str]
    sentences: list[str]
    notes: list[str]


def compare(first: Path, second: Path, objectives: Sequence[str] = DEFAULT, where: str = "") -> Comparison:
    """Compare two run folders over the cells that have valid trials in both; `first` is A, `second` is B.

    Fronts are those in `objectives` among the points that satisfy `where`. Raises `UserError` if a folder can't
    be read, objectives or constraint can't be, or the runs share no cell.
    """
    a, b = manifest(first), manifest(second)
    setup, sides = _simulated(bool(a.get(SIMULATED)), bool(b.get(SIMULATED))), []
    for run in (first, second):
        trials = load([run]).assign(setup=setup)
        needs_stages = "energy" in objectives or "energy" in where
        sides.append(with_middle(trials, stages(run)) if needs_stages else trials)
    one, two = (_cells(pooled(trials)) for trials in sides)
    both = _both(one, two)
    if both.empty:
        raise UserError(f"{first} and {second}: {_nothing_shared(one, two)}")
    same = [_of_cells(trials, both) for trials in sides]
    points = differences(same[0], same[1])
    fronts = front_changes.changes(same[0], same[1], objectives, where)
    return Comparison(
        (str(first), str(second)),
        points,
        fronts,
        settings_that_differ(a, b, set(both["model"]), set(both["netem"])),
        _only(one, two),
        _only(two, one),
        list(sentences.conclusions(points, fronts)),
        list(_notes(same[0], same[1])),
    )


def _of_cells(trials: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """The trials of these cells; those of one without a backend as they were measured, under each."""
    of = trials.assign(backend=trials["backend"].where(~controls(trials), NONE))
    there = of[CELL].reset_index().merge(cells[CELL], on=CELL, how="inner")["index"]
    return trials.loc[there.sort_values()].reset_index(drop=True)


def _simulated(first: bool, second: bool) -> str:
    """The setup of two runs: what must be said wherever they are named."""
    if first and second:
        return SIMULATED
    return f"{'A' if first else 'B'} {SIMULATED}" if first or second else ""


def differences(first: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """One row for each cell with valid trials in both frames of trials; differences are other - first.

    - first_latency_s, other_latency_s, first_throughput_ips, other_throughput_ips: medians over the rounds.
    - latency_difference_s: the median of the differences between every round of the one and every round of the other
      (Hodges & Lehmann), with its 95 % interval; so it may differ a little from that of the medians.
      latency_difference_percent, throughput_difference_percent: the same of ratios. Empty intervals: too few rounds.
    - latency_p_value, throughput_p_value: `rank_sum`. _p_corrected: by Holm for all `tests`: both
      measures of every cell. _significant: that is 0.05 or less. rounds_needed: with fewer in each run, no cell can
      be significant among so many tests, whatever it shows; `note` says where it is so (many of one run make up for
      few of the other).
    """
    sides = [
        trials[(trials["status"] == "ok") & trials["latency_s"].notna()]
        for trials in map(pooled, (first, other))
    ]
    rows = _both(*(_cells(side) for side in sides))
    ones, twos = (_tables(side, rows) for side in sides)
    rows["first_rounds"], rows["other_rounds"] = rounds(ones["latency"]), rounds(twos["latency"])
    rows[["latency_difference_s", "latency_low_s", "latency_high_s"]] = np.transpose(
        shifts(ones["latency"], twos["latency"])
    )
    for measure, column in MEASURES.items():
        one, two = ones[measure], twos[measure]
        rows[f"first_{column}"], rows[f"other_{column}"] = medians(one), medians(two)
        percents = [f"{measure}_{end}_percent" for end in ("difference", "low", "high")]
        rows[percents] = 100 * np.expm1(np.transpose(shifts(_logs(one), _logs(two))))
        rows[f"{measure}_p_value"] = rank_sum(one, two)
    tests = correct(rows)
    for measure in MEASURES:
        rows[f"{measure}_significant"] = rows[f"{measure}_p_corrected"] <= ALPHA
    rows["rounds_needed"] = needed = rounds_needed(tests)
    enough = can_tell(rows["first_rounds"].to_numpy(), rows["other_rounds"].to_numpy(), tests)
    rows["note"] = np.where(enough, "", f"{TOO_FEW}: needs {needed} in each run")
    return rows.reindex(columns=COLUMNS)


def _tables(trials: pd.DataFrame, rows: pd.DataFrame) -> dict[str, Floats]:
    """Each measure's rounds: a row a cell, in the order of `rows`, a column a round."""
    numbered = rows[CELL].assign(cell=np.arange(len(rows)))
    merged = trials[[*CELL, *MEASURES.values()]].merge(numbered, on=CELL, how="inner")
    cells = merged["cell"].to_numpy()
    return {name: padded(merged[column].to_numpy(), cells, len(rows)) for name, column in MEASURES.items()}


def _logs(values: Floats) -> Floats:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values > 0, np.log(values), np.nan)


def _notes(first: pd.DataFrame, other: pd.DataFrame) -> Iterator[str]:
    for name, trials in (("A", first), ("B", other)):
        if out := int((trials["status"] != "ok").sum()):
            yield f"{name}: {out} of {len(trials)} trials are not valid and do not count"
    if again := _again(first, other):
        yield f"{count(again, 'trial')} of A {'are' if again > 1 else 'is'} in B too: that these agree shows nothing"
    else:
        yield APART


def _again(first: pd.DataFrame, other: pd.DataFrame) -> int:
    """How many trials are the very same ones, as in a copy of a run."""
    if not set(first["run"].unique()) & set(other["run"].unique()):
        return 0
    same = [*TRIAL, "started_at", "latency_s"]
    return len(first[same].merge(other[same].drop_duplicates(), on=same, how="inner"))


def _cells(trials: pd.DataFrame) -> pd.DataFrame:
    """One row a cell, points by their cuts: `point_name`, and under `valid` how many of its trials are ok."""
    grouped = trials.assign(valid=trials["status"] == "ok").groupby(CELL, dropna=False, observed=True)
    return sorted_cells(grouped.agg(point_name=("point_name", "max"), valid=("valid", "sum")).reset_index())


def _both(first: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """The cells (rows of `_cells`) that have a valid trial in both runs; `point_name` is the first's."""
    valid = first[first["valid"] > 0].drop(columns="valid")
    return valid.merge(other.loc[other["valid"] > 0, CELL], on=CELL, how="inner")


def _only(these: pd.DataFrame, those: pd.DataFrame) -> list[str]:
    """What only the first of two runs has (frames of `_cells`): models, profiles, ..., conditions, backends, points.

    A point without a valid trial in the other run is named as well. What follows from a line is not repeated: of a
    profile that the other run lacks no points are listed.
    """
    return [*_values(these, those), *_conditions(these, those), *_points(these, those)]


def _values(these: pd.DataFrame, those: pd.DataFrame) -> Iterator[str]:
    for column, word in WORDS.items():
        left = [value for value in these[column].unique() if value not in _known(those, column)]
        if left:
            several = len(left) > 1 and not word.endswith("flight")
            yield f"{word}{'s' if several else ''} {', '.join(str(value) or 'none' for value in left)}"


def _conditions(these: pd.DataFrame, those: pd.DataFrame) -> Iterator[str]:
    """Conditions that the other run lacks although it has each of their values."""
    known = set(those[CONDITION].itertuples(index=False, name=None))
    for row in _with_known_values(these, those)[CONDITION].drop_duplicates().to_dict("records"):
        if tuple(row[column] for column in CONDITION) not in known:
            yield condition_title(row)


def _points(these: pd.DataFrame, those: pd.DataFrame) -> Iterator[str]:
    """Points that the other run lacks in conditions that both have; a line may be of many conditions."""
    counts = those.set_index(CELL)["valid"].to_dict()
    conditions = set(those[CONDITION].itertuples(index=False, name=None))
    lines: dict[tuple[str, str, str], list[str]] = {}
    for _, rows in _with_known_values(these, those).groupby(
        [*CONDITION, "backend"], observed=True, sort=False
    ):
        row = rows.iloc[0]
        if tuple(row[CONDITION]) not in conditions:
            continue
        valid = rows[rows["valid"] > 0]
        missing: dict[str, list[str]] = {}
        for cell in valid[CELL].itertuples(index=False, name=None):
            count = counts.get(cell)
            if not count:
                kind = "" if count is None else " without a valid trial in the other run"
                missing.setdefault(kind, []).append(str(cell[-1]))
        for kind, lacking in missing.items():
            place = (numbers(lacking), str(row["backend"]), kind)
            lines.setdefault(place, []).append(condition_title(row))
    for (points, backend, kind), titles in lines.items():
        word = "points" if "," in points or " to " in points else "point"
        at = f"{len(titles)} conditions" if len(titles) > _MOST_CONDITIONS else "; ".join(titles)
        over = f" over {backend}" if backend else ""
        yield f"{word} {points}{over}{kind}: {at}"


def _with_known_values(these: pd.DataFrame, those: pd.DataFrame) -> pd.DataFrame:
    known = pd.Series(True, index=these.index)
    for column in WORDS:
        known &= these[column].isin(_known(those, column))
    return these[known]


def _known(those: pd.DataFrame, column: str) -> set[Any]:
    """The run's values of a column; no backend, as nothing crosses, is known to every run."""
    return {*those[column], *([NONE] if column == "backend" else [])}


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
        sides: list[Mapping[Any, None]] = [dict.fromkeys(side[column]) for side in (first, other)]
        if not sides[0].keys() & sides[1].keys():
            has = (", ".join(filter(None, map(str, side))) or "none" for side in sides)
            return f"the runs have no {word} in common: {' in A, '.join(has)} in B"
    return "the runs have no point in common that has a valid trial in both"
