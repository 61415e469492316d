"""The analysis on the screen: a run's report, and advice for a network."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from pareto.basics.console import Doing, files
from pareto.basics.escaping import say
from pareto.protocol.errors import UserError
from pareto.trial.store import StoreError

if TYPE_CHECKING:
    import pandas as pd

    from pareto.analysis.findings import Findings, Options
    from pareto.analysis.model_profile import ModelProfile
    from pareto.analysis.prediction.network import Network

BEST = ("latency", "throughput")
MOST_LINES = 12
"""The most answers, and warnings, in a terminal: nobody reads the rest there."""


def run_folders(console: Console, given: Sequence[Path], results: Path) -> list[Path]:
    """The folders of the runs among some paths or names, each once. Raises StoreError if there is none.

    Among several, a path that is no run (`results/*` may have such) is passed over, and that is printed.
    """
    runs, others = [], []
    for path in given:
        folder = next((at for at in (path, results / path) if (at / "trials.csv").is_file()), None)
        if folder is not None:
            runs.append(folder)
        elif len(given) == 1 or not path.exists():
            raise StoreError(f"there is no run {path}: give its folder, such as {results.name}/<run>")
        else:
            others.append(str(path))
    if not runs:
        raise StoreError("none of these is a run's folder: give some, such as results/<run>")
    if others:
        console.print(f"passed over, as no run: {', '.join(others)}")
    return list({folder.resolve(): folder for folder in runs}.values())


def show(
    console: Console,
    folders: Sequence[Path],
    options: Options,
    out: Path | None = None,
    later: str = "",
    exports: Sequence[Path] = (),
    *,
    json: bool = False,
) -> None:
    """Analyse runs, write the report and show it: the answers before figures are drawn, the folder at the end.

    later: the command that draws the figures when this is interrupted; without it, the same one. exports: where else
    the tables go (`analysis.exporting`). json: one object on standard output instead.
    """
    with Doing(console) as doing:  # pandas takes a second to import
        _only_seen(console, doing)("reading the runs")
        from pareto.analysis import as_json
        from pareto.analysis.reporting import report

    target = out or (folders[0] if len(folders) == 1 else None)
    if target and target.is_symlink():  # the user named it so; a link within a run's folder is another matter
        target = target.resolve()
    target = target or _joined(folders)
    found = False

    def answers(findings: Findings) -> None:
        nonlocal found
        if not json:
            _show(console, findings)
        found = True

    try:
        with Doing(console) as doing:
            made = report(folders, target, options, answers, _only_seen(console, doing))
    except OSError as error:
        raise StoreError(f"cannot write to {target}: {error.strerror} (choose another --out)") from None
    except KeyboardInterrupt:
        if found:
            again = later or "the same command"
            console.print(f"all tables are in {target}; draw its figures by: {again}", soft_wrap=True)
        raise
    for line in made.undrawn:
        console.print(f"attention: {line}; report it", soft_wrap=True)
    if not json:
        files(console, made.files)
        console.print(str(target), soft_wrap=True)
    for each in exports:
        from pareto.analysis.exporting import export

        try:
            console.print(export(made, each), soft_wrap=True)
        except OSError as error:
            raise StoreError(f"cannot write {each}: {error.strerror} (choose another --export)") from None
    if json:
        say(as_json.text(as_json.of_report(made, target)))


def methods(console: Console, folders: Sequence[Path]) -> None:
    """How some runs were made, as paragraphs for a paper, and their commands."""
    from pareto.analysis import methods as words
    from pareto.analysis.runs.load import joined

    runs = joined(folders)
    parts = (words.methods(runs), "\n".join(words.commands(runs)))
    console.print("\n\n".join(filter(None, parts)), soft_wrap=True, highlight=False)


def _only_seen(console: Console, doing: Doing) -> Callable[[str], None]:
    """Says what is done where somebody looks; a log has no use for it."""
    return doing.show if console.is_terminal else lambda words: None


def _show(console: Console, findings: Findings) -> None:
    """The answers, then one table, then what makes figures unsure in short: the rest is in the report's files."""
    from pareto.analysis.figures.shown import worth_showing
    from pareto.analysis.reporting import TEXT
    from pareto.analysis.tables.overview import overview

    answers = findings.answers or [
        *findings.notes[:1],
        "no answer: too little was measured to say where to cut",
    ]
    for line in answers[:MOST_LINES]:
        console.print(line, style="bold")
    if len(answers) > MOST_LINES:
        console.print(f"and {len(answers) - MOST_LINES} more answers: {TEXT} has them")
    shown = worth_showing(findings.front)
    if shown["rounds"].any():
        console.print()
        console.print(overview(shown, findings.objectives, findings.where, simulated=findings.simulated))
    for line in findings.remarks:
        console.print(line)
    for line in findings.warnings[:MOST_LINES]:
        console.print(f"attention: {in_short(line)}")
    if findings.warnings:
        console.print(f"{TEXT} says where, and what to do")


