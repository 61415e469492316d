"""`advise`: the point to use in a network, by runs or by times of a model's units."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pareto import RESULTS
from pareto.basics.escaping import say
from pareto.commands import help as cli_help
from pareto.commands.help import CONCLUDE, JSON, WHERE, argument, command, given, option, refuse, takes
from pareto.commands.report import run_folders
from pareto.commands.runs import last
from pareto.protocol.errors import UserError
from pareto.sweep import load as of_load
from pareto.sweep import options as declared
from pareto.sweep.load import Load, Slo

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import RenderableType

    from pareto.analysis.model_profile import ModelProfile
    from pareto.analysis.prediction.network import Network
    from pareto.analysis.runs.load import Joined, Runs

_FORESEEN = ("netem", "in_flight", *declared.OF_POINTS, *declared.OF_DEVICES)
_WITHOUT = "Without runs"


@command(
    CONCLUDE,
    "advise results/example --latency 20ms --rate 30mbit",
    "advise --model mobilenetv2 --netem lte --hosts 3",
)
@takes(*_FORESEEN, head=_WITHOUT)
def advise(
    context: typer.Context,
    runs: list[Path] | None = argument("RUN", "Folders of runs.  [the last run]", None, cli_help.runs),
    *,
    latency: str = option("", "Your network's one-way delay, as 80ms.", "--latency", "--delay", kind="TIME"),
    rate: str = option("", "Its rate from edge to server, as 20mbit.", kind="RATE"),
    latency_back: str = option("0ms", "The delay from server to edge.", kind="TIME"),
    rate_back: str = option("", "The rate from server to edge.  [not limited]", kind="RATE"),
    best: str = option("latency", "What counts as best: latency or throughput.", "--for"),
    where: str = WHERE,
    model: str = option("", "Which model, of several; without runs, any.", "--model", "-m", kind="MODEL"),
    profile: Path | None = option(None, "Choose among all splits by a model profile.", kind="FOLDER"),
    load: str = option(
        "", "With --slo: requests that arrive by themselves, as 15/s or poisson:15/s.", kind="RATE"
    ),
    slo: str = option("", "Which points hold it under --load, such as 'p95 < 100ms'.", kind="TEXT"),
    batch_size: str = option("", "Of predictions: images per request.  [1; a profile's least]", kind="N"),
    out: Path = cli_help.out("Where tables go, and in profiles/ times.  [results]", head=_WITHOUT),
    json: bool = JSON,
    **options: Any,
) -> None:
    """Name the point to use in your network, the next best, how sure that is, and where another is better.

    Without runs: predict the front among all splits in the networks of --netem, from times of a model's units, which
    --profile has or which are taken first. No trial is run.
    """
    from pareto.basics.console import console

    names, screen = given(context), console(aside=json)
    if not runs and ("--netem" in names or (model and profile is None)):
        of_network = {"--latency", "--latency-back", "--rate", "--rate-back", "--for", "--where"}
        refuse(names & of_network, "not without runs, where a network has a name, as in --netem 20ms-30mbit")
        if profile is not None:
            free = {"--profile", "--netem", "--batch-size", "--in-flight", "--out", "--json"}
            refuse(names - free, "not with --profile, which says this itself")
        from pareto.commands import prediction

        typed = cli_help.typed({"model": model or None, "batch_size": batch_size or None, **options})
        prediction.run(screen, typed, profile, out, json=json)
        return
    of_units = {"--out", *(declared.OPTIONS[name].typed for name in _FORESEEN)}
    refuse(names & of_units, "only without runs, for networks by name (--netem)")
    if not latency or not rate:
        raise UserError("give --latency and --rate of your network, as in --latency 80ms --rate 20mbit")
    if batch_size and (profile is None or not batch_size.isdecimal()):
        raise UserError(
            "--batch-size goes with --profile; of runs choose one by --where, as in batch_size == 8"
        )
    if profile is not None and model:
        raise UserError("--model is for runs: a model profile is of one model")
    network = network_of(latency, rate, latency_back, rate_back)
    folders = run_folders(screen, runs, RESULTS) if runs else last(screen) if profile is None else []
    from pareto.analysis import as_json

    size, under = int(batch_size) if batch_size else None, under_load(load, slo)
    found = advised(folders, network, best, where, model, profile, size, under)
    if json:
        say(as_json.text(found.data))
        return
    for each in found.parts:
        screen.print(each)


def under_load(load: str, slo: str) -> tuple[Load, Slo] | None:
    """The load and the SLO of these texts; None without both. Raises UserError."""
    if not load and not slo:
        return None
    if not load or not slo:
        raise UserError("--load and --slo go together, as in --load 15/s --slo 'p95 < 100ms'")
    found = None if load.startswith(of_load.TRACE) or load in of_load.FOUND else of_load.parse(load)
    if found is None:
        raise UserError(f"--load {load}: a prediction is for a rate such as 15/s or poisson:15/s")
    return found, of_load.slo(slo)


def network_of(latency: str, rate: str, latency_back: str = "0ms", rate_back: str = "") -> Network:
    """The network of these texts, as a user types them. Raises UserError."""
    from pareto.analysis.prediction.network import Network
    from pareto.remote.link.units import delay_s, rate_bps

    return Network(
        delay_s(latency, "--latency"),
        rate_bps(rate, "--rate"),
        delay_s(latency_back, "--latency-back"),
        rate_bps(rate_back, "--rate-back") if rate_back else math.inf,
    )


@dataclass(frozen=True)
class Advised:
    """Advice in a sentence (`answer`), as the object that `--json` prints (`data`), and as a terminal shows it."""

    answer: str
    data: dict[str, Any]
    parts: Sequence[RenderableType]

    def __str__(self) -> str:
        return self.answer

    def _repr_html_(self) -> str:
        from pareto.basics.console import html

        return html(*self.parts)


def advised(
    runs: Runs | Joined,
    network: Network,
    best: str = "latency",
    where: str = "",
    model: str = "",
    profile: Path | None = None,
    batch_size: int | None = None,
    under: tuple[Load, Slo] | None = None,
) -> Advised:
    """Advice for a network, from what was measured in others; or by a model profile, which runs test. under: a load,
    and what its requests may take.

    The runs' own profile counts, where their trials leave out points that may be best (`analysis.advice.advise.kept`).
    where: a constraint on what is measured or predicted. Raises UserError.
    """
    from rich.text import Text

    from pareto.analysis import as_json
    from pareto.analysis.advice.advise import advise as by_runs
    from pareto.analysis.advice.advise import kept
    from pareto.analysis.advice.under_load import sentence
    from pareto.analysis.prediction.compared import in_run
    from pareto.analysis.runs.load import joined
    from pareto.analysis.tables.advice import advice_table, predicted_advice, predicted_table

    if best not in ("latency", "throughput"):
        raise UserError(f"--for {best}: latency or throughput")
    depth, notes = "auto", list[str]()
    known = joined(runs) if profile is None or runs else None
    if profile is None and known is not None and (chosen := kept(known, network, model, where)):
        profile, batch_size, depth = chosen.folder, chosen.batch_size, chosen.in_flight
        if chosen.unmeasured:
            notes.append(
                f"By the model profile that the run keeps: a search struck off {chosen.unmeasured} cells without "
                "a trial, for the networks that were measured; in this one they may be better."
            )
        notes += known.notes
    if profile is not None:
        rows, said = _by_profile(profile, known, network, batch_size, where, depth)
        if under is not None:
            notes.append(sentence(rows, *under, (math.nan, math.nan)))
        answer, lines = predicted_advice(rows, best), [*said, *notes]
        parts: list[RenderableType] = [Text(answer, style="bold"), predicted_table(rows), *lines]
        return Advised(answer, {"answers": [answer, *lines], "splits": rows}, parts)
    assert known is not None  # noqa: S101
    found = by_runs(known, network, objective=best, where=where, model=model)
    if under is not None:
        off, is_measured = found.validation.spread, bool(found.ranking.profile)
        spreads = (0.0, 0.0) if is_measured else (off("latency"), off("throughput"))
        notes.append(sentence(found.ranking.choices, *under, spreads))
    unmeasured = int(known.struck["how"].eq("physics").sum())
    if unmeasured and not found.ranking.profile:
        profiles = [folder for run in known.runs for folder in in_run(run.folder)]
        by = f"--profile {profiles[0]}" if profiles else "--profile, after partitions --times,"
        notes.append(
            f"attention: a search struck off {unmeasured} cells of these runs without a trial, for the networks "
            "that they are of; in this one they may be better, and they are not among these points: advise "
            f"{by} chooses among all"
        )
    notes += known.notes
    return Advised(str(found), as_json.of_advice(found, notes), [advice_table(found), *notes])


def _by_profile(
    profile: Path, runs: Joined | None, network: Network, size: int | None, where: str, in_flight: str
) -> tuple[pd.DataFrame, list[str]]:
    """The predicted front in a network, which is that of each link, and lines about it. Raises UserError."""
    from pareto.analysis import model_profile
    from pareto.analysis.advice.advise import in_words
    from pareto.analysis.fronts.where import Where
    from pareto.analysis.prediction.forecast import Case
    from pareto.analysis.prediction.predicted import predicted, splits_of
    from pareto.analysis.tables.advice import sentences

    known = model_profile.read(profile)
    number = len(known.roles)
    if number < 2:
        raise UserError(f"the model profile {profile} is of one host: nothing can be split")
    links = (network,) * (number - 1)
    case = Case(in_words(network), links, links, known.batch_sizes[0] if size is None else size, in_flight)
    backends = list(dict.fromkeys(cost.backend for cost in known.backends))
    rows = predicted(known, backends, case, Where.parse(where))
    return rows, [*sentences(rows, splits_of(known, number), number), *_worth(runs, known)]


def _worth(runs: Joined | None, known: ModelProfile) -> Iterator[str]:
    """How far the forecasts of a model profile are off, by runs of its model."""
    from pareto.analysis.fronts.front import front
    from pareto.analysis.prediction import compared

    if runs is None:
        yield "How far these predictions are off is not known: name runs of the model to test them."
        return
    manifests = [run.manifest for run in runs.runs]
    frame = compared.compared(front(runs.trials), [known], manifests)
    yield from (
        *compared.sentences(frame),
        *map(str, compared.faults(frame)),
        *compared.unused([known], manifests),
    )
