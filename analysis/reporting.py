"""Run folders to all that can be said of them: tables, figures, a page. Reads nothing but the folders; can always be
done again."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analysis import files, notes, page
from analysis.advice.advise import answers
from analysis.comparing.paired import paired
from analysis.comparing.sentences import verdicts
from analysis.costs import overhead
from analysis.drawings import (
    FIGURE,
    KINDS,
    MOST_CONDITIONS,
    asked_for,
    drawings,
    figure_name,
    tabled,
    testbeds,
)
from analysis.figures.drawing import save_all
from analysis.figures.style import WIDTHS_IN
from analysis.findings import Findings
from analysis.fronts import energy
from analysis.fronts.front import fronts
from analysis.fronts.objectives import DEFAULT, chosen
from analysis.fronts.where import Where
from analysis.points import CONDITION
from analysis.runs.load import Run, Runs, folders, joined, links
from analysis.statistics import host_load
from analysis.statistics.drift import drifts
from analysis.statistics.noise import floor_sentences as noise_floors
from analysis.statistics.noise import floors
from analysis.statistics.noise import spread_sentences as spreads
from analysis.statistics.stability import warnings
from analysis.tables import latex
from pareto.errors import UserError

FIGURES = ("auto", "all", "none")
MADE = ".made"
"""Beside a report: the files that it wrote, so that the next one leaves the user's own. It may lie: see `_clear`."""
TABLES = ("front.csv", "hypervolume.csv", "attainment.csv", "overhead.csv", "paired.csv", "drift.csv")
PAGE = "report.html"
MOST_MADE = 10_000_000
"""Bytes."""
_OURS = re.compile(
    "|".join(map(re.escape, (*TABLES, PAGE)))
    + rf"|figures/(?:{'|'.join(KINDS)})-[A-Za-z0-9.+-]+\.(?:pdf|png|csv|txt|tex)"
)
"""The name of everything that a report writes beneath its folder, but `MADE`."""


@dataclass(frozen=True)
class Asked:
    """What a report is to show. figures: `auto` draws those of each condition only where there are few of these."""

    objectives: tuple[str, ...] = DEFAULT
    where: str = ""
    widths: tuple[str, ...] = ("page",)
    figures: str = "auto"


def asked(objectives: Sequence[str], where: str, width: str, figures: str) -> Asked:
    """Checked options. Raises UserError."""
    names = tuple(name.strip() for name in objectives if name.strip())
    chosen(names)
    Where.parse(where)
    widths = tuple(WIDTHS_IN) if width == "both" else (width,)
    if not set(widths) <= set(WIDTHS_IN):
        raise UserError(f"--width {width}: one of {', '.join(WIDTHS_IN)}, both")
    if figures not in FIGURES:
        raise UserError(f"--figures {figures}: one of {', '.join(FIGURES)}")
    return Asked(names, where, widths, figures)


def report(runs: Runs, out: Path | None = None, wanted: Asked | None = None) -> Findings:
    """Analyse one run or several joined, and write what was found into `out` (by default a single run's folder).

    `front.csv` `hypervolume.csv` `attainment.csv` `drift.csv`; `overhead.csv`, where something crosses the link;
    `paired.csv`, of two backends or more; `figures/`: PDF and PNG, each with its data and caption, and LaTeX tables;
    `report.html`. Trials that are not `ok` are only counted; a condition with nothing but such trials gets a note
    instead of figures. The same runs give the same bytes. Raises UserError, OSError.
    """
    meant = folders(runs)
    if out is None and len(meant) > 1:
        raise UserError(f"{len(meant)} runs are joined: say where their report goes")
    if out is None:
        out = meant[0].resolve() if meant[0].is_symlink() else meant[0]
    wanted = wanted or Asked()
    _refuse_links(out)
    found = find(meant, wanted)
    files.make(out)
    _clear(out)
    tables = (found.front, found.hypervolumes, found.attainment, found.overhead, found.paired, found.drifts)
    for table, file in zip(tables, TABLES, strict=True):
        if file == "front.csv" or not table.empty:
            found.files.append(files.write_table(out / file, table))
    if wanted.figures != "none":
        _draw(found, out / "figures", wanted)
    found.files.append(page.write(found, out / PAGE))
    names = (str(path.relative_to(out)) for path in found.files)
    files.write(out / MADE, "".join(f"{name}\n" for name in names))
    return found


