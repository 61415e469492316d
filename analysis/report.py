"""A run folder to its front and figures. Reads nothing but the folder; can always be done again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from analysis import notes
from analysis.comparing.paired import paired
from analysis.comparing.verdicts import verdicts
from analysis.costs import stages
from analysis.costs.overhead import overhead
from analysis.figures.attribution_figure import attribution_figure
from analysis.figures.cuts_figure import cuts_figure
from analysis.figures.energy_figure import energy_figure
from analysis.figures.front_figure import front_figure
from analysis.figures.style import caption, save
from analysis.figures.utilization_figure import utilization_figure
from analysis.fronts import energy
from analysis.fronts.front import front
from analysis.keys import CELL
from analysis.naming import file_stem
from analysis.points import cuts
from analysis.runs import trials as dataset
from analysis.runs.trials import STATUSES, load, manifest

FIGURE = ["model", "netem", "batch_size", "in_flight_asked"]
"""What one figure shows."""


@dataclass
class Report:
    """What `report` wrote. One line each: `verdicts` on backends in pairs, `notes` on what it could not show."""

    front: pd.DataFrame
    overhead: pd.DataFrame
    paired: pd.DataFrame
    files: list[Path] = field(default_factory=list)
    verdicts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def report(run_dir: Path) -> Report:
    """Write `front.csv` and, per model and profile, `figures/front-*` and `figures/attribution-*` (PDF, PNG).

    Where they were measured: `figures/utilization-*` of the chain's steps, `figures/cuts-*` of three hosts,
    `figures/energy-*` of the devices' energy; `overhead.csv`, what each backend costs, where something crosses the
    link; `paired.csv`, of two backends or more. With more than one batch size in the run, `-b<size>` is added to the
    names, with more than one asked depth of requests in flight `-d<depth>`. Trials that are not `ok` are only counted;
    a model and profile with nothing but such trials get a note instead of figures. The same run gives the same bytes.
    Raises `analysis.runs.trials.DatasetError` if `trials.csv` is missing or malformed.
    """
    trials, staged = load([run_dir]), dataset.stages(run_dir)
    rows = front(energy.with_middle(trials, staged))
    medians = stages.medians(staged, trials)
    about = manifest(run_dir)
    result = Report(rows, overhead(trials, staged, about), paired(trials))
    result.verdicts += verdicts(result.paired)
    _write(rows, run_dir / "front.csv", result)
    for table, file in ((result.overhead, "overhead.csv"), (result.paired, "paired.csv")):
        if not table.empty:
            _write(table, run_dir / file, result)
    if rows.empty:
        result.notes.append("no trial has ended yet: nothing to show")

    figures = run_dir / "figures"
    testbed = str(about.get("testbed") or "")
    several_batches, several_depths = (
        rows[column].nunique() > 1 for column in ("batch_size", "in_flight_asked")
    )
    for condition, group in rows.groupby(FIGURE):
        model, netem, batch_size, depth = group[FIGURE].iloc[0]
        name = [model, netem, *([f"b{batch_size}"] if several_batches else [])]
        name += [f"d{depth}"] if several_depths else []
        if group[["latency_s", "throughput_ips"]].isna().any(axis=1).all():
            result.notes.append(
                f"{' '.join(map(str, name))}: no figures: {_why(trials.groupby(FIGURE).get_group(condition))}"
            )
            continue
        figures.mkdir(exist_ok=True)
        text = caption(group, testbed)
        made = {
            "front": front_figure(group, text),
            "attribution": attribution_figure(stages.stage_times(group, medians), text),
        }
        if medians.merge(group.loc[group["on_backend_front"], CELL], on=CELL)["utilization"].notna().any():
            made["utilization"] = utilization_figure(group, medians, text)
        if len(cuts(group["point"].iloc[0])) == 2:
            made["cuts"] = cuts_figure(group, text)
        charged = group[group["on_energy_front"].groupby(group["codec"]).transform("any")]
        if charged["energy_of"].nunique() > 1:
            result.notes.append(
                f"{' '.join(map(str, name))}: no energy figure: its codecs count different devices"
            )
        elif len(charged):
            made["energy"] = energy_figure(charged, f"{text} {energy.note(charged, about)}")
        for kind, figure in made.items():
            result.files += save(figure, figures / file_stem(kind, *name))
        result.notes += notes.bottlenecks(group, " ".join(map(str, name)))
    result.notes += notes.differing_top1(trials)
    return result


def _write(table: pd.DataFrame, path: Path, result: Report) -> None:
    table.to_csv(path, index=False, float_format="%.9g", lineterminator="\n")
    result.files.append(path)


def _why(trials: pd.DataFrame) -> str:
    """What became of trials that left nothing to draw."""
    counts = trials["status"].value_counts()
    text = ", ".join(f"{counts.get(status, 0)} {status}" for status in STATUSES)
    reasons = trials.loc[trials["reason"] != "", "reason"].value_counts()
    # A reason may be a traceback of many lines: a note is one.
    return f"{text}; most often: {' '.join(reasons.index[0].split())}" if len(reasons) else text
