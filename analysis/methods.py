"""How some runs were made, in words for a paper: in a caption, as a paragraph of methods, and as an entry to cite."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from analysis import allocators
from analysis.escaping import short
from analysis.naming import backends, count, family
from analysis.points import CELL, order
from analysis.runs.load import Joined, links
from analysis.runs.manifest import directions, section, sessions, within
from analysis.runs.setups import SIMULATED
from analysis.standing import stands, status_words
from analysis.statistics.samples import LEAST_VALUES
from analysis.wording import duration, percent, rate
from pareto.options import PHASES, command

HOST_FACTS = ("machine", "cpu", "device", "cuda", "governor")
VERSIONS = {"kernel": "Linux", "python": "Python", "torch": "torch", "torchvision": "torchvision"}
LOCAL = "local"
_TRANSPORTS = {"tcp": "raw TCP sockets", "rpc": "PyTorch RPC"}
_SHAPERS = {
    "relay": "The links were shaped by a relay, a process in user space.",
    "netem": "The links were shaped by the kernel's netem.",
    "none": "The links were not shaped.",
}
MOST_NAMED = 12
"""Points, models or profiles that are named; of more, the number."""


def made(manifests: Iterable[Mapping[str, Any]]) -> str:
    """The origin of some runs, for a caption: `pareto 0.1.0 with seeded weights, uint8 input, seed 0`.

    What differs between runs stands there with `and`; empty text where no manifest says anything.
    """
    known = list(manifests)
    version = _distinct(manifest.get("pareto") for manifest in known)
    models = [model for manifest in known for model in section(manifest, "models").values()]
    sweeps = [section(manifest, "sweep") for manifest in known]
    settings = [
        ("{} weights", _distinct(map(_weights, models))),
        ("{} input", _distinct(within(model, "input") for model in models)),
        ("{} images", _distinct(within(model, "dataset", "name") for model in models)),
        ("{} threads a host", _distinct(sweep.get("threads") for sweep in sweeps)),
        ("seed {}", _distinct(sweep.get("seed") for sweep in sweeps)),
        ("{}", "one short round (--quick)" if any(map(_is_short, sweeps)) else ""),
    ]
    words = ", ".join(form.format(value) for form, value in settings if value)
    return f"pareto {version}" + (f" with {words}" if words else "") if version else ""


def methods(runs: Joined) -> str:
    """The paragraphs of methods of some runs, as plain text, a paragraph a line, with a blank line between.

    What was measured, where, how, what counts, by what statistics, and the limits that a reader must know. Only what
    the runs' manifests and rows say: what they do not record is not mentioned.
    """
    paragraphs = (
        _subject(runs),
        _place(runs),
        _procedure(runs),
        _counted(runs),
        _statistics(runs),
        _limits(runs),
    )
    return "\n\n".join(" ".join(sentences) for sentences in map(list, paragraphs) if sentences)


def _subject(runs: Joined) -> Iterator[str]:
    trials, manifests = runs.trials, [run.manifest for run in runs.runs]
    version = _distinct(manifest.get("pareto") for manifest in manifests) or "of an unknown version"
    dates = sorted(str(manifest["created_at"])[:10] for manifest in manifests if manifest.get("created_at"))
    when = f" on {dates[0]}" if len(set(dates)) == 1 else f" from {dates[0]} to {dates[-1]}" if dates else ""
    what = "simulated" if _simulated(runs) else "measured"
    alone = set(trials["netem"]) <= {"edge-only", "server-only"}
    yield (
        f"We {what} {_named(trials['model'], 'models')} with pareto {version}{when} ({count(len(runs.runs), 'run')})."
    )
    for model, rows in trials.groupby("model", sort=False):
        yield from _model(str(model), rows, manifests)
    if alone:
        yield "One host ran the whole model; nothing was split, and no link was crossed."
        return
    if known := [backend for backend in backends(trials) if backend]:
        yield f"Tensors crossed over {_and(map(_transport, known))}."
    for column, word in (("codec", "codecs"), ("engine", "engines")):
        values = [value for value in trials[column].unique() if value]
        if len(values) > 1 or set(values) - {"none", "eager"}:
            yield f"The {word} were {_and(values)}."
    sizes = sorted(trials["batch_size"].unique())
    yield f"The batch size was {_and(sizes)}."


def _model(model: str, rows: pd.DataFrame, manifests: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    facts = [each for manifest in manifests if (each := section(manifest, "models", model))]
    points = rows[["point"]].drop_duplicates().sort_values("point", key=order)["point"].tolist()
    cuts = f" ({_and(points)})" if len(points) <= MOST_NAMED else ""
    about = [
        f"{weights} weights" if (weights := _distinct(map(_weights, facts))) else "",
        f"{kind} input" if (kind := _distinct(within(each, "input") for each in facts)) else "",
        f"of shape {shape}" if (shape := _distinct(_shape(each) for each in facts)) else "",
        f"from the data set {name}"
        if (name := _distinct(within(each, "dataset", "name") for each in facts))
        else "",
    ]
    described = f", with {', '.join(filter(None, about))}" if any(about) else ""
    yield f"{model}{described}, was measured at {count(len(points), 'point')}{cuts}."


def _place(runs: Joined) -> Iterator[str]:
    manifests = [run.manifest for run in runs.runs]
    each = [session for manifest in manifests for session in sessions(manifest)]
    if testbed := _distinct(manifest.get("testbed") for manifest in manifests):
        yield f"The testbed was {testbed}."
    for role in dict.fromkeys(role for session in each for role in section(session, "hosts")):
        hosts = [host for session in each if (host := section(session, "hosts", role))]
        facts = [_distinct(host.get(fact) for host in hosts) for fact in HOST_FACTS]
        facts += [
            f"{name} {value}"
            for fact, name in VERSIONS.items()
            if (value := _distinct(host.get(fact) for host in hosts))
        ]
        threads = _distinct(host.get("threads") for host in hosts)
        facts += [f"{threads} compute thread{'' if threads == '1' else 's'}" if threads else ""]
        yield f"The {role} ran on {', '.join(filter(None, facts))}."
    yield from allocators.sentences(runs.trials, manifests)
    shapers = _distinct(within(session, "testbed", "shaper") for session in each)
    if shapers:
        yield _SHAPERS.get(shapers, f"The links' shaper was {shapers}.")
    for profile in dict.fromkeys(runs.trials["netem"]):
        for name in str(profile).split("+"):
            if words := _profile(name, manifests):
                yield words


def _transport(backend: str) -> str:
    words = _TRANSPORTS.get(family(backend), "")
    return f"{words} ({backend})" if words else backend


def _profile(name: str, manifests: Sequence[Mapping[str, Any]]) -> str:
    ways = [directions(manifest, name) for manifest in manifests if section(manifest, "profiles", name)]
    if not ways:
        return ""
    out, back = ways[0]
    return f"Profile {name}: {_way(out)} from edge to server; {_way(back)} on the way back."


def _way(way: Mapping[str, Any]) -> str:
    parts = []
    if delay := way.get("delay_s"):
        parts.append(f"{duration(delay)} delay")
    if jitter := way.get("jitter_s"):
        parts.append(f"{duration(jitter)} jitter")
    if bps := way.get("rate_bps"):
        parts.append(rate(bps, 3))
    if loss := way.get("loss"):
        parts.append(f"{percent(loss)} loss" if isinstance(loss, int | float) else "loss")
    return ", ".join(parts) or "not shaped"


def _procedure(runs: Joined) -> Iterator[str]:
    trials = runs.trials
    if _simulated(runs):
        yield "Nothing was measured: compute times are stated, and links are arithmetic."
        return
    rounds = trials.groupby(["run", *CELL], dropna=False)["round"].nunique()
    seeds = _distinct(within(run.manifest, "sweep", "seed") for run in runs.runs)
    drawn = f" in an order drawn from seed {seeds}" if seeds else ", in random order"
    if rounds.nunique() == 1:
        yield f"Every cell was measured once in each of {rounds.iloc[0]} rounds{drawn}."
    else:
        yield f"Cells were measured once a round, in {_span(rounds)} rounds{drawn}."
    if runs.struck is not None and len(runs.struck):
        yield f"A search struck off {count(len(runs.struck), 'cell')}, which have fewer rounds or none."
    yield (
        "A trial has two phases: latency with one request in flight, and throughput with "
        f"{_span(trials['in_flight']) or 'several'} in flight, in steady state."
    )
    counts = [
        f"{_span(trials[column])} requests of the {phase} phase"
        for phase, column in (("latency", "latency_requests"), ("throughput", "throughput_requests"))
        if trials[column].notna().any()
    ]
    if counts:
        yield f"A trial measured {_and(counts)}."
    yield (
        "Times are of the edge's clock, and of each other host's own clock for its stage; no clock is subtracted from "
        "another's. Every result was compared with that of the whole model; through a lossy codec or another engine, "
        "with the same done in one process."
    )
    probes = links([run.folder for run in runs.runs])
    if len(probes):
        off = int((probes["verdict"] != "ok").sum())
        tolerance = _distinct(
            percent(value)
            for run in runs.runs
            if isinstance(value := within(run.manifest, "sweep", "tolerance"), int | float)
        )
        allowed = f" (rate within {tolerance})" if tolerance else ""
        yield f"The link was probed {len(probes)} times between trials{allowed}; {off or 'none'} of these were off."


def _counted(runs: Joined) -> Iterator[str]:
    trials = runs.trials
    yield f"Of {len(trials)} trials the status is: {status_words(trials)}."
    if not stands(trials).all():
        yield (
            "What is not trusted (a link that was off, a slowed stage, other programs on the hosts, a wrong output, a "
            "figure beyond its bound) is "
            "excluded with its reason, and never averaged in."
        )


def _statistics(runs: Joined) -> Iterator[str]:
    yield (
        "A figure is the median over rounds. A point is on the Pareto front if no other is as good in median "
        "latency and median throughput and better in one."
    )
    most = int(runs.trials.groupby("run")["round"].nunique().max())
    if most >= LEAST_VALUES:
        yield (
            "Intervals are 95 % intervals of the median by interpolated order statistics (Hettmansperger and Sheather, "
            "1986). They are of single points, not of all points at once."
        )
    else:
        yield f"With fewer than {LEAST_VALUES} rounds there are no intervals."
    draws = (
        "The probability that a point is on the front is from draws of a hierarchical model of rounds and noise; where "
        "it would not hold, none is stated."
    )
    if runs.trials["backend"].nunique() < 2:
        yield draws
        return
    yield (
        "Backends are compared at the same point in the same round, by Wilcoxon's signed-rank test with Holm's "
        "correction over all points at 5 %."
    )
    yield draws


def _limits(runs: Joined) -> Iterator[str]:
    manifests = [run.manifest for run in runs.runs]
    if _simulated(runs):
        yield "Limits: a simulation rehearses a measurement; none of its figures is evidence of a device's speed."
        return
    limits = []
    if any(within(manifest, "sweep", "testbed") == LOCAL for manifest in manifests):
        limits.append(
            "all hosts were one machine, which its stages, the senders and the emulated link share: compute times are "
            "that machine's, and the link is an emulation"
        )
    shares = [
        value for manifest in manifests if (value := within(manifest, "sweep", "edge_cpu")) not in (None, 1)
    ]
    if shares:
        limits.append(
            f"the edge was slowed by a CPU quota ({_distinct(shares)} of a core), which is not a slower clock: its "
            "figures scatter more than a slower device's"
        )
    if any(
        within(manifest, "models", model, "weights") == "seeded"
        for manifest in manifests
        for model in _models(manifest)
    ):
        limits.append("weights are random, which changes no time but says nothing about accuracy")
    if any(_dataset(manifest, model) == "synthetic" for manifest in manifests for model in _models(manifest)):
        limits.append("images are noise")
    days = {str(manifest.get("created_at"))[:10] for manifest in manifests}
    if len(days) == 1:
        limits.append("all rounds are of one day: intervals tell how rounds differ, not days or devices")
    if any(_is_short(section(manifest, "sweep")) for manifest in manifests):
        limits.append("phases are shortened (--quick): a first look")
    if limits:
        yield f"Limits: {'; '.join(limits)}."


def commands(runs: Joined) -> list[str]:
    """The command of each run, as far as its manifest says."""
    return [short(command(sweep), 2000) for run in runs.runs if (sweep := section(run.manifest, "sweep"))]


def bibtex(version: str, year: str = "2026") -> str:
    """An entry for a bibliography."""
    return (
        "@software{pareto,\n  author = {{The pareto authors}},\n"
        "  title = {pareto: Pareto-front sweep benchmarking of split DNN inference over emulated networks},\n"
        f"  version = {{{version}}},\n  year = {{{year}}},\n  license = {{MIT}}\n}}"
    )


def _is_short(sweep: Mapping[str, Any]) -> bool:
    """Whether the phases of its trials were shortened, and not as long as asked for."""
    return bool(sweep.get("quick")) and not any(map(sweep.get, PHASES))


def _simulated(runs: Joined) -> bool:
    return any(run.manifest.get(SIMULATED) for run in runs.runs)


def _models(manifest: Mapping[str, Any]) -> list[str]:
    return list(section(manifest, "models"))


def _dataset(manifest: Mapping[str, Any], model: str) -> Any:
    return within(manifest, "models", model, "dataset", "name")


def _weights(model: Any) -> str:
    weights = str(within(model, "weights") or "")
    return weights if weights in ("", "seeded", "pretrained") else "given"


def _shape(model: Mapping[str, Any]) -> str:
    shape = model.get("input_shape")
    return " x ".join(map(str, shape)) if isinstance(shape, list) else ""


def _span(values: pd.Series) -> str:
    """`2 to 11`, or one number; empty text where none is known."""
    known = values.dropna()
    if known.empty:
        return ""
    least, most = (math.floor(value) for value in (known.min(), known.max()))
    return str(least) if least == most else f"{least} to {most}"


def _named(values: pd.Series, several: str) -> str:
    names = list(map(str, values.unique()))
    return _and(names) if len(names) <= MOST_NAMED else f"{len(names)} {several}"


def _and(values: Iterable[Any]) -> str:
    """`a, b and c`."""
    *most, last = map(str, values)
    return f"{', '.join(most)} and {last}" if most else last


def _distinct(values: Iterable[Any]) -> str:
    """Each known value once, as a text of one line, with `and` between several."""
    return " and ".join(dict.fromkeys(short(str(value), 100) for value in values if value not in (None, "")))