def in_short(warning: str) -> str:
    """A warning's beginning, without the case where it is worst and without its remedy."""
    return re.split(r"(?:,|;) most |\. |; ", warning, maxsplit=1)[0].rstrip(".")


def advise(
    console: Console,
    folders: Sequence[Path],
    network: Network,
    best: str,
    where: str = "",
    model: str = "",
    profile: Path | None = None,
    batch_size: int | None = None,
    *,
    json: bool = False,
) -> None:
    """Print advice for a network, from what was measured in others; or by a model profile, which runs test.

    The runs' own profile counts, where their trials leave out points that may be best (`analysis.advice.by_profile`).
    where: a constraint on what is measured or predicted. json: as of `show`. Raises UserError.
    """
    from pareto.analysis import as_json
    from pareto.analysis.advice.advise import advise as by_runs
    from pareto.analysis.advice.advise import sentence
    from pareto.analysis.advice.by_profile import kept
    from pareto.analysis.prediction.compared import in_run
    from pareto.analysis.runs.load import joined
    from pareto.analysis.tables.advice import advice_table
    from pareto.analysis.tables.predicted import advice, predicted_table

    if best not in BEST:
        raise UserError(f"--for {best}: latency or throughput")
    depth, notes, runs = "auto", list[str](), None
    if profile is None:
        runs = joined(folders)
        if chosen := kept(runs, network, model, where):
            profile, batch_size, depth = chosen.folder, chosen.batch_size, chosen.in_flight
            if chosen.unmeasured:
                notes.append(
                    f"By the model profile that the run keeps: a search struck off {chosen.unmeasured} cells without "
                    "a trial, for the networks that were measured; in this one they may be better."
                )
    if profile is not None:
        rows, said = _by_profile(profile, folders, network, batch_size, where, depth)
        said += [*notes, *(runs.notes if runs else ())]
        made = as_json.of_forecast(rows, [advice(rows, best), *said])
        shown = [Text(advice(rows, best), style="bold"), predicted_table(rows), *said]
    elif runs is not None:
        manifests = [run.manifest for run in runs.runs]
        asked = {"objective": best, "where": where, "model": model, "struck_off": runs.struck}
        advised = by_runs(runs.trials, runs.stages, manifests, network, **asked)
        unmeasured = int(runs.struck["how"].eq("physics").sum())
        if unmeasured and not advised.ranking.profile:
            profiles = [folder for run in runs.runs for folder in in_run(run.folder)]
            by = f"--profile {profiles[0]}" if profiles else "--profile, after partitions --times,"
            notes.append(
                f"attention: a search struck off {unmeasured} cells of these runs without a trial, for the networks "
                "that they are of; in this one they may be better, and they are not among these points: advise "
                f"{by} chooses among all"
            )
        notes += runs.notes
        made = as_json.of_advice(advised, sentence(advised), notes)
        shown = [advice_table(advised), *notes]
    if json:
        say(as_json.text(made))
        return
    for each in shown:
        console.print(each)


def _by_profile(
    profile: Path, folders: Sequence[Path], network: Network, size: int | None, where: str, in_flight: str
) -> tuple[pd.DataFrame, list[str]]:
    """The predicted front in a network, which is that of each link, and lines about it. Raises UserError."""
    from pareto.analysis import model_profile
    from pareto.analysis.advice.advise import in_words
    from pareto.analysis.fronts.where import Where
    from pareto.analysis.prediction.predicted import Case, predicted, splits_of
    from pareto.analysis.tables.predicted import sentences

    known = model_profile.read(profile)
    number = len(known.roles)
    if number < 2:
        raise UserError(f"the model profile {profile} is of one host: nothing can be split")
    links = (network,) * (number - 1)
    case = Case(in_words(network), links, links, known.batch_sizes[0] if size is None else size, in_flight)
    backends = list(dict.fromkeys(cost.backend for cost in known.backends))
    rows = predicted(known, backends, case, Where.parse(where))
    return rows, [*sentences(rows, splits_of(known, number), number), *_worth(folders, known)]


def _worth(folders: Sequence[Path], known: ModelProfile) -> Iterator[str]:
    """How far the forecasts of a model profile are off, by runs of its model."""
    from pareto.analysis.fronts.front import fronts
    from pareto.analysis.prediction import compared
    from pareto.analysis.runs.load import joined

    if not folders:
        yield "How far these predictions are off is not known: name runs of the model to test them."
        return
    runs = joined(folders)
    manifests = [run.manifest for run in runs.runs]
    front = compared.of_eager(fronts(runs.trials).front, runs.trials)
    frame = compared.compared(front, [known], manifests)
    yield from (*compared.sentences(frame), *compared.faults(frame), *compared.unused([known], manifests))


def _joined(folders: Sequence[Path]) -> Path:
    """The folder beside the runs for their joined report: the same runs have the same."""
    names = sorted(folder.resolve().name for folder in folders)
    digest = hashlib.sha256("/".join(names).encode()).hexdigest()[:8]
    return folders[0].parent / f"joined-{len(names)}-runs-{digest}"
