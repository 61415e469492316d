"""How some runs were made, in words for a paper: in a caption, and as paragraphs of methods (`methods.txt`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, StrictUndefined

from pareto.analysis import allocators
from pareto.analysis.naming import backends, count, family, listed
from pareto.analysis.points import CELL, cuts
from pareto.analysis.runs.load import Joined, links
from pareto.analysis.runs.manifest import directions, section, sessions, within
from pareto.analysis.runs.setups import SIMULATED
from pareto.analysis.standing import stands, status_words
from pareto.analysis.statistics.samples import LEAST_VALUES
from pareto.basics.escaping import short
from pareto.remote.link.units import duration, percent, rate
from pareto.sweep.options import PHASES, command

PARAGRAPH = "\n%%\n"
"""The mark between the template's paragraphs."""
HOST_FACTS = ("machine", "cpu", "device", "cuda", "governor")
VERSIONS = {"kernel": "Linux", "python": "Python", "torch": "torch", "torchvision": "torchvision"}
LOCAL = "local"
_TRANSPORTS = {"tcp": "raw TCP sockets", "rpc": "PyTorch RPC"}
MOST_NAMED = 12
"""Points, models or profiles that are named; of more, the number."""


def made(manifests: Iterable[Mapping[str, Any]]) -> str:
    """The origin of some runs, for a caption: `pareto 0.1.0 with seeded weights, uint8 input, seed 0`.

    Values that differ between runs stand there with `and`; empty text where no manifest says anything.
    """
    known = list(manifests)
    version = _distinct(manifest.get("pareto") for manifest in known)
    models = [model for manifest in known for model in section(manifest, "models").values()]
    sweeps = [section(manifest, "sweep") for manifest in known]
    settings = [
        ("{} weights", _distinct(map(_weights, models))),
        ("{} input", _distinct(_each(models, "input"))),
        ("{} images", _distinct(_each(models, "dataset", "name"))),
        ("{} threads a host", _distinct(_each(sweeps, "threads"))),
        ("seed {}", _distinct(_each(sweeps, "seed"))),
        ("{}", "one short round (--quick)" if any(map(_is_short, sweeps)) else ""),
    ]
    words = ", ".join(form.format(value) for form, value in settings if value)
    return f"pareto {version}" + (f" with {words}" if words else "") if version else ""


def methods(runs: Joined) -> str:
    """The paragraphs of methods of some runs, as plain text, a paragraph a line, with a blank line between.

    They say what was measured, where, how, what counts, by what statistics, and the limits that a reader must
    know. All is from the runs' manifests and rows: what these do not record is not mentioned.
    """
    environment = Environment(undefined=StrictUndefined)  # noqa: S701  (plain text)
    environment.filters |= {
        "count": count,
        "distinct": _distinct,
        "each": _each,
        "listed": listed,
        "named": _named,
        "shape": _shape,
        "span": _span,
        "transport": _transport,
        "way": _way,
        "weights": _weights,
    }
    template = environment.from_string(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))
    paragraphs = template.render(_context(runs)).split(PARAGRAPH)
    return "\n\n".join(" ".join(each.split()) for each in paragraphs if each.strip())


def _context(runs: Joined) -> dict[str, Any]:
    """The values that the template names."""
    trials, manifests = runs.trials, [run.manifest for run in runs.runs]
    of_sessions = [session for manifest in manifests for session in sessions(manifest)]
    factors = {
        column: [value for value in trials[column].unique() if value] for column in ("codec", "engine")
    }
    tolerances = [each for each in _each(manifests, "sweep", "tolerance") if isinstance(each, int | float)]
    return {
        "trials": trials,
        "manifests": manifests,
        "sessions": of_sessions,
        "simulated": any(manifest.get(SIMULATED) for manifest in manifests),
        "dates": sorted({str(created)[:10] for created in _each(manifests, "created_at") if created}),
        "models": [
            (
                name,
                [facts for manifest in manifests if (facts := section(manifest, "models", str(name)))],
                sorted(rows["point"].unique(), key=cuts),
            )
            for name, rows in trials.groupby("model", sort=False)
        ],
        "most_named": MOST_NAMED,
        "alone": set(trials["netem"]) <= {"edge-only", "server-only"},
        "backends": list(filter(None, backends(trials))),
        "codecs": factors["codec"] if set(factors["codec"]) - {"none"} else [],
        "engines": factors["engine"] if set(factors["engine"]) - {"eager"} else [],
        "hosts": list(_hosts(of_sessions)),
        "allocators": allocators.sentences(trials, manifests),
        "profiles": [
            (name, *directions(known[0], name))
            for netem in dict.fromkeys(trials["netem"])
            for name in str(netem).split("+")
            if (known := [manifest for manifest in manifests if section(manifest, "profiles", name)])
        ],
        "rounds": trials.groupby(["run", *CELL], dropna=False)["round"].nunique(),
        "struck": 0 if runs.struck is None else len(runs.struck),
        "probes": links([run.folder for run in runs.runs]),
        "tolerance": _distinct(map(percent, tolerances)),
        "statuses": status_words(trials),
        "all_stand": stands(trials).all(),
        "most_rounds": trials.groupby("run")["round"].nunique().max(),
        "least_rounds": LEAST_VALUES,
        "limits": list(_limits(manifests)),
    }


