"""How some runs were made, for a paper: a caption's words, and the values of the paragraphs in `methods.txt`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
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


def made(manifests: Sequence[Mapping[str, Any]]) -> str:
    """The origin of some runs, for a caption: `pareto 0.1.0 with seeded weights, uint8 input, seed 0`.

    Values that differ between runs stand there with `and`; empty text where no manifest says anything.
    """
    version = _distinct(_each(manifests, "pareto"))
    models, sweeps = _models(manifests), _each(manifests, "sweep")
    settings = {
        "{} weights": map(_weights, models),
        "{} input": _each(models, "input"),
        "{} images": _each(models, "dataset", "name"),
        "{} threads a host": _each(sweeps, "threads"),
        "seed {}": _each(sweeps, "seed"),
        "{}": ["one short round (--quick)"] * any(map(_is_short, sweeps)),
    }
    words = ", ".join(form.format(text) for form, values in settings.items() if (text := _distinct(values)))
    return f"pareto {version}{f' with {words}' * bool(words)}" if version else ""


def methods(runs: Joined) -> str:
    """The paragraphs of methods of some runs, as plain text, a paragraph a line, with a blank line between.

    All is from the runs' manifests and rows: what these do not record is not mentioned.
    """
    environment = Environment(undefined=StrictUndefined, extensions=["jinja2.ext.do"])  # noqa: S701  (plain text)
    functions = (duration, family, percent, rate, stands, status_words, transports)
    environment.globals |= {"allocators": allocators, **{each.__name__: each for each in functions}}
    environment.filters |= {"count": count, "distinct": _distinct, "each": _each, "listed": listed}
    environment.filters |= {"named": _named, "shape": _shape, "span": _span, "weights": _weights}
    environment.filters |= {"models": _models, "short": _is_short, "ordered": partial(sorted, key=cuts)}
    template = environment.from_string(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))
    paragraphs = template.render(_values(runs)).split(PARAGRAPH)
    return "\n\n".join(" ".join(each.split()) for each in paragraphs if each.strip())


def _values(runs: Joined) -> dict[str, Any]:
    trials, manifests = runs.trials, [run.manifest for run in runs.runs]
    of_sessions = [session for manifest in manifests for session in sessions(manifest)]
    hosts = [section(session, "hosts") for session in of_sessions]
    names = dict.fromkeys(name for netem in trials["netem"].unique() for name in str(netem).split("+"))
    known = {name: [each for each in manifests if section(each, "profiles", name)] for name in names}
    return {
        "trials": trials,
        "manifests": manifests,
        "sessions": of_sessions,
        "created": [str(created)[:10] for created in _each(manifests, "created_at")],
        "hosts": {role: _each(hosts, role) for role in dict.fromkeys(key for each in hosts for key in each)},
        "profiles": [(name, *directions(each[0], name)) for name, each in known.items() if each],
        "rounds": trials.groupby(["run", *CELL], dropna=False, observed=True)["round"].nunique(),
        "most_rounds": trials.groupby("run", observed=True)["round"].nunique().max(),
        "least_rounds": LEAST_VALUES,
        "struck": runs.struck,
        "probes": links([run.folder for run in runs.runs]),
        "most_named": MOST_NAMED,
        "simulated": any(_each(manifests, SIMULATED)),
    }


def commands(runs: Joined) -> list[str]:
    """The command of each run, as far as its manifest says."""
    return [short(command(sweep), 2000) for run in runs.runs if (sweep := section(run.manifest, "sweep"))]


def _is_short(sweep: Any) -> bool:
    """Whether the phases of its trials were shortened, and not as long as asked for."""
    return bool(within(sweep, "quick")) and not any(within(sweep, phase) for phase in PHASES)


def _models(manifests: Iterable[Mapping[str, Any]]) -> list[Any]:
    return [model for manifest in manifests for model in section(manifest, "models").values()]


def _each(sections: Iterable[Any], *path: str) -> list[Any]:
    """The values that sections have at a path, None for one that has none."""
    return [within(each, *path) for each in sections]


def _weights(model: Any) -> str:
    weights = str(within(model, "weights") or "")
    return weights if weights in ("", "seeded", "pretrained") else "given"


def _shape(model: Any) -> str:
    shape = within(model, "input_shape")
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