def find(runs: Runs, wanted: Asked) -> Findings:
    """Everything but files. Raises UserError."""
    known = joined(runs)
    trials = energy.with_middle(known.trials, known.stages)
    made = fronts(trials, wanted.objectives, wanted.where)
    rows = made.front
    drifting = drifts(trials)
    found = Findings(
        runs=known.runs,
        trials=trials,
        stages=known.stages,
        links=links([run.folder for run in known.runs]),
        front=rows,
        hypervolumes=made.hypervolumes,
        attainment=made.attainment,
        overhead=overhead(trials, known.stages, _profiles(known.runs)),
        paired=paired(trials),
        drifts=drifting,
        objectives=wanted.objectives,
        where=wanted.where,
        notes=[*known.notes],
    )
    manifests = [run.manifest for run in found.runs]
    found.answers += answers(trials, known.stages, manifests, front=rows)
    found.warnings += [
        *warnings(rows, drifting),
        *host_load.on_one_core(manifests),
        *host_load.beyond(rows, manifests),
        *host_load.warnings(trials, known.stages, shared=found.on_one_machine),
    ]
    found.verdicts += verdicts(found.paired)
    found.notes += noise_floors(floors(known.trials))
    found.notes += spreads(known.trials, [run.folder for run in known.runs])
    if rows.empty:
        found.notes.append("no trial has ended yet: nothing to show")
    for key, shown in rows.groupby(FIGURE, dropna=False):
        name = " ".join(figure_name(shown, rows))
        if shown[["latency_s", "throughput_ips"]].isna().any(axis=1).all():
            found.notes.append(notes.nothing_valid(trials.groupby(FIGURE).get_group(key), name))
        else:
            found.notes += notes.energies_of_different_devices(shown, name)
            found.notes += notes.best_points(shown, name)
    found.notes += notes.differing_top1(trials)
    found.notes += host_load.full_cores(trials, shared=found.on_one_machine)
    return found


def _draw(found: Findings, folder: Path, wanted: Asked) -> None:
    conditions = asked_for(found.front)[CONDITION].drop_duplicates()
    each = wanted.figures == "all" or len(conditions) <= MOST_CONDITIONS
    if not each:
        found.notes.append(
            f"{len(conditions)} conditions: the figures of each are left out; --figures all draws them, --where fewer"
        )
    found.files += save_all(drawings(found, each=each), folder, wanted.widths)
    if each:
        for name, rows, pairs in tabled(found):
            files.make(folder)
            if rows["on_backend_front"].any():
                found.files.append(
                    latex.save("front", name, latex.front_latex(rows, testbeds(found)), folder)
                )
            if pairs["pairs"].any():
                found.files.append(latex.save("paired", name, latex.paired_latex(pairs), folder))


def is_ours(name: str) -> bool:
    """Whether a report may write, and so take away, what is called so beneath its folder."""
    return _OURS.fullmatch(name) is not None


def _refuse_links(out: Path) -> None:
    """Raise `files.NoPlainFile` before anything is written, if a link, FIFO or folder is among what may be."""
    for where, prefix in ((out, ""), (out / "figures", "figures/")):
        if (there := files.kind(where)) not in ("", "a folder"):
            raise files.NoPlainFile(
                f"{where} is {there}, no folder to write a report into: remove it, or write elsewhere (--out)"
            )
        for name, held in files.listing(where).items():
            if name == MADE or is_ours(prefix + name):
                files.refuse_link(where / name, held)


def _clear(out: Path) -> None:
    """Take away what an earlier report left: it may have answered another question.

    What it wrote is in `MADE`. The folder may be somebody else's, so of that list only what a report writes is gone.
    """
    try:
        made = files.read(out, MADE, most_bytes=MOST_MADE).decode("utf-8")
    except (OSError, files.NoPlainFile, UnicodeDecodeError):
        return
    for name in filter(is_ours, made.splitlines()):
        files.remove(out / name)


def _profiles(runs: Sequence[Run]) -> dict[str, Any]:
    """As in a manifest: the profiles that mean the same in every run that has them."""
    told: dict[str, list[Any]] = {}
    for run in runs:
        for name, profile in (run.manifest.get("profiles") or {}).items():
            told.setdefault(name, []).append(profile)
    return {
        "profiles": {name: alike[0] for name, alike in told.items() if all(it == alike[0] for it in alike)}
    }