def _hosts(of_sessions: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, list[str]]]:
    """Each role with what its hosts are, in all sessions."""
    known: dict[str, list[Mapping[str, Any]]] = {}
    for session in of_sessions:
        for role in section(session, "hosts"):
            known.setdefault(role, []).append(section(session, "hosts", role))
    for role, hosts in known.items():
        threads = _distinct(_each(hosts, "threads"))
        facts = [
            *(_distinct(_each(hosts, fact)) for fact in HOST_FACTS),
            *(
                f"{name} {value}"
                for fact, name in VERSIONS.items()
                if (value := _distinct(_each(hosts, fact)))
            ),
            f"{threads} compute thread{'' if threads == '1' else 's'}" if threads else "",
        ]
        if any(hosts):
            yield role, list(filter(None, facts))


def _limits(manifests: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The limits that a reader must know of runs that were measured, each a part of a sentence."""
    manifests = list(manifests)
    models = [model for manifest in manifests for model in section(manifest, "models").values()]
    if LOCAL in _each(manifests, "sweep", "testbed"):
        yield (
            "all hosts were one machine, which its stages, the senders and the emulated link share: compute times are "
            "that machine's, and the link is an emulation"
        )
    if shares := _distinct(each for each in _each(manifests, "sweep", "edge_cpu") if each != 1):
        yield (
            f"the edge was slowed by a CPU quota ({shares} of a core), which is not a slower clock: its "
            "figures scatter more than a slower device's"
        )
    if "seeded" in _each(models, "weights"):
        yield "weights are random, which changes no time but says nothing about accuracy"
    if "synthetic" in _each(models, "dataset", "name"):
        yield "images are noise"
    if len({str(created)[:10] for created in _each(manifests, "created_at")}) == 1:
        yield "all rounds are of one day: intervals tell how rounds differ, not days or devices"
    if any(_is_short(section(manifest, "sweep")) for manifest in manifests):
        yield "phases are shortened (--quick): a first look"


def commands(runs: Joined) -> list[str]:
    """The command of each run, as far as its manifest says."""
    return [short(command(sweep), 2000) for run in runs.runs if (sweep := section(run.manifest, "sweep"))]


def _is_short(sweep: Mapping[str, Any]) -> bool:
    """Whether the phases of its trials were shortened, and not as long as asked for."""
    return bool(sweep.get("quick")) and not any(map(sweep.get, PHASES))


def _each(sections: Iterable[Any], *path: str) -> list[Any]:
    """The values that sections have at a path, None for one that has none."""
    return [within(each, *path) for each in sections]


def _transport(backend: str) -> str:
    words = _TRANSPORTS.get(family(backend), "")
    return f"{words} ({backend})" if words else backend


def _way(way: Mapping[str, Any]) -> str:
    """`200 ms delay, 5 Mbit/s`: what a link does in one direction."""
    loss = way.get("loss")
    parts = (
        f"{duration(way['delay_s'])} delay" if way.get("delay_s") else "",
        f"{duration(way['jitter_s'])} jitter" if way.get("jitter_s") else "",
        rate(way["rate_bps"], 3) if way.get("rate_bps") else "",
        (f"{percent(loss)} loss" if isinstance(loss, int | float) else "loss") if loss else "",
    )
    return ", ".join(filter(None, parts)) or "not shaped"


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
    return listed(names) if len(names) <= MOST_NAMED else f"{len(names)} {several}"


def _distinct(values: Iterable[Any]) -> str:
    """Each known value once, as a text of one line, with `and` between several."""
    return " and ".join(dict.fromkeys(short(str(value), 100) for value in values if value not in (None, "")))
