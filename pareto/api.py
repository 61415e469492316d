"""The harness from Python, in a script or a notebook: what the command line does, in its words.

    import pareto

    run = pareto.run("mobilenetv2", netem="200ms-5mbit", quick=True)
    print(run.answer)
    run.front()                       # a pandas frame, a row a point
    run.figures.front(ax=axes)        # on axes of yours
    pareto.advise(run, latency="20ms", rate="30mbit")
    pareto.compare("results/before", run)

A run is named by a `Run`, by its folder (several; a pattern such as `results/*`), or by rows of a run's `trials`.
Whatever the user can put right raises `UserError`, a ValueError of one line.
"""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import pandas as pd

from pareto import RESULTS
from pareto.analysis import figures as kinds
from pareto.analysis import findings, markdown, reporting
from pareto.analysis.comparing import between_runs
from pareto.analysis.comparing.between_runs import Comparison
from pareto.analysis.findings import Findings, Options
from pareto.analysis.fronts.objectives import objectives_of
from pareto.analysis.runs.load import Joined, Runs, joined
from pareto.analysis.runs.points import CONDITION
from pareto.analysis.tables.compare import compare_table
from pareto.basics.console import Lines, console, html
from pareto.commands import help as cli_help
from pareto.commands.advise import Advised, advised, network_of, under_load
from pareto.protocol.errors import UserError as UserError

if TYPE_CHECKING:
    from rich.console import Console

# Here, as a table is made of the class and not the other way round.
Comparison._repr_html_ = lambda comparison: html(compare_table(comparison))  # type: ignore[attr-defined]
Source = Union["Run", Runs, pd.DataFrame]
"""A run, in one of the ways to name it."""
Progress = bool | Callable[[str], None]
"""True: as in a terminal. False: nothing. A function: gets each line."""
_FOLDERS = "folders"
"""The attribute of a frame of trials that says where they come from."""
_OF_TRIALS = ("tail", "utilization", "paired")
"""Figures that are made of trials, not of the front."""


class Run:
    """A run, or several joined, read from their folders. A notebook shows the answer, the fronts, and what makes them
    unsure; its text is the answer.
    """

    def __init__(self, runs: Source) -> None:
        self._joined = _joined(runs)
        self._found: dict[tuple[str, ...], Findings] = {}

    @property
    def folders(self) -> list[Path]:
        """The folders, in the given order."""
        return [run.folder for run in self._joined.runs]

    @property
    def trials(self) -> pd.DataFrame:
        """A row a trial, in the columns of results/README.md (s, bytes, images/s; NaN: not measured), with `setup`."""
        trials = self._joined.trials.copy(deep=False)
        trials.attrs[_FOLDERS] = [str(folder) for folder in self.folders]
        return trials

    @property
    def stages(self) -> pd.DataFrame:
        """A row for each host in each trial."""
        return self._joined.stages

    def findings(self, objectives: str | Sequence[str] = "latency,throughput", where: str = "") -> Findings:
        """The findings of a report: frames and sentences. Raises UserError."""
        names = objectives_of(objectives)
        if (asked := (where, *names)) not in self._found:
            self._found[asked] = findings.find(self._joined, Options(names, where, figures="none"))
        return self._found[asked]

    @property
    def answers(self) -> list[str]:
        """Where to cut, a sentence for each condition. `.sure`: whether that point is the best with 95 % or more."""
        return self.findings().answers

    @property
    def answer(self) -> str:
        """The answers, a line each."""
        return "\n".join(self.answers) or "no answer: too little was measured to say where to cut"

    def front(self, objectives: str | Sequence[str] = "latency,throughput", where: str = "") -> pd.DataFrame:
        """A row for each point: medians, 95 % intervals, bounds, `on_front`, probabilities (docs/analysis.md)."""
        return self.findings(objectives, where).front

    @cached_property
    def figures(self) -> Figures:
        """The figures of the run, by kind."""
        return Figures(self)

    def report(self, out: str | Path | None = None, *, figures: str = "auto") -> list[Path]:
        """The files of a report, which is written into `out`, or a single run's folder. Raises UserError, OSError."""
        there = None if out is None else Path(out)
        return reporting.report(self.folders, there, Options(figures=figures)).files

    def __str__(self) -> str:
        return self.answer

    def __repr__(self) -> str:
        return f"Run({', '.join(map(str, self.folders))})"

    def _repr_markdown_(self) -> str:
        return markdown.written(self.findings())


class Figures:
    """Figures of a run, a method a kind (`dir` lists them; `analysis.figures` describes them): a matplotlib figure, or
    the axes that are given as `ax`.

    Factors choose what is drawn, as in `run.figures.front(netem="wifi", batch_size=1)`; `width` (page, column), `title`
    and what else the kind takes go through.
    """

    def __init__(self, run: Run) -> None:
        self._run = run

    def __dir__(self) -> list[str]:
        return [kind for kind in kinds.__all__ if kind != "example"]

    def __getattr__(self, kind: str) -> Callable[..., Any]:
        if kind not in dir(self):
            raise AttributeError(f"no figure {kind!r}: one of {', '.join(dir(self))}")

        def drawn(ax: Any = None, **asked: Any) -> Any:
            run = self._run
            of_trials = kind in _OF_TRIALS or asked.get("uncertainty") == "band"
            rows = run.trials if of_trials else run.front()
            own = ["backend"] if kind != "attribution" else []  # which has an argument of that name
            for name in asked.keys() & {*CONDITION, *own}:
                rows = _chosen(rows, name, asked.pop(name))
            own_data = {"tail": {"runs": run.folders}, "utilization": {"stages": run.stages}}
            more: dict[str, Any] = own_data.get(kind, {})
            return getattr(kinds, kind)(rows, ax=ax, **more, **asked)

        drawn.__doc__ = getattr(kinds, kind).__doc__
        return drawn


