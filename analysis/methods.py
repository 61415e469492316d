"""How some runs were made, for a paper: a caption's words, and the values of the paragraphs in `methods.txt`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, StrictUndefined

from pareto.analysis.costs import allocators
from pareto.analysis.naming import SIMULATED, count, family, listed, transports
from pareto.analysis.runs.load import Joined, links
from pareto.analysis.runs.manifest import directions, section, sessions, within
from pareto.analysis.runs.points import CELL, cuts
from pareto.analysis.runs.standing import stands, status_words
from pareto.analysis.statistics.samples import LEAST_VALUES
from pareto.basics.escaping import short
from pareto.remote.link.units import duration, percent, rate
from pareto.sweep.options import PHASES, command

PARAGRAPH = "\n%%\n"
"""The mark between the template's paragraphs."""
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

    All is from the runs' manifests and rows: what these do not record is not mentioned.
    """
    environment = Environment(undefined=StrictUndefined, extensions=["jinja2.ext.do"])  # noqa: S701  (plain text)
    environment.globals |= {"duration": duration, "family": family, "percent": percent, "rate": rate}
    environment.filters |= {"count": count, "distinct": _distinct, "each": _each, "listed": listed}
    environment.filters |= {"named": _named, "shape": _shape, "span": _span, "weights": _weights}
    template = environment.from_string(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))
    paragraphs = template.render(_values(runs)).split(PARAGRAPH)
    return "\n\n".join(" ".join(each.split()) for each in paragraphs if each.strip())


def _values(runs: Joined) -> dict[str, Any]:
    """The values that the template names."""
    trials, manifests = runs.trials, [run.manifest for run in runs.runs]
    of_sessions = [session for manifest in manifests for session in sessions(manifest)]
    hosts: dict[str, list[Mapping[str, Any]]] = {}
    for of_roles in (section(session, "hosts") for session in of_sessions):
        for role in of_roles:
            hosts.setdefault(role, []).append(section(of_roles, role))
    return {
        "trials": trials,
        "manifests": manifests,
        "sessions": of_sessions,
        "simulated": any(manifest.get(SIMULATED) for manifest in manifests),
        "short": any(_is_short(section(manifest, "sweep")) for manifest in manifests),
        "created": [str(created)[:10] for created in _each(manifests, "created_at")],
        "described": [model for manifest in manifests for model in section(manifest, "models").values()],
        "models": {
            name: [facts for manifest in manifests if (facts := section(manifest, "models", str(name)))]
            for name in trials["model"].unique()
        },
        "points": {
            name: sorted(of.unique(), key=cuts)
            for name, of in trials.groupby("model", observed=True)["point"]
        },
        "most_named": MOST_NAMED,
        "backends": transports(trials),
        "hosts": hosts,
        "allocators": allocators(trials, manifests),
        "profiles": [
            (name, *directions(known[0], name))
            for netem in dict.fromkeys(trials["netem"])
            for name in str(netem).split("+")
            if (known := [manifest for manifest in manifests if section(manifest, "profiles", name)])
        ],
        "rounds": trials.groupby(["run", *CELL], dropna=False, observed=True)["round"].nunique(),
        "struck": 0 if runs.struck is None else len(runs.struck),
        "probes": links([run.folder for run in runs.runs]),
        "statuses": status_words(trials),
        "all_stand": stands(trials).all(),
        "most_rounds": trials.groupby("run", observed=True)["round"].nunique().max(),
        "least_rounds": LEAST_VALUES,
    }


def commands(runs: Joined) -> list[str]:
    """The command of each run, as far as its manifest says."""
    return [short(command(sweep), 2000) for run in runs.runs if (sweep := section(run.manifest, "sweep"))]


def _is_short(sweep: Mapping[str, Any]) -> bool:
    """Whether the phases of its trials were shortened, and not as long as asked for."""
    return bool(sweep.get("quick")) and not any(map(sweep.get, PHASES))


def _each(sections: Iterable[Any], *path: str) -> list[Any]:
    """The values that sections have at a path, None for one that has none."""
    return [within(each, *path) for each in sections]


def _weights(model: Any) -> str:
    weights = str(within(model, "weights") or "")
    return weights if weights in ("", "seeded", "pretrained") else "given"


def _shape(model: Mapping[str, Any]) -> str:
    shape = model.get("input_shape")
    return " x ".join(map(str, shape)) if isinstance(shape, list) else ""


def _span(values: pd.Series) -> str:
    """`2 to 11`, or one number; empty text where none is known."""
    least, most = (f"{value:.0f}" for value in (np.floor(values.min()), np.floor(values.max())))
    return "" if values.isna().all() else least if least == most else f"{least} to {most}"


def _named(values: pd.Series, several: str) -> str:
    names = list(map(str, values.unique()))
    return listed(names) if len(names) <= MOST_NAMED else f"{len(names)} {several}"


def _distinct(values: Iterable[Any]) -> str:
    """Each known value once, as a text of one line, with `and` between several."""
    return " and ".join(dict.fromkeys(short(str(value), 100) for value in values if value not in (None, "")))