class Sweep:
    """A sweep, by the options of the command line, or by a sweep file with options over it; it is checked at once.

    Goes through its models and networks, one sweep each:

        for sweep in pareto.Sweep(["resnet18", "mobilenetv2"], netem=["wifi", "lte"], trials=3):
            run = sweep.run()
    """

    def __init__(
        self, model: str | Sequence[str] | None = None, *, file: str | Path | None = None, **options: Any
    ) -> None:
        from pareto.sweep.checked_sweep import requested_sweep

        self.file = None if file is None else Path(file)
        self.options = cli_help.typed({"model": model, **options})
        self._sweep = requested_sweep(self.file, self.options)

    def __iter__(self) -> Iterator[Sweep]:
        for model in self._sweep.models:
            for netem in self._sweep.netems:
                yield Sweep(file=self.file, **{**self.options, "model": model, "netem": netem})

    def __repr__(self) -> str:
        given = {"file": self.file} if self.file else {}
        return f"Sweep({', '.join(f'{name}={value!r}' for name, value in {**given, **self.options}.items())})"

    def run(self, *, progress: Progress = True, out: str | Path = RESULTS) -> Run:
        """The run that it makes, kept in a folder of `out`.

        progress: who is told how far it is. Raises UserError where nothing can be measured; KeyboardInterrupt, after
        all is put back, where it is interrupted: what was measured is kept.
        """
        from pareto.commands.run import run as measured

        kept: list[Path] = []
        code = measured(
            self._sweep,
            Path(out),
            None,
            dry_run=False,
            began=time.monotonic(),
            console=_screen(progress),
            conclude=lambda _, store: kept.append(store.folder),
        )
        if code == 130:
            raise KeyboardInterrupt(*kept)
        if not kept:
            raise UserError("nothing was measured: the lines above say why")
        return Run(kept[0])


def run(
    model: str | Sequence[str], *, progress: Progress = True, out: str | Path = RESULTS, **options: Any
) -> Run:
    """A run of a model on a testbed: `./pareto.sh --model MODEL ...`, with its options by name.

    `pareto.run("mobilenetv2", netem="200ms-5mbit", quick=True)`. Values are as a user types them, or Python's: a list
    for several, True, numbers. progress, out, errors: as of `Sweep.run`.
    """
    return Sweep(model, **options).run(progress=progress, out=out)


def load(runs: Source) -> Run:
    """A run, or several joined: of a folder, several, a pattern, a folder of runs, or rows of trials. Raises
    UserError.
    """
    return Run(runs)


def compare(
    a: Source, b: Source, objectives: str | Sequence[str] = "latency,throughput", where: str = ""
) -> Comparison:
    """Run B against run A, over the cells that both have. Raises UserError."""
    return between_runs.compare(_joined(a), _joined(b), objectives_of(objectives), where)


def advise(
    run: Source,
    latency: str,
    rate: str,
    latency_back: str = "0ms",
    rate_back: str = "",
    *,
    best: str = "latency",
    where: str = "",
    model: str = "",
    load: str = "",
    slo: str = "",
) -> Advised:
    """The best point in a network, by what was measured in others.

    latency, rate: one way, from edge to server, as `20ms` and `30mbit`. latency_back, rate_back: the other way, not
    limited unless given. best: latency or throughput. where: a constraint. model: of several. load, slo: `15/s` and
    `p95 < 100ms`, to be told which points hold that. Raises UserError.
    """
    network = network_of(latency, rate, latency_back, rate_back)
    return advised(_joined(run), network, best, where, model, under=under_load(load, slo))


def _joined(source: Source) -> Joined:
    """The joined runs of a source. Raises UserError."""
    if isinstance(source, Run):
        return source._joined
    if not isinstance(source, pd.DataFrame):
        return joined(source)
    if not (folders := source.attrs.get(_FOLDERS)):
        raise UserError(
            "a frame stands for a run if its rows are of a run's `trials`: pareto.load(...).trials"
        )
    whole = joined(folders)
    if lost := [name for name in whole.trials if name not in source]:
        raise UserError(f"the frame lacks columns of trials: {', '.join(lost)}: leave rows out, not columns")
    return replace(whole, trials=source)


def _chosen(rows: pd.DataFrame, name: str, value: Any) -> pd.DataFrame:
    """The rows of a factor's value. Raises UserError where there is none."""
    mine = rows[rows[name].astype("str") == str(value)]
    if mine.empty:
        there = ", ".join(dict.fromkeys(rows[name].astype("str")))
        raise UserError(f"no {name} {value!r} in this run: one of {there}")
    return mine


def _screen(progress: Progress) -> Console:
    if progress is True:
        return console()
    return console(to=io.StringIO() if progress is False else Lines(progress))
